//! Reference counts of frames: dropping the last reference frees the frame.

use super::Frames;
use crate::memory::frame::Use;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::Ordering;

impl<M: Mmu> Frames<M> {
    /// Drops a reference; the last one frees the frame. Whether it was the last.
    #[inline]
    pub(crate) fn put(&self, pfn: Pfn) -> bool {
        self.put_many(pfn, 1)
    }

    /// Takes a reference to a frame that may be free or reused: false, with none taken, if its
    /// count is 0. The caller must then recheck what the frame is.
    ///
    /// Linux: folio_try_get.
    #[inline]
    pub(crate) fn try_hold(&self, pfn: Pfn) -> bool {
        let refs = &self.get(pfn).refs;
        let mut found = refs.load(Ordering::Relaxed);
        // Pins are refused far below; lookups in progress are at most as many as tasks.
        while found != 0 && found < u32::MAX {
            // ORDERING: Acquire; pairs with [frame-put].
            match refs.cas(found, found + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => found = now,
            }
        }
        false
    }

    /// Takes `count` references for a holder to a frame that has some; false, with none taken,
    /// where it has so many that their number could wrap, and the frame be freed under them.
    ///
    /// Linux: try_grab_folio.
    pub(crate) fn hold(&self, pfn: Pfn, count: u32) -> bool {
        let before = self.get(pfn).refs.add(count, Ordering::Relaxed);
        let fits = before <= u32::MAX / 2;
        if !fits {
            self.put_many(pfn, count);
        }
        fits
    }

    /// Drops `count` references; the last one frees the frame. Whether the last was among them.
    #[inline(always)]
    pub(crate) fn put_many(&self, pfn: Pfn, count: u32) -> bool {
        // ORDERING: Release; pairs with [frame-put].
        let before = self.get(pfn).refs.sub(count, Ordering::AcqRel);
        if before == count {
            // ORDERING: Acquire, by the same step; pairs with [frame-put].
            self.free_whole(pfn);
        } else if before < count {
            M::violation(format_args!("reference count underflow of frame {pfn}"));
        }
        before == count
    }

    /// Frees what the frame is the first of: usually itself. A reference that was taken to find out
    /// what a frame is may be the last one of a block.
    #[inline(always)]
    fn free_whole(&self, pfn: Pfn) {
        match self.get(pfn).block_order() {
            0 => self.free(pfn),
            order => self.free_large(pfn, order),
        }
    }

    #[inline(never)]
    fn free_large(&self, pfn: Pfn, order: u32) {
        if self.get(pfn).used_as() == Use::Huge {
            self.free_huge(pfn);
        } else {
            self.free_block(pfn, order);
        }
    }
}
