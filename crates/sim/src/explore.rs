//! Many schedules of one scenario.

use crate::policy::Policy;
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
    /// What it came to; its schedule replays it.
    pub report: RunReport,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, outcome) = (&self.policy, &self.report.outcome);
        write!(f, "schedule {} ({policy:?}): {outcome}", self.number)?;
        write!(f, "\nreplay: {}", self.report.schedule)
    }
}

/// Runs `scenario` under many schedules, until one does not end well: half of them random walks,
/// half by priorities with up to four change points. `scenario` starts from a fresh machine each
/// time, runs its tasks with the options given, and may turn the outcome into a violation.
pub fn explore(
    budget: &Budget,
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
        let (number, seed) = (found.schedules, seeds.draw());
        let policy = if number % 2 == 1 {
            Policy::Random(seed)
        } else {
            Policy::Pct {
                seed,
                depth: 1 + (number / 2 % 5) as u32,
                steps: longest,
            }
        };
        let report = scenario(&RunOptions::explored(policy.clone()));
        found.steps += report.steps;
        found.events += report.events;
        longest = longest.max(report.steps);
        if !report.outcome.is_ok() {
            found.failure = Some(Failure {
                number,
                policy,
                report,
            });
            break;
        }
    }
    found
}
