//! The line that `pft` prints for a run.

use crate::outcome::{Outcome, seconds};
use core::fmt;

/// The title of the columns, as the program of 2004 prints it with `-t`.
pub const HEADER: &str = " Gb Rep Threads   User      System     Wall flt/cpu/s fault/wsec";

/// A row under [`HEADER`].
///
/// The original's `Wall` field puts two digits of hundredths behind a point and pads them to three:
/// its `370.082s` means 370.82 s, as the rate beside it shows. All fields here are true decimals.
#[derive(Clone, PartialEq, Debug)]
pub struct Columns {
    /// GiB touched per repetition.
    pub gb: f64,
    /// Repetitions.
    pub rep: u32,
    /// Threads.
    pub threads: u32,
    /// User time, seconds.
    pub user_s: f64,
    /// System time, seconds.
    pub system_s: f64,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// Calculated faults per second of user and system time, where any was used.
    pub faults_per_cpu_s: Option<f64>,
    /// Calculated faults per second of wall time, where any passed.
    pub faults_per_wall_s: Option<f64>,
}

impl Columns {
    /// The row of a run that touched `bytes` in each of `rep` repetitions; the times and the
    /// calculated faults are those of `outcome`.
    #[must_use]
    pub fn new(bytes: u64, rep: u32, threads: u32, outcome: &Outcome) -> Self {
        Self {
            gb: bytes as f64 / (1_u64 << 30) as f64,
            rep,
            threads,
            user_s: seconds(outcome.user_ns),
            system_s: seconds(outcome.system_ns),
            wall_s: seconds(outcome.wall_ns),
            faults_per_cpu_s: outcome.faults_per_cpu_second(),
            faults_per_wall_s: outcome.faults_per_second(),
        }
    }
}

/// The row; a rate that has no value is a dash, and what is wider than its column moves the rest.
impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gb.fract() == 0.0 {
            write!(f, "{:>3}", self.gb)?;
        } else {
            write!(f, "{:>3.3}", self.gb)?;
        }
        write!(f, " {:>3} {:>4}", self.rep, self.threads)?;
        write!(
            f,
            " {:>8.3}s {:>10.3}s {:>7.3}s",
            self.user_s, self.system_s, self.wall_s
        )?;
        match self.faults_per_cpu_s {
            Some(rate) => write!(f, " {rate:>9.3}")?,
            None => write!(f, " {:>9}", "-")?,
        }
        match self.faults_per_wall_s {
            Some(rate) => write!(f, " {rate:>10.3}"),
            None => write!(f, " {:>10}", "-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Columns, HEADER};
    use crate::outcome::Outcome;

    #[test]
    fn rows_end_where_the_title_does_with_true_decimals() {
        // The first row of the posting: 32 GiB of 16 KiB pages, ten times, one thread.
        let outcome = Outcome {
            pages: 20_971_520,
            wall_ns: 370_826_500_000,
            user_ns: 3_966_000_000,
            system_ns: 366_840_000_000,
            ..Outcome::default()
        };
        let columns = Columns::new(32 << 30, 10, 1, &outcome);
        let rate = columns.faults_per_wall_s.unwrap();
        assert!((rate - 56_553.456).abs() < 0.1, "{rate}");
        let rate = columns.faults_per_cpu_s.unwrap();
        assert!((rate - 56_556.456).abs() < 0.5, "{rate}");
        let row = columns.to_string();
        assert_eq!(row.len(), HEADER.len(), "{HEADER}\n{row}");
        assert!(
            row.starts_with(" 32  10    1    3.966s    366.840s 370.82"),
            "{row}"
        );
    }

    #[test]
    fn a_part_of_a_gib_and_a_missing_rate_are_shown_as_such() {
        let row = Columns::new(256 << 20, 1, 2, &Outcome::default()).to_string();
        assert!(row.starts_with("0.250   1    2 "), "{row}");
        assert!(row.ends_with("         -          -"), "{row}");
    }
}
