//! Converts a workload's outcome to a row.

use crate::error::{Error, failed};
use crate::files::{plain_name, replace, writable};
use crate::machine;
use minflt_report::{Run, run::Timing, run::write_rows};
use minflt_workload::{Outcome, Param};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a run took place.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) target: &'a str,
    pub(crate) machine: &'a str,
    pub(crate) era: &'a str,
    pub(crate) threads: u32,
    pub(crate) cpus: u32,
    pub(crate) scale: u64,
}

/// The record of a run.
pub(crate) fn record(place: &Place<'_>, outcome: &Outcome) -> Run {
    let timing = Timing {
        wall_ns: outcome.wall_ns,
        cpu_ns: outcome.user_ns + outcome.system_ns,
        faults: outcome.faults,
    };
    let run = match place.target {
        "sim" => Run::simulated(outcome.workload, timing),
        _ => Run::measured(outcome.workload, place.target, timing, machine::describe()),
    };
    let param = |param: &Param| match param {
        Param::Number(number) => Value::from(*number),
        Param::Text(text) => Value::from(text.as_str()),
    };
    Run {
        machine: place.machine.into(),
        era: place.era.into(),
        threads: place.threads,
        cpus: place.cpus,
        scale: place.scale,
        params: outcome
            .params
            .iter()
            .map(|(name, value)| (name.clone(), param(value)))
            .collect(),
        rates: outcome.rates.clone(),
        events: outcome.events.clone(),
        checks: outcome.checks.clone(),
        ..run
    }
}

/// Writes the records to the file of `--json`, if one is given.
pub(crate) fn write_json(file: Option<&Path>, runs: &[Run]) -> Result<(), Error> {
    write("--json", file, runs)
}

/// Writes the records to the file that `option` names, one JSON object a line.
pub(crate) fn write(option: &str, file: Option<&Path>, runs: &[Run]) -> Result<(), Error> {
    let Some(path) = file else { return Ok(()) };
    let cannot = failed(format!("{option}: cannot write {}", path.display()));
    let mut rows = Vec::new();
    let written = write_rows(&mut rows, runs.iter()).and_then(|()| replace(path, &rows));
    written.map_err(|error| cannot(&error))
}

/// Where rows are that were saved under a name.
pub(crate) fn saved(name: &str) -> PathBuf {
    Path::new("results/saved").join(format!("{name}.json"))
}

/// Where records are to be kept under a name, if one is given.
///
/// # Errors
/// A name that is none, or a place that cannot be written to.
pub(crate) fn to_save(name: Option<&str>) -> Result<Option<PathBuf>, Error> {
    let Some(name) = name else { return Ok(None) };
    plain_name("--save", name)?;
    let path = saved(name);
    let cannot = failed(format!("--save: cannot write {}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot(&error))?;
    }
    writable("--save", Some(&path))?;
    Ok(Some(path))
}

/// How often each oracle looked, in a few words.
pub(crate) fn checks(run: &Run) -> String {
    let looked = run.checks.iter().filter(|(_, times)| **times > 0);
    let words: Vec<_> = looked
        .map(|(name, times)| format!("{name} {times}"))
        .collect();
    if words.is_empty() {
        "none".into()
    } else {
        words.join(", ")
    }
}
