//! The array of all frame descriptors.

use super::Frame;
use core::fmt;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::Callback;

/// The table of all frames: those from number `first` on.
pub(crate) struct FrameTable<M: Mmu> {
    base: NonNull<Frame<M>>,
    first: u64,
    len: u64,
}

// SAFETY: hands out shared references to descriptors, which may be shared.
unsafe impl<M: Mmu> Send for FrameTable<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for FrameTable<M> {}

impl<M: Mmu> FrameTable<M> {
    /// # Safety
    /// 1. `base` is zeroed memory for `len` descriptors, aligned, used by nobody else, and outlives
    ///    the table.
    pub(crate) const unsafe fn new(base: NonNull<Frame<M>>, first: Pfn, len: u64) -> Self {
        Self {
            base,
            first: first.0,
            len,
        }
    }

    /// The first frame.
    pub(crate) const fn first(&self) -> Pfn {
        Pfn(self.first)
    }

    /// Number of frames.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// The descriptor of `pfn`.
    ///
    /// # Panics
    /// If there is no such frame: an entry was corrupt.
    #[inline(always)]
    pub(crate) fn get(&self, pfn: Pfn) -> &Frame<M> {
        let index = pfn.0.wrapping_sub(self.first);
        if index >= self.len {
            no_frame(pfn);
        }
        // SAFETY: within the table.
        let at = unsafe { self.base.add(index as usize) };
        // SAFETY: 1 of `new`, and zeroed memory is a valid descriptor.
        unsafe { at.as_ref() }
    }

    /// The callback of the descriptor of `pfn`.
    ///
    /// # Panics
    /// If there is no such frame.
    pub(crate) fn callback_of(&self, pfn: Pfn) -> NonNull<Callback> {
        let index = pfn.0.wrapping_sub(self.first);
        if index >= self.len {
            no_frame(pfn);
        }
        // SAFETY: within the table.
        let frame = unsafe { self.base.add(index as usize) };
        // SAFETY: within the descriptor.
        unsafe { frame.byte_add(offset_of!(Frame<M>, callback)) }.cast()
    }

    /// The frame that a descriptor's callback belongs to.
    pub(crate) fn of_callback(&self, callback: NonNull<Callback>) -> Pfn {
        let offset = offset_of!(Frame<M>, callback);
        let frame = callback.as_ptr() as usize - offset;
        let index = (frame - self.base.as_ptr() as usize) / size_of::<Frame<M>>();
        Pfn(self.first + index as u64)
    }

    /// Where the table lies.
    pub(crate) const fn base(&self) -> *const Frame<M> {
        self.base.as_ptr()
    }
}

/// Takes the number, not a reference: that would have to lie in memory on the way that is good.
#[cold]
#[inline(never)]
fn no_frame(pfn: Pfn) -> ! {
    panic!("no frame {pfn}")
}

impl<M: Mmu> fmt::Debug for FrameTable<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameTable({})", self.len)
    }
}
