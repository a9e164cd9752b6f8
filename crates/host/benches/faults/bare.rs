//! The loops without the system: what they cost is what this machine costs.

use crate::common::machine::machine;
use core::hint::black_box;
use minflt_addr::Pfn;
use minflt_host::{Host, HostInstance, RamError};
use minflt_pgtable::{Mmu, X86_64};
use minflt_sync::Instance;
use minflt_sync::prim::{AtomicU64, Ordering};

const PAGE: usize = 4096;

/// A region of the process that no system lies in.
#[derive(Debug)]
pub(crate) struct Region {
    machine: HostInstance,
}

/// A word on lines of its own.
#[repr(align(128))]
struct Apart(AtomicU64);

impl Region {
    /// `pages` pages that the host has found memory for.
    pub(crate) fn new(pages: u64) -> Result<Self, RamError> {
        machine(1, pages as usize * PAGE).map(|machine| Self { machine })
    }

    fn page(&self, page: u64) -> *mut u8 {
        let ram = self.machine.ram();
        let offset = page as usize * PAGE;
        assert!(offset + PAGE <= ram.bytes, "the region has no page {page}");
        // SAFETY: within the region, by the line above.
        unsafe { ram.base.add(offset) }
    }

    /// The bare clear: all pages from `first` on, one by one.
    pub(crate) fn clear(&self, first: u64, pages: u64) {
        for page in first..first + pages {
            // SAFETY: a whole page of the region, which only the calling thread uses.
            unsafe { black_box(self.page(page)).write_bytes(0, PAGE) };
        }
    }

    /// The same by the verb that faults use.
    pub(crate) fn machines_clear(&self, first: u64, pages: u64) {
        for page in first..first + pages {
            <Host<X86_64, false> as Mmu>::clear(&self.machine, Pfn(page));
        }
    }

    /// The loop without a system: per page one store to it, as the access that a fault is taken for
    /// makes, and four exchanges of a word of the thread's own, about as many as a fault's locks.
    pub(crate) fn touch(&self, first: u64, pages: u64, progress: impl Fn(u64)) -> u64 {
        let own = Apart(AtomicU64::new(0));
        for page in first..first + pages {
            if page.is_multiple_of(64) {
                progress(page - first);
            }
            for _ in 0..4 {
                black_box(&own).0.fetch_add(1, Ordering::AcqRel);
            }
            // SAFETY: 8 bytes of a page of the region, aligned, alive as long as it.
            let word = unsafe { AtomicU64::from_ptr(self.page(page).cast()) };
            word.store(page, Ordering::Relaxed);
        }
        own.0.load(Ordering::Relaxed)
    }
}
