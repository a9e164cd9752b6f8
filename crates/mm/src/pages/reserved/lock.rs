//! The lock of a mapping of huge pages.
//!
//! # Problem
//! Who comes by a file's reverse map to take tables away has the file's lock, behind the mapping's
//! in the order; and the mapping may be going.
//!
//! # Idea
//! The lock is an object of its own, counted, beside the mapping's link to the file. Whoever cannot
//! have it at once takes a reference, lets the file go, waits, and looks whether the file still has
//! a mapping with that lock.
//!
//! # Protocol
//! A link names its lock from before others can find it (P51) until after it was taken out of the
//! file.
//!
//! # Why it is correct
//! Whoever has the lock for writing, and under `i_mmap` finds a mapping that names it, has one that
//! nobody frees: to free it is to take its link out, under `i_mmap`. A lock of one that has gone is
//! found no more, and freed with the last reference.
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

use crate::system::System;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::order::HugeVmaLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Ordering, RwSem, WriteGuard};

/// The lock of one mapping of huge pages.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct HugeLock<M: Mmu> {
    /// The mapping's, and one for each who waits from outside.
    refs: Atomic<u64, M>,
    pub(crate) sem: RwSem<HugeVmaLock, M>,
}

// SAFETY: the free link overwrites `refs`, which nobody reads without a reference.
unsafe impl<M: Mmu> SlabObject for HugeLock<M> {}

impl<M: Mmu> HugeLock<M> {
    /// A new one: its address, 0 where there is no memory for it.
    pub(crate) fn create(sys: &System<M>) -> u64 {
        let new = Self {
            refs: Atomic::new(1),
            sem: RwSem::new(sys.config.sleeping_locks.of_semaphore()),
        };
        let new = sys.huge.locks.alloc(new, sys);
        new.map_or(0, |new| new.as_ptr() as u64)
    }

    /// The lock at an address that a link names.
    pub(crate) fn at<'a>(address: u64) -> Option<&'a Self> {
        // SAFETY: a link has a reference to its lock.
        Self::ptr(address).map(|lock| unsafe { lock.as_ref() })
    }

    /// Where that is, for who gives the reference up.
    pub(crate) fn ptr(address: u64) -> Option<NonNull<Self>> {
        NonNull::new(address as *mut Self)
    }

    /// A reference for somebody who will wait.
    pub(crate) fn hold(&self) -> Held<M> {
        self.refs.add(1, Ordering::Relaxed);
        Held {
            lock: NonNull::from(self),
        }
    }

    /// One reference less.
    ///
    /// # Safety
    /// 1. The reference is the caller's, and gone when this returns.
    pub(crate) unsafe fn put(lock: NonNull<Self>, sys: &System<M>) {
        // SAFETY: 1 of this function: live, until the free below.
        let this = unsafe { lock.as_ref() };
        // ORDERING: Release; pairs with [huge-lock-put].
        if this.refs.sub(1, Ordering::AcqRel) == 1 {
            // ORDERING: Acquire, by the same step; pairs with [huge-lock-put].
            if M::CHECKED && this.sem.is_held() {
                M::violation(format_args!(
                    "the lock of a mapping of huge pages is freed, and held"
                ));
            }
            // SAFETY: 1, 2: the last reference is gone.
            unsafe { sys.huge.locks.free(lock, sys) };
        }
    }
}

/// A lock that somebody from outside refers to, whatever becomes of its mapping.
pub(crate) struct Held<M: Mmu> {
    lock: NonNull<HugeLock<M>>,
}

impl<M: Mmu> Held<M> {
    fn lock(&self) -> &HugeLock<M> {
        // SAFETY: this counts.
        unsafe { self.lock.as_ref() }
    }

    /// Waits for it, for writing.
    ///
    /// # Context
    /// Sleeps.
    pub(crate) fn write(&self) -> WriteGuard<'_, HugeVmaLock, M> {
        self.lock().sem.write()
    }

    /// Whether it is that lock.
    pub(crate) fn is(&self, other: Option<&HugeLock<M>>) -> bool {
        other.is_some_and(|other| core::ptr::eq(self.lock(), other))
    }

    /// Lets it go.
    pub(crate) fn put(self, sys: &System<M>) {
        // SAFETY: 1: this one's.
        unsafe { HugeLock::put(self.lock, sys) };
    }
}
