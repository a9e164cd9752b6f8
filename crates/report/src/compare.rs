//! Two files of rows, compared row by row.
//!
//! Rows that were run alike (same workload, target, era, threads, CPUs, settings and scale) are
//! rounds of one figure. The ratio of two figures is the Hodges-Lehmann estimate: the median of all
//! quotients of a round of one file by a round of the other. Its interval is that of the
//! Mann-Whitney test (Hollander and Wolfe, *Nonparametric Statistical Methods*, on two samples),
//! which assumes no distribution: with too few rounds there is none. A simulated row is the same in
//! each run, so one round is exact.

use crate::run::Run;
use std::collections::BTreeMap;

/// How often an interval leaves the true ratio out, at most, in percent.
const LEFT_OUT: f64 = 5.0;
/// Rounds of each side from which on there is an interval.
pub const LEAST_ROUNDS: usize = 4;
/// Rounds of a side that count, at most: further ones make no figure better.
const MOST_ROUNDS: usize = 100;

/// What a figure is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The workload's name.
    pub workload: String,
    /// What it ran on.
    pub target: String,
    /// The simulated machine; empty in measured rows, whose machine is compared apart.
    pub machine: String,
    /// The era; empty for real Linux, whose kernel may be what is compared.
    pub era: String,
    /// Threads.
    pub threads: u32,
    /// CPUs.
    pub cpus: u32,
    /// Settings, as JSON, and the scale.
    pub settings: String,
    /// The rate.
    pub rate: String,
}

impl Key {
    fn of(run: &Run, rate: &str) -> Self {
        let of_sim = |text: &str| {
            if run.simulated {
                text.to_owned()
            } else {
                String::new()
            }
        };
        let settings: Vec<_> = run
            .params
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .chain((run.scale != 1).then(|| format!("scale=1/{}", run.scale)))
            .collect();
        Self {
            workload: run.workload.clone(),
            target: run.target.clone(),
            machine: of_sim(&run.machine),
            era: match run.target.as_str() {
                "linux" => String::new(),
                _ => run.era.clone(),
            },
            threads: run.threads,
            cpus: run.cpus,
            settings: settings.join(" "),
            rate: rate.to_owned(),
        }
    }
}

/// A ratio and the interval that it lies in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The estimate.
    pub ratio: f64,
    /// Its interval; none where there are too few rounds. Of one simulated row it is exact.
    pub interval: Option<(f64, f64)>,
}

/// What is to be said of a figure in two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The second is higher: rates are better so.
    Better,
    /// The second is lower.
    Worse,
    /// No difference that these rounds show.
    None,
    /// Too few rounds to say.
    TooFew,
    /// One of the files lacks it.
    Missing,
}

impl Change {
    /// In a few words.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::None => "no difference detectable",
            Self::TooFew => "too few rounds",
            Self::Missing => "missing",
        }
    }
}

/// A figure in two files.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// What it is of.
    pub key: Key,
    /// Its rounds in the first file and in the second.
    pub rounds: [Vec<f64>; 2],
    /// The second by the first.
    pub ratio: Option<Ratio>,
    /// What is to be said of it.
    pub change: Change,
}

impl Compared {
    fn of(key: Key, rounds: [Vec<f64>; 2], simulated: bool) -> Self {
        let [a, b] = &rounds;
        let ratio = ratio(a, b, simulated);
        let change = match ratio {
            None => Change::Missing,
            Some(Ratio { interval: None, .. }) => Change::TooFew,
            Some(Ratio {
                interval: Some((low, _)),
                ..
            }) if low > 1.0 => Change::Better,
            Some(Ratio {
                interval: Some((_, high)),
                ..
            }) if high < 1.0 => Change::Worse,
            Some(_) => Change::None,
        };
        Self {
            key,
            rounds,
            ratio,
            change,
        }
    }

    /// Whether the second is worse by more than `part`, with all of the interval.
    #[must_use]
    pub fn is_worse_by(&self, part: f64) -> bool {
        let interval = self.ratio.and_then(|it| it.interval);
        interval.is_some_and(|(_, high)| high < 1.0 - part)
    }

    /// The median of each file's rounds.
    #[must_use]
    pub fn medians(&self) -> [Option<f64>; 2] {
        [0, 1].map(|at: usize| median(self.rounds[at].clone()))
    }
}

/// The figures of rows, each with its rounds.
fn figures(runs: &[Run]) -> BTreeMap<Key, (Vec<f64>, bool)> {
    let mut all: BTreeMap<Key, (Vec<f64>, bool)> = BTreeMap::new();
    for run in runs {
        let own = run.rates.iter().map(|(name, rate)| (name.as_str(), *rate));
        let faults = run.faults_per_second.filter(|_| run.rates.is_empty());
        let faults = faults.map(|rate| ("faults_per_second", rate));
        for (name, rate) in own.chain(faults).filter(|(_, rate)| *rate > 0.0) {
            let entry = all.entry(Key::of(run, name)).or_default();
            entry.1 = run.simulated;
            if entry.0.len() < MOST_ROUNDS {
                entry.0.push(rate);
            }
        }
    }
    all
}

/// Compares two files' rows; those that only one of them has are missing.
#[must_use]
pub fn compare(first: &[Run], second: &[Run]) -> Vec<Compared> {
    let (mut first, mut second) = (figures(first), figures(second));
    let mut keys: Vec<Key> = first.keys().chain(second.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    let compared = |key: Key| {
        let (a, simulated) = first.remove(&key).unwrap_or_default();
        let (b, too) = second.remove(&key).unwrap_or_default();
        Compared::of(key, [a, b], simulated || too)
    };
    keys.into_iter().map(compared).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (
        values.get(values.len().checked_sub(1)? / 2)?,
        values.get(values.len() / 2)?,
    );
    Some(f64::midpoint(*low, *high))
}

fn ratio(a: &[f64], b: &[f64], simulated: bool) -> Option<Ratio> {
    let mut all: Vec<f64> = b
        .iter()
        .flat_map(|b| a.iter().map(move |a| b / a))
        .collect();
    all.sort_by(f64::total_cmp);
    let ratio = median(all.clone())?;
    let exact = simulated && all.first() == all.last();
    let interval = match exact {
        true => Some((ratio, ratio)),
        false => cut(a.len(), b.len()).map(|cut| (all[cut], all[all.len() - 1 - cut])),
    };
    Some(Ratio { ratio, interval })
}

/// How many of the sorted quotients are outside of the interval at either end; none where even the
/// whole range leaves the true ratio out too often.
fn cut(m: usize, n: usize) -> Option<usize> {
    if m.min(n) < LEAST_ROUNDS {
        return None;
    }
    let ways = ways(m, n);
    let all: f64 = ways.iter().sum();
    let mut tail = 0.0;
    let mut cut = None;
    for (at, count) in ways.iter().enumerate() {
        tail += count;
        if 2.0 * tail / all * 100.0 > LEFT_OUT {
            break;
        }
        cut = Some(at);
    }
    cut
}

/// In how many orders of `m` and `n` values each number of inversions comes about: the distribution
/// of Mann and Whitney's U where both samples are of one distribution.
fn ways(m: usize, n: usize) -> Vec<f64> {
    // The Gaussian binomial: the product of (1 - x^(n+i)) / (1 - x^i) over i = 1 to m.
    let top = m * n;
    let mut ways = vec![0.0; top + 1];
    ways[0] = 1.0;
    for i in 1..=m {
        for at in (n + i..=top).rev() {
            ways[at] -= ways[at - n - i];
        }
        for at in i..=top {
            ways[at] += ways[at - i];
        }
    }
    ways
}

/// Rows in the format of Go's benchmarks, which `benchstat` reads: a line a round.
#[must_use]
pub fn to_benchmarks(runs: &[Run]) -> String {
    let word = |text: &str| -> String {
        let safe = |letter: char| letter.is_ascii_alphanumeric() || "=._-".contains(letter);
        text.chars()
            .map(|it| if safe(it) { it } else { '_' })
            .collect()
    };
    let mut out = String::new();
    for (key, (rounds, _)) in figures(runs) {
        let mut name: String = word(&key.workload);
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let mut parts = vec![
            format!("Benchmark{name}"),
            format!("on={}", word(&key.target)),
        ];
        parts.extend((!key.machine.is_empty()).then(|| format!("machine={}", word(&key.machine))));
        parts.extend((!key.era.is_empty()).then(|| format!("era={}", word(&key.era))));
        parts.push(format!("threads={}", key.threads));
        parts.extend(
            key.settings
                .split(' ')
                .filter(|it| !it.is_empty())
                .map(word),
        );
        let unit = key.rate.replace("_per_second", "/s");
        for rate in rounds {
            out += &format!("{}-{} 1 {rate} {unit}\n", parts.join("/"), key.cpus);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Change, compare, cut, to_benchmarks, ways};
    use crate::run::{Run, Timing};

    fn rows(target: &str, rates: &[u64]) -> Vec<Run> {
        let run = |faults: &u64| {
            let timing = Timing {
                wall_ns: 1_000_000_000,
                faults: *faults,
                ..Timing::default()
            };
            let run = match target {
                "sim" => Run::simulated("pft", timing),
                _ => Run::measured("pft", target, timing, Default::default()),
            };
            Run {
                era: "linux-4.13".into(),
                ..run
            }
        };
        rates.iter().map(run).collect()
    }

    #[test]
    fn orders_are_counted_as_by_hand() {
        // Two and two values: six orders.
        assert_eq!(ways(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(ways(7, 7).iter().sum::<f64>(), 3432.0);
        // Critical values of the two-sided test at 5%, as tables have them: 0, 2 and 8.
        assert_eq!(
            [cut(4, 4), cut(5, 5), cut(7, 7)],
            [Some(0), Some(2), Some(8)]
        );
        assert_eq!([cut(3, 7), cut(1, 1)], [None, None]);
    }

    #[test]
    fn a_change_is_seen_where_rounds_show_it() {
        let before = rows("host", &[100, 101, 102, 103, 99]);
        let change = |rates: &[u64]| compare(&before, &rows("host", rates))[0].clone();
        assert_eq!(change(&[120, 121, 119, 122, 118]).change, Change::Better);
        assert_eq!(change(&[80, 81, 79, 82, 78]).change, Change::Worse);
        assert_eq!(change(&[103, 99, 102, 100, 101]).change, Change::None);
        assert_eq!(change(&[80, 81, 79]).change, Change::TooFew);
        let worse = change(&[80, 81, 79, 82, 78]);
        assert!(worse.is_worse_by(0.05) && worse.is_worse_by(0.15) && !worse.is_worse_by(0.25));
        assert!((worse.ratio.expect("both have it").ratio - 0.8).abs() < 0.02);
        assert_eq!(worse.medians(), [Some(101.0), Some(80.0)]);
    }

    #[test]
    fn a_simulated_row_is_exact_and_a_missing_one_is_said() {
        let change = |a: &[u64], b: &[u64]| compare(&rows("sim", a), &rows("sim", b))[0].change;
        assert_eq!(change(&[100], &[100]), Change::None);
        assert_eq!(change(&[100], &[101]), Change::Better);
        assert_eq!(change(&[100], &[]), Change::Missing);
        assert_eq!(compare(&rows("sim", &[1]), &rows("host", &[1])).len(), 2);
    }

    #[test]
    fn benchmarks_are_lines_that_benchstat_reads() {
        assert_eq!(
            to_benchmarks(&rows("host", &[100, 200])),
            "BenchmarkPft/on=host/era=linux-4.13/threads=1-1 1 100 faults/s\n\
             BenchmarkPft/on=host/era=linux-4.13/threads=1-1 1 200 faults/s\n"
        );
    }
}
