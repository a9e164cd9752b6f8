//! `minflt races`: lists the known races, and draws timelines.

use super::check::{list, one};
use crate::args::Races;
use crate::choice::{Named, era_list};
use crate::error::Error;
use crate::out::{out, outln, table_text};
use minflt_mm::NegativeControl;
use minflt_races::{Race, search, shortest, show};
use minflt_sim::{Budget, Policy};

/// Schedules after which a control counts as not found.
const ENOUGH: u64 = 20_000;

/// Runs the command.
pub(crate) fn run(args: &Races) -> Result<(), Error> {
    match &args.race {
        None => out!("{}", table_text(&list())),
        Some(name) => {
            let race = one(name)?;
            if args.as_posted {
                return as_posted(race);
            }
            about(race);
            if args.show {
                draw(race)?;
            }
        }
    }
    Ok(())
}

fn about(race: &Race) {
    outln!("{} ({}): never {}", race.number, race.name, race.never);
    outln!("negative control: {}", fix(race));
    outln!("shows in: {}", race.shows_in);
    let formats: Vec<_> = race.formats.iter().map(|format| format.id()).collect();
    outln!("formats:  {}", formats.join(", "));
    outln!("search:   minflt check {} --negative-control", race.number);
}

fn fix(race: &Race) -> String {
    let meaning = NegativeControl::ALL
        .iter()
        .find(|(fix, _, _)| *fix == race.fix);
    meaning.map_or_else(String::new, |(_, name, doc)| format!("{name}:{doc}"))
}

/// The posting of 2012, as posted: NUMA balancing as it stood, and no lock for walks of the reverse
/// map. It argued that a hinting fault holds `mmap_lock` for reading; both races show what that
/// does not keep away.
fn as_posted(race: &Race) -> Result<(), Error> {
    if race.fix != NegativeControl::RmapUnlocked {
        return Err(Error::Usage(format!(
            "{} cannot be replayed as posted; only P10 and P11 can",
            race.number
        )));
    }
    for (number, what) in [
        (
            "P10",
            "after a fork, the tree has mappings of other address spaces",
        ),
        (
            "P11",
            "in one address space, a first fault changes it under the same lock",
        ),
    ] {
        let race = one(number)?;
        outln!("{number} ({}): {what}: never {}", race.name, race.never);
        draw_in(race, era_list("numa-balancing-2012")?.remove(0))?;
        let safe = era_list("anon-vma-2012")?.remove(0).config;
        let budget = Budget {
            schedules: 2_000,
            seed: race.seed,
        };
        let found = search(race, safe, &budget).explored;
        outln!(
            "\nwithout the lock only for pages that provably have one place (anon-vma-2012): {}\n",
            found.failure.map_or_else(
                || format!("nothing found in {} schedules", found.schedules),
                |failure| failure.report.outcome.to_string(),
            )
        );
    }
    Ok(())
}

fn draw(race: &Race) -> Result<(), Error> {
    draw_in(race, era_list(race.shows_in)?.remove(0))
}

fn draw_in(race: &Race, era: Named) -> Result<(), Error> {
    let without = race.without_fix(era.config);
    let found = search(
        race,
        without,
        &Budget {
            schedules: ENOUGH,
            seed: race.seed,
        },
    );
    let Some(failure) = found.explored.failure else {
        return Err(Error::Failed(format!(
            "{}: not found in {ENOUGH} schedules",
            race.number
        )));
    };
    let before = failure.report.schedule.0.len();
    // The drawing is for people: the fewest choices that show it.
    let schedule = shortest(race, found.format, without, &failure.report)
        .map_or(failure.report.schedule, |short| short.schedule);
    let policy = || Policy::Replay(schedule.clone());
    let bad = show(race, found.format, without, policy());
    outln!(
        "\nwithout the fix, schedule {} of seed {}, with {} of its {before} choices ({schedule}):\n",
        failure.number,
        race.seed,
        schedule.0.len()
    );
    outln!("{}\n=> {}", bad.drawing, bad.report.outcome);
    let good = show(race, found.format, era.config, policy());
    outln!("\nwith the fix, the same choices:\n");
    outln!("{}\n=> {}", good.drawing, good.report.outcome);
    Ok(())
}
