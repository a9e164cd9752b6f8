//! Rounds of a figure: their median, how far they spread, and when that is too far.
//!
//! # Idea
//! A figure is the median of its rounds, shown with the middle five of seven: with seven rounds the
//! median of the distribution lies among them with a probability of 87.5%, whatever the
//! distribution. A figure is *too noisy* when those five spread by more than [`MOST_SPREAD`] of the
//! median, or when its threads were kept off their processors: less than [`LEAST_CPU`] of the wall
//! time as CPU time, in half of the rounds, though they did not sleep. A thread that sleeps for a
//! lock is part of the figure; one that waits for a processor is not.

use crate::rows::Place;
use crate::rows::record;
use minflt_report::Run;
use minflt_workload::Outcome;
use serde::{Deserialize, Serialize};

/// How far the middle five of seven rounds may lie apart, as a part of their median.
pub(super) const MOST_SPREAD: f64 = 0.25;
/// The least CPU time of threads that do not sleep, as a part of wall time.
pub(super) const LEAST_CPU: f64 = 0.95;
/// The most time that a hypervisor may take meanwhile, as a part of all processors' time.
pub(super) const MOST_STOLEN: f64 = 0.03;
/// Sleeps of a thread that is started, meets the others at barriers, and ends.
const SLEEPS_OF_A_START: u64 = 8;

/// One run, and whether its threads had their processors.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) run: Run,
    /// CPU time by the wall time of the threads' windows; none where threads slept.
    share: Option<f64>,
}

impl Round {
    pub(super) fn new(place: &Place<'_>, outcome: &Outcome) -> Self {
        let workers = &outcome.workers;
        let wall: u64 = workers
            .iter()
            .map(|it| it.end_ns.saturating_sub(it.start_ns))
            .sum();
        let cpu: u64 = workers.iter().map(|it| it.user_ns + it.system_ns).sum();
        let slept = outcome.sleeps > SLEEPS_OF_A_START * workers.len() as u64;
        Self {
            run: record(place, outcome),
            share: (!slept && wall > 0).then(|| cpu as f64 / wall as f64),
        }
    }
}

/// The median of some rounds, and the interval of the middle ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Figure {
    /// The figure of `values`: all but the least and the greatest of them; zeroes of nothing.
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let cut = usize::from(values.len() > 2);
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        Self {
            median: at(values.len() / 2),
            low: at(cut),
            high: at(values.len().saturating_sub(1 + cut)),
        }
    }

    /// How far the interval reaches, as a part of the median.
    pub(super) fn spread(self) -> f64 {
        if self.median > 0.0 {
            (self.high - self.low) / self.median
        } else {
            0.0
        }
    }

    /// One over it.
    pub(super) fn inverse(self) -> Self {
        Self {
            median: 1.0 / self.median,
            low: 1.0 / self.high,
            high: 1.0 / self.low,
        }
    }

    /// Whether a factor is one of neither more nor less: its interval reaches over 1.
    pub(crate) fn shows_no_difference(self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }

    /// Median and interval, with as many decimals.
    pub(crate) fn shown(self, decimals: usize) -> String {
        let Self { median, low, high } = self;
        format!("{median:.decimals$} ({low:.decimals$} to {high:.decimals$})")
    }
}

/// Why rounds are too noisy to judge, if they are, by the figures that `value` takes of them.
pub(super) fn noise(rounds: &[Round], value: impl Fn(&Run) -> f64) -> Option<String> {
    let figure = Figure::of(rounds.iter().map(|round| value(&round.run)).collect());
    if figure.spread() > MOST_SPREAD {
        return Some(format!("spread {:.0}%", 100.0 * figure.spread()));
    }
    let shares: Vec<f64> = rounds.iter().filter_map(|round| round.share).collect();
    if shares.len() * 2 <= rounds.len() {
        return None;
    }
    let share = Figure::of(shares).median;
    (share < LEAST_CPU).then(|| format!("{:.0}% of its CPU time", 100.0 * share))
}

/// The rule, for the page.
pub(super) fn rule(rounds: u64) -> String {
    format!(
        "medians of {rounds} alternated rounds, with the middle {} in brackets; a row is too noisy where \
         these spread by more than {:.0}% of the median, or threads that do not sleep had less than {:.0}% \
         of the wall time as CPU time; it was measured twice then",
        rounds - 2,
        100.0 * MOST_SPREAD,
        100.0 * LEAST_CPU
    )
}

#[cfg(test)]
mod tests {
    use super::{Figure, Round, noise};
    use minflt_report::Run;
    use minflt_report::run::Timing;

    fn rounds(rates: [u64; 7], share: Option<f64>) -> Vec<Round> {
        let round = |faults| Round {
            run: Run::simulated(
                "pft",
                Timing {
                    faults,
                    ..Timing::default()
                },
            ),
            share,
        };
        rates.map(round).into()
    }

    fn faults(run: &Run) -> f64 {
        run.faults as f64
    }

    #[test]
    fn a_figure_is_the_median_with_the_middle_five_of_seven() {
        let figure = Figure::of(vec![7.0, 1.0, 3.0, 5.0, 2.0, 6.0, 4.0]);
        let expected = Figure {
            median: 4.0,
            low: 2.0,
            high: 6.0,
        };
        assert_eq!(figure, expected);
        assert_eq!(figure.shown(1), "4.0 (2.0 to 6.0)");
        assert_eq!(Figure::of(vec![]).shown(0), "0 (0 to 0)");
    }

    #[test]
    fn rounds_that_spread_too_far_are_noise_and_single_ones_are_not() {
        let quiet = rounds([100, 101, 102, 103, 104, 105, 500], Some(1.0));
        assert_eq!(noise(&quiet, faults), None);
        let loud = rounds([50, 60, 100, 100, 100, 100, 110], Some(1.0));
        assert_eq!(noise(&loud, faults).as_deref(), Some("spread 40%"));
    }

    #[test]
    fn threads_kept_off_their_processors_are_noise_unless_they_sleep() {
        let even = [100; 7];
        let starved = noise(&rounds(even, Some(0.6)), faults);
        assert_eq!(starved.as_deref(), Some("60% of its CPU time"));
        assert_eq!(noise(&rounds(even, Some(0.97)), faults), None);
        assert_eq!(noise(&rounds(even, None), faults), None);
    }
}
