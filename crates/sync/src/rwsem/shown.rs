//! Debug output of a semaphore and its guards, and the names of its words.

use super::{DowngradedGuard, ReadGuard, RwSem, WriteGuard};
use crate::lockdep::Class;
use crate::machine::Machine;
use core::fmt;

/// A part of the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RwSemPart {
    /// The word that counts readers.
    Count,
    /// Who writes.
    Owner,
    /// Spinning writers.
    Spinners,
    /// Sleeping waiters, and the lock of their queue.
    Queue,
}

impl<C: Class, M: Machine> RwSem<C, M> {
    /// The name of the part of a lock that lies at `offset`: for names.
    #[must_use]
    pub fn part_at(offset: usize) -> RwSemPart {
        let starts = [
            (core::mem::offset_of!(Self, count), RwSemPart::Count),
            (core::mem::offset_of!(Self, owner), RwSemPart::Owner),
            (core::mem::offset_of!(Self, spinners), RwSemPart::Spinners),
            (core::mem::offset_of!(Self, queue), RwSemPart::Queue),
        ];
        let before = starts.iter().filter(|(start, _)| *start <= offset);
        before
            .max_by_key(|(start, _)| *start)
            .map_or(RwSemPart::Count, |(_, part)| *part)
    }
}

impl<'a, C: Class, M: Machine> ReadGuard<'a, C, M> {
    /// The lock that this holds for reading.
    #[inline(always)]
    #[must_use]
    pub const fn lock(&self) -> &'a RwSem<C, M> {
        self.lock
    }
}

impl<'a, C: Class, M: Machine> WriteGuard<'a, C, M> {
    /// The lock that this holds for writing.
    #[inline(always)]
    #[must_use]
    pub const fn lock(&self) -> &'a RwSem<C, M> {
        self.lock
    }
}

impl<'a, C: Class, M: Machine> DowngradedGuard<'a, C, M> {
    /// The lock that this holds for reading.
    #[inline(always)]
    #[must_use]
    pub const fn lock(&self) -> &'a RwSem<C, M> {
        self.lock
    }
}

impl<C: Class, M: Machine> fmt::Debug for RwSem<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count.peek();
        write!(
            f,
            "{:?}(readers {}, flags {:#x})",
            C::RANK,
            count >> 8,
            count & 7
        )
    }
}

impl<C: Class, M: Machine> fmt::Debug for ReadGuard<'_, C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} held for reading", C::RANK)
    }
}

impl<C: Class, M: Machine> fmt::Debug for DowngradedGuard<'_, C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} held for reading, downgraded", C::RANK)
    }
}

impl<C: Class, M: Machine> fmt::Debug for WriteGuard<'_, C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} held for writing", C::RANK)
    }
}
