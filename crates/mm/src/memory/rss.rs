//! RSS counting: five schemes, with their errors.
//!
//! # Problem
//! Every fault that installs a page and every zap updates the count; reads are rare. One exact word
//! that all CPUs update is itself a bottleneck.
//!
//! # Idea
//! | choice | a fault writes | error of a reader |
//! |---|---|---|
//! | under-lock | a word under the lock it holds | none |
//! | atomic | a shared word, exclusively | none |
//! | sloppy | a shared word, without a lock | unbounded: what is lost stays lost; 0 when below 0 |
//! | per-thread | its own word | less than [`BATCH`] for each thread; none once they have ended |
//! | per-cpu | its CPU's word | less than `max(32, 2 * CPUs)` for each CPU, whenever it looks |
//!
//! "None" and the bounds hold between two updates: an update in progress may be counted or not.
//!
//! # Protocol
//! *per-thread*: Linux 2.6.34 to 6.1 (`SPLIT_RSS_COUNTING`); a change on behalf of no thread, such
//! as a zap's, is added to the total. *per-cpu*: Linux since 6.2, a
//! [`percpu_counter`](crate::memory::percpu_counter). Its parts are words of memory cut off at
//! boot, one for each CPU and *slot*; an address space takes a slot when it is made and gives it
//! back, zeroed, when it ends. One that finds none left counts as *atomic* does.
//!
//! # Why it is correct
//! No decision may depend on the number; the sloppy form was posted in 2004 on that condition. In
//! all other forms nothing is lost, so that at quiescence whole, parts and shares sum up to the
//! entries that map a frame, which the ledger checks, and to nothing when the address space ends.
//!
//! # Cost
//! A word for each CPU and slot; there are slots only where the configuration counts so.

use crate::base::config::{Config, NegativeControl, Rss};
use crate::base::policy::Policy;
use crate::memory::percpu_counter;
use crate::mm::Mm;
use crate::system::System;
use core::array;
use core::cell::Cell;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Ordering, PerCpu, this_cpu};

/// Events after which a thread adds its share to the whole.
pub const BATCH: u32 = 64;

/// Slots in one piece of a CPU's memory, which fills its lines.
const PIECE: u32 = 16;
/// The most slots: as many as the map of those taken has bits.
const MOST: u32 = 64 * WORDS as u32;
const WORDS: usize = 16;
/// Frames for one slot: an address space that is used has some.
const FRAMES_A_SLOT: u64 = 1024;

/// The address space's number: a signed count in a wrapping word.
#[derive(Debug)]
pub(crate) struct Resident<M: Mmu> {
    pages: Atomic<u64, M>,
}

/// What a thread brings to its faults: its share that is not yet in the whole, and its memory
/// policy.
#[derive(Debug, Default)]
pub(crate) struct Share {
    pages: Cell<i64>,
    events: Cell<u32>,
    policy: Cell<Policy>,
}

/// When, of a fault, a page that it mapped is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// While the slot is open: under the lock that the count is guarded by.
    Slot,
    /// Right before the lock is released: the counter is in the cache line of `mmap_lock`, so it
    /// causes no extra cache-line transfer.
    Hold,
    /// After all locks are released.
    After,
}

impl Rss {
    /// When a fault counts by this choice.
    #[inline(always)]
    const fn moment(self) -> Moment {
        match self {
            Self::UnderLock => Moment::Slot,
            Self::Sloppy => Moment::Hold,
            Self::Atomic | Self::PerThread | Self::PerCpu => Moment::After,
        }
    }
}

/// An address space's place in every CPU's memory, if it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(Option<u32>);

/// Some slots of one CPU.
pub(crate) type Piece<M> = [Atomic<u64, M>; PIECE as usize];

/// All slots of all CPUs.
#[derive(Debug)]
pub(crate) struct Slots<M: Mmu> {
    /// The pieces of CPU 0, then those of CPU 1, ...
    pieces: PerCpu<Piece<M>, M>,
    /// Slots of each CPU, a multiple of [`PIECE`].
    slots: u32,
    cpus: u32,
    /// A bit for each slot that is taken.
    taken: [Atomic<u64, M>; WORDS],
}

/// How many slots a CPU of a machine with `frames` frames has.
pub(crate) fn slots_for(config: &Config, frames: u64) -> u32 {
    if config.rss != Rss::PerCpu {
        return 0;
    }
    let wanted = (frames / FRAMES_A_SLOT).min(u64::from(MOST)) as u32;
    wanted.max(1).next_multiple_of(PIECE)
}

/// Pieces that `slots` slots of each of `cpus` CPUs need.
pub(crate) const fn pieces_for(slots: u32, cpus: u32) -> u32 {
    slots / PIECE * cpus
}

/// A piece in which nothing is counted.
pub(crate) fn piece<M: Mmu>() -> Piece<M> {
    array::from_fn(|_| Atomic::new(0))
}

impl<M: Mmu> Slots<M> {
    /// The CPU whose slots lie at a host address: for names.
    pub(crate) fn cpu_at(&self, at: usize) -> Option<u32> {
        let (piece, _) = self.pieces.find(at)?;
        Some(piece / (self.slots / PIECE).max(1))
    }

    /// All free. `pieces` are [`pieces_for`] of the two numbers.
    pub(crate) fn new(pieces: PerCpu<Piece<M>, M>, slots: u32, cpus: u32) -> Self {
        Self {
            pieces,
            slots,
            cpus,
            taken: array::from_fn(|_| Atomic::new(0)),
        }
    }

    /// Takes a slot, if one is left.
    pub(crate) fn take(&self) -> Slot {
        let mut at = 0;
        while at < self.slots {
            let word = &self.taken[at as usize / 64];
            let free = word.load(Ordering::Relaxed) | ((1 << (at % 64)) - 1);
            let bit = free.trailing_ones();
            let slot = at / 64 * 64 + bit;
            if bit == 64 || slot >= self.slots {
                at = (at / 64 + 1) * 64;
                continue;
            }
            // ORDERING: Acquire; pairs with [rss-slot].
            if word.or(1 << bit, Ordering::Acquire) & (1 << bit) == 0 {
                return Slot(Some(slot));
            }
            at = slot;
        }
        Slot::NONE
    }

    /// Returns an unused slot.
    pub(crate) fn give(&self, slot: Slot) {
        let Some(slot) = slot.0 else { return };
        for part in self.parts(slot) {
            part.store(0, Ordering::Relaxed);
        }
        // ORDERING: Release; pairs with [rss-slot]: the next owner of the slot finds zeros in it.
        self.taken[slot as usize / 64].and(!(1 << (slot % 64)), Ordering::Release);
    }

    #[inline(always)]
    fn part(&self, cpu: u32, slot: u32) -> &Atomic<u64, M> {
        let piece = self.pieces.get(cpu * (self.slots / PIECE) + slot / PIECE);
        &piece[(slot % PIECE) as usize]
    }

    fn parts(&self, slot: u32) -> impl ExactSizeIterator<Item = &Atomic<u64, M>> {
        (0..self.cpus).map(move |cpu| self.part(cpu, slot))
    }

    /// What a part is added to the whole at.
    #[inline(always)]
    fn batch(&self, config: &Config) -> u64 {
        percpu_counter::batch(self.cpus) * late::<M>(config)
    }
}

impl Slot {
    /// None.
    pub(crate) const NONE: Self = Self(None);
}

/// By how much the fix that is switched off makes batches too large.
#[inline(always)]
fn late<M: Mmu>(config: &Config) -> u64 {
    if config.lacks::<M>(NegativeControl::LateRss) {
        2
    } else {
        1
    }
}

impl<M: Mmu> Resident<M> {
    pub(crate) fn new() -> Self {
        Self {
            pages: Atomic::new(0),
        }
    }

    /// By a load and a store.
    #[inline(always)]
    fn add_plainly(&self, change: i64) {
        let pages = self.pages.load(Ordering::Relaxed);
        let pages = pages.wrapping_add_signed(change);
        self.pages.store(pages, Ordering::Relaxed);
    }

    fn add(&self, change: i64) {
        self.pages.add(change as u64, Ordering::Relaxed);
    }

    /// Adds a thread's share to the whole.
    pub(crate) fn sync(&self, share: &Share) {
        share.events.set(0);
        let pages = share.pages.replace(0);
        if pages != 0 {
            self.add(pages);
        }
    }
}

impl Share {
    /// The thread's memory policy.
    #[inline(always)]
    pub(crate) fn policy(&self) -> Policy {
        self.policy.get()
    }

    /// The thread has another one from now on.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.set(policy);
    }

    /// Keeps a change; whether it is time to [`Resident::sync`].
    #[inline]
    fn keep<M: Mmu>(&self, change: i64, config: &Config) -> bool {
        self.pages.set(self.pages.get() + change);
        self.events.set(self.events.get() + 1);
        u64::from(self.events.get()) >= u64::from(BATCH) * late::<M>(config)
    }
}

impl<M: Mmu> System<M> {
    /// Adds `change` to this CPU's part of a slot, or both to `whole`.
    #[inline]
    fn count_here(&self, whole: &Resident<M>, slot: u32, change: i64) {
        let part = self.rss_slots.part(this_cpu::<M>(), slot);
        let batch = self.rss_slots.batch(&self.config);
        percpu_counter::add(&whole.pages, part, change, batch);
    }
}

impl<M: Mmu> Mm<M> {
    /// Counts `change` pages, on behalf of the thread that owns the share, if any. Where the choice
    /// is *under-lock*, the caller holds the lock.
    #[inline(always)]
    pub(crate) fn count_resident(&self, share: Option<&Share>, change: i64) {
        let sys = self.system();
        let whole = &self.rss;
        match (sys.config.rss, share, self.rss_slot.0) {
            (Rss::UnderLock, ..) => whole.add_plainly(change),
            (Rss::Sloppy, ..) => {
                // One cache-line transfer serves the load, the store and later accesses to the
                // line.
                M::prefetch_write(core::ptr::from_ref(whole).cast());
                whole.add_plainly(change);
            }
            (Rss::PerThread, Some(share), _) => {
                if share.keep::<M>(change, &sys.config) {
                    whole.sync(share);
                }
            }
            (Rss::PerCpu, _, Some(slot)) => sys.count_here(whole, slot, change),
            (Rss::Atomic | Rss::PerThread | Rss::PerCpu, ..) => whole.add(change),
        }
    }

    /// The same of a fault, if it is the moment for that.
    #[inline(always)]
    pub(crate) fn count_at(&self, moment: Moment, share: &Share, change: i64) {
        if self.system().config.rss.moment() == moment && change != 0 {
            self.count_resident(Some(share), change);
        }
    }

    /// Counts `change` pages on behalf of no thread. The caller holds no page-table lock.
    pub(crate) fn count_unlocked(&self, change: i64) {
        let guarded = self.system().config.rss.moment() == Moment::Slot;
        let _held = guarded.then(|| self.page_table_lock.lock());
        self.count_resident(None, change);
    }

    /// Whether the number is exact at quiescence.
    pub(crate) fn counts_exactly(&self) -> bool {
        self.system().config.rss != Rss::Sloppy
    }

    /// Resident pages, as a reader is shown them: with the error of the configured form, never
    /// below 0. In the sloppy form a count below 0 is also set to 0, as posted.
    #[must_use]
    pub fn resident_pages(&self) -> i64 {
        let sys = self.system();
        let pages = self.rss.pages.load(Ordering::Relaxed) as i64;
        if pages >= 0 || sys.lacks(NegativeControl::RawRss) {
            return pages;
        }
        if sys.config.rss == Rss::Sloppy {
            self.rss.pages.store(0, Ordering::Relaxed);
        }
        0
    }

    /// Resident pages with all CPUs' parts: exact at quiescence, but for the shares of threads that
    /// have not ended, and in the sloppy form.
    ///
    /// Linux: `get_mm_counter_sum`.
    #[must_use]
    pub fn resident_pages_sum(&self) -> i64 {
        match self.rss_slot.0 {
            None => self.rss.pages.load(Ordering::Relaxed) as i64,
            Some(slot) => {
                let parts = self.system().rss_slots.parts(slot);
                percpu_counter::sum(&self.rss.pages, parts)
            }
        }
    }

    /// The same, without the door: for oracles.
    pub(crate) fn resident_raw(&self) -> i64 {
        let whole = self.rss.pages.peek() as i64;
        let Some(slot) = self.rss_slot.0 else {
            return whole;
        };
        let parts = self.system().rss_slots.parts(slot);
        parts.fold(whole, |sum, part| sum.wrapping_add(part.peek() as i64))
    }

    /// Whether pages are counted in parts of the CPUs.
    #[must_use]
    pub const fn counts_per_cpu(&self) -> bool {
        self.rss_slot.0.is_some()
    }

    /// The last thread is gone and everything is unmapped: the count must be 0, and the slot is
    /// free. Linux: `check_mm`, `percpu_counter_destroy_many`.
    pub(crate) fn end_resident(&self) {
        let sys = self.system();
        if M::CHECKED && self.counts_exactly() {
            let left = self.resident_raw();
            if left != 0 {
                M::violation(format_args!(
                    "RSS count is {left} when the address space is destroyed"
                ));
            }
        }
        sys.rss_slots.give(self.rss_slot);
    }
}

impl<M: Mmu> Mm<M> {
    /// Runs `body`, which may fault pages in on behalf of no thread: without a thread's memory
    /// policy, and with pages counted in the total at once.
    pub(crate) fn for_no_thread<T>(&self, body: impl FnOnce(&Share) -> T) -> T {
        let share = Share::default();
        let result = body(&share);
        self.rss.sync(&share);
        result
    }
}
