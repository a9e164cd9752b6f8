//! What a run of a workload yields.

use crate::target::{ProcessReport, WorkerReport};
use crate::{ebizzy, file, hugetlb, kernbench, load, numa_mem, pft, usemem, will_it_scale};
use core::fmt;
use std::collections::BTreeMap;

/// What a run of a workload yields. Times and faults are those of the part that the workload
/// measures, which each workload's own page defines.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The workload's name.
    pub workload: &'static str,
    /// Its options, all of them, and what follows from them.
    pub params: BTreeMap<String, Param>,
    /// Wall time, nanoseconds.
    pub wall_ns: u64,
    /// User time, nanoseconds.
    pub user_ns: u64,
    /// System time, nanoseconds.
    pub system_ns: u64,
    /// How often a worker gave its CPU up to wait, in all processes, whole.
    pub sleeps: u64,
    /// How often one had to make way for another, in all processes, whole.
    pub preemptions: u64,
    /// First touches, calculated from the options as the original programs do; what the rates
    /// count.
    pub pages: u64,
    /// Page faults the target counted.
    pub faults: u64,
    /// Operations per second of wall time, by name.
    pub rates: BTreeMap<String, f64>,
    /// Events of all processes, by name.
    pub events: BTreeMap<String, u64>,
    /// How often each oracle looked, in all processes.
    pub checks: BTreeMap<String, u64>,
    /// What the original prints of a run, of workloads whose original prints something.
    pub columns: Option<Columns>,
    /// One report a worker, process after process.
    pub workers: Vec<WorkerReport>,
}

/// What an original program prints of a run, with true decimals.
#[derive(Clone, PartialEq, Debug)]
pub enum Columns {
    /// A row.
    Pft(pft::Columns),
    /// Lines.
    Ebizzy(ebizzy::Columns),
    /// A row.
    WillItScale(will_it_scale::Columns),
    /// Lines for each load.
    Kernbench(kernbench::Columns),
    /// A row; our own.
    Load(load::Columns),
    /// A row; our own.
    File(file::Columns),
    /// Lines.
    NumaMem(numa_mem::Columns),
    /// A row, or a row for each of two programs.
    Hugetlb(hugetlb::Columns),
    /// A line a worker.
    Usemem(usemem::Columns),
}

impl Columns {
    /// The title of the columns, where it is a row of them.
    #[must_use]
    pub const fn header(&self) -> Option<&'static str> {
        match self {
            Self::Pft(_) => Some(pft::HEADER),
            Self::WillItScale(_) => Some(will_it_scale::HEADER),
            Self::Load(_) => Some(load::HEADER),
            Self::File(_) => Some(file::HEADER),
            Self::Hugetlb(_) => Some(hugetlb::HEADER),
            Self::Ebizzy(_) | Self::Kernbench(_) | Self::NumaMem(_) | Self::Usemem(_) => None,
        }
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pft(columns) => columns.fmt(f),
            Self::Ebizzy(columns) => columns.fmt(f),
            Self::WillItScale(columns) => columns.fmt(f),
            Self::Kernbench(columns) => columns.fmt(f),
            Self::Load(columns) => columns.fmt(f),
            Self::File(columns) => columns.fmt(f),
            Self::NumaMem(columns) => columns.fmt(f),
            Self::Hugetlb(columns) => columns.fmt(f),
            Self::Usemem(columns) => columns.fmt(f),
        }
    }
}

/// A parameter's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Param {
    /// A number; bytes where it is a size.
    Number(u64),
    /// A word.
    Text(String),
}

impl Outcome {
    /// Calculated first touches per second of wall time; `None` when no time passed.
    #[must_use]
    pub fn faults_per_second(&self) -> Option<f64> {
        per_second(self.pages, self.wall_ns)
    }

    /// Calculated first touches per second of user and system time; `None` when none was used.
    #[must_use]
    pub fn faults_per_cpu_second(&self) -> Option<f64> {
        per_second(self.pages, self.user_ns.saturating_add(self.system_ns))
    }

    /// Adds a process all of which is measured, from before its start until it is torn down.
    pub(crate) fn add_process(&mut self, report: ProcessReport) {
        self.wall_ns += report.wall_ns;
        self.user_ns += report.user_ns;
        self.system_ns += report.system_ns;
        self.faults += report.faults;
        self.add_counts(report);
    }

    /// Adds a process whose measured part is the windows of `measured`, a part of its threads: the
    /// wall time from the first opening to the last closing, the other times and the faults summed.
    pub(crate) fn add_windows(&mut self, report: ProcessReport, measured: core::ops::Range<usize>) {
        let windows = report.workers.get(measured).unwrap_or_default();
        let start = windows
            .iter()
            .map(|window| window.start_ns)
            .min()
            .unwrap_or(0);
        let end = windows
            .iter()
            .map(|window| window.end_ns)
            .max()
            .unwrap_or(0);
        self.wall_ns += end.saturating_sub(start);
        for window in windows {
            self.user_ns += window.user_ns;
            self.system_ns += window.system_ns;
            self.faults += window.faults;
        }
        self.add_counts(report);
    }

    fn add_counts(&mut self, report: ProcessReport) {
        for (name, count) in report.events {
            *self.events.entry(name).or_default() += count;
        }
        for (name, count) in report.checks {
            *self.checks.entry(name).or_default() += count;
        }
        self.sleeps += report.sleeps;
        self.preemptions += report.preemptions;
        self.workers.extend(report.workers);
    }

    /// Notes a rate of `count` operations in `ns` nanoseconds, unless no time passed.
    pub(crate) fn rate(&mut self, name: &str, count: u64, ns: u64) {
        if let Some(rate) = per_second(count, ns) {
            self.rates.insert(name.to_owned(), rate);
        }
    }

    /// Notes a number among the parameters.
    pub(crate) fn number(&mut self, name: &str, value: impl Into<u64>) {
        self.params
            .insert(name.to_owned(), Param::Number(value.into()));
    }

    /// Notes a word among the parameters.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.params
            .insert(name.to_owned(), Param::Text(value.to_owned()));
    }
}

/// `count` per second when it took `ns` nanoseconds; `None` when no time passed.
pub(crate) fn per_second(count: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| count as f64 / seconds(ns))
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;
    use crate::target::{ProcessReport, WorkerReport};

    fn window(start_ns: u64, end_ns: u64) -> WorkerReport {
        WorkerReport {
            start_ns,
            end_ns,
            user_ns: 1,
            system_ns: 2,
            faults: 3,
            ops: 4,
        }
    }

    #[test]
    fn windows_span_from_the_first_opening_to_the_last_closing() {
        // thread 0   ####
        // thread 1     #####      both: 10..19, the second process 100..105
        let mut outcome = Outcome::default();
        let first = ProcessReport {
            workers: vec![window(10, 14), window(12, 19)],
            ..Default::default()
        };
        let second = ProcessReport {
            workers: vec![window(100, 105)],
            ..Default::default()
        };
        outcome.add_windows(first, 0..2);
        outcome.add_windows(second, 0..1);
        assert_eq!(outcome.wall_ns, 14);
        assert_eq!(
            (outcome.user_ns, outcome.system_ns, outcome.faults),
            (3, 6, 9)
        );
        assert_eq!(outcome.workers.len(), 3);
    }

    #[test]
    fn no_time_gives_no_rate() {
        let outcome = Outcome {
            pages: 5,
            ..Default::default()
        };
        assert_eq!(outcome.faults_per_second(), None);
        assert_eq!(outcome.faults_per_cpu_second(), None);
    }
}
