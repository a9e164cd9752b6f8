//! Tables in frames, and the atomic operations on their entries.
//!
//! # Problem
//! The hardware sets accessed and dirty bits at any time, regardless of locks; some machines have
//! no compare-and-exchange; and entries must be read at full width in one access.
//!
//! # Idea
//! An entry is an atomic word of the format's width. A *present* entry is changed by an exchange,
//! and the old value that it returns decides what to do. Where the machine has no exchange, a lock
//! emulates it, held only for the compare and the store.
//!
//! # Protocol
//! [`Exchange`] says how: natively; emulated under the lock given; or emulated by a caller that
//! already holds that lock (taking it again would be a self-deadlock, which review of the 2004
//! series found in one architecture's swapper path).
//!
//! # Why it is correct
//! Emulation is sound only if every change of an entry, from whatever path, takes the same lock; a
//! machine that emulates therefore has no hardware walker that writes entries, or only one CPU,
//! whose walker does not run while that CPU is in the kernel between a compare and a store.
//!
//! # Cost
//! Native: one read-modify-write. Emulated: a lock, a load and a store.

use crate::entry::Pte;
use crate::mmu::{EntryPoint, Mmu};
use crate::paging::Paging;
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
    /// A control: by halves, as review found it in the patches of 2004. Compares only the half of
    /// the word that stands at the entry's address, and exchanges one half after the other.
    HalfWidth,
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
    /// The table of level `level` that begins in frame `pfn`.
    ///
    /// # Safety
    /// 1. As many frames from `pfn` on as [`table_order`] says hold a table of that level (or the
    ///    empty entries of one) and stay one as long as `'t`.
    #[inline(always)]
    pub unsafe fn at(at: &'t M::Instance, pfn: Pfn, level: u32) -> Self {
        let base = M::frame_ptr(at, pfn).cast();
        let len = entries_of::<M::Paging>(level) as usize;
        // SAFETY: duty 1 of `Mmu`: the frames' bytes, one after the other, valid and aligned; 1 of
        // this function. Atomic words have the layout of integers.
        let entries = unsafe { core::slice::from_raw_parts(base, len) };
        Self { pfn, entries }
    }

    /// The frame it lies in.
    #[inline(always)]
    #[must_use]
    pub const fn pfn(self) -> Pfn {
        self.pfn
    }

    /// Entry `index`, below [`entries_of`] the table's level.
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

    /// The first entry of a table of level `level` from entry `first` on, and before entry `end`,
    /// that is not empty, and its value, read at full width. Entries are read in order, eight at a
    /// time where nothing is found: two instructions for each. Those of a line that is not all
    /// empty are read again.
    #[inline(always)]
    #[must_use]
    pub fn used_from(
        self,
        first: usize,
        end: usize,
        level: u32,
    ) -> Option<(usize, Pte<M::Paging>)> {
        let mut index = first;
        while index < end {
            let value = self.entry(index).load();
            if !value.is_none_at(level) {
                return Some((index, value));
            }
            index += 1;
            while index.is_multiple_of(AT_ONCE) && index + AT_ONCE <= end {
                if !self.is_unused(index, level) {
                    break;
                }
                index += AT_ONCE;
            }
        }
        None
    }

    /// Whether so many entries from `index` on are empty.
    #[inline(always)]
    fn is_unused(self, index: usize, level: u32) -> bool {
        let words = self.entries.get(index..).and_then(<[_]>::first_chunk);
        let none = Pte::<M::Paging>::none_at(level).raw();
        words.is_some_and(|words: &[_; AT_ONCE]| {
            let differ = |word| EntryRef::<M> { word }.load().raw() ^ none;
            words.iter().map(differ).fold(0, |all, word| all | word) == 0
        })
    }
}

/// Entries that are looked at together: those of a line, where entries have 8 bytes.
const AT_ONCE: usize = 8;

/// Entries of a table of level `level`.
#[inline(always)]
#[must_use]
pub fn entries_of<P: Paging>(level: u32) -> u64 {
    if P::shape().uniform {
        1 << P::tree()[0].bits
    } else {
        1 << P::tree()[level as usize].bits
    }
}

/// Bytes of a table of level `level`: more than a page, or only part of one.
#[must_use]
pub fn table_bytes<P: Paging>(level: u32) -> u64 {
    entries_of::<P>(level) * size_of::<P::Word>() as u64
}

/// A table of level `level` takes 2^this frames.
#[inline(always)]
#[must_use]
pub fn table_order<P: Paging>(level: u32) -> u32 {
    let pages = table_bytes::<P>(level).div_ceil(P::page());
    pages.next_power_of_two().trailing_zeros()
}

/// The place of `addr` in a table of level `level`.
#[inline(always)]
#[must_use]
pub fn index_of<P: Paging>(addr: VirtAddr, level: u32) -> usize {
    (addr.0 >> span_shift::<P>(level) & (entries_of::<P>(level) - 1)) as usize
}

/// Log2 of the bytes that one entry of level `level` covers; of what all tables cover together, if
/// that is the number of levels.
#[inline(always)]
#[must_use]
pub fn span_shift<P: Paging>(level: u32) -> u32 {
    if P::shape().uniform {
        P::shift() + level * P::tree()[0].bits
    } else {
        P::shape().shifts[level as usize]
    }
}

/// The addresses that the entry of level `level` over `addr` covers.
#[must_use]
pub fn span_of<P: Paging>(addr: VirtAddr, level: u32) -> VirtRange {
    let start = addr.align_down(span_shift::<P>(level));
    VirtRange::new(start, VirtAddr(start.0 + (1 << span_shift::<P>(level))))
}

impl<M: Mmu> EntryRef<'_, M> {
    /// Where the entry lies in the host's memory.
    #[must_use]
    pub fn host_addr(self) -> usize {
        core::ptr::from_ref(self.word).addr()
    }

    /// Reads at full width.
    #[inline(always)]
    #[must_use]
    pub fn load(self) -> Pte<M::Paging> {
        // ORDERING: Acquire; pairs with [entry-publish].
        Pte::from_word(M::load(self.word, Ordering::Acquire))
    }

    /// Reads at full width what a later exchange is decided by ([`EntryRef::decide`]).
    #[inline(always)]
    #[must_use]
    pub fn sample(self) -> Pte<M::Paging> {
        let _never = M::entry_point(self.address(), EntryPoint::Sampled);
        self.load()
    }

    /// Reads at full width an entry whose table is looked into next.
    #[inline(always)]
    #[must_use]
    pub(crate) fn load_to_follow(self) -> Pte<M::Paging> {
        let _never = M::entry_point(self.address(), EntryPoint::Followed);
        self.load()
    }

    /// Exchanges `old`, which was sampled, for `new`, which was decided by more than its value. An
    /// exchange that succeeds though the entry has named another page since the sample is a
    /// violation, where the machine keeps account of that.
    ///
    /// # Errors
    /// What was found instead of `old`.
    #[inline(always)]
    pub fn decide(
        self,
        how: Exchange<'_, M>,
        old: Pte<M::Paging>,
        new: Pte<M::Paging>,
    ) -> Result<(), Pte<M::Paging>> {
        let stale = M::entry_point(self.address(), EntryPoint::Decided);
        let done = self.cas(how, old, new);
        if stale && done.is_ok() {
            M::violation(format_args!(
                "ABA: {old:?} was exchanged for {new:?} by a stale sample: in between, the entry mapped \
                 another page and then this one again"
            ));
        }
        done
    }

    /// For machines that keep account of entries: this entry is about to become `new`.
    #[inline(always)]
    fn becomes(self, old: Pte<M::Paging>, new: Pte<M::Paging>) {
        if M::CHECKED && names(old) != names(new) {
            let _never = M::entry_point(self.address(), EntryPoint::Renamed);
        }
    }

    #[inline(always)]
    fn address(self) -> *const u8 {
        core::ptr::from_ref(self.word).cast()
    }

    /// Reads without the access hook, for oracles: what the calling CPU stored itself, it sees.
    #[must_use]
    pub fn peek(self) -> Pte<M::Paging> {
        Pte::from_word(M::peek(self.word))
    }

    /// Writes an entry of an unpublished table, without the access hook: the exchange that links
    /// the table publishes it.
    #[inline]
    pub fn clear(self, none: Pte<M::Paging>) {
        <M::Paging as Paging>::Word::store(self.word, none.word(), Ordering::Relaxed);
    }

    /// Writes an entry that no other thread may change now: under the lock an empty or `PROT_NONE`
    /// one, or any entry of an address space without other users.
    #[inline(always)]
    pub fn store(self, new: Pte<M::Paging>) {
        if M::CHECKED {
            self.becomes(self.peek(), new);
        }
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
            .map(|_| self.becomes(old, new))
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
            Exchange::HalfWidth => self.cas_half(old, new),
        }
    }

    /// Puts `new` in, whatever stood there; returns that.
    #[inline(always)]
    pub fn swap(self, how: Exchange<'_, M>, new: Pte<M::Paging>) -> Pte<M::Paging> {
        match how {
            // ORDERING: AcqRel; pairs with [entry-publish].
            Exchange::Native => {
                let old = M::rmw(self.word, Rmw::Swap, new.word(), Ordering::AcqRel);
                let old = Pte::from_word(old);
                self.becomes(old, new);
                old
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
            Exchange::HalfWidth => self.swap_halves(new),
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

    /// As the exchanges did that took the entry for an `int`.
    #[cold]
    fn cas_half(self, old: Pte<M::Paging>, new: Pte<M::Paging>) -> Result<(), Pte<M::Paging>> {
        loop {
            let found = self.load();
            if half::<M>(found) != half::<M>(old) {
                return Err(found);
            }
            if self.cas(Exchange::Native, found, new).is_ok() {
                return Ok(());
            }
        }
    }

    /// As the exchange of 64-bit entries was made of two 32-bit ones.
    #[cold]
    fn swap_halves(self, new: Pte<M::Paging>) -> Pte<M::Paging> {
        loop {
            let old = self.load();
            let other = old.word().wide() & !half_mask::<M>();
            let between = Word::narrow(half::<M>(new) | other);
            if self
                .cas(Exchange::Native, old, Pte::from_word(between))
                .is_ok()
            {
                self.store(new);
                return old;
            }
        }
    }
}

/// The page that an entry names, where it maps one.
fn names<P: Paging>(pte: Pte<P>) -> Option<Pfn> {
    pte.is_mapped().then(|| pte.pfn())
}

/// The half of an entry at its address, on a little-endian host.
const fn half_mask<M: Mmu>() -> u64 {
    u64::MAX >> (64 - 4 * size_of::<<M::Paging as Paging>::Word>())
}

fn half<M: Mmu>(pte: Pte<M::Paging>) -> u64 {
    pte.word().wide() & half_mask::<M>()
}
