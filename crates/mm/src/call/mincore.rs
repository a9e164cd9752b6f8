//! mincore: which pages are there.
//!
//! Linux: mm/mincore.c (v6.18). A page of anonymous memory is in core if its entry maps one, be it
//! the page of zeros or one that nobody may access now.

use super::as_call;
use crate::error::MincoreError;
use crate::event::Event;
use crate::mm::Mm;
use crate::vma::Vma;
use crate::zap::pages;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging, Walk, walk};

/// Pages looked at before others may have `mmap_lock`.
const BATCH: usize = 4096;

impl<M: Mmu> Mm<M> {
    /// Says of each page of `len` bytes (rounded up to pages) from `start` on whether it is in
    /// core: 1, else 0. A hint only: a moment later it may be otherwise.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading, for each mapping and some thousand pages
    /// anew.
    ///
    /// # Errors
    /// See [`MincoreError`]. What lies before a hole has been written.
    pub fn mincore(
        &self,
        start: VirtAddr,
        len: u64,
        in_core: &mut [u8],
    ) -> Result<(), MincoreError> {
        as_call(self.system(), || {
            self.system().count(Event::Mincore);
            if !start.is_aligned(M::Paging::SHIFT) {
                return Err(MincoreError::Invalid);
            }
            let user = VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::USER_END));
            let asked = VirtRange::from_len(start, len).filter(|asked| user.covers(*asked));
            let asked = asked.ok_or(MincoreError::NoMemory)?;
            let count = asked.len().div_ceil(M::Paging::PAGE) as usize;
            let mut answer = in_core.get_mut(..count).ok_or(MincoreError::Fault)?;
            let mut at = start;
            while !answer.is_empty() {
                let done = self.look(at, answer)?;
                answer = answer.split_at_mut(done).1;
                at = VirtAddr(at.0 + done as u64 * M::Paging::PAGE);
            }
            Ok(())
        })
    }

    /// Looks at the pages of one mapping from `at` on; returns how many.
    fn look(&self, at: VirtAddr, answer: &mut [u8]) -> Result<usize, MincoreError> {
        let _held = self.mmap_lock.read();
        let range = self.find(at).map(Vma::view).map(|view| view.range);
        let range = range.filter(|range| range.contains(at));
        let end = range.ok_or(MincoreError::NoMemory)?.end();
        let rest = VirtRange::new(at, end);
        let mut done = 0;
        for (page, there) in pages::<M>(rest).zip(answer.iter_mut().take(BATCH)) {
            *there = u8::from(self.is_mapped(page.start()));
            done += 1;
        }
        Ok(done)
    }

    /// Whether an entry maps a page at `addr`. The caller holds `mmap_lock`.
    fn is_mapped(&self, addr: VirtAddr) -> bool {
        // SAFETY: 1: `mmap_lock` keeps tables from being freed.
        match unsafe { walk::<M>(&self.system().at, self.root, addr) } {
            Walk::Leaf(leaf) => leaf.entry.load().is_mapped(),
            Walk::Missing { .. } => false,
        }
    }
}
