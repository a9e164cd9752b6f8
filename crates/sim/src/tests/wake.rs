//! Where a task that is woken runs.

use super::{Bed, M, cpu};
use crate::{RunOptions, TaskSpec};
use core::cell::Cell;
use minflt_sync::{Instance, Machine, TaskId};

/// Task 1 sleeps on CPU 0, where task 2 computes for 20 ms, until it is woken from CPU 1; tasks
/// that end at once leave the CPUs `idle` alone. The CPU on which task 1 goes on, and after how
/// many microseconds.
fn woken_beside_a_busy_one(idle: &[u32]) -> (u32, u64) {
    let bed = Bed::on("hsw-ex96", 96);
    let found = Cell::new((0, 0));
    let sleeper = || {
        let from = bed.at.now_ns();
        M::park();
        found.set((cpu(), (bed.at.now_ns() - from) / 1000));
    };
    let busy = || M::compute(20_000_000);
    let waker = || {
        M::compute(100_000);
        M::unpark(TaskId(1));
        M::compute(20_000_000);
    };
    let mut tasks = vec![
        TaskSpec::new(0, sleeper),
        TaskSpec::new(0, busy),
        TaskSpec::new(1, waker),
    ];
    tasks.extend(idle.iter().map(|cpu| TaskSpec::new(*cpu, || ())));
    let report = bed.run(&RunOptions::virtual_time(), tasks);
    assert!(report.outcome.is_ok(), "{}", report.outcome);
    found.get()
}

#[test]
fn it_goes_to_an_idle_cpu_of_its_die() {
    // CPU 1 is the waker's, and CPU 2 of no task of the run.
    let (cpu, us) = woken_beside_a_busy_one(&[5, 3]);
    assert!(cpu == 3 && us < 200, "CPU {cpu} after {us} us");
}

#[test]
fn it_waits_where_none_idles_that_it_may_run_on() {
    // CPU 24 is of another die.
    for idle in [&[][..], &[24]] {
        let (cpu, us) = woken_beside_a_busy_one(idle);
        assert!(cpu == 0 && us > 1_000, "CPU {cpu} after {us} us");
    }
}
