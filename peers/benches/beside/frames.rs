//! A peer's memory, and which of its frames are free: a bitmap behind a spin lock, as ArceOS's
//! kernels have it. Both peers have the same.
//!
//! The memory is a host machine's, as minflt's is: equally aligned, in large pages where the host
//! has them, cleared and copied by the same instructions. One thing differs: minflt's fills also
//! prefetch the frame that is allocated next, a peer's with `--fill prefetch-next` only.

use crate::common::machine::{M, PAGE, machine};
use crate::side::MEMORY;
use bitmap_allocator::{BitAlloc, BitAlloc1M};
use minflt_addr::Pfn;
use minflt_host::{HostInstance, RamError};
use minflt_pgtable::Mmu;
use spin::Mutex;

/// What a clear or copy of a frame prefetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fill {
    /// Nothing of other frames.
    Alone,
    /// The lines of the frame behind it, which is the bitmap's next if it is free, as minflt's
    /// fills do with the next frame of the CPU's list.
    PrefetchNext,
}

/// Memory of a peer's own.
pub(crate) struct Frames {
    at: HostInstance,
    fill: Fill,
    free: Mutex<BitAlloc1M>,
}

impl Frames {
    pub(crate) fn new(fill: Fill) -> Result<Self, RamError> {
        let mut free = BitAlloc1M::DEFAULT;
        // Without frame 0: to page_table_multiarch an entry with its address has no table.
        free.insert(1..(MEMORY / PAGE) as usize);
        Ok(Self {
            fill,
            at: machine(2, MEMORY as usize)?,
            free: Mutex::new(free),
        })
    }

    pub(crate) fn alloc(&self) -> Option<Pfn> {
        let frame = self.free.lock().alloc()?;
        Some(Pfn(frame as u64))
    }

    pub(crate) fn free(&self, frame: Pfn) {
        self.free.lock().dealloc(frame.0 as usize);
    }

    /// Where the kernel reaches a frame: its direct map.
    pub(crate) fn ptr(&self, frame: Pfn) -> *mut u8 {
        M::frame_ptr(&self.at, frame)
    }

    pub(crate) fn clear(&self, frame: Pfn) {
        M::clear_before(&self.at, frame, self.next(frame));
    }

    pub(crate) fn copy(&self, to: Pfn, from: Pfn) {
        M::copy_before(&self.at, to, from, self.next(to));
    }

    fn next(&self, frame: Pfn) -> Option<Pfn> {
        let next = frame.0 + 1;
        (self.fill == Fill::PrefetchNext && next < MEMORY / PAGE).then_some(Pfn(next))
    }

    /// The first word of a page, as user code loads it.
    pub(crate) fn load(&self, frame: Pfn) -> u64 {
        M::user_load(&self.at, frame, 0)
    }

    /// The first word of a page, as user code stores it.
    pub(crate) fn store(&self, frame: Pfn, value: u64) {
        M::user_store(&self.at, frame, 0, value);
    }

    /// Clears every free frame: minflt writes to all of its own, too, before first touches.
    pub(crate) fn clear_free(&self) {
        let free = self.free.lock();
        for frame in (1..MEMORY / PAGE).filter(|frame| free.test(*frame as usize)) {
            M::clear(&self.at, Pfn(frame));
        }
    }
}
