//! The VMA lock of a hugetlb mapping.
//!
//! # Problem
//! Who comes by a file's reverse map to take tables away has the file's lock, behind the mapping's
//! in the order; and the mapping may be going.
//!
//! # Idea
//! The lock is an object of its own, counted, beside the mapping's link to the file. A thread that
//! cannot have it at once takes a reference, lets the file go, waits, and looks whether the file
//! still has a mapping with that lock.
//!
//! # Protocol
//! A link names its lock from before others can find it (P51) until after it was taken out of the
//! file.
//!
//! # Why it is correct
//! A thread that has the lock for writing, and under `i_mmap` finds a mapping that names it, has
//! one that nobody frees: to free it is to take its link out, under `i_mmap`. A lock of one that
//! has gone is found no more, and freed with the last reference.
//!
//! No two links name one lock, whatever counts their mappings: what a mapping is split into gets a
//! link, and with that a lock, of its own. Linux's segments wrapped the mapping of their file,
//! and did not hand on that it was split, so that two had one lock, and freed it twice (P53).
//!
//! A mapping for which there was no memory for a lock shares no tables, so there is nothing to take
//! away. Linux: hugetlb_vma_lock_alloc, which has the same.
//!
//! A private mapping shares none either. Its lock keeps its faults off who throws its pages away,
//! until these are in the pool again: a fault would find that empty (P52). Linux: the same since
//! bf4916922c60, by the lock of its `resv_map`.
//!
//! Linux: `struct hugetlb_vma_lock`, mm/hugetlb.c hugetlb_vma_lock_read, hugetlb_vma_lock_release,
//! fs/hugetlbfs/inode.c hugetlb_unmap_file_folio (v6.1).

use crate::memory::counted::{Counted, InSlab, Kept};
use crate::system::System;
use minflt_pgtable::Mmu;
use minflt_sync::RwSem;
use minflt_sync::order::HugeVmaLock;
use minflt_sync::slab::Slab;

/// The lock of one mapping of huge pages: the mapping has a reference, and each who waits from
/// outside.
pub(crate) type HugeLock<M> = Counted<Lock<M>, M>;

/// A lock that somebody from outside refers to, whatever becomes of its mapping.
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
