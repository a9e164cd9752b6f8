//! The size of an address space, and its limits.
//!
//! # Problem
//! Every mmap and munmap counts VMAs and pages, and compares with limits. With one `mmap_lock`, its
//! holder writes two words of the address space. Holders of different arenas would fight for them.
//!
//! # Idea
//! In a divided address space each CPU counts in its home arena, and the counts of all arenas
//! together are what there is. VMAs that a CPU has more or fewer than it began with are moved to
//! the address space's own count from [`BATCH`] on; so that count is off by no more than a batch an
//! arena, and far below the limit a call needs no sum.
//!
//! # Protocol
//! - A call counts in the arena of its CPU, or in the address space where that CPU has none. The
//!   number says nothing of what lies in that arena.
//! - A call that might come near a limit takes all arenas beforehand (`call/spans.rs`); then
//!   no other counts, and the sum is exact.
//!
//! # Why it is correct
//! Additions are atomic, and only the sum has a meaning. What two calls in different arenas add
//! between their looks at a limit is in the margin of that rule.
//!
//! # Cost
//! Two additions to a line of the CPU's own, for an mmap as for a munmap. `VmPeak` is a maximum of
//! sums: while there are several threads, it is looked at by those that unmap a lot ([`MUCH`]), and
//! by those that read it.
//!
//! Linux: `may_expand_vm`, `sysctl_max_map_count`, `update_hiwater_vm`.

use crate::arenas::Arenas;
use crate::base::attrs::VmaView;
use crate::base::error::NoMemory;
use crate::memory::commit::Pages;
use crate::mm::Mm;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Atomic, Ordering};

/// VMAs that a CPU counts by itself at most.
const BATCH: u64 = 8;
/// Numbers for VMAs that a CPU takes from the system at once, less 1.
const IDS: u64 = (1 << LEFT_BITS) - 1;
const LEFT_BITS: u32 = 8;
/// Pages whose unmapping looks at the sum beforehand: 1 GiB of 4 KiB.
const MUCH: u64 = 1 << 18;

/// The size of an address space, and its limit.
#[derive(Debug)]
pub(crate) struct Sizes<M: Mmu> {
    /// Pages mapped (`total_vm`). Guarded by: `mmap_lock`.
    mapped: Atomic<u64, M>,
    /// VMAs (`map_count`). Guarded by: `mmap_lock`.
    vmas: Atomic<u64, M>,
    /// The most there ever were. Guarded by: `mmap_lock`.
    peak: Atomic<u64, M>,
    /// Bytes that may be mapped (`RLIMIT_AS`).
    limit_as: Atomic<u64, M>,
}

/// What the CPUs of an arena have mapped, less what they have unmapped.
#[derive(Debug)]
pub(crate) struct Counts<M: Mmu> {
    vmas: Atomic<u64, M>,
    mapped: Atomic<u64, M>,
    /// Numbers for new VMAs: the next one above [`LEFT_BITS`], how many are left below.
    ids: Atomic<u64, M>,
}

impl<M: Mmu> Counts<M> {
    /// Nothing.
    pub(crate) fn new() -> Self {
        Self {
            vmas: Atomic::new(0),
            mapped: Atomic::new(0),
            ids: Atomic::new(0),
        }
    }
}

impl<M: Mmu> Sizes<M> {
    /// Nothing mapped, no limit.
    pub(crate) fn new() -> Self {
        Self {
            mapped: Atomic::new(0),
            vmas: Atomic::new(0),
            peak: Atomic::new(0),
            limit_as: Atomic::new(u64::MAX),
        }
    }
}

impl<M: Mmu> Mm<M> {
    /// How many bytes may be mapped from now on (`RLIMIT_AS`); `u64::MAX` for no limit, as at
    /// first. What is mapped stays so.
    pub fn set_limit_as(&self, bytes: u64) {
        self.sizes.limit_as.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes may be mapped.
    #[must_use]
    pub fn limit_as(&self) -> u64 {
        self.sizes.limit_as.load(Ordering::Relaxed)
    }

    /// How many bytes are mapped (`VmSize`).
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_pages() << M::Paging::shift()
    }

    /// The same in pages.
    pub(crate) fn mapped_pages(&self) -> u64 {
        let mapped = self.sizes.mapped.load(Ordering::Relaxed);
        self.with_counts(mapped, |counts| &counts.mapped)
    }

    /// The most pages that were ever mapped at a time (`VmPeak`).
    pub(crate) fn peak_mapped_pages(&self) -> u64 {
        let peak = self.sizes.peak.load(Ordering::Relaxed);
        peak.max(self.mapped_pages())
    }

    /// How many VMAs there are (`map_count`); far below the limit, about so many. The caller holds
    /// `mmap_lock`.
    pub(crate) fn map_count(&self) -> u64 {
        let counted = self.sizes.vmas.load(Ordering::Relaxed);
        match self.divided() {
            None => counted,
            Some(_) if !self.is_near_map_count(BATCH) => counted,
            Some(_) => self.with_counts(counted, |counts| &counts.vmas),
        }
    }

    /// Whether `more` VMAs could be more than there may be. The caller need hold nothing.
    pub(crate) fn is_near_map_count(&self, more: u64) -> bool {
        let counted = self.sizes.vmas.load(Ordering::Relaxed) as i64;
        let made = self.divided().map_or(0, Arenas::made);
        let most = counted.saturating_add_unsigned(BATCH * made + more);
        u64::try_from(most).is_ok_and(|most| most > self.system().max_map_count())
    }

    /// `counted`, and what is counted in arenas.
    fn with_counts(&self, counted: u64, of: impl Fn(&Counts<M>) -> &Atomic<u64, M>) -> u64 {
        let Some(arenas) = self.divided() else {
            return counted;
        };
        let arenas = arenas.each(arenas.all());
        let sum = arenas.fold(counted, |sum, (_, arena)| {
            sum.wrapping_add(of(&arena.counts).load(Ordering::Relaxed))
        });
        // It is read without a lock, too, between the two halves of a move.
        (sum as i64).max(0) as u64
    }

    /// Pages mapped and VMAs, without the door, for oracles.
    pub(crate) fn sizes_raw(&self) -> (u64, u64) {
        let mut raw = (self.sizes.mapped.peek(), self.sizes.vmas.peek());
        self.peek_each_arena(|_, arena| {
            raw.0 = raw.0.wrapping_add(arena.counts.mapped.peek());
            raw.1 = raw.1.wrapping_add(arena.counts.vmas.peek());
        });
        raw
    }

    /// Whether `more` additional VMAs are within the limit. Linux: the checks of
    /// `sysctl_max_map_count`.
    pub(crate) fn may_split(&self, more: u64) -> bool {
        more == 0 || self.map_count() + more <= self.system().max_map_count()
    }

    /// The counts of this CPU, where several count at the same time.
    #[inline(always)]
    fn own_counts(&self) -> Option<&Counts<M>> {
        let arenas = self.divided()?;
        let home = arenas.get(arenas.home())?;
        Some(&home.counts)
    }

    /// A number for a new VMA, that no other object of the system has or had.
    pub(crate) fn new_vma_id(&self) -> u64 {
        let sys = self.system();
        let Some(counts) = self.own_counts() else {
            return sys.new_id();
        };
        let mut ids = counts.ids.load(Ordering::Relaxed);
        loop {
            // Those that two contexts of a CPU take at the same time are lost for one of them.
            let (id, next) = match ids & IDS {
                0 => {
                    let first = sys.new_ids(IDS);
                    (first, (first + 1) << LEFT_BITS | (IDS - 1))
                }
                _ => (ids >> LEFT_BITS, ids + IDS),
            };
            match counts
                .ids
                .cas(ids, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return id,
                Err(now) => ids = now,
            }
        }
    }

    /// Adds to a count that is in one place, of which there may be several writers by now.
    #[inline(always)]
    fn add_to(&self, count: &Atomic<u64, M>, change: i64) {
        if self.has_several_writers() {
            count.add(change as u64, Ordering::Relaxed);
            return;
        }
        let now = count.load(Ordering::Relaxed).wrapping_add_signed(change);
        count.store(now, Ordering::Relaxed);
    }

    /// Counts pages as locked, or as no longer so. The caller holds `mmap_lock` for writing, or is
    /// alone.
    pub(crate) fn count_locked(&self, change: i64) {
        let add = |count: &Atomic<u64, M>, change| self.add_to(count, change);
        self.locks.change(change, add);
    }

    /// Counts VMAs added or removed. The caller holds `mmap_lock` for writing, or is the only user
    /// of the address space.
    pub(crate) fn count_vmas(&self, change: i64) {
        let Some(counts) = self.own_counts() else {
            return self.add_to(&self.sizes.vmas, change);
        };
        let before = counts.vmas.add(change as u64, Ordering::Relaxed) as i64;
        if before.wrapping_add(change).unsigned_abs() > BATCH {
            let moved = counts.vmas.swap(0, Ordering::Relaxed);
            self.sizes.vmas.add(moved, Ordering::Relaxed);
        }
    }

    /// Whether `pages` more may be mapped. Linux: `may_expand_vm`.
    pub(crate) fn may_expand(&self, pages: u64) -> bool {
        let most = self.limit_as();
        // Without a limit, a divided address space is not summed up.
        if most == u64::MAX && self.divided().is_some() {
            return true;
        }
        self.mapped_pages().saturating_add(pages) <= most >> M::Paging::shift()
    }

    /// Counts pages as mapped, and as locked where they are. Their promise was made before. The
    /// caller holds `mmap_lock` for writing.
    pub(crate) fn count_mapped(&self, pages: Pages) {
        match self.own_counts() {
            Some(counts) => {
                counts.mapped.add(pages.mapped, Ordering::Relaxed);
            }
            None => self.add_to(&self.sizes.mapped, pages.mapped as i64),
        }
        self.count_locked(pages.locked as i64);
    }

    /// Counts pages as unmapped and no longer locked, and uncharges them. The caller holds
    /// `mmap_lock` for writing, or downgraded it, or is the last user of the address space: unless
    /// it is divided, no other thread writes these counts meanwhile.
    pub(crate) fn count_unmapped(&self, pages: Pages) {
        match self.divided() {
            Some(arenas) => {
                if pages.mapped >= MUCH || !arenas.has_threads() {
                    // Linux: update_hiwater_vm. Of several writers one may hide another's peak.
                    let peak = self.peak_mapped_pages();
                    self.sizes.peak.store(peak, Ordering::Relaxed);
                }
                let counts = self.own_counts();
                let mapped = counts.map_or(&self.sizes.mapped, |counts| &counts.mapped);
                mapped.sub(pages.mapped, Ordering::Relaxed);
            }
            None => self.count_unmapped_undivided(pages.mapped),
        }
        self.count_locked(-(pages.locked as i64));
        self.system().uncharge(pages.accounted);
    }

    fn count_unmapped_undivided(&self, pages: u64) {
        let mapped = self.sizes.mapped.load(Ordering::Relaxed);
        debug_assert!(mapped >= pages, "it was counted when mapped");
        // Linux: update_hiwater_vm.
        if mapped > self.sizes.peak.load(Ordering::Relaxed) {
            self.sizes.peak.store(mapped, Ordering::Relaxed);
        }
        if self.has_several_writers() {
            self.sizes.mapped.sub(pages, Ordering::Relaxed);
        } else {
            let left = mapped.saturating_sub(pages);
            self.sizes.mapped.store(left, Ordering::Relaxed);
        }
    }

    /// What fork owes for one VMA that it copies into this new address space: the promise, and the
    /// size. `RLIMIT_AS` is not asked: the parent was within its own.
    ///
    /// # Context
    /// Nobody else has the address space yet. The VMA is put in afterwards; where that fails,
    /// [`Mm::uncharge_copy`]. The VMAs that were put in are given back with the address space.
    ///
    /// # Errors
    /// When that would promise too much.
    ///
    /// Linux: `dup_mmap`.
    pub(crate) fn charge_copy(&self, view: &VmaView) -> Result<(), NoMemory> {
        let pages = Pages::of::<M>(view);
        self.system().charge(pages.accounted)?;
        self.count_mapped(pages);
        Ok(())
    }

    /// Undoes [`Mm::charge_copy`] of a VMA that was not put in.
    pub(crate) fn uncharge_copy(&self, view: &VmaView) {
        self.count_unmapped(Pages::of::<M>(view));
    }
}
