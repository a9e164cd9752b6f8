//! Objects of a slab that have one owner, as a box has its contents.

use super::{PageSource, Slab, SlabObject};
use crate::machine::Machine;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// An object of a slab, which [`Slab::put_back`] takes. Dropping this loses its slot.
///
/// # Invariants
/// 1. The object came from [`Slab::alloc`] and was not freed; nobody else refers to it.
#[derive(Debug)]
#[must_use = "dropping it loses its slot"]
pub struct Owned<T> {
    object: NonNull<T>,
}

// SAFETY: by the invariant it is as the object itself.
unsafe impl<T: Send> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Owned<T> {}

impl<T> Deref for Owned<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: by the invariant it lives, and nobody writes it while this is borrowed.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Owned<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: by the invariant it lives, and nobody else refers to it.
        unsafe { self.object.as_mut() }
    }
}

impl<T> Owned<T> {
    /// Takes the first object out of a list that is as `is` says, where `next` is what names the
    /// one behind it.
    pub fn take_out(
        mut link: &mut Option<Self>,
        is: impl Fn(&T) -> bool,
        next: impl Fn(&mut T) -> &mut Option<Self>,
    ) -> Option<Self> {
        while !is(link.as_ref()?) {
            link = next(link.as_mut()?);
        }
        let mut found = link.take()?;
        *link = next(&mut found).take();
        Some(found)
    }
}

impl<T: SlabObject, M: Machine> Slab<T, M> {
    /// As [`Slab::alloc`], for a caller that shares the object with no other thread.
    ///
    /// # Errors
    /// `value`, when memory is short.
    #[track_caller]
    pub fn alloc_owned(&self, value: T, pages: &impl PageSource) -> Result<Owned<T>, T> {
        // What is kept may be read at any time.
        const { assert!(T::KEPT.len() == 0) };
        // INVARIANT: allocated here, and named by nothing else.
        self.alloc(value, pages).map(|object| Owned { object })
    }

    /// Takes an object's slot back. The object is not dropped.
    pub fn put_back(&self, owned: Owned<T>, pages: &impl PageSource) {
        if !pages.has(self.number, owned.object.cast()) {
            M::violation(format_args!("object given back to another slab"));
        }
        // SAFETY: 1: by the invariant it came from a slab of these objects, which is this one, as
        // its page says; it is consumed. 2: by the invariant nobody else refers to it.
        unsafe { self.free(owned.object, pages) };
    }
}
