//! Swap: slots that keep the contents of anonymous pages while their frames are in other use.
//!
//! # Problem
//! A program may use more memory than the machine has frames. Pages that were not used for long are
//! written to a device, and swap entries refer to them there. Several entries may refer to one slot
//! of the device, since processes share pages after a fork; and other threads fault on them, unmap
//! them and fork them during swap-out.
//!
//! # Idea
//! A word per slot counts the entries that refer to it, and its readers. One bit of the word says
//! that the slot is being written; a thread that needs the contents sleeps on that bit. A slot is
//! free when its word is 0, so dropping the last count frees it.
//!
//! # Protocol
//! ```text
//! swap-out, with the page locked ([`out`])        swap-in ([`crate::fault`], `swap`)
//!   slot: 0 -> WRITING, count 0                     entry sampled: names the slot
//!   entries: present -> slot, one exchange each     slot: count + 1, unless WRITING or 0
//!     slot: count + 1 before each                   entry still names it? else count - 1, again
//!   TLB flush                                     contents read, with no lock held
//!   no other reference? written                   under the table's lock: entry is the sampled
//!   slot: WRITING cleared, sleepers woken           one, and becomes the page's
//!   frame freed                                     slot: count - 2
//! ```
//! If swap-out fails (a device error, another reference, an entry left), the swap entries are
//! removed by the reverse map before WRITING is cleared.
//!
//! # Why it is correct
//! The slot is allocated first, so a PTE changes from the page to the swap entry in one exchange,
//! and is never empty. The contents are written after the TLB flush, so the device misses no store,
//! whatever the dirty bit. A slot under writing is not read. A reader holds a count on the slot, so
//! it is not reused meanwhile, and an entry that names it afterwards has named it all the time: the
//! contents read are the right ones. (Without that count a page could be swapped in, stored to and
//! swapped out to the same slot, while another thread still has the old contents.)
//!
//! A swapped-in page belongs to the reader alone: processes that shared it before swap-out get a
//! copy each. So there is no swap cache, a page is *exclusive* when it is swapped in, and its slot
//! is free once all sharers have read it.
//!
//! # Cost
//! A cache line of words covers 16 slots, and each CPU searches its own part first. Where most are
//! in use, the search reads a word for each 4,096 slots, and a few groups of 64. Out: two exchanges
//! on the slot's word, one more and one of the entry for each entry, a copy, one TLB flush. In:
//! three exchanges on the slot's word, and a copy.
//!
//! Linux: mm/swapfile.c, mm/swap_state.c, mm/memory.c do_swap_page. Linux's swap cache lets
//! processes continue to share such pages, and saves rewriting pages that were not stored to since.

mod device;
mod search;

pub use device::{Swap, SwapDevice};

use crate::base::file::IoError;
use crate::memory::frame::FrameTable;
use crate::system::System;
use core::fmt;
use core::ptr::NonNull;
use device::Backing;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Ordering};

/// The slot is being written.
const WRITING: u32 = 1 << 31;
/// Somebody sleeps until it is not.
const WAITERS: u32 = 1 << 30;
/// Swap entries that name the slot, and readers in progress.
const COUNT: u32 = WAITERS - 1;

/// Sets the keys of slots apart from those of frames, which sleep in the same queues.
const KEYS: u64 = 1 << 63;

/// The swap device of a system, and the words of its slots.
pub(crate) struct SwapArea<M: Mmu> {
    words: NonNull<Atomic<u32, M>>,
    /// A bit for each group of slots: see [`search`].
    bits: NonNull<Atomic<u64, M>>,
    slots: u64,
    pub(crate) device: Backing<M>,
    /// 1 once a look at all slots found none free, until one is freed.
    full: Atomic<u32, M>,
}

// SAFETY: the words are shared atomics, and a device may be shared.
unsafe impl<M: Mmu> Send for SwapArea<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for SwapArea<M> {}

/// What came of asking for the contents of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sought {
    /// The caller counts in the slot, which is whole.
    Counted,
    /// It is being written.
    Writing,
    /// Nobody names it any more.
    Gone,
}

impl<M: Mmu> SwapArea<M> {
    /// `None` where memory is too small for the device.
    ///
    /// # Safety
    /// 1. `words` is zeroed memory of [`Swap::word_bytes`] bytes, aligned, without other users, and
    ///    outlives the area.
    pub(crate) unsafe fn new(
        words: NonNull<Atomic<u32, M>>,
        swap: Swap<M>,
        table: &FrameTable<M>,
        nodes: u32,
        reserved: u64,
    ) -> Option<Self> {
        // SAFETY: 1: within the memory, and aligned.
        let bits = unsafe { words.byte_add(swap.bits_at()) }.cast();
        Some(Self {
            words,
            bits,
            slots: swap.pages(),
            device: Backing::new(swap, table, u64::from(nodes), reserved)?,
            full: Atomic::new(0),
        })
    }

    /// Whether pages can go out at all.
    #[inline]
    pub(crate) const fn exists(&self) -> bool {
        self.slots != 0
    }

    /// Slots.
    pub(crate) const fn slots(&self) -> u64 {
        self.slots
    }

    fn word(&self, slot: u64) -> &Atomic<u32, M> {
        assert!(slot < self.slots, "no slot {slot}");
        // SAFETY: within the words.
        let at = unsafe { self.words.add(slot as usize) };
        // SAFETY: 1 of `new`, and zeroed memory is a valid word.
        unsafe { at.as_ref() }
    }

    /// A word of bits for groups of slots ([`search`]).
    fn bits(&self, number: u64) -> &Atomic<u64, M> {
        assert!(number < search::words_for(self.slots), "no word {number}");
        // SAFETY: within the bits.
        let at = unsafe { self.bits.add(number as usize) };
        // SAFETY: 1 of `new`, and zeroed memory is a valid word.
        unsafe { at.as_ref() }
    }

    /// One entry more names the slot: one that another names already, or that is being written.
    pub(crate) fn dup(&self, slot: u64) {
        self.word(slot).add(1, Ordering::Relaxed);
    }

    /// One entry or reader less.
    pub(crate) fn put(&self, slot: u64) {
        self.put_many(slot, 1);
    }

    /// `count` less; the last frees the slot.
    pub(crate) fn put_many(&self, slot: u64, count: u32) {
        // ORDERING: SeqCst; pairs with [swap-full]. Release, by the same step; pairs with
        // [swap-slot]: the next owner of the slot writes it after this read.
        let before = self.word(slot).sub(count, Ordering::SeqCst);
        if before & COUNT < count {
            M::violation(format_args!("count underflow of swap slot {slot}"));
        }
        if before == count {
            self.freed(slot);
        }
    }

    /// Counts in a slot that the caller found named, for as long as it reads it.
    pub(crate) fn seek(&self, slot: u64) -> Sought {
        let word = self.word(slot);
        let mut found = word.load(Ordering::Relaxed);
        loop {
            if found & WRITING != 0 {
                return Sought::Writing;
            }
            if found & COUNT == 0 {
                return Sought::Gone;
            }
            // ORDERING: Acquire; pairs with [swap-slot]: the contents written are visible, and so
            // are removals of entries from before the slot was reused.
            match word.cas(found, found + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Sought::Counted,
                Err(now) => found = now,
            }
        }
    }

    /// How many name the slot, or read it.
    pub(crate) fn count(&self, slot: u64) -> u32 {
        self.word(slot).load(Ordering::Relaxed) & COUNT
    }

    /// The same, of a slot that an entry names.
    pub(crate) fn names(&self, slot: u64) -> u64 {
        u64::from(self.count(slot))
    }

    /// The slot's word: whether it has entries or readers. For oracles, while nothing runs.
    pub(crate) fn peek(&self, slot: u64) -> u32 {
        self.word(slot).peek()
    }

    /// Number of frames that the device owns.
    pub(crate) const fn frames(&self) -> u64 {
        match &self.device {
            Backing::Memory(memory) => memory.frames(),
            Backing::None | Backing::Device(_) => 0,
        }
    }

    /// The word of bits that lies at a host address: for names.
    pub(crate) fn bits_at(&self, at: usize) -> Option<u64> {
        let offset = at.checked_sub(self.bits.as_ptr() as usize)?;
        let number = (offset / size_of::<Atomic<u64, M>>()) as u64;
        (number < search::words_for(self.slots)).then_some(number)
    }

    /// Where the words lie: for names.
    pub(crate) fn slot_at(&self, at: usize) -> Option<u64> {
        let offset = at.checked_sub(self.words.as_ptr() as usize)?;
        let slot = (offset / size_of::<Atomic<u32, M>>()) as u64;
        (slot < self.slots).then_some(slot)
    }
}

impl<M: Mmu> System<M> {
    /// Slots of the swap device; 0 without one.
    #[must_use]
    pub const fn swap_slots(&self) -> u64 {
        self.swap.slots()
    }

    /// Slots that are in use. A moment later it may be otherwise.
    #[must_use]
    pub fn swap_used(&self) -> u64 {
        let words = (0..self.swap.slots()).map(|slot| self.swap.word(slot));
        words
            .filter(|word| word.load(Ordering::Relaxed) != 0)
            .count() as u64
    }

    /// Takes a free slot of the swap device, near those that this CPU took last. It is being
    /// written until [`System::end_slot`].
    pub(crate) fn begin_slot(&self) -> Option<u64> {
        let slots = self.swap.slots();
        if slots == 0 {
            return None;
        }
        let cpu = minflt_sync::this_cpu::<M>();
        let first = slots / u64::from(self.machine_cpus()) * u64::from(cpu);
        self.swap.begin(&self.cpus.this().slot, first)
    }

    /// Ends the writing of a slot, successful or not.
    pub(crate) fn end_slot(&self, slot: u64) {
        let word = self.swap.word(slot);
        // ORDERING: Release, by the step inside; pairs with [swap-slot].
        self.files
            .waits
            .clear_and_wake(KEYS | slot, word, WRITING, WAITERS);
        // ORDERING: SeqCst; pairs with [swap-full].
        if word.load(Ordering::SeqCst) == 0 {
            self.swap.freed(slot);
        }
    }

    /// Sleeps until the writing of a slot ends.
    ///
    /// # Context
    /// Sleeps; holds no lock that the writer may need: neither a page's nor one after it in the
    /// lock order.
    pub(crate) fn await_slot(&self, slot: u64) {
        let word = self.swap.word(slot);
        self.files
            .waits
            .wait_clear(KEYS | slot, word, WRITING, WAITERS);
    }

    /// Fills frame `pfn`, which the caller owns, with the contents of `slot`, on which the caller
    /// has a count.
    ///
    /// # Context
    /// Sleeps, and waits for the device.
    pub(crate) fn read_slot(&self, slot: u64, pfn: Pfn) -> Result<(), IoError> {
        self.swap.device.read(&self.at, slot, pfn)
    }
}

impl<M: Mmu> fmt::Debug for SwapArea<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SwapArea({})", self.slots)
    }
}
