//! The lock of a mapping of huge pages.
//!
//! # Problem
//! Who comes by a file's reverse map to take tables away has the file's lock, behind the mapping's
//! in the order; and the mapping may be going.
//!
//! # Idea
//! The lock is an object of its own, counted, beside the mapping's link to the file. Whoever cannot
//! have it at once takes a reference, lets the file go, waits, and looks whether the mapping is
//! still there.
//!
//! # Protocol
//! [`HugeLock::link`] names the link while the mapping has it. It is set before others can find the
//! link (P51), and becomes 0, under the lock for writing, when the mapping goes.
//!
//! # Why it is correct
//! Whoever has the lock for writing and `i_mmap`, and finds the link named, has a mapping that
//! nobody frees: to free it is to have the lock.
//!
//! A mapping for which there was no memory for a lock shares no tables, so there is nothing to take
//! away. Linux: hugetlb_vma_lock_alloc, which has the same.
//!
//! Linux: `struct hugetlb_vma_lock`, mm/hugetlb.c hugetlb_vma_lock_read, hugetlb_vma_lock_free,
//! fs/hugetlbfs/inode.c hugetlb_unmap_file_folio (v6.1).

use crate::system::System;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::order::HugeVmaLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Ordering, RwSem, WriteGuard};

/// The lock of one mapping of huge pages of a file that is shared.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct HugeLock<M: Mmu> {
    /// The mapping's, and one for each who waits from outside.
    refs: Atomic<u64, M>,
    /// The address of the mapping's link, 0 once it is gone. Written by: who has `sem`, write.
    link: Atomic<u64, M>,
    pub(crate) sem: RwSem<HugeVmaLock, M>,
}

// SAFETY: the free link overwrites `refs`, which nobody reads without a reference.
unsafe impl<M: Mmu> SlabObject for HugeLock<M> {}

impl<M: Mmu> HugeLock<M> {
    /// One of the link at `link`; `None` where there is no memory for it.
    pub(crate) fn create(sys: &System<M>) -> u64 {
        let new = Self {
            refs: Atomic::new(1),
            link: Atomic::new(0),
            sem: RwSem::new(),
        };
        let new = sys.huge.locks.alloc(new, sys);
        new.map_or(0, |new| new.as_ptr() as u64)
    }

    /// The lock at an address that a link names.
    pub(crate) fn at<'a>(address: u64) -> Option<&'a Self> {
        // SAFETY: a link has a reference to its lock.
        unsafe { (address as *const Self).as_ref() }
    }

    /// The mapping whose link that is has it from now on.
    pub(crate) fn belongs_to(&self, link: u64) {
        self.link.store(link, Ordering::Relaxed);
    }

    /// Whether it is the lock of that link still. Under it for writing, and the file's `i_mmap`.
    pub(crate) fn is_of(&self, link: u64) -> bool {
        self.link.load(Ordering::Relaxed) == link
    }

    /// A reference for somebody who will wait.
    pub(crate) fn hold(&self) -> Held<'_, M> {
        self.refs.add(1, Ordering::Relaxed);
        Held { lock: self }
    }

    /// The mapping goes: waits for whoever has the lock.
    ///
    /// # Context
    /// Sleeps.
    pub(crate) fn close(&self, sys: &System<M>) {
        {
            let _alone = self.sem.write();
            self.link.store(0, Ordering::Relaxed);
        }
        self.put(sys);
    }

    fn put(&self, sys: &System<M>) {
        // ORDERING: AcqRel; pairs with [huge-lock-put].
        if self.refs.sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: 1, 2: the last reference is gone.
            unsafe { sys.huge.locks.free(NonNull::from(self)) };
        }
    }
}

/// A lock that somebody from outside refers to.
pub(crate) struct Held<'l, M: Mmu> {
    lock: &'l HugeLock<M>,
}

impl<M: Mmu> Held<'_, M> {
    /// Waits for it, for writing.
    pub(crate) fn write(&self) -> WriteGuard<'_, HugeVmaLock, M> {
        self.lock.sem.write()
    }

    /// See [`HugeLock::is_of`].
    pub(crate) fn is_of(&self, link: u64) -> bool {
        self.lock.is_of(link)
    }

    /// Lets it go.
    pub(crate) fn put(self, sys: &System<M>) {
        self.lock.put(sys);
    }
}
