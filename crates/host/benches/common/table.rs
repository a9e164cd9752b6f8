//! What was measured, row by row, and figures with their verdicts.

use super::Much;
use super::figures::{Bound, Noise, Quartiles};

/// Whose row it is, and the row.
type Row = (String, &'static str);

/// Nanoseconds in each round.
#[derive(Debug, Default)]
pub(crate) struct Times {
    rows: Vec<(Row, Vec<f64>)>,
}

impl Times {
    /// One round: a value for each of `names`.
    pub(crate) fn push(&mut self, whose: &str, names: &[&'static str], values: Vec<f64>) {
        for (name, ns) in names.iter().zip(values) {
            let row = (whose.to_owned(), *name);
            match self.rows.iter_mut().find(|(it, _)| *it == row) {
                Some((_, times)) => times.push(ns),
                None => self.rows.push((row, vec![ns])),
            }
        }
    }

    pub(crate) fn of(&self, whose: &str, name: &str) -> &[f64] {
        let wanted = |it: &&(Row, Vec<f64>)| it.0.0 == whose && it.0.1 == name;
        let found = self.rows.iter().find(wanted);
        found.map_or(&[], |(_, times)| times)
    }

    /// Round by round, what `join` makes of two rows.
    pub(crate) fn pairs(&self, one: Name<'_>, other: Name<'_>, join: Join) -> Vec<f64> {
        let pairs = self.of(one.0, one.1).iter().zip(self.of(other.0, other.1));
        pairs.map(|(one, other)| join(*one, *other)).collect()
    }

    /// For people and for programs.
    pub(crate) fn print(&self, bench: &str, much: Much) {
        let command = format!("cargo bench -p minflt-host --bench {bench}");
        self.print_of(bench, &command, much);
    }

    /// The same, measured by `command`.
    pub(crate) fn print_of(&self, bench: &str, command: &str, much: Much) {
        let (rounds, flag) = (much.rounds(), much.flag());
        let head = format!("ns, {rounds} rounds");
        println!(
            "{head:64} {:>9} {:>9} {:>9} {:>9}",
            "median", "q1", "q3", "least"
        );
        for ((whose, name), times) in &self.rows {
            let Quartiles { low, median, high } = Quartiles::of(times);
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let name = format!("{whose}: {name}");
            println!("{name:64} {median:9.1} {low:9.1} {high:9.1} {least:9.1}");
        }
        for ((whose, name), times) in &self.rows {
            let Quartiles { low, median, high } = Quartiles::of(times);
            println!(
                "{{\"bench\":\"{bench}\",\"target\":\"host\",\"of\":\"{whose}\",\"row\":\
                 \"{name}\",\"rounds\":{rounds},\"ns\":{{\"median\":{median:.2},\"q1\":{low:.2},\
                 \"q3\":{high:.2}}},\"command\":\
                 \"{command}{flag}\"}}"
            );
        }
    }
}

/// Whose row, and which.
type Name<'n> = (&'n str, &'n str);

/// Makes one value of two.
type Join = fn(f64, f64) -> f64;

/// Whether enough was measured for a verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judge {
    Yes,
    No,
}

impl Judge {
    pub(crate) const fn of(much: Much) -> Self {
        match much {
            Much::Full => Self::Yes,
            Much::Quick | Much::Smoke => Self::No,
        }
    }

    /// Prints a figure.
    pub(crate) fn print(self, figure: &str, values: &[f64], bound: Bound, noise: Noise) {
        let all = Quartiles::of(values);
        let verdict = match self {
            Self::Yes => bound.verdict(all, noise),
            Self::No => "not judged",
        };
        let Quartiles { low, median, high } = all;
        println!("{figure:64} {median:9.3} [{low:.3} {high:.3}]  {bound:14} {verdict}");
    }
}
