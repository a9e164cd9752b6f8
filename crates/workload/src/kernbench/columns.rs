//! The lines that kernbench prints for a load.

use super::Load;
use crate::outcome::seconds;
use crate::target::ProcessReport;
use core::fmt;

/// What `time` says of one run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Point {
    rows: [f64; 6],
}

/// An average over the runs of a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Average {
    /// The average.
    pub mean: f64,
    /// The sample's standard deviation; of one run there is none.
    pub deviation: Option<f64>,
}

/// What is printed for a load. Percent of a CPU is not cut to whole ones, as the original's is.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadColumns {
    /// Which load.
    pub load: Load,
    /// Its jobs.
    pub jobs: u32,
    /// Wall time, seconds.
    pub elapsed_s: Average,
    /// User time, seconds.
    pub user_s: Average,
    /// System time, seconds.
    pub system_s: Average,
    /// User and system time in percent of wall time.
    pub percent_cpu: Average,
    /// Involuntary context switches.
    pub context_switches: Average,
    /// Voluntary context switches.
    pub sleeps: Average,
}

/// What is printed for all loads, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Columns {
    /// The loads.
    pub loads: Vec<LoadColumns>,
}

impl Point {
    pub(super) fn of(report: &ProcessReport) -> Self {
        let (elapsed, user, system) = (
            seconds(report.wall_ns),
            seconds(report.user_ns),
            seconds(report.system_ns),
        );
        let percent = if elapsed > 0.0 {
            (user + system) / elapsed * 100.0
        } else {
            0.0
        };
        let counts = [report.preemptions as f64, report.sleeps as f64];
        Self {
            rows: [elapsed, user, system, percent, counts[0], counts[1]],
        }
    }
}

impl Average {
    /// Of some numbers, at least one.
    fn of(numbers: impl Iterator<Item = f64> + Clone) -> Self {
        let count = numbers.clone().count() as f64;
        let mean = numbers.clone().sum::<f64>() / count;
        let squares: f64 = numbers
            .map(|number| (number - mean) * (number - mean))
            .sum();
        let deviation = (count > 1.0).then(|| (squares / (count - 1.0)).sqrt());
        Self { mean, deviation }
    }
}

impl LoadColumns {
    pub(super) fn of(load: Load, jobs: u32, runs: &[Point]) -> Self {
        let row = |row: usize| Average::of(runs.iter().map(|run| run.rows[row]));
        Self {
            load,
            jobs,
            elapsed_s: row(0),
            user_s: row(1),
            system_s: row(2),
            percent_cpu: row(3),
            context_switches: row(4),
            sleeps: row(5),
        }
    }
}

impl fmt::Display for Average {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.mean)?;
        match self.deviation {
            Some(deviation) => write!(f, " ({deviation:.6})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for LoadColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.load {
            Load::Single => "Single threaded".to_owned(),
            Load::Half => format!("Half load -j {}", self.jobs),
            Load::Optimal => format!("Optimal load -j {}", self.jobs),
            Load::Maximal => format!("Maximal load -j, {} jobs", self.jobs),
        };
        writeln!(f, "Average {name} Run (std deviation):")?;
        writeln!(f, "Elapsed Time {}", self.elapsed_s)?;
        writeln!(f, "User Time {}", self.user_s)?;
        writeln!(f, "System Time {}", self.system_s)?;
        writeln!(f, "Percent CPU {}", self.percent_cpu)?;
        writeln!(f, "Context Switches {}", self.context_switches)?;
        write!(f, "Sleeps {}", self.sleeps)
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, load) in self.loads.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n\n" })?;
            load.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Average, Columns, LoadColumns, Point};
    use crate::kernbench::Load;
    use crate::target::ProcessReport;

    fn report(elapsed_s: u64, cpu_s: u64, switches: u64) -> ProcessReport {
        ProcessReport {
            wall_ns: elapsed_s * 1_000_000_000,
            user_ns: cpu_s * 900_000_000,
            system_ns: cpu_s * 100_000_000,
            preemptions: switches,
            sleeps: 2 * switches,
            ..ProcessReport::default()
        }
    }

    #[test]
    fn averages_are_of_the_sample() {
        // Of 2, 4, 4, 4, 5, 5, 7, 9: mean 5, squares 32, by 7.
        let numbers = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let average = Average::of(numbers.into_iter());
        assert!((average.mean - 5.0).abs() < 1e-12);
        assert!((average.deviation.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Average::of([3.0].into_iter()).deviation, None);
    }

    #[test]
    fn the_lines_are_the_originals() {
        let runs = [report(4, 12, 10), report(6, 24, 30)].map(|report| Point::of(&report));
        let half = LoadColumns::of(Load::Half, 7, &runs);
        let text = half.to_string();
        assert_eq!(
            text,
            "Average Half load -j 7 Run (std deviation):\n\
             Elapsed Time 5.000000 (1.414214)\n\
             User Time 16.200000 (7.636753)\n\
             System Time 1.800000 (0.848528)\n\
             Percent CPU 350.000000 (70.710678)\n\
             Context Switches 20.000000 (14.142136)\n\
             Sleeps 40.000000 (28.284271)"
        );
        let single = LoadColumns::of(Load::Single, 1, &runs[..1]);
        let loads = vec![half, single];
        let text = Columns { loads }.to_string();
        assert!(
            text.contains(
                "\n\nAverage Single threaded Run (std deviation):\nElapsed Time 4.000000\n"
            ),
            "{text}"
        );
    }
}
