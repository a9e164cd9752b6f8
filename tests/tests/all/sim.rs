//! `mm` in virtual time: equal runs are equal, whatever else the process does.

use core::cell::Cell;
use minflt_mm::config::eras_without_files;
use minflt_mm::{Overcommit, Place, Prot, System, era, eras_without_migration};
use minflt_pgtable::X86_64;
use minflt_sim::why::{Ranges, disjoint};
use minflt_sim::{
    Budget, MachineFile, RunOptions, RunReport, Sim, SimInstance, SimTarget, Size, TaskSpec,
    explore, run as run_tasks,
};
use minflt_workload::{Outcome, Plan, Workload};

fn run(machine: &str, era_name: &str, threads: u32) -> Outcome {
    run_workload(machine, era_name, threads, "pft", &["-b", "2M"])
}

fn run_workload(
    machine: &str,
    era_name: &str,
    threads: u32,
    name: &str,
    options: &[&str],
) -> Outcome {
    let file = MachineFile::shipped(machine).expect("shipped");
    let config = era(era_name).expect("an era").config;
    let target = SimTarget::start(&file, config, 64 << 20).expect("starts");
    let options: Vec<_> = options.iter().map(ToString::to_string).collect();
    let workload = Workload::parse(name, &options).expect("options");
    let plan = Plan::new(threads, threads);
    let outcome = workload.run(&target, &plan);
    outcome.expect("runs")
}

#[test]
fn two_simulated_machines_run_at_once_and_give_what_each_gives_alone() {
    let alone = format!("{:?}", run("altix32", "atomic-pte-2004", 4));
    let junk: Vec<Vec<u8>> = (0..100).map(|i| vec![1; i * 100]).collect();
    let beside = std::thread::scope(|scope| {
        let one = scope.spawn(|| format!("{:?}", run("altix32", "atomic-pte-2004", 4)));
        let two = scope.spawn(|| format!("{:?}", run("kvm16", "spf-2017", 3)));
        two.join().expect("no panic");
        one.join().expect("no panic")
    });
    assert_eq!(junk.len(), 100);
    assert_eq!(alone, beside);
}

#[test]
fn every_oracle_that_claims_to_look_looks() {
    let outcome = run("altix32", "spf-2017", 2);
    for check in ["contents", "ledger", "translation"] {
        assert!(
            outcome.checks.get(check).is_some_and(|looks| *looks > 0),
            "{check}"
        );
    }
    assert!(
        outcome
            .events
            .get("speculative-faults")
            .is_some_and(|count| *count > 0)
    );
    assert!(outcome.faults >= outcome.pages);
}

/// The oracle of translations looks after every invalidation, however it was made.
#[test]
fn where_invalidations_are_broadcast_nobody_is_interrupted() {
    for (machine, broadcasts) in [("power8-80", true), ("kvm16", false)] {
        let outcome = run_workload(machine, "spf-2017", 4, "disturb", &["--size", "2M"]);
        let count = |event: &str| outcome.events.get(event).copied().unwrap_or(0);
        assert_eq!(count("tlb-broadcasts") > 0, broadcasts, "{machine}");
        assert_eq!(count("tlb-shootdown-targets") > 0, !broadcasts, "{machine}");
        assert!(outcome.checks["invalidation"] > 0, "{machine}");
    }
}

/// A CPU that unmaps what no other CPU has used broadcasts nothing, though it could.
#[test]
fn where_invalidations_are_broadcast_an_arena_of_its_own_needs_none() {
    const ROUNDS: u64 = 32;
    let broadcasts = |era| {
        let options = ["--len", "256K", "-s", "32"];
        let outcome = run_workload("power8-80", era, 4, "page-fault1", &options);
        outcome.events.get("tlb-broadcasts").copied().unwrap_or(0)
    };
    let (before, arenas) = (broadcasts("spf-2017"), broadcasts("minflt"));
    assert!(before >= 4 * ROUNDS, "{before}");
    assert!(arenas < ROUNDS, "{arenas}");
}

/// What `disturb` measures: with the mappings apart calls of a disturber do not change the mapping
/// that thread 0 faults in (but for a few at its start and end), and else they do.
#[test]
fn a_disturber_changes_the_mapping_of_the_disturbed_only_where_they_merge() {
    // Where faults lock their mapping, which of the two gives way depends on who came first.
    let locked: &[&str] = &["vma-lock-abort", "vma-lock-writer-waits"];
    for (era, meetings) in [
        ("spf-2017", &["spf-vma-changed"][..]),
        ("linux-6.15", locked),
    ] {
        let rounds_and_meetings = |options: &[&str]| {
            let outcome = run_workload("kvm16", era, 2, "disturb", options);
            let times = |event: &&str| outcome.events.get(*event).copied().unwrap_or(0);
            let met: u64 = meetings.iter().map(times).sum();
            (outcome.workers[1].ops, met)
        };
        let (rounds, merging) = rounds_and_meetings(&["--size=32M"]);
        assert!(rounds > 12 && merging > rounds / 3, "{era}: {merging}");
        let (rounds, apart) = rounds_and_meetings(&["--size=32M", "--apart"]);
        assert!(rounds > 12 && apart <= rounds / 12, "{era}: {apart}");
    }
}

/// Who spins for the holder of `mmap_lock` that has downgraded it gives its CPU up once that one is
/// done: another reader may wait for the CPU.
#[test]
fn more_threads_than_cpus_end_where_munmap_downgrades() {
    for era_name in ["linux-5.19", "linux-6.4", "linux-6.15"] {
        let file = MachineFile::shipped("kvm16").expect("shipped");
        let config = era(era_name).expect("an era").config;
        let target = SimTarget::start(&file, config, 64 << 20).expect("starts");
        let options = ["-mTRp", "-S", "0.005"].map(String::from);
        let workload = Workload::parse("ebizzy", &options).expect("options");
        let plan = Plan::new(20, 16);
        let outcome = workload.run(&target, &plan).map(|outcome| outcome.faults);
        assert!(outcome.is_ok_and(|faults| faults > 0), "{era_name}");
    }
}

#[test]
fn simulated_time_grows_with_work_and_shrinks_with_threads() {
    let (one, four) = (
        run("altix32", "atomic-pte-2004", 1),
        run("altix32", "atomic-pte-2004", 4),
    );
    assert!(four.wall_ns < one.wall_ns);
    assert!(four.user_ns + four.system_ns >= one.user_ns + one.system_ns);
}

/// Faults that have nothing to do with each other: lines that several CPUs touch and that one
/// fault writes, and how often. What is added up in batches, and blocks of frames, come to less
/// than a fifth of a line.
#[test]
fn disjoint_faults_write_a_known_number_of_shared_lines() {
    // Era; lines and the least writes a fault in one mapping; lines in mappings of their own.
    // `mmap_lock`, `page_table_lock` and the count of pages stand in one line.
    let table = [
        ("linux-2.6.10", 1, 7, 1),
        ("atomic-pte-2004", 1, 3, 1),
        ("anon-vma-2012", 1, 2, 1),
        ("fault-around-2014", 1, 2, 1),
        ("linux-4.13", 1, 2, 1),
        ("spf-2017", 0, 0, 0),
        ("hugetlb-vma-lock-2022", 1, 2, 1),
        ("linux-6.4", 1, 2, 0),
        ("linux-6.15", 1, 2, 0),
        ("minflt", 0, 0, 0),
    ];
    // Fault-around has nothing to do with anonymous memory.
    assert_eq!(table.len(), eras_without_files().count());
    for (name, lines, writes, own) in table {
        let config = era(name).expect("an era").config;
        for cpus in [4, 16] {
            let one = disjoint(config, cpus, Ranges::OneMapping).expect("runs");
            assert_eq!(one.lines / one.faults, lines, "{name} x{cpus}: {one:?}");
            assert!(
                one.lines % one.faults < one.faults / 5,
                "{name} x{cpus}: {one:?}"
            );
            assert!(one.writes / one.faults >= writes, "{name} x{cpus}: {one:?}");
            let each = disjoint(config, cpus, Ranges::OwnMappings).expect("runs");
            assert_eq!(each.lines / each.faults, own, "{name} x{cpus}: {each:?}");
        }
    }
}

const PAGE: u64 = 4096;

/// Two calls that fit only one by one, in address spaces of their own: never both are admitted; in
/// some schedule one is, and in some none.
#[test]
fn of_two_promises_that_do_not_fit_together_never_both_are_made() {
    let file = MachineFile::shipped("explorer").expect("shipped");
    let seen = [const { Cell::new(0) }; 3];
    for era in eras_without_migration() {
        let budget = Budget {
            schedules: 500,
            seed: 5,
        };
        let found = explore(&budget, |options: &RunOptions<'_>| -> RunReport {
            let size = Size {
                cpus: 2,
                ram_bytes: 192 * PAGE,
                max_tasks: 2,
            };
            let machine = SimInstance::new(&file, size).expect("memory");
            let sys = System::<Sim<X86_64, true>>::boot(machine, era.config).expect("boots");
            sys.set_overcommit(Overcommit::Never);
            sys.set_overcommit_ratio(0);
            sys.set_swap_pages(16);
            let spaces = [(); 2].map(|()| sys.new_mm().expect("memory"));
            let admitted = Cell::new(0);
            let tasks = (0..).zip(&spaces).map(|(cpu, mm)| {
                let admitted = &admitted;
                let body = move || {
                    let mapped = mm.mmap(Place::Any, 9 * PAGE, Prot::READ_WRITE);
                    admitted.set(admitted.get() + usize::from(mapped.is_ok()));
                };
                TaskSpec {
                    cpu,
                    body: Box::new(body) as Box<dyn FnOnce()>,
                }
            });
            let mut report = run_tasks(sys.machine(), options, tasks.collect());
            assert!(report.outcome.is_ok(), "{}", report.outcome);
            let ledger = sys.check_ledger(&[&spaces[0], &spaces[1]]);
            seen[admitted.get()].set(seen[admitted.get()].get() + 1);
            if admitted.get() == 2 || ledger.is_err() {
                let text = format!("{} admitted, {ledger:?}", admitted.get());
                report.outcome = minflt_sim::Outcome::Violation(text);
            }
            report
        });
        assert_eq!(found.failure, None, "{}", era.name);
    }
    let [none, one, both] = seen.map(Cell::into_inner);
    assert!(none > 0 && one > 0 && both == 0, "{none} {one} {both}");
}
