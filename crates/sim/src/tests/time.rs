//! Virtual time: what accesses, waits, clears and switches cost.

use super::{Bed, M};
use crate::{RunOptions, RunReport, TaskSpec};
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Cost, Instance, Machine, Ordering, TaskId};

const ADDS: u64 = 10_000;

/// Tasks on CPUs 0, `stride`, 2 x `stride` ... add to one word.
fn adds(cpus: u32, stride: u32) -> RunReport {
    let bed = Bed::on("altix32", 32);
    let word = bed.place(Atomic::<u64, M>::new(0));
    let body = || {
        for _ in 0..ADDS {
            word.add(1, Ordering::Relaxed);
        }
    };
    let tasks = (0..cpus)
        .map(|cpu| TaskSpec::new(cpu * stride, body))
        .collect();
    let report = bed.run(&RunOptions::virtual_time(), tasks);
    assert!(report.outcome.is_ok());
    assert_eq!(word.peek(), ADDS * u64::from(cpus));
    report
}

#[test]
fn a_contended_word_costs_one_transfer_an_addition() {
    let alone = adds(1, 1).end_ns / ADDS;
    assert!((13..15).contains(&alone), "{alone} ns on an owned line");
    let far = adds(8, 2).end_ns / (8 * ADDS);
    // The first to come has the line to itself for up to 5,000 cycles, which nobody can see.
    assert!(
        (440..460).contains(&far),
        "{far} ns between nodes of a group"
    );
    let near = adds(2, 1).end_ns / (2 * ADDS);
    assert!((190..215).contains(&near), "{near} ns within a node");
}

#[test]
fn a_nodes_memory_limits_those_who_clear_it() {
    let clears = |cpus: u32| {
        let bed = Bed::on("altix32", 32);
        let body = || {
            for _ in 0..100 {
                M::charge(Cost::Clear {
                    bytes: 16384,
                    node: 0,
                });
            }
        };
        let tasks = (0..cpus).map(|cpu| TaskSpec::new(cpu, body)).collect();
        bed.run(&RunOptions::virtual_time(), tasks).end_ns / 100
    };
    assert!((12_400..12_600).contains(&clears(1)), "{}", clears(1));
    assert!(
        (12_400..12_600).contains(&clears(2)),
        "the bus carries two: {}",
        clears(2)
    );
    let eight = clears(8);
    assert!(
        (40_000..42_000).contains(&eight),
        "8 x 16 KiB at 3.2 GB/s: {eight}"
    );
}

#[test]
fn time_is_accounted_as_user_and_system() {
    let bed = Bed::on("altix32", 1);
    let body = || {
        M::compute(5000);
        M::enter_kernel();
        M::charge(Cost::Trap);
        M::enter_kernel();
        M::charge(Cost::Trap);
        M::leave_kernel();
        M::leave_kernel();
        M::compute(2000);
        assert_eq!(M::times(), (7000, 800));
        assert_eq!(bed.at.now_ns(), 7800);
    };
    let report = bed.run(&RunOptions::virtual_time(), vec![TaskSpec::new(0, body)]);
    assert_eq!(report.outcome, crate::Outcome::Ok);
    assert_eq!(
        (report.tasks[0].user_ns, report.tasks[0].system_ns),
        (7000, 800)
    );
    assert_eq!(
        bed.at.now_ns(),
        7800,
        "the clock stands where the run ended"
    );
}

#[test]
fn tasks_of_one_cpu_share_it_by_time_slices() {
    let bed = Bed::on("altix32", 1);
    let ends = [0, 0, 0].map(core::cell::Cell::new);
    let body = |at: usize| {
        let ends = &ends;
        let clock = &bed.at;
        move || {
            M::compute(50_000_000);
            ends[at].set(clock.now_ns());
        }
    };
    let tasks = (0..3).map(|at| TaskSpec::new(0, body(at))).collect();
    let report = bed.run(&RunOptions::virtual_time(), tasks);
    // Five slices of 10 ms each, in turn; the last one ends with the work.
    assert_eq!(report.context_switches, 15);
    assert!(
        ends[0].get() > 129_000_000 && ends[2].get() < 151_000_000,
        "{ends:?}"
    );
    assert!(
        report
            .tasks
            .iter()
            .all(|task| task.user_ns / 1_000_000 == 50),
        "{report:?}"
    );
}

#[test]
fn a_wake_takes_time_and_a_token_is_kept() {
    let bed = Bed::on("altix32", 2);
    let sleep = || {
        M::park();
        assert!(bed.at.now_ns() >= 10_000 + 7000);
        M::compute(50_000);
        // The token of the second wake is there by now.
        M::park();
        assert!(bed.at.now_ns() < 70_000);
    };
    let wake = || {
        M::compute(10_000);
        M::unpark(TaskId(1));
        M::compute(20_000);
        assert!(M::is_running(TaskId(1)) && M::is_running(TaskId(2)));
        M::unpark(TaskId(1));
    };
    let tasks = vec![TaskSpec::new(0, sleep), TaskSpec::new(1, wake)];
    let report = bed.run(&RunOptions::virtual_time(), tasks);
    assert_eq!(report.outcome, crate::Outcome::Ok);
    assert_eq!(report.context_switches, 1);
}

#[test]
fn a_user_frame_holds_one_word_and_a_reset_forgets_it() {
    let bed = Bed::on("explorer", 2);
    let (a, b) = (Pfn(40), Pfn(41));
    M::user_store(&bed.at, a, 8, 77);
    M::copy(&bed.at, b, a);
    M::clear(&bed.at, a);
    assert_eq!(M::user_load(&bed.at, a, 0), 0);
    assert_eq!(M::user_load(&bed.at, b, 8), 77);
    assert_eq!(M::user_load(&bed.at, b, 16), 0);
    let bytes = M::frame_ptr(&bed.at, Pfn(50));
    // SAFETY: the frame's first byte.
    unsafe { bytes.write(9) };
    // SAFETY: 1: nothing refers to the memory.
    unsafe { bed.reset() };
    assert_eq!(M::user_load(&bed.at, b, 8), 0);
    // SAFETY: the frame's first byte.
    assert_eq!(unsafe { M::frame_ptr(&bed.at, Pfn(50)).read() }, 0);
}

#[test]
fn terabytes_cost_the_host_nothing() {
    let file = crate::MachineFile::shipped("altix32").unwrap();
    let size = crate::Size {
        cpus: 1024,
        ram_bytes: 2 << 40,
        max_tasks: 4096,
    };
    let at = crate::SimInstance::new(&file, size).unwrap();
    let last = Pfn((2u64 << 40 >> 12) - 1);
    M::user_store(&at, last, 0, 5);
    assert_eq!(M::user_load(&at, last, 0), 5);
    // SAFETY: the frame's first byte.
    unsafe { M::frame_ptr(&at, last).write(1) };
    // SAFETY: 1: nothing refers to the memory.
    unsafe { at.reset(64 << 20) };
    assert_eq!(M::user_load(&at, last, 0), 0);
}
