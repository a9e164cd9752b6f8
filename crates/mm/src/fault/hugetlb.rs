//! Hugetlb faults.
//!
//! ```text
//! found            load                       store, shared     store, private
//! none             the file's page, added     the same          the file's page copied, or a page
//!                  where the mapping is                         of the mapping's own
//!                  shared or has none
//! read-only page   -                          writable          writable if it has no other user,
//!                                                               else a copy in its place
//! ```
//! The fault holds the page's fault mutex throughout, and the lock that keeps this mapping's page
//! tables ([`crate::pages::hugetlb`]).
//!
//! # Races
//! A copy-on-write fault may find the pool empty. If the faulting mapping reserved the page, it
//! takes precedence: the page that it shares with forked children is unmapped from them, and a
//! child that touches it later gets a signal unless a page is free by then.
//!
//! Linux: mm/hugetlb.c hugetlb_fault, hugetlb_no_page, hugetlb_wp, unmap_ref_private.

use super::stabilise::{Can, Stable};
use super::{Fault, Kind, Signal, Stop, Why};
use crate::base::attrs::{Prot, VmaFlags};
use crate::base::config::{Hugetlb, NegativeControl};
use crate::base::event::Event;
use crate::base::huge_size::HugeSize;
use crate::entry::walk::Tables;
use crate::entry::zap::Zap;
use crate::memory::alloc::pool::Taking;
use crate::memory::frame::{Exclusive, Frame};
use crate::pages::file::PageCache;
use crate::pages::hugetlb::NotMade;
use crate::pages::page::Page;
use crate::pages::reserved::reserve::Change;
use core::ops::ControlFlow;
use minflt_addr::{Pfn, VirtRange};
use minflt_pgtable::{Access, Grant, Leaf, Mmu, Pte, with_bits};
use minflt_sync::{Cost, Ordering, Phase};

/// A fault on a huge page, with the page's fault mutex and the lock of its tables held.
struct HugeFault<'f, 'm, 's, M: Mmu> {
    fault: &'f Fault<'m, M>,
    stable: &'f Stable<'s, M>,
    cache: &'f PageCache<M>,
    size: HugeSize,
    index: u64,
    page: VirtRange,
    leaf: Leaf<'f, M>,
    /// For a negative control: the file's size in pages before the mutex was taken.
    pages_before: Option<u64>,
    need: Need,
}

/// What a fault on a huge page is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// The access.
    Access,
    /// A load, of a page that is a private mapping's own. Linux: `FAULT_FLAG_UNSHARE`.
    Own,
}

/// A page of a private mapping's own, and what is to be said of what it reserved once it is there.
type Own<'c, M> = (Pfn, Option<Change<'c, M>>);

impl<M: Mmu> Fault<'_, M> {
    /// A fault on a mapping of huge pages.
    #[cold]
    #[inline(never)]
    pub(super) fn huge(&self, stable: &Stable<'_, M>) -> Result<Kind, Stop> {
        self.huge_for(stable, Need::Access)
    }

    /// The same, for what is said.
    #[cold]
    pub(super) fn huge_for(&self, stable: &Stable<'_, M>, need: Need) -> Result<Kind, Stop> {
        if stable.can() == Can::Look {
            return Err(Why::NotSupported.into());
        }
        let Some(cache) = stable.view.cache::<M>() else {
            return Err(Stop::Signal(Signal::Bus));
        };
        let sys = self.mm.system();
        let size = stable.view.huge_size();
        let index = stable.view.huge_index::<M::Paging>(self.addr);
        let by_vma = sys.config.hugetlb == Hugetlb::VmaLock;
        let held = !sys.lacks(NegativeControl::HugeUnlocked);
        let early = sys.lacks(NegativeControl::SizeBeforeMutex);
        let pages_before = early.then(|| cache.huge_pages());
        let _map = cache.faults_hold_map().then(|| cache.map_lock.read());
        let alone = !sys.lacks(NegativeControl::FaultsAtOnce);
        let _one = alone.then(|| sys.huge.mutex(cache, index).write());
        let lock = stable.vma.huge_lock().filter(|_| by_vma && held);
        let _tables = lock.map(|lock| lock.sem.read());
        let leaf = self.huge_leaf(stable, cache)?;
        HugeFault {
            fault: self,
            stable,
            cache,
            size,
            index,
            page: size.page_at::<M::Paging>(self.addr),
            leaf,
            pages_before,
            need,
        }
        .handle()
    }

    /// The entry, with the tables above it put in, or shared, where they are missing.
    ///
    /// Linux: huge_pte_alloc.
    fn huge_leaf<'s>(
        &self,
        stable: &'s Stable<'_, M>,
        cache: &PageCache<M>,
    ) -> Result<Leaf<'s, M>, Stop> {
        let size = stable.view.huge_size();
        loop {
            let place = match stable.tables().huge_entry(size, self.addr) {
                Ok(leaf) => return Ok(leaf),
                Err(missing) => missing,
            };
            if place.level == HugeSize::Large.level() + 1
                && size == HugeSize::Large
                && stable
                    .tables()
                    .share_table(stable.vma, &stable.view, cache, (&place, self.addr))
            {
                continue;
            }
            self.put_table_in(stable, &place)?;
        }
    }
}

impl<M: Mmu> HugeFault<'_, '_, '_, M> {
    fn handle(&self) -> Result<Kind, Stop> {
        let found = self.leaf.entry.sample();
        debug_assert!(!found.is_table_at(self.size.level()), "no smaller pages");
        let stores = self.fault.access == Access::Write;
        if found.is_none_at(self.size.level()) {
            return self.no_page();
        }
        let allowed = found.with_grant(self.most(found));
        if !found.is_present() && allowed.is_present() {
            // A PROT_NONE of before: the mapping allows more now.
            return Ok(self.change(found, allowed));
        }
        if stores && found.grant() < Grant::Write {
            return match self.is_shared() {
                true => Ok(self.change(found, found.with_grant(Grant::Write))),
                false => self.make_own(found),
            };
        }
        if self.need == Need::Own {
            return self.make_own(found);
        }
        Ok(self.change(found, found))
    }

    fn is_shared(&self) -> bool {
        self.stable.view.flags.has(VmaFlags::SHARED)
    }

    /// What the mapping grants of a page that is its own or shared.
    fn most(&self, found: Pte<M::Paging>) -> Grant {
        let own = self.is_shared() || self.frame(found.pfn()).is_exclusive();
        let allowed = self.stable.view.prot.grant();
        if own {
            allowed
        } else {
            allowed.min(Grant::Read)
        }
    }

    fn frame(&self, pfn: Pfn) -> &Frame<M> {
        self.fault.mm.system().huge_frame(pfn)
    }

    /// Changes the entry from what was found, and marks it used.
    fn change(&self, found: Pte<M::Paging>, to: Pte<M::Paging>) -> Kind {
        let mm = self.fault.mm;
        let _held = mm.system().huge_lock(self.leaf.table).lock();
        let to = with_bits(to, self.fault.access);
        let same = self.leaf.entry.decide(mm.exchange_of_huge(), found, to);
        if same.is_ok() {
            mm.has_huge_table(self.size, self.fault.addr, self.leaf.table);
        }
        match same.is_ok() && to.grant() > found.grant() {
            true => Kind::Reuse,
            false => Kind::Spurious,
        }
    }

    /// Linux: hugetlb_no_page.
    fn no_page(&self) -> Result<Kind, Stop> {
        M::phase(Phase::Prepare);
        // A page that is there may lie behind the end, where that is within it.
        if let Some(page) = self.cache.find(self.index) {
            return self.map_cached(page);
        }
        let pages = self.pages_before.unwrap_or_else(|| self.cache.huge_pages());
        if self.index >= pages {
            return Err(Stop::Signal(Signal::Bus));
        }
        if !self.is_shared() {
            return self.map_own();
        }
        let policy = self.fault.policy(self.stable);
        match self.cache.make_huge(self.index, policy) {
            Ok(page) => self.map_cached(page.unlock()),
            Err(NotMade::Empty) => Err(Stop::Signal(Signal::Bus)),
            Err(NotMade::NoMemory) => Err(Stop::Oom),
        }
    }

    /// Maps a page of the file. What a private mapping stores to is copied.
    fn map_cached(&self, page: Page<'_, M>) -> Result<Kind, Stop> {
        let copies = self.fault.access == Access::Write || self.need == Need::Own;
        // One descriptor of many: they lie as far apart as those of all their small pages. The page
        // was found through the index, and its count is an exchange: both are waited for.
        M::charge(Cost::Cold);
        if copies && !self.is_shared() {
            let copy = self.own_page()?.ok_or(Stop::Signal(Signal::Bus))?;
            self.copy(copy.0, page.pfn());
            return Ok(self.install_own(copy));
        }
        let allowed = self.stable.view.prot.has(Prot::WRITE) && self.is_shared();
        let grant = if allowed { Grant::Write } else { Grant::Read };
        // Who forces a load grants nothing by it.
        let grant = grant.min(self.stable.view.prot.grant());
        let maps = &page.frame().maps;
        maps.add(1, Ordering::Relaxed);
        let pte = with_bits(self.stable.entry_for(page.pfn(), grant), self.fault.access);
        if !self.install(pte) {
            maps.sub(1, Ordering::Relaxed);
            return Ok(Kind::Spurious);
        }
        let _entrys = page.give();
        Ok(Kind::Huge)
    }

    /// A page of a private mapping's own, where its file has none.
    fn map_own(&self) -> Result<Kind, Stop> {
        let own = self.own_page()?.ok_or(Stop::Signal(Signal::Bus))?;
        self.fault.mm.system().clear_huge(own.0, self.size);
        Ok(self.install_own(own))
    }

    /// Installs `new` in an empty entry, under the lock of the table, which may be shared.
    fn install(&self, new: Pte<M::Paging>) -> bool {
        let sys = self.fault.mm.system();
        M::phase(Phase::Commit);
        let _held = sys.huge_lock(self.leaf.table).lock();
        let empty = self.leaf.entry.load().is_none_at(self.size.level());
        if empty {
            self.leaf.entry.store(new.huge());
            let mm = self.fault.mm;
            mm.has_huge_table(self.size, self.fault.addr, self.leaf.table);
            M::note(format_args!(
                "fault {} maps huge page {}",
                self.fault.addr,
                new.pfn()
            ));
        }
        empty
    }

    /// A page for a private mapping: one that it reserved, or an unreserved one; `None` if the pool
    /// has neither.
    ///
    /// Linux: alloc_hugetlb_folio.
    fn own_page(&self) -> Result<Option<Own<'_, M>>, Stop> {
        let sys = self.fault.mm.system();
        let own = self.stable.vma.huge_own();
        let change = own.map(|own| own.used.change(sys, self.index, self.index + 1));
        let change = change.transpose().map_err(|_| Stop::Oom)?;
        let reserved = change.as_ref().is_some_and(|change| change.missing() > 0);
        let taking = match reserved {
            true => Taking::Reserved,
            false => Taking::Unreserved,
        };
        let policy = self.fault.policy(self.stable);
        let pfn = sys
            .frames
            .take_huge(&sys.at, self.size, (policy, self.index), taking);
        let Some(pfn) = pfn else { return Ok(None) };
        let frame = sys.huge_frame(pfn);
        frame.mapping.store(0, Ordering::Relaxed);
        frame.index.store(self.index, Ordering::Relaxed);
        frame.set_exclusive(Exclusive::Yes);
        // ORDERING: Release; pairs with [frame-maps].
        frame.maps.store(1, Ordering::Release);
        Ok(Some((pfn, change)))
    }

    /// Maps a page of the mapping's own in an empty entry.
    fn install_own(&self, (pfn, change): Own<'_, M>) -> Kind {
        let sys = self.fault.mm.system();
        let grant = self.stable.view.prot.grant();
        let pte = with_bits(self.stable.entry_for(pfn, grant), self.fault.access);
        if !self.install(pte) {
            self.undo(pfn);
            return Kind::Spurious;
        }
        change.map(Change::add);
        sys.huge_frame(pfn).clear_restore_reserve();
        Kind::Huge
    }

    /// The page was never reached.
    fn undo(&self, pfn: Pfn) {
        self.frame(pfn).maps.store(0, Ordering::Relaxed);
        self.fault.mm.system().frames.put(pfn);
    }

    /// Makes a read-only page of a private mapping the mapping's own, for a store or for a pin. An
    /// exclusive page is kept, whatever its reference count: it may be pinned, and a copy would not
    /// be. Only fork, which excludes this fault, makes a page shared again; and the page's mutex
    /// excludes migration.
    ///
    /// Linux: hugetlb_wp.
    fn make_own(&self, found: Pte<M::Paging>) -> Result<Kind, Stop> {
        let (mm, sys) = (self.fault.mm, self.fault.mm.system());
        let old = self.frame(found.pfn());
        let own = old.mapping.load(Ordering::Relaxed) != self.cache.address();
        let grant = self.stable.view.prot.grant();
        let reuse = || {
            old.set_exclusive(Exclusive::Yes);
            self.change(found, found.with_grant(grant))
        };
        if own && old.is_exclusive() {
            return Ok(reuse());
        }
        // The unmapper keeps its reference until the TLB flush completes.
        let users = match sys.lacks(NegativeControl::ReuseByMapCount) {
            true => &old.maps,
            false => &old.refs,
        };
        // ORDERING: Acquire; pairs with [frame-put].
        if own && users.load(Ordering::Acquire) == 1 {
            return Ok(reuse());
        }
        if !sys.frames.hold(found.pfn(), 1) {
            return Err(Stop::Oom);
        }
        let kept = Page::held(sys, found.pfn());
        let Some((new, change)) = self.own_page()? else {
            // Whoever reserved it wins.
            if own && self.stable.vma.huge_own().is_some() {
                self.take_from_children(found.pfn());
            }
            // An unmapper holds this lock until its TLB flush completes.
            let _tree = self.cache.i_mmap.read();
            return match own && old.maps.load(Ordering::Relaxed) == 1 {
                true => Ok(reuse()),
                false => Err(Stop::Signal(Signal::Bus)),
            };
        };
        self.copy(new, found.pfn());
        let pte = with_bits(self.stable.entry_for(new, grant), self.fault.access);
        let mut zap = Zap::begin(self.stable.tables(), self.page);
        let replaced = {
            let _held = sys.huge_lock(self.leaf.table).lock();
            let how = mm.exchange_of_huge();
            // No CPU may go on with the old page once another stores to the new one.
            let none = Pte::none_at(self.size.level());
            let gone = self.leaf.entry.decide(how, found, none).is_ok();
            if gone {
                zap.gather.touch(self.page);
                zap.flush();
                self.leaf.entry.store(pte.huge());
            }
            gone
        };
        zap.finish();
        if !replaced {
            self.undo(new);
            return Ok(Kind::Spurious);
        }
        change.map(Change::add);
        sys.huge_frame(new).clear_restore_reserve();
        // ORDERING: AcqRel; no pair: as of other pages.
        old.maps.sub(1, Ordering::AcqRel);
        // The entry's reference.
        sys.frames.put(found.pfn());
        drop(kept);
        sys.count(Event::HugeCopies);
        Ok(Kind::Cow)
    }

    /// Copies a huge page, which others may store to.
    fn copy(&self, to: Pfn, from: Pfn) {
        let at = &self.fault.mm.system().at;
        for part in 0..1 << self.size.order::<M::Paging>() {
            M::copy_in_use(at, Pfn(to.0 + part), Pfn(from.0 + part));
        }
    }

    /// Takes the page `old` out of the mappings of children, which have none of their own reserved.
    ///
    /// Linux: unmap_ref_private.
    #[cold]
    fn take_from_children(&self, old: Pfn) {
        let (mm, cache) = (self.fault.mm, self.cache);
        let _tree = cache.i_mmap.write();
        let order = self.size.order::<M::Paging>();
        let first = self.index << order;
        let last = first + (1 << order) - 1;
        let _all = cache.spans.each(first, last, |part| {
            let mine = core::ptr::eq(part.tables.mm(), mm) && part.range == self.page;
            if !mine && crate::pages::file::own_pages_of(&part).is_none() {
                part.tables.lose_huge(self.size, part.range, old);
            }
            ControlFlow::Continue(())
        });
    }
}

impl<M: Mmu> Tables<'_, M> {
    /// Takes the huge page `old` out, if it is mapped at `page`. Under `i_mmap` for writing.
    fn lose_huge(self, size: HugeSize, page: VirtRange, old: Pfn) {
        let Ok(leaf) = self.huge_entry(size, page.start()) else {
            return;
        };
        debug_assert!(page.len() == size.bytes::<M::Paging>(), "one huge page");
        let sys = self.system();
        let mut zap = Zap::begin(self, page);
        {
            let _held = sys.huge_lock(leaf.table).lock();
            let found = leaf.entry.sample();
            if found.is_mapped() && found.pfn() == old {
                leaf.entry
                    .swap(self.exchange_of_huge(), Pte::none_at(size.level()));
                // ORDERING: AcqRel; no pair: as of other pages.
                sys.huge_frame(old).maps.sub(1, Ordering::AcqRel);
                zap.gather.touch(page);
                zap.gather.page(old);
                sys.count(Event::HugePagesLost);
            }
        }
        zap.finish();
    }
}
