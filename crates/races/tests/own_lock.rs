//! A lock mode that is brought from outside: Linux 6.4's, built again.

#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

#[path = "../../../examples/own_lock/semaphore.rs"]
mod semaphore;

use minflt_mm::config::FallbackOrder;
use minflt_mm::{Config, OwnLock, VmaLockOps, era};
use minflt_races::{RACES, search};
use minflt_sim::{Budget, MachineFile, SimTarget};
use minflt_workload::{Clear, Outcome, Plan, Spaces, Workload};
use semaphore::Semaphore;

fn shipped() -> Config {
    era("linux-6.4").expect("an era").config
}

fn with(lock: &'static dyn VmaLockOps) -> Config {
    Config {
        fallback_order: FallbackOrder::VmaOwnMmap,
        own_lock: Some(OwnLock(lock)),
        ..shipped()
    }
}

#[test]
fn no_race_is_found_under_a_lock_that_is_brought() {
    for race in RACES {
        let budget = Budget {
            schedules: 300,
            seed: 7,
        };
        let found = search(race, with(&Semaphore::Whole), &budget).explored;
        assert!(found.failure.is_none(), "{}: {found:?}", race.number);
    }
}

/// The search can fail: a lock without one of its parts is no lock.
#[test]
fn what_a_part_of_the_lock_is_for_is_found_without_it() {
    for part in [&Semaphore::WaitsForNobody, &Semaphore::LooksBefore] {
        let found = RACES.iter().any(|race| {
            let budget = Budget {
                schedules: 10_000,
                seed: 1,
            };
            search(race, with(part), &budget).explored.failure.is_some()
        });
        assert!(found, "{part:?} passes for a lock");
    }
}

/// A single thread counts the same events under both locks: each fault uses the same lock mode.
/// Only the reason of a fallback for want of an anon_vma differs: Linux 6.4 checks for the anon_vma
/// when it locks the VMA; with an embedder's lock, as since 6.10, only a fault that needs one does.
#[test]
fn a_thread_alone_does_the_same_under_both() {
    let [theirs, ours] = [shipped(), with(&Semaphore::Whole)].map(|config| {
        let mut events = alone(config).events;
        let names = ["vma-lock-abort", "vma-lock-retry"];
        let fallen = names.map(|name| events.remove(name).unwrap_or(0));
        events.insert("fallen back".to_owned(), fallen.iter().sum());
        events
    });
    assert_eq!(theirs, ours);
    assert!(ours["vma-lock-success"] > 0 && ours["fallen back"] > 0);
}

fn alone(config: Config) -> Outcome {
    let machine = MachineFile::shipped("altix32").expect("shipped");
    let options = ["--size", "1M"].map(str::to_owned);
    let workload = Workload::parse("disturb", &options).expect("a workload");
    let plan = Plan {
        threads: 2,
        cpus: 1,
        clear: Clear::InFault,
        spaces: Spaces::Shared,
        file: None,
        huge: None,
        inherited: None,
    };
    let target = SimTarget::start(&machine, config, 64 << 20).expect("a machine");
    workload.run(&target, &plan).expect("a run")
}
