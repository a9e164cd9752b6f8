//! Frames for slabs.

use crate::memory::frame::Use;
use crate::system::{System, VMAS};
use core::panic::Location;
use core::ptr::NonNull;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Callback, Ordering, PageSource};

impl<M: Mmu> PageSource for System<M> {
    fn refuses(&self, site: &'static Location<'static>) -> bool {
        self.frames.refusals.refuses(site)
    }

    fn slab_page(&self, slab: u8) -> Option<NonNull<[u8]>> {
        let pfn = self.frames.alloc(&self.at, Use::Slab)?;
        self.frames
            .get(pfn)
            .index
            .store(u64::from(slab), Ordering::Relaxed);
        let page = NonNull::new(M::frame_ptr(&self.at, pfn))?;
        Some(NonNull::slice_from_raw_parts(
            page,
            M::Paging::page() as usize,
        ))
    }

    unsafe fn slab_page_back(&self, slab: u8, page: NonNull<u8>, callback: NonNull<Callback>) {
        // SAFETY: 1, 2: 1 of this function.
        unsafe { self.retire_slab_page(slab == VMAS, page, callback) };
    }
}
