//! `minflt races`: lists the known races, and draws timelines.

use super::check::one;
use super::drawing::{drawn, fill, look};
use super::race_list::list;
use crate::args::Races;
use crate::choice::{Named, era_list};
use crate::error::Error;
use crate::out::{out, outln};
use minflt_mm::NegativeControl;
use minflt_races::{Format, Race, Shown, search, shortest, show};
use minflt_sim::{Budget, Look, Policy, Schedule};
use serde_json::{Value, json};

/// Schedules after which a control counts as not found.
const ENOUGH: u64 = 20_000;

/// Characters of a schedule that are shown.
const MOST: usize = 400;

/// Runs the command.
pub(crate) fn run(args: &Races) -> Result<(), Error> {
    let Some(name) = &args.race else {
        out!("{}", list());
        return Ok(());
    };
    let race = one(name)?;
    let look = look(args.all_steps);
    if args.as_posted {
        return as_posted(race, look);
    }
    if args.json {
        let played = play(race, &shows_in(race)?)?;
        outln!("{:#}", as_json(race, &played));
        return Ok(());
    }
    about(race, look);
    if args.show {
        draw(race, &play(race, &shows_in(race)?)?, look);
    }
    Ok(())
}

fn about(race: &Race, look: Look) {
    let never = format!("{} ({}): never {}", race.number, race.name, race.never);
    out!("{}", fill(&never, look.width, 2));
    if let Some(story) = race.story() {
        out!("\n{}\n", fill(&story.paragraph(), look.width, 0));
    }
    let control = format!("negative control: {}", fix(race));
    out!("{}", fill(&control, look.width, 2));
    outln!("shows in: {}", race.shows_in);
    let formats: Vec<_> = race.formats.iter().map(|format| format.id()).collect();
    let formats = fill(&formats.join(", "), look.width - 10, 0);
    outln!(
        "formats:  {}",
        formats.trim_end().replace('\n', "\n          ")
    );
    outln!("search:   minflt check {} --negative-control", race.number);
}

fn fix(race: &Race) -> String {
    let meaning = NegativeControl::ALL
        .iter()
        .find(|(fix, _, _)| *fix == race.fix);
    meaning.map_or_else(String::new, |(_, name, doc)| format!("{name}:{doc}"))
}

/// The era in which the race shows with its fix switched off.
pub(super) fn shows_in(race: &Race) -> Result<Named, Error> {
    Ok(era_list(race.shows_in)?.remove(0))
}

/// The posting of 2012, as posted: NUMA balancing as it stood, and no lock for walks of the reverse
/// map. It argued that a hinting fault holds `mmap_lock` for reading; both races show what that
/// does not keep away.
fn as_posted(race: &Race, look: Look) -> Result<(), Error> {
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
        let text = format!("{number} ({}): {what}: never {}", race.name, race.never);
        out!("{}", fill(&text, look.width, 2));
        let posted = era_list("numa-balancing-2012")?.remove(0);
        draw(race, &play(race, &posted)?, look);
        let safe = era_list("anon-vma-2012")?.remove(0).config;
        let budget = Budget {
            schedules: 2_000,
            seed: race.seed,
        };
        let found = search(race, safe, &budget).explored;
        let text = format!(
            "without the lock only for pages that provably have one place (anon-vma-2012): {}",
            found.failure.map_or_else(
                || format!("nothing found in {} schedules", found.schedules),
                |failure| failure.report.outcome.to_string(),
            )
        );
        outln!("\n{}", fill(&text, look.width, 2));
    }
    Ok(())
}

/// A schedule that fails without the fix, and the same choices with it.
pub(super) struct Played {
    /// Which schedule of the seed it was.
    pub(super) number: u64,
    /// How many choices it had.
    before: usize,
    format: Format,
    /// What is left of them.
    schedule: Schedule,
    pub(super) bad: Shown,
    pub(super) good: Shown,
}

pub(super) fn play(race: &Race, era: &Named) -> Result<Played, Error> {
    let without = race.without_fix(era.config);
    let budget = Budget {
        schedules: ENOUGH,
        seed: race.seed,
    };
    let found = search(race, without, &budget);
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
    let good = show(race, found.format, era.config, policy());
    Ok(Played {
        number: failure.number,
        before,
        format: found.format,
        schedule,
        bad,
        good,
    })
}

fn draw(race: &Race, played: &Played, look: Look) {
    let Played {
        number, schedule, ..
    } = played;
    let text = format!(
        "without the fix, schedule {number} of seed {}, with {} of its {} choices ({}):",
        race.seed,
        schedule.0.len(),
        played.before,
        beginning(&schedule.to_string()),
    );
    outln!("\n{}", fill(&text, look.width, 2));
    out!("{}", drawn(&played.bad, look));
    outln!("\nwith the fix, the same choices:\n");
    out!("{}", drawn(&played.good, look));
}

/// A schedule, or as much of it as a few lines hold: `--json` has all.
fn beginning(schedule: &str) -> String {
    match schedule
        .char_indices()
        .nth(MOST)
        .map(|(at, _)| &schedule[..at])
    {
        Some(most) => {
            let whole = most.rsplit_once(' ').map_or(most, |(whole, _)| whole);
            format!("{whole} ...")
        }
        None => schedule.to_owned(),
    }
}

fn as_json(race: &Race, played: &Played) -> Value {
    let run = |shown: &Shown| {
        json!({
            "outcome": shown.report.outcome.to_string(),
            "timeline": shown.timeline,
        })
    };
    let story = race.story().map(|story| {
        json!({
            "wrong": story.wrong,
            "fix": story.fix,
            "origin": story.origin,
        })
    });
    json!({
        "race": race.number,
        "scenario": race.name,
        "never": race.never,
        "story": story,
        "control": race.fix.to_string(),
        "era": race.shows_in,
        "format": played.format.id(),
        "seed": race.seed,
        "schedule": played.schedule.to_string(),
        "without_fix": run(&played.bad),
        "with_fix": run(&played.good),
    })
}
