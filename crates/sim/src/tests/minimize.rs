//! Failing schedules made short: to counts that are known.

use super::{Bed, M, judge};
use crate::{Budget, Memory, Minimized, Mix, Outcome, RunOptions, RunReport, TaskSpec};
use crate::{explore_mix, minimize};
use minflt_sync::{Atomic, Machine, Ordering};

type Word = Atomic<u64, M>;

/// Finds a failure of `scenario` with `memory` and makes it short; how many choices it had.
fn shortest(
    memory: Memory,
    mut scenario: impl FnMut(&RunOptions<'_>) -> RunReport,
) -> (Minimized, usize) {
    let mix = Mix {
        how: None,
        memory: Some(memory),
    };
    let mut longest = None;
    for seed in 0..40 {
        let budget = Budget {
            schedules: 2_000,
            seed,
        };
        let found = explore_mix(&budget, mix, &mut scenario).failure;
        let failed = found.expect("found").report;
        let longer = |other: &RunReport| failed.schedule.0.len() > other.schedule.0.len();
        if longest.as_ref().is_none_or(longer) {
            longest = Some(failed);
        }
    }
    let failed = longest.expect("some");
    let short = minimize(&failed, &mut scenario).expect("it replays");
    let options = RunOptions::explored(crate::Policy::Replay(short.schedule.clone()));
    assert_eq!(scenario(&options), short.report, "what is printed replays");
    assert_eq!(short.before, failed.schedule.0.len());
    (short, failed.schedule.0.len())
}

#[test]
fn a_lost_update_needs_one_switch() {
    let bed = Bed::explorer(2);
    let (short, before) = shortest(Memory::Sequential, |options| {
        // SAFETY: 1: the objects of the last schedule are not used any more.
        unsafe { bed.reset() };
        let [word, noise] = [(); 2].map(|()| bed.place(Word::new(0)));
        let body = || {
            for _ in 0..10 {
                noise.add(1, Ordering::Relaxed);
            }
            let seen = word.load(Ordering::Relaxed);
            word.store(seen + 1, Ordering::Relaxed);
            for _ in 0..10 {
                noise.add(1, Ordering::Relaxed);
            }
        };
        let tasks = vec![TaskSpec::new(0, body), TaskSpec::new(1, body)];
        let report = bed.run(options, tasks);
        judge(report, word.peek() != 2, "lost")
    });
    assert!(before > 5, "{before}");
    assert_eq!(short.schedule.0.len(), 1, "{}", short.schedule);
    assert_eq!(short.report.outcome, Outcome::Violation("lost".into()));
}

#[test]
fn a_look_at_two_moments_needs_three_switches() {
    let bed = Bed::explorer(2);
    let (short, _) = shortest(Memory::Sequential, |options| {
        // SAFETY: 1: the objects of the last schedule are not used any more.
        unsafe { bed.reset() };
        let [x, y] = [(); 2].map(|()| bed.place(Word::new(0)));
        let tasks = vec![
            TaskSpec::new(0, || {
                for word in [x, y] {
                    word.store(1, Ordering::Relaxed);
                    word.store(0, Ordering::Relaxed);
                }
            }),
            TaskSpec::new(1, || {
                let both = [x, y].map(|word| word.load(Ordering::Relaxed));
                if both == [1, 1] {
                    M::violation(format_args!("both at address {:p}", x));
                }
            }),
        ];
        bed.run(options, tasks)
    });
    assert_eq!(short.schedule.0.len(), 3, "{}", short.schedule);
    assert_eq!(short.schedule.switches(), 3);
}

#[test]
fn store_buffering_needs_one_store_held_back() {
    let bed = Bed::explorer(2);
    let (short, _) = shortest(Memory::Buffered, |options| {
        // SAFETY: 1: the objects of the last schedule are not used any more.
        unsafe { bed.reset() };
        let [x, y] = [(); 2].map(|()| bed.place(Word::new(0)));
        let sums = bed.place(Word::new(0));
        let body = |mine: &Word, other: &Word| {
            mine.store(1, Ordering::Release);
            if other.load(Ordering::Acquire) == 0 {
                sums.poke(sums.peek() + 1);
            }
        };
        let tasks = vec![
            TaskSpec::new(0, || body(x, y)),
            TaskSpec::new(1, || body(y, x)),
        ];
        let report = bed.run(options, tasks);
        judge(report, sums.peek() == 2, "neither saw the other")
    });
    assert_eq!(short.schedule.to_string(), "2:hold");
}

#[test]
fn what_fails_in_another_way_or_not_again_is_not_kept() {
    let bed = Bed::explorer(2);
    let mut runs = 0;
    let mut scenario = |options: &RunOptions<'_>| {
        // SAFETY: 1: the objects of the last schedule are not used any more.
        unsafe { bed.reset() };
        runs += 1;
        let word = bed.place(Word::new(0));
        let body = || {
            word.add(1, Ordering::Relaxed);
            word.load(Ordering::Relaxed);
        };
        let report = bed.run(
            options,
            vec![TaskSpec::new(0, body), TaskSpec::new(1, body)],
        );
        // Its choices decide what is said, and never that something is.
        let none = report.schedule.0.is_empty();
        judge(report, true, if none { "no choice" } else { "choices" })
    };
    let options = |text: &str| RunOptions::explored(crate::Policy::Replay(text.parse().unwrap()));
    let failed = scenario(&options("2:1 3:0 4:1"));
    let short = minimize(&failed, &mut scenario).expect("it replays");
    assert_eq!(
        short.schedule.0.len(),
        1,
        "without any it says another thing"
    );
    let mut odd = failed;
    odd.outcome = Outcome::Panic("something else".into());
    assert_eq!(minimize(&odd, &mut scenario), None);
    assert!(runs < 100);
}
