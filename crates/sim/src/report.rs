//! The result of a run.

use crate::schedule::Schedule;
use crate::trace::Step;
use crate::why::Why;
use core::fmt;

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every body returned.
    Ok,
    /// An oracle spoke.
    Violation(String),
    /// Deadlock: tasks wait, and no task can wake them.
    Deadlock(String),
    /// A body panicked.
    Panic(String),
    /// The run took more accesses than it was allowed.
    Endless(String),
}

impl Outcome {
    /// Whether every body returned.
    #[must_use]
    pub const fn is_ok(&self) -> bool {
        matches!(self, Self::Ok)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Violation(text) => write!(f, "violation: {text}"),
            Self::Deadlock(text) | Self::Endless(text) => f.write_str(text),
            Self::Panic(text) => write!(f, "panic: {text}"),
        }
    }
}

/// Where one task's time went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskTimes {
    /// In user mode, nanoseconds.
    pub user_ns: u64,
    /// In the kernel, nanoseconds.
    pub system_ns: u64,
}

/// What a run came to. Equal for equal tasks, machines and policies, on any host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunReport {
    /// How it ended.
    pub outcome: Outcome,
    /// From its start until the last body returned, nanoseconds of virtual time.
    pub end_ns: u64,
    /// One entry a task.
    pub tasks: Vec<TaskTimes>,
    /// How often a task gave up its CPU.
    pub context_switches: u64,
    /// How often one of these was because it slept; else it had to make way for another.
    pub sleeps: u64,
    /// Interrupts taken.
    pub interrupts: u64,
    /// Accesses to shared memory.
    pub events: u64,
    /// Scheduling points, in an explored run.
    pub steps: u64,
    /// Of all accesses: line, task and kind, in order.
    pub hash: u64,
    /// What was chosen, in an explored run; for [`crate::Policy::Replay`].
    pub schedule: Schedule,
    /// Every step, where [`crate::RunOptions::trace`] asked for it.
    pub timeline: Option<Vec<Step>>,
    /// Where time went, where [`crate::RunOptions::why`] asked for it.
    pub why: Option<Why>,
}
