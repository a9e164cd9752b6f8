//! Minimizes a failing schedule.
//!
//! # Problem
//! A random walk fails with hundreds of choices, of which three matter.
//!
//! # Idea
//! Delta debugging: leave choices out, half of them first, then quarters, down to single ones, and
//! keep what still fails in the same way.
//!
//! # Protocol
//! A choice left out falls back to what would have happened anyway: the CPU goes on, the store
//! reaches memory at once. What stands behind it keeps the numbers of its steps, or comes one step
//! sooner; what means nothing any more (a CPU that cannot run) does nothing. After each success the
//! list is the one that the run itself reports, without that.
//!
//! Where nothing can be left out, two neighbouring stretches of steps may change places: if the
//! same CPU runs before and after one of them, its two parts become one.
//! ```text
//! CPU 0  aaa   bbb   ccc            aaabbb   ccc
//! CPU 1     xxx   yyy          or         xxxyyy   : two switches less
//! ```
//!
//! # Why it is correct
//! Every list kept was run and failed in the same way: the same kind of outcome, and for violations
//! the same words, numbers left aside. At the end no single choice can be left out, and of short
//! lists no two; a shorter one may exist all the same.
//!
//! # Cost
//! Some n log n runs for n choices, at most [`MOST_RUNS`], and fewer where runs are long.
//!
//! Zeller, Hildebrandt, "Simplifying and isolating failure-inducing input", TSE 2002.

use crate::policy::Policy;
use crate::report::{Outcome, RunReport};
use crate::run::RunOptions;
use crate::schedule::{Choice, Schedule};

/// Runs after which it is short enough.
const MOST_RUNS: u64 = 4_000;
/// Accesses, in all runs, after which it is.
const MOST_EVENTS: u64 = 20_000_000;
/// Lists up to this length are tried without each two of their choices.
const PAIRS_UP_TO: usize = 24;

/// A failing schedule made short.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Minimized {
    /// What is left of it.
    pub schedule: Schedule,
    /// What that comes to.
    pub report: RunReport,
    /// How many choices there were.
    pub before: usize,
    /// Runs that it took.
    pub runs: u64,
}

/// Makes the schedule of `failed` short: `scenario` is what [`crate::explore`] was given. `None` if
/// its replay does not fail in the same way, so that it is no function of its schedule.
pub fn minimize(
    failed: &RunReport,
    scenario: impl FnMut(&RunOptions<'_>) -> RunReport,
) -> Option<Minimized> {
    let mut search = Search {
        scenario,
        wanted: kind(&failed.outcome),
        runs: 0,
        events: 0,
        best: None,
    };
    if !search.fails(&failed.schedule.0) {
        return None;
    }
    search.shorten();
    let Search { runs, best, .. } = search;
    best.map(|report| Minimized {
        schedule: report.schedule.clone(),
        report,
        before: failed.schedule.0.len(),
        runs,
    })
}

struct Search<F> {
    scenario: F,
    wanted: String,
    runs: u64,
    events: u64,
    /// The run with the fewest choices that failed as wanted.
    best: Option<RunReport>,
}

impl<F: FnMut(&RunOptions<'_>) -> RunReport> Search<F> {
    /// Whether `choices` fail as wanted, and are the shortest that do.
    fn fails(&mut self, choices: &[Choice]) -> bool {
        let policy = Policy::Replay(Schedule(choices.to_vec()));
        let report = (self.scenario)(&RunOptions::explored(policy));
        self.runs += 1;
        self.events += report.events;
        if kind(&report.outcome) != self.wanted {
            return false;
        }
        let shorter = |best: &RunReport| report.schedule.0.len() < best.schedule.0.len();
        let first = self.best.is_none();
        let better = self.best.as_ref().is_none_or(shorter);
        if better {
            self.best = Some(report);
        }
        better || first
    }

    fn choices(&self) -> Vec<Choice> {
        let best = self.best.as_ref();
        best.map_or_else(Vec::new, |report| report.schedule.0.clone())
    }

    fn steps(&self) -> u64 {
        self.best.as_ref().map_or(0, |report| report.steps)
    }

    fn tired(&self) -> bool {
        self.runs >= MOST_RUNS || self.events >= MOST_EVENTS
    }

    fn shorten(&mut self) {
        let mut width = self.choices().len();
        while width > 1 {
            self.without_each(width);
            width = width.div_ceil(2).min(self.choices().len());
        }
        while !self.tired()
            && (self.without_each(1) || self.with_two_changed() || self.without_pairs())
        {}
    }

    /// Leaves out each `width` choices in a row that can be; whether any could.
    fn without_each(&mut self, width: usize) -> bool {
        // From the end: what comes late is often there only because the walk went on.
        let mut shortened = false;
        let mut to = self.choices().len();
        while to > 0 && !self.tired() {
            let mut choices = self.choices();
            to = to.min(choices.len());
            let from = to.saturating_sub(width);
            choices.drain(from..to);
            shortened |= self.fails(&choices)
                || width == 1 && {
                    for choice in &mut choices[from..] {
                        choice.step = choice.step.saturating_sub(1);
                    }
                    in_order(&choices) && self.fails(&choices)
                };
            to = from;
        }
        shortened
    }

    /// Makes two neighbouring stretches change places, where that leaves fewer choices; whether it
    /// did anywhere.
    fn with_two_changed(&mut self) -> bool {
        let mut shortened = false;
        let mut at = 0;
        while let Some(changed) = changed(&self.choices(), at, self.steps()) {
            if self.tired() {
                break;
            }
            shortened |= self.fails(&changed);
            at += 1;
        }
        shortened
    }

    /// Leaves out two choices, if there are two that can be; whether there were.
    fn without_pairs(&mut self) -> bool {
        let choices = self.choices();
        if choices.len() > PAIRS_UP_TO {
            return false;
        }
        for second in 1..choices.len() {
            for first in 0..second {
                let mut less = choices.clone();
                less.remove(second);
                less.remove(first);
                if self.tired() {
                    return false;
                }
                if self.fails(&less) {
                    return true;
                }
            }
        }
        false
    }
}

/// Whether no choice has come to the step of one before it.
fn in_order(choices: &[Choice]) -> bool {
    let steps = |pair: &[Choice]| {
        let same = pair[0].step == pair[1].step && pair[0].to.rank() <= pair[1].to.rank();
        pair[0].step < pair[1].step || same && pair[1].to.rank() > 0
    };
    choices.windows(2).all(steps)
}

/// `choices` with the stretches after its switches `at` and `at + 1` in the other order; `None` if
/// there are not so many.
fn changed(choices: &[Choice], at: usize, steps: u64) -> Option<Vec<Choice>> {
    let mut switches = choices.iter().filter(|choice| choice.to.rank() == 0);
    let first = switches.nth(at)?.step;
    let second = switches.next()?.step;
    let end = switches.next().map_or(steps + 1, |choice| choice.step);
    let mut moved: Vec<Choice> = choices.to_vec();
    for choice in &mut moved {
        match choice.step {
            step if (first..second).contains(&step) => choice.step += end - second,
            step if (second..end).contains(&step) => choice.step -= second - first,
            _ => {}
        }
    }
    moved.sort_by_key(|choice| choice.step);
    Some(moved)
}

/// An outcome without what may differ between two runs into one bug: numbers, and who waits where.
fn kind(outcome: &Outcome) -> String {
    let words = |text: &str| {
        let words = text.split_whitespace();
        let same = words.filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        same.collect::<Vec<_>>().join(" ")
    };
    match outcome {
        Outcome::Ok => String::new(),
        Outcome::Deadlock(_) => "deadlock".to_owned(),
        Outcome::Endless(_) => "endless".to_owned(),
        Outcome::Violation(text) => format!("violation {}", words(text)),
        Outcome::Panic(text) => format!("panic {}", words(text)),
    }
}
