//! Migration of a mapped huge page to another node.
//!
//! # Problem
//! As of any page ([`crate::pages::migrate`]): every entry has to name the new place, and no store
//! may be lost. But a table of huge pages may be several address spaces' at once; and a page can
//! only come from a pool, of which most may be promised.
//!
//! # Idea
//! All faults on a page of a file, in whatever mapping, wait for its mutex. Whoever has that, and
//! `i_mmap` for writing, under which tables are shared and left and pages thrown away, is alone
//! with the page, once he has taken it from everybody who maps it.
//!
//! # Protocol
//! ```text
//! the page's mutex; the page held and locked
//! a page of that node's pool that is promised to nobody
//! i_mmap, for writing
//!   every mapping of the page: its entry says that the page is being moved
//!     where it says so already, by a table that both have: nothing more
//!     in either case the mapping's CPUs forget it
//!   anybody else refers to the page?              -> entries back, as they were
//!   the contents, and what the descriptor says, copied; its file names the new page
//!   every mapping of the page: an entry that says so names the new page
//! all let go; the old page goes to its node's pool
//! ```
//! fork looks at entries of private mappings with none of these locks. It leaves an entry that
//! says that its page is being moved until the mover has let `i_mmap` go.
//!
//! # Why it is correct
//! An entry is changed once, whoever has its table: the first mapping that has it changes it, and
//! by what it says then the others know. But translations are an address space's: all are told, so
//! that nobody can reach the page when it is copied. No entry comes to name it meanwhile: faults
//! and a copy by fork are kept off as said, and nobody comes to share a table or leaves one, which
//! takes `i_mmap`. So entries come back where they were, and tables are as many's as before.
//!
//! Who found the page in its file counts: one reference more than the mover's and the file's ends
//! it, which takes all of them in one step to zero, and whoever comes finds the new page.
//!
//! The new page was promised to nobody, and the old one is when it is free: the pools' counts are
//! as before, but for the node. What is reserved for the file or the mapping is by number of page.
//!
//! # Cost
//! Two exchanges for each table, an invalidation for each mapping, and a copy of the page, all
//! under `i_mmap`; faults on other pages wait only if they need a table.
//!
//! # What Linux has beside
//! Where the pool of the node has no page to spare it asks for memory, and lets the page be one too
//! many until it is freed; here that is [`NotMoved::NoMemory`]. `i_mmap` is let go during the copy.
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
use crate::space::look::Held;
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

    /// Moves the huge page at `addr` to the memory of `node`, for everybody who maps it.
    ///
    /// # Context
    /// Sleeps for the page's mutex, for the page and for `i_mmap`; waits for
    /// CPUs to forget translations.
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
    /// Moves the page of a file of huge pages that a frame begins to `node`, for who knows the
    /// frame only. A private mapping's own page names nothing that would lead to who maps it.
    ///
    /// # Context
    /// Holds nothing but the page. Otherwise as [`Held::move_huge_page`].
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
        // Who is in a file stays in it while he is locked, and the file with him, if only until
        // then.
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
    /// Under the page's mutex. Sleeps for `i_mmap`; waits for CPUs to forget translations.
    ///
    /// # Errors
    /// See [`NotMoved`]. All is as it was then.
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

    /// Makes `new` what `page` is, if nobody but the caller, and the page's file, refers to that.
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
    /// Makes the entry of one page say that it is being moved, if it names `pfn`, and notes that
    /// CPUs have to forget it. Under `i_mmap` for writing.
    fn put_huge_away(&mut self, size: HugeSize, page: VirtRange, pfn: Pfn) {
        let (mm, sys) = (self.mm(), self.mm().system());
        let Ok(leaf) = self.tables.huge_entry(size, page.start()) else {
            return;
        };
        let _held = sys.huge_lock(leaf.table).lock();
        let mut old = leaf.entry.load();
        if old.moving() == Some(pfn) {
            // By way of another who has the table; but this address space has reached it, too.
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
        // The entry's reference, when all have forgotten it.
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
