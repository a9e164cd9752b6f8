//! Description of the host machine for measured rows.

use minflt_report::run::SCHEMA;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

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
    host.insert("commit".into(), Value::from(env!("MINFLT_COMMIT")));
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    host.insert("date".into(), Value::from(now.to_string()));
    host.insert("governor".into(), Value::from(governor()));
    if let Some(kib) = ram_kib() {
        host.insert("ram_kib".into(), Value::from(kib));
    }
    host
}

/// What sets the processors' frequency; a guest has none that it knows of.
fn governor() -> String {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    fs::read_to_string(path).map_or("unknown".into(), |text| text.trim().into())
}

/// Memory of this machine in KiB, where it says.
pub(crate) fn ram_kib() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|it| it.strip_prefix("MemTotal:"))?;
    total.split_whitespace().next()?.parse().ok()
}

/// Ticks of all processors since the start, and those that the hypervisor gave to other guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// Those until now; none where the kernel does not say.
    pub(crate) fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        let ticks = ticks.ok()?;
        Some(Self {
            // Guests' time is part of the first two.
            all: ticks.iter().take(8).sum(),
            stolen: *ticks.get(7)?,
        })
    }

    /// Which part of the time since `before` was stolen.
    pub(crate) fn stolen_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        match all {
            0 => 0.0,
            _ => self.stolen.saturating_sub(before.stolen) as f64 / all as f64,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::{Ticks, describe};

    #[test]
    fn stolen_time_is_a_part_of_all_time() {
        let of = |text| Ticks::of(text).expect("a line of ticks");
        let before = of("cpu  100 0 50 800 10 0 0 40 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        let after = of("cpu  150 0 60 830 10 0 0 50 9 0\n");
        assert!((after.stolen_since(before) - 0.1).abs() < 1e-9);
        assert!(after.stolen_since(after).abs() < 1e-9);
        assert_eq!(Ticks::of("intr 5\n"), None);
    }

    #[test]
    fn a_measured_row_says_by_what_and_when() {
        let host = describe();
        for key in ["commit", "date", "governor", "cpu", "kernel", "ram_kib"] {
            assert!(host.contains_key(key), "{key}");
        }
    }
}
