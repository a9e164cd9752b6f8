//! The published curves, from `data/locks`.

use core::fmt;
use serde::Deserialize;
use std::collections::BTreeMap;

const FILES: [(&str, &str); 3] = [
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
];

/// What was measured of one lock of each kind on one machine.
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
    /// Whether no number of the model was fitted to these figures.
    #[serde(default)]
    pub held_out: bool,
    /// Threads, a point each.
    pub threads: Vec<u32>,
    /// By name of the lock ([`super::Lock::name`]): a figure a point.
    pub measured: BTreeMap<String, Vec<f64>>,
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
}

/// All published curves.
///
/// # Errors
/// As [`Curves::parse`].
pub fn curves() -> Result<Vec<Curves>, MeasuredError> {
    let read = |(file, text): &(&str, &str)| Curves::parse(file, text);
    FILES.iter().map(read).collect()
}
