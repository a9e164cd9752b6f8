//! The record of one run: one JSON object on one line.
//!
//! The keys and their order are those of [`Run`]'s fields, maps are sorted, and every rate is
//! computed from integers, so equal runs are equal bytes on any host.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the record's layout.
pub const SCHEMA: u32 = 1;

/// What a run measured, in integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Wall-clock (or virtual) time of the timed part, in nanoseconds.
    pub wall_ns: u64,
    /// CPU time of all its threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Page faults.
    pub faults: u64,
}

/// One run, as one line of a results file.
///
/// Build it with [`Run::simulated`] or [`Run::measured`] and fill the rest:
/// `Run { threads: 4, ..Run::simulated("pft", timing) }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The layout's version, [`SCHEMA`].
    pub schema: u32,
    /// The workload's name.
    pub workload: String,
    /// What it ran on: `host`, `sim`, `linux`, `kernel`.
    pub target: String,
    /// The machine's name: a machine file's, or the real one's.
    pub machine: String,
    /// The era's name, or the real kernel's version on the target `linux`.
    pub era: String,
    /// Threads, or instances of a workload made of processes.
    pub threads: u32,
    /// CPUs they ran on.
    pub cpus: u32,
    /// The workload's and the configuration's own settings.
    pub params: BTreeMap<String, Value>,
    /// The factor by which the experiment was made smaller than the published one; 1 is full size.
    pub scale: u64,
    /// Wall-clock (or virtual) time of the timed part, in seconds.
    pub seconds: f64,
    /// CPU time of all threads, in seconds.
    pub cpu_seconds: f64,
    /// Page faults.
    pub faults: u64,
    /// Faults per second of wall-clock time; null if no time passed.
    pub faults_per_second: Option<f64>,
    /// Faults per second of CPU time; null if none was used.
    pub faults_per_cpu_second: Option<f64>,
    /// Other rates by name, such as `records_per_second`; each per second.
    pub rates: BTreeMap<String, f64>,
    /// Counts of events by name.
    pub events: BTreeMap<String, u64>,
    /// How often each oracle looked.
    pub checks: BTreeMap<String, u64>,
    /// Whether time was virtual.
    pub simulated: bool,
    /// Where time went, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Value>,
    /// The program's version; not part of the [hash](Run::hash).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The machine it was measured on; only in measured rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<BTreeMap<String, Value>>,
}

impl Run {
    /// A run in virtual time, on the target `sim`.
    #[must_use]
    pub fn simulated(workload: &str, timing: Timing) -> Self {
        Self::new(workload, "sim", timing)
    }

    /// A run in real time on `target`, measured on the machine that `host` describes.
    #[must_use]
    pub fn measured(
        workload: &str,
        target: &str,
        timing: Timing,
        host: BTreeMap<String, Value>,
    ) -> Self {
        Self {
            simulated: false,
            host: Some(host),
            ..Self::new(workload, target, timing)
        }
    }

    fn new(workload: &str, target: &str, timing: Timing) -> Self {
        Self {
            schema: SCHEMA,
            workload: workload.to_owned(),
            target: target.to_owned(),
            machine: String::new(),
            era: String::new(),
            threads: 1,
            cpus: 1,
            params: BTreeMap::new(),
            scale: 1,
            seconds: seconds(timing.wall_ns),
            cpu_seconds: seconds(timing.cpu_ns),
            faults: timing.faults,
            faults_per_second: per_second(timing.faults, timing.wall_ns),
            faults_per_cpu_second: per_second(timing.faults, timing.cpu_ns),
            rates: BTreeMap::new(),
            events: BTreeMap::new(),
            checks: BTreeMap::new(),
            simulated: true,
            why: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: None,
        }
    }

    /// The run as one line of JSON, without the line's end.
    ///
    /// # Errors
    /// None for a run that holds finite numbers.
    pub fn to_line(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Reads one line of JSON.
    ///
    /// # Errors
    /// A text that is no run, another schema, or a row that is both simulated and measured.
    pub fn from_line(line: &str) -> Result<Self, String> {
        let run: Self = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if run.schema != SCHEMA {
            return Err(format!(
                "unsupported schema {}: expected {SCHEMA}",
                run.schema
            ));
        }
        if run.simulated == run.host.is_some() {
            return Err(
                "`host` is required in measured rows and not allowed in simulated ones".to_owned(),
            );
        }
        Ok(run)
    }

    /// The hash that a simulated row is committed by: of its JSON without `version`.
    ///
    /// # Errors
    /// As [`Run::to_line`].
    pub fn hash(&self) -> serde_json::Result<u64> {
        hash_rows([self])
    }
}

/// The hash of several rows in their order: FNV-1a (64 bits, the published offset and prime) over
/// their lines without `version`, each ended by a line feed.
///
/// # Errors
/// As [`Run::to_line`].
pub fn hash_rows<'a>(rows: impl IntoIterator<Item = &'a Run>) -> serde_json::Result<u64> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for row in rows {
        let line = Run {
            version: String::new(),
            ..row.clone()
        }
        .to_line()?;
        for byte in line.bytes().chain([b'\n']) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(hash)
}

/// Writes runs, one a line.
///
/// # Errors
/// What the writer or [`Run::to_line`] says.
pub fn write_rows<'a>(
    mut out: impl Write,
    rows: impl IntoIterator<Item = &'a Run>,
) -> io::Result<()> {
    rows.into_iter()
        .try_for_each(|row| writeln!(out, "{}", row.to_line()?))
}

/// Reads runs, one a line; empty lines are skipped.
///
/// # Errors
/// What the reader says, or the number of the first line that is no run, and why.
pub fn read_rows(input: impl BufRead) -> io::Result<Vec<Run>> {
    let mut rows = Vec::new();
    for (number, line) in (1..).zip(input.lines()) {
        let line = line?;
        if !line.trim().is_empty() {
            rows.push(Run::from_line(&line).map_err(|why| {
                io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {why}"))
            })?);
        }
    }
    Ok(rows)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn per_second(count: u64, ns: u64) -> Option<f64> {
    (ns != 0).then(|| count as f64 * 1e9 / ns as f64)
}

#[cfg(test)]
mod tests;
