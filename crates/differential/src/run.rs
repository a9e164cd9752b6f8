//! Many cases on many subjects.

use crate::compare::{Disagreement, compare, shrink};
use crate::generate::{self, Choice};
use crate::histogram::Histogram;
use crate::random::Random;
use crate::record::Subject;
use crate::window::Window;
use core::fmt;

/// Steps of a case.
pub const CASE: usize = 80;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Steps in all, rounded up to whole cases.
    pub steps: u64,
    /// What determines them.
    pub seed: u64,
    /// Which steps are drawn.
    pub choice: Choice,
    /// What cases are of.
    pub cases: Cases,
}

/// What cases are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cases {
    /// Pages.
    Small,
    /// Huge pages.
    Huge,
    /// Every eighth of huge pages.
    Both,
}

impl Cases {
    const fn window(self, case: u64) -> Window {
        match self {
            Self::Huge => Window::Huge,
            Self::Both if case % 8 == 7 => Window::Huge,
            Self::Small | Self::Both => Window::Small,
        }
    }
}

/// How far a plan went.
#[derive(Debug)]
pub struct Ran {
    /// Steps on which all agreed.
    pub steps: u64,
    /// What they were.
    pub histogram: Histogram,
    /// The first disagreement, as short as it could be made, and the number of its case.
    pub found: Option<(u64, Disagreement)>,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some((case, found)) => write!(f, "case {case} after {} steps:\n{found}", self.steps),
            None => write!(f, "{} steps agree", self.steps),
        }
    }
}

/// Runs the plan until a subject and the model disagree. `tick` is told the steps done so far.
pub fn run(plan: &Plan, subjects: &mut [Box<dyn Subject>], mut tick: impl FnMut(u64)) -> Ran {
    let mut histogram = Histogram::default();
    let mut steps = 0;
    let mut case = 0;
    while steps < plan.steps {
        let window = plan.cases.window(case);
        let mut random = random(plan.seed, case);
        let (drawn, expected) = match window {
            Window::Small => generate::case(&mut random, CASE, &plan.choice),
            Window::Huge => generate::huge_case(&mut random, CASE, &plan.choice),
        };
        let runs =
            |subject: &&mut Box<dyn Subject>| window == Window::Small || subject.has_huge_pages();
        for subject in subjects.iter_mut().filter(runs) {
            if let Some(first) = compare(subject.as_mut(), &drawn, &expected) {
                let found = Some((case, shrink(subject.as_mut(), first, &plan.choice)));
                return Ran {
                    steps,
                    histogram,
                    found,
                };
            }
        }
        histogram.add(&drawn, &expected);
        steps += drawn.len() as u64;
        case += 1;
        tick(steps);
    }
    Ran {
        steps,
        histogram,
        found: None,
    }
}

/// The numbers that determine a case.
fn random(seed: u64, case: u64) -> Random {
    let mut seeds = Random::new(seed);
    Random::new(
        seeds
            .number()
            .wrapping_add(case.wrapping_mul(0x2545_f491_4f6c_dd1d)),
    )
}
