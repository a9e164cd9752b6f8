//! Copy-on-write sharing of huge pages between parent and child.
//!
//! A shared mapping's entries are not copied: the child's faults find the pages, or a table to
//! share. A page that is pinned is copied at once, and stays the parent's own
//! ([`crate::call::pin`]).
//!
//! Linux: mm/hugetlb.c copy_hugetlb_page_range; bcd51a3c679d.

use super::HugeSize;
use super::migrate::is_moving;
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::base::event::Event;
use crate::entry::walk::Tables;
use crate::entry::zap::Zap;
use crate::memory::alloc::pool::Taking;
use crate::memory::frame::Exclusive;
use crate::mm::Mm;
use crate::pages::page::Page;
use crate::space::arenas::look::Held;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{EntryRef, Grant, Leaf, Missing, Mmu, Pte, span_of};
use minflt_sync::Ordering;

impl<M: Mmu> Zap<'_, M> {
    /// Shares the pages of a private mapping with a child that nobody else has yet. The caller has
    /// the mapping's section open, and `mmap_lock` for writing.
    ///
    /// # Errors
    /// No memory for the child's tables.
    pub(crate) fn share_huge(
        &mut self,
        view: &VmaView,
        child: Held<'_, M>,
    ) -> Result<(), NoMemory> {
        if view.flags.has(VmaFlags::SHARED) {
            return Ok(());
        }
        let (mm, sys) = (self.mm(), self.mm().system());
        let size = view.huge_size();
        let mut at = view.range.start();
        while at < view.range.end() {
            let leaf = match self.tables.huge_entry(size, at) {
                Ok(leaf) => leaf,
                Err(Missing { level, .. }) => {
                    at = span_of::<M::Paging>(at, level).end();
                    continue;
                }
            };
            let page = size.page_at::<M::Paging>(at);
            let found = leaf.entry.load();
            if is_moving::<M>(size, found) && self.awaits_move(view) {
                continue;
            }
            at = page.end();
            if !found.is_mapped() {
                continue;
            }
            let copy = child.tables().huge_entry_for(size, page.start())?;
            if let Some(pinned) = self.hold_pinned(&leaf) {
                let new = self.copy_pinned(view, &pinned)?;
                // Who truncates comes to the parent first. It has been there, or comes to the child
                // after this.
                let _held = sys.huge_lock(leaf.table).lock();
                let found = leaf.entry.load();
                if found.is_mapped() && found.pfn() == pinned.pfn() {
                    let page = Pte::page(new, found.grant()).with_exec(found.exec());
                    copy.store(page.dirty().huge());
                } else {
                    sys.huge_frame(new).maps.store(0, Ordering::Relaxed);
                    sys.frames.put(new);
                }
                continue;
            }
            let _held = sys.huge_lock(leaf.table).lock();
            let lower = |pte: Pte<M::Paging>| {
                pte.is_mapped()
                    .then(|| pte.with_grant(pte.grant().min(Grant::Read)))
            };
            let old = match leaf.entry.update(mm.exchange_of_huge(), lower) {
                Ok(old) => old,
                Err(found) => {
                    // Put away since it was looked at.
                    if is_moving::<M>(size, found) {
                        at = page.start();
                    }
                    continue;
                }
            };
            self.gather.touch(page);
            let frame = sys.huge_frame(old.pfn());
            frame.refs.add(1, Ordering::Relaxed);
            frame.maps.add(1, Ordering::Relaxed);
            frame.set_exclusive(Exclusive::No);
            copy.store(old.with_grant(old.grant().min(Grant::Read)).old());
            sys.count(Event::ForkEntries);
        }
        Ok(())
    }
}

impl<'s, M: Mmu> Zap<'s, M> {
    /// The page that an entry maps, held, if it may be pinned, and so stays the parent's own.
    fn hold_pinned(&self, leaf: &Leaf<'_, M>) -> Option<Page<'s, M>> {
        let (mm, sys) = (self.mm(), self.mm().system());
        if !mm.pins.any() || sys.lacks(NegativeControl::ForkSharesPinned) {
            return None;
        }
        let _held = sys.huge_lock(leaf.table).lock();
        let found = leaf.entry.load();
        let frame = || sys.huge_frame(found.pfn());
        let pinned = found.is_mapped() && frame().may_be_pinned() && frame().is_exclusive();
        if !pinned || !sys.frames.hold(found.pfn(), 1) {
            return None;
        }
        Some(Page::held(sys, found.pfn()))
    }

    /// A child's own copy of a page that stays the parent's own. A child has nothing reserved. The
    /// copy takes as long as it takes, so no table's lock is held: the page is, and truncation may
    /// take it out of the parent meanwhile.
    ///
    /// Linux: copy_hugetlb_page_range, where folio_try_dup_anon_rmap_pte fails.
    #[cold]
    fn copy_pinned(&self, view: &VmaView, pinned: &Page<'_, M>) -> Result<Pfn, NoMemory> {
        let sys = self.mm().system();
        let (size, from) = (view.huge_size(), pinned.pfn());
        let index = pinned.frame().index.load(Ordering::Relaxed);
        let by = (view.policy, index);
        let taken = sys.frames.take_huge(&sys.at, size, by, Taking::Unreserved);
        let new = taken.ok_or(NoMemory)?;
        for part in 0..1 << size.order::<M::Paging>() {
            M::copy_in_use(&sys.at, Pfn(new.0 + part), Pfn(from.0 + part));
        }
        let frame = sys.huge_frame(new);
        frame.mapping.store(0, Ordering::Relaxed);
        frame.index.store(index, Ordering::Relaxed);
        frame.set_exclusive(Exclusive::Yes);
        // ORDERING: Release; pairs with [frame-maps].
        frame.maps.store(1, Ordering::Release);
        sys.count(Event::ForkCopies);
        Ok(new)
    }
}

impl<M: Mmu> Zap<'_, M> {
    /// Waits until whoever moves a page of the mapping is done with it: its entry has to be looked
    /// at again then.
    ///
    /// # Context
    /// Sleeps for `i_mmap`.
    #[cold]
    fn awaits_move(&self, view: &VmaView) -> bool {
        let sys = self.mm().system();
        let Some(cache) = view.cache::<M>() else {
            return false;
        };
        sys.count(Event::MigrationWaits);
        drop(cache.i_mmap.read());
        !sys.lacks(NegativeControl::ForkSkipsMoving)
    }
}

impl<'h, M: Mmu> Tables<'h, M> {
    /// The entry for the huge page at `addr`, with the tables above it put in where they are
    /// missing. Nobody else has this address space, or puts tables in there.
    pub(super) fn huge_entry_for(
        self,
        size: HugeSize,
        addr: VirtAddr,
    ) -> Result<EntryRef<'h, M>, NoMemory> {
        let sys = self.system();
        loop {
            match self.huge_entry(size, addr) {
                Ok(leaf) => return Ok(leaf.entry),
                Err(Missing { entry, level, .. }) => {
                    debug_assert!(level > size.level(), "there is a table of huge pages");
                    let table = Mm::<M>::new_table(sys, level - 1).ok_or(NoMemory)?;
                    entry.store(Pte::table(table, level));
                    sys.count(Event::TablesInstalled);
                }
            }
        }
    }
}
