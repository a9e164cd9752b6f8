//! Bring a fault's lock mode of your own, without a change of the library: four steps on three
//! words, the writer's half with them. It gets what the shipped ones get: refused mixes, the search
//! for known races, a comparison and a curve. Here it is Linux 6.4's lock of mappings, built again.
//!
//! `cargo run --release -p minflt-races --example own_lock`

mod semaphore;

use core::error::Error;
use minflt_mm::config::{FallbackOrder, Reclamation};
use minflt_mm::{Config, Event, OwnLock, era};
use minflt_races::{RACES, search};
use minflt_sim::{Budget, MachineFile, SimTarget};
use minflt_workload::{Clear, Outcome, Plan, Spaces, Workload};
use semaphore::Semaphore;

const SCHEDULES: u64 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let shipped = era("linux-6.4").ok_or("no such era")?.config;
    let mine = Config {
        fallback_order: FallbackOrder::VmaOwnMmap,
        own_lock: Some(OwnLock(&Semaphore::Whole)),
        ..shipped
    };

    // 1. A mix that cannot be sound is refused with the reason.
    let unsound = Config {
        reclamation: Reclamation::Immediate,
        ..mine
    };
    match unsound.check() {
        Err(illegal) => println!("refused: {illegal}"),
        Ok(()) => return Err("an unsound mix was let through".into()),
    }
    mine.check()?;

    // 2. The known races, each with its fix in place: none may be found. With a part of the lock
    //    left out some are.
    for race in RACES {
        if let Some(failure) = find(race, mine, SCHEDULES) {
            return Err(format!("{} is found: {failure}", race.number).into());
        }
    }
    println!(
        "{} races, {SCHEDULES} schedules each: none found",
        RACES.len()
    );
    for part in [&Semaphore::WaitsForNobody, &Semaphore::LooksBefore] {
        let broken = Config {
            own_lock: Some(OwnLock(part)),
            ..mine
        };
        let found = RACES.iter().find_map(|race| {
            let failure = find(race, broken, 20 * SCHEDULES)?;
            Some(format!("{}: {failure}", race.number))
        });
        println!("{part:?}: {}", found.as_deref().unwrap_or("no race found"));
    }

    // 3. Beside the shipped one. Simulated; the calls by pointer cost nothing there.
    let machine = MachineFile::shipped("altix32")?;
    println!(
        "faults per second, and those done under the lock; simulated on altix32, uncalibrated"
    );
    println!("{:>10} {:>22} {:>22} {:>22}", "lock", 1, 4, 32);
    for (name, config) in [("linux-6.4", shipped), ("mine", mine)] {
        print!("{name:>10}");
        for threads in [1, 4, 32] {
            let outcome = faults(&machine, config, threads)?;
            let rate = outcome.pages as f64 / (outcome.wall_ns as f64 / 1e9);
            let locked = outcome.events.get(Event::VmaLockSuccess.name());
            let locked = locked.copied().unwrap_or(0);
            print!(" {rate:>11.0} {locked:>10}");
        }
        println!();
    }
    Ok(())
}

fn find(race: &minflt_races::Race, config: Config, schedules: u64) -> Option<String> {
    let budget = Budget { schedules, seed: 1 };
    let failure = search(race, config, &budget).explored.failure?;
    Some(failure.to_string())
}

/// First touches by `threads` threads of one address space.
fn faults(machine: &MachineFile, config: Config, threads: u32) -> Result<Outcome, Box<dyn Error>> {
    let options = ["-b", "16M", "--measure", "workers"].map(str::to_owned);
    let workload = Workload::parse("pft", &options)?;
    let plan = Plan {
        threads,
        cpus: threads,
        clear: Clear::InFault,
        spaces: Spaces::Shared,
        file: None,
        huge: None,
        inherited: None,
    };
    let target = SimTarget::start(machine, config, 256 << 20)?;
    Ok(workload.run(&target, &plan)?)
}
