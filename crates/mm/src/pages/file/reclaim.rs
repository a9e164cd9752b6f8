//! Reclaim of a clean page-cache page.
//!
//! # Protocol
//! ```text
//! the page locked, nobody maps it, it is not being written
//! references: the cache's and the caller's -> none, in one exchange ("frozen")
//! clean? else they come back
//! the slot is empty
//! ```
//!
//! # Why it is correct
//! Who looks the page up takes a reference first: either before, and then it is not frozen; or he
//! finds none to take, and looks at the slot again until it is empty. Nobody stores to a page
//! without a reference or an entry, so a frozen page that is clean stays so. The next who wants it
//! reads it in again.
//!
//! Linux: mm/vmscan.c __remove_mapping, folio_ref_freeze.

use super::PageCache;
use crate::pages::page::Locked;
use minflt_pgtable::Mmu;
use minflt_sync::Ordering;

impl<M: Mmu> PageCache<M> {
    /// Drops a page of this cache that the caller has locked, and nobody maps or writes; false,
    /// with the page left as it is, if somebody else refers to it or it is dirty.
    pub(crate) fn drop_clean(&self, page: Locked<'_, M>) -> bool {
        let frame = page.frame();
        let index = frame.index.load(Ordering::Relaxed);
        let Some(slot) = self.index.slot(index) else {
            return false;
        };
        // ORDERING: AcqRel; pairs with [frame-put]: what others did to the page is done.
        if frame
            .refs
            .cas(2, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        if frame.is_dirty() {
            // ORDERING: Release; pairs with [frame-put].
            frame.refs.store(2, Ordering::Release);
            return false;
        }
        slot.store(0, Ordering::Relaxed);
        frame.mapping.store(0, Ordering::Relaxed);
        // Ours, which the end of `page` puts back. Whoever takes one in between looks at the slot
        // again.
        // ORDERING: Release; pairs with [frame-put]: and sees that it is empty.
        frame.refs.store(1, Ordering::Release);
        true
    }
}
