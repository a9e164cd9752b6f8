//! The frame descriptor, and the table of all of them.
//!
//! One descriptor is 64 bytes and a terabyte has 268 million of them, so the field map is fixed:
//!
//! ```text
//!  0 refs        4 maps        8 flags      12 generation
//! 16 mapping    24 index      32 links      40 table lock   44 level
//! 48 callback
//! ```
//!
//! Zeroed memory is a valid table: the descriptor of a frame that was never used is all zeros, so
//! memory of any size can be modelled sparsely.

mod table;
mod used;

pub(crate) use table::FrameTable;
pub(crate) use used::Use;

use crate::base::policy::MAX_NODES;
use core::fmt;
use core::ops::Range;
use minflt_pgtable::{Mmu, PtLock};
use minflt_sync::{Atomic, Callback, Ordering, PlainWord};

const USE: u32 = 0xf;
const ZEROED: u32 = 1 << 8;
const EXCLUSIVE: u32 = 1 << 9;
const FLUSHED: u32 = 1 << 10;
const UPTODATE: u32 = 1 << 11;
const DIRTY: u32 = 1 << 12;
const POISONED: u32 = 1 << 13;
/// Of a huge page: if it is freed before it is mapped, the reservation that it was allocated for is
/// restored.
const RESTORE_RESERVE: u32 = 1 << 17;
/// Of the first frame of a block.
const ORDER_SHIFT: u32 = 18;
const ORDER: u32 = 0x1f << ORDER_SHIFT;
/// Of anonymous memory one more than the node that its last hinting fault came from, or 0.
const USED_FROM_SHIFT: u32 = 23;
const USED_FROM: u32 = 0x1ff << USED_FROM_SHIFT;
const _: () = assert!(MAX_NODES <= (USED_FROM >> USED_FROM_SHIFT) as usize);

/// What a pin adds to a frame's references: more than entries and holders ever are, so that it
/// shows in the same word. A family of more than this many processes that share a page makes it
/// look pinned, which costs its children a copy.
///
/// Linux: GUP_PIN_COUNTING_BIAS.
pub(crate) const PIN: u32 = 1 << 12;

/// The descriptor of one frame.
///
/// # Invariants
/// A frame that is mapped has `maps` raised, and one reference for each entry, before the entry
/// names it. An exclusive frame is mapped once.
#[repr(C, align(64))]
pub struct Frame<M: Mmu> {
    /// References: one for each entry that maps it, one for each holder, [`PIN`] for each pin. 0
    /// when free.
    pub(crate) refs: Atomic<u32, M>,
    /// Number of PTEs that map the frame. For a hugetlb page table, the number of sharers other
    /// than its creator. Guarded by: the file's `i_mmap`.
    pub(crate) maps: Atomic<u32, M>,
    /// Use, block order, whether it is known to be zero: written by the frame's owner. Whether it
    /// is exclusive: set while private, and under the lock of the table that maps it. For a file
    /// page its state bits, which are changed atomically, since other threads may change them
    /// concurrently.
    flags: Atomic<u32, M>,
    /// How often it was freed. Kept for the oracles, outside the door.
    generation: Atomic<u32, M>,
    /// For anonymous memory the address of its anon_vma. Set while private or exclusive, under the
    /// lock of the table that maps it. For a page of a file the address of its cache, 0 once it
    /// left that. Guarded by: the folio lock, and set while private.
    pub(crate) mapping: Atomic<u64, M>,
    /// For anonymous memory its page number in the mapping ([`crate::VmaView::page_index`]).
    /// Immutable while mapped. For a page of a file its number, immutable. For slabs the number.
    /// For a table of leaf entries the number of its file faults, for fault-around. Of the first
    /// frame of a hole, with `mapping`, the frames behind that.
    pub(crate) index: Atomic<u64, M>,
    /// Neighbours in a free list. Guarded by: the zone's lock, or for huge pages `HugetlbLock`.
    links: PlainWord<u64, M>,
    /// Guards the entries, if this is a table and each has a lock of its own.
    pub(crate) table_lock: PtLock<M>,
    /// Level of the table, which says how many frames it has. Immutable while a table. For
    /// user memory the entries that the ledger has seen.
    pub(crate) level: Atomic<u32, M>,
    /// Waits for a grace period, if this was a table.
    pub(crate) callback: Callback,
}

/// Neighbours in a list of frames, by number; 0 is none, since frame 0 is never free: it is the
/// system's own, or below the machine's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    pub(crate) next: u32,
    pub(crate) prev: u32,
}

impl Links {
    const fn of(word: u64) -> Self {
        Self {
            next: word as u32,
            prev: (word >> 32) as u32,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.next) | u64::from(self.prev) << 32
    }
}

impl<M: Mmu> Frame<M> {
    /// Its neighbours.
    pub(crate) fn links(&self) -> Links {
        Links::of(self.links.get())
    }

    /// Changes them.
    pub(crate) fn link(&self, change: impl FnOnce(&mut Links)) {
        self.links.update(|word| {
            let mut links = Links::of(word);
            change(&mut links);
            links.word()
        });
    }

    /// The next one, for oracles at quiescence.
    pub(crate) fn peek_next(&self) -> u32 {
        Links::of(self.links.peek()).next
    }
}

impl<M: Mmu> Frame<M> {
    /// What the frame is used for.
    pub(crate) fn used_as(&self) -> Use {
        Use::from_number(self.flags.peek() & USE)
    }

    /// The caller owns the frame and says what it is used for. Anonymous memory starts exclusive.
    #[inline]
    pub(crate) fn set_use(&self, used_as: Use) {
        let kept = self.flags.peek() & ZEROED;
        let exclusive = if used_as == Use::Anon { EXCLUSIVE } else { 0 };
        let flags = kept | used_as as u32 | exclusive;
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// At boot: the frame is the first of a hole, behind which these frames are memory, none at the
    /// end of all.
    pub(super) fn begin_hole(&self, then: &Range<u64>) {
        self.index.store(then.start, Ordering::Relaxed);
        self.mapping.store(then.end, Ordering::Relaxed);
    }

    /// The frames that are memory behind the hole that this frame is the first of.
    pub(super) fn behind_hole(&self) -> Range<u64> {
        self.index.load(Ordering::Relaxed)..self.mapping.load(Ordering::Relaxed)
    }

    /// The caller, under the zone's lock, heads a free block of this order.
    pub(crate) fn set_free_block(&self, order: u32) {
        let kept = self.flags.peek() & ZEROED;
        let flags = kept | Use::FreeBlock as u32 | order << ORDER_SHIFT;
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// The caller owns a block of this order, of which this is the first frame, and says what it is
    /// used for.
    pub(crate) fn set_block_use(&self, used_as: Use, order: u32) {
        let kept = self.flags.peek() & ZEROED;
        let flags = kept | used_as as u32 | order << ORDER_SHIFT;
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// The order of the block in use that this frame is the first of.
    pub(crate) fn block_order(&self) -> u32 {
        (self.flags.peek() & ORDER) >> ORDER_SHIFT
    }

    /// Whether it heads a free block of this order.
    pub(crate) fn heads_block(&self, order: u32) -> bool {
        let flags = self.flags.load(Ordering::Relaxed);
        flags & (USE | ORDER) == Use::FreeBlock as u32 | order << ORDER_SHIFT
    }

    /// Whether the contents are known to be zero; the caller owns the frame.
    #[inline]
    pub(crate) fn is_zeroed(&self) -> bool {
        self.flags.peek() & ZEROED != 0
    }

    /// The caller owns the frame and cleared it, or is about to write it.
    pub(crate) fn set_zeroed(&self, zeroed: Zeroed) {
        let flags = self.flags.peek() & !ZEROED;
        self.flags.poke(if zeroed == Zeroed::Yes {
            flags | ZEROED
        } else {
            flags
        });
    }

    /// The state bits of a file page, to wait for one of them.
    #[inline]
    pub(crate) const fn state(&self) -> &Atomic<u32, M> {
        &self.flags
    }

    /// Somebody relies on what the frame is.
    pub(crate) const LOCKED: u32 = 1 << 14;
    /// It is being written back.
    pub(crate) const WRITEBACK: u32 = 1 << 15;
    /// Somebody sleeps for one of these two.
    pub(crate) const WAITERS: u32 = 1 << 16;

    /// Whether it is what the file has.
    #[inline]
    pub(crate) fn is_uptodate(&self) -> bool {
        // ORDERING: Acquire; pairs with [frame-uptodate].
        self.flags.load(Ordering::Acquire) & UPTODATE != 0
    }

    /// It is. The caller has the frame locked, and filled it.
    pub(crate) fn set_uptodate(&self) {
        // ORDERING: Release; pairs with [frame-uptodate].
        self.flags.or(UPTODATE, Ordering::Release);
    }

    /// Whether it may have been stored to since it was last written back.
    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & DIRTY != 0
    }

    /// Somebody may store to it from now on, or did.
    #[inline]
    pub(crate) fn set_dirty(&self) {
        if !self.is_dirty() {
            self.flags.or(DIRTY, Ordering::Relaxed);
        }
    }

    /// Marks it dirty after a store without the page lock and without a PTE.
    pub(crate) fn set_stored(&self) {
        // ORDERING: Release; pairs with [frame-stored]: a thread that clears the mark sees the
        // store.
        self.flags.or(DIRTY, Ordering::Release);
    }

    /// Nobody may any more. The caller has the frame locked.
    pub(crate) fn clean(&self) {
        if self.is_dirty() {
            // ORDERING: Acquire; pairs with [frame-stored].
            self.flags.and(!DIRTY, Ordering::Acquire);
        }
    }

    /// Starts writeback. The caller has the frame locked.
    pub(crate) fn begin_writeback(&self) {
        self.flags.or(Self::WRITEBACK, Ordering::Relaxed);
    }

    /// Whether it is being written.
    pub(crate) fn is_in_writeback(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & Self::WRITEBACK != 0
    }

    /// Whether it is locked, under writeback, or waited for. For the ledger.
    pub(crate) fn is_busy(&self) -> bool {
        self.flags.peek() & (Self::LOCKED | Self::WRITEBACK | Self::WAITERS) != 0
    }

    /// Records a hinting fault by a CPU of `node`; returns whether the last one came from that
    /// node, too. Under the lock of the one table that maps it; reset when the frame is reused.
    ///
    /// Linux: page_nid_xchg_last (v3.8), whose place is in the flags as well.
    pub(crate) fn used_from(&self, node: u32) -> bool {
        let now = (node + 1) << USED_FROM_SHIFT;
        let before = self.flags.load(Ordering::Relaxed) & USED_FROM;
        if before == now {
            return true;
        }
        // Two steps: the value between them is a hint, as before and after.
        if before != 0 {
            self.flags.and(!USED_FROM, Ordering::Relaxed);
        }
        self.flags.or(now, Ordering::Relaxed);
        false
    }

    /// Whether freeing the page restores its reservation. Linux: HPageRestoreReserve.
    #[inline]
    pub(crate) fn restores_reserve(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & RESTORE_RESERVE != 0
    }

    /// Marks a huge page that the caller has just allocated for a reservation, and not published.
    pub(crate) fn set_restore_reserve(&self) {
        self.flags.or(RESTORE_RESERVE, Ordering::Relaxed);
    }

    /// The reservation is used up: the page has been given to a program. In one step: others may
    /// lock the page meanwhile.
    #[inline]
    pub(crate) fn clear_restore_reserve(&self) {
        self.flags.and(!RESTORE_RESERVE, Ordering::Relaxed);
    }

    /// Whether its memory is broken.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & POISONED != 0
    }

    /// It is. The caller has the frame locked.
    pub(crate) fn set_poisoned(&self) {
        self.flags.or(POISONED, Ordering::Relaxed);
    }

    /// Whether it can be mapped without waiting: it is not locked, is uptodate and not
    /// hardware-poisoned.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // ORDERING: Acquire; pairs with [frame-uptodate].
        let flags = self.flags.load(Ordering::Acquire);
        flags & (Self::LOCKED | UPTODATE | POISONED) == UPTODATE
    }

    /// Whether no other address space maps the frame, for certain: so a store needs no copy.
    ///
    /// Linux: PageAnonExclusive.
    #[inline]
    pub(crate) fn is_exclusive(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Whether the frame may be pinned.
    ///
    /// Linux: folio_maybe_dma_pinned.
    #[inline]
    pub(crate) fn may_be_pinned(&self) -> bool {
        self.refs.load(Ordering::Relaxed) >= PIN
    }

    /// The ledger saw an entry that maps the frame; returns how many it saw.
    pub(crate) fn count_entries(&self, entries: Entries) -> u32 {
        match entries {
            Entries::Clear => self.level.poke(0),
            Entries::One => self.level.poke(self.level.peek() + 1),
            Entries::Keep => {}
        }
        self.level.peek()
    }

    /// Resets the ledger's mark on this hugetlb page table, before a walk over its sharers.
    pub(crate) fn forget_sharers_seen(&self) {
        if self.maps.peek() > 0 {
            self.index.poke(0);
        }
    }

    /// Marks the table as visited by the ledger; returns whether it was already, through another
    /// sharer.
    pub(crate) fn was_seen_by_sharer(&self) -> bool {
        let shared = self.maps.peek() > 0;
        if shared {
            self.index.poke(self.index.peek() + 1);
        }
        shared && self.index.peek() > 1
    }

    /// How often it came to this table, which is shared.
    pub(crate) fn sharers_seen(&self) -> u64 {
        self.index.peek()
    }

    /// Sets whether the frame is exclusive. The caller owns it, or holds the lock of the table that
    /// maps it: to clear the flag also `mmap_lock` for writing, to set it the only reference to the
    /// frame.
    #[inline]
    pub(crate) fn set_exclusive(&self, exclusive: Exclusive) {
        // In one step: others may lock the page meanwhile.
        match exclusive {
            Exclusive::Yes => self.flags.or(EXCLUSIVE, Ordering::Relaxed),
            Exclusive::No => self.flags.and(!EXCLUSIVE, Ordering::Relaxed),
        };
    }

    /// Flushes the instruction caches for the frame, by `flush`, unless that was done since it was
    /// allocated.
    ///
    /// Linux: PG_arch_1, as ia64 uses it.
    pub(crate) fn flush_once(&self, flush: impl FnOnce()) {
        if self.flags.load(Ordering::Relaxed) & FLUSHED == 0 {
            flush();
            self.flags.or(FLUSHED, Ordering::Relaxed);
        }
    }

    /// Whether they have. For the oracle.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.flags.peek() & FLUSHED != 0
    }

    /// The name of the field at `offset`.
    pub(crate) fn field_at(offset: usize) -> &'static str {
        match offset {
            0..4 => "refs",
            4..8 => "maps",
            8..12 => "flags",
            12..16 => "generation",
            16..24 => "mapping",
            24..32 => "index",
            32..40 => "links",
            40..44 => "table_lock",
            44..48 => "level",
            _ => "callback",
        }
    }

    /// How often the frame was freed so far.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation.peek()
    }

    /// The frame is being freed: a translation cached from now on is stale.
    #[inline]
    pub(crate) fn next_generation(&self) {
        self.generation.poke(self.generation.peek().wrapping_add(1));
    }

    /// The frame is being freed: a remark for traces.
    #[inline]
    pub(crate) fn is_freed(&self) {
        if M::CHECKED {
            M::freed(core::ptr::from_ref(self).cast(), size_of::<Self>());
        }
    }
}

/// Whether a frame's contents are known to be zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Zeroed {
    Yes,
    No,
}

/// What the ledger does to its count of a frame's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entries {
    Clear,
    One,
    Keep,
}

/// Whether a frame is mapped once, for certain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exclusive {
    Yes,
    No,
}

impl<M: Mmu> fmt::Debug for Frame<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} refs {:?} maps {:?}",
            self.used_as(),
            self.refs,
            self.maps
        )
    }
}
