//! Configuration of fault synchronization: one choice per decision point, and the combinations that
//! are legal.
//!
//! # Problem
//! Several generations of page-fault synchronization must be compared on one code base, in one run,
//! but not every combination of their parts is sound.
//!
//! # Idea
//! A [`Config`] holds one choice per decision point. The fault path tests the choice, never the
//! era: an era is only a name for a `Config`. [`Config::check`] rejects unsound combinations with a
//! reason.
//!
//! # Why it is correct
//! A system is built only from a checked `Config`. A negative control ([`NegativeControl`]) shows
//! the failure that an unsound combination causes, on machines compiled with controls
//! ([`Machine::CONTROLS`]). Race checks and tests set one, and commands that simulate the kernel to
//! which the 2022 posting reverted.

mod era;
mod modes;
mod negative_control;
mod rules;

pub use era::{
    ERAS, Era, era, eras_of_huge_pages, eras_of_migration, eras_without_files,
    eras_without_migration,
};
pub use modes::{LockMode, VmaLockBy};
pub use negative_control::NegativeControl;
pub use rules::Illegal;

use crate::base::vma_lock_ops::OwnLock;
use core::fmt;
use minflt_sync::{Machine, Succession};

/// One choice at each decision point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Lock modes that a fault tries, in fallback order; the last one blocks.
    pub fallback_order: FallbackOrder,
    /// How page-table entries are changed, on every path.
    pub protocol: Protocol,
    /// The lock under which a new page table is linked into its parent.
    pub linking: Linking,
    /// How compare-and-exchange of a PTE is done.
    pub exchange: ExchangeBy,
    /// Reclamation scheme: when unlinked VMAs, attributes, tree nodes and page tables are freed.
    pub reclamation: Reclamation,
    /// How resident pages are counted.
    pub rss: Rss,
    /// Which thread acquires a sleeping lock after its release.
    pub sleeping_locks: SleepingLocks,
    /// How munmap holds `mmap_lock`.
    pub unmap: Unmap,
    /// Whether an address space is one, or many small ones.
    pub address_space: AddressSpace,
    /// Which CPUs a TLB flush interrupts.
    pub cpu_masks: CpuMasks,
    /// Fault-around window: how many file pages a fault maps.
    pub around: FaultAround,
    /// Whether fault-around PTEs are installed young or old.
    pub fault_around_age: FaultAroundAge,
    /// How a reverse-map walk of an anonymous page takes the anon_vma lock.
    pub anon_rmap: AnonRmap,
    /// Which of several first faults of a VMA allocates its anon_vma.
    pub anon_vma_preparation: AnonVmaPreparation,
    /// Whether NUMA balancing migrates pages to the node that accesses them.
    pub balancing: Balancing,
    /// What keeps shared hugetlb page tables alive during a fault.
    pub hugetlb: Hugetlb,
    /// What a first-touch fault prefetches.
    pub prefetch: Prefetch,
    /// Into how many zones the memory of a node is split.
    pub zones: Zones,
    /// The lock of the fallback order `vma-own,mmap`; `None` with any other.
    pub own_lock: Option<OwnLock>,
    /// Negative control: a fix switched off on purpose. `None` outside race checks.
    pub negative_control: Option<NegativeControl>,
}

macro_rules! choices {
    ($(#[$doc:meta])* $name:ident $what:literal {
        $($(#[doc = $cdoc:literal])+ $variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[doc = $cdoc])+ $variant),+ }

        impl $name {
            /// Every choice, with its name and what it means.
            pub const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$variant, $text, concat!($($cdoc),+))),+];
            /// The decision point's name.
            pub const WHAT: &'static str = $what;

            /// The choice's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The choice called `name`.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

choices! {
    /// Lock modes that a fault tries, in fallback order.
    FallbackOrder "fallback-order" {
        /// `mmap_lock` for reading.
        Mmap = "mmap",
        /// First without a lock: read section and sequence count; then `mmap_lock` for reading.
        SpeculativeMmap = "speculative,mmap",
        /// Without a lock only. Refused: a fault may retry without end.
        Speculative = "speculative",
        /// First a trylock of the VMA lock, a read-write semaphore (Linux 6.4); then `mmap_lock`
        /// for reading.
        VmaRwsemMmap = "vma-rwsem,mmap",
        /// First a trylock of the VMA lock, a reference count (Linux 6.15); then `mmap_lock` for
        /// reading.
        VmaCountMmap = "vma-count,mmap",
        /// First a VMA lock supplied by the embedder; then `mmap_lock` for reading.
        VmaOwnMmap = "vma-own,mmap",
    }
}

choices! {
    /// How page-table entries are changed.
    Protocol "protocol" {
        /// Under one lock per address space (`page_table_lock`).
        MmLock = "mm-lock",
        /// Under one lock per page table (split page-table locks).
        TableLock = "table-lock",
        /// Faults use compare-and-exchange without a lock; zap and protect exchange entries under
        /// the page-table lock.
        CompareExchange = "compare-exchange",
    }
}

choices! {
    /// The lock under which a new page table is linked, where the protocol uses a lock for it.
    Linking "linking" {
        /// The address space's (`page_table_lock`).
        MmLock = "mm-lock",
        /// The parent table's lock for a table of leaf entries (since Linux 3.13);
        /// `page_table_lock` for the higher levels.
        ParentLock = "parent-lock",
        /// The parent table's lock at every level, and for leaf tables that of a group of its
        /// entries. Speculative faults put tables in, too: they look again, with the lock held,
        /// whether their mapping has changed.
        EveryParent = "every-parent",
    }
}

choices! {
    /// How compare-and-exchange of a PTE is done.
    ExchangeBy "exchange" {
        /// By an atomic instruction, or emulated on machines that lack one.
        Native = "native",
        /// By a lock held across compare and store, even on machines with an atomic instruction.
        Emulated = "emulated",
    }
}

choices! {
    /// Reclamation scheme: when unlinked objects are freed.
    Reclamation "reclamation" {
        /// Immediately: there are no lockless readers.
        Immediate = "immediate",
        /// After an SRCU grace period.
        Srcu = "srcu",
        /// After an RCU grace period.
        Rcu = "rcu",
        /// The same, but a CPU does not ask for a grace period before it has much to free.
        RcuBatched = "rcu-batched",
        /// VMAs immediately, to a type-stable slab (`SLAB_TYPESAFE_BY_RCU`); everything else after
        /// an RCU grace period.
        TypeStable = "type-stable",
    }
}

choices! {
    /// How resident pages are counted.
    Rss "rss" {
        /// A plain counter under the address space's `page_table_lock`.
        UnderLock = "under-lock",
        /// One atomic counter.
        Atomic = "atomic",
        /// A plain counter without a lock: concurrent updates are lost. Negative values read as 0.
        Sloppy = "sloppy",
        /// Per-thread counters, folded into the total every 64 events.
        PerThread = "per-thread",
        /// Per-CPU counters, folded into the total in batches of at least 32.
        PerCpu = "per-cpu",
    }
}

choices! {
    /// Which thread acquires a sleeping lock after its release: `mmap_lock`, and the locks of files
    /// and reverse maps.
    SleepingLocks "sleeping-locks" {
        /// The first waiter: the releasing thread passes the lock to it (until Linux 3.8).
        Grant = "grant",
        /// Any writer that finds it free (lock stealing); the first waiter is woken to try (Linux
        /// 3.10 to 3.15).
        Steal = "steal",
        /// As steal, and writers spin optimistically in a queue while the owner runs (Linux 3.16 to
        /// 5.2).
        Spin = "spin",
        /// As spin, but the lock is handed off to a waiter that has waited for 4 ms (since Linux
        /// 5.3), and readers steal, too (since Linux 5.11).
        HandOff = "hand-off",
    }
}

choices! {
    /// How munmap holds `mmap_lock` while it unmaps pages.
    Unmap "unmap" {
        /// For writing, to the end of the call.
        Exclusive = "exclusive",
        /// Downgraded to reading once the VMAs are detached and out of the tree (Linux 4.20):
        /// faults elsewhere continue.
        Downgrade = "downgrade",
    }
}

choices! {
    /// Which CPUs a TLB flush interrupts.
    CpuMasks "cpu-masks" {
        /// Those that run the address space (Linux).
        Space = "space",
        /// Those of them that have used an arena of what is flushed. A CPU's first access in an
        /// arena is a fault. Where the machine broadcasts invalidations, it does where any other
        /// CPU has used the arena. As `space` where hardware walks the tables by itself.
        Arenas = "arenas",
    }
}

choices! {
    /// Whether an address space has one tree of VMAs and one `mmap_lock`, or many.
    AddressSpace "address-space" {
        /// One (Linux).
        Whole = "whole",
        /// One for each arena, a part of the addresses, once the process has two threads: mmap goes
        /// to an arena of its CPU, and a call locks the arenas of its range.
        Arenas = "arenas",
        /// The same from the first mmap on, with arenas of 4 pages: for tests, whose mappings then
        /// meet their borders.
        ArenasSmall = "arenas-small",
    }
}

choices! {
    /// Fault-around window of a read fault: it maps up to 2 to the power of this cached file pages.
    FaultAround "fault-around-order" {
        /// The faulting page only.
        Order0 = "0",
        /// Up to 2 pages.
        Order1 = "1",
        /// Up to 4 pages.
        Order2 = "2",
        /// Up to 8 pages.
        Order3 = "3",
        /// Up to 16 pages: as posted in 2014, and Linux's default since.
        Order4 = "4",
        /// Up to 32 pages.
        Order5 = "5",
        /// Up to 64 pages.
        Order6 = "6",
        /// Up to 128 pages.
        Order7 = "7",
        /// Up to 256 pages.
        Order8 = "8",
        /// Up to 512 pages.
        Order9 = "9",
        /// One page at the first file fault in a page table, four times as many at each later one
        /// there.
        Adaptive = "adaptive",
    }
}

choices! {
    /// Whether fault-around PTEs are installed young or old.
    FaultAroundAge "fault-around-age" {
        /// Young: accessed bit set (as posted in 2014, and on x86-64 today).
        Young = "young",
        /// Old: accessed bit clear (Linux 4.8, and today where the hardware sets accessed bits for
        /// free).
        Old = "old",
    }
}

choices! {
    /// How a reverse-map walk of an anonymous page takes the anon_vma lock.
    AnonRmap "anon-rmap" {
        /// For writing, as if it were a mutex (until Linux 3.7).
        Exclusive = "exclusive",
        /// For reading (since Linux 3.8): walks run in parallel and block only on writers of the
        /// tree.
        Shared = "shared",
        /// Not taken where the page provably has a single mapping; otherwise for writing. The 2012
        /// posting skipped it in every migration, which is unsound.
        Skipped = "skipped",
    }
}

choices! {
    /// Which of several first faults of a VMA allocates its anon_vma.
    AnonVmaPreparation "anon-vma-preparation" {
        /// Each, under `mmap_lock`; all but one free theirs again (Linux).
        EachFault = "each-fault",
        /// The one that gets `page_table_lock`; the others wait until that is free, and look again.
        /// None of them waits for `mmap_lock`.
        OneFault = "one-fault",
    }
}

choices! {
    /// Whether NUMA balancing migrates pages to the node that accesses them.
    Balancing "numa-balancing" {
        /// A page stays where its first fault or a call placed it.
        Off = "off",
        /// PTEs are made `PROT_NONE` periodically, and a page with two consecutive hinting faults
        /// from one node migrates there.
        On = "on",
    }
}

choices! {
    /// What keeps a hugetlb page table, which several address spaces may share, alive during a
    /// fault.
    Hugetlb "hugetlb" {
        /// Every fault holds the lock of the file's mappings (Linux: `i_mmap_rwsem`) for reading
        /// (Linux 5.7 to 6.0): a writer, such as fork adding a mapping, waits for all faults on the
        /// file.
        IMmap = "i-mmap",
        /// A lock in each mapping (since Linux 6.1): unsharing a page table takes that mapping's
        /// lock for writing.
        VmaLock = "vma-lock",
    }
}

choices! {
    /// What a first-touch fault prefetches. Simulated machines ignore prefetches.
    Prefetch "prefetch" {
        /// Nothing.
        Nothing = "nothing",
        /// The cache line of the new page that the access is to, and the descriptor and same line
        /// of a frame that this CPU will allocate soon.
        Frame = "frame",
    }
}

choices! {
    /// Into how many zones, each with a lock and free lists, the memory of a node is split.
    Zones "zones" {
        /// None: one zone per node (Linux).
        PerNode = "per-node",
        /// One for each 32 CPUs of the node, which take frames from the others when it is empty;
        /// and each CPU keeps frames that follow each other, up to its part of an eighth of memory.
        PerCpuGroup = "per-cpu-group",
    }
}

impl SleepingLocks {
    /// Succession of a lock that has always been a read-write semaphore.
    #[must_use]
    pub const fn of_semaphore(self) -> Succession {
        match self {
            Self::Grant => Succession::Grant,
            Self::Steal => Succession::Steal,
            Self::Spin => Succession::Spin,
            Self::HandOff => Succession::HandOff,
        }
    }

    /// Succession of a lock that was a mutex before semaphores spun: mutexes have spun since 2009
    /// (0d66bf6d3514), and writers stole them.
    #[must_use]
    pub const fn of_mutex(self) -> Succession {
        match self {
            Self::Grant | Self::Steal => Succession::Spin,
            later => later.of_semaphore(),
        }
    }
}

impl AddressSpace {
    /// With how many threads an address space is divided.
    pub(crate) const fn threads(self) -> u64 {
        match self {
            Self::Whole => u64::MAX,
            Self::Arenas => 2,
            Self::ArenasSmall => 0,
        }
    }
}

impl FaultAround {
    /// The power of 2, where it is the same for all faults.
    #[must_use]
    pub const fn order(self) -> Option<u32> {
        match self {
            Self::Adaptive => None,
            fixed => Some(fixed as u32),
        }
    }
}

impl Config {
    /// Succession of the anon_vma lock, which was a mutex as long as walks took it exclusively.
    pub(crate) const fn anon_vma_lock(&self) -> Succession {
        match self.anon_rmap {
            AnonRmap::Shared => self.sleeping_locks.of_semaphore(),
            AnonRmap::Exclusive | AnonRmap::Skipped => self.sleeping_locks.of_mutex(),
        }
    }

    /// The same without fault-around: what is relevant to anonymous memory only.
    #[must_use]
    pub const fn without_files(self) -> Self {
        Self {
            around: FaultAround::Order0,
            fault_around_age: FaultAroundAge::Young,
            ..self.without_huge_pages()
        }
    }

    /// The same without migration: what is relevant where pages never change their node.
    #[must_use]
    pub const fn without_migration(self) -> Self {
        Self {
            anon_rmap: AnonRmap::Exclusive,
            balancing: Balancing::Off,
            ..self.without_huge_pages()
        }
    }

    /// The same where there are no huge pages.
    #[must_use]
    pub const fn without_huge_pages(self) -> Self {
        Self {
            hugetlb: Hugetlb::IMmap,
            ..self
        }
    }

    /// The same with another protocol, and with the linking that goes with it.
    #[must_use]
    pub const fn with_protocol(self, protocol: Protocol) -> Self {
        let linking = match protocol {
            Protocol::TableLock => self.linking,
            Protocol::MmLock | Protocol::CompareExchange => Linking::MmLock,
        };
        Self {
            protocol,
            linking,
            ..self
        }
    }

    /// The same with one fix switched off.
    #[must_use]
    pub const fn with_negative_control(self, negative_control: Option<NegativeControl>) -> Self {
        Self {
            negative_control,
            ..self
        }
    }

    /// The fix that is switched off, which is none on a machine without controls: the question, and
    /// what it guards, is compiled out there.
    #[inline(always)]
    pub(crate) const fn switched_off<M: Machine>(&self) -> Option<NegativeControl> {
        if M::CONTROLS {
            self.negative_control
        } else {
            None
        }
    }

    /// Whether this fix is switched off.
    #[inline(always)]
    pub(crate) fn lacks<M: Machine>(&self, fix: NegativeControl) -> bool {
        self.switched_off::<M>() == Some(fix)
    }
}

#[cfg(test)]
mod tests;
