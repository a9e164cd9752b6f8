//! Description of the host machine for measured rows.

use minflt_report::run::SCHEMA;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// The processors that this program may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What a measured row says of its machine.
pub(crate) fn describe() -> BTreeMap<String, Value> {
    let mut host = BTreeMap::new();
    host.insert("cpus".into(), Value::from(cpus()));
    host.insert("cpu".into(), Value::from(cpu_model()));
    host.insert("kernel".into(), Value::from(kernel()));
    host.insert("schema".into(), Value::from(SCHEMA));
    host
}

/// One line for tables.
pub(crate) fn line() -> String {
    format!("{}, {} CPUs, Linux {}", cpu_model(), cpus(), kernel())
}

/// The running kernel's release.
pub(crate) fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    if release.is_empty() {
        "unknown".into()
    } else {
        release.into()
    }
}

fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model
        .and_then(|rest| rest.split_once(':'))
        .map(|(_, name)| name.trim());
    model.unwrap_or("unknown CPU").into()
}
