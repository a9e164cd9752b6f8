//! Lookup and creation of one page-cache page.

use super::index::InOrder;
use super::{FileHandle, PageCache};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::entry::zap::Only;
use crate::memory::frame::Use;
use crate::pages::page::{Locked, Page};
use core::ops::Range;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Ordering};

/// What came of looking for a page.
pub(crate) enum Sought<'c, M: Mmu> {
    /// It is there, whole, and within the file.
    Locked(Locked<'c, M>),
    /// It has to be read in first, which may take long.
    Absent,
    /// The file ends before it, or it is hardware-poisoned.
    Beyond,
}

/// What came of one look at a slot of the index.
pub(crate) enum Looked<'c, M: Mmu> {
    /// The page is cached.
    Found(Page<'c, M>),
    /// It is not.
    Absent,
    /// Its references are frozen ([`super::reclaim`], [`crate::pages::migrate`]), or it is another
    /// page's frame by now.
    Busy,
}

impl<M: Mmu> PageCache<M> {
    /// Page `index`, if it is cached. Retries while its reference count is frozen: the caller holds
    /// no spinlock.
    ///
    /// # Races
    /// Between the lookup of the slot and the reference the frame may be freed and reused. So the
    /// slot is reread: if it still names the frame, the cache held its reference all the time
    /// (P21).
    ///
    /// Linux: filemap_get_entry.
    #[inline]
    pub(crate) fn find(&self, index: u64) -> Option<Page<'_, M>> {
        let slot = self.index.slot(index)?;
        loop {
            match self.look(slot) {
                Looked::Found(page) => return Some(page),
                Looked::Absent => return None,
                Looked::Busy => {}
            }
        }
    }

    /// One lookup, without waiting; for pages in order.
    #[inline]
    pub(crate) fn look_next(&self, slots: &mut InOrder<'_, M>, index: u64) -> Looked<'_, M> {
        let slot = slots.slot(index);
        slot.map_or(Looked::Absent, |slot| self.look(slot))
    }

    /// The slots of pages that are looked for in order.
    pub(crate) const fn in_order(&self) -> InOrder<'_, M> {
        self.index.in_order()
    }

    #[inline]
    fn look(&self, slot: &Atomic<u64, M>) -> Looked<'_, M> {
        let sys = self.system();
        // ORDERING: Acquire; pairs with [cache-slot].
        let found = slot.load(Ordering::Acquire);
        if found == 0 {
            return Looked::Absent;
        }
        let pfn = super::named(found);
        if !sys.frames.try_hold(pfn) {
            return Looked::Busy;
        }
        let page = Page::held(sys, pfn);
        // ORDERING: Acquire; pairs with [cache-slot].
        if slot.load(Ordering::Acquire) == found || sys.lacks(NegativeControl::CachedUnchecked) {
            Looked::Found(page)
        } else {
            Looked::Busy
        }
    }

    /// Asks for the descriptors of those pages of a range that are cached, of the first so many:
    /// they are looked for with a lock held.
    #[inline]
    pub(crate) fn prefetch(&self, range: Range<u64>) {
        /// Lines that are under way at once, and some.
        const AT_ONCE: u64 = 64;
        if !M::PREFETCHES {
            return;
        }
        let frames = &self.system().frames;
        let mut slots = self.in_order();
        let range = range.start..range.end.min(range.start + AT_ONCE);
        slots.prefetch(range.clone());
        for slot in range.filter_map(|index| slots.slot(index)) {
            let found = slot.load(Ordering::Relaxed);
            if found != 0 {
                M::prefetch_write(core::ptr::from_ref(frames.get(super::named(found))).cast());
            }
        }
    }

    /// Whether page `index` is cached, and whole.
    pub(crate) fn has(&self, index: u64) -> bool {
        let page = self.find(index);
        page.is_some_and(|page| page.frame().is_uptodate())
    }

    /// Page `index`, locked, whole and within the file; made where the file is memory only.
    ///
    /// # Context
    /// Sleeps for the lock of a page, but not for one that is being read in.
    ///
    /// # Errors
    /// No memory for a new page.
    ///
    /// Linux: filemap_fault, shmem_fault.
    pub(crate) fn seek(&self, index: u64) -> Result<Sought<'_, M>, NoMemory> {
        loop {
            if index >= self.pages() {
                return Ok(Sought::Beyond);
            }
            let Some(page) = self.find(index) else {
                if self.ops.is_some() {
                    return Ok(Sought::Absent);
                }
                match self.make_zeros(index)? {
                    Some(page) => return Ok(Sought::Locked(page)),
                    None => continue,
                }
            };
            let page = match page.try_lock() {
                Ok(page) => page,
                Err(page) if self.ops.is_some() && !page.frame().is_uptodate() => {
                    return Ok(Sought::Absent);
                }
                Err(page) => page.lock(),
            };
            if !page.is(self, index) {
                continue;
            }
            // With the page locked: truncation reaches this page later, or has already passed it.
            let within =
                index < self.pages() || self.system().lacks(NegativeControl::SizeBeforeLock);
            if !within || page.frame().is_poisoned() {
                return Ok(Sought::Beyond);
            }
            if !page.frame().is_uptodate() {
                return Ok(Sought::Absent);
            }
            return Ok(Sought::Locked(page));
        }
    }

    /// A new zeroed page; `None` if another thread was faster, or the file was truncated.
    fn make_zeros(&self, index: u64) -> Result<Option<Locked<'_, M>>, NoMemory> {
        let Some(page) = self.make(index)? else {
            return Ok(None);
        };
        let sys = self.system();
        if !page.frame().is_zeroed() {
            M::clear(&sys.at, page.pfn());
        }
        page.frame().set_uptodate();
        Ok(Some(page))
    }

    /// A new page, locked, with arbitrary contents; `None` if another thread was faster, or the
    /// file was truncated.
    pub(crate) fn make(&self, index: u64) -> Result<Option<Locked<'_, M>>, NoMemory> {
        let sys = self.system();
        let slot = self.index.slot_for(sys, index)?;
        let pfn = sys.frames.alloc(&sys.at, Use::File).ok_or(NoMemory)?;
        let frame = sys.frames.get(pfn);
        // Reclaim may look for a moment what it is: nothing, until it is locked.
        let locked = Page::held(sys, pfn).lock();
        frame.mapping.store(self.address(), Ordering::Relaxed);
        frame.index.store(index, Ordering::Relaxed);
        frame.maps.store(0, Ordering::Relaxed);
        // The cache's.
        frame.refs.add(1, Ordering::Relaxed);
        // ORDERING: Release; pairs with [cache-slot].
        let put_in = slot.cas(0, pfn.0, Ordering::AcqRel, Ordering::Relaxed);
        if put_in.is_err() {
            frame.mapping.store(0, Ordering::Relaxed);
            frame.refs.sub(1, Ordering::Relaxed);
            return Ok(None);
        }
        // ORDERING: fence SeqCst; pairs with [file-resize]: the page is there before the size is
        // looked at.
        M::fence(Ordering::SeqCst);
        if index >= self.pages() && !sys.lacks(NegativeControl::SizeBeforeLock) {
            self.take_out(index, &locked);
            return Ok(None);
        }
        Ok(Some(locked))
    }

    /// Replaces the frame of page `index`, which is locked and has no other references, by `pfn`,
    /// which the caller has locked, too.
    pub(crate) fn replace(&self, index: u64, pfn: Pfn) {
        if let Some(slot) = self.index.slot(index) {
            // ORDERING: Release; pairs with [cache-slot].
            slot.store(pfn.0, Ordering::Release);
        }
    }

    /// Takes a locked page out of the cache. Nobody maps it any more, or will.
    pub(crate) fn take_out(&self, index: u64, page: &Locked<'_, M>) {
        if let Some(slot) = self.index.slot(index) {
            slot.store(0, Ordering::Relaxed);
        }
        page.frame().clean();
        page.frame().mapping.store(0, Ordering::Relaxed);
        self.system().frames.put(page.pfn());
    }
}

impl<M: Mmu> FileHandle<'_, M> {
    /// Marks a cached page as hardware-poisoned: an access from now on raises SIGBUS, and it is not
    /// mapped again. Returns whether the page is cached. Not supported for hugetlb files: does
    /// nothing.
    ///
    /// Linux: memory_failure, of which this is the part that a fault sees.
    pub fn poison(&self, index: u64) -> bool {
        let cache = self.cache();
        let Some(page) = cache.find(index).filter(|_| !cache.is_huge()) else {
            return false;
        };
        let page = page.lock();
        let here = page.is(cache, index);
        if here {
            page.frame().set_poisoned();
            cache.unmap(index, index, Only::OfFile);
        }
        here
    }
}

impl<M: Mmu> Locked<'_, M> {
    /// Whether it is page `index` of the cache now: it may have been truncated before it was
    /// locked.
    pub(crate) fn is(&self, cache: &PageCache<M>, index: u64) -> bool {
        let frame = self.frame();
        frame.mapping.load(Ordering::Relaxed) == cache.address()
            && frame.index.load(Ordering::Relaxed) == index
    }
}
