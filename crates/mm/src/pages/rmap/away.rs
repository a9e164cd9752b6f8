//! Unmaps a page with migration or swap entries, and removes these entries.
//!
//! # Problem
//! The thread that migrates a page, or writes it to a swap device, must have exclusive access to
//! it, while other threads load and store and the hardware sets accessed and dirty bits.
//!
//! # Idea
//! Replace each PTE that names the page by a migration or swap entry, in one exchange; a fault that
//! finds such an entry waits, or swaps the page in.
//!
//! # Protocol
//! ```text
//! put_away                                     put_back
//! the page locked                              the page locked
//! for each PTE, under its page-table lock:     for each PTE, under its page-table lock:
//!   PTE -> migration or swap entry (one step)    the entry -> a PTE
//!   dirty bit set? the page is dirty
//!   map count - 1
//!   TLB flush; then the PTE's reference
//! ```
//!
//! # Why it is correct
//! *One exchange* (I3): a PTE that were empty for a moment could be filled by a fault with the zero
//! page, and the next store of the entry would then overwrite it, with whatever the user had
//! stored. So a swap slot is allocated, and counted, before the exchange.
//!
//! *The value returned* (I4): the hardware sets the dirty bit at any time before the exchange, so
//! the value that the exchange returns decides whether the page is dirty.
//!
//! *Before the copy* (P15): a CPU that caches the old translation stores to the old page until its
//! TLB is flushed. All flushes are complete when [`System::put_away`] returns, so a later read sees
//! all stores.
//!
//! *Every entry is found again* (P12, P13): mremap moves entries with the reverse map's lock held
//! for writing, so a walk misses none; a walk visits a child after its parent
//! ([`crate::pages::interval`]). An entry that fork copied is restored as the parent's is; fork
//! removes write permission from both, and the page is no longer exclusive, which is tested under
//! the page-table lock.
//!
//! *Pins.* A pinned page must remain its owner's, which a fork that finds a swap entry could not
//! know. So an exclusive page is replaced by a swap entry only if it has no pin after the TLB
//! flush, with the page-table lock still held, which excludes fork. A thread that migrates a page
//! holds `mmap_lock`, or the VMA lock, of the one address space that an exclusive page has, so no
//! fork intervenes; without that lock it proceeds as for a swap entry.
//!
//! *Protection* (P14): the entry itself has the protection that will be restored, and mprotect
//! lowers it there.
//!
//! # Cost
//! An exchange and a TLB flush for each PTE.
//!
//! Linux: mm/rmap.c try_to_unmap_one, try_to_migrate_one; mm/migrate.c remove_migration_pte.

use super::owner::Owner;
use crate::base::config::NegativeControl;
use crate::base::event::Event;
use crate::entry::shootdown;
use crate::entry::zap::{Only, Zap};
use crate::memory::frame::{Exclusive, Frame};
use crate::pages::page::Locked;
use crate::system::System;
use core::ops::ControlFlow;
use minflt_addr::{Pfn, VirtRange};
use minflt_pgtable::{Mmu, Paging, Pte};
use minflt_sync::Ordering;

/// What a page is unmapped for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// Migration: faults on the page wait.
    Migration,
    /// The same, by a thread that does not exclude fork.
    MigrationUnheld,
    /// Nowhere: it is in its file, and found there.
    File,
    /// To a slot of the swap device, in which each entry counts: see [`crate::memory::swap`].
    Swap {
        /// Which.
        slot: u64,
    },
}

impl To {
    /// Whether the page stays in memory.
    const fn moves(self) -> bool {
        matches!(self, Self::Migration | Self::MigrationUnheld)
    }

    /// Whether fork may run between unmapping and restoration, and share a page that is pinned.
    const fn may_be_forked(self) -> bool {
        matches!(self, Self::Swap { .. } | Self::MigrationUnheld)
    }
}

impl<M: Mmu> System<M> {
    /// Unmaps a page everywhere; returns whether no mapping is left. The TLB flush of all unmapped
    /// PTEs is complete then.
    ///
    /// # Context
    /// Sleeps for the lock of the reverse map; waits for TLB flushes.
    pub(crate) fn put_away(&self, page: &Locked<'_, M>, owner: &Owner<'_, M>, to: To) -> bool {
        let frame = page.frame();
        let index = frame.index.load(Ordering::Relaxed);
        let _all = owner.each(index, |place| {
            if place.locked && !to.moves() {
                // Locked since the caller asked. Linux: VM_LOCKED in try_to_unmap_one.
                return ControlFlow::Continue(());
            }
            let mut zap = Zap::begin_only(place.tables, place.range, Only::All);
            zap.put_away(place.range, page.pfn(), to);
            if self.lacks(NegativeControl::CopyBeforeFlush) {
                zap.forget();
            }
            zap.finish();
            match frame.maps.load(Ordering::Relaxed) {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        frame.maps.load(Ordering::Relaxed) == 0
    }

    /// Makes every entry that says that `from` is being moved name the frame of `page`, which may
    /// be `from` itself.
    ///
    /// # Context
    /// Sleeps for the lock of the reverse map.
    pub(crate) fn put_back(&self, from: Pfn, page: &Locked<'_, M>, owner: &Owner<'_, M>) {
        let index = page.frame().index.load(Ordering::Relaxed);
        let _all = owner.each(index, |place| {
            let zap = Zap::begin_only(place.tables, place.range, Only::All);
            zap.put_back(place.range, from, page.pfn());
            ControlFlow::Continue(())
        });
    }
}

impl<M: Mmu> Zap<'_, M> {
    /// Takes the entry of one page away, if it names frame `pfn`.
    fn put_away(&mut self, page: VirtRange, pfn: Pfn, to: To) {
        let mut at = page.start();
        let Some((leaf, _)) = self.tables.next_table(&mut at, page) else {
            return;
        };
        let (mm, sys) = (self.mm(), self.mm().system());
        let how = mm.exchange_under_lock();
        let held = mm.table_lock(leaf.table).lock();
        let entry = self.tables.entry(leaf.table, page.start());
        let names =
            |pte: Pte<M::Paging>| pte.is_mapped() && !pte.is_zero_page() && pte.pfn() == pfn;
        if !names(entry.load()) {
            return;
        }
        if let To::Swap { slot } = to {
            // Before an entry names it.
            sys.swap.dup(slot);
        }
        // The lock keeps it mapped; only its bits change.
        let mut old = entry.load();
        if matches!(to, To::Swap { .. }) && sys.lacks(NegativeControl::SwapInTwoSteps) {
            old = entry.swap(how, Pte::none());
            entry.store(away(old, to));
        } else {
            while let Err(found) = entry.cas(how, old, away(old, to)) {
                old = found;
            }
        }
        let frame = sys.frames.get(pfn);
        let late = sys.lacks(NegativeControl::CopyBeforeFlush);
        if to.may_be_forked() && frame.is_exclusive() && !late {
            // A lockless pin on another CPU is complete when that CPU has acknowledged the flush.
            shootdown::flush(sys, mm, page);
            let shares = [
                NegativeControl::SwapSharesPinned,
                NegativeControl::MoveUncounted,
            ];
            let shares = sys.switched_off().is_some_and(|it| shares.contains(&it));
            if frame.may_be_pinned() && !shares {
                entry.swap(how, old);
                drop(held);
                mm.drop_nonpresent(away(old, to));
                return;
            }
        } else {
            self.gather.touch(page);
        }
        M::note(format_args!("{} of frame {pfn} is put away", page.start()));
        if old.is_dirty() && !sys.lacks(NegativeControl::AwayForgetsDirty) {
            frame.set_dirty();
        }
        // ORDERING: AcqRel; no pair: the count is compared with itself only.
        if frame.maps.sub(1, Ordering::AcqRel) == 0 {
            M::violation(format_args!("map count underflow of frame {pfn}"));
        }
        if !to.moves() {
            mm.count_resident(None, -1);
        }
        drop(held);
        self.gather.page(pfn);
    }

    /// Maps frame `to` where the entry of one page says that `from` is being moved.
    fn put_back(mut self, page: VirtRange, from: Pfn, to: Pfn) {
        if self.mm().system().lacks(NegativeControl::CopyBeforeFlush) {
            self.gather.touch(page);
        }
        let mut at = page.start();
        if let Some((leaf, _)) = self.tables.next_table(&mut at, page) {
            let (mm, sys) = (self.mm(), self.mm().system());
            let _held = mm.table_lock(leaf.table).lock();
            let entry = self.tables.entry(leaf.table, page.start());
            let found = entry.load();
            if found.moving() == Some(from) {
                let frame = sys.frames.get(to);
                frame.refs.add(1, Ordering::Relaxed);
                // ORDERING: Release; pairs with [frame-maps].
                frame.maps.add(1, Ordering::Release);
                // A fork may have copied this entry before.
                if !sys.frames.get(from).is_exclusive() {
                    frame.set_exclusive(Exclusive::No);
                }
                entry.swap(mm.exchange_under_lock(), found.migrated(to));
                M::note(format_args!("{} is put back to frame {to}", page.start()));
            }
        }
        self.finish();
    }
}

fn away<P: Paging>(old: Pte<P>, to: To) -> Pte<P> {
    match to {
        To::Migration | To::MigrationUnheld => old.migration(),
        To::File => Pte::none(),
        To::Swap { slot } => old.swapped(slot),
    }
}

impl<M: Mmu> System<M> {
    /// Waits until the migration of a page from frame `pfn` ends. The frame may have another owner
    /// by then. The wait needs no reference: the migrating thread, which set the bit, has one, and
    /// wakes all threads that found it set.
    ///
    /// # Context
    /// Sleeps. The caller has no page locked.
    ///
    /// Linux: migration_entry_wait.
    #[cold]
    pub(crate) fn await_move(&self, pfn: Pfn) {
        self.count(Event::MigrationWaits);
        self.files.waits.wait_clear(
            pfn.0,
            self.frames.get(pfn).state(),
            Frame::<M>::LOCKED,
            Frame::<M>::WAITERS,
        );
    }
}
