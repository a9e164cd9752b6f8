//! Migration of a mapped page to another frame.
//!
//! # Problem
//! A page lies on the wrong node. Its contents must move, every PTE must name the new frame, and no
//! store may be lost, while other threads load and store.
//!
//! # Idea
//! Unmap the page everywhere with migration entries, copy it, and replace the migration entries by
//! PTEs of the copy. A thread that faults on the page meanwhile sleeps until the old page is
//! unlocked.
//!
//! # Protocol
//! ```text
//! the page referenced and locked; its writeback completed
//! a frame on the other node, locked
//! the owner of its PTEs held                (an unmapped page no longer names it)
//! every PTE: becomes a migration entry; TLB flush
//! any other reference to it?                -> migration entries are reverted
//! a file page: lookups can no longer find it
//! contents and descriptor copied
//! a file page: the file names the new frame
//! every migration entry: becomes a PTE of the new frame
//! both unlocked; threads that slept retry
//! ```
//!
//! # Why it is correct
//! Between the end of the TLB flush and the restoration of the PTEs no thread can access the page:
//! reference holders are counted, and one more than the migrating thread's and the file's ends the
//! migration. No PTE comes to name the page meanwhile: faults wait at migration entries, and fork
//! copies the entry, not the page. A lookup could find a file page in its file; so its count is
//! taken from the expected value to zero in one step, and later lookups wait until the slot names
//! the new frame ([`crate::pages::file`]). See [`crate::pages::rmap::away`] for the entries.
//!
//! # Cost
//! For each PTE two exchanges and a TLB flush; the reverse map's lock twice; a copy.
//!
//! Huge pages migrate under other locks ([`crate::pages::hugetlb`]).
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
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::system::System;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{BeforeInstall, Mmu, Paging, Pte};
use minflt_sync::Ordering;

impl<M: Mmu> System<M> {
    /// Migrates a page of user memory to `node`. Where the page is exclusive and the caller's lock
    /// keeps its PTE, `known` is the address of that PTE ([`Owner::known`]).
    ///
    /// # Context
    /// Sleeps for the lock of the reverse map; waits for TLB flushes. The caller has no other page
    /// locked.
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

    /// The same, for a caller that holds the page only: neither `mmap_lock` nor a VMA lock.
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

    /// A frame on `node`, locked, that no lookup can find.
    fn frame_for(&self, used_as: Use, node: u32) -> Result<Locked<'_, M>, NotMoved> {
        let pfn = self.frames.alloc_at(used_as, node);
        let pfn = pfn.ok_or(NotMoved::NoMemory)?;
        self.frames.get(pfn).maps.store(0, Ordering::Relaxed);
        self.frames.get(pfn).mapping.store(0, Ordering::Relaxed);
        // Reclaim may have taken it for what it was a moment ago.
        Page::held(self, pfn).try_lock().map_err(|_| NotMoved::Busy)
    }

    /// Replaces `page` by `new`, if only the caller and the page's file have references to it.
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
    /// Trylocks the page that a PTE names. The caller holds the page-table lock of that PTE.
    pub(crate) fn try_lock_mapped(&self, pfn: Pfn) -> Option<Locked<'_, M>> {
        if !self.frames.hold(pfn, 1) {
            return None;
        }
        Page::held(self, pfn).try_lock().ok()
    }
}

impl<M: Mmu> Mm<M> {
    /// Migrates the page at `addr` to the memory of `node`, in all mappings.
    ///
    /// # Context
    /// Holds nothing. Sleeps for `mmap_lock`, which it takes for reading, and for the page; waits
    /// for TLB flushes.
    ///
    /// # Errors
    /// See [`MovePageError`].
    ///
    /// Linux: move_pages with one page.
    pub fn move_page(&self, addr: VirtAddr, node: u32) -> Result<(), MovePageError> {
        as_call(self.system(), || {
            let guard = self.read(Over::at(addr));
            guard.held().move_mapped(addr, node)
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
            // Huge pages have no such entries, and other sharers may free their page tables.
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
