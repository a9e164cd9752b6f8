//! `mm` in virtual time: equal runs are equal, whatever else the process does.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_mm::era;
use minflt_sim::{AnySimTarget, MachineFile};
use minflt_workload::{Clear, Outcome, Plan, Workload};

fn run(machine: &str, era_name: &str, threads: u32) -> Outcome {
    let file = MachineFile::shipped(machine).expect("shipped");
    let config = era(era_name).expect("an era").config;
    let target = AnySimTarget::start(&file, config, 64 << 20).expect("starts");
    let options = ["-b", "2M"].map(String::from);
    let workload = Workload::parse("pft", &options).expect("options");
    let plan = Plan {
        threads,
        cpus: threads,
        clear: Clear::InFault,
    };
    let outcome = match &target {
        AnySimTarget::X86(target) => workload.run(target, &plan),
        AnySimTarget::Altix(target) => workload.run(target, &plan),
        AnySimTarget::Power(target) => workload.run(target, &plan),
    };
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

#[test]
fn simulated_time_grows_with_work_and_shrinks_with_threads() {
    let (one, four) = (
        run("altix32", "atomic-pte-2004", 1),
        run("altix32", "atomic-pte-2004", 4),
    );
    assert!(four.wall_ns < one.wall_ns);
    assert!(four.user_ns + four.system_ns >= one.user_ns + one.system_ns);
}
