//! The line that the original prints for each worker.

use crate::target::WorkerReport;
use core::fmt;

/// What a worker did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Bytes that it used.
    pub bytes: u64,
    /// How long that took, microseconds.
    pub usecs: u64,
    /// KiB that it used in a second, rounded down.
    pub kb_per_second: u64,
}

/// A line a worker.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Columns {
    /// The lines.
    pub lines: Vec<Line>,
}

impl Line {
    fn of(worker: &WorkerReport) -> Self {
        let ns = worker.end_ns.saturating_sub(worker.start_ns);
        let per_second = u128::from(worker.ops) * 1_000_000_000 / u128::from(ns.max(1)) / 1024;
        Self {
            bytes: worker.ops,
            usecs: ns / 1000,
            kb_per_second: u64::try_from(per_second).unwrap_or(u64::MAX),
        }
    }
}

impl Columns {
    /// The lines of these workers.
    #[must_use]
    pub fn new(workers: &[WorkerReport]) -> Self {
        let lines = workers.iter().map(Line::of).collect();
        Self { lines }
    }

    fn rates(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().map(|line| line.kb_per_second as f64)
    }

    /// The lowest KB/s of any worker.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.rates().reduce(f64::min).unwrap_or(0.0)
    }

    /// The highest.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.rates().fold(0.0, f64::max)
    }

    /// The mean of all.
    #[must_use]
    pub fn avg(&self) -> f64 {
        self.rates().sum::<f64>() / self.lines.len().max(1) as f64
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.lines.iter().enumerate() {
            let Line {
                bytes,
                usecs,
                kb_per_second,
            } = line;
            f.write_str(if number == 0 { "" } else { "\n" })?;
            write!(f, "{bytes} bytes / {usecs} usecs = {kb_per_second} KB/s")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;
    use crate::target::WorkerReport;

    #[test]
    fn the_lines_are_the_originals() {
        let worker = |ops, end_ns| WorkerReport {
            ops,
            end_ns,
            ..WorkerReport::default()
        };
        let columns = Columns::new(&[worker(1 << 20, 2_000_000), worker(1 << 20, 4_000_500)]);
        assert_eq!(
            columns.to_string(),
            "1048576 bytes / 2000 usecs = 512000 KB/s\n\
             1048576 bytes / 4000 usecs = 255968 KB/s"
        );
        assert_eq!((columns.min(), columns.max()), (255_968.0, 512_000.0));
        assert_eq!(columns.avg(), 383_984.0);
    }
}
