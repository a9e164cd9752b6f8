//! Swap-out of one page, and its rollback.
//!
//! ```text
//! CPU 0: swap-out                    CPU 1: faults                 CPU 2: stores, old translation
//! page locked; slot taken, WRITING
//! entry: page -> slot                finds the slot: sleeps
//!                                      for WRITING
//! CPUs are told                                                    forgets the page; faults,
//! refers anybody to the page?                                        sleeps
//! contents written
//! WRITING goes                       reads the slot
//! ```
//! Whoever gets at a page without an entry refers to it: a pin, a store from another address
//! space. Either took the reference before the entry went, and then it is seen behind the
//! invalidation (a pin without a lock is over when its CPU has answered that); or it finds the slot
//! in the entry, and waits like a fault. Who refers to any frame for a moment, to see what it is,
//! leaves one alone that is mapped by nobody.
//!
//! Linux: mm/vmscan.c shrink_folio_list, pageout, __remove_mapping; mm/rmap.c try_to_unmap_one.

use crate::base::config::NegativeControl;
use crate::base::event::Event;
use crate::entry::zap::{Only, Zap};
use crate::memory::frame::Exclusive;
use crate::pages::page::Locked;
use crate::pages::rmap::away::To;
use crate::pages::rmap::owner::Owner;
use crate::system::System;
use core::ops::ControlFlow;
use minflt_addr::{Pfn, VirtRange};
use minflt_pgtable::{Grant, Mmu, NonPresent, Pte};
use minflt_sync::Ordering;

/// Why a page stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stays {
    /// Somebody else refers to it, or came in between.
    Busy,
    /// No slot is free.
    NoSlot,
    /// The device failed.
    Failed,
}

impl<M: Mmu> System<M> {
    /// Writes an anonymous page to the swap device, and gives its frame back: entries that map it
    /// name its slot afterwards.
    ///
    /// # Context
    /// Sleeps for the reverse map's lock, waits for TLB flushes, and for the device. Holds what
    /// stands before the page's lock.
    ///
    /// # Errors
    /// The page stays as it was, but that its next users fault.
    pub(crate) fn swap_out(&self, page: Locked<'_, M>, owner: &Owner<'_, M>) -> Result<(), Stays> {
        let maps = page.frame().maps.load(Ordering::Relaxed);
        let uncounted = self.lacks(NegativeControl::FoundBeforeCounted);
        if page.frame().refs.load(Ordering::Relaxed) != maps + 1 && !uncounted {
            return Err(Stays::Busy);
        }
        let slot = self.begin_slot().ok_or(Stays::NoSlot)?;
        let left = self.leave(&page, owner, slot);
        if left.is_err() {
            self.come_back(&page, owner, slot);
        }
        self.end_slot(slot);
        if left.is_ok() {
            M::note(format_args!("frame {} is in slot {slot}", page.pfn()));
            self.count(Event::SwapOut);
        }
        left
    }

    /// Makes every entry of the page name the slot, and writes it.
    fn leave(&self, page: &Locked<'_, M>, owner: &Owner<'_, M>, slot: u64) -> Result<(), Stays> {
        let early = self.lacks(NegativeControl::SwapForgetsDirty);
        let write = || {
            let written = self.swap.device.write(&self.at, slot, page.pfn());
            written.map_err(|_| Stays::Failed)
        };
        if early {
            write()?;
        }
        if !self.put_away(page, owner, To::Swap { slot }) {
            return Err(Stays::Busy);
        }
        // ORDERING: Acquire; pairs with [frame-put]: what others did to the page before they let it
        // go is written.
        if page.frame().refs.load(Ordering::Acquire) != 1 {
            return Err(Stays::Busy);
        }
        if early { Ok(()) } else { write() }
    }

    /// Makes the entries that name a slot map the page again which was to go there.
    ///
    /// # Correctness
    /// A fork may be copying entries meanwhile, so that one of the child's is made behind the walk.
    /// What is left names the slot, and counts in it: the walk is repeated until nobody does.
    /// Nobody reads the slot, since it is still being written.
    ///
    /// The entries grant nothing, for what the mapping allows may have changed: the next access
    /// asks. Linux: do_swap_page on a page in the swap cache.
    fn come_back(&self, page: &Locked<'_, M>, owner: &Owner<'_, M>, slot: u64) {
        if self.swap.count(slot) == 0 {
            return;
        }
        self.count(Event::SwapPutBack);
        let frame = page.frame();
        // A child may have it by now. Nobody has it pinned.
        frame.set_exclusive(Exclusive::No);
        let index = frame.index.load(Ordering::Relaxed);
        while self.swap.count(slot) != 0 {
            let _all = owner.each(index, |place| {
                let zap = Zap::begin_only(place.tables, place.range, Only::All);
                zap.bring_back(place.range, slot, page.pfn());
                ControlFlow::Continue(())
            });
        }
    }
}

impl<M: Mmu> Zap<'_, M> {
    /// Maps frame `pfn` where the entry of one page names `slot`.
    fn bring_back(mut self, page: VirtRange, slot: u64, pfn: Pfn) {
        let mut at = page.start();
        if let Some((leaf, _)) = self.tables.next_table(&mut at, page) {
            let (mm, sys) = (self.mm(), self.mm().system());
            let _held = mm.table_lock(leaf.table).lock();
            let entry = self.tables.entry(leaf.table, page.start());
            let found = entry.load();
            if found.nonpresent() == Some(NonPresent::Swap(slot)) {
                let frame = sys.frames.get(pfn);
                frame.refs.add(1, Ordering::Relaxed);
                // ORDERING: Release; pairs with [frame-maps].
                frame.maps.add(1, Ordering::Release);
                let back = Pte::page(pfn, Grant::Nothing).dirty();
                let marked = found.is_uffd_wp();
                entry.swap(
                    mm.exchange_under_lock(),
                    if marked { back.uffd_wp() } else { back },
                );
                mm.count_resident(None, 1);
                sys.swap.put(slot);
            }
        }
        self.finish();
    }
}
