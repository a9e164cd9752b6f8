//! A semaphore as one of a set that is taken as a whole, under a lock outside of it.
//!
//! # Problem
//! A call that needs every part of something that is guarded in parts takes as many locks as there
//! are parts. No list of held locks is that long, and no guard has a place to be kept in.
//!
//! # Idea
//! A context that takes several holds an outer lock meanwhile, of a class of its own, which stands
//! for them all in the list of held locks. A context that takes just one of the set does not take
//! the outer one.
//!
//! # Protocol
//! Writers of several hold the outer lock for writing, readers of several at least for reading, and
//! these take the locks of the set in one order, the same for all.
//!
//! # Why it is correct
//! A holder of one waits for no other of the set, nor for the outer lock. Among those that take
//! several, a writer is alone. Readers of several can wait for one another through writers of one
//! that queue between them; but only for a reader that is further in the order, and the one that is
//! furthest waits for holders of one.
//!
//! # Cost
//! That of the semaphore, without the list.

use super::{HANDOFF, READER, READERS, RwSem, TaskId, WAITERS, WRITER, me};
use crate::lockdep::Class;
use crate::machine::Machine;
use crate::prim::Ordering;

impl<C: Class, M: Machine> RwSem<C, M> {
    /// Takes it for writing, as one of a set; sleeps while it is held.
    ///
    /// # Context
    /// Holds the lock outside of the set for writing.
    pub fn write_in_set(&self) {
        self.set_writer();
    }

    /// Takes it for reading, as one of a set; sleeps while a writer has it or waits for it.
    ///
    /// # Context
    /// Holds the lock outside of the set, and of the set those before this in its order.
    pub fn read_in_set(&self) {
        self.add_reader();
    }

    /// Releases it.
    ///
    /// # Safety
    /// 1. The calling context has it by [`Self::write_in_set`], and does not use that again.
    pub unsafe fn end_write_in_set(&self) {
        self.clear_writer();
    }

    /// Releases it.
    ///
    /// # Safety
    /// 1. The calling context has it by [`Self::read_in_set`], and does not use that again.
    pub unsafe fn end_read_in_set(&self) {
        self.sub_reader();
    }

    #[inline(always)]
    pub(super) fn set_writer(&self) {
        // ORDERING: Acquire; pairs with [rwsem-release].
        let free = self
            .count
            .cas(0, WRITER, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if !free {
            self.write_contended();
        }
        self.name_owner(me::<M>().task.get());
    }

    #[inline(always)]
    pub(super) fn clear_writer(&self) {
        self.name_owner(TaskId(0));
        // ORDERING: Release; pairs with [rwsem-release].
        let old = self.count.sub(WRITER, Ordering::Release);
        if old & WAITERS != 0 {
            self.release_slow();
        }
    }

    #[inline(always)]
    pub(super) fn add_reader(&self) {
        // ORDERING: Acquire; pairs with [rwsem-release].
        let old = self.count.add(READER, Ordering::Acquire);
        if old & (WRITER | WAITERS | HANDOFF) != 0 {
            self.read_slow(old);
        }
    }

    #[inline(always)]
    pub(super) fn sub_reader(&self) {
        // ORDERING: Release; pairs with [rwsem-release].
        let old = self.count.sub(READER, Ordering::Release);
        if old & WAITERS != 0 && old & READERS == READER {
            self.release_slow();
        }
    }
}
