//! mremap of hugetlb mappings: shrinks or moves, never grows.
//!
//! Of a shared mapping the pages are the file's, and found there again by faults at the new place.
//! A private mapping's entries are moved one by one, and with them goes what it has set aside: to
//! the new mapping, while the old one says that it has nothing.
//!
//! Linux: mm/mremap.c check_prep_vma, mm/hugetlb.c move_hugetlb_page_tables,
//! clear_vma_resv_huge_pages (v6.18).

use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::error::NoMemory;
use crate::entry::zap::Zap;
use crate::pages::file::PageCache;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use minflt_addr::VirtAddr;
use minflt_pgtable::{Mmu, Pte};

impl<M: Mmu> Held<'_, M> {
    /// Tables for huge pages from `to` on, as many as `old` has private entries.
    ///
    /// # Context
    /// Under `mmap_lock` for writing; nothing is mapped at the new place.
    ///
    /// # Errors
    /// No memory. Some tables may be there then.
    pub(crate) fn make_huge_room(self, old: &VmaView, to: VirtAddr) -> Result<(), NoMemory> {
        if old.flags.has(VmaFlags::SHARED) {
            return Ok(());
        }
        let size = old.huge_size();
        for page in size.pages::<M::Paging>(old.range) {
            if self.tables().huge_entry(size, page.start()).is_ok() {
                let moved = page.start().0 - old.range.start().0;
                self.tables().huge_entry_for(size, VirtAddr(to.0 + moved))?;
            }
        }
        Ok(())
    }

    /// Moves the pages of the mapping `vma`, which is all of `old`, to `to`, where there are tables
    /// for them.
    ///
    /// # Context
    /// Under `mmap_lock` for writing, with the sections of both mappings open. Sleeps; waits for
    /// TLB flushes.
    pub(crate) fn move_huge(self, vma: &Vma<M>, old: &VmaView, to: VirtAddr) {
        let mut zap = Zap::begin(self.tables(), old.range);
        if old.flags.has(VmaFlags::SHARED) {
            zap.huge_gone(vma, old);
        } else if let Some(cache) = old.cache::<M>() {
            zap.move_private(cache, old, to);
        }
        zap.finish();
    }
}

impl<M: Mmu> Zap<'_, M> {
    fn move_private(&mut self, cache: &PageCache<M>, old: &VmaView, to: VirtAddr) {
        let (tables, mm, sys) = (self.tables, self.mm(), self.mm().system());
        let _tree = cache.i_mmap.write();
        let size = old.huge_size();
        for page in size.pages::<M::Paging>(old.range) {
            let moved = VirtAddr(to.0 + (page.start().0 - old.range.start().0));
            let (Ok(from), Ok(to)) = (
                tables.huge_entry(size, page.start()),
                tables.huge_entry(size, moved),
            ) else {
                continue;
            };
            // Nobody faults at either place; what is there is nobody else's to change.
            let taken = {
                let _held = sys.huge_lock(from.table).lock();
                from.entry
                    .swap(mm.exchange_of_huge(), Pte::none_at(size.level()))
            };
            if taken.is_none_at(size.level()) {
                continue;
            }
            self.gather.touch(page);
            let _held = sys.huge_lock(to.table).lock();
            to.entry.store(taken);
        }
        // Before the new place can be stored to.
        self.flush();
    }
}

impl<M: Mmu> Vma<M> {
    /// What the mapping has set aside is another's now, which shares it.
    ///
    /// # Context
    /// Under `mmap_lock` for writing, with the section open. Sleeps for `i_mmap`.
    pub(crate) fn forget_own(&self) {
        if let Some(cache) = self.view().cache::<M>() {
            self.drop_own(cache.system());
        }
    }
}
