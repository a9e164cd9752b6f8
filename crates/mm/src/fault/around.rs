//! Fault-around: one file fault maps the cached pages around it.
//!
//! # Problem
//! A program that reads a file that is cached takes a fault for each page, though mapping it takes
//! less than the fault does.
//!
//! # Idea
//! The fault of a load maps whatever is ready among the pages around it, in one hold of one
//! table's lock.
//!
//! # Protocol
//! The window is as many pages as the order says, aligned, within the mapping and within the
//! table. With the table's lock held, and for each page: find it in the cache; pass over it if
//! anything would have to be waited for (it is locked, not read in yet, broken, or its references
//! are frozen since it is moved or reclaimed); lock it if nobody has; look again whether it is that
//! page, and within the file; put it in if nothing is there. If the page that the fault is for is
//! not among them, the fault goes on as without.
//!
//! # Why it is correct
//! Each page is locked while its entry is put in, as for a fault of its own; so truncation sees
//! the entry, or the page is not the file's any more. Nothing that stands in an entry is replaced:
//! not a private copy, be it in a frame or in a slot of the swap device, and not a page that
//! somebody watches. Nothing is waited for, and no memory is taken.
//!
//! # Cost
//! For each page more: a walk of the index, its lock, its reference and its map count, each in the
//! page's own line, and the store into the table. The lines of all are asked for first: a locked
//! step waits for its line, and the next one for that step. What is not used later was mapped in
//! vain.
//!
//! # How many
//! A fixed order, or *adaptive*: the first fault on a file in a table maps one page, and each that
//! follows in the same table four times as many as the one before. Who touches one page of a table
//! maps no more; who reads on, or around, has mapped a table of 512 pages with six faults. What was
//! measured, the faults of a table, stands in the descriptor of the table, in the line that the
//! table's lock brings anyway.
//!
//! Linux: mm/memory.c do_fault_around, mm/filemap.c filemap_map_pages, next_uptodate_folio (v6.12).
//! Adaptive is our own.

use super::stabilise::Stable;
use super::{Fault, Kind, Stop};
use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::config::{Config, FaultAroundAge, NegativeControl, Protocol};
use crate::base::event::Event;
use crate::entry::slot::Slot;
use crate::memory::rss::Moment;
use crate::pages::file::{InOrder, Looked, PageCache};
use core::ops::Range;
use minflt_addr::VirtAddr;
use minflt_pgtable::{Grant, Leaf, Mmu, Paging, Pte, entries_of, index_of};
use minflt_sync::Ordering;

/// Powers of 2 that adaptive fault-around adds with each fault.
const STEP: u64 = 2;
const MOST: u64 = 9;

/// Entries of one table that a fault maps, as pages from the one that the fault is for: so many
/// below, and so many from it on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Window {
    below: u64,
    from: u64,
}

impl Window {
    /// The window of 2^`order` pages around `addr`.
    ///
    /// Linux: do_fault_around.
    fn new<M: Mmu>(config: &Config, view: &VmaView, addr: VirtAddr, order: u32) -> Self {
        let entries = entries_of::<M::Paging>(0);
        let pages = (1 << order).min(entries);
        let at = index_of::<M::Paging>(addr, 0) as u64;
        let range = view.range;
        let into = addr.page(M::Paging::shift()) - range.start().page(M::Paging::shift());
        let left = range.pages(M::Paging::shift()) - into;
        let from = (at - at % pages).max(at - at.min(into));
        let end = (from + pages).min(entries);
        let end = match config.lacks::<M>(NegativeControl::AroundUnclamped) {
            true => end,
            false => end.min(at + left),
        };
        Self {
            below: at - from,
            from: end - at,
        }
    }

    /// Pages in it.
    const fn pages(self) -> u64 {
        self.below + self.from
    }

    /// As numbers of a file's pages, of which `index` is the one that the fault is for.
    const fn around(self, index: u64) -> Range<u64> {
        index - self.below..index + self.from
    }
}

impl<M: Mmu> Fault<'_, M> {
    /// Maps what is ready around the fault; says what kind of fault it was if that was enough.
    #[inline]
    pub(super) fn map_around(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        cache: &PageCache<M>,
    ) -> Result<Option<Kind>, Stop> {
        let sys = self.mm.system();
        let order = match sys.config.around.order() {
            Some(0) => return Ok(None),
            Some(order) => order,
            None => self.adaptive_order(leaf),
        };
        let window = Window::new::<M>(&sys.config, &stable.view, self.addr, order);
        if window.pages() < 2 || !cache.maps_around() {
            return Ok(None);
        }
        let index = stable.view.page_index::<M::Paging>(self.addr);
        if !self.asked.get() {
            cache.prefetch(window.around(index));
        }
        let slot = stable.open_locked(leaf)?;
        let mapped = self.map_window(stable, &slot, cache, window.around(index));
        let done = !slot.value().is_none();
        self.count_pages(Moment::Slot, mapped as i64);
        drop(slot);
        self.count_pages(Moment::Hold, mapped as i64);
        self.count_pages(Moment::After, mapped as i64);
        if !done {
            sys.count_n(Event::FaultAroundMapped, mapped);
            return Ok(None);
        }
        if mapped == 0 {
            return Ok(Some(Kind::Spurious));
        }
        sys.count_n(Event::FaultAroundMapped, mapped - 1);
        M::note(format_args!(
            "fault {} maps {mapped} pages around",
            self.addr
        ));
        Ok(Some(Kind::FileAround))
    }

    /// Asks for the descriptors of the pages that the fault will map, where it is known how many
    /// before its table is there: while that is made, they come all at once.
    #[cold]
    pub(super) fn ask_around(&self, stable: &Stable<'_, M>, cache: &PageCache<M>) {
        let config = &self.mm.system().config;
        let Some(order @ 1..) = config.around.order() else {
            return;
        };
        if cache.maps_around() {
            let window = Window::new::<M>(config, &stable.view, self.addr, order);
            let index = stable.view.page_index::<M::Paging>(self.addr);
            cache.prefetch(window.around(index));
            self.asked.set(true);
        }
    }

    /// Maps what is ready of the mapping at the address, as far as its table reaches: all around,
    /// whatever the order.
    pub(super) fn map_all_ready(&self) -> Result<(), Stop> {
        let guard = self.mm.mmap_lock.read();
        let stable = Stable::under(&guard, self.mm, self.addr)?;
        let Some(cache) = stable.view.cache::<M>() else {
            return Ok(());
        };
        if !stable.view.prot.allows(self.access) || !cache.maps_around() {
            return Ok(());
        }
        let leaf = self.leaf(&stable)?;
        let whole = entries_of::<M::Paging>(0).ilog2();
        let window = Window::new::<M>(&self.mm.system().config, &stable.view, self.addr, whole);
        let slot = stable.open_locked(leaf)?;
        let index = stable.view.page_index::<M::Paging>(self.addr);
        let mapped = self.map_window(&stable, &slot, cache, window.around(index));
        self.mm.count_resident(Some(self.share), mapped as i64);
        self.mm.system().count_n(Event::Populated, mapped);
        Ok(())
    }

    /// Maps the pages of a range that are ready; returns how many. The table's lock is held.
    fn map_window(
        &self,
        stable: &Stable<'_, M>,
        slot: &Slot<'_, M>,
        cache: &PageCache<M>,
        range: Range<u64>,
    ) -> u64 {
        let own = stable.view.page_index::<M::Paging>(self.addr);
        let page = self.addr.align_down(M::Paging::shift());
        let mut mapped = 0;
        let mut slots = cache.in_order();
        for index in range {
            let distance = index.wrapping_sub(own) << M::Paging::shift();
            let addr = VirtAddr(page.0.wrapping_add(distance));
            if self.map_ready(stable, slot, cache, &mut slots, (addr, index)) {
                mapped += 1;
            }
        }
        mapped
    }

    /// Maps one page, if that can be done now.
    fn map_ready(
        &self,
        stable: &Stable<'_, M>,
        slot: &Slot<'_, M>,
        cache: &PageCache<M>,
        slots: &mut InOrder<'_, M>,
        (addr, index): (VirtAddr, u64),
    ) -> bool {
        let sys = self.mm.system();
        let entry = stable.tables().entry(slot.table(), addr);
        if !self.is_free(entry.load()) {
            return false;
        }
        let page = match cache.look_next(slots, index) {
            Looked::Found(page) => page,
            Looked::Absent => return false,
            Looked::Busy => {
                sys.count(Event::FaultAroundSkipped);
                return false;
            }
        };
        if !page.frame().is_ready() && !sys.lacks(NegativeControl::AroundTakesAll) {
            sys.count(Event::FaultAroundSkipped);
            return false;
        }
        let locked = match sys.lacks(NegativeControl::AroundWaits) {
            true => Ok(page.lock()),
            false => page.try_lock(),
        };
        let Ok(page) = locked else {
            sys.count(Event::FaultAroundSkipped);
            return false;
        };
        let within = index < cache.pages() || sys.lacks(NegativeControl::SizeBeforeLock);
        let same = page.is(cache, index) || sys.lacks(NegativeControl::CachedUnchecked);
        let sound = !page.frame().is_poisoned() || sys.lacks(NegativeControl::AroundTakesAll);
        if !same || !within || !sound {
            return false;
        }
        page.frame().maps.add(1, Ordering::Relaxed);
        let pte = self.pte_around(stable, cache, Pte::page(page.pfn(), Grant::Read), addr);
        let put_in = match sys.config.protocol {
            // Faults exchange without the lock.
            Protocol::CompareExchange => {
                let how = self.mm.exchange_under_lock();
                entry.cas(how, Pte::none(), pte).is_ok()
            }
            Protocol::MmLock | Protocol::TableLock => {
                entry.store(pte);
                true
            }
        };
        if put_in {
            let _entrys = page.unlock().give();
        } else {
            page.frame().maps.sub(1, Ordering::Relaxed);
        }
        put_in
    }

    /// Whether nothing stands in an entry: no page, and none that is away.
    fn is_free(&self, found: Pte<M::Paging>) -> bool {
        match self.mm.system().switched_off() {
            Some(NegativeControl::AroundReplaces) => true,
            Some(NegativeControl::AroundForgetsAway) => !found.is_present(),
            _ => found.is_none(),
        }
    }

    /// The entry of a page that is mapped so.
    fn pte_around(
        &self,
        stable: &Stable<'_, M>,
        cache: &PageCache<M>,
        pte: Pte<M::Paging>,
        addr: VirtAddr,
    ) -> Pte<M::Paging> {
        let view = &stable.view;
        let shared = view.flags.has(VmaFlags::SHARED) && view.prot.has(Prot::WRITE);
        let pte = match shared && !cache.writes_back() {
            true => pte.with_grant(Grant::Write),
            false => pte,
        };
        let neighbour = addr != self.addr.align_down(M::Paging::shift());
        let config = &self.mm.system().config;
        let old = config.fault_around_age == FaultAroundAge::Old
            && !config.lacks::<M>(NegativeControl::FaultAroundYoung);
        match neighbour && old {
            true => pte.old(),
            false => pte,
        }
    }

    /// By the faults on files that the table has had: this is one more.
    fn adaptive_order(&self, leaf: Leaf<'_, M>) -> u32 {
        let faults = &self.mm.system().frames.get(leaf.table).index;
        // Two at once count one: it is a measure.
        let before = faults.load(Ordering::Relaxed);
        if before * STEP < MOST {
            faults.store(before + 1, Ordering::Relaxed);
        }
        (before * STEP).min(MOST) as u32
    }
}
