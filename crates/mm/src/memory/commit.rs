//! Commit accounting: overcommit.
//!
//! # Problem
//! A mapping commits pages that are allocated only at first touch. A system may commit more than it
//! has, and must refuse beyond its limit. The total changes with every call that maps or unmaps, on
//! every CPU.
//!
//! # Idea
//! Private writable mappings are *accounted*: their pages are charged to one system-wide per-CPU
//! counter ([`crate::memory::percpu_counter`]). A VMA flag records the charge, so that an unmapping
//! call knows what to uncharge.
//!
//! # Protocol
//! | call | charges | gives back |
//! |---|---|---|
//! | mmap, brk | a private writable mapping that is not `MAP_NORESERVE` | - |
//! | mprotect to writable | what was not accounted before | - |
//! | mprotect to read-only | - | what was never stored to |
//! | mremap | what is longer; of a mapping that stays, all | what is shorter |
//! | munmap, brk downwards, exit | - | the pages of accounted VMAs |
//! | fork | the child's accounted VMAs | - |
//! | shmget | a segment of shared memory, unless it is `SHM_NORESERVE` | - |
//! | a segment is freed | - | its pages |
//!
//! mprotect from writable to read-only uncharges only a mapping without an anon_vma: no store can
//! have touched it yet.
//!
//! A charge adds first and checks afterwards, and undoes itself if it exceeds the limit: of two
//! concurrent charges that fit only one at a time, both may be refused, but never both admitted.
//!
//! # Why it is correct
//! The charge of a VMA is made under `mmap_lock` for writing, before the VMA's record with the flag
//! is published, and uncharged under it after the VMA was removed. At quiescence the total is the
//! pages of all accounted VMAs and segments; the ledger checks that. A fence between adding and
//! checking lets at least one of two concurrent charges see the other. A concurrent uncharge may
//! become visible before its pages are unmapped: then a charge is admitted that much too early.
//!
//! # Cost
//! Below the batch no shared line is written. The limit is compared with the approximate total, and
//! with the exact sum over all CPUs only where the total is too close to it.
//!
//! Linux: mm/util.c `__vm_enough_memory` (v6.12), mm/mm_init.c `mm_compute_batch`,
//! `accountable_mapping`. Not implemented: the reserves for administrators and
//! users; charges for in-memory files that are not segments, and for pages of `SHM_NORESERVE`
//! segments.

use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::memory::percpu_counter;
use crate::system::System;
use core::cmp::Ordering as Compared;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Apart, Atomic, Ordering};

/// How much may be promised (`vm.overcommit_memory`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overcommit {
    /// Whatever is not more than all memory and swap at once (0, Linux's default).
    Heuristic,
    /// Everything (1).
    Always,
    /// The sum of all charges stays below swap and a part of memory (2); `MAP_NORESERVE` is
    /// ignored.
    Never,
}

/// Whether a mapping is charged at mmap (`MAP_NORESERVE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// Charged, where it is private and writable.
    Charged,
    /// Not charged, unless the system never overcommits.
    NoReserve,
}

/// The percentage of memory that may be committed without overcommit.
const DEFAULT_RATIO: u32 = 50;

/// VMAs that an address space may have. Linux: `DEFAULT_MAX_MAP_COUNT`.
const DEFAULT_MAX_MAP_COUNT: u64 = 65_530;

/// The commit charge of a system, and its limit.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Commit<M: Mmu> {
    mode: Atomic<u32, M>,
    ratio: Atomic<u32, M>,
    swap_pages: Atomic<u64, M>,
    /// Of the parts. Follows the mode.
    batch: Atomic<u64, M>,
    /// The largest batch so far: the most that a CPU's part may hold.
    widest: Atomic<u64, M>,
    /// VMAs that an address space may have.
    max_map_count: Atomic<u64, M>,
    apart: Apart,
    whole: Atomic<u64, M>,
}

/// Pages mapped, and those of them that are accounted, and locked.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Pages {
    pub(crate) mapped: u64,
    pub(crate) accounted: u64,
    pub(crate) locked: u64,
}

impl Overcommit {
    const ALL: [Self; 3] = [Self::Heuristic, Self::Always, Self::Never];

    /// Linux's number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The mode with Linux's number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.number() == number)
    }
}

impl Pages {
    /// Those of a VMA, or of a part of it.
    pub(crate) fn of<M: Mmu>(view: &VmaView) -> Self {
        let mapped = view.range.pages(M::Paging::shift());
        let if_flag = |flag| if view.flags.has(flag) { mapped } else { 0 };
        Self {
            mapped,
            accounted: if_flag(VmaFlags::ACCOUNT),
            locked: if_flag(VmaFlags::LOCKED),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.mapped += other.mapped;
        self.accounted += other.accounted;
        self.locked += other.locked;
    }
}

impl<M: Mmu> Commit<M> {
    /// Nothing promised; Linux's defaults. `pages` and `cpus` are the machine's.
    pub(crate) fn new(pages: u64, cpus: u32, swap_pages: u64) -> Self {
        Self {
            mode: Atomic::new(Overcommit::Heuristic.number()),
            ratio: Atomic::new(DEFAULT_RATIO),
            swap_pages: Atomic::new(swap_pages),
            batch: Atomic::new(batch(Overcommit::Heuristic, pages, cpus)),
            widest: Atomic::new(batch(Overcommit::Heuristic, pages, cpus)),
            max_map_count: Atomic::new(DEFAULT_MAX_MAP_COUNT),
            apart: Apart,
            whole: Atomic::new(0),
        }
    }
}

/// The parts' batch: a share of memory, which is small where the limit is to be kept. Linux:
/// `mm_compute_batch`.
fn batch(mode: Overcommit, pages: u64, cpus: u32) -> u64 {
    let share = match mode {
        Overcommit::Never => 256,
        Overcommit::Heuristic | Overcommit::Always => 4,
    };
    percpu_counter::batch(cpus).max(pages / u64::from(cpus.max(1)) / share)
}

impl<M: Mmu> System<M> {
    /// How much may be promised from now on. What was promised before stays so. One caller at a
    /// time.
    pub fn set_overcommit(&self, mode: Overcommit) {
        let batch = batch(mode, self.usable_frames(), self.machine_cpus());
        let widest = self.commit.widest.load(Ordering::Relaxed).max(batch);
        self.commit.widest.store(widest, Ordering::Relaxed);
        self.commit.batch.store(batch, Ordering::Relaxed);
        self.commit.mode.store(mode.number(), Ordering::Relaxed);
    }

    /// How much may be promised.
    #[must_use]
    pub fn overcommit(&self) -> Overcommit {
        let number = self.commit.mode.load(Ordering::Relaxed);
        Overcommit::from_number(number).unwrap_or(Overcommit::Heuristic)
    }

    /// The part of memory that may be promised under [`Overcommit::Never`], in percent
    /// (`vm.overcommit_ratio`); 50 at first, and it may be more than 100.
    pub fn set_overcommit_ratio(&self, percent: u32) {
        self.commit.ratio.store(percent, Ordering::Relaxed);
    }

    /// How many pages of swap count as there, all of which may be promised: those of the swap
    /// device at first.
    pub fn set_swap_pages(&self, pages: u64) {
        self.commit.swap_pages.store(pages, Ordering::Relaxed);
    }

    /// How many VMAs an address space may have from now on (`vm.max_map_count`); 65530 at first.
    pub fn set_max_map_count(&self, vmas: u64) {
        self.commit.max_map_count.store(vmas, Ordering::Relaxed);
    }

    /// How many VMAs an address space may have.
    #[must_use]
    pub fn max_map_count(&self) -> u64 {
        self.commit.max_map_count.load(Ordering::Relaxed)
    }

    /// Pages that must stay more than are promised under [`Overcommit::Never`]
    /// (`CommitLimit`).
    #[must_use]
    pub fn commit_limit(&self) -> u64 {
        let ratio = u64::from(self.commit.ratio.load(Ordering::Relaxed));
        let swap = self.commit.swap_pages.load(Ordering::Relaxed);
        let part = u128::from(self.usable_frames()) * u128::from(ratio) / 100;
        (part as u64).saturating_add(swap)
    }

    /// Pages promised (`Committed_AS`): exact while no call is under way.
    #[must_use]
    pub fn committed_pages(&self) -> u64 {
        percpu_counter::sum(&self.commit.whole, self.committed_parts()).max(0) as u64
    }

    /// Promises `pages` more.
    ///
    /// # Errors
    /// When that would be too much; nothing is promised then.
    pub(crate) fn charge(&self, pages: u64) -> Result<(), NoMemory> {
        if pages == 0 {
            return Ok(());
        }
        let mode = self.overcommit();
        if mode == Overcommit::Heuristic {
            let swap = self.commit.swap_pages.load(Ordering::Relaxed);
            if pages > self.usable_frames().saturating_add(swap) {
                return Err(NoMemory);
            }
        }
        // Every page of the largest user space fits a signed word many times.
        self.promise(pages as i64);
        if mode == Overcommit::Never {
            // ORDERING: SeqCst; pairs with [commit-charge]: this charge is visible before the
            // check.
            if !self.lacks(NegativeControl::ChargeWithoutFence) {
                M::fence(Ordering::SeqCst);
            }
            if !self.fits() {
                self.uncharge(pages);
                return Err(NoMemory);
            }
        }
        Ok(())
    }

    /// Takes a promise of `pages` back.
    pub(crate) fn uncharge(&self, pages: u64) {
        if pages != 0 {
            self.promise((pages as i64).wrapping_neg());
        }
    }

    /// Promises without asking: what the same call is about to give back.
    pub(crate) fn charge_again(&self, pages: u64) {
        if pages != 0 {
            self.promise(pages as i64);
        }
    }

    fn promise(&self, change: i64) {
        let batch = self.commit.batch.load(Ordering::Relaxed);
        let part = &self.cpus.this().committed;
        percpu_counter::add(&self.commit.whole, part, change, batch);
    }

    /// Whether what is promised stays below the limit.
    fn fits(&self) -> bool {
        // ORDERING: Relaxed, behind the fence of `charge`; pairs with [commit-charge].
        let limit = i64::try_from(self.commit_limit()).unwrap_or(i64::MAX);
        // Parts that were filled under a larger batch stay so until their CPU folds them.
        let widest = self.commit.widest.load(Ordering::Relaxed);
        let parts = self.committed_parts();
        percpu_counter::compare(&self.commit.whole, parts, limit, widest) == Compared::Less
    }

    fn committed_parts(&self) -> impl ExactSizeIterator<Item = &Atomic<u64, M>> {
        (0..self.machine_cpus()).map(|cpu| &self.cpus.get(cpu).committed)
    }

    /// The same without the door, for oracles.
    pub(crate) fn committed_raw(&self) -> i64 {
        let whole = self.commit.whole.peek() as i64;
        self.committed_parts()
            .fold(whole, |sum, part| sum.wrapping_add(part.peek() as i64))
    }
}

/// The flags of a new private mapping. Linux: `accountable_mapping`.
pub(crate) const fn flags(prot: Prot, reserve: Reserve, mode: Overcommit) -> VmaFlags {
    match (reserve, mode) {
        (Reserve::NoReserve, Overcommit::Heuristic | Overcommit::Always) => VmaFlags::NORESERVE,
        _ if prot.has(Prot::WRITE) => VmaFlags::ACCOUNT,
        _ => VmaFlags::NONE,
    }
}
