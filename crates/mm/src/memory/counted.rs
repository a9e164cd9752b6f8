//! Reference-counted slab objects, named by their addresses.
//!
//! # Problem
//! Several words may refer to one object, and dropping the last reference must free it.
//!
//! # Idea
//! The count precedes the object, where a free slab object has its free-list link: it is never read
//! without a reference.
//!
//! # Protocol
//! A word that refers to an object owns a reference; [`Counted::at`] borrows the object. A user
//! that may outlive the word takes a reference of its own ([`Kept`]).
//!
//! # Why it is correct
//! The thread that drops the last reference frees the object: the order of the drops makes all
//! earlier users' accesses visible to it.
//!
//! # Cost
//! One exchange for each reference taken or dropped.

use crate::system::System;
use core::ops::Deref;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::slab::{Slab, SlabObject};
use minflt_sync::{Atomic, Ordering};

/// What can be counted.
pub(crate) trait InSlab<M: Mmu>: Sized {
    /// The slab that they are in.
    fn slab(sys: &System<M>) -> &Slab<Counted<Self, M>, M>;

    /// Nobody has it any more.
    fn last_put(&self, sys: &System<M>);
}

/// An object, and how many have it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Counted<T: InSlab<M>, M: Mmu> {
    refs: Atomic<u64, M>,
    object: T,
}

impl<T: InSlab<M>, M: Mmu> SlabObject for Counted<T, M> {}

impl<T: InSlab<M>, M: Mmu> Deref for Counted<T, M> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: InSlab<M>, M: Mmu> Counted<T, M> {
    /// A new one with one reference: its address, if there is memory for it.
    #[track_caller]
    pub(crate) fn create(sys: &System<M>, object: T) -> Option<u64> {
        let refs = Atomic::new(1);
        let new = T::slab(sys).alloc(Self { refs, object }, sys);
        new.ok().map(|new| new.as_ptr() as u64)
    }

    /// The one at an address that a word names which has a reference to it.
    pub(crate) fn at<'a>(address: u64) -> Option<&'a Self> {
        // SAFETY: the word's reference keeps it, and the word names it as long as the caller holds
        // the word's lock.
        Self::ptr(address).map(|object| unsafe { object.as_ref() })
    }

    /// Its address, for a caller that drops the word's reference.
    pub(crate) fn ptr(address: u64) -> Option<NonNull<Self>> {
        NonNull::new(address as *mut Self)
    }

    /// One reference more, which a word will have.
    pub(crate) fn hold(&self) {
        self.refs.add(1, Ordering::Relaxed);
    }

    /// A reference for the caller.
    pub(crate) fn keep(&self) -> Kept<T, M> {
        self.hold();
        Kept {
            object: NonNull::from(self),
        }
    }

    /// References to it, without the door, for oracles.
    pub(crate) fn peek_refs(&self) -> u64 {
        self.refs.peek()
    }

    /// One reference less.
    ///
    /// # Safety
    /// 1. The reference is the caller's, and gone when this returns.
    pub(crate) unsafe fn put(object: NonNull<Self>, sys: &System<M>) {
        // SAFETY: 1 of this function: live, until the free below.
        let this = unsafe { object.as_ref() };
        // ORDERING: Release; pairs with [counted-put].
        if this.refs.sub(1, Ordering::AcqRel) == 1 {
            // ORDERING: Acquire, by the same step; pairs with [counted-put].
            this.object.last_put(sys);
            // SAFETY: 1, 2: the last reference is gone.
            unsafe { T::slab(sys).free(object, sys) };
        }
    }
}

/// A reference to an object that outlives the word that named it.
pub(crate) struct Kept<T: InSlab<M>, M: Mmu> {
    object: NonNull<Counted<T, M>>,
}

impl<T: InSlab<M>, M: Mmu> Kept<T, M> {
    /// The object.
    pub(crate) const fn get(&self) -> &Counted<T, M> {
        // SAFETY: this counts.
        unsafe { self.object.as_ref() }
    }

    /// Gives the reference up.
    pub(crate) fn put(self, sys: &System<M>) {
        // SAFETY: 1: this one's.
        unsafe { Counted::put(self.object, sys) };
    }
}
