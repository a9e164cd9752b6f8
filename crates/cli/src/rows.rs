//! Converts a workload's outcome to a row.

use crate::error::{Error, failed};
use crate::machine;
use crate::outputs::check_file;
use minflt_report::{Run, run::Timing, run::write_rows};
use minflt_workload::{Outcome, Param};
use serde_json::Value;
use std::fs::{self, File};
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

/// Writes the records to `file`, one JSON object a line.
pub(crate) fn write_json(file: Option<&Path>, runs: &[Run]) -> Result<(), Error> {
    let Some(path) = file else { return Ok(()) };
    let cannot = failed(format!("--json: cannot write {}", path.display()));
    let out = File::create(path).map_err(|error| cannot(&error))?;
    write_rows(out, runs.iter()).map_err(|error| cannot(&error))
}

/// Where rows are that were saved under a name.
pub(crate) fn saved(name: &str) -> PathBuf {
    Path::new("results/saved").join(format!("{name}.json"))
}

/// Refuses a name under which nothing can be kept, before the run.
pub(crate) fn check_save(name: Option<&str>) -> Result<(), Error> {
    let Some(path) = name.map(saved) else {
        return Ok(());
    };
    let cannot = failed(format!("--save: cannot write {}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot(&error))?;
    }
    check_file("--save", Some(&path))
}

/// Keeps the records under a name.
pub(crate) fn save(name: Option<&str>, runs: &[Run]) -> Result<(), Error> {
    let Some(name) = name else { return Ok(()) };
    let path = saved(name);
    let cannot = failed(format!("--save: cannot write {}", path.display()));
    let out = File::create(&path).map_err(|error| cannot(&error))?;
    write_rows(out, runs.iter()).map_err(|error| cannot(&error))
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
