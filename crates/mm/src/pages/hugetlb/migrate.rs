//! Migration of a mapped huge page to another node.
//!
//! # Problem
//! As for any page ([`crate::pages::migrate`]), every PTE must name the new page, and no store may
//! be lost. But several address spaces may share a hugetlb page table; and a new page comes from a
//! pool only, most of which may be reserved.
//!
//! # Idea
//! All faults on a page of a file, in every mapping, wait for the page's fault mutex. A thread that
//! holds this mutex and `i_mmap` for writing, under which tables are shared and unshared and pages
//! discarded, has exclusive access to the page once it has unmapped it everywhere.
//!
//! # Protocol
//! ```text
//! the page's fault mutex; the page referenced and locked
//! an unreserved page of that node's pool
//! i_mmap, for writing
//!   every mapping of the page: its PTE becomes a migration entry
//!     unless it is one already, through a shared page table
//!     in either case the TLBs of the mapping's address space are flushed
//!   any other reference to the page?              -> migration entries are reverted
//!   contents and descriptor copied; the file names the new page
//!   every mapping of the page: migration entries become PTEs of the new page
//! all released; the old page returns to its node's pool
//! ```
//! fork reads PTEs of private mappings with none of these locks. It leaves a migration entry alone
//! until the migrating thread has released `i_mmap`.
//!
//! # Why it is correct
//! A PTE is changed once, however many mappings share its table: the first mapping changes it, and
//! the others recognise the migration entry. Translations are per address space, so all of them are
//! flushed, and no CPU can access the page while it is copied. No PTE comes to name it meanwhile:
//! faults and fork's copies are excluded as above, and sharing or unsharing a table takes `i_mmap`.
//! So the PTEs are restored where they were, and the tables have the same sharers as before.
//!
//! A thread that found the page in its file holds a reference: one more than the migrating thread's
//! and the file's ends the migration. Migration takes all of them to zero in one step, so that
//! later lookups find the new page.
//!
//! The new page was unreserved, and so is the old one once it is free: the pools' counts change by
//! node only. Reservations of the file or the mapping are by page number.
//!
//! # Cost
//! Two exchanges for each table, a TLB flush for each mapping, and a copy of the page, all under
//! `i_mmap`; faults on other pages wait only if they need a table.
//!
//! # Differences from Linux
//! Where the node's pool has no spare page, Linux allocates one, as a surplus page until it is
//! freed; here that is [`NotMoved::NoMemory`]. Linux releases `i_mmap` during the copy.
//!
//! Linux: mm/migrate.c unmap_and_move_huge_page; mm/hugetlb.c alloc_hugetlb_folio_nodemask,
//! move_hugetlb_state; mm/rmap.c try_to_migrate_one (v6.12).

use super::HugeSize;
use crate::base::attrs::VmaView;
use crate::base::config::NegativeControl;
use crate::base::error::MovePageError;
use crate::base::event::Event;
use crate::base::policy::{NodeMask, Policy, PolicyMode};
use crate::entry::walk::Tables;
use crate::entry::zap::{Only, Zap};
use crate::memory::alloc::pool::Taking;
use crate::memory::frame::Exclusive;
use crate::pages::file::PageCache;
use crate::pages::page::NotMoved;
use crate::pages::page::{Locked, Page};
use crate::space::arenas::look::Held;
use crate::system::System;
use core::ops::ControlFlow;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Leaf, Mmu, Pte};
use minflt_sync::Ordering;

/// What a mapping has where a huge page may be.
pub(crate) struct HugeSeen {
    pub(crate) pfn: Pfn,
    /// More than one entry names the page.
    pub(crate) shared: bool,
    /// Others have the table, too.
    pub(crate) by_table: bool,
}

impl<M: Mmu> Held<'_, M> {
    /// The mapping of huge pages at `addr`, if there is one.
    #[cold]
    pub(crate) fn huge_view(self, addr: VirtAddr) -> Option<VmaView> {
        let view = self.find(addr)?.view();
        (view.is_huge() && view.range.contains(addr)).then_some(view)
    }

    /// What is at `addr` of a mapping of huge pages.
    ///
    /// # Context
    /// Sleeps for `i_mmap`.
    ///
    /// # Errors
    /// There is no page.
    pub(crate) fn look_at_huge(
        self,
        view: &VmaView,
        addr: VirtAddr,
    ) -> Result<HugeSeen, MovePageError> {
        let sys = self.system();
        self.see_huge(view, addr, |leaf, found| {
            let maps = &sys.huge_frame(found).maps;
            let sharers = &sys.frames.get(leaf.table).maps;
            HugeSeen {
                pfn: found,
                shared: maps.load(Ordering::Relaxed) > 1,
                by_table: sharers.load(Ordering::Relaxed) > 0,
            }
        })
    }

    /// What `see` makes of the entry for `addr` and the page that it maps, under the lock of its
    /// table.
    pub(crate) fn see_huge<T>(
        self,
        view: &VmaView,
        addr: VirtAddr,
        see: impl FnOnce(&Leaf<'_, M>, Pfn) -> T,
    ) -> Result<T, MovePageError> {
        let cache = view.cache::<M>().ok_or(MovePageError::NotThere)?;
        // Keeps a table that others have, too; and no page is being moved.
        let _tree = cache.i_mmap.read();
        let leaf = self.tables().huge_entry(view.huge_size(), addr);
        let leaf = leaf.map_err(|_| MovePageError::NotThere)?;
        let _held = self.system().huge_lock(leaf.table).lock();
        let found = leaf.entry.load();
        match found.is_mapped() {
            true => Ok(see(&leaf, found.pfn())),
            false => Err(MovePageError::NotThere),
        }
    }

    /// Migrates the huge page at `addr` to the memory of `node`, in all mappings.
    ///
    /// # Context
    /// Sleeps for the page's mutex, for the page and for `i_mmap`; waits for TLB flushes.
    ///
    /// # Errors
    /// See [`MovePageError`].
    pub(crate) fn move_huge_page(
        self,
        view: &VmaView,
        addr: VirtAddr,
        node: u32,
    ) -> Result<(), MovePageError> {
        let sys = self.system();
        let cache = view.cache::<M>().ok_or(MovePageError::NotThere)?;
        let index = view.huge_index::<M::Paging>(addr);
        let alone = !sys.lacks(NegativeControl::HugeMoveBesideFaults);
        let _one = alone.then(|| sys.huge.mutex(cache, index).write());
        let held = self.see_huge(view, addr, |_, found| {
            sys.frames.hold(found, 1).then(|| Page::held(sys, found))
        })?;
        let page = held.ok_or(MovePageError::Busy)?;
        if sys.frames.node_of(page.pfn()) == node {
            return Ok(());
        }
        Ok(sys.migrate_huge(cache, index, &page.lock(), node)?)
    }
}

impl<M: Mmu> System<M> {
    /// Migrates the hugetlb file page that a frame begins to `node`, for a caller that knows the
    /// frame only. A private mapping's own page has no reverse map.
    ///
    /// # Context
    /// Holds the page only. Otherwise as [`Held::move_huge_page`].
    ///
    /// # Errors
    /// See [`MovePageError`].
    pub(crate) fn move_huge_frame(
        &self,
        page: Page<'_, M>,
        node: u32,
    ) -> Result<(), MovePageError> {
        let page = page.lock();
        let frame = page.frame();
        // A locked page stays in its file, and keeps the file, until it is unlocked.
        let cache = PageCache::<M>::at(frame.mapping.load(Ordering::Relaxed));
        let Some(file) = cache.and_then(|cache| cache.try_handle()) else {
            return Err(MovePageError::Busy);
        };
        let (cache, index) = (file.cache(), frame.index.load(Ordering::Relaxed));
        // The mutex comes before the page's lock.
        let page = page.unlock();
        let _one = self.huge.mutex(cache, index).write();
        let page = page.lock();
        // ORDERING: Acquire; pairs with [frame-maps].
        let mapped = frame.maps.load(Ordering::Acquire) > 0;
        if !page.is(cache, index) || !mapped {
            return Err(MovePageError::NotThere);
        }
        Ok(self.migrate_huge(cache, index, &page, node)?)
    }

    /// Moves page `index` of `cache`, or of a private mapping of that, to `node`.
    ///
    /// # Context
    /// Under the page's mutex. Sleeps for `i_mmap`; waits for TLB flushes.
    ///
    /// # Errors
    /// See [`NotMoved`]. Nothing has changed then.
    fn migrate_huge(
        &self,
        cache: &PageCache<M>,
        index: u64,
        page: &Locked<'_, M>,
        node: u32,
    ) -> Result<(), NotMoved> {
        let moved = self.try_migrate_huge(cache, index, page, node);
        match moved {
            Ok(()) => self.count(Event::PagesMigrated),
            Err(_) => self.count(Event::MigrationsFailed),
        }
        moved
    }

    fn try_migrate_huge(
        &self,
        cache: &PageCache<M>,
        index: u64,
        page: &Locked<'_, M>,
        node: u32,
    ) -> Result<(), NotMoved> {
        if page.frame().may_be_pinned() || page.frame().is_poisoned() {
            return Err(NotMoved::Busy);
        }
        // A set cannot name nodes from 56 on: there `NoMemory` is the answer.
        let there = Policy::new(PolicyMode::Bind, NodeMask::of(node));
        let taken = self.frames.take_huge(
            &self.at,
            cache.huge_size(),
            (there, index),
            Taking::Unreserved,
        );
        let new = Page::held(self, taken.ok_or(NotMoved::NoMemory)?);
        let size = cache.huge_size();
        let _tree = cache.i_mmap.write();
        let _all = cache.each_mapping(index, index, |part| {
            let mut zap = Zap::begin_only(part.tables, part.range, Only::All);
            zap.put_huge_away(size, part.range, page.pfn());
            zap.finish();
            ControlFlow::Continue(())
        });
        let moved = self.move_huge_to(cache, index, page, &new);
        let at = if moved.is_ok() { new.pfn() } else { page.pfn() };
        let _all = cache.each_mapping(index, index, |part| {
            part.tables
                .put_huge_back(size, part.range, (page.pfn(), at));
            ControlFlow::Continue(())
        });
        M::note(format_args!(
            "migrate huge page {} to {}: {moved:?}",
            page.pfn(),
            new.pfn()
        ));
        moved
    }

    /// Replaces `page` by `new`, if only the caller and the page's file have references to it.
    fn move_huge_to(
        &self,
        cache: &PageCache<M>,
        index: u64,
        page: &Locked<'_, M>,
        new: &Page<'_, M>,
    ) -> Result<(), NotMoved> {
        let (frame, fresh) = (page.frame(), new.frame());
        let of_file = page.is(cache, index);
        let alone = 1 + u32::from(of_file);
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
        for part in 0..1 << cache.huge_size().order::<M::Paging>() {
            M::copy(&self.at, Pfn(new.pfn().0 + part), Pfn(page.pfn().0 + part));
        }
        let exclusive = frame.is_exclusive();
        fresh.set_exclusive(if exclusive {
            Exclusive::Yes
        } else {
            Exclusive::No
        });
        fresh.maps.store(0, Ordering::Relaxed);
        fresh.index.store(index, Ordering::Relaxed);
        let mapping = if of_file { cache.address() } else { 0 };
        fresh.mapping.store(mapping, Ordering::Relaxed);
        if of_file {
            fresh.set_uptodate();
            fresh.refs.add(1, Ordering::Relaxed);
            cache.replace(index, new.pfn());
            frame.mapping.store(0, Ordering::Relaxed);
        }
        // The file's reference is the new page's now.
        // ORDERING: Release; pairs with [frame-put].
        frame.refs.store(1, Ordering::Release);
        Ok(())
    }
}

impl<M: Mmu> Zap<'_, M> {
    /// Replaces the PTE of one page by a migration entry, if it names `pfn`, and records the TLB
    /// flush. Under `i_mmap` for writing.
    fn put_huge_away(&mut self, size: HugeSize, page: VirtRange, pfn: Pfn) {
        let (mm, sys) = (self.mm(), self.mm().system());
        let Ok(leaf) = self.tables.huge_entry(size, page.start()) else {
            return;
        };
        let _held = sys.huge_lock(leaf.table).lock();
        let mut old = leaf.entry.load();
        if old.moving() == Some(pfn) {
            // Already replaced through another sharer of the table; but this address space may
            // cache it, too.
            if !sys.lacks(NegativeControl::HugeMoveTellsOne) {
                self.gather.touch(page);
            }
            return;
        }
        if !old.is_mapped() || old.pfn() != pfn {
            return;
        }
        // The lock keeps it mapped; only its bits change.
        let how = mm.exchange_of_huge();
        while let Err(found) = leaf.entry.cas(how, old, old.migration()) {
            old = found;
        }
        self.gather.touch(page);
        // ORDERING: AcqRel; no pair: as of other pages.
        if sys.huge_frame(pfn).maps.sub(1, Ordering::AcqRel) == 0 {
            M::violation(format_args!("map count underflow of huge page {pfn}"));
        }
        // The PTE's reference, dropped after the TLB flush.
        self.gather.page(pfn);
    }
}

impl<M: Mmu> Tables<'_, M> {
    /// Maps `to` where the entry of one page says that `from` is being moved. Under `i_mmap` for
    /// writing.
    fn put_huge_back(self, size: HugeSize, page: VirtRange, (from, to): (Pfn, Pfn)) {
        debug_assert!(
            page == size.page_at::<M::Paging>(page.start()),
            "one huge page"
        );
        let sys = self.system();
        let Ok(leaf) = self.huge_entry(size, page.start()) else {
            return;
        };
        let _held = sys.huge_lock(leaf.table).lock();
        let found = leaf.entry.load();
        if found.moving() == Some(from) {
            let frame = sys.huge_frame(to);
            frame.refs.add(1, Ordering::Relaxed);
            // ORDERING: Release; pairs with [frame-maps].
            frame.maps.add(1, Ordering::Release);
            leaf.entry
                .swap(self.exchange_of_huge(), found.migrated(to).huge());
        }
    }
}

/// Whether an entry says that its huge page is being moved.
pub(super) fn is_moving<M: Mmu>(size: HugeSize, found: Pte<M::Paging>) -> bool {
    !found.is_none_at(size.level()) && found.moving().is_some()
}
