//! The published curves, from `data/locks`.

use super::{Contest, Lock};
use core::fmt;
use serde::Deserialize;
use std::collections::BTreeMap;

const FILES: [(&str, &str); 4] = [
    (
        "data/locks/ivb-ep40.toml",
        include_str!("../../../../data/locks/ivb-ep40.toml"),
    ),
    (
        "data/locks/hsw-ex96.toml",
        include_str!("../../../../data/locks/hsw-ex96.toml"),
    ),
    (
        "data/locks/wsm-ex8.toml",
        include_str!("../../../../data/locks/wsm-ex8.toml"),
    ),
    (
        "data/locks/skx448.toml",
        include_str!("../../../../data/locks/skx448.toml"),
    ),
];

/// What was measured of one lock, or one line, of each kind on one machine.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curves {
    /// The machine's file.
    pub machine: String,
    /// Who measured it, and where it stands.
    pub source: String,
    /// What the figures are.
    pub unit: String,
    /// Cycles that the lock was held.
    pub section_cycles: u64,
    /// Cycles between a release and the next acquisition of a thread.
    #[serde(default = "a_few_instructions")]
    pub between_cycles: u64,
    /// Whether no number of the model was fitted to these figures.
    #[serde(default)]
    pub held_out: bool,
    /// Whether something of the model was chosen with these figures in sight.
    #[serde(default = "mostly")]
    pub post_hoc: bool,
    /// Our locks that run beside those that were measured, by name.
    #[serde(default = "all_of_ours")]
    pub beside: Vec<String>,
    /// Threads, a point each.
    pub threads: Vec<u32>,
    /// By name of the lock ([`super::Lock::name`]): a figure a point.
    pub measured: BTreeMap<String, Vec<f64>>,
}

const fn a_few_instructions() -> u64 {
    40
}

const fn mostly() -> bool {
    true
}

fn all_of_ours() -> Vec<String> {
    let ours = [Lock::Spin, Lock::Write, Lock::Read];
    ours.map(|lock| lock.name().to_owned()).into()
}

/// A file of `data/locks` that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeasuredError(String);

impl fmt::Display for MeasuredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for MeasuredError {}

impl Curves {
    /// Reads the text of a file of `data/locks` called `file`.
    ///
    /// # Errors
    /// When it is malformed, or a curve has not a figure for each number of threads.
    pub fn parse(file: &str, text: &str) -> Result<Self, MeasuredError> {
        let wrong = |what: String| MeasuredError(format!("{file}: {what}"));
        let curves: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mut named = curves.measured.keys().chain(&curves.beside);
        let known = |name: &&String| Lock::ALL.iter().any(|lock| lock.name() == name.as_str());
        if let Some(name) = named.find(|name| !known(name)) {
            let names = Lock::ALL.map(Lock::name).join(", ");
            return Err(wrong(format!("unknown lock {name}; locks are {names}")));
        }
        match curves
            .measured
            .iter()
            .find(|(_, figures)| figures.len() != curves.threads.len())
        {
            Some((lock, _)) => Err(wrong(format!(
                "{lock}: give a figure for each of {:?} threads",
                curves.threads
            ))),
            None => Ok(curves),
        }
    }

    /// The locks to run: those that were measured, and those beside them.
    pub fn locks(&self) -> impl Iterator<Item = Lock> + '_ {
        let named = |lock: &Lock| {
            let name = lock.name();
            self.measured.contains_key(name) || self.beside.iter().any(|one| one == name)
        };
        Lock::ALL.into_iter().filter(named)
    }

    /// The contest that was held, with so many threads.
    #[must_use]
    pub const fn contest(&self, threads: u32) -> Contest {
        Contest {
            threads,
            section_cycles: self.section_cycles,
            between_cycles: self.between_cycles,
        }
    }
}

/// All published curves.
///
/// # Errors
/// As [`Curves::parse`].
pub fn curves() -> Result<Vec<Curves>, MeasuredError> {
    let read = |(file, text): &(&str, &str)| Curves::parse(file, text);
    FILES.iter().map(read).collect()
}
