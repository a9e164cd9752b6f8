//! Reclaim of one frame at the clock's hand.

use crate::entry::zap::{Only, Zap};
use crate::memory::frame::Use;
use crate::pages::file::PageCache;
use crate::pages::page::{Locked, Page};
use crate::pages::rmap::away::To;
use crate::pages::rmap::owner::Owner;
use crate::system::System;
use core::ops::ControlFlow;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::Ordering;

/// What the entries of a page say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Used {
    /// Used since this was asked last.
    Yes,
    /// Not used.
    No,
    /// Whether or not: a mapping of it is locked.
    Locked,
}

/// Whether a page that was used goes all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spare {
    Used,
    Nothing,
}

impl<M: Mmu> System<M> {
    /// Gives the frame back if that is possible and what is in it was not used; says whether.
    pub(super) fn reclaim_frame(&self, pfn: Pfn) -> bool {
        // Most frames end here, with nothing written to their lines.
        if !self.may_be_reclaimed(pfn) || !self.frames.try_hold(pfn) {
            return false;
        }
        let page = Page::held(self, pfn);
        // Asked again, now that it stays what it is: only user memory that others can find already
        // may be locked by somebody who comes from nowhere.
        if !self.may_be_reclaimed(pfn) {
            return false;
        }
        page.try_lock()
            .is_ok_and(|page| self.reclaim_page(page, Spare::Used))
    }

    /// Whether a frame is user memory that others can find.
    fn may_be_reclaimed(&self, pfn: Pfn) -> bool {
        let frame = self.frames.get(pfn);
        match frame.used_as() {
            Use::Anon => self.swap.exists() && frame.maps.load(Ordering::Relaxed) > 0,
            Use::File => frame.mapping.load(Ordering::Relaxed) != 0,
            _ => false,
        }
    }

    /// The same of a page that is locked: whatever it is now.
    ///
    /// # Context
    /// Sleeps; holds what stands before the lock of a page, and that one.
    pub(crate) fn reclaim_page(&self, page: Locked<'_, M>, spare: Spare) -> bool {
        let Some(owner) = self.owner_of(&page) else {
            return false;
        };
        match &owner {
            Owner::File(cache) => self.reclaim_cached(cache, page, &owner, spare),
            _ if !self.swap.exists() || page.frame().may_be_pinned() => false,
            _ => self.may_go(&page, &owner, spare) && self.swap_out(page, &owner).is_ok(),
        }
    }

    /// Whether the entries that map the page say that it may go.
    fn may_go(&self, page: &Locked<'_, M>, owner: &Owner<'_, M>, spare: Spare) -> bool {
        match self.used(page, owner) {
            Used::Locked => false,
            Used::Yes => spare == Spare::Nothing,
            Used::No => true,
        }
    }

    /// Whether the page was used, by its entries' accessed bits, which are cleared. A CPU that
    /// buffers a translation does not set them again, and is not told: a page that is used by that
    /// alone looks older than it is, no more.
    ///
    /// Linux: folio_referenced.
    fn used(&self, page: &Locked<'_, M>, owner: &Owner<'_, M>) -> Used {
        let mut used = Used::No;
        let index = page.frame().index.load(Ordering::Relaxed);
        let _all = owner.each(index, |place| {
            if place.locked {
                used = Used::Locked;
                return ControlFlow::Break(());
            }
            let mut zap = Zap::begin_only(place.tables, place.range, Only::All);
            let aged = zap.change(place.range, |pte| {
                (pte.pfn() == page.pfn() && pte.is_young()).then(|| pte.old())
            });
            zap.forget();
            zap.finish();
            if aged > 0 {
                used = Used::Yes;
            }
            ControlFlow::Continue(())
        });
        used
    }

    /// A page of a file goes if it is on a device as well.
    ///
    /// Linux: shrink_folio_list, pageout, __remove_mapping.
    fn reclaim_cached(
        &self,
        cache: &PageCache<M>,
        page: Locked<'_, M>,
        owner: &Owner<'_, M>,
        spare: Spare,
    ) -> bool {
        let frame = page.frame();
        if !cache.writes_back() || frame.is_poisoned() || frame.is_in_writeback() {
            return false;
        }
        let maps = frame.maps.load(Ordering::Relaxed);
        // The cache's, ours, and those of entries.
        if frame.refs.load(Ordering::Relaxed) != maps + 2 {
            return false;
        }
        let unmapped =
            maps == 0 || self.may_go(&page, owner, spare) && self.put_away(&page, owner, To::File);
        if !unmapped {
            return false;
        }
        if !frame.is_dirty() {
            return cache.drop_clean(page);
        }
        // While it is written it is not locked, and the cache may go.
        let address = cache.address();
        let page = cache.write_locked(page).ok();
        let page = page.and_then(|page| page.try_lock().ok());
        page.is_some_and(|page| {
            let kept = page.frame().mapping.load(Ordering::Relaxed) == address;
            kept && cache.drop_clean(page)
        })
    }
}
