//! Timelines of races: what is shown, marked and folded, and the story of each race.

#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_mm::{Config, era};
use minflt_races::{FIVE, RACES, Race, SUBJECTS, Shown, race, search, shortest, show};
use minflt_sim::{Budget, Look, Mark, Policy, Row, Steps, Timeline};
use std::collections::{BTreeMap, BTreeSet};

fn control(race: &Race) -> Config {
    race.without_fix(era(race.shows_in).expect("an era").config)
}

/// The shortest schedule that fails without the fix.
fn fails(race: &Race) -> Shown {
    let budget = Budget {
        schedules: 20_000,
        seed: race.seed,
    };
    let without = control(race);
    let found = search(race, without, &budget);
    let failure = found.explored.failure.expect("its control is found");
    let short = shortest(race, found.format, without, &failure.report).expect("it fails again");
    show(race, found.format, without, Policy::Replay(short.schedule))
}

fn marked(timeline: &Timeline, mark: Mark) -> (usize, &Row) {
    let mut rows = timeline.rows.iter().enumerate();
    rows.find(|(_, row)| row.mark == Some(mark))
        .unwrap_or_else(|| panic!("no step is marked {mark:?}"))
}

/// The objects that two lanes touch and one changes, found from what the rows say.
fn contended(timeline: &Timeline) -> BTreeSet<&str> {
    let mut objects: BTreeMap<&str, (BTreeSet<usize>, bool)> = BTreeMap::new();
    for row in &timeline.rows {
        let Some(object) = &row.object else {
            continue;
        };
        let entry = objects.entry(object).or_default();
        entry.0.insert(row.lane);
        let changed = row
            .text
            .split_once(" -> ")
            .is_some_and(|(old, new)| !old.ends_with(&format!(": {new}")));
        entry.1 |= changed || row.text.starts_with("writes ") || row.text.starts_with("frees ");
    }
    let both = objects
        .into_iter()
        .filter(|(_, (lanes, changed))| lanes.len() > 1 && *changed);
    both.map(|(object, _)| object).collect()
}

fn folds_only_what_is_its_own(number: &str, timeline: &Timeline) {
    let contended = contended(timeline);
    let mut folded = BTreeSet::new();
    for fold in &timeline.folds {
        for row in fold.first..=fold.last {
            assert!(folded.insert(row), "{number}: row {row} is in two folds");
            assert_eq!(timeline.rows[row].lane, fold.lane, "{number}: row {row}");
        }
    }
    for (place, row) in timeline.rows.iter().enumerate() {
        assert_eq!(row.kept, !folded.contains(&place), "{number}: {row:?}");
        if row
            .object
            .as_deref()
            .is_some_and(|it| contended.contains(it))
        {
            assert!(row.kept, "{number}: folded: {row:?}");
        }
        if let Some(first) = row.repeats {
            let first = &timeline.rows[first];
            assert_eq!((first.lane, &first.text), (row.lane, &row.text), "{number}");
        }
    }
}

fn fits(number: &str, timeline: &Timeline) {
    for width in [60, 80, 100, 200] {
        for steps in [Steps::Folded, Steps::All] {
            let look = Look {
                width,
                steps,
                ..Look::default()
            };
            for line in timeline.draw(look).lines() {
                let used = line.chars().count();
                assert!(used <= width, "{number}: {used} of {width}: {line}");
            }
        }
    }
}

/// The long ones are drawn by the program's own tests.
#[test]
fn folding_keeps_what_threads_share_and_every_row_fits_in_all_races() {
    let mut folds = 0;
    for race in RACES.iter().filter(|race| race.number != "huge-again") {
        let shown = fails(race);
        assert!(!shown.report.outcome.is_ok(), "{}", race.number);
        let timeline = &shown.timeline;
        folds_only_what_is_its_own(race.number, timeline);
        fits(race.number, timeline);
        folds += timeline.folds.len();
        // No host address is shown, whatever the host.
        for row in &timeline.rows {
            let host = |text: &str| text.contains("0x7f") && text.len() > 12;
            let words = row.text.split(' ');
            assert!(!words.into_iter().any(host), "{}: {row:?}", race.number);
        }
        // Lanes without a name are those of interrupts.
        let lanes = race.story().expect("a story").lanes.len() as u32;
        for (place, lane) in timeline.lanes.iter().enumerate() {
            let first = timeline.rows.iter().find(|row| row.lane == place);
            let interrupt = first.is_some_and(|row| row.text == "takes an interrupt");
            assert!(lane.task <= lanes || interrupt, "{}: {lane:?}", race.number);
        }
    }
    assert!(folds > RACES.len(), "hardly anything was folded: {folds}");
}

#[test]
fn a_lookup_of_freed_memory_has_its_free_and_its_use_marked() {
    let shown = fails(race("P30").expect("a race"));
    let (freed, free) = marked(&shown.timeline, Mark::Freed);
    let (used, use_of) = marked(&shown.timeline, Mark::Used);
    assert!(freed < used);
    assert_ne!(free.lane, use_of.lane);
    assert_eq!(free.text, "frees tree node#1");
    assert_eq!(use_of.text, "tree node#1 is poison");
}

#[test]
fn a_lost_store_has_its_store_and_the_exchange_marked() {
    let shown = fails(race("P3").expect("a race"));
    let (stored, store) = marked(&shown.timeline, Mark::Stored);
    let (lost, exchange) = marked(&shown.timeline, Mark::Lost);
    assert!(stored < lost);
    assert_ne!(store.lane, exchange.lane);
    assert_eq!(store.text, "user stores 4 to frame#1");
    assert!(
        exchange.text.starts_with("pte 0x40000000: frame#1"),
        "{exchange:?}"
    );
}

#[test]
fn a_stale_translation_has_the_zap_the_free_and_the_use_marked() {
    let kept = fails(race("P41").expect("a race"));
    let (cached, by) = marked(&kept.timeline, Mark::Cached);
    let (zapped, zap) = marked(&kept.timeline, Mark::Zapped);
    assert!(cached < zapped);
    assert_ne!(by.lane, zap.lane);
    assert!(zap.text.ends_with("-> none"), "{zap:?}");
    let used = fails(race("P40").expect("a race"));
    let (freed, free) = marked(&used.timeline, Mark::Freed);
    let (last, use_of) = marked(&used.timeline, Mark::Used);
    assert!(freed < last);
    assert_ne!(free.lane, use_of.lane);
    assert!(use_of.text.contains("stale translation"), "{use_of:?}");
}

#[test]
fn a_run_that_ends_well_has_no_marks() {
    let race = race("P30").expect("a race");
    let fixed = era(race.shows_in).expect("an era").config;
    let policy = Policy::Replay("1:1 13:0 81:1".parse().expect("a schedule"));
    let shown = show(race, race.formats[0], fixed, policy);
    assert!(shown.report.outcome.is_ok());
    assert!(shown.timeline.rows.iter().all(|row| row.mark.is_none()));
}

#[test]
fn each_race_has_one_story_that_says_what_went_wrong_its_fix_and_its_origin() {
    let stories = || SUBJECTS.iter().flat_map(|subject| subject.stories);
    assert_eq!(stories().count(), RACES.len());
    for race in RACES {
        let number = race.number;
        let one: Vec<_> = stories().filter(|story| story.race == number).collect();
        let [story] = one[..] else {
            panic!("{number} has {} stories", one.len());
        };
        for part in [story.wrong, story.fix, story.origin] {
            assert!(part.len() > 30 && part.ends_with('.'), "{number}: {part}");
            assert!(!part.contains("  "), "{number}: {part}");
        }
        let paragraph = story.paragraph();
        let sentences = paragraph.matches(". ").count() + 1;
        assert!(sentences >= 3, "{number}: {paragraph}");
        assert!(paragraph.contains(". Fix: "), "{number}: {paragraph}");
        assert!(!story.lanes.is_empty(), "{number}");
    }
    for (number, _) in FIVE {
        let first = SUBJECTS[0].stories;
        assert!(first.iter().any(|story| story.race == number), "{number}");
    }
}

#[test]
fn races_are_sorted_by_number_in_each_subject() {
    let key = |number: &str| {
        let digits = number.strip_prefix('P').unwrap_or("");
        let end = digits.find('-').unwrap_or(digits.len());
        let value = digits[..end].parse().unwrap_or(u32::MAX);
        (value, number.to_owned())
    };
    for subject in SUBJECTS {
        let numbers = subject.stories.iter().map(|story| key(story.race));
        assert!(numbers.is_sorted(), "{}", subject.name);
    }
}
