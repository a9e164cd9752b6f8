//! Many schedules of one scenario.
//!
//! No way to choose finds everything soonest: a walk finds what many schedules show, priorities
//! what a few switches at the right places show, uneven clocks what real machines would show, and
//! store buffers what no interleaving shows. So the schedules of a budget are divided among all of
//! them.

use crate::policy::{Memory, Policy};
use crate::report::RunReport;
use crate::rng::Rng;
use crate::run::RunOptions;
use core::fmt;

/// How long to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Schedules to try.
    pub schedules: u64,
    /// What all of them are drawn from.
    pub seed: u64,
}

/// How schedules are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// [`Policy::Random`].
    Walk,
    /// [`Policy::Pct`], with up to four change points.
    Pct,
    /// [`Policy::Samples`].
    Samples,
    /// [`Policy::Time`].
    Time,
}

/// Which schedules are tried; by default all kinds: of eight, four by priorities, two walks, one
/// that stops after samples and one by clocks, half of them with store buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mix {
    /// Drawn this way only.
    pub how: Option<How>,
    /// With this memory only.
    pub memory: Option<Memory>,
}

impl How {
    /// Each, with its name and what it is.
    pub const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Walk, "walk", "any CPU at each step"),
        (Self::Pct, "pct", "random priorities, with a few changes"),
        (
            Self::Samples,
            "samples",
            "stops between a sample and its use, long and short",
        ),
        (Self::Time, "time", "virtual time, each cost times 0.5 to 2"),
    ];
}

impl Memory {
    /// Each, with its name and what it is.
    pub const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Sequential, "sc", "stores take effect at once"),
        (
            Self::Buffered,
            "tso",
            "stores wait in buffers, as on x86-64",
        ),
    ];
}

impl Mix {
    /// How schedule `number`, from 1, is drawn. `longest` is the most steps a schedule took so far.
    /// Priorities find most races in the fewest schedules, uneven clocks few of them, so half of
    /// the schedules are by priorities and one of eight is by clocks.
    fn of(self, number: u64, seed: u64, longest: u64) -> (Policy, Memory) {
        let by_turns = match number % 8 {
            7 => How::Time,
            1 | 3 => How::Walk,
            5 => How::Samples,
            _ => How::Pct,
        };
        // Both memories for each way to draw, and all depths for both: 5 and 2 are coprime.
        let turn = match (self.how, by_turns) {
            (Some(_), _) => number,
            (None, How::Time | How::Samples) => number / 8,
            (None, How::Walk | How::Pct) => number / 2,
        };
        let memory = self.memory.unwrap_or(if turn.is_multiple_of(2) {
            Memory::Sequential
        } else {
            Memory::Buffered
        });
        let policy = match self.how.unwrap_or(by_turns) {
            How::Walk => Policy::Random(seed),
            How::Pct => Policy::Pct {
                seed,
                depth: 1 + (number / 2 % 5) as u32,
                steps: longest,
            },
            How::Samples => Policy::Samples {
                seed,
                steps: longest,
            },
            How::Time => Policy::Time(seed),
        };
        (policy, memory)
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Schedules tried.
    pub schedules: u64,
    /// Scheduling points passed, in all of them.
    pub steps: u64,
    /// Accesses made, in all of them.
    pub events: u64,
    /// The first run that did not end well.
    pub failure: Option<Failure>,
}

/// A run that did not end well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Which schedule it was, from 1.
    pub number: u64,
    /// What made it.
    pub policy: Policy,
    /// When its stores reached memory.
    pub memory: Memory,
    /// What it came to; its schedule replays it.
    pub report: RunReport,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, memory, outcome) = (&self.policy, self.memory, &self.report.outcome);
        write!(
            f,
            "schedule {} ({policy:?}, {memory:?}): {outcome}",
            self.number
        )?;
        write!(f, "\nreplay: {}", self.report.schedule)
    }
}

/// Runs `scenario` under many schedules of all kinds, until one does not end well. `scenario`
/// starts from a fresh machine each time, runs its tasks with the options given, and may turn the
/// outcome into a violation.
pub fn explore(budget: &Budget, scenario: impl FnMut(&RunOptions<'_>) -> RunReport) -> Explored {
    explore_mix(budget, Mix::default(), scenario)
}

/// [`explore`], with schedules of the kinds of `mix` only.
pub fn explore_mix(
    budget: &Budget,
    mix: Mix,
    mut scenario: impl FnMut(&RunOptions<'_>) -> RunReport,
) -> Explored {
    let mut seeds = Rng::new(budget.seed);
    let mut found = Explored {
        schedules: 0,
        steps: 0,
        events: 0,
        failure: None,
    };
    let mut longest = 1;
    while found.schedules < budget.schedules {
        found.schedules += 1;
        let number = found.schedules;
        let (policy, memory) = mix.of(number, seeds.draw(), longest);
        let report = scenario(&RunOptions {
            memory,
            ..RunOptions::explored(policy.clone())
        });
        found.steps += report.steps;
        found.events += report.events;
        longest = longest.max(report.steps);
        if !report.outcome.is_ok() {
            found.failure = Some(Failure {
                number,
                policy,
                memory,
                report,
            });
            break;
        }
    }
    found
}
