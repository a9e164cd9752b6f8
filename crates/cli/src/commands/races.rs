//! `minflt races`: the known races, and one of them drawn.

use super::check::{list, one};
use crate::args::Races;
use crate::choice::era_list;
use crate::error::Error;
use crate::out::{out, outln};
use minflt_sim::races::{Race, search, shortest, show};
use minflt_sim::{Budget, Policy};

/// Schedules after which a control counts as not found.
const ENOUGH: u64 = 20_000;

/// Runs the command.
pub(crate) fn run(args: &Races) -> Result<(), Error> {
    match &args.race {
        None => out!("{}", list().to_text()),
        Some(name) => {
            let race = one(name)?;
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
    outln!("the fix: {} (switched off in what follows)", fix(race));
    outln!("shows in: {}", race.shows_in);
    let formats: Vec<_> = race.formats.iter().map(|format| format.id()).collect();
    outln!("formats:  {}", formats.join(", "));
    outln!("search:   minflt check {} --broken", race.number);
}

fn fix(race: &Race) -> String {
    let meaning = minflt_mm::Broken::ALL
        .iter()
        .find(|(fix, _, _)| *fix == race.fix);
    meaning.map_or_else(String::new, |(_, name, doc)| format!("{name}:{doc}"))
}

fn draw(race: &Race) -> Result<(), Error> {
    let era = era_list(race.shows_in)?.remove(0);
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
