//! Periodic samples of each task's activity, for a profiler.

use super::Name;
use super::totals::{Activity, Cause};
use crate::model::Ps;

/// The shortest time between two samples.
const SHORTEST: Ps = 1_000_000;

/// A stretch of a task's time that holds at least one moment of sampling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The task, from 0.
    pub task: u32,
    /// Its CPU.
    pub cpu: u32,
    /// When the stretch began, picoseconds since the run began.
    pub from: Ps,
    /// When it ended.
    pub to: Ps,
    /// What the task did.
    pub activity: Activity,
    /// What the time went to.
    pub cause: Cause,
    /// Where, if it was a place's.
    pub place: Option<Name>,
}

/// The samples of a run, in the order in which the stretches ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Samples {
    /// Picoseconds from one moment of sampling to the next.
    pub period: Ps,
    /// The samples.
    pub list: Vec<Sample>,
}

impl Sample {
    /// How many moments of sampling it holds.
    #[must_use]
    pub const fn weight(&self, period: Ps) -> u64 {
        self.to / period - self.from / period
    }
}

/// A stretch before its names are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) task: u32,
    pub(super) cpu: u32,
    pub(super) from: Ps,
    pub(super) to: Ps,
    pub(super) activity: u8,
    pub(super) cause: Cause,
    /// Record and word.
    pub(super) place: Option<(u32, u8)>,
}

/// Keeps at most so many stretches, by looking at ever fewer moments.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    most: usize,
    pub(super) period: Ps,
    pub(super) kept: Vec<Stretch>,
}

impl Sampler {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            period: SHORTEST,
            kept: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, stretch: Stretch) {
        let holds = |stretch: &Stretch, period| stretch.to / period > stretch.from / period;
        if self.most == 0 || !holds(&stretch, self.period) {
            return;
        }
        self.kept.push(stretch);
        while self.kept.len() > self.most {
            self.period *= 2;
            let period = self.period;
            self.kept.retain(|stretch| holds(stretch, period));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Sampler, Stretch};
    use crate::why::Cause;

    #[test]
    fn ever_fewer_moments_are_looked_at() {
        let mut sampler = Sampler::new(10);
        for at in 0..1000 {
            sampler.add(Stretch {
                task: 0,
                cpu: 0,
                from: at * 500_000,
                to: (at + 1) * 500_000,
                activity: 0,
                cause: Cause::User,
                place: None,
            });
        }
        assert!((5..=10).contains(&sampler.kept.len()), "{sampler:?}");
        assert!(sampler.period >= 50_000_000);
    }
}
