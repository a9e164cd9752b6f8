//! A task and a CPU, as the scheduler sees them.

use crate::lines::LineId;
use crate::model::Ps;
use std::collections::VecDeque;

/// What a task is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Queued,
    Running,
    Spinning,
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
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) cpu: u32,
    pub(crate) state: State,
    pub(crate) spin: Option<Spin>,
    /// The next task, plus 1, that spins on the same line.
    pub(super) next_spinner: u32,
    pub(super) token: bool,
    /// From when on it can run, once woken.
    pub(super) ready_at: Ps,
    /// Until when its time is accounted.
    pub(super) mark: Ps,
    pub(super) kernel: u32,
    pub(crate) user: Ps,
    pub(crate) system: Ps,
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
