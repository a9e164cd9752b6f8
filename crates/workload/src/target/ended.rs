//! How a process ended: what it did, or why it could not.

use core::fmt;
use minflt_addr::VirtAddr;
use std::collections::BTreeMap;

/// Why a body stopped early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// A call failed with this Linux error number.
    Errno(i32),
    /// An access raised this signal (SIGSEGV 11, SIGBUS 7).
    Signal(i32),
    /// A load returned something else than the last store: `(address, expected, found)`.
    Contents(VirtAddr, u64, u64),
}

/// What a process, or a group of them, did.
#[derive(Clone, Debug, Default)]
pub struct ProcessReport {
    /// From before its first worker starts until all is torn down, nanoseconds.
    pub wall_ns: u64,
    /// User time of all workers and their children, start and teardown included, nanoseconds.
    pub user_ns: u64,
    /// System time of all workers and their children, start and teardown included, nanoseconds.
    pub system_ns: u64,
    /// Page faults the target counted.
    pub faults: u64,
    /// How often a worker or a child gave its CPU up to wait (voluntary context switches).
    pub sleeps: u64,
    /// How often one had to make way for another (involuntary context switches).
    pub preemptions: u64,
    /// One report a worker.
    pub workers: Vec<WorkerReport>,
    /// Events by name, as the target counts them.
    pub events: BTreeMap<String, u64>,
    /// How often each oracle looked.
    pub checks: BTreeMap<String, u64>,
}

/// What one worker did within its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerReport {
    /// When the window opened, by [`now_ns`](super::Worker::now_ns).
    pub start_ns: u64,
    /// When the window closed.
    pub end_ns: u64,
    /// User time within the window, nanoseconds.
    pub user_ns: u64,
    /// System time within the window, nanoseconds.
    pub system_ns: u64,
    /// Page faults within the window.
    pub faults: u64,
    /// Operations the body reported.
    pub ops: u64,
}

/// Why a process could not run to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetError {
    /// The plan asks for what this target cannot do: what, and what would be right.
    Unsupported(String),
    /// A thread stopped early.
    Stopped {
        /// Which thread.
        worker: u32,
        /// Why.
        why: Stop,
    },
    /// An oracle spoke: its words, and how to replay the run.
    Violation(String),
    /// The machine it runs on failed us (no memory, no thread): its words.
    System(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => write!(f, "a system call failed with errno {errno}"),
            Self::Signal(signal) => write!(f, "an access raised signal {signal}"),
            Self::Contents(at, expected, found) => {
                write!(
                    f,
                    "memory at {at} holds {found:#x}, expected the last store, {expected:#x}"
                )
            }
        }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => write!(f, "{what}"),
            Self::Stopped { worker, why } => write!(f, "thread {worker}: {why}"),
            Self::Violation(what) => write!(f, "violation: {what}"),
            Self::System(what) => write!(f, "{what}"),
        }
    }
}

impl core::error::Error for TargetError {}
