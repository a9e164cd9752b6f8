//! Analysis of virtual time: where it went, and the limiting cache line.
//!
//! # Problem
//! A curve that flattens says that something is shared, not what. The simulator decides each
//! transfer, wait and cost itself, so it can say for every picosecond of every task what it was
//! spent on.
//!
//! # Idea
//! Each task has a mark: until when its time is accounted. Whoever moves a clock says what the time
//! since the mark was spent on, a [`Cause`], and moves the mark; so that nothing is counted twice,
//! and the causes of a task sum up to its life. Time that belongs to a line is also kept with that
//! line, by word and by what the task was doing ([`minflt_sync::Phase`]).
//!
//! # Protocol
//! ```text
//! access    time in the line's queue, time of its move; both to the word touched
//! spin      from the look in vain until the task goes on; to the word waited for
//! sleep     from the sleep until the task runs again; to the lock named by `Phase::Sleep`
//! the rest  user code, fixed costs by kind, interrupts, waiting for the CPU
//! ```
//! Lines are accounted while a task is within its measured window, where the run has windows;
//! totals for before, within and after. A place gets its name when it is first charged, while what
//! lies there is still alive.
//!
//! **What limits once it is gone**: a run can be repeated with one line *free*: from the moment it
//! is known by its name on, an access to it costs a hit and never queues.
//!
//! # Why it is correct
//! Nothing here is read by the scheduler or the cost model, but for a line that is to be free. A
//! test compares runs with and without.
//!
//! # Cost
//! Off: a branch an access. On: an indexed load an access, and a record for each line touched.

mod disjoint;
mod ledger;
mod places;
mod record;
mod report;
mod samples;
mod totals;

pub use disjoint::{Disjoint, Ranges, disjoint};
pub(crate) use ledger::{Access, Ledger, Stage, Who};
pub use report::{Limit, LineRow, LockRow, SharedRow, Why};
pub use samples::{Sample, Samples};
pub use totals::{Activity, Cause, PhaseRow};

use core::fmt;

/// The name of a place in the machine's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name {
    /// The kind of object.
    pub object: &'static str,
    /// Its field; empty where the object is an array.
    pub field: &'static str,
    /// Which object of its kind.
    pub number: u64,
    /// The class of the lock whose word lies here.
    pub lock: Option<&'static str>,
}

impl Name {
    /// A place that nobody names.
    pub(crate) const UNKNOWN: Self = Self {
        object: "unnamed",
        field: "",
        number: 0,
        lock: None,
    };

    /// Without the number: the name of all places of its kind.
    #[must_use]
    pub fn kind(&self) -> String {
        if self.field.is_empty() {
            self.object.to_owned()
        } else {
            format!("{}.{}", self.object, self.field)
        }
    }
}

/// What is to be accounted.
#[derive(Clone, Copy)]
pub struct WhyOptions<'a> {
    /// Names a place, given as its offset in the machine's memory.
    pub names: &'a dyn Fn(u64) -> Name,
    /// Whether lines are accounted within windows only ([`crate::Sim::window`]).
    pub windows: Windows,
    /// The line that is to be free, by the name of any word in it ([`Name::kind`]).
    pub free: Option<&'a str>,
    /// Samples to keep at most; 0 for none.
    pub samples: usize,
}

/// Whether a run has measured windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Windows {
    /// All of the run is of interest.
    None,
    /// Tasks open and close theirs.
    Opened,
}

/// What becomes of a task's measured window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// What counts begins.
    Opens,
    /// It ends.
    Closes,
}

impl fmt::Debug for WhyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhyOptions")
            .field("windows", &self.windows)
            .field("free", &self.free)
            .field("samples", &self.samples)
            .finish_non_exhaustive()
    }
}
