//! What the checks say, and what becomes of the others.

use super::{M, machine, me, on_all_cpus, words_of};
use minflt_sync::order::{FilesLock, MmapLock, PageTableLock};
use minflt_sync::{Atomic, Machine, Ordering, RwSem, SpinLock, Succession};

#[test]
fn taking_locks_in_the_wrong_order_names_both_and_where() {
    let at = machine(1);
    let mmap: RwSem<MmapLock, M> = RwSem::new(Succession::HandOff);
    let table: SpinLock<(), PageTableLock, M> = SpinLock::new(());
    let first_line = line!() + 3;
    let words = words_of(|| {
        let _cpu = at.enter(0);
        let _table = table.lock();
        let _mmap = mmap.read();
    });
    for part in ["waits for MmapLock at", "holds PageTableLock, taken at"] {
        assert!(words.contains(part), "{words}");
    }
    for line in [first_line, first_line + 1] {
        assert!(
            words.contains(&format!("order.rs:{line}:")),
            "{line}: {words}"
        );
    }
    assert!(at.failed().is_some_and(|text| words.ends_with(&text)));
    assert!(!table.is_locked(), "the guard was dropped on the way out");
}

#[test]
fn a_sleeping_lock_under_a_spinning_one_or_with_interrupts_off_is_refused() {
    let at = machine(1);
    let table: SpinLock<(), PageTableLock, M> = SpinLock::new(());
    let words = words_of(|| {
        let _cpu = at.enter(0);
        let _irq = M::irq_save();
        let _table = table.lock();
    });
    assert!(words.contains("waits for PageTableLock") && words.contains("interrupts off"));
    // A try adds no wait, so it may be made in any order.
    let at = machine(1);
    let lru: SpinLock<(), FilesLock, M> = SpinLock::new(());
    let _cpu = at.enter(0);
    let _lru = lru.lock();
    assert!(table.try_lock().is_some());
}

#[test]
fn leaving_a_cpu_with_something_open_is_a_violation() {
    let at = machine(1);
    let words = words_of(|| {
        let _cpu = at.enter(0);
        let _ = M::irq_save();
    });
    assert!(words.contains("leaves its CPU"), "{words}");
    let _cpu = at.enter(0);
    assert_eq!(me().irq_off.get(), 0);
}

#[test]
fn a_cpu_is_one_thread_and_a_thread_is_one_cpu() {
    let (at, other) = (machine(2), machine(2));
    let _cpu = at.enter(1);
    assert_eq!((me().cpu.get(), me().task.get().0), (1, 2));
    assert!(words_of(|| drop(other.enter(0))).contains("is a CPU already"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!((me().cpu.get(), me().task.get().0), (u32::MAX, 0));
            assert!(words_of(|| drop(at.enter(1))).contains("CPU 1 is run by another thread"));
            assert!(words_of(|| drop(at.enter(2))).contains("no CPU 2: the machine has 2"));
            assert!(words_of(M::park).contains("set-up code would sleep"));
            let _cpu = at.enter(0);
        });
    });
}

#[test]
fn a_failure_ends_the_waits_of_the_others() {
    let at = machine(4);
    let never = Atomic::<u64, M>::new(0);
    let words = words_of(|| {
        on_all_cpus(&at, |cpu| match cpu {
            0 => M::violation(format_args!("the oracle of CPU {cpu} spoke")),
            1 => loop {
                M::park();
            },
            _ => {
                while never.load(Ordering::Relaxed) == 0 {
                    never.wait_until(u64::MAX, 1);
                }
            }
        });
    });
    assert_eq!(words, "a scoped thread panicked");
    assert_eq!(at.failed().as_deref(), Some("the oracle of CPU 0 spoke"));
}
