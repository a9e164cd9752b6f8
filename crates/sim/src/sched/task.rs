//! A task and a CPU, as the scheduler sees them.

use crate::lines::LineId;
use crate::model::Ps;
use minflt_addr::Pfn;
use minflt_sync::Kind;

/// What a task is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Queued,
    Running,
    Spinning,
    /// It spins, its line has changed, and it is about to look again.
    Looking,
    /// It waits for a line that is moving, to touch it.
    Asking,
    /// It has the line it asked for, and goes on.
    Granted,
    Parked,
    Done,
}

/// What a spinning task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spin {
    pub(crate) line: LineId,
    pub(crate) offset: usize,
    pub(crate) mask: u64,
    pub(crate) eq: u64,
    pub(crate) irqs_on: bool,
    /// Reads the word, without the access hook.
    pub(crate) peek: Peek,
    /// What it stores there when the wait is over, if nobody else was faster and if the scheduler
    /// is to do that.
    pub(crate) takes: Option<u64>,
    /// The node of the line's memory.
    pub(crate) node: Option<u32>,
}

/// How far a task has come that the scheduler carries on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    pub(super) spin: Spin,
    /// What it stores in the lock.
    pub(super) taken: u64,
    /// Its next access: a look, or the exchange.
    pub(super) kind: Kind,
    pub(super) passed: Passed,
}

/// What lies behind a task that the scheduler carries on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Passed {
    /// It spun.
    Wait,
    /// An access.
    Access,
    /// Others' turns; now it is its own.
    Switch,
    /// It has the line that it asked for.
    Ask,
}

/// What the scheduler did for a task that takes a lock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Handed {
    /// The task looks, as after any wait.
    #[default]
    Nothing,
    /// It looked for it: the lock was free, and the exchange comes next.
    Looked,
    /// The task has the lock.
    Taken,
}

/// How to look at a word of one width without the access hook.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Peek {
    U32(*const u32),
    U64(*const u64),
}

impl Peek {
    /// The word.
    #[inline]
    pub(crate) fn read(self) -> u64 {
        match self {
            // SAFETY: the word lies in the memory of the machine that runs, and is aligned; one
            // simulated context runs at a time, on this thread, so nobody writes it meanwhile.
            Self::U32(at) => u64::from(unsafe { at.read_volatile() }),
            // SAFETY: as above.
            Self::U64(at) => unsafe { at.read_volatile() },
        }
    }

    /// Writes the word.
    pub(crate) fn write(self, value: u64) {
        match self {
            // SAFETY: as in `read`, and nobody reads it meanwhile; it is part of an atomic word, so
            // it may be written through a shared pointer.
            Self::U32(at) => unsafe { at.cast_mut().write_volatile(value as u32) },
            // SAFETY: as above.
            Self::U64(at) => unsafe { at.cast_mut().write_volatile(value) },
        }
    }

    /// Its bytes.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::U32(_) => 4,
            Self::U64(_) => 8,
        }
    }

    /// Its address.
    pub(crate) fn start(self) -> usize {
        match self {
            Self::U32(at) => at as usize,
            Self::U64(at) => at as usize,
        }
    }

    /// Whether the two have a byte in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.start(), other.start());
        a < b + other.len() && b < a + self.len()
    }
}

impl Spin {
    /// Whether the wait is over.
    pub(super) fn is_over(&self) -> bool {
        self.watch().is_over()
    }

    /// What is looked at.
    pub(super) fn watch(&self) -> Watch {
        Watch {
            peek: self.peek,
            mask: self.mask,
            eq: self.eq,
            irqs_on: self.irqs_on,
        }
    }
}

/// What a spinning task looks at: as much of a [`Spin`] as a look needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Watch {
    pub(super) peek: Peek,
    pub(super) mask: u64,
    pub(super) eq: u64,
    pub(super) irqs_on: bool,
}

impl Watch {
    /// Whether the wait is over.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.peek.read() & self.mask == self.eq
    }
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) cpu: u32,
    pub(crate) state: State,
    pub(crate) spin: Option<Spin>,
    pub(super) carried: Option<Carried>,
    pub(super) handed: Handed,
    /// The line it asks for, to touch it.
    pub(super) asks: Option<LineId>,
    pub(super) token: bool,
    /// From when on it can run, once woken.
    pub(super) ready_at: Ps,
    /// Until when its time is accounted.
    pub(super) mark: Ps,
    pub(super) kernel: u32,
    pub(crate) user: Ps,
    pub(crate) system: Ps,
    /// The frame of its last access in user mode.
    pub(crate) touched: Option<Pfn>,
}

/// In one line of the host's memory: hundreds are looked at with each change of a lock.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Cpu {
    pub(super) clock: Ps,
    /// Its key in the heap, while `queued`.
    pub(super) due: Ps,
    /// When a pending interrupt arrives.
    pub(super) interrupt: Option<Ps>,
    pub(super) slice_end: Ps,
    pub(super) current: Option<u32>,
    pub(super) last: u32,
    pub(super) queued: bool,
}

const _: () = assert!(size_of::<Cpu>() == 64);

impl Task {
    /// A task of `cpu` that has done nothing by `now`.
    pub(super) fn new(cpu: u32, state: State, now: Ps) -> Self {
        Self {
            cpu,
            state,
            spin: None,
            carried: None,
            handed: Handed::Nothing,
            asks: None,
            token: false,
            ready_at: now,
            mark: now,
            kernel: 0,
            user: 0,
            system: 0,
            touched: None,
        }
    }
}

impl Cpu {
    /// A CPU that runs nothing.
    pub(super) fn idle(now: Ps) -> Self {
        Self {
            clock: now,
            due: 0,
            interrupt: None,
            slice_end: now,
            current: None,
            last: u32::MAX,
            queued: false,
        }
    }
}
