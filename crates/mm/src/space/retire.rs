//! Frees unlinked VMAs, attribute records and tree nodes.

use crate::base::config::Reclamation;
use crate::memory::lifetime::{embedded, owner};
use crate::space::vma::{Attrs, Vma};
use crate::system::System;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::Callback;

impl<M: Mmu> System<M> {
    /// Frees an unlinked record by the configured reclamation scheme.
    ///
    /// # Safety
    /// 1. The record is unlinked, and retired once.
    pub(crate) unsafe fn retire_attrs(&self, attrs: NonNull<Attrs>) {
        // SAFETY: 1: a live object, of which that is the callback.
        let callback = unsafe { embedded(attrs, offset_of!(Attrs, callback)) };
        // SAFETY: 1, 2: 1 of this function. 3: the function finds the record from its callback.
        unsafe { self.retire(callback, free_attrs::<M>) };
    }

    /// Frees an unlinked VMA with its record by the configured reclamation scheme.
    ///
    /// # Safety
    /// 1. The VMA is unlinked, and retired once.
    pub(crate) unsafe fn retire_vma(&self, vma: NonNull<Vma<M>>) {
        if self.config.reclamation == Reclamation::TypeStable {
            // SAFETY: 1 of this function.
            return unsafe { self.free_type_stable(vma) };
        }
        // SAFETY: 1: a live object, of which that is the callback.
        let callback = unsafe { embedded(vma, offset_of!(Vma<M>, callback)) };
        // SAFETY: 1, 2: 1 of this function. 3: the function finds the VMA from its callback.
        unsafe { self.retire(callback, free_vma::<M>) };
    }

    /// Frees a VMA at once: a lookup that still finds it finds it detached, or another VMA, and
    /// asks. Its record is read under its lock only, and could go too; it waits with all other
    /// records.
    ///
    /// # Safety
    /// 1. The VMA is unlinked and detached, and retired once.
    unsafe fn free_type_stable(&self, vma: NonNull<Vma<M>>) {
        // SAFETY: 1 of this function.
        let found = unsafe { vma.as_ref() };
        if M::CHECKED && found.refcnt.is_attached() {
            M::violation(format_args!("VMA freed while attached: {found:?}"));
        }
        if let Some(attrs) = found.attrs_ptr() {
            // SAFETY: 1: the VMA's last record, unlinked with it.
            unsafe { self.retire_attrs(attrs) };
        }
        // SAFETY: 1, 2: 1 of this function; late readers look at what is kept only.
        unsafe { self.vmas.free(vma, self) };
    }
}

/// # Safety
/// 1. `sys` is the system. 2. The callback is a retired record's.
unsafe fn free_attrs<M: Mmu>(sys: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function.
    let sys = unsafe { &*sys.cast::<System<M>>() };
    // SAFETY: 1: 2 of this function.
    let attrs = unsafe { owner::<Attrs>(callback, offset_of!(Attrs, callback)) };
    // SAFETY: 1, 2: retired once, and the grace period is over.
    unsafe { sys.attrs.free(attrs, sys) };
}

/// # Safety
/// 1. `sys` is the system. 2. The callback is a retired VMA's.
unsafe fn free_vma<M: Mmu>(sys: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function.
    let sys = unsafe { &*sys.cast::<System<M>>() };
    // SAFETY: 1: 2 of this function.
    let vma = unsafe { owner::<Vma<M>>(callback, offset_of!(Vma<M>, callback)) };
    // SAFETY: nobody else has it any more.
    if let Some(attrs) = unsafe { vma.as_ref() }.attrs_ptr() {
        // SAFETY: 1, 2: the VMA's last record dies with it.
        unsafe { sys.attrs.free(attrs, sys) };
    }
    // SAFETY: 1, 2: retired once, and the grace period is over.
    unsafe { sys.vmas.free(vma, sys) };
}
