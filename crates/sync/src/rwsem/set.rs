//! A semaphore as one of a set that is taken as a whole, under a lock outside of it.
//!
//! # Problem
//! A call that needs every part of something that is guarded in parts takes as many locks as there
//! are parts. No list of held locks is that long, and no guard has a place to be kept in.
//!
//! # Idea
//! Whoever takes several holds an outer lock meanwhile, of a class of its own, which stands for
//! them all in the list of held locks. Who takes just one of the set does not take the outer one.
//!
//! # Why it is correct
//! Waiters for several come one after the other, by the outer lock, or read together; a holder of
//! one waits for no other of the set. So a cycle of waiters has no second edge. The order within
//! the set does not matter.
//!
//! # Cost
//! That of the semaphore, without the list.

use super::{READER, RwSem, TaskId, WAITERS, WRITER, me};
use crate::lockdep::Class;
use crate::machine::Machine;
use crate::prim::Ordering;

impl<C: Class, M: Machine> RwSem<C, M> {
    /// Takes it for writing, as one of a set; sleeps while it is held.
    ///
    /// # Context
    /// Holds the lock outside of the set for writing.
    pub fn write_in_set(&self) {
        // ORDERING: Acquire; pairs with [rwsem-release].
        let free = self
            .count
            .cas(0, WRITER, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            self.write_contended();
        }
        self.name_owner(me::<M>().task.get());
    }

    /// Takes it for reading, as one of a set; sleeps while a writer has it or waits for it.
    ///
    /// # Context
    /// Holds the lock outside of the set.
    pub fn read_in_set(&self) {
        self.add_reader();
    }

    /// Releases it.
    ///
    /// # Safety
    /// 1. The calling context has it by [`Self::write_in_set`], and does not use that again.
    pub unsafe fn end_write_in_set(&self) {
        self.name_owner(TaskId(0));
        // ORDERING: Release; pairs with [rwsem-release].
        let old = self.count.sub(WRITER, Ordering::Release);
        if old & WAITERS != 0 {
            self.release_slow();
        }
    }

    /// Releases it.
    ///
    /// # Safety
    /// 1. The calling context has it by [`Self::read_in_set`], and does not use that again.
    pub unsafe fn end_read_in_set(&self) {
        self.sub_reader();
    }

    #[inline(always)]
    pub(super) fn add_reader(&self) {
        // ORDERING: Acquire; pairs with [rwsem-release].
        let old = self.count.add(READER, Ordering::Acquire);
        if old & (WRITER | WAITERS | super::HANDOFF) != 0 {
            self.read_slow(old);
        }
    }

    #[inline(always)]
    pub(super) fn sub_reader(&self) {
        // ORDERING: Release; pairs with [rwsem-release].
        let old = self.count.sub(READER, Ordering::Release);
        if old & WAITERS != 0 && old & super::READERS == READER {
            self.release_slow();
        }
    }
}
