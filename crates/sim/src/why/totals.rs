//! Sums by activity and cause.

use crate::model::Ps;
use core::fmt;
use minflt_sync::{Cost, Phase};

/// What time was spent on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Cause {
    /// User code, and user accesses that hit.
    User,
    /// Accesses to lines that the CPU had.
    Hit,
    /// In the queue of a line that others are getting.
    Queue,
    /// A line on its way to the CPU.
    Move,
    /// Spinning until a word changes.
    Spin,
    /// Asleep for a lock.
    Sleep,
    /// Asleep for something else: a barrier.
    Barrier,
    /// Ready, without a CPU; and context switches.
    Ready,
    /// Entering and leaving the kernel.
    Entry,
    /// Writing pages: clears and copies.
    Contents,
    /// Waiting for a node's memory that others write.
    Node,
    /// Cold misses and walks.
    Cold,
    /// Invalidating translations: this CPU's own, or all by a broadcast.
    Invalidate,
    /// Freeing pages.
    Free,
    /// Sending interrupts.
    Send,
    /// Taking interrupts: entry and exit.
    Interrupt,
    /// What no hook names.
    Other,
}

impl Cause {
    /// All, in order.
    pub const ALL: [Self; 17] = [
        Self::User,
        Self::Hit,
        Self::Queue,
        Self::Move,
        Self::Spin,
        Self::Sleep,
        Self::Barrier,
        Self::Ready,
        Self::Entry,
        Self::Contents,
        Self::Node,
        Self::Cold,
        Self::Invalidate,
        Self::Free,
        Self::Send,
        Self::Interrupt,
        Self::Other,
    ];

    /// In a few words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user code",
            Self::Hit => "hits",
            Self::Queue => "queueing for a line",
            Self::Move => "moving a line",
            Self::Spin => "spinning",
            Self::Sleep => "asleep for a lock",
            Self::Barrier => "asleep",
            Self::Ready => "waiting for the CPU",
            Self::Entry => "kernel entry",
            Self::Contents => "writing pages",
            Self::Node => "memory bandwidth",
            Self::Cold => "cold misses",
            Self::Invalidate => "own translations",
            Self::Free => "freeing pages",
            Self::Send => "sending interrupts",
            Self::Interrupt => "taking interrupts",
            Self::Other => "other",
        }
    }

    /// Whether it is time in which nothing is done: a wait for others.
    #[must_use]
    pub const fn is_wait(self) -> bool {
        matches!(
            self,
            Self::Queue | Self::Move | Self::Spin | Self::Sleep | Self::Node
        )
    }

    /// Whether the time belongs to a line.
    #[must_use]
    pub const fn is_of_lines(self) -> bool {
        matches!(self, Self::Queue | Self::Move | Self::Spin | Self::Sleep)
    }

    /// The cause that fixed work is.
    pub(crate) const fn of(cost: Cost) -> Self {
        match cost {
            Cost::Trap | Cost::Syscall => Self::Entry,
            Cost::Clear { .. } | Cost::Copy { .. } => Self::Contents,
            Cost::Cold | Cost::Fresh | Cost::Walk => Self::Cold,
            Cost::Invalidate { .. } => Self::Invalidate,
            Cost::Free => Self::Free,
        }
    }
}

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Activity {
    /// User code.
    User,
    /// A fault's entry and exit.
    Fault,
    /// A phase of a fault, by its name.
    FaultPhase(&'static str),
    /// A call, by its name.
    Call(&'static str),
    /// An interrupt.
    Interrupt,
}

impl Activity {
    /// The phase of a fault that a remark begins.
    pub(crate) const fn of(phase: Phase) -> Option<Self> {
        Some(Self::FaultPhase(match phase {
            Phase::Stabilise => "stabilise",
            Phase::Prepare => "prepare",
            Phase::Open => "open",
            Phase::Commit => "commit",
            Phase::Finish => "finish",
            Phase::Call(_) | Phase::Back | Phase::Sleep(_) => return None,
        }))
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("user"),
            Self::Fault => f.write_str("fault: trap"),
            Self::FaultPhase(phase) => write!(f, "fault: {phase}"),
            Self::Call(name) => f.write_str(name),
            Self::Interrupt => f.write_str("interrupt"),
        }
    }
}

/// Where the time of an activity went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PhaseRow {
    /// What the tasks did.
    pub activity: Activity,
    /// By cause, picoseconds; in the order of [`Cause::ALL`].
    pub by_cause: [u64; Cause::ALL.len()],
}

impl PhaseRow {
    pub(crate) const fn new(activity: Activity) -> Self {
        Self {
            activity,
            by_cause: [0; Cause::ALL.len()],
        }
    }

    /// All its time, picoseconds.
    #[must_use]
    pub fn time(&self) -> Ps {
        self.by_cause.iter().sum()
    }

    /// Time in which it waited, picoseconds.
    #[must_use]
    pub fn waited(&self) -> Ps {
        let causes = Cause::ALL.iter().filter(|cause| cause.is_wait());
        causes.map(|cause| self.by_cause[*cause as usize]).sum()
    }
}
