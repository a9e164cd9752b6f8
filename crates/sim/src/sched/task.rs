//! A task and a CPU, as the scheduler sees them.

use crate::lines::LineId;
use crate::model::Ps;
use minflt_addr::Pfn;
use std::collections::VecDeque;

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
    /// Reads the word, without the door.
    pub(crate) peek: Peek,
}

/// How to look at a word of one width without the door.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) clock: Ps,
    /// Its key in the heap, while `queued`.
    pub(super) due: Ps,
    pub(super) queued: bool,
    pub(super) current: Option<u32>,
    pub(super) queue: VecDeque<u32>,
    /// When a pending interrupt arrives.
    pub(super) interrupt: Option<Ps>,
    pub(super) slice_end: Ps,
    pub(super) last: u32,
}
