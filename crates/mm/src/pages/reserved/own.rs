//! The pages set aside for one private mapping.
//!
//! A private mapping reserves as many pages as it has addresses when it is made. Which of them it
//! has used stands in a map ([`super::reserve`]) that its parts keep together when it is split:
//! what is *absent* is still reserved. A child has none: it takes what nobody reserved, or gets a
//! signal.
//!
//! Linux: `struct resv_map` of a private mapping, hugetlb_vm_op_close, `HPAGE_RESV_OWNER`.

use super::reserve::Reservations;
use crate::base::error::NoMemory;
use crate::system::System;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Ordering};

/// Which of its reserved pages a private mapping has used.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OwnPages<M: Mmu> {
    /// The mappings that a mapping was split into.
    refs: Atomic<u64, M>,
    /// How many of them the ledger has come to.
    seen: Atomic<u64, M>,
    pub(crate) used: Reservations<M>,
}

// SAFETY: the free link overwrites `refs`, which nobody reads without a reference.
unsafe impl<M: Mmu> SlabObject for OwnPages<M> {}

impl<M: Mmu> OwnPages<M> {
    /// None used. The address.
    pub(crate) fn create(sys: &System<M>) -> Result<u64, NoMemory> {
        let new = Self {
            refs: Atomic::new(1),
            seen: Atomic::new(0),
            used: Reservations::new(),
        };
        let new = sys.huge.owns.alloc(new, sys).map_err(|_| NoMemory)?;
        Ok(new.as_ptr() as u64)
    }

    /// The one at an address that a link names.
    pub(crate) fn at<'a>(address: u64) -> Option<&'a Self> {
        // SAFETY: a link has a reference to it.
        Self::ptr(address).map(|own| unsafe { own.as_ref() })
    }

    /// Where that is, for who gives the reference up.
    pub(crate) fn ptr(address: u64) -> Option<NonNull<Self>> {
        NonNull::new(address as *mut Self)
    }

    /// One mapping more.
    pub(crate) fn hold(&self) {
        self.refs.add(1, Ordering::Relaxed);
    }

    /// The ledger came to one of the mappings: whether that was the last. While nothing runs.
    pub(crate) fn is_last_look(&self) -> bool {
        let seen = self.seen.peek() + 1;
        let last = seen == self.refs.peek();
        self.seen.poke(if last { 0 } else { seen });
        last
    }

    /// One less.
    ///
    /// # Safety
    /// 1. The reference is the caller's, and gone when this returns.
    pub(crate) unsafe fn put(own: NonNull<Self>, sys: &System<M>) {
        // SAFETY: 1 of this function: live, until the free below.
        let this = unsafe { own.as_ref() };
        // ORDERING: Release; pairs with [huge-own-put].
        if this.refs.sub(1, Ordering::AcqRel) == 1 {
            // ORDERING: Acquire, by the same step; pairs with [huge-own-put].
            this.used.remove_all(sys);
            // SAFETY: 1, 2: the last reference is gone.
            unsafe { sys.huge.owns.free(own, sys) };
        }
    }
}
