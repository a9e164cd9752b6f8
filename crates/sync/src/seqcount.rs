//! The sequence count: readers detect a concurrent writer instead of excluding it.
//!
//! # Problem
//! A speculative fault wants to use a VMA's fields without writing a shared line, and to know
//! afterwards whether a writer was changing them.
//!
//! # Idea
//! A counter that is odd while a writer is inside. A reader samples it before and compares after;
//! any difference means "what you read may be torn or old".
//!
//! # Protocol
//! Writer (already excluded from other writers by its lock): counter + 1, fence, changes,
//! counter + 1 with release. Reader: load with acquire, refuse if odd; reads; fence, load again.
//!
//! ```text
//! writer            reader
//! seq = 1
//! fence
//! field = new       s = seq (0 or 1)      1: refused
//! seq = 2 (release) f = field
//!                   fence
//!                   seq == s ?            new field seen, so seq 1 or 2 is seen: refused
//! ```
//!
//! # Why it is correct
//! A reader that saw a field of the section sees, after its fence, the increment that came before
//! the writer's fence. The writer's first increment needs the fence *after* it: a release on the
//! increment itself orders only what came before. The model test shows the torn read without it.
//! Readers never wait for an even value: they fall back.
//!
//! # Cost
//! Reader: two loads of a line that only writers change. Writer: two stores and a fence.

use crate::atomic::Atomic;
use crate::machine::Machine;
use crate::prim::Ordering;
use core::fmt;

/// A sequence count. Writers must exclude each other by a lock of their own.
pub struct SeqCount<M> {
    word: Atomic<u64, M>,
}

/// A sample of an even count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seq(u64);

impl<M: Machine> SeqCount<M> {
    /// A count with no writer inside.
    pub fn new() -> Self {
        Self {
            word: Atomic::new(0),
        }
    }

    /// Starts reading; `None` while a writer is inside.
    #[inline]
    pub fn begin(&self) -> Option<Seq> {
        // ORDERING: Acquire; pairs with [seq-write-end].
        let seq = self.word.load(Ordering::Acquire);
        (seq & 1 == 0).then_some(Seq(seq))
    }

    /// Whether a writer has been inside since `since` was sampled.
    #[inline]
    pub fn changed(&self, since: Seq) -> bool {
        // ORDERING: fence Acquire; pairs with [seq-write-begin].
        M::fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) != since.0
    }

    /// Opens a write section. Sections of one count do not nest.
    #[inline]
    pub fn write_begin(&self) {
        let seq = self.word.load(Ordering::Relaxed);
        self.word.store(seq.wrapping_add(1), Ordering::Relaxed);
        // ORDERING: fence Release; pairs with [seq-write-begin].
        M::fence(Ordering::Release);
    }

    /// Closes the write section.
    #[inline]
    pub fn write_end(&self) {
        let seq = self.word.load(Ordering::Relaxed);
        // ORDERING: Release; pairs with [seq-write-end].
        self.word.store(seq.wrapping_add(1), Ordering::Release);
    }

    /// Whether a write section is open, without the access hook: for oracles.
    pub fn is_odd(&self) -> bool {
        self.word.peek() & 1 == 1
    }
}

impl<M: Machine> Default for SeqCount<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> fmt::Debug for SeqCount<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeqCount({})", self.word.peek())
    }
}
