//! Sequence-number write locks that are all released in one store, as `mm_lock_seq` in Linux.
//!
//! # Problem
//! A call that changes a few of an address space's VMAs has to write-lock each of them, and would
//! have to remember them all in order to unlock them.
//!
//! # Idea
//! The whole has a number, and each lock has one. A lock is *write-locked* while its number is the
//! whole's. Moving the whole's number on ends every write lock there is, by one store.
//!
//! # Protocol
//! Writers exclude each other by a lock over the whole (`mmap_lock`), hold it from the first write
//! lock until after [`LockSeq::end_all`], and lock in two steps: wait until no reader is inside,
//! then [`LockedAt::lock`]. Readers enter by some count and *then* check [`LockedAt::is_locked`]; a
//! reader that is refused leaves again, and never waits.
//!
//! ```text
//! writer                          reader
//! waits for readers; none
//! lock.at = whole.seq (7)
//! changes things                  enters; at 7 == seq 7: refused, leaves
//! whole.seq = 8 (release)
//!                                 enters; at 7 != seq 8 (acquire): inside, sees the changes
//! ```
//!
//! # Why it is correct
//! Entering is ordered after the writer's waiting (each form says how), so a reader that entered
//! after it sees the number the writer set, and, by the writer's own lock, no older number of the
//! whole. It then finds the two equal, unless the writer has ended; then it has acquired what the
//! end released. Numbers never come back: they have 64 bits.
//!
//! # Cost
//! Readers: two loads of lines that only writers change. Ending: one store.
//!
//! Linux: include/linux/mmap_lock.h, `mm_lock_seq` and `vm_lock_seq` (v6.4 to v6.15).

use crate::atomic::Atomic;
use crate::lockdep::Class;
use crate::machine::Machine;
use crate::prim::Ordering;
use crate::rwsem::{ReadGuard, RwSem};
use core::fmt;

/// The number of the whole. Changed under the lock over the whole, held for writing.
pub struct LockSeq<M> {
    word: Atomic<u64, M>,
}

/// The number of one lock.
pub struct LockedAt<M> {
    word: Atomic<u64, M>,
}

impl<M: Machine> LockSeq<M> {
    /// No lock is write-locked.
    pub fn new() -> Self {
        Self {
            word: Atomic::new(1),
        }
    }

    /// The number, for locks of other forms.
    pub const fn word(&self) -> &Atomic<u64, M> {
        &self.word
    }

    /// Ends every write lock of the whole.
    #[inline]
    pub fn end_all(&self) {
        let seq = self.word.load(Ordering::Relaxed);
        // ORDERING: Release; pairs with [lock-seq-end].
        self.word.store(seq.wrapping_add(1), Ordering::Release);
    }
}

impl<M: Machine> LockedAt<M> {
    /// Not write-locked.
    pub fn new() -> Self {
        Self {
            word: Atomic::new(0),
        }
    }

    /// The number, for locks of other forms.
    pub const fn word(&self) -> &Atomic<u64, M> {
        &self.word
    }

    /// Whether the lock is write-locked, as seen by a reader.
    #[inline(always)]
    pub fn is_locked(&self, whole: &LockSeq<M>) -> bool {
        // ORDERING: Acquire; pairs with [lock-seq-end].
        let now = whole.word.load(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == now
    }

    /// Write-locks, until [`LockSeq::end_all`]. The caller is the whole's writer, and no reader is
    /// inside.
    #[inline]
    pub fn lock(&self, whole: &LockSeq<M>) {
        let now = whole.word.load(Ordering::Relaxed);
        self.word.store(now, Ordering::Relaxed);
    }
}

/// The form of Linux 6.4: readers are counted by a sleeping read-write lock.
impl<C: Class, M: Machine> RwSem<C, M> {
    /// Takes the lock for reading, unless that needs waiting or it is write-locked.
    #[inline]
    #[track_caller]
    pub fn try_read_unless(
        &self,
        at: &LockedAt<M>,
        whole: &LockSeq<M>,
    ) -> Option<ReadGuard<'_, C, M>> {
        // Most write locks are seen here, without a write to the lock's line.
        if at.is_locked(whole) {
            return None;
        }
        let guard = self.try_read()?;
        (!at.is_locked(whole)).then_some(guard)
    }

    /// Write-locks until [`LockSeq::end_all`]: waits until readers have left, and holds the lock
    /// no longer than it takes to say so. The caller is the whole's writer.
    ///
    /// # Context
    /// May sleep.
    #[inline]
    #[track_caller]
    pub fn write_until_end(&self, at: &LockedAt<M>, whole: &LockSeq<M>) {
        if !at.is_locked(whole) {
            let held = self.write();
            at.lock(whole);
            drop(held);
        }
    }
}

impl<M: Machine> Default for LockSeq<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> Default for LockedAt<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> fmt::Debug for LockSeq<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockSeq({})", self.word.peek())
    }
}

impl<M: Machine> fmt::Debug for LockedAt<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockedAt({})", self.word.peek())
    }
}
