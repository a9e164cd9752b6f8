//! The locks of the published curves, over the machine's seam, for the contest only.
//!
//! Test-and-set, test-and-test-and-set and ticket locks are folklore; MCS is Mellor-Crummey and
//! Scott (TOCS 1991), CLH is Craig (1993), and Magnusson, Landin and Hagersten (1994). As in the
//! programs measured, a ticket lock's two counters share a line, and a waiter of a queue spins on a
//! line of its own. The readers' lock is glibc's since 2.25 (`pthread_rwlock_common.c`) as readers
//! use it while there are no writers.
//!
//! They run in virtual time only, where accesses happen one at a time: no ordering says anything.
//! None of them waits for a thread that is not running, and none is used anywhere else.

use super::{Arena, M};
use core::cell::Cell;
use minflt_sync::{Atomic, Ordering};

pub(super) type Word = Atomic<u32, M>;

/// Exchanges until it finds the lock free.
pub(super) struct Tas<'a> {
    taken: &'a Word,
    pause_ns: u64,
}

impl<'a> Tas<'a> {
    pub(super) fn new(arena: &Arena<'a>, pause_ns: u64) -> Self {
        Self {
            taken: arena.place(Word::new(0)),
            pause_ns,
        }
    }

    pub(super) fn lock(&self) {
        while self.taken.swap(1, Ordering::Relaxed) != 0 {
            M::compute(self.pause_ns);
        }
    }

    pub(super) fn unlock(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }
}

/// Exchanges only when the lock looks free.
pub(super) struct Ttas<'a> {
    taken: &'a Word,
}

impl<'a> Ttas<'a> {
    pub(super) fn new(arena: &Arena<'a>) -> Self {
        Self {
            taken: arena.place(Word::new(0)),
        }
    }

    pub(super) fn lock(&self) {
        loop {
            self.taken.wait_until(u32::MAX, 0);
            if self.taken.swap(1, Ordering::Relaxed) == 0 {
                return;
            }
        }
    }

    pub(super) fn unlock(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }
}

/// Serves in the order of tickets.
pub(super) struct Ticket<'a> {
    counters: &'a (Word, Word),
}

impl<'a> Ticket<'a> {
    pub(super) fn new(arena: &Arena<'a>) -> Self {
        Self {
            counters: arena.place((Word::new(0), Word::new(0))),
        }
    }

    pub(super) fn lock(&self) -> u32 {
        let ticket = self.counters.0.add(1, Ordering::Relaxed);
        self.counters.1.wait_until(u32::MAX, ticket);
        ticket
    }

    pub(super) fn unlock(&self, ticket: u32) {
        self.counters
            .1
            .store(ticket.wrapping_add(1), Ordering::Relaxed);
    }
}

/// A waiter of [`Mcs`]: who comes after it, plus 1, and whether it must wait.
type McsNode = (Word, Word);

/// A queue in which each tells the next.
pub(super) struct Mcs<'a> {
    tail: &'a Word,
    nodes: Vec<&'a McsNode>,
}

impl<'a> Mcs<'a> {
    pub(super) fn new(arena: &Arena<'a>, threads: u32) -> Self {
        let node = |_| arena.place((Word::new(0), Word::new(0)));
        Self {
            tail: arena.place(Word::new(0)),
            nodes: (0..threads).map(node).collect(),
        }
    }

    pub(super) fn lock(&self, me: u32) {
        let node = self.nodes[me as usize];
        node.0.store(0, Ordering::Relaxed);
        node.1.store(1, Ordering::Relaxed);
        let before = self.tail.swap(me + 1, Ordering::Relaxed);
        if before != 0 {
            self.nodes[before as usize - 1]
                .0
                .store(me + 1, Ordering::Relaxed);
            node.1.wait_until(u32::MAX, 0);
        }
    }

    pub(super) fn unlock(&self, me: u32) {
        let node = self.nodes[me as usize];
        let mut next = node.0.load(Ordering::Relaxed);
        if next == 0 {
            let last = self
                .tail
                .cas(me + 1, 0, Ordering::Relaxed, Ordering::Relaxed);
            if last.is_ok() {
                return;
            }
            // Somebody has joined and is about to say so: its name is not 0.
            while next == 0 {
                next = node.0.load(Ordering::Relaxed);
                M::compute(1);
            }
        }
        self.nodes[next as usize - 1].1.store(0, Ordering::Relaxed);
    }
}

/// A queue in which each watches the one before.
pub(super) struct Clh<'a> {
    tail: &'a Word,
    /// One more than threads.
    nodes: Vec<&'a Word>,
    /// By thread: its own node, and that of the one before it.
    own: Vec<Cell<(u32, u32)>>,
}

impl<'a> Clh<'a> {
    pub(super) fn new(arena: &Arena<'a>, threads: u32) -> Self {
        let node = |_| arena.place(Word::new(0));
        Self {
            tail: arena.place(Word::new(threads)),
            nodes: (0..=threads).map(node).collect(),
            own: (0..threads).map(|me| Cell::new((me, me))).collect(),
        }
    }

    pub(super) fn lock(&self, me: u32) {
        let (node, _) = self.own[me as usize].get();
        self.nodes[node as usize].store(1, Ordering::Relaxed);
        let before = self.tail.swap(node, Ordering::Relaxed);
        self.own[me as usize].set((node, before));
        self.nodes[before as usize].wait_until(u32::MAX, 0);
    }

    pub(super) fn unlock(&self, me: u32) {
        let (node, before) = self.own[me as usize].get();
        self.nodes[node as usize].store(0, Ordering::Relaxed);
        self.own[me as usize].set((before, before));
    }
}

/// Readers count themselves in by adding, and out by compare and exchange.
pub(super) struct Readers<'a> {
    count: &'a Word,
}

impl<'a> Readers<'a> {
    pub(super) fn new(arena: &Arena<'a>) -> Self {
        Self {
            count: arena.place(Word::new(0)),
        }
    }

    pub(super) fn lock(&self) {
        self.count.add(1, Ordering::Relaxed);
    }

    pub(super) fn unlock(&self) {
        let mut seen = self.count.load(Ordering::Relaxed);
        while let Err(now) = self
            .count
            .cas(seen, seen - 1, Ordering::Relaxed, Ordering::Relaxed)
        {
            seen = now;
        }
    }
}
