//! The lines that `ebizzy` prints for a run.

use crate::outcome::{Outcome, seconds};
use core::fmt;

/// The original's four lines. It cuts records to whole ones and times to hundredths; here all are
/// true decimals.
#[derive(Clone, PartialEq, Debug)]
pub struct Columns {
    /// Records of all threads per second, where any time passed.
    pub records_per_s: Option<f64>,
    /// Wall time, seconds.
    pub real_s: f64,
    /// User time, seconds.
    pub user_s: f64,
    /// System time, seconds.
    pub sys_s: f64,
}

impl Columns {
    /// The lines of a run that did `records` records in the times of `outcome`.
    #[must_use]
    pub fn new(records: u64, outcome: &Outcome) -> Self {
        Self {
            records_per_s: crate::outcome::per_second(records, outcome.wall_ns),
            real_s: seconds(outcome.wall_ns),
            user_s: seconds(outcome.user_ns),
            sys_s: seconds(outcome.system_ns),
        }
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.records_per_s {
            Some(rate) => writeln!(f, "{rate:.2} records/s")?,
            None => writeln!(f, "- records/s")?,
        }
        writeln!(f, "real {:>9.6} s", self.real_s)?;
        writeln!(f, "user {:>9.6} s", self.user_s)?;
        write!(f, "sys  {:>9.6} s", self.sys_s)
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;
    use crate::outcome::Outcome;

    #[test]
    fn rates_and_times_are_true_decimals() {
        let outcome = Outcome {
            wall_ns: 10_000_250_000,
            user_ns: 2_500_000_000,
            system_ns: 71_000_000,
            ..Outcome::default()
        };
        let lines = Columns::new(458_036, &outcome).to_string();
        assert_eq!(
            lines,
            "45802.45 records/s\nreal 10.000250 s\nuser  2.500000 s\nsys   0.071000 s"
        );
        let nothing = Columns::new(1, &Outcome::default()).to_string();
        assert!(nothing.starts_with("- records/s\n"), "{nothing}");
    }
}
