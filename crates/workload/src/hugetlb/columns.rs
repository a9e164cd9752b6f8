//! The lines of the posting: the least, the most and the mean over the instances.

use crate::outcome::per_second;
use crate::target::WorkerReport;
use core::fmt;

/// The title of the columns.
pub const HEADER: &str = "instances            min            max            avg";

/// The rates of the instances of one kind, each over its own time.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What is counted: `forks` or `faults`.
    pub what: &'static str,
    /// Instances.
    pub instances: usize,
    /// The lowest rate, per second.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// The mean of all.
    pub avg: f64,
}

/// The rows under [`HEADER`]: one, or of both programs one each.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Columns {
    /// Forks above faults.
    pub rows: Vec<Row>,
}

impl Row {
    /// The row of these instances, of which there is at least one; one without time has rate 0.
    pub(super) fn of(what: &'static str, reports: &[WorkerReport]) -> Self {
        let rate = |worker: &WorkerReport| {
            let ns = worker.end_ns.saturating_sub(worker.start_ns);
            per_second(worker.ops, ns).unwrap_or(0.0)
        };
        let rates = || reports.iter().map(rate);
        Self {
            what,
            instances: reports.len(),
            min: rates().reduce(f64::min).unwrap_or(0.0),
            max: rates().fold(0.0, f64::max),
            avg: rates().sum::<f64>() / reports.len().max(1) as f64,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            instances,
            min,
            max,
            avg,
        } = self;
        write!(
            f,
            "{instances:>9} {min:>14.6} {max:>14.6} {avg:>14.6} ({what})"
        )
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, row) in self.rows.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n" })?;
            row.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Columns, Row};
    use crate::target::WorkerReport;

    #[test]
    fn each_instance_counts_over_its_own_time() {
        let worker = |start_ns, end_ns, ops| WorkerReport {
            start_ns,
            end_ns,
            ops,
            ..WorkerReport::default()
        };
        let row = Row::of("forks", &[worker(0, 1000, 2), worker(500, 1000, 3)]);
        assert_eq!(row.instances, 2);
        assert!((row.min - 2e6).abs() < 1.0 && (row.max - 6e6).abs() < 1.0);
        assert!((row.avg - 4e6).abs() < 1.0);
        let rows = vec![
            row.clone(),
            Row {
                instances: 1,
                ..row
            },
        ];
        assert_eq!(
            Columns { rows }.to_string(),
            "        2 2000000.000000 6000000.000000 4000000.000000 (forks)\n        1 \
             2000000.000000 6000000.000000 4000000.000000 (forks)"
        );
    }
}
