//! Migrates the page in a given frame, where only the frame number is known.
//!
//! Memory offlining and compaction go by frame number: they know neither the address space nor the
//! address of the page in a frame. So no `mmap_lock` is held, and the page's mappings may change
//! except while the reverse map's own lock is held.
//!
//! Linux: mm/memory-failure.c soft_offline_page, mm/compaction.c isolate_migratepages_block.

use crate::base::error::MovePageError;
use crate::memory::frame::Use;
use crate::pages::page::Page;
use crate::system::System;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::Ordering;

impl<M: Mmu> System<M> {
    /// Migrates the page of user memory in frame `pfn` to the memory of `node`, in all mappings.
    ///
    /// # Context
    /// Holds nothing. Sleeps for the page, and for its reverse map; waits for TLB flushes.
    ///
    /// # Correctness
    /// A newly allocated frame may be locked by its owner only, which does not expect contention. A
    /// page that is mapped while the caller has a reference is past that state for good.
    ///
    /// # Errors
    /// See [`MovePageError`]; an unmapped page counts as none. `Busy` for a private mapping's own
    /// huge page, which is migrated by address only.
    pub fn move_frame(&self, pfn: Pfn, node: u32) -> Result<(), MovePageError> {
        if node >= self.frames.nodes() {
            return Err(MovePageError::NoNode);
        }
        let table = &self.frames.table;
        let there = table.first() <= pfn && pfn.0 - table.first().0 < table.len();
        if !there || !self.frames.try_hold(pfn) {
            return Err(MovePageError::NotThere);
        }
        let page = Page::held(self, pfn);
        let user = matches!(page.frame().used_as(), Use::Anon | Use::File | Use::Huge);
        // ORDERING: Acquire; pairs with [frame-maps].
        if !user || page.frame().maps.load(Ordering::Acquire) == 0 {
            return Err(MovePageError::NotThere);
        }
        if self.frames.node_of(pfn) == node {
            return Ok(());
        }
        if page.frame().used_as() == Use::Huge {
            return self.move_huge_frame(page, node);
        }
        Ok(self.migrate_unheld(page.lock(), node)?)
    }
}
