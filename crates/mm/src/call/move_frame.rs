//! Migrates the page in a given frame, where only the frame number is known.
//!
//! Memory that shall be taken out of use, or made one free block, is looked at by frames: whose
//! page is in them, and at what address, nobody knows who comes this way. So no `mmap_lock` is held
//! and nothing keeps the page's mappings as they are, but what the reverse map's own lock keeps.
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
    /// Moves the page of user memory in frame `pfn` to the memory of `node`, for everybody who maps
    /// it.
    ///
    /// # Context
    /// Holds nothing. Sleeps for the page, and for its reverse map; waits for CPUs to forget
    /// translations.
    ///
    /// # Correctness
    /// A frame that was allocated just now is nobody's to lock but its owner's, who takes it for
    /// granted. A page that is mapped while we have a reference is past that, and stays so.
    ///
    /// # Errors
    /// See [`MovePageError`]; there is no page where nobody maps one. `Busy` of a private mapping's
    /// own huge page, which is moved by its address only.
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
