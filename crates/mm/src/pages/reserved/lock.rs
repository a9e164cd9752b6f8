//! The VMA lock of a hugetlb mapping.
//!
//! # Problem
//! A reverse-map walk that unshares tables holds the file's lock, which comes after the mapping's
//! lock in the lock order; and the mapping may be in removal.
//!
//! # Idea
//! The lock is a reference-counted object, separate from the mapping's link to the file. A thread
//! whose trylock fails takes a reference, releases the file's lock, waits, and rechecks whether the
//! file still has a mapping with that lock.
//!
//! # Protocol
//! A link names its lock from before other threads can find it (P51) until after it was unlinked
//! from the file.
//!
//! # Why it is correct
//! A thread that has the lock for writing, and under `i_mmap` finds a mapping that names it, has a
//! mapping that is not freed: freeing it unlinks it first, under `i_mmap`. The lock of a removed
//! mapping is no longer found, and is freed with the last reference.
//!
//! No two links name one lock, whatever counts their mappings: each part of a split mapping gets a
//! link, and with that a lock, of its own. Linux's segments wrapped the mapping of their file, and
//! did not pass the split on, so that two mappings had one lock, and freed it twice (P53).
//!
//! A mapping for which there was no memory for a lock shares no tables, so there is nothing to
//! unshare. Linux: hugetlb_vma_lock_alloc does the same.
//!
//! A private mapping shares none either. Its lock excludes its faults while its pages are
//! discarded, until they are in the pool again: a fault would find the pool empty (P52). Linux: the
//! same since bf4916922c60, by the lock of its `resv_map`.
//!
//! Linux: `struct hugetlb_vma_lock`, mm/hugetlb.c hugetlb_vma_lock_read, hugetlb_vma_lock_release,
//! fs/hugetlbfs/inode.c hugetlb_unmap_file_folio (v6.1).

use crate::memory::counted::{Counted, InSlab, Kept};
use crate::system::System;
use minflt_pgtable::Mmu;
use minflt_sync::RwSem;
use minflt_sync::order::HugeVmaLock;
use minflt_sync::slab::Slab;

/// The lock of one hugetlb mapping: referenced by the mapping, and by each thread that waits for it
/// in a reverse-map walk.
pub(crate) type HugeLock<M> = Counted<Lock<M>, M>;

/// A reference to the lock from a reverse-map walk, valid even if the mapping is removed.
pub(crate) type KeptLock<M> = Kept<Lock<M>, M>;

/// The lock.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Lock<M: Mmu> {
    pub(crate) sem: RwSem<HugeVmaLock, M>,
}

impl<M: Mmu> InSlab<M> for Lock<M> {
    fn slab(sys: &System<M>) -> &Slab<HugeLock<M>, M> {
        &sys.huge.locks
    }

    fn last_put(&self, _sys: &System<M>) {
        if M::CHECKED && self.sem.is_held() {
            M::violation(format_args!("hugetlb VMA lock freed while held"));
        }
    }
}

impl<M: Mmu> HugeLock<M> {
    /// A new one: its address, 0 where there is no memory for it.
    pub(crate) fn fresh(sys: &System<M>) -> u64 {
        let sem = RwSem::new(sys.config.sleeping_locks.of_semaphore());
        Self::create(sys, Lock { sem }).unwrap_or(0)
    }
}
