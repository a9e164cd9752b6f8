//! Frames for slabs.

use crate::memory::frame::Use;
use crate::system::{System, VMAS};
use core::panic::Location;
use core::ptr::NonNull;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Ordering, PageSource, SpentPage};

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

    fn slab_page_back(&self, slab: u8, page: SpentPage) {
        self.retire_slab_page(slab == VMAS, &page);
    }

    fn has(&self, slab: u8, at: NonNull<u8>) -> bool {
        self.frame_at(at).is_some_and(|pfn| {
            let frame = self.frames.get(pfn);
            frame.used_as() == Use::Slab && frame.index.peek() == u64::from(slab)
        })
    }
}
