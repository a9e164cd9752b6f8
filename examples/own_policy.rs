//! Bring an era of your own: one row, and everything that the shipped ones get comes with it: the
//! table of refused mixes, the search for known races, and a curve on a simulated machine beside
//! the others.
//!
//! `cargo run --release -p minflt-races --example own_policy`
//!
//! To ship an era, put the row into `ERAS` (`crates/mm/src/base/config/era.rs`). A *choice* that
//! there is not yet takes a variant of its decision point in `crates/mm/src/base/config/mod.rs`,
//! and one file: the code that asks it. `docs/architecture.md`, "How to add", names that file for
//! each point.

use core::error::Error;
use minflt_mm::config::{
    AddressSpace, AnonRmap, AnonVmaPreparation, Balancing, CpuMasks, ExchangeBy, FallbackOrder,
    FaultAround, FaultAroundAge, Hugetlb, Linking, Prefetch, Protocol, Reclamation, Rss,
    SleepingLocks, Unmap, Zones,
};
use minflt_mm::{Config, Era, era};
use minflt_races::{RACES, search};
use minflt_sim::{Budget, MachineFile, SimTarget};
use minflt_workload::{Plan, Workload};

/// Speculation as posted in 2017, but with RCU instead of SRCU and counts of the CPUs.
const MINE: Era = Era {
    name: "mine",
    source: "this file",
    idea: "speculative faults whose readers write nothing at all",
    config: Config {
        fallback_order: FallbackOrder::SpeculativeMmap,
        protocol: Protocol::TableLock,
        linking: Linking::ParentLock,
        exchange: ExchangeBy::Native,
        reclamation: Reclamation::Rcu,
        rss: Rss::PerCpu,
        unmap: Unmap::Exclusive,
        address_space: AddressSpace::Whole,
        cpu_masks: CpuMasks::Space,
        around: FaultAround::Adaptive,
        fault_around_age: FaultAroundAge::Old,
        anon_rmap: AnonRmap::Shared,
        anon_vma_preparation: AnonVmaPreparation::OneFault,
        balancing: Balancing::Off,
        sleeping_locks: SleepingLocks::HandOff,
        hugetlb: Hugetlb::VmaLock,
        prefetch: Prefetch::Nothing,
        zones: Zones::PerCpuGroup,
        own_lock: None,
        negative_control: None,
    },
};

const SCHEDULES: u64 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    // 1. A mix that cannot be sound is refused with the reason.
    let unsound = Config {
        reclamation: Reclamation::Immediate,
        ..MINE.config
    };
    match unsound.check() {
        Err(illegal) => println!("refused: {illegal}"),
        Ok(()) => return Err("an unsound mix was let through".into()),
    }
    MINE.config.check()?;

    // 2. The known races, each with its fix in place: none may be found.
    for race in RACES {
        let budget = Budget {
            schedules: SCHEDULES,
            seed: 1,
        };
        let found = search(race, MINE.config, &budget).explored;
        if let Some(failure) = found.failure {
            return Err(format!("{} is found in {}: {failure}", race.number, MINE.name).into());
        }
    }
    println!(
        "{} races, {SCHEDULES} schedules each: none found",
        RACES.len()
    );

    // 3. A curve beside two shipped eras. Simulated, and no cost of the machine is fitted yet.
    let machine = MachineFile::shipped("altix32")?;
    println!("faults per second, simulated on altix32, uncalibrated");
    println!("{:>12} {:>10} {:>10} {:>10} {:>10}", "era", 1, 4, 16, 32);
    let shipped = ["linux-4.13", "spf-2017"].map(|name| era(name).copied());
    for era in shipped.into_iter().flatten().chain([MINE]) {
        print!("{:>12}", era.name);
        for threads in [1, 4, 16, 32] {
            print!(
                " {:>10.0}",
                faults_per_second(&machine, era.config, threads)?
            );
        }
        println!();
    }
    Ok(())
}

/// First touches a second, by `threads` threads of one address space.
fn faults_per_second(
    machine: &MachineFile,
    config: Config,
    threads: u32,
) -> Result<f64, Box<dyn Error>> {
    let options = ["-b", "16M", "--measure", "workers"].map(str::to_owned);
    let workload = Workload::parse("pft", &options)?;
    let plan = Plan::new(threads, threads);
    let target = SimTarget::start(machine, config, 256 << 20)?;
    let outcome = workload.run(&target, &plan)?;
    Ok(outcome.pages as f64 / (outcome.wall_ns as f64 / 1e9))
}
