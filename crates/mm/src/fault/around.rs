//! Fault-around: one file fault maps the cached pages around it.
//!
//! # Problem
//! A program that reads a cached file takes a fault for each page, although a fault costs more than
//! mapping a page.
//!
//! # Idea
//! A read fault maps all pages around its own that are ready, under one page-table lock.
//!
//! # Protocol
//! The window is an aligned group of pages, as many as the order says, clipped to the VMA and to
//! the page table. With the page-table lock held, for each page of the window: look it up in the
//! page cache; skip it if the fault would have to wait (it is locked, not yet read in,
//! hardware-poisoned, or its references are frozen by migration or reclaim); trylock it; recheck
//! that it is still that page of the file and within the file's size; install it if the PTE is
//! empty. If the faulting page is not among those installed, the fault continues as without
//! fault-around.
//!
//! # Why it is correct
//! Each page is locked while its PTE is installed, as in a fault of its own: truncation either
//! finds the PTE, or has already removed the page from the file. No PTE that is not empty is
//! replaced: not a private copy, in a frame or in a swap slot, and not a userfaultfd-protected
//! page. The fault neither waits nor allocates.
//!
//! # Cost
//! For each additional page: a walk of the index; the page's lock, reference and map count, which
//! are in one cache line of its own; and the store into the page table. These lines are prefetched
//! together, since a locked instruction waits for its line and the next one waits for that
//! instruction. Pages that are never used were mapped for nothing.
//!
//! # How many
//! A fixed order, or *adaptive*: the first file fault in a page table maps one page, and each later
//! one four times as many as the one before. A program that touches one page per table maps no more
//! than that; one that reads a whole table of 512 pages takes six faults. The table's fault count
//! is in its descriptor, in the cache line that the page-table lock fetches anyway.
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

    /// Prefetches the descriptors of the pages that the fault will map, where their number is known
    /// before the page table exists: the fetches overlap with allocating the table.
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
        let guard = self.mm.read_for_fault(self.addr);
        let stable = Stable::under(&guard, self.addr)?;
        let Some(cache) = stable.view.cache::<M>() else {
            return Ok(());
        };
        if stable.view.prot.grant() == Grant::Nothing || !cache.maps_around() {
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
        let pte = stable.entry_for(page.pfn(), Grant::Read);
        let pte = self.pte_around(stable, cache, pte, addr);
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

    /// Whether a PTE is empty: no page, and no swap or migration entry.
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

    /// The order, from the number of file faults in this table; counts this one.
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
