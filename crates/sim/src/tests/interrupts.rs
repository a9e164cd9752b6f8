//! Interrupts reach running, spinning, sleeping and idle CPUs, and wait while they are off.

use super::{Bed, M, cpu, judge};
use crate::{Budget, MachineFile, RunOptions, RunReport, TaskSpec, explore};
use minflt_sync::{Atomic, CpuMask, Instance, IpiHandler, Machine, Ordering, TaskId};

/// Who has acknowledged; the handler's argument.
struct Acks {
    seen: [Atomic<u32, M>; 4],
}

/// # Safety
/// 1. `arg` points to `Acks`.
unsafe fn acknowledge(arg: *const ()) {
    // SAFETY: 1 of this function.
    let acks = unsafe { &*arg.cast::<Acks>() };
    acks.seen[cpu() as usize].store(1, Ordering::Release);
}

/// CPU 0 interrupts the others and waits for all: CPU 1 holds a word back with interrupts off, CPU
/// 2 spins for that word, CPU 3 idles (or sleeps).
fn scenario(bed: &Bed, options: &RunOptions<'_>) -> RunReport {
    // SAFETY: 1: the objects of the last schedule are not used any more.
    unsafe { bed.reset() };
    let acks = bed.place(Acks {
        seen: core::array::from_fn(|_| Atomic::new(0)),
    });
    let word = bed.place(Atomic::<u32, M>::new(0));
    let arg = core::ptr::from_ref(acks).cast();
    bed.at.set_ipi_handler(Some(IpiHandler {
        call: acknowledge,
        arg,
    }));
    let shoot = || {
        let mut to = CpuMask::empty();
        for cpu in 1..4 {
            to.insert(cpu);
        }
        M::send_ipi(&bed.at, &to);
        for cpu in 1..4 {
            acks.seen[cpu].wait_until(u32::MAX, 1);
        }
        word.store(1, Ordering::Release);
    };
    let off = || {
        let irq = M::irq_save();
        for _ in 0..4 {
            if acks.seen[1].load(Ordering::Relaxed) != 0 {
                M::violation(format_args!("interrupted with interrupts off"));
            }
        }
        M::irq_restore(irq);
    };
    let spin = || word.wait_until(u32::MAX, 1);
    let tasks = vec![
        TaskSpec::new(0, shoot),
        TaskSpec::new(1, off),
        TaskSpec::new(2, spin),
    ];
    let report = bed.run(options, tasks);
    let wrong = report.interrupts != 3;
    judge(report, wrong, "not every CPU took one interrupt")
}

#[test]
fn every_cpu_acknowledges_whatever_it_is_doing() {
    let bed = Bed::explorer(4);
    let report = scenario(&bed, &RunOptions::virtual_time());
    assert!(report.outcome.is_ok(), "{}", report.outcome);
    let budget = Budget {
        schedules: 4000,
        seed: 9,
    };
    let found = explore(&budget, |options| scenario(&bed, options));
    if let Some(failure) = found.failure {
        panic!("{failure}");
    }
}

#[test]
fn waiting_with_interrupts_off_for_an_interrupted_cpu_is_a_deadlock() {
    let bed = Bed::explorer(2);
    let acks = bed.place(Acks {
        seen: core::array::from_fn(|_| Atomic::new(0)),
    });
    let word = bed.place(Atomic::<u32, M>::new(0));
    let arg = core::ptr::from_ref(acks).cast();
    bed.at.set_ipi_handler(Some(IpiHandler {
        call: acknowledge,
        arg,
    }));
    let shoot = || {
        let mut to = CpuMask::empty();
        to.insert(1);
        M::send_ipi(&bed.at, &to);
        acks.seen[1].wait_until(u32::MAX, 1);
        word.store(1, Ordering::Release);
    };
    let off = || {
        let irq = M::irq_save();
        word.wait_until(u32::MAX, 1);
        M::irq_restore(irq);
    };
    let tasks = vec![TaskSpec::new(0, shoot), TaskSpec::new(1, off)];
    let report = bed.run(&RunOptions::virtual_time(), tasks);
    assert!(
        report
            .outcome
            .to_string()
            .starts_with("deadlock: 2 tasks wait")
    );
}

#[test]
fn interrupts_sent_last_are_taken_before_the_run_ends() {
    let bed = Bed::explorer(2);
    let budget = Budget {
        schedules: 100,
        seed: 1,
    };
    let found = explore(&budget, |options| {
        // SAFETY: 1: the objects of the last schedule are not used any more.
        unsafe { bed.reset() };
        let acks = bed.place(Acks {
            seen: core::array::from_fn(|_| Atomic::new(0)),
        });
        let arg = core::ptr::from_ref(acks).cast();
        let call = acknowledge;
        bed.at.set_ipi_handler(Some(IpiHandler { call, arg }));
        let shoot = || {
            let mut to = CpuMask::empty();
            to.insert(1);
            M::send_ipi(&bed.at, &to);
        };
        let report = bed.run(options, vec![TaskSpec::new(0, shoot)]);
        judge(report, acks.seen[1].peek() != 1, "nobody took it")
    });
    assert!(found.failure.is_none());
}

/// CPU 0 wakes the sleeper of CPU 1, which takes some microseconds to run, or lets it sleep, and
/// interrupts CPU 1 at once: how long until that has answered, nanoseconds.
fn answer_of_a_cpu_that(is_woken: bool, file: &MachineFile) -> u64 {
    let bed = Bed::of(file, 2);
    let acks = bed.place(Acks {
        seen: core::array::from_fn(|_| Atomic::new(0)),
    });
    let arg = core::ptr::from_ref(acks).cast();
    bed.at.set_ipi_handler(Some(IpiHandler {
        call: acknowledge,
        arg,
    }));
    let took = core::cell::Cell::new(0);
    let shoot = || {
        M::compute(50_000);
        let mut to = CpuMask::empty();
        to.insert(1);
        if is_woken {
            M::unpark(TaskId(2));
        }
        let from = bed.at.now_ns();
        M::send_ipi(&bed.at, &to);
        acks.seen[1].wait_until(u32::MAX, 1);
        took.set(bed.at.now_ns() - from);
        M::unpark(TaskId(2));
    };
    let tasks = vec![TaskSpec::new(0, shoot), TaskSpec::new(1, M::park)];
    let report = bed.run(&RunOptions::virtual_time(), tasks);
    assert!(report.outcome.is_ok(), "{}", report.outcome);
    took.get()
}

#[test]
fn a_cpu_whose_task_is_about_to_run_answers_at_once_and_an_idle_one_when_it_is_awake() {
    let mut file = MachineFile::unfitted("kvm16").unwrap();
    file.ns.wake.value = 50_000.0;
    let ns = &file.ns;
    let answers = ns.ipi_send.value + ns.ipi_near.value + ns.ipi_handle.value;
    // The handler's store, and the way of its line to the other CPU, twice.
    let lines = 4.0 * ns.home.value;
    let at_once = (answers + lines) as u64;
    let took = answer_of_a_cpu_that(true, &file);
    assert!(took <= at_once, "{took} ns of {at_once}");
    // A switch less than it takes a task to run there.
    let awake = ns.ipi_send.value + ns.wake.value - ns.switch.value + ns.ipi_handle.value;
    let took = answer_of_a_cpu_that(false, &file);
    let expected = awake as u64..(awake + lines) as u64;
    assert!(expected.contains(&took), "{took} ns of {expected:?}");
}
