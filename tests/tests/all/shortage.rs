//! Memory that is there, but waits: for a grace period, or in somebody's queue. Nobody fails for
//! lack of it.

#![expect(
    clippy::disallowed_types,
    reason = "when a test ends is none of the machine's"
)]

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use minflt_addr::VirtAddr;
use minflt_host::Host;
use minflt_mm::{Mm, MmHandle, Place, Prot, Swap, System, era, eras_without_migration};
use minflt_pgtable::X86_64;
use minflt_tests::world::{BASE, Machine, PAGE, boot, boot_on, machine, page};

type Bare = Host<X86_64, false>;

/// What a table of leaf entries maps.
const SPAN: u64 = 2 << 20;

/// Says that the test has ended.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `test` on CPU 0 of a small machine, in every era, while CPU 1 does nothing but load from a
/// page of its own. It is in user mode nearly always, and answers interrupts only every so often,
/// as a CPU does that a hypervisor has descheduled.
fn beside_a_user(absent: Duration, test: impl Fn(&System<Machine>, &Mm<Machine>)) {
    for era in eras_without_migration() {
        eprintln!("{}", era.name);
        let sys = boot(era.config, 2, 4 << 20);
        let cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let other = sys.new_mm().expect("memory");
        let read = page(0);
        assert_eq!(
            other.mmap(Place::Fixed(read), PAGE, Prot::READ_WRITE),
            Ok(read)
        );
        assert_eq!(other.thread().load(read), Ok(0));
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _cpu = sys.machine().enter(1);
                let thread = other.thread();
                while !ends.load(Ordering::Relaxed) {
                    assert_eq!(thread.load(read), Ok(0));
                    if !absent.is_zero() {
                        std::thread::sleep(absent);
                    }
                }
            });
            // Also if the test fails.
            let _ends = Ends(&ends);
            test(&sys, &mm);
        });
        drop::<[MmHandle<'_, _>; 2]>([mm, other]);
        drop(cpu);
        let _cpu = sys.machine().enter(0);
        sys.check_ledger(&[]).expect("nothing is left");
    }
}

/// Splitting and merging queues records and nodes faster than grace periods end.
#[test]
fn a_busy_mprotect_does_not_run_a_small_machine_dry() {
    beside_a_user(Duration::ZERO, |_, mm| {
        let mapped = mm.mmap(Place::Fixed(page(0)), 64 * PAGE, Prot::READ_WRITE);
        assert_eq!(mapped, Ok(page(0)));
        for round in 0..20_000 {
            let protect = |n, pages, prot| {
                let changed = mm.mprotect(page(n), pages * PAGE, prot);
                assert_eq!(changed, Ok(()), "round {round}");
            };
            protect(10, 40, Prot::READ);
            protect(30, 20, Prot::READ_WRITE);
            protect(10, 40, Prot::READ_WRITE);
        }
    });
}

/// A CPU that does not come by keeps callbacks waiting; who queues them waits before they are more
/// than their part of memory, and what one call may queue.
#[test]
fn who_queues_much_waits_for_readers() {
    beside_a_user(Duration::from_millis(2), |sys, mm| {
        let mapped = mm.mmap(Place::Fixed(page(0)), 64 * PAGE, Prot::READ_WRITE);
        assert_eq!(mapped, Ok(page(0)));
        let most = sys.most_deferred() + 16;
        for round in 0..2_000 {
            for prot in [Prot::READ, Prot::READ_WRITE] {
                assert_eq!(mm.mprotect(page(10), 40 * PAGE, prot), Ok(()));
                let deferred = sys.deferred();
                assert!(deferred <= most, "round {round}: {deferred} of {most}");
            }
        }
    });
}

/// All of memory is mapped but what one round needs, and its tables wait for a grace period.
#[test]
fn memory_for_what_is_mapped_is_enough() {
    beside_a_user(Duration::from_millis(2), |_, mm| {
        let thread = mm.thread();
        // A table and a frame each.
        let span = |n: u64| VirtAddr(BASE + n * SPAN);
        let touch = |n| {
            let mapped = mm.mmap(Place::Fixed(span(n)), PAGE, Prot::READ_WRITE);
            mapped.is_ok() && thread.store(span(n), n).is_ok()
        };
        let mut fit = 0;
        while touch(fit) {
            fit += 1;
        }
        assert!(fit > 200, "{fit}");
        // What a round's own objects and those of its tree need beside.
        for n in 0..16 {
            fit -= 1;
            assert_eq!(mm.munmap(span(fit), PAGE), Ok(()), "{n}");
        }
        for round in 0..20 {
            for n in 0..fit / 2 {
                assert_eq!(mm.munmap(span(n), PAGE), Ok(()), "round {round}");
            }
            for n in 0..fit / 2 {
                assert!(touch(n), "round {round}, {n} of {fit}");
            }
        }
    });
}

/// What many mappings took is free again when they are gone, whatever frees them: the pages of
/// slabs, too, but for what CPUs and slabs keep.
#[test]
fn memory_of_many_mappings_comes_back() {
    // One of each reclamation scheme.
    for name in ["linux-2.6.10", "spf-2017", "linux-6.4", "linux-6.15"] {
        let config = era(name).expect("an era").config;
        let sys = boot_on::<Bare>(machine(2, 128 << 20), config, Swap::None);
        let _cpu = sys.machine().enter(0);
        let free = || sys.check_ledger(&[]).expect("nothing is left").free;
        // What is set up with the first mapping stays.
        drop(sys.new_mm().expect("memory"));
        let before = free();
        let spaces: Vec<_> = (0..4).map(|_| sys.new_mm().expect("memory")).collect();
        for mm in &spaces {
            for n in 0..50_000 {
                let place = Place::Fixed(page(2 * n));
                assert_eq!(mm.mmap(place, PAGE, Prot::READ), Ok(page(2 * n)));
            }
        }
        for mm in &spaces {
            for n in 0..50_000 {
                assert_eq!(mm.munmap(page(2 * n), PAGE), Ok(()));
            }
        }
        drop(spaces);
        let after = free();
        assert!(
            after + before / 50 >= before,
            "{name}: {after} of {before} frames are free again"
        );
    }
}

/// How many bytes a process of one page takes, in the era of this name: processes of one page, of
/// `threads` threads, are made until memory is full.
fn bytes_of_a_process(era: &str, threads: usize) -> usize {
    const RAM: usize = 32 << 20;
    let era = minflt_mm::era(era).expect("an era");
    let sys = boot(era.config, 1, RAM);
    let cpu = sys.machine().enter(0);
    let mut all = Vec::new();
    while let Ok(mm) = sys.new_mm() {
        let them: Vec<_> = (0..threads).map(|_| mm.thread()).collect();
        let Ok(at) = mm.mmap(Place::Any, PAGE, Prot::READ_WRITE) else {
            break;
        };
        let stored = them[0].store(at, 1);
        drop(them);
        if stored.is_err() {
            break;
        }
        all.push(mm);
    }
    let count = all.len();
    drop(all);
    drop(cpu);
    let _cpu = sys.machine().enter(0);
    sys.check_ledger(&[]).expect("nothing is left");
    RAM.div_ceil(count)
}

/// The directory of arenas, and where the process is divided an arena's lock, tree and table.
#[test]
fn arenas_take_at_most_16_kib_of_a_small_process() {
    for threads in [1, 2] {
        let [arenas, without] = ["minflt", "spf-2017"].map(|era| bytes_of_a_process(era, threads));
        eprintln!("{threads} threads: {arenas} bytes, {without} without arenas");
        assert!(
            arenas <= without + (16 << 10),
            "{arenas} and {without} bytes"
        );
    }
}
