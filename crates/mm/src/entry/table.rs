//! Page tables: their locks, the exchange of their entries, linking and freeing.
//!
//! A page table is linked by compare-and-exchange or under a lock, depending on the protocol
//! ([`Linking`]); either way only an empty entry becomes a table, and the loser frees its own table
//! and uses the winner's.
//!
//! # Problem
//! A speculative fault that finds no table has to put one in, and munmap may be freeing tables
//! there: one that it did not see is lost with its parent, or stays below nothing.
//!
//! # Idea
//! What a fault does with a locked PTE ([`super::slot`]) it does with a parent table as well:
//! take the parent's lock, *then* look whether the VMA has changed. ([`Linking::EveryParent`])
//!
//! # Protocol
//! ```text
//! speculative fault                    munmap, sections of its VMAs open: their counts are odd
//! walk: entry e of table T is empty    fence
//! make table C                         zap: walk to the leaf tables
//! lock T                               for each table T above leaves, top down:
//!   VMA changed? give C back             lock T, unlock T
//!   e still empty? e = C                 read its entries; those below first
//! unlock T; fence                        unlink T, flush, retire
//! walk on; open the PTE: VMA changed?
//! ```
//!
//! The lock of T is that of its descriptor, but for a T whose entries are leaf tables: each thread
//! has one of these to put in when it starts. There each [`GROUP_BYTES`] of entries have a lock, of
//! an array of the system's, and munmap holds each once that has an entry in its range.
//!
//! Of the tables above leaves, one serves all threads of a process that start at the same moment.
//! So there a fault first waits until T's lock is free and looks at e again; it makes C with the
//! lock of T held, if a trylock gets it. A leaf table is made before T is locked.
//!
//! # Why it is correct
//! - *No table is lost.* munmap frees T only where it unmaps all that T overlaps, the fault's VMA
//!   with it, whose count is odd by then. Whoever locks T later than munmap sees that and puts
//!   nothing in; what was put in earlier is read by munmap after it had the lock.
//! - *No page is lost.* Either the zap's walk finds C, or the fault finds the count odd when it
//!   opens a PTE in C: one of them reads after the other's fence.
//! - *T is a table all the time*: the fault walks in a read section, and T is retired after it was
//!   unlinked.
//!
//! # Cost
//! A fence for each zap, and in munmap a lock of each table above leaves, or group of its entries,
//! that it looks into for tables to free.
//!
//! As locks of page-table nodes in CortenMM (SOSP 2025), but for one step: those hold the lock of
//! the lowest table that covers a call's range throughout it.

use crate::base::check::Check;
use crate::base::config::{Config, ExchangeBy, Linking, NegativeControl, Protocol};
use crate::base::error::NoMemory;
use crate::base::event::Event;
use crate::memory::frame::Use;
use crate::mm::Mm;
use crate::system::System;
use core::ops::Range;
use core::ptr::NonNull;
use minflt_addr::Pfn;
use minflt_pgtable::{
    EntryRef, Exchange, Grant, Missing, Mmu, Paging, PtLock, Pte, Table, entries_of, table_bytes,
    table_order,
};
use minflt_sync::slab::POISON;
use minflt_sync::{Callback, Ordering};

/// Entries in so many bytes of a table share a lock under which leaf tables are linked.
const GROUP_BYTES: u64 = 256;

/// How many such locks a system has.
pub(crate) const fn linkers_for(config: &Config, cpus: u32) -> u32 {
    match config.linking {
        Linking::EveryParent => cpus,
        Linking::MmLock | Linking::ParentLock => 0,
    }
}

/// How entries are exchanged without a page-table lock, by configuration and CPU features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exchanges {
    Native,
    Emulated,
    /// The control.
    HalfWidth,
}

/// Whether the VMA of a fault that only sampled it is what it was.
pub(crate) type Unchanged<'c> = &'c dyn Fn() -> bool;

impl<M: Mmu> Mm<M> {
    /// The lock that changes to `table`'s entries take, in every protocol.
    #[inline(always)]
    pub(crate) fn table_lock(&self, table: Pfn) -> &PtLock<M> {
        match self.system().config.protocol {
            Protocol::MmLock | Protocol::CompareExchange => &self.page_table_lock,
            Protocol::TableLock => &self.system().frames.get(table).table_lock,
        }
    }

    /// Whether a fault that holds no lock of its VMA puts tables in.
    #[inline(always)]
    pub(crate) fn links_speculatively(&self) -> bool {
        self.system().config.linking == Linking::EveryParent
    }

    /// How a thread that may free tables exchanges the entries that point to them: no other changes
    /// those now.
    pub(crate) fn exchange_of_tables(&self) -> Exchange<'_, M> {
        match self.system().config.exchange {
            ExchangeBy::Native => Exchange::Native,
            ExchangeBy::Emulated => Exchange::Held,
        }
    }

    /// How the holder of that lock exchanges entries.
    pub(crate) fn exchange_under_lock(&self) -> Exchange<'_, M> {
        let sys = self.system();
        match sys.config.exchange {
            ExchangeBy::Native => Exchange::Native,
            ExchangeBy::Emulated if sys.lacks(NegativeControl::EmulateUnderLock) => {
                Exchange::Emulated(&self.page_table_lock)
            }
            ExchangeBy::Emulated => Exchange::Held,
        }
    }

    /// How a thread that holds no lock of the tables exchanges entries.
    #[inline(always)]
    pub fn exchange(&self) -> Exchange<'_, M> {
        match self.system().exchanges {
            Exchanges::Native => Exchange::Native,
            Exchanges::Emulated => Exchange::Emulated(&self.page_table_lock),
            Exchanges::HalfWidth => Exchange::HalfWidth,
        }
    }

    /// Links a missing table, unless another thread does: for a fault that only sampled its VMA, if
    /// that is `unchanged`.
    #[cold]
    pub(crate) fn populate(
        &self,
        place: &Missing<'_, M>,
        unchanged: Option<Unchanged<'_>>,
    ) -> Result<(), NoMemory> {
        let sys = self.system();
        let level = place.level;
        let alone = sys.config.linking == Linking::EveryParent && level > 1;
        if alone && !sys.lacks(NegativeControl::LinksUnderOwnLock) {
            return self.populate_alone(place, unchanged);
        }
        let fresh = Self::new_table(sys, level - 1).ok_or(NoMemory)?;
        let mine = if sys.lacks(NegativeControl::BlindPopulate) {
            place.entry.store(Pte::table(fresh, level));
            true
        } else {
            self.link_table(place, fresh, unchanged)
        };
        M::note(format_args!(
            "level {level} table: frame {fresh} {}",
            if mine { "put in" } else { "too late, freed" }
        ));
        if mine {
            sys.count(Event::TablesInstalled);
        } else {
            sys.count(Event::TablesLost);
            sys.put_table(fresh);
        }
        Ok(())
    }

    /// As [`Self::populate`], for a table that many faults need at the same moment: the fault that
    /// gets the parent's lock makes it, and the others wait until that is free and look again.
    fn populate_alone(
        &self,
        place: &Missing<'_, M>,
        unchanged: Option<Unchanged<'_>>,
    ) -> Result<(), NoMemory> {
        let (sys, entry, level) = (self.system(), place.entry, place.level);
        let lock = self.table_lock(place.table);
        let missing = || entry.load().is_none_at(level);
        let held = loop {
            lock.wait_free();
            if !missing() {
                return Ok(());
            }
            if let Some(held) = lock.try_lock() {
                break held;
            }
        };
        if Self::still_holds(sys, unchanged) && missing() {
            let fresh = Self::new_table(sys, level - 1).ok_or(NoMemory)?;
            entry.store(Pte::table(fresh, level));
            sys.count(Event::TablesInstalled);
            M::note(format_args!("level {level} table: frame {fresh} put in"));
        }
        drop(held);
        Self::linked(unchanged);
        Ok(())
    }

    /// Whether what was sampled is unchanged. The parent's lock is held.
    fn still_holds(sys: &System<M>, unchanged: Option<Unchanged<'_>>) -> bool {
        let trusting = sys.lacks(NegativeControl::LinksUnchecked);
        trusting || unchanged.is_none_or(|unchanged| unchanged())
    }

    /// The parent's lock was released.
    fn linked(unchanged: Option<Unchanged<'_>>) {
        if unchanged.is_some() {
            // ORDERING: fence SeqCst; pairs with [table-link]: the fault looks at the count again
            // after this, when it opens a PTE.
            M::fence(Ordering::SeqCst);
        }
    }

    /// Links `table` if the entry is still empty, and what was sampled `unchanged`; returns whether
    /// it did.
    pub(crate) fn link_table(
        &self,
        place: &Missing<'_, M>,
        table: Pfn,
        unchanged: Option<Unchanged<'_>>,
    ) -> bool {
        let (entry, level) = (place.entry, place.level);
        let (none, value) = (Pte::none_at(level), Pte::table(table, level));
        match self.system().config.protocol {
            Protocol::CompareExchange => entry.cas(self.exchange(), none, value).is_ok(),
            Protocol::MmLock | Protocol::TableLock => {
                let held = self.linker_lock(place, table).lock();
                let holds = Self::still_holds(self.system(), unchanged);
                let free = holds && entry.load().is_none_at(level);
                if free {
                    entry.store(value);
                }
                drop(held);
                Self::linked(unchanged);
                free
            }
        }
    }

    /// What keeps others from putting a table in at the same place.
    ///
    /// Linux: `pmd_lock` in __pte_alloc, and `page_table_lock` in __pmd_alloc.
    fn linker_lock(&self, place: &Missing<'_, M>, table: Pfn) -> &PtLock<M> {
        let (sys, lowest) = (self.system(), place.level == 1);
        match sys.config.linking {
            Linking::ParentLock | Linking::EveryParent
                if sys.lacks(NegativeControl::LinksUnderOwnLock) =>
            {
                &sys.frames.get(table).table_lock
            }
            Linking::ParentLock if lowest => &sys.frames.get(place.table).table_lock,
            Linking::EveryParent if lowest => self.group_lock(place.table, place.entry),
            Linking::EveryParent => &sys.frames.get(place.table).table_lock,
            Linking::MmLock | Linking::ParentLock => &self.page_table_lock,
        }
    }

    /// Where speculative faults put tables in: the lock of a group of entries for leaf tables, of
    /// which `entry` is one.
    fn group_lock(&self, table: Pfn, entry: EntryRef<'_, M>) -> &PtLock<M> {
        let linkers = &self.system().linkers;
        let page = M::Paging::page();
        let at = table.0 * page + (entry.host_addr() as u64 & (page - 1));
        // Tables for the same part of different arenas differ in few bits: Fibonacci hashing.
        let mixed = (at / GROUP_BYTES).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        linkers.get((mixed % u64::from(linkers.count())) as u32)
    }

    /// Where speculative faults put tables in: holds each lock once that they link tables under
    /// below some entries of a table. Who locks it later puts no table in.
    pub(crate) fn wait_for_linkers(&self, table: Table<'_, M>, level: u32, entries: Range<usize>) {
        if level > 1 {
            return drop(self.table_lock(table.pfn()).lock());
        }
        let group = GROUP_BYTES as usize / size_of::<<M::Paging as Paging>::Word>();
        let first = entries.start / group * group;
        for index in (first..entries.end).step_by(group) {
            drop(self.group_lock(table.pfn(), table.entry(index)).lock());
        }
    }

    /// Frames for a table of level `level`, with nothing in it.
    pub(crate) fn new_table(sys: &System<M>, level: u32) -> Option<Pfn> {
        let order = table_order::<M::Paging>(level);
        let pfn = sys.frames.alloc_block(&sys.at, order, Use::Table)?;
        let frame = sys.frames.get(pfn);
        frame.level.store(level, Ordering::Relaxed);
        frame.index.store(0, Ordering::Relaxed);
        frame.set_zeroed(crate::memory::frame::Zeroed::No);
        let bytes = table_bytes::<M::Paging>(level);
        M::charge(minflt_sync::Cost::Clear {
            bytes,
            node: sys.frames.node_of(pfn),
        });
        let none = Pte::<M::Paging>::none_at(level);
        for part in 0..1 << order {
            let words = M::frame_ptr(&sys.at, Pfn(pfn.0 + part));
            let here = bytes.min(M::Paging::page()) as usize;
            // SAFETY: duty 1 of `Mmu`: the frame's bytes, without other users.
            unsafe { words.write_bytes(0, here) };
        }
        if none.raw() != 0 {
            // SAFETY: 1: the frames hold zeros, and have no other user.
            let table = unsafe { Table::<M>::at(&sys.at, pfn, level) };
            for index in 0..entries_of::<M::Paging>(level) as usize {
                table.entry(index).clear(none);
            }
        }
        Some(pfn)
    }
}

impl<M: Mmu> System<M> {
    /// Frees an unlinked table, which no CPU can reach by a translation, by the configured
    /// reclamation scheme.
    ///
    /// # Safety
    /// 1. The table is unlinked and invalidated, and retired once.
    pub(crate) unsafe fn retire_table(&self, pfn: Pfn) {
        let callback = self.frames.table.callback_of(pfn);
        if self.lacks(NegativeControl::TablesAtOnce) {
            // SAFETY: 1, 2: 1 of this function, but for the walkers that this is to show.
            return unsafe { free_table::<M>(core::ptr::from_ref(self).cast(), callback) };
        }
        // SAFETY: 1, 2: unlinked and retired once, by 1. 3: the frame is found from its callback.
        unsafe { self.retire(callback, free_table::<M>) };
    }

    /// Frees an unreachable table, of the order that it was allocated with.
    pub(crate) fn put_table(&self, pfn: Pfn) {
        let level = self.frames.get(pfn).level.load(Ordering::Relaxed);
        self.frames.put_block(pfn, table_order::<M::Paging>(level));
    }
}

/// A fault or a call has just read an entry of table `pfn`.
#[inline(always)]
pub(crate) fn is_table<M: Mmu>(sys: &System<M>, pfn: Pfn) {
    if M::CHECKED {
        sys.looked(Check::Walk);
        let used = sys.frames.get(pfn).used_as();
        if used != Use::Table {
            M::violation(format_args!(
                "page-table walk reached frame {pfn}, which is {used:?} and not a page table"
            ));
        }
    }
}

/// # Safety
/// 1. `sys` is the system. 2. The callback is a retired table's.
unsafe fn free_table<M: Mmu>(sys: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function: a system outlives what it has queued.
    let sys = unsafe { &*sys.cast::<System<M>>() };
    let pfn = sys.frames.table.of_callback(callback);
    if M::CHECKED {
        // SAFETY: 1: 2 of this function.
        unsafe { poison(sys, pfn) };
    }
    sys.put_table(pfn);
}

/// Poisons a freed table, so that a walk still inside it ends: in checked runs with entries that
/// name a nonexistent frame, so that following one is a violation; else with empty entries.
///
/// # Safety
/// 1. The frames hold a table without users.
unsafe fn poison<M: Mmu>(sys: &System<M>, pfn: Pfn) {
    let level = sys.frames.get(pfn).level.peek();
    if !M::STOPS_THE_WORLD {
        let table = M::frame_ptr(&sys.at, pfn);
        let bytes = table_bytes::<M::Paging>(level);
        // SAFETY: duty 1 of `Mmu`: the frames' bytes; 1 of this function.
        return unsafe { table.write_bytes(POISON, bytes as usize) };
    }
    let nowhere = Pfn(sys.frames.table.first().0 + sys.frames.table.len());
    let trap = match level {
        0 => Pte::page(nowhere, Grant::Write),
        _ => Pte::table(nowhere, level),
    };
    // SAFETY: 1: they hold a table until it is put back, by 1 of this function.
    let table = unsafe { Table::<M>::at(&sys.at, pfn, level) };
    for index in 0..entries_of::<M::Paging>(level) as usize {
        table.entry(index).clear(trap);
    }
}
