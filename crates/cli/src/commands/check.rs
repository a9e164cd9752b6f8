//! `minflt check`: explore schedules for races.

use super::drawing::{drawn, fill, look};
use super::race_list::list;
use crate::args::Check;
use crate::choice::{Named, all_eras, asked_eras, era_list};
use crate::error::{Error, usage};
use crate::out::{out, outln, table_text};
use crate::parallel;
use crate::progress::{Deadline, Progress, left_out};
use crate::words::did_you_mean;
use minflt_mm::Check as Oracle;
use minflt_races::{Format, RACES, Race, Searched, race, search_mix, search_on, shortest, show};
use minflt_report::{Cell, Column, Table};
use minflt_sim::{Budget, Explored, Failure, How, Memory, Mix, Policy};
use std::time::Instant;

/// One search.
struct Row {
    race: &'static Race,
    era: Named,
    /// The format of what was found.
    format: Format,
    found: Explored,
    /// How often each oracle looked.
    looks: [u64; Oracle::COUNT],
}

/// Runs the command.
pub(crate) fn run(args: &Check) -> Result<(), Error> {
    if args.list {
        out!("{}", list());
        return Ok(());
    }
    let races = chosen(args)?;
    let format = format(args)?;
    let mix = mix(args)?;
    if let Some(schedule) = &args.replay {
        return replay(args, &races, schedule);
    }
    let mut jobs = Vec::new();
    for race in &races {
        jobs.extend(eras(args, race)?.into_iter().map(|era| (*race, era)));
    }
    let progress = Progress::new(args.quiet, jobs.len() as u64);
    let deadline = Deadline::after(args.budget);
    #[expect(
        clippy::disallowed_methods,
        reason = "the rate is a figure of this machine's clock"
    )]
    let started = Instant::now();
    let rows = parallel::map(&jobs, |(race, era)| {
        if deadline.is_over() {
            return Ok(None);
        }
        progress.says(&format!("{} in {}", race.number, era.name));
        let budget = Budget {
            schedules: args.schedules,
            seed: seed(args, race),
        };
        let Searched {
            explored: found,
            format,
            looks,
            ..
        } = match format {
            Some(format) => search_on(race, format, era.config, &budget, mix),
            None => search_mix(race, era.config, &budget, mix),
        };
        progress.step();
        Ok::<_, Error>(Some(Row {
            race,
            era: era.clone(),
            format,
            found,
            looks,
        }))
    })?;
    let rows: Vec<Row> = rows.into_iter().flatten().collect();
    progress.end();
    out!("{}", table_text(&table(args, &rows)));
    let schedules: u64 = rows.iter().map(|Row { found, .. }| found.schedules).sum();
    let rate = schedules as f64 / started.elapsed().as_secs_f64();
    outln!("\n{schedules} schedules, {rate:.0} a second (measured)");
    left_out(jobs.len() - rows.len(), jobs.len(), "searches");
    verdict(args, &rows)
}

/// With the fixes in place nothing may be found; with one switched off it must be.
fn verdict(args: &Check, rows: &[Row]) -> Result<(), Error> {
    for row @ Row { race, found, .. } in rows {
        match &found.failure {
            Some(failure) => tell(args, row, failure),
            None if args.negative_control => {
                return Err(Error::Failed(format!(
                    "{}: no failure in {} schedules with the fix ({}) switched off; increase \
                     --schedules",
                    race.number, found.schedules, race.fix
                )));
            }
            None => {}
        }
    }
    let failures = rows
        .iter()
        .filter(|Row { found, .. }| found.failure.is_some())
        .count();
    if failures > 0 && !args.negative_control {
        return Err(Error::Failed(format!(
            "{failures} of {} searches found a failure",
            rows.len()
        )));
    }
    Ok(())
}

/// What failed, and how to see it again: as it was found, and as short as it could be made.
fn tell(args: &Check, row: &Row, failure: &Failure) {
    let Row {
        race, era, format, ..
    } = row;
    let control = if args.negative_control {
        " --negative-control"
    } else {
        ""
    };
    let at = if args.format.is_some() || race.formats.len() > 1 {
        format!(" --format {}", format.id())
    } else {
        String::new()
    };
    let command = format!(
        "minflt check {} --era {}{at}{control} --replay",
        race.number, era.name
    );
    let Failure {
        number,
        policy,
        memory,
        report,
    } = failure;
    outln!(
        "\n{} in {}: schedule {number} ({policy:?}, {memory:?}): {}\n{command} '{}'",
        race.number,
        era.name,
        report.outcome,
        report.schedule
    );
    let schedule = match shortest(race, *format, era.config, report) {
        Some(short) => {
            outln!(
                "shortened to {} of its {} choices, {} of them context switches:\n{command} '{}'",
                short.schedule.0.len(),
                short.before,
                short.schedule.switches(),
                short.schedule
            );
            short.schedule
        }
        None => report.schedule.clone(),
    };
    let look = look(args.all_steps);
    if let Some(story) = race.story() {
        out!("\n{}", fill(&story.paragraph(), look.width, 0));
    }
    let shown = show(race, *format, era.config, Policy::Replay(schedule));
    out!("\n{}", drawn(&shown, look));
}

fn replay(args: &Check, races: &[&Race], schedule: &str) -> Result<(), Error> {
    let schedule = schedule
        .parse()
        .map_err(|error| usage(format!("--replay: {error}")))?;
    let [race] = races else {
        return Err(usage("--replay: name one race"));
    };
    let eras = eras(args, race)?;
    if args.era.is_some() && eras.len() > 1 {
        return Err(usage("--replay: a schedule is of one era; give one"));
    }
    let format = format(args)?.unwrap_or(race.formats[0]);
    let shown = show(race, format, eras[0].config, Policy::Replay(schedule));
    outln!("{} in {}:\n", race.number, eras[0].name);
    out!("{}", drawn(&shown, look(args.all_steps)));
    if shown.report.outcome.is_ok() || args.negative_control {
        return Ok(());
    }
    Err(Error::Failed(shown.report.outcome.to_string()))
}

fn chosen(args: &Check) -> Result<Vec<&'static Race>, Error> {
    if args.schedules == 0 {
        return Err(usage(
            "--schedules 0: nothing to search; expected at least 1",
        ));
    }
    match &args.scenario {
        Some(name) => one(name).map(|race| vec![race]),
        None if args.all => Ok(RACES.iter().collect()),
        None => Err(usage(
            "check: name a race (see `minflt check --list`) or use --all",
        )),
    }
}

/// The kinds of schedules named.
fn mix(args: &Check) -> Result<Mix, Error> {
    Ok(Mix {
        how: one_of("--policy", &args.policy, How::ALL)?,
        memory: one_of("--memory", &args.memory, Memory::ALL)?,
    })
}

/// The one named of `all`; none if they are to be mixed.
fn one_of<T: Copy>(
    option: &str,
    word: &str,
    all: &[(T, &'static str, &str)],
) -> Result<Option<T>, Error> {
    if word == "mixed" {
        return Ok(None);
    }
    let found = all.iter().find(|(_, name, _)| *name == word);
    found.map(|(kind, ..)| Some(*kind)).ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|(_, name, _)| *name).collect();
        usage(format!(
            "{option}: unknown `{word}`; choices are mixed | {}{}",
            known.join(" | "),
            did_you_mean(word, known)
        ))
    })
}

/// The format named, if one is.
fn format(args: &Check) -> Result<Option<Format>, Error> {
    let Some(id) = &args.format else {
        return Ok(None);
    };
    Format::parse(id).map(Some).ok_or_else(|| {
        let known: Vec<_> = Format::ALL.iter().map(|format| format.id()).collect();
        usage(format!(
            "unknown format `{id}`; formats are {}{}",
            known.join(", "),
            did_you_mean(id, known)
        ))
    })
}

/// The race called `name`.
pub(super) fn one(name: &str) -> Result<&'static Race, Error> {
    race(name).ok_or_else(|| {
        let known = RACES.iter().flat_map(|race| [race.number, race.name]);
        usage(format!(
            "unknown race `{name}`; `minflt check --list` lists all of them{}",
            did_you_mean(name, known)
        ))
    })
}

/// The eras to search: those named, or all; with the fix off the one in which that shows.
fn eras(args: &Check, race: &Race) -> Result<Vec<Named>, Error> {
    let named = match &args.era {
        Some(list) => asked_eras(list)?,
        None if args.negative_control => era_list(race.shows_in)?,
        None => all_eras(),
    };
    if !args.negative_control {
        return Ok(named);
    }
    let without = |named: Named| {
        let config = race.without_fix(named.config);
        let name = format!("{} without {}", named.name, race.fix);
        let refuse = |illegal| usage(format!("{name}: refused: {illegal}"));
        config.check().map_err(refuse)?;
        Ok(Named { config, ..named })
    };
    named.into_iter().map(without).collect()
}

/// The seed given, else the one that finds the race, else 1.
fn seed(args: &Check, race: &Race) -> u64 {
    args.seed
        .unwrap_or(if args.negative_control { race.seed } else { 1 })
}

fn table(args: &Check, rows: &[Row]) -> Table {
    let columns = [
        Column::text("race"),
        Column::text("scenario"),
        Column::text("era"),
        Column::number("schedules", ""),
        Column::number("steps", ""),
        Column::text("found"),
        Column::text("checks"),
    ];
    let mut table = Table::new("Schedules explored", columns);
    for Row {
        race,
        era,
        format,
        found,
        looks,
    } in rows
    {
        let result = match &found.failure {
            Some(failure) if race.formats.len() > 1 => {
                format!("at schedule {} on {}", failure.number, format.id())
            }
            Some(failure) => format!("at schedule {}", failure.number),
            None => "nothing".to_string(),
        };
        let cells = [
            race.number.to_string(),
            race.name.to_string(),
            label(args, race, era),
            found.schedules.to_string(),
            found.steps.to_string(),
            result,
            checks(looks),
        ];
        table
            .rows
            .push(cells.iter().map(|cell| Cell::from(cell.as_str())).collect());
    }
    table
}

/// The era, and what it lacks.
fn label(args: &Check, race: &Race, era: &Named) -> String {
    if args.negative_control {
        format!("{} without {}", era.name, race.fix)
    } else {
        era.name.clone()
    }
}

/// How often each oracle looked, in a few words.
fn checks(looks: &[u64; Oracle::COUNT]) -> String {
    let looked = Oracle::ALL
        .iter()
        .zip(looks)
        .filter(|(_, looks)| **looks > 0);
    let words: Vec<_> = looked
        .map(|(oracle, looks)| format!("{} {looks}", oracle.name()))
        .collect();
    words.join(", ")
}
