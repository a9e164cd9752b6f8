//! Every shipped machine simulates every era, and the largest fit into a small host.

use minflt_mm::{Era, eras_without_migration};
use minflt_sim::machine_file::SHIPPED;
use minflt_sim::{MachineFile, SimTarget, Size};
use minflt_workload::{Outcome, Plan, Workload};

/// Pages in all, where that is one for each thread at least.
const PAGES: u64 = 8;

/// `threads` threads on as many CPUs, `PAGES` pages in all or one for each.
fn pft(file: &MachineFile, era: &Era, size: Size, threads: u32) -> Outcome {
    let target = SimTarget::start_sized(file, era.config, size).expect("starts");
    let pages = PAGES.max(u64::from(threads));
    let bytes = pages * file.shape.page_bytes.value as u64;
    // Mapped once: that many calls of mmap take long to simulate, and are not what is tested.
    let options = ["-b", &bytes.to_string(), "--measure", "workers"].map(String::from);
    let workload = Workload::parse("pft", &options).expect("options");
    let plan = Plan::new(threads, threads);
    let outcome = workload.run(&target, &plan);
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
        for era in eras_without_migration() {
            for threads in [1, 2] {
                pft(&file, era, size(&file), threads);
            }
        }
    }
}

/// CPUs above which all of them are run in one era only.
const MANY: u32 = 48;

/// CPUs above which they are not all run: hundreds take tens of seconds, 2,048 minutes.
const TOO_MANY: u32 = 128;

#[test]
fn every_machine_that_is_not_too_large_runs_on_all_its_cpus() {
    for (name, _) in SHIPPED {
        let file = MachineFile::shipped(name).expect("shipped");
        if file.cpus() > TOO_MANY {
            continue;
        }
        let is_run = |era: &&Era| file.cpus() <= MANY || era.name == "spf-2017";
        for era in eras_without_migration().filter(is_run) {
            pft(&file, era, size(&file), file.cpus());
        }
    }
    let peak = peak_kib();
    assert!(peak < MOST_KIB, "{peak} KiB at the most");
}

/// Far below the 4 GiB that 1,024 CPUs may take.
const MOST_KIB: u64 = 1 << 20;

/// The most memory that this process ever had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.expect("a peak").trim_end_matches("kB").trim();
    words.parse().expect("a number")
}
