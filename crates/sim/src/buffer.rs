//! Store buffers (TSO): stores become visible later than subsequent loads.
//!
//! # Problem
//! On every processor that this library runs on, a store waits in its CPU's buffer while the loads
//! after it are already answered. Code that stores, looks, and needs a fence in between works in
//! every interleaving without one. An explorer whose stores take effect at once cannot find it.
//!
//! # Idea
//! Total store order, x86-64's memory model, is interleavings plus one first-in-first-out buffer
//! for each CPU. When the oldest store of which buffer reaches memory is one more choice of the
//! scheduler.
//!
//! # Protocol
//! ```text
//! store            held back if the chooser says so, or if the buffer holds something already
//! load             the CPU's own youngest held store of that word; else memory
//! before a step    the oldest store of any CPU may reach memory: a choice
//! read-modify-write, SeqCst store, SeqCst fence, wake token given or asked for, sleep, interrupt
//!   sent, begin and end of a handler, change of task, a store in user mode, a ninth store:
//!                  what the CPU holds reaches memory first, in order
//! nobody can run   all that is held reaches memory, before it is called a deadlock
//! ```
//! ```text
//! CPU 0                        CPU 1                         memory
//! x = 1   held                                               x 0, y 0
//! y?      0, from memory
//!                              y = 1                         x 0, y 1
//!                              x?      0: both see neither
//! x drains                                                   x 1, y 1
//! ```
//! A compare-and-exchange that fails is one all the same: x86's locks the bus. A spinner looks at
//! memory; what it stored before drains as it begins to spin, and each store that reaches memory
//! wakes those who spin on its line.
//!
//! # Why it is correct
//! Sewell, Sarkar, Owens, Zappa Nardelli, Myreen, "x86-TSO", CACM 2010, give this machine, and show
//! that it allows what x86 does. The litmus tests in `tests/buffer.rs` compare ours with it.
//! Nothing is found that x86-64 cannot do:
//! - Plain data passes the access hook without its value, so it is written at once, before what its
//!   CPU holds. Nobody can tell: whoever may look at plain data has taken a lock that the writer
//!   let go, or found it by a word that the writer stored, after both; and that store is held
//!   behind the earlier ones. A store to a word of an object that is freed,
//!   written as a whole or copied byte by byte reaches memory before that.
//! - Contents of user pages are stored at once as well, so the buffer drains before.
//! - What oracles keep is no part of the machine. They see the words of a CPU as that CPU does.
//!
//! What it cannot find: two accesses to plain data or to user pages that are out of order (races of
//! those are bugs without any buffer), and what only weaker machines do: loads out of order, stores
//! out of order. Those are `sync`'s model tests', one primitive at a time.
//!
//! # Cost
//! A flag an access while off. While on, a scan of at most [`ENTRIES`] words a load of a CPU that
//! holds something, and more steps.

use crate::sched::{Core, Order, Peek};
use crate::trace::{Event, Place};
use std::collections::VecDeque;

/// Stores that a CPU's buffer has room for. Real ones have some fifty; few are enough, since what
/// matters is which loads overtake the oldest.
pub(crate) const ENTRIES: usize = 8;

/// A store that is held back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) at: Peek,
    pub(crate) value: u64,
    /// Of the word in the machine's memory.
    pub(crate) offset: usize,
    pub(crate) place: Place,
    /// Who stored it.
    pub(crate) task: u32,
}

/// What is held back by all CPUs of a run.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// By CPU; grows as CPUs hold something.
    cpus: Vec<VecDeque<Held>>,
    /// CPUs that hold something.
    holding: u64,
}

impl Buffers {
    /// Whether `cpu` holds something.
    fn holds(&self, cpu: u32) -> bool {
        self.holding >> cpu & 1 == 1
    }

    fn push(&mut self, cpu: u32, held: Held) {
        let at = cpu as usize;
        if self.cpus.len() <= at {
            self.cpus.resize_with(at + 1, VecDeque::new);
        }
        self.cpus[at].push_back(held);
        self.holding |= 1 << cpu;
    }

    fn pop(&mut self, cpu: u32) -> Option<Held> {
        let buffer = self.cpus.get_mut(cpu as usize)?;
        let oldest = buffer.pop_front();
        if buffer.is_empty() {
            self.holding &= !(1 << cpu);
        }
        oldest
    }

    fn len(&self, cpu: u32) -> usize {
        self.cpus.get(cpu as usize).map_or(0, VecDeque::len)
    }

    /// The youngest store of `cpu` that touches the bytes of the word `at`.
    fn youngest(&mut self, cpu: u32, at: Peek) -> Option<&mut Held> {
        let buffer = self.cpus.get_mut(cpu as usize)?;
        buffer.iter_mut().rev().find(|held| held.at.overlaps(at))
    }
}

impl Core {
    /// A store by `held.task`: whether it is held back. If not, it may be made.
    pub(crate) fn hold(&mut self, held: Held) -> bool {
        let Order::Explored { chooser, .. } = &mut self.order else {
            return false;
        };
        let cpu = self.tasks[held.task as usize].cpu;
        if !self.buffers.holds(cpu) && !chooser.holds() {
            return false;
        }
        if self.buffers.len(cpu) == ENTRIES {
            self.drain_one(cpu);
        }
        if let Some(step) = self.trace.as_mut().and_then(|steps| steps.last_mut()) {
            step.event = Event::Holds {
                place: held.place,
                len: held.at.len() as u32,
                value: held.value,
            };
        }
        self.buffers.push(cpu, held);
        true
    }

    /// The word at `at` as `cpu` sees it, where that is not what memory holds.
    pub(crate) fn held(&mut self, cpu: u32, at: Peek) -> Option<u64> {
        if !self.buffers.holds(cpu) {
            return None;
        }
        let youngest = self.buffers.youngest(cpu, at)?;
        if youngest.at == at {
            return Some(youngest.value);
        }
        // Half of a word, or two halves: hardware waits, too.
        self.drain(cpu);
        None
    }

    /// What `cpu` has held back at `at` becomes `value`; whether it holds that word.
    pub(crate) fn poke(&mut self, cpu: u32, at: Peek, value: u64) -> bool {
        let youngest = self.buffers.youngest(cpu, at);
        match youngest.filter(|held| held.at == at) {
            Some(held) => {
                held.value = value;
                true
            }
            None => false,
        }
    }

    /// Everything that `cpu` holds reaches memory.
    pub(crate) fn drain(&mut self, cpu: u32) {
        while self.buffers.holds(cpu) {
            self.drain_one(cpu);
        }
    }

    /// Everything that `cpu` holds reaches memory, if some of it goes to these bytes.
    pub(crate) fn drain_within(&mut self, cpu: u32, at: usize, len: usize) {
        let within = |held: &Held| {
            let start = held.at.start();
            start < at + len && at < start + held.at.len()
        };
        let mut held = self.buffers.cpus.get(cpu as usize).into_iter().flatten();
        if held.any(within) {
            self.drain(cpu);
        }
    }

    /// Nobody can run: everything that is held reaches memory, unless the run is over. Whether
    /// there was anything.
    pub(crate) fn drain_at_rest(&mut self) -> bool {
        let any = self.buffers.holding != 0 && self.outcome.is_none();
        while any && self.buffers.holding != 0 {
            self.drain_one(self.buffers.holding.trailing_zeros());
        }
        any
    }

    /// What the chooser wants drained before the next step.
    #[inline]
    pub(crate) fn drain_some(&mut self) {
        while self.buffers.holding != 0 {
            let Order::Explored { chooser, .. } = &mut self.order else {
                return;
            };
            match chooser.drains(self.buffers.holding) {
                Some(cpu) => self.drain_one(cpu),
                None => return,
            }
        }
    }

    fn drain_one(&mut self, cpu: u32) {
        let Some(held) = self.buffers.pop(cpu) else {
            return;
        };
        let old = held.at.read();
        held.at.write(held.value);
        self.record(held.task, || Event::Drains {
            place: held.place,
            len: held.at.len() as u32,
            old,
            new: held.value,
        });
        if old != held.value {
            self.changed(held.task, held.offset >> self.model.line_shift, true);
        }
    }
}
