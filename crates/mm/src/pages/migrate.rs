//! Migration of a mapped page to another frame.
//!
//! # Problem
//! A page lies on the wrong node. Its contents have to be somewhere else, every entry has to name
//! the new place, and no store may be lost, whoever loads and stores meanwhile.
//!
//! # Idea
//! Take the page away from everybody, copy it, give the copy back to all who had the page. Who
//! wants it meanwhile sleeps until the old page's lock is let go.
//!
//! # Protocol
//! ```text
//! the page held and locked; what is being written of it, written
//! a frame on the other node, locked
//! the owner of its entries held             (an unmapped page names it no more)
//! every entry: says that the page is being moved; CPUs told
//! anybody else refers to it?                -> entries back, as they were
//! a page of a file: nobody can find it any more
//! the contents, and what the descriptor says, copied
//! a page of a file: its file names the new one
//! every entry: the new frame
//! both unlocked; who slept tries again
//! ```
//!
//! # Why it is correct
//! Between the last CPU's being told and the entries' coming back nobody can reach the page: those
//! who have a reference are counted, and one more than the mover's (and the file's) ends it. An
//! entry cannot come to name the page meanwhile: faults leave entries of this kind alone, and a
//! fork copies what they say, not the page. A page of a file could be found in its file; its count
//! is taken from what is expected to zero in one step, and whoever comes waits for it to be
//! another's ([`crate::pages::file`]). See [`crate::pages::rmap::away`] for the entries.
//!
//! # Cost
//! For each entry two exchanges and an invalidation, and the reverse map's lock twice; a copy.
//!
//! Huge pages are moved by other locks ([`crate::pages::hugetlb`]).
//!
//! Linux: mm/migrate.c migrate_folio_unmap, migrate_folio_move, `__folio_migrate_mapping`.

use crate::base::config::{AnonRmap, NegativeControl};
use crate::base::error::MovePageError;
use crate::base::event::Event;
use crate::memory::frame::{Exclusive, Use};
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::pages::file::PageCache;
use crate::pages::page::NotMoved;
use crate::pages::page::{Locked, Page};
use crate::pages::rmap::away::To;
use crate::pages::rmap::owner::Owner;
use crate::space::look::Held;
use crate::system::System;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{BeforeInstall, Mmu, Paging, Pte};
use minflt_sync::Ordering;

impl<M: Mmu> System<M> {
    /// Moves a page of user memory to `node`. Where the page is exclusive and the caller's hold
    /// keeps the entry for it, `known` is that entry's place ([`Owner::known`]).
    ///
    /// # Context
    /// Sleeps for the lock of the reverse map; waits for CPUs to forget translations. The caller
    /// has no other page locked.
    ///
    /// # Errors
    /// See [`NotMoved`].
    pub(crate) fn migrate<'s>(
        &'s self,
        page: Locked<'s, M>,
        node: u32,
        known: Option<Owner<'s, M>>,
    ) -> Result<(), NotMoved> {
        let owner = known.or_else(|| self.owner_of(&page));
        self.migrate_from(&page, node, owner, To::Migration)
    }

    /// The same, for who holds nothing but the page: neither `mmap_lock` nor a VMA's lock.
    ///
    /// # Context, Errors
    /// As [`Self::migrate`].
    pub(crate) fn migrate_unheld(&self, page: Locked<'_, M>, node: u32) -> Result<(), NotMoved> {
        let owner = self.owner_of(&page);
        self.migrate_from(&page, node, owner, To::MigrationUnheld)
    }

    fn migrate_from<'s>(
        &'s self,
        page: &Locked<'s, M>,
        node: u32,
        owner: Option<Owner<'s, M>>,
        to: To,
    ) -> Result<(), NotMoved> {
        let moved = match owner {
            Some(owner) => self.try_migrate(page, node, &owner, to),
            None => Err(NotMoved::Busy),
        };
        match moved {
            Ok(()) => self.count(Event::PagesMigrated),
            Err(_) => self.count(Event::MigrationsFailed),
        }
        moved
    }

    fn try_migrate<'s>(
        &'s self,
        page: &Locked<'s, M>,
        node: u32,
        owner: &Owner<'s, M>,
        to: To,
    ) -> Result<(), NotMoved> {
        page.await_writeback();
        let frame = page.frame();
        // Not worth taking it away.
        let uncounted = self.lacks(NegativeControl::MoveUncounted);
        if frame.may_be_pinned() && !uncounted || frame.is_poisoned() {
            return Err(NotMoved::Busy);
        }
        let new = self.frame_for(frame.used_as(), node)?;
        self.put_away(page, owner, to);
        let moved = self.move_to(page, &new, owner);
        let at = if moved.is_ok() { &new } else { page };
        self.put_back(page.pfn(), at, owner);
        M::note(format_args!(
            "migrate {} to {}: {moved:?}",
            page.pfn(),
            new.pfn()
        ));
        moved
    }

    /// A frame on `node`, locked, that nobody can find.
    fn frame_for(&self, used_as: Use, node: u32) -> Result<Locked<'_, M>, NotMoved> {
        let pfn = self.frames.alloc_at(used_as, node);
        let pfn = pfn.ok_or(NotMoved::NoMemory)?;
        self.frames.get(pfn).maps.store(0, Ordering::Relaxed);
        self.frames.get(pfn).mapping.store(0, Ordering::Relaxed);
        // Reclaim may have taken it for what it was a moment ago.
        Page::held(self, pfn).try_lock().map_err(|_| NotMoved::Busy)
    }

    /// Makes `new` what `page` is, if nobody but the caller, and its file, refers to that.
    fn move_to(
        &self,
        page: &Locked<'_, M>,
        new: &Locked<'_, M>,
        owner: &Owner<'_, M>,
    ) -> Result<(), NotMoved> {
        let (frame, fresh) = (page.frame(), new.frame());
        let of_file = match owner {
            Owner::File(cache) => Some(*cache),
            Owner::Anon(_) | Owner::Known(_) => None,
        };
        let mut alone = 1 + u32::from(of_file.is_some());
        if self.lacks(NegativeControl::MoveCountsItself) {
            alone -= 1;
        }
        if self.lacks(NegativeControl::MoveUncounted) {
            alone = frame.refs.load(Ordering::Relaxed);
        }
        // ORDERING: Acquire; pairs with [frame-put].
        let frozen = frame
            .refs
            .cas(alone, 0, Ordering::Acquire, Ordering::Relaxed);
        if frame.maps.load(Ordering::Relaxed) != 0 || frozen.is_err() {
            if frozen.is_ok() {
                frame.refs.store(alone, Ordering::Relaxed);
            }
            return Err(NotMoved::Busy);
        }
        M::copy(&self.at, new.pfn(), page.pfn());
        if M::Paging::caps().before_install == BeforeInstall::FlushCaches {
            fresh.flush_once(|| M::flush_frame(&self.at, new.pfn()));
        }
        let (mapping, index) = (&frame.mapping, frame.index.load(Ordering::Relaxed));
        fresh.index.store(index, Ordering::Relaxed);
        fresh
            .mapping
            .store(mapping.load(Ordering::Relaxed), Ordering::Relaxed);
        if !frame.is_exclusive() {
            fresh.set_exclusive(Exclusive::No);
        }
        if let Some(cache) = of_file {
            self.move_in_file(cache, index, new);
            if frame.is_dirty() {
                if !self.lacks(NegativeControl::MoveForgetsDirty) {
                    fresh.set_dirty();
                }
                frame.clean();
            }
            mapping.store(0, Ordering::Relaxed);
        }
        // The file's reference is the new page's now.
        // ORDERING: Release; pairs with [frame-put].
        frame
            .refs
            .store(alone - u32::from(of_file.is_some()), Ordering::Release);
        Ok(())
    }

    /// The file has `new` for its page `index` from now on.
    fn move_in_file(&self, cache: &PageCache<M>, index: u64, new: &Locked<'_, M>) {
        // It is mapped, so it is whole.
        new.frame().set_uptodate();
        new.frame().refs.add(1, Ordering::Relaxed);
        cache.replace(index, new.pfn());
    }
}

impl<M: Mmu> System<M> {
    /// The page that an entry of the caller's names, locked, if nobody else has it locked. The
    /// caller holds the lock of the entry's table.
    pub(crate) fn try_lock_mapped(&self, pfn: Pfn) -> Option<Locked<'_, M>> {
        if !self.frames.hold(pfn, 1) {
            return None;
        }
        Page::held(self, pfn).try_lock().ok()
    }
}

impl<M: Mmu> Mm<M> {
    /// Moves the page at `addr` to the memory of `node`, for everybody who maps it.
    ///
    /// # Context
    /// Holds nothing. Sleeps for `mmap_lock`, which it takes for reading, and for the page; waits
    /// for CPUs to forget translations.
    ///
    /// # Errors
    /// See [`MovePageError`].
    ///
    /// Linux: move_pages with one page.
    pub fn move_page(&self, addr: VirtAddr, node: u32) -> Result<(), MovePageError> {
        as_call(self.system(), || {
            let guard = self.mmap_lock.read();
            self.held(&guard).move_mapped(addr, node)
        })
    }
}

impl<'h, M: Mmu> Held<'h, M> {
    /// The same.
    pub(crate) fn move_mapped(self, addr: VirtAddr, node: u32) -> Result<(), MovePageError> {
        let sys = self.system();
        if node >= sys.frames.nodes() {
            return Err(MovePageError::NoNode);
        }
        let page = match self.hold_mapped(addr) {
            Err(MovePageError::NotThere) => {
                let view = self.huge_view(addr).ok_or(MovePageError::NotThere)?;
                return self.move_huge_page(&view, addr, node);
            }
            held => held?,
        };
        if sys.frames.node_of(page.pfn()) == node {
            return Ok(());
        }
        let page = page.lock();
        let frame = page.frame();
        // Not mapped any more, it was taken out meanwhile.
        let mapped = frame.maps.load(Ordering::Relaxed) == 1;
        let skips = sys.config.anon_rmap == AnonRmap::Skipped;
        let alone = skips && mapped && frame.is_exclusive();
        let known = alone.then(|| Owner::known(self.tables(), addr));
        Ok(sys.migrate(page, node, known)?)
    }

    /// A reference to the page at `addr`.
    fn hold_mapped(self, addr: VirtAddr) -> Result<Page<'h, M>, MovePageError> {
        let sys = self.mm().system();
        self.page_of_entry(addr, |found| {
            let free = found.moving().is_none() && sys.frames.hold(found.pfn(), 1);
            let page = free.then(|| Page::held(sys, found.pfn()));
            page.ok_or(MovePageError::Busy)
        })
    }

    /// What `see` makes of the entry for `addr`, under the lock of its table, if that names a page
    /// of user memory, moving or not.
    pub(crate) fn page_of_entry<T>(
        self,
        addr: VirtAddr,
        see: impl FnOnce(Pte<M::Paging>) -> Result<T, MovePageError>,
    ) -> Result<T, MovePageError> {
        let vma = self.find(addr).ok_or(MovePageError::Fault)?;
        let view = vma.view();
        if !view.range.contains(addr) {
            return Err(MovePageError::Fault);
        }
        if view.is_huge() {
            // It has no such entries, and its tables may be others', too, who free them.
            return Err(MovePageError::NotThere);
        }
        let leaf = self.tables().leaf(addr);
        let leaf = leaf.ok_or(MovePageError::NotThere)?;
        let _held = self.table_lock(leaf.table).lock();
        let found = leaf.entry.load();
        match found.unmoved() {
            page if !page.is_mapped() => Err(MovePageError::NotThere),
            page if page.is_zero_page() => Err(MovePageError::Fault),
            _ => see(found),
        }
    }
}
