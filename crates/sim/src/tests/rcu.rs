//! RCU: no callback runs while a reader from before is inside, and every grace period ends.

use super::{Bed, M, judge};
use crate::{Budget, Policy, RunOptions, RunReport, TaskSpec, explore};
use core::cell::Cell;
use core::ptr::NonNull;
use minflt_sync::order::MmapLock;
use minflt_sync::rcu::{Patience, RcuCpu};
use minflt_sync::{
    Atomic, Callback, Instance, IpiHandler, Machine, Ordering, PerCpu, Rcu, RwSem, SpinLock,
    Succession,
};

/// An object that a writer unlinks and frees.
#[repr(C)]
struct Object {
    callback: Callback,
    freed: Cell<bool>,
}

impl Object {
    fn new() -> Self {
        Self {
            callback: Callback::new(),
            freed: Cell::new(false),
        }
    }
}

/// # Safety
/// 1. `callback` is that of an `Object` in the machine's memory.
unsafe fn free(_: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function, and the callback is the first field.
    let object = unsafe { callback.cast::<Object>().as_ref() };
    object.freed.set(true);
}

/// # Safety
/// 1. `arg` is the domain.
unsafe fn answer(arg: *const ()) {
    // SAFETY: 1 of this function.
    unsafe { &*arg.cast::<Rcu<M>>() }.answer();
}

/// An interrupt handler that does not look whether it interrupted a reader.
///
/// # Safety
/// 1. `arg` is the domain.
unsafe fn answer_without_looking(arg: *const ()) {
    // SAFETY: duty 1 of `Machine`.
    let depth = unsafe { &(*M::cx()).rcu_depth };
    let was = depth.replace(0);
    // SAFETY: 1: 1 of this function.
    unsafe { answer(arg) };
    depth.set(was);
}

fn domain(bed: &Bed, cpus: u32, handler: unsafe fn(*const ())) -> &Rcu<M> {
    let bytes = bed.place([const { [0u64; 16] }; 64]);
    assert!(PerCpu::<RcuCpu<M>, M>::bytes(cpus) <= size_of_val(bytes));
    let at = NonNull::from(bytes).cast();
    // SAFETY: large enough, aligned to 128, and nobody else's.
    let areas = unsafe { PerCpu::build(at, cpus, |_| RcuCpu::new()) };
    let domain = bed.place(Rcu::new(areas, Patience(1)));
    bed.at.set_ipi_handler(Some(IpiHandler {
        call: handler,
        arg: core::ptr::from_ref(domain).cast(),
    }));
    domain
}

/// What a scenario gets wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// The writer frees at once.
    FreesAtOnce,
    /// The interrupt handler reports within a read section.
    Handler,
}

/// Readers on CPUs 0 and 1 follow a link; a writer on CPU 2 replaces it three times; CPU 3 idles.
fn scenario(bed: &Bed, options: &RunOptions<'_>, wrong: Wrong) -> RunReport {
    // SAFETY: 1: the objects of the last schedule are not used any more.
    unsafe { bed.reset() };
    let handler = match wrong {
        Wrong::Handler => answer_without_looking,
        _ => answer,
    };
    let domain = domain(bed, 4, handler);
    let objects: [&Object; 4] = core::array::from_fn(|_| bed.place(Object::new()));
    let link = bed.place(Atomic::<u64, M>::new(0));
    let steps = bed.place(Atomic::<u64, M>::new(0));
    let read = || {
        for _ in 0..2 {
            let outer = domain.read();
            let at = link.load(Ordering::Acquire) as usize;
            for _ in 0..3 {
                let inner = domain.read();
                if objects[at].freed.get() {
                    M::violation(format_args!("a reader sees object {at} freed"));
                }
                drop(inner);
                steps.load(Ordering::Relaxed);
            }
            // Not yet: the outer section is open.
            domain.quiescent();
            if objects[at].freed.get() {
                M::violation(format_args!("a reader sees object {at} freed"));
            }
            drop(outer);
            domain.quiescent();
        }
    };
    let write = || {
        for at in 1..4 {
            link.store(at as u64, Ordering::Release);
            let callback = NonNull::from(&objects[at - 1].callback);
            if wrong == Wrong::FreesAtOnce {
                // SAFETY: 1: of an `Object`.
                unsafe { free(core::ptr::null(), callback) };
                continue;
            }
            // SAFETY: 1: unlinked. 2: it lies in the machine's memory. 3: of an `Object`.
            unsafe { domain.call(callback, free) };
            for _ in 0..3 {
                // SAFETY: 1: `free` needs no argument.
                unsafe { domain.poll(&bed.at, core::ptr::null()) };
            }
        }
    };
    let tasks = vec![
        TaskSpec::new(0, read),
        TaskSpec::new(1, read),
        TaskSpec::new(2, write),
    ];
    let report = bed.run(options, tasks);
    if report.outcome.is_ok() {
        // SAFETY: 1: `free` needs no argument.
        unsafe { domain.drain(&bed.at, core::ptr::null()) };
    }
    let freed = objects.map(|object| object.freed.get());
    let pending = domain.pending();
    judge(
        report,
        freed != [true, true, true, false] || pending != 0,
        "not every callback ran",
    )
}

#[test]
fn no_callback_runs_while_a_reader_from_before_is_inside() {
    let bed = Bed::explorer(4);
    let budget = Budget {
        schedules: 10_000,
        seed: 11,
    };
    let found = explore(&budget, |options| scenario(&bed, options, Wrong::Nothing));
    if let Some(failure) = found.failure {
        panic!("{failure}");
    }
}

#[test]
fn controls_freeing_at_once_and_a_handler_that_does_not_look_are_found() {
    for (wrong, schedules) in [(Wrong::FreesAtOnce, 100), (Wrong::Handler, 5000)] {
        let bed = Bed::explorer(4);
        let budget = Budget {
            schedules,
            seed: 11,
        };
        let failure = explore(&budget, |options| scenario(&bed, options, wrong))
            .failure
            .unwrap();
        assert!(
            failure.report.outcome.to_string().contains("freed"),
            "{failure}"
        );
    }
}

/// CPU 0 waits for the end of a grace period; CPU 1 computes, CPU 2 sleeps, CPU 3 idles, CPU 4
/// waits for a lock, CPU 5 is in a long section.
fn all_kinds_of_laggards(policy: Policy, handler: unsafe fn(*const ())) -> RunReport {
    let bed = Bed::explorer(6);
    let domain = domain(&bed, 6, handler);
    let object = bed.place(Object::new());
    let lock = bed.place(RwSem::<MmapLock, M>::new(Succession::HandOff));
    let held = bed.place(Atomic::<u32, M>::new(0));
    let over = bed.place(Atomic::<u32, M>::new(0));
    let writer = || {
        let guard = lock.write();
        held.store(1, Ordering::Release);
        // SAFETY: 1: nobody looks for it. 2: it lies in the machine's memory. 3: an `Object`.
        unsafe { domain.call(NonNull::from(&object.callback), free) };
        // SAFETY: 1: `free` needs no argument.
        while unsafe { domain.poll(&bed.at, core::ptr::null()) } == 0 {}
        over.store(1, Ordering::Release);
        drop(guard);
    };
    let computes = || {
        while over.load(Ordering::Acquire) == 0 {
            M::compute(1000);
        }
    };
    let sleeps = || {
        held.wait_until(u32::MAX, 1);
        drop(lock.read());
    };
    let spins = || over.wait_until(u32::MAX, 1);
    let reads = || {
        let guard = domain.read();
        for _ in 0..100 {
            held.load(Ordering::Relaxed);
        }
        drop(guard);
    };
    let tasks = vec![
        TaskSpec::new(0, writer),
        TaskSpec::new(1, computes),
        TaskSpec::new(2, sleeps),
        TaskSpec::new(4, spins),
        TaskSpec::new(5, reads),
    ];
    let options = RunOptions {
        policy,
        max_events: 100_000,
        ..RunOptions::default()
    };
    let report = bed.run(&options, tasks);
    judge(report, !object.freed.get(), "the callback did not run")
}

/// # Safety
/// None.
unsafe fn says_nothing(_: *const ()) {}

#[test]
fn a_grace_period_ends_whatever_other_cpus_are_doing() {
    let policies = (0..200).map(Policy::Random);
    for policy in policies.chain([Policy::VirtualTime]) {
        let report = all_kinds_of_laggards(policy, answer);
        assert!(report.outcome.is_ok(), "{}", report.outcome);
    }
}

#[test]
fn control_a_grace_period_whose_interrupts_nobody_answers_does_not_end() {
    let report = all_kinds_of_laggards(Policy::VirtualTime, says_nothing);
    let text = report.outcome.to_string();
    assert!(text.starts_with("endless"), "{text}");
}

#[test]
fn a_drain_waits_for_answers_and_not_for_readers() {
    let bed = Bed::explorer(3);
    let budget = Budget {
        schedules: 2000,
        seed: 5,
    };
    let found = explore(&budget, |options| {
        // SAFETY: 1: the objects of the last schedule are not used any more.
        unsafe { bed.reset() };
        let domain = domain(&bed, 3, answer);
        let object = bed.place(Object::new());
        let entered = bed.place(Atomic::<u32, M>::new(0));
        let drained = bed.place(Atomic::<u32, M>::new(0));
        let reads = || {
            let guard = domain.read();
            entered.store(1, Ordering::Release);
            // Were the drain to wait for this section, the two would wait for each other.
            drained.wait_until(u32::MAX, 1);
            if object.freed.get() {
                M::violation(format_args!("freed below a reader"));
            }
            drop(guard);
        };
        let drains = || {
            entered.wait_until(u32::MAX, 1);
            // SAFETY: 1: nobody looks for it. 2: it lies in the machine's memory. 3: an `Object`.
            unsafe { domain.call(NonNull::from(&object.callback), free) };
            // SAFETY: 1: `free` needs no argument.
            unsafe { domain.drain(&bed.at, core::ptr::null()) };
            drained.store(1, Ordering::Release);
        };
        let tasks = vec![TaskSpec::new(0, reads), TaskSpec::new(1, drains)];
        let report = bed.run(options, tasks);
        if report.outcome.is_ok() {
            // SAFETY: 1: `free` needs no argument.
            unsafe { domain.drain(&bed.at, core::ptr::null()) };
        }
        judge(report, !object.freed.get(), "the callback did not run")
    });
    if let Some(failure) = found.failure {
        panic!("{failure}");
    }
}

#[test]
fn whoever_may_sleep_or_leaves_the_kernel_within_a_section_is_told() {
    let bed = Bed::explorer(1);
    let domain = domain(&bed, 1, answer);
    let lock = bed.place(RwSem::<MmapLock, M>::new(Succession::HandOff));
    let spin = bed.place(SpinLock::<u64, minflt_sync::order::ZoneLock, M>::new(0));
    let inside = |what: &dyn Fn()| {
        let body = || {
            let _section = domain.read();
            what();
        };
        let report = bed.run(&RunOptions::default(), vec![TaskSpec::new(0, body)]);
        report.outcome.to_string()
    };
    let sleeping_lock = inside(&|| drop(lock.read()));
    assert!(
        sleeping_lock.contains("may sleep for MmapLock"),
        "{sleeping_lock}"
    );
    assert!(sleeping_lock.ends_with("inside an RCU read section"));
    assert!(inside(&M::park).contains("inside an RCU read section"));
    let drain = || {
        // SAFETY: 1: nothing is queued.
        unsafe { domain.drain(&bed.at, core::ptr::null()) };
    };
    assert!(inside(&drain).contains("inside an RCU read section"));
    assert!(inside(&|| M::compute(1)).contains("returns to user mode"));
    // What needs no sleep is allowed, and outside of sections all of it is.
    assert_eq!(inside(&|| *spin.lock() += 1), "ok");
    assert_eq!(inside(&|| drop(lock.try_read())), "ok");
    let body = || {
        drop(domain.read());
        drop(lock.read());
        M::compute(1);
        drain();
    };
    let report = bed.run(&RunOptions::default(), vec![TaskSpec::new(0, body)]);
    assert!(report.outcome.is_ok(), "{}", report.outcome);
}
