//! The page tables of the peer by hand: those of the `x86_64` crate.

use crate::frames::Frames;
use minflt_addr::Pfn;
use x86_64::structures::paging::mapper::{CleanUp, MappedFrame, TranslateResult};
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Mapper, OffsetPageTable, Page, PageTable, PageTableFlags,
    PhysFrame, Size4KiB, Translate,
};
use x86_64::{PhysAddr, VirtAddr};

pub(crate) const READ_ONLY: PageTableFlags = PageTableFlags::PRESENT
    .union(PageTableFlags::USER_ACCESSIBLE)
    .union(PageTableFlags::NO_EXECUTE);
pub(crate) const DATA: PageTableFlags = READ_ONLY.union(PageTableFlags::WRITABLE);

/// The page tables of an address space. No CPU ever walks them, so what they map gives nobody
/// access to anything.
pub(crate) struct Tables<'a> {
    mapper: OffsetPageTable<'a>,
    root: Pfn,
    source: Source<'a>,
}

/// Frames for tables.
struct Source<'a>(&'a Frames);

// SAFETY: the frames of the bitmap are allocated once each until they are free again.
unsafe impl FrameAllocator<Size4KiB> for Source<'_> {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        self.0.alloc().map(phys)
    }
}

impl FrameDeallocator<Size4KiB> for Source<'_> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        self.0.free(pfn(frame));
    }
}

fn phys(frame: Pfn) -> PhysFrame {
    PhysFrame::containing_address(PhysAddr::new(frame.0 << 12))
}

const fn pfn(frame: PhysFrame) -> Pfn {
    Pfn(frame.start_address().as_u64() >> 12)
}

fn page(at: u64) -> Page {
    Page::containing_address(VirtAddr::new(at))
}

impl<'a> Tables<'a> {
    pub(crate) fn new(frames: &'a Frames) -> Self {
        let root = frames.alloc().expect("memory");
        frames.clear(root);
        let table: *mut PageTable = frames.ptr(root).cast();
        // SAFETY: a page of zeros, aligned, is a table; it stays while `frames` is borrowed,
        // and is nobody else's until `drop` frees it.
        let table = unsafe { &mut *table };
        let direct_map = VirtAddr::from_ptr(frames.ptr(Pfn(0)));
        // SAFETY: all frames lie behind the first, and the table is the root of no others yet.
        let mapper = unsafe { OffsetPageTable::new(table, direct_map) };
        Self {
            mapper,
            root,
            source: Source(frames),
        }
    }

    /// The frame at `at` and what it allows.
    pub(crate) fn find(&self, at: u64) -> Option<(Pfn, PageTableFlags)> {
        match self.mapper.translate(VirtAddr::new(at)) {
            TranslateResult::Mapped {
                frame: MappedFrame::Size4KiB(frame),
                flags,
                ..
            } => Some((pfn(frame), flags)),
            _ => None,
        }
    }

    pub(crate) fn map(&mut self, at: u64, frame: Pfn, flags: PageTableFlags) {
        let (page, frame) = (page(at), phys(frame));
        // SAFETY: no CPU walks the tables.
        let done = unsafe { self.mapper.map_to(page, frame, flags, &mut self.source) };
        done.expect("memory, and no page there").ignore();
    }

    /// What was mapped at `at`, no more.
    pub(crate) fn unmap(&mut self, at: u64) -> Option<Pfn> {
        let (frame, flush) = self.mapper.unmap(page(at)).ok()?;
        flush.ignore();
        Some(pfn(frame))
    }

    /// A page that was not touched has no entry, and gets none.
    pub(crate) fn protect(&mut self, at: u64, flags: PageTableFlags) {
        // SAFETY: no CPU walks the tables.
        let done = unsafe { self.mapper.update_flags(page(at), flags) };
        if let Ok(flush) = done {
            flush.ignore();
        }
    }
}

impl Drop for Tables<'_> {
    fn drop(&mut self) {
        // SAFETY: no CPU walks the tables, so those without entries have no use.
        unsafe { self.mapper.clean_up(&mut self.source) };
        self.source.0.free(self.root);
    }
}
