//! Frames for the embedding kernel's own use: kernel stacks, pipes, tables of its own.
//!
//! # Problem
//! The system has all RAM of its machine, and the kernel around it needs some, too, in amounts that
//! only come out while it runs.
//!
//! # Idea
//! The kernel allocates from the same zones, by the same per-CPU lists. Its frames are a class of
//! their own in the ledger ([`Ledger::kernel`]), so that a leak shows: once the kernel has freed
//! all, that is 0. What is in them, and where, is for the kernel to know: reclaim and migration
//! leave them alone.
//!
//! # Why it is correct
//! Such a frame has one reference, which is the kernel's; the ledger checks that. It is in no page
//! table and in no file, so nothing finds it but a look at all descriptors, which passes it over.
//!
//! Linux: mm/page_alloc.c alloc_pages, __free_pages.
//!
//! [`Ledger::kernel`]: crate::Ledger::kernel

use crate::base::error::NoMemory;
use crate::memory::alloc;
use crate::memory::frame::Use;
use crate::system::System;
use core::mem::ManuallyDrop;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};

/// Log2 of the most frames that [`System::alloc_pages`] has in one piece. Linux: `MAX_PAGE_ORDER`.
pub const MAX_PAGE_ORDER: u32 = alloc::MAX_ORDER;

/// What an allocation may do where memory is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gfp {
    /// Reclaim, and sleep. The caller holds nothing and has interrupts on. Linux: `GFP_KERNEL`.
    Kernel,
    /// Fail at once. Linux: `GFP_NOWAIT`.
    NoWait,
}

/// 2^`order` frames that follow each other, which are the embedding kernel's until this is dropped.
///
/// # Context
/// Dropped on a CPU of the machine, not by a handler of interrupts. Takes a zone's lock.
#[derive(Debug)]
#[must_use = "the frames are freed when this is dropped"]
pub struct KernelPages<'s, M: Mmu> {
    sys: &'s System<M>,
    first: Pfn,
}

impl<M: Mmu> KernelPages<'_, M> {
    /// The first of the frames, a multiple of their number.
    #[must_use]
    pub const fn first(&self) -> Pfn {
        self.first
    }

    /// Log2 of the number of frames.
    #[must_use]
    pub fn order(&self) -> u32 {
        self.sys.frames.get(self.first).block_order()
    }

    /// Where the kernel reaches the first byte; the frames follow each other there, too. What they
    /// hold at first is undefined.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        M::frame_ptr(&self.sys.at, self.first)
    }

    /// The bytes of the frames, which nobody else has.
    #[must_use]
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        let len = (M::Paging::page() as usize) << self.order();
        // SAFETY: duty 1 of `Mmu`: the frames lie one behind the other, live as long as the
        // instance, and hold bytes; the borrow is the only way to them but raw pointers, whose
        // users see to it themselves.
        unsafe { core::slice::from_raw_parts_mut(self.as_ptr(), len) }
    }

    /// Leaves the frames to the caller, which frees them by [`System::free_pages`] or never.
    /// Returns the first.
    #[must_use = "the frames are leaked unless freed by `System::free_pages`"]
    pub fn into_raw(self) -> Pfn {
        ManuallyDrop::new(self).first
    }
}

impl<M: Mmu> Drop for KernelPages<'_, M> {
    fn drop(&mut self) {
        self.sys.put_kernel_pages(self.first);
    }
}

impl<M: Mmu> System<M> {
    /// Allocates 2^`order` contiguous frames, the first a multiple of their number, near the
    /// calling CPU. They are the caller's, not cleared, and neither moved nor reclaimed.
    ///
    /// # Context
    /// On a CPU of the machine, not in a handler of interrupts. Takes a zone's lock. With
    /// [`Gfp::Kernel`] it holds nothing, and sleeps where memory is short.
    ///
    /// # Errors
    /// If there is no such run of frames, also after reclaim if `gfp` allows that, or `order` is
    /// above [`MAX_PAGE_ORDER`]. Where user memory can be swapped out, some frames are left to
    /// that. Nothing moves pages to make larger runs: allocate these early.
    ///
    /// Linux: alloc_pages.
    pub fn alloc_pages(&self, order: u32, gfp: Gfp) -> Result<KernelPages<'_, M>, NoMemory> {
        let try_once = || {
            let first = self.frames.alloc_block(&self.at, order, Use::Kernel);
            first.ok_or(NoMemory)
        };
        let first = match gfp {
            _ if order > MAX_PAGE_ORDER => Err(NoMemory),
            Gfp::Kernel => self.with_memory(try_once),
            Gfp::NoWait => try_once(),
        }?;
        Ok(KernelPages { sys: self, first })
    }

    /// Frees frames that [`KernelPages::into_raw`] left to the caller. Frames which are not the
    /// kernel's are a violation.
    ///
    /// # Context
    /// As the drop of [`KernelPages`].
    ///
    /// # Safety
    /// 1. `first` is what [`KernelPages::into_raw`] returned on this system, and is freed once.
    /// 2. Nobody uses the frames any more.
    ///
    /// Linux: __free_pages.
    pub unsafe fn free_pages(&self, first: Pfn) {
        self.put_kernel_pages(first);
    }

    fn put_kernel_pages(&self, first: Pfn) {
        let used = self.frames.get(first).used_as();
        if used != Use::Kernel {
            M::violation(format_args!(
                "frame {first} freed by the kernel, but used as {used:?}"
            ));
        }
        self.frames.put(first);
    }
}
