//! The line that the file workloads print for a run; our own.

use crate::outcome::{Outcome, seconds};
use core::fmt;

/// The title of the columns.
pub const HEADER: &str =
    "      GB Threads      Pages     Minor    Major      Around    Seconds   ns/page";

/// A row under [`HEADER`].
#[derive(Clone, PartialEq, Debug)]
pub struct Columns {
    /// GiB of the file.
    pub gb: f64,
    /// Threads.
    pub threads: u32,
    /// Pages loaded from, by all threads.
    pub pages: u64,
    /// Page faults in the measured part but for the major ones.
    pub minor_faults: u64,
    /// Page faults that had to wait for a page to be read, in all of the process.
    pub major_faults: u64,
    /// Pages that faults mapped beside their own, where there were any and the target
    /// counts them.
    pub around: Option<u64>,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// Wall time over the pages of one thread, nanoseconds.
    pub ns_per_page: Option<f64>,
}

impl Columns {
    /// The row of a run over a file of `bytes` bytes.
    #[must_use]
    pub fn new(bytes: u64, threads: u32, outcome: &Outcome) -> Self {
        let event = |name: &str| outcome.events.get(name).copied();
        let major_faults = event("major-faults").unwrap_or(0);
        let pages = outcome.pages / u64::from(threads.max(1));
        let ns = |pages: u64| outcome.wall_ns as f64 / pages as f64;
        Self {
            gb: bytes as f64 / (1_u64 << 30) as f64,
            threads,
            pages: outcome.pages,
            minor_faults: outcome.faults.saturating_sub(major_faults),
            major_faults,
            around: event("fault-around-mapped"),
            wall_s: seconds(outcome.wall_ns),
            ns_per_page: (pages > 0).then(|| ns(pages)),
        }
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let around = self
            .around
            .map_or("-".to_owned(), |count| count.to_string());
        let ns = self
            .ns_per_page
            .map_or("-".to_owned(), |ns| format!("{ns:.1}"));
        write!(
            f,
            "{:>8.3} {:>7} {:>10} {:>9} {:>8} {around:>11} {:>9.6}s {ns:>9}",
            self.gb, self.threads, self.pages, self.minor_faults, self.major_faults, self.wall_s,
        )
    }
}
