//! All state that a C kernel keeps in static variables, for one machine.
//!
//! A system lies at the start of its machine's memory, like a kernel's image: its locks and
//! counters have simulated lines like everything else, and any number of systems live in one
//! process.
//!
//! ```text
//! first frame                                                                last frame
//! | System | areas of each CPU | pools, zones | frame descriptors | zero page | free ... |
//! ```

use crate::base::check::Check;
use crate::base::config::Config;
use crate::base::event::Event;
use crate::entry::mailbox::Mailbox;
use crate::entry::table::Exchanges;
use crate::memory::alloc::Frames;
use crate::memory::commit::Commit;
use crate::memory::lifetime::Batch;
use crate::memory::rss::Slots;
use crate::memory::swap::SwapArea;
use crate::mm::Mm;
use crate::pages::file::Files;
use crate::pages::hugetlb::Huge;
use crate::pages::numa::Numa;
use crate::pages::rmap::anon_vma::{AnonVma, Chain};
use crate::pages::segments::Segments;
use crate::pages::userfault::{Context, Waiter};
use crate::space::arenas::divide::Divisions;
use crate::space::tree::Node;
use crate::space::vma::{Attrs, Vma};
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, PtLock, SpaceId};
use minflt_sync::{Atomic, Counter, Instance, Ordering, PerCpu, Rcu, Slab, Srcu};

/// The number of the slab of VMAs.
pub(crate) const VMAS: u8 = 1;

/// One machine's memory management.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct System<M: Mmu> {
    pub(crate) at: M::Instance,
    pub(crate) config: Config,
    pub(crate) exchanges: Exchanges,
    pub(crate) frames: Frames<M>,
    pub(crate) cpus: PerCpu<CpuArea<M>, M>,
    pub(crate) srcu: Srcu<M>,
    pub(crate) nodes: Slab<Node<M>, M>,
    pub(crate) vmas: Slab<Vma<M>, M>,
    pub(crate) attrs: Slab<Attrs, M>,
    pub(crate) mms: Slab<Mm<M>, M>,
    pub(crate) anon_vmas: Slab<AnonVma<M>, M>,
    pub(crate) chains: Slab<Chain<M>, M>,
    pub(crate) uffds: Slab<Context, M>,
    pub(crate) waiters: Slab<Waiter, M>,
    pub(crate) files: Files<M>,
    pub(crate) zero_page: Pfn,
    /// Frames that the system itself lies in.
    pub(crate) reserved: u64,
    pub(crate) next_id: Atomic<u64, M>,
    /// Counts operations, so that oracles know which came first. Outside the door.
    pub(crate) stamp: Atomic<u64, M>,
    /// Systems refer to address spaces by handles; this many are alive.
    pub(crate) spaces: Atomic<u64, M>,
    pub(crate) rcu: Rcu<M>,
    pub(crate) commit: Commit<M>,
    pub(crate) rss_slots: Slots<M>,
    /// Pages that stay free below a stack.
    pub(crate) stack_guard_gap: Atomic<u64, M>,
    pub(crate) swap: SwapArea<M>,
    pub(crate) numa: Numa<M>,
    pub(crate) shm: Segments<M>,
    pub(crate) huge: Huge<M>,
    /// Frames that are no memory.
    pub(crate) absent: u64,
    /// Locks under which leaf tables are linked, where speculative faults do that.
    pub(crate) linkers: PerCpu<PtLock<M>, M>,
    /// One, where address spaces may be divided.
    pub(crate) divisions: PerCpu<Divisions<M>, M>,
    pub(crate) batch: Batch,
}

/// What each CPU has of its own.
#[derive(Debug)]
pub(crate) struct CpuArea<M: Mmu> {
    pub(crate) events: [Counter; Event::COUNT],
    pub(crate) checks: [Counter; Check::COUNT],
    /// This CPU's part of what is promised.
    pub(crate) committed: Atomic<u64, M>,
    /// Where this CPU looks for a free slot of the swap device next. A hint.
    pub(crate) slot: Atomic<u64, M>,
    pub(crate) mailbox: Mailbox<M>,
    /// Which [`SpaceId`] this CPU ran last and is in the CPU mask of. Its own, interrupts off.
    pub(crate) loaded: Counter,
    /// Of which arena this CPU was asked for a flush last, and how often in a row. Its own, in the
    /// handler of interrupts.
    pub(crate) asked: Counter,
}

impl<M: Mmu> System<M> {
    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &M::Instance {
        &self.at
    }

    /// How often `event` was counted, on all CPUs.
    #[must_use]
    pub fn count_of(&self, event: Event) -> u64 {
        self.cpus
            .iter()
            .map(|cpu| cpu.events[event as usize].get())
            .sum()
    }

    /// How often `event` was counted on `cpu`.
    #[must_use]
    pub fn count_on(&self, cpu: u32, event: Event) -> u64 {
        self.cpus.get(cpu).events[event as usize].get()
    }

    /// How often `check` looked, on all CPUs.
    #[must_use]
    pub fn looks_of(&self, check: Check) -> u64 {
        self.cpus
            .iter()
            .map(|cpu| cpu.checks[check as usize].get())
            .sum()
    }

    /// Frames of the machine, those in holes included.
    #[must_use]
    pub const fn total_frames(&self) -> u64 {
        self.frames.table.len()
    }

    /// Frames of memory, those in holes not included, and how many of them are free, but for those
    /// that CPUs keep (`MemTotal` and `MemFree` of /proc/meminfo). A moment later it may be
    /// otherwise.
    ///
    /// # Context
    /// On a CPU of the machine; takes the zones' locks, one after the other.
    #[must_use]
    pub fn memory_pages(&self) -> (u64, u64) {
        let all = self.frames.table.len() - self.absent;
        (all, self.frames.free_in_zones())
    }

    /// Clears every free frame now, so that faults need not. Only while nothing else runs.
    pub fn clear_free_frames(&self) {
        self.frames.clear_free(&self.at);
    }

    #[inline(always)]
    pub(crate) fn looked(&self, check: Check) {
        self.cpus.this().checks[check as usize].add(1);
    }

    /// A number that no other object of the system has or had.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.add(1, Ordering::Relaxed)
    }

    /// The first of `count` such numbers, one behind the other.
    pub(crate) fn new_ids(&self, count: u64) -> u64 {
        self.next_id.add(count, Ordering::Relaxed)
    }

    pub(crate) fn new_space(&self) -> SpaceId {
        SpaceId(self.new_id())
    }

    /// The moment now, to order operations by, where the world stops for oracles.
    #[inline(always)]
    pub(crate) fn moment(&self) -> u64 {
        if !M::STOPS_THE_WORLD {
            return 0;
        }
        let now = self.stamp.peek() + 1;
        self.stamp.poke(now);
        now
    }

    pub(crate) fn reserved_frames(&self) -> u64 {
        self.reserved
    }

    /// Frames that are not the system's own. Linux: `totalram_pages`.
    pub(crate) fn usable_frames(&self) -> u64 {
        let kept = self.reserved + self.swap.frames() + self.absent;
        self.total_frames().saturating_sub(kept)
    }

    pub(crate) fn machine_cpus(&self) -> u32 {
        self.at.cpus()
    }
}

impl<M: Mmu> CpuArea<M> {
    pub(crate) fn new() -> Self {
        Self {
            events: core::array::from_fn(|_| Counter::new()),
            checks: core::array::from_fn(|_| Counter::new()),
            committed: Atomic::new(0),
            slot: Atomic::new(0),
            mailbox: Mailbox::new(),
            loaded: Counter::new(),
            asked: Counter::new(),
        }
    }
}
