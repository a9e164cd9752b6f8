//! mincore: which pages are there.
//!
//! Linux: mm/mincore.c (v6.18). A page of anonymous memory is in core if its entry maps one, be it
//! the page of zeros or one that nobody may access now, and not if it is swapped out. A page of a
//! file is, if it is cached.

use crate::base::error::MincoreError;
use crate::base::event::Event;
use crate::entry::zap::pages;
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Leaf, Missing, Mmu, NonPresent, Paging, Table, Walk, span_of, walk};

/// Noted of a page that is swapped out, which is in core nowhere.
const SWAPPED: u8 = 2;
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
            if !start.is_aligned(M::Paging::shift()) {
                return Err(MincoreError::Invalid);
            }
            let user = VirtRange::new(VirtAddr(0), Self::user_range().end());
            let asked = VirtRange::from_len(start, len).filter(|asked| user.covers(*asked));
            let asked = asked.ok_or(MincoreError::NoMemory)?;
            let count = asked.len().div_ceil(M::Paging::page()) as usize;
            let mut answer = in_core.get_mut(..count).ok_or(MincoreError::Fault)?;
            let mut at = start;
            while !answer.is_empty() {
                let done = self.look(at, answer)?;
                answer = answer.split_at_mut(done).1;
                at = VirtAddr(at.0 + done as u64 * M::Paging::page());
            }
            Ok(())
        })
    }

    /// Looks at the pages of one mapping from `at` on; returns how many.
    fn look(&self, at: VirtAddr, answer: &mut [u8]) -> Result<usize, MincoreError> {
        let guard = self.mmap_lock.read();
        let view = self.held(&guard).find(at).map(Vma::view);
        let view = view.filter(|view| view.range.contains(at));
        let view = view.ok_or(MincoreError::NoMemory)?;
        let end = view.range.end();
        let most = answer.len().min(BATCH) as u64 * M::Paging::page();
        let asked = VirtRange::new(at, VirtAddr(end.0.min(at.0 + most)));
        let whole = answer;
        if view.is_huge() {
            // Linux: mincore_hugetlb. What is not mapped may be cached, which it does not say. The
            // lock keeps tables that others have, too, and pages where they are.
            let cache = view.cache::<M>();
            let _tree = cache.map(|cache| cache.i_mmap.read());
            for (page, there) in pages::<M>(asked).zip(whole) {
                let entry = self
                    .huge_entry(view.huge_size(), page.start())
                    .map(|leaf| leaf.entry.load());
                *there = u8::from(entry.is_ok_and(|pte| pte.is_mapped()));
            }
            return Ok(asked.pages(M::Paging::shift()) as usize);
        }
        let mut answer = whole.iter_mut();
        let mut at = asked.start();
        while at < asked.end() {
            let here = VirtRange::new(at, asked.end());
            // SAFETY: 1: `mmap_lock` keeps tables from being freed.
            at = match unsafe { walk::<M>(&self.system().at, self.root, at) } {
                Walk::Leaf(leaf) => {
                    let span = span_of::<M::Paging>(at, 1).intersect(here);
                    self.look_at_table(leaf, span, answer.by_ref());
                    span.end()
                }
                Walk::Missing(Missing { level, .. }) => {
                    let span = span_of::<M::Paging>(at, level).intersect(here);
                    for (_, there) in pages::<M>(span).zip(answer.by_ref()) {
                        *there = 0;
                    }
                    span.end()
                }
            };
        }
        let cache = view.cache::<M>();
        for (page, there) in pages::<M>(asked).zip(whole) {
            let cached = || {
                let index = view.page_index::<M::Paging>(page.start());
                cache.is_some_and(|cache| cache.has(index))
            };
            *there = u8::from(*there == 1 || *there == 0 && cached());
        }
        Ok(asked.pages(M::Paging::shift()) as usize)
    }

    /// Which entries of a table map a page. Under its lock: a fault that has opened its slot there
    /// without `mmap_lock` is waited for, and what is not there then was not begun before.
    ///
    /// Linux: mincore_pte_range.
    fn look_at_table<'a>(
        &self,
        leaf: Leaf<'_, M>,
        span: VirtRange,
        answer: impl Iterator<Item = &'a mut u8>,
    ) {
        let _held = self.table_lock(leaf.table).lock();
        // SAFETY: 1: a table, kept by `mmap_lock`.
        let table = unsafe { Table::<M>::at(&self.system().at, leaf.table, 0) };
        for (page, there) in pages::<M>(span).zip(answer) {
            let found = table.entry_for(page.start(), 0).load();
            *there = match found.nonpresent() {
                Some(NonPresent::Swap(_)) => SWAPPED,
                Some(NonPresent::Migration(_)) => 1,
                None => u8::from(found.is_mapped()),
            };
        }
    }
}
