//! mincore: reports which pages are resident.
//!
//! Linux: mm/mincore.c (v6.18). An anonymous page is resident if its PTE maps a page, be it the
//! zero page or a `PROT_NONE` page, and not if it is swapped out. A file page is resident if it is
//! cached.

use crate::base::error::MincoreError;
use crate::base::event::Event;
use crate::entry::walk::{Tables, pages};
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Leaf, Mmu, NonPresent, Paging};

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
        let guard = self.read(Over::at(at));
        let held = guard.held();
        let view = held.find(at).map(Vma::view);
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
                let entry = held
                    .tables()
                    .huge_entry(view.huge_size(), page.start())
                    .map(|leaf| leaf.entry.load());
                *there = u8::from(entry.is_ok_and(|pte| pte.is_mapped()));
            }
            return Ok(asked.pages(M::Paging::shift()) as usize);
        }
        let mut answer = whole.iter_mut();
        let mut at = asked.start();
        while at < asked.end() {
            let (table, part) = held.tables().part(at, asked);
            match table {
                Some(leaf) => look_at_table(held.tables(), leaf, part, answer.by_ref()),
                None => {
                    for (_, there) in pages::<M>(part).zip(answer.by_ref()) {
                        *there = 0;
                    }
                }
            }
            at = part.end();
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
}

/// Which entries of a table map a page. Under its lock: a fault that has opened its slot there
/// without `mmap_lock` is waited for, and what is not there then was not begun before.
///
/// Linux: mincore_pte_range.
fn look_at_table<'a, M: Mmu>(
    tables: Tables<'_, M>,
    leaf: Leaf<'_, M>,
    part: VirtRange,
    mut answer: impl Iterator<Item = &'a mut u8>,
) {
    tables.each_entry(leaf, part, |_, entry| {
        if let Some(there) = answer.next() {
            let found = entry.load();
            *there = match found.nonpresent() {
                Some(NonPresent::Swap(_)) => SWAPPED,
                Some(NonPresent::Migration(_)) => 1,
                None => u8::from(found.is_mapped()),
            };
        }
    });
}
