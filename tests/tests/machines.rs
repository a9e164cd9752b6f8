//! Every shipped machine simulates every era, and the largest fit into a small host.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_mm::{ERAS, Era};
use minflt_sim::machine_file::SHIPPED;
use minflt_sim::{AnySimTarget, MachineFile, Size};
use minflt_workload::{Clear, Outcome, Plan, Spaces, Workload};

/// A page for each thread of the largest machine.
const PAGES: u64 = 8;

/// `threads` threads on as many CPUs, `PAGES` pages in all or one for each.
fn pft(file: &MachineFile, era: &Era, size: Size, threads: u32) -> Outcome {
    let target = AnySimTarget::start_sized(file, era.config, size).expect("starts");
    let pages = PAGES.max(u64::from(threads));
    let bytes = pages * file.shape.page_bytes.value as u64;
    let options = ["-b".to_string(), bytes.to_string()];
    let workload = Workload::parse("pft", &options).expect("options");
    let plan = Plan {
        threads,
        cpus: threads,
        clear: Clear::InFault,
        spaces: Spaces::Shared,
    };
    let outcome = match &target {
        AnySimTarget::X86(target) => workload.run(target, &plan),
        AnySimTarget::Altix(target) => workload.run(target, &plan),
        AnySimTarget::Power(target) => workload.run(target, &plan),
    };
    let outcome = outcome.expect("runs");
    assert!(
        outcome.wall_ns > 0 && outcome.faults >= pages,
        "{} {} x{threads}",
        file.name,
        era.name
    );
    outcome
}

/// Frames for all CPUs' lists and tables.
fn size(file: &MachineFile) -> Size {
    let cpus = u64::from(file.cpus());
    Size {
        ram_bytes: (64 << 20) + cpus * 128 * file.shape.page_bytes.value as u64,
        ..Size::of(file)
    }
}

#[test]
fn every_machine_runs_every_era_on_one_and_two_cpus() {
    for (name, _) in SHIPPED {
        let file = MachineFile::shipped(name).expect("shipped");
        for era in ERAS {
            for threads in [1, 2] {
                pft(&file, era, size(&file), threads);
            }
        }
    }
}

#[test]
fn every_machine_runs_on_all_its_cpus() {
    for (name, _) in SHIPPED {
        let file = MachineFile::shipped(name).expect("shipped");
        for era in ERAS {
            let t = std::time::Instant::now();
            pft(&file, era, size(&file), file.cpus());
            eprintln!("{name} {} {:?}", era.name, t.elapsed());
        }
    }
}
