//! A pointer to a VMA that may be freed while the pointer is in use.

use crate::space::vma::Vma;
use core::marker::PhantomData;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;

/// A VMA that may be freed before the function returns that was given this: a parameter that is a
/// reference promises more, that the VMA stays until then.
pub(crate) struct VmaPtr<'v, M: Mmu> {
    at: NonNull<Vma<M>>,
    kept: PhantomData<&'v Vma<M>>,
}

impl<M: Mmu> Clone for VmaPtr<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mmu> Copy for VmaPtr<'_, M> {}

impl<'v, M: Mmu> From<&'v Vma<M>> for VmaPtr<'v, M> {
    fn from(vma: &'v Vma<M>) -> Self {
        Self {
            at: NonNull::from(vma),
            kept: PhantomData,
        }
    }
}

impl<'v, M: Mmu> VmaPtr<'v, M> {
    /// # Safety
    /// 1. The VMA is live as long as `'v`, or until the caller frees it.
    pub(crate) const unsafe fn new(at: NonNull<Vma<M>>) -> Self {
        let kept = PhantomData;
        Self { at, kept }
    }

    /// The VMA, as long as it was not freed.
    pub(crate) const fn get(self) -> &'v Vma<M> {
        // SAFETY: made of a reference as good as this one, or 1 of `new`.
        unsafe { self.at.as_ref() }
    }

    /// Where it is, for who frees it.
    pub(crate) const fn as_ptr(self) -> NonNull<Vma<M>> {
        self.at
    }
}
