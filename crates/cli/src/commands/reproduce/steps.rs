//! Races on the page: a failing run of each, which a reader steps through.

use super::section;
use crate::commands::check::one;
use crate::commands::races::{Played, play, shows_in};
use crate::error::Error;
use minflt_races::{FIVE, Race};
use minflt_report::steps::{Lane, Run, Shown, Step};
use minflt_report::{Picture, Section};
use minflt_sim::Timeline;

const INTRO: &str = "Five races to learn speculative faults by. For each, its fix is switched off and the \
     schedule explorer searches until an oracle finds the bug; the schedule is then minimized. A column \
     is a thread, a row is one access to shared memory. Open one and step through it with the buttons or \
     the arrow keys; marked rows are the accesses that conflict.";

/// The races to learn by, each with its failing run.
pub(super) fn races() -> Result<Section, Error> {
    let run = |(number, teaches): &(&str, &str)| {
        let race = one(number)?;
        let played = play(race, &shows_in(race)?)?;
        Ok(Picture::Run(run(race, teaches, &played)))
    };
    let pictures: Result<_, Error> = FIVE.iter().map(run).collect();
    Ok(Section {
        pictures: pictures?,
        notes: vec!["`minflt races` lists all races; `minflt races P30 --show` draws one.".into()],
        ..section("Races, step by step", INTRO, Vec::new())
    })
}

fn run(race: &Race, teaches: &str, played: &Played) -> Run {
    let part = |heading: &str, text: &str| (heading.to_owned(), text.to_owned());
    let story = race.story().map_or_else(Vec::new, |story| {
        vec![
            part("What goes wrong", story.wrong),
            part("Fix", story.fix),
            part("Which kernel had it", story.origin),
        ]
    });
    let timeline = &played.bad.timeline;
    let good = &played.good.report.outcome;
    let with_fix = match good.is_ok() {
        true => "With the fix, the same schedule ends well.".to_owned(),
        false => format!("With the fix, the same schedule ends thus: {good}."),
    };
    Run {
        race: race.number.into(),
        never: race.never.into(),
        teaches: teaches.into(),
        story,
        ran: format!(
            "Below: era `{}` with `{}` (the fix switched off), schedule {} of seed {}.",
            race.shows_in, race.fix, played.number, race.seed
        ),
        lanes: timeline
            .lanes
            .iter()
            .map(|lane| Lane {
                name: lane.name.clone(),
                cpu: lane.cpu,
            })
            .collect(),
        steps: steps(timeline),
        outcome: played.bad.report.outcome.to_string(),
        with_fix,
        command: format!("minflt races {} --show", race.number),
    }
}

fn steps(timeline: &Timeline) -> Vec<Step> {
    let mut times = vec![1; timeline.rows.len()];
    for first in timeline.rows.iter().filter_map(|row| row.repeats) {
        times[first] += 1;
    }
    let step = |(row, times): (&minflt_sim::Row, usize)| Step {
        at: row.step,
        lane: row.lane,
        text: row.text.clone(),
        mark: row.mark.map(|mark| mark.text().to_owned()),
        shown: match (row.repeats, row.kept) {
            (Some(_), _) => Shown::Repeats,
            (None, true) => Shown::Always,
            (None, false) => Shown::Unfolded,
        },
        times,
    };
    timeline.rows.iter().zip(times).map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::races;
    use minflt_races::FIVE;
    use minflt_report::{Picture, steps::Shown};

    #[test]
    fn each_race_has_a_story_and_the_accesses_that_conflict_are_marked() {
        let section = races().expect("found");
        assert_eq!(section.pictures.len(), FIVE.len());
        for picture in &section.pictures {
            let Picture::Run(run) = picture else {
                panic!("{picture:?}");
            };
            assert_eq!(run.story.len(), 3, "{}", run.race);
            let marks: Vec<_> = run.steps.iter().filter(|it| it.mark.is_some()).collect();
            assert!(marks.len() >= 2, "{}: {marks:?}", run.race);
            assert!(
                marks.iter().any(|it| it.lane != marks[0].lane),
                "{}",
                run.race
            );
            assert!(marks.iter().all(|it| it.shown == Shown::Always));
            assert!(run.with_fix.ends_with("ends well."), "{}", run.with_fix);
        }
    }
}
