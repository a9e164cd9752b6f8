//! Who takes a lock is carried on by the scheduler as it would go by itself.

use super::{Bed, M, cpu};
use crate::{RunOptions, RunReport, TaskSpec};
use minflt_sync::{Atomic, CpuMask, Instance, IpiHandler, Machine, Ordering};

const CPUS: u32 = 12;
const TAKES: u64 = 60;

/// How often each CPU was interrupted; the handler's argument.
struct Counts([Atomic<u64, M>; CPUS as usize]);

/// # Safety
/// 1. `arg` points to `Counts`.
unsafe fn count(arg: *const ()) {
    // SAFETY: 1 of this function.
    let counts = unsafe { &*arg.cast::<Counts>() };
    counts.0[cpu() as usize].add(1, Ordering::Relaxed);
}

/// Each CPU takes two locks in turn, every third time with interrupts off, and now and then one
/// interrupts all.
fn scene(machine: &str, options: &RunOptions<'_>) -> (RunReport, u64) {
    let bed = Bed::on(machine, CPUS);
    let counts = bed.place(Counts(core::array::from_fn(|_| Atomic::new(0))));
    bed.at.set_ipi_handler(Some(IpiHandler {
        call: count,
        arg: core::ptr::from_ref(counts).cast(),
    }));
    let locks = [0, 1].map(|_| bed.place(Atomic::<u32, M>::new(0)));
    let inside = bed.place(Atomic::<u64, M>::new(0));
    let machine = &bed.at;
    let body = |me: u64| {
        move || {
            for at in 0..TAKES {
                let lock = locks[(me + at) as usize / 5 % 2];
                let irq = (me + at).is_multiple_of(3).then(M::irq_save);
                lock.take(0, 1, Ordering::Acquire);
                assert_eq!(lock.peek(), 1, "taken");
                inside.add(1, Ordering::Relaxed);
                M::compute((me * 37 + at * 11) % 90);
                lock.store(0, Ordering::Release);
                if let Some(irq) = irq {
                    M::irq_restore(irq);
                }
                if at % 16 == me {
                    let mut to = CpuMask::empty();
                    (0..CPUS).for_each(|cpu| to.insert(cpu));
                    M::send_ipi(machine, &to);
                }
            }
        }
    };
    let tasks = (0..CPUS).map(|cpu| TaskSpec::new(cpu, body(u64::from(cpu))));
    let report = bed.run(options, tasks.collect());
    (report, inside.peek())
}

#[test]
fn who_takes_a_lock_is_carried_on_as_it_would_go_itself() {
    for machine in ["altix512", "ivb-ep40", "x86-4n32"] {
        let told = |trace, max_events| {
            let options = RunOptions {
                trace,
                max_events,
                ..RunOptions::virtual_time()
            };
            let (it, inside) = scene(machine, &options);
            let times = it.tasks.iter().map(|it| (it.user_ns, it.system_ns));
            let times: Vec<_> = times.collect();
            let whole = it.outcome.is_ok();
            (
                whole,
                inside,
                it.interrupts,
                it.events,
                it.end_ns,
                it.hash,
                times,
            )
        };
        // Where steps are recorded, each task goes by itself.
        let (carried, alone) = (told(false, u64::MAX), told(true, u64::MAX));
        assert_eq!(carried, alone, "{machine}");
        let (whole, inside, interrupts, events, ..) = carried;
        assert!(whole && inside == u64::from(CPUS) * TAKES);
        assert!(interrupts > 100, "some were waiting: {interrupts}");
        // Now and then, and after each access of a stretch.
        let parts = (1..40).map(|part| events * part / 40);
        for max_events in parts.chain(events / 2..events / 2 + 200) {
            let (carried, alone) = (told(false, max_events), told(true, max_events));
            assert!(!carried.0, "cut off");
            assert_eq!(carried, alone, "{machine}, cut off after {max_events}");
        }
    }
}
