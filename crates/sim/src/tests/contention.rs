//! Several CPUs want one line, one memory or one starter.

use super::{Bed, M};
use crate::machine_file::{Arbitration, MachineFile};
use crate::{RunOptions, RunReport, TaskSpec};
use core::cell::Cell;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Instance, Ordering};

const ADDS: u64 = 2000;

/// Two sockets, ten cores of two threads each.
fn sockets(arbitration: Arbitration, near: f64) -> MachineFile {
    let mut file = MachineFile::shipped("ivb-ep40").unwrap();
    file.arbitration = arbitration;
    file.shape.near_first_permille.value = near;
    file
}

/// The CPUs of `on` add to one word; how long an addition takes, and the shares of the first and
/// the last of the CPUs when half of all is done.
fn adds(file: &MachineFile, on: &[u32]) -> (u64, [u64; 2]) {
    let bed = Bed::of(file, 40);
    let word = bed.place(Atomic::<u64, M>::new(0));
    let all = ADDS * on.len() as u64;
    let shares = vec![Cell::new(0); on.len()];
    let body = |at: usize| {
        let shares = &shares;
        move || {
            for _ in 0..ADDS {
                if word.add(1, Ordering::Relaxed) < all / 2 {
                    shares[at].set(shares[at].get() + 1);
                }
            }
        }
    };
    let tasks = on.iter().enumerate();
    let tasks = tasks
        .map(|(at, cpu)| TaskSpec::new(*cpu, body(at)))
        .collect();
    let report: RunReport = bed.run(&RunOptions::virtual_time(), tasks);
    assert!(report.outcome.is_ok());
    assert_eq!(word.peek(), all);
    let first = shares[0].get();
    (report.end_ns / all, [first, shares[on.len() - 1].get()])
}

#[test]
fn who_goes_next_decides_what_a_contended_line_yields() {
    // Two cores of each socket: a transfer takes 40 ns within, 110 ns between sockets.
    let on = [0, 2, 20, 22];
    let (fifo, shares) = adds(&sockets(Arbitration::Fifo, 0.0), &on);
    assert!((70..=85).contains(&fifo), "every other one is far: {fifo}");
    assert!(
        shares.iter().all(|share| (800..1200).contains(share)),
        "{shares:?}"
    );
    let (near, shares) = adds(&sockets(Arbitration::NearFirst, 900.0), &on);
    assert!((40..=55).contains(&near), "one of twenty is far: {near}");
    assert!(
        shares.iter().all(|share| *share > 300),
        "nobody starves: {shares:?}"
    );
    let (random, _) = adds(&sockets(Arbitration::Random, 0.0), &on);
    assert!(
        (near..=fifo + 10).contains(&random),
        "between them: {random}"
    );
}

#[test]
fn siblings_are_served_by_one_visit() {
    let file = sockets(Arbitration::Fifo, 0.0);
    let (cores, _) = adds(&file, &[0, 2, 4, 6]);
    let (siblings, _) = adds(&file, &[0, 1, 2, 3]);
    // Between cores 40 ns; every other transfer takes 10 ns within a core.
    assert!((38..=50).contains(&cores), "{cores}");
    assert!((20..=32).contains(&siblings), "{siblings}");
}

#[test]
fn two_contests_are_equal_to_the_bit() {
    let file = sockets(Arbitration::Random, 0.0);
    assert_eq!(adds(&file, &[0, 3, 21, 38]), adds(&file, &[0, 3, 21, 38]));
}

#[test]
fn a_nodes_memory_limits_those_who_copy() {
    let copies = |cpus: u32| {
        let bed = Bed::on("altix32", 32);
        let body = || {
            for _ in 0..10 {
                M::copy(&bed.at, Pfn(4), Pfn(5));
            }
        };
        let tasks = (0..cpus).map(|cpu| TaskSpec::new(cpu, body)).collect();
        bed.run(&RunOptions::virtual_time(), tasks).end_ns / 10
    };
    // 4 KiB at 0.8 GB/s; the bed's frames are in node 0 and its memory takes 3.2 GB/s of writes.
    let (one, eight) = (copies(1), copies(8));
    assert!((5000..5300).contains(&one), "{one}");
    assert!((15_000..16_000).contains(&eight), "12 KiB each: {eight}");
}

#[test]
fn a_task_starts_when_it_was_started() {
    let bed = Bed::on("altix32", 2);
    let late = || {
        M::starts_at(5000);
        assert_eq!(bed.at.now_ns(), 5000);
        M::compute(1000);
    };
    let starter = || M::kernel_works(3_000_000);
    let tasks = vec![TaskSpec::new(0, starter), TaskSpec::new(1, late)];
    let report = bed.run(&RunOptions::virtual_time(), tasks);
    assert_eq!(report.outcome, crate::Outcome::Ok);
    assert_eq!(report.end_ns, 6000);
    assert_eq!(report.context_switches, 0);
    assert_eq!(
        [report.tasks[0].system_ns, report.tasks[1].user_ns],
        [3000, 1000],
        "what was before its start is nobody's time"
    );
}

#[test]
fn processes_are_started_one_after_the_other_as_far_as_the_machine_says() {
    let mut file = MachineFile::shipped("altix32").unwrap();
    file.ns.spawn.value = 1000.0;
    file.ns.spawn_alone.value = 4000.0;
    // After as long as `before` says, each on a CPU of its own.
    let ends = |before: &[u64]| {
        let bed = Bed::of(&file, 32);
        let body = |ns: u64| {
            move || {
                M::compute(ns);
                M::starts_process();
            }
        };
        let tasks = (0..).zip(before);
        let tasks = tasks.map(|(cpu, ns)| TaskSpec::new(cpu, body(*ns)));
        let report = bed.run(&RunOptions::virtual_time(), tasks.collect());
        assert_eq!(report.outcome, crate::Outcome::Ok);
        report.end_ns
    };
    assert_eq!([ends(&[0]), ends(&[0; 4])], [5000, 4 * 4000 + 1000]);
    // The first to come is the first to start, whoever was simulated first.
    assert_eq!(ends(&[2000, 1000]), 1000 + 2 * 4000 + 1000);
}
