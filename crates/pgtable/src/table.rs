//! Tables in frames, and the atomic operations on their entries.
//!
//! # Problem
//! The hardware sets accessed and dirty bits at any time, whoever holds whatever lock; some
//! machines have no compare-and-exchange; and entries must be read at full width in one access.
//!
//! # Idea
//! An entry is an atomic word of the format's width. Whoever changes a *present* entry exchanges it
//! and acts on the value that came back. Where the machine has no exchange, a lock emulates it,
//! held for just the compare and the store.
//!
//! # Protocol
//! [`Exchange`] says how: natively; emulated under the lock given; or emulated by somebody who
//! holds that lock already (taking it again would be a deadlock with oneself, which review of the
//! 2004 series found in one architecture's swapper path).
//!
//! # Why it is correct
//! Emulation is sound only if every change of an entry, from whatever path, takes the same lock; a
//! machine that emulates therefore has no hardware walker that writes entries.
//!
//! # Cost
//! Native: one read-modify-write. Emulated: a lock, a load and a store.

use crate::entry::Pte;
use crate::mmu::Mmu;
use crate::paging::{CasAbility, Paging};
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_sync::order::PageTableLock;
use minflt_sync::{Ordering, Rmw, SpinLock, Word};

/// The lock over the tables of an address space, or over one table.
pub type PtLock<M> = SpinLock<(), PageTableLock, M>;

/// A table page, seen as its entries.
#[derive(Debug)]
pub struct Table<'t, M: Mmu> {
    pfn: Pfn,
    entries: &'t [<<M::Paging as Paging>::Word as Word>::Prim],
}

/// One entry of a table.
#[derive(Debug)]
pub struct EntryRef<'t, M: Mmu> {
    word: &'t <<M::Paging as Paging>::Word as Word>::Prim,
}

/// How entries are compared and exchanged.
#[derive(Debug)]
pub enum Exchange<'l, M: Mmu> {
    /// By the machine.
    Native,
    /// Under this lock, taken for the compare and the store.
    Emulated(&'l PtLock<M>),
    /// Under the emulating lock, which the caller holds.
    Held,
}

impl<M: Mmu> Clone for Table<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Mmu> Copy for Table<'_, M> {}
impl<M: Mmu> Clone for EntryRef<'_, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Mmu> Copy for EntryRef<'_, M> {}
impl<M: Mmu> Clone for Exchange<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Mmu> Copy for Exchange<'_, M> {}

impl<'t, M: Mmu> Table<'t, M> {
    /// The table in frame `pfn`.
    ///
    /// # Safety
    /// 1. The frame holds a table (or zeros) and stays one as long as `'t`.
    #[inline(always)]
    pub unsafe fn at(at: &'t M::Instance, pfn: Pfn) -> Self {
        let base = M::frame_ptr(at, pfn).cast();
        // SAFETY: duty 1 of `Mmu`: a page's bytes, valid and aligned; 1 of this function. Atomic
        // words have the layout of integers.
        let entries = unsafe { core::slice::from_raw_parts(base, M::Paging::ENTRIES as usize) };
        Self { pfn, entries }
    }

    /// The frame it lies in.
    #[inline(always)]
    #[must_use]
    pub const fn pfn(self) -> Pfn {
        self.pfn
    }

    /// Entry `index`, below [`Paging::ENTRIES`].
    #[inline(always)]
    #[must_use]
    pub fn entry(self, index: usize) -> EntryRef<'t, M> {
        EntryRef {
            word: &self.entries[index],
        }
    }

    /// The entry for `addr`, if this is a table of level `level`.
    #[inline(always)]
    #[must_use]
    pub fn entry_for(self, addr: VirtAddr, level: u32) -> EntryRef<'t, M> {
        self.entry(index_of::<M::Paging>(addr, level))
    }
}

/// The place of `addr` in a table of level `level`.
#[inline(always)]
#[must_use]
pub const fn index_of<P: Paging>(addr: VirtAddr, level: u32) -> usize {
    (addr.0 >> (P::SHIFT + level * P::INDEX_BITS) & (P::ENTRIES - 1)) as usize
}

/// Log2 of the bytes that one entry of level `level` covers.
#[inline(always)]
#[must_use]
pub const fn span_shift<P: Paging>(level: u32) -> u32 {
    P::SHIFT + level * P::INDEX_BITS
}

/// The addresses that the entry of level `level` over `addr` covers.
#[must_use]
pub fn span_of<P: Paging>(addr: VirtAddr, level: u32) -> VirtRange {
    let start = addr.align_down(span_shift::<P>(level));
    VirtRange::new(start, VirtAddr(start.0 + (1 << span_shift::<P>(level))))
}

impl<M: Mmu> EntryRef<'_, M> {
    /// Reads at full width.
    #[inline(always)]
    #[must_use]
    pub fn load(self) -> Pte<M::Paging> {
        // ORDERING: Acquire; pairs with [entry-publish].
        Pte::from_word(M::load(self.word, Ordering::Acquire))
    }

    /// Reads without the door, for oracles.
    #[must_use]
    pub fn peek(self) -> Pte<M::Paging> {
        Pte::from_word(<M::Paging as Paging>::Word::load(
            self.word,
            Ordering::Relaxed,
        ))
    }

    /// Writes an entry that nobody else may change now: it is none, under the lock.
    #[inline(always)]
    pub fn store(self, new: Pte<M::Paging>) {
        // ORDERING: Release; pairs with [entry-publish].
        M::store(self.word, new.word(), Ordering::Release);
    }

    /// Exchanges `old` for `new`.
    ///
    /// # Errors
    /// What was found instead of `old`.
    #[inline(always)]
    pub fn cas(
        self,
        how: Exchange<'_, M>,
        old: Pte<M::Paging>,
        new: Pte<M::Paging>,
    ) -> Result<(), Pte<M::Paging>> {
        match how {
            // ORDERING: AcqRel; pairs with [entry-publish].
            Exchange::Native => M::cas(
                self.word,
                old.word(),
                new.word(),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .map(drop)
            .map_err(Pte::from_word),
            Exchange::Emulated(lock) => {
                let _held = lock.lock();
                self.cas(Exchange::Held, old, new)
            }
            Exchange::Held => {
                let found = self.load();
                if found != old {
                    return Err(found);
                }
                self.store(new);
                Ok(())
            }
        }
    }

    /// Puts `new` in, whatever stood there; returns that.
    #[inline(always)]
    pub fn swap(self, how: Exchange<'_, M>, new: Pte<M::Paging>) -> Pte<M::Paging> {
        match how {
            // ORDERING: AcqRel; pairs with [entry-publish].
            Exchange::Native => {
                Pte::from_word(M::rmw(self.word, Rmw::Swap, new.word(), Ordering::AcqRel))
            }
            Exchange::Emulated(lock) => {
                let _held = lock.lock();
                self.swap(Exchange::Held, new)
            }
            Exchange::Held => {
                let old = self.load();
                self.store(new);
                old
            }
        }
    }

    /// Replaces a mapped entry by what `change` makes of it, retrying while others change it;
    /// returns the old value. `change` gives `None` to leave the entry as it is.
    #[inline]
    pub fn update(
        self,
        how: Exchange<'_, M>,
        mut change: impl FnMut(Pte<M::Paging>) -> Option<Pte<M::Paging>>,
    ) -> Result<Pte<M::Paging>, Pte<M::Paging>> {
        let mut old = self.load();
        loop {
            let Some(new) = change(old) else {
                return Err(old);
            };
            match self.cas(how, old, new) {
                Ok(()) => return Ok(old),
                Err(found) => old = found,
            }
        }
    }
}

/// How a format's entries are exchanged where no lock is held: natively, or under `lock`.
#[must_use]
pub fn exchange_of<M: Mmu>(lock: &PtLock<M>) -> Exchange<'_, M> {
    match M::Paging::CAPS.cas {
        CasAbility::Native => Exchange::Native,
        CasAbility::Emulated => Exchange::Emulated(lock),
    }
}
