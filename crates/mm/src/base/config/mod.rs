//! How faults are synchronized, as data: one choice per decision point, and the mixes that are
//! legal.
//!
//! # Problem
//! The generations of page-fault synchronization are to be compared on one code base, in one run;
//! and not every mix of their parts is sound.
//!
//! # Idea
//! A [`Config`] holds one choice per decision point. The fault path asks the choice, never the era;
//! an era is only a name for a `Config`. [`Config::check`] refuses the unsound mixes with a reason.
//!
//! # Why it is correct
//! A system is built only from a checked `Config`. What an unsound mix does is shown by a
//! [`Broken`], on machines that have controls ([`Machine::CONTROLS`]). Race checks and tests set
//! it, and commands that simulate the kernel that 2022's posting reverted to.

mod broken;
mod era;
mod rules;

pub use broken::Broken;
pub use era::{
    ERAS, Era, era, eras_of_huge_pages, eras_of_migration, eras_without_files,
    eras_without_migration,
};
pub use rules::Illegal;

use crate::base::lock_mode::OwnLock;
use core::fmt;
use minflt_sync::{Machine, Succession};

/// One choice at each decision point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The holds a fault tries, in order; the last one waits.
    pub ladder: Ladder,
    /// How entries are changed, by every verb.
    pub protocol: Protocol,
    /// The lock under which a new table is put in.
    pub linking: Linking,
    /// How entries are compared and exchanged.
    pub exchange: ExchangeBy,
    /// When unlinked VMAs, attributes, tree nodes and tables are freed.
    pub lifetime: Lifetime,
    /// How resident pages are counted.
    pub rss: Rss,
    /// Who has a sleeping lock next when it is released.
    pub sleeping_locks: SleepingLocks,
    /// How munmap holds `mmap_lock`.
    pub unmap: Unmap,
    /// How many pages of a file a fault maps.
    pub around: FaultAround,
    /// How the pages look that a fault maps beside the one it is for.
    pub neighbours: Neighbours,
    /// How a walk to all entries of an anonymous page holds the lock of their anon_vmas.
    pub anon_rmap: AnonRmap,
    /// Whether pages follow the threads that use them to their nodes.
    pub balancing: Balancing,
    /// What keeps shared tables of huge pages while a fault uses them.
    pub hugetlb: Hugetlb,
    /// What a first touch asks the caches for before it needs it.
    pub ahead: Ahead,
    /// The lock of the ladder `vma-own,mmap`; `None` with any other.
    pub own_lock: Option<OwnLock>,
    /// A fix switched off on purpose; `None` outside race checks.
    pub broken: Option<Broken>,
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
    /// The holds a fault tries.
    Ladder "ladder" {
        /// `mmap_lock` for reading.
        Mmap = "mmap",
        /// First without a lock: read section, sequence count; then `mmap_lock` for reading.
        SpeculativeMmap = "speculative,mmap",
        /// Without a lock only. Refused: it may fail for ever.
        Speculative = "speculative",
        /// First the VMA's lock, a tried read-write semaphore (Linux 6.4); then `mmap_lock` for
        /// reading.
        VmaRwsemMmap = "vma-rwsem,mmap",
        /// First the VMA's lock, a count of its users (Linux 6.15); then `mmap_lock` for reading.
        VmaCountMmap = "vma-count,mmap",
        /// First the VMA's lock, one that an embedder brings; then `mmap_lock` for reading.
        VmaOwnMmap = "vma-own,mmap",
    }
}

choices! {
    /// How entries are changed.
    Protocol "protocol" {
        /// Under one lock per address space (`page_table_lock`).
        MmLock = "mm-lock",
        /// Under one lock per table.
        TableLock = "table-lock",
        /// Faults by compare-and-exchange, without a lock; zap and protect exchange under the lock.
        CompareExchange = "compare-exchange",
    }
}

choices! {
    /// The lock under which a new table is put in, where that is not done by exchange.
    Linking "linking" {
        /// The address space's (`page_table_lock`).
        MmLock = "mm-lock",
        /// For a table of leaf entries, that of the table above it (since Linux 3.13); for the
        /// others, which are few, the address space's.
        ParentLock = "parent-lock",
    }
}

choices! {
    /// How entries are compared and exchanged.
    ExchangeBy "exchange" {
        /// By the machine, or emulated where the machine cannot.
        Native = "native",
        /// By a lock held for the compare and the store, even where the machine could.
        Emulated = "emulated",
    }
}

choices! {
    /// When unlinked objects are freed.
    Lifetime "lifetime" {
        /// At once: nobody reads without the lock.
        Immediate = "immediate",
        /// After an SRCU grace period.
        Srcu = "srcu",
        /// After an RCU grace period.
        Rcu = "rcu",
        /// VMAs at once, but their memory stays a VMA's; the rest after an RCU grace period.
        TypeStable = "type-stable",
    }
}

choices! {
    /// How resident pages are counted.
    Rss "rss" {
        /// A plain number under the address space's lock.
        UnderLock = "under-lock",
        /// One atomic number.
        Atomic = "atomic",
        /// A plain number without a lock: updates get lost. Readers see 0 for less than 0.
        Sloppy = "sloppy",
        /// Per thread, added to the whole every 64 events.
        PerThread = "per-thread",
        /// Per CPU, added to the whole in batches of at least 32.
        PerCpu = "per-cpu",
    }
}

choices! {
    /// Who has a sleeping lock next when it is released: `mmap_lock`, and the locks of files and
    /// reverse maps.
    SleepingLocks "sleeping-locks" {
        /// The first waiter, which is handed the lock with the wake-up (until Linux 3.8).
        Grant = "grant",
        /// Any writer that finds it free; the first waiter is woken to try (Linux 3.10 to 3.15).
        Steal = "steal",
        /// The same, and a writer spins, behind the others that do, while the writer inside runs
        /// (Linux 3.16 to 5.2).
        Spin = "spin",
        /// The same, but a waiter that was overtaken for 4 ms is next (since Linux 5.3), and
        /// readers take a free lock, too (since Linux 5.11).
        HandOff = "hand-off",
    }
}

choices! {
    /// How munmap holds `mmap_lock` while it takes pages out.
    Unmap "unmap" {
        /// For writing, to its end.
        Exclusive = "exclusive",
        /// For reading, once the tree has changed and what goes is detached (Linux 4.20): faults
        /// elsewhere go on.
        Downgrade = "downgrade",
    }
}

choices! {
    /// How many pages of a file a load's fault maps, of those that are cached: 2 to the power of
    /// this.
    FaultAround "fault-around-order" {
        /// The page itself.
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
        /// One page where a table's first fault on a file is, four times as many with each that
        /// follows there.
        Adaptive = "adaptive",
    }
}

choices! {
    /// How the pages look that a fault maps beside the one it is for.
    Neighbours "neighbours" {
        /// As used (as posted in 2014, and on x86-64 today).
        Young = "young",
        /// As not used yet (Linux 4.8, and where the hardware sets accessed bits for free).
        Old = "old",
    }
}

choices! {
    /// How a walk from an anonymous page to what maps it holds the lock of the anon_vmas.
    AnonRmap "anon-rmap" {
        /// For writing, as if it were a mutex (until Linux 3.7).
        Exclusive = "exclusive",
        /// For reading (since Linux 3.8): walks go on side by side, and wait only for who changes
        /// what they walk.
        Shared = "shared",
        /// Not at all where a page provably has one place; else for writing. As posted in 2012 it
        /// was not taken for any migration, which is unsound.
        Skipped = "skipped",
    }
}

choices! {
    /// Whether pages follow the threads that use them to their nodes.
    Balancing "numa-balancing" {
        /// A page stays where its first fault, or a call, put it.
        Off = "off",
        /// Entries are made to fault now and then, and a page that faults on one node twice running
        /// moves there.
        On = "on",
    }
}

choices! {
    /// What keeps a table of huge pages, which several address spaces may share, while a fault uses
    /// it.
    Hugetlb "hugetlb" {
        /// The lock of the file's mappings, for reading, in every fault (Linux 5.7 to 6.0): whoever
        /// adds a mapping, as fork does, waits for all faults on the file.
        IMmap = "i-mmap",
        /// A lock of each mapping (since Linux 6.1): whoever takes a table away from a mapping has
        /// that mapping's for writing.
        VmaLock = "vma-lock",
    }
}

choices! {
    /// What a first touch asks the caches for before it needs it. Simulated machines take no hints.
    Ahead "ahead" {
        /// Nothing.
        Nothing = "nothing",
        /// The line of the new page that the access is for, and the descriptor and that line of a
        /// frame that this CPU takes soon.
        Frame = "frame",
    }
}

impl SleepingLocks {
    /// That of a lock that was a read-write semaphore all the time.
    #[must_use]
    pub const fn of_semaphore(self) -> Succession {
        match self {
            Self::Grant => Succession::Grant,
            Self::Steal => Succession::Steal,
            Self::Spin => Succession::Spin,
            Self::HandOff => Succession::HandOff,
        }
    }

    /// That of a lock that was a mutex when semaphores did not spin yet: mutexes did since 2009
    /// (0d66bf6d3514), and writers stole them.
    #[must_use]
    pub const fn of_mutex(self) -> Succession {
        match self {
            Self::Grant | Self::Steal => Succession::Spin,
            later => later.of_semaphore(),
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

/// A rung of the ladder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rung {
    /// No lock: lookup in a read section, checked by a sequence count.
    Speculative,
    /// The VMA's lock for reading, tried.
    VmaLock,
    /// `mmap_lock` for reading.
    Mmap,
}

/// How a VMA is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VmaLockBy {
    /// A read-write semaphore. A VMA without an anon_vma is not locked (Linux 6.4).
    Rwsem,
    /// A count of its users. A fault looks for the anon_vma when it needs one (since Linux 6.10).
    Count,
    /// A lock that an embedder brought ([`Config::own_lock`]), beside an anon_vma as under the
    /// count.
    Own,
}

impl Ladder {
    /// The rungs, in the order tried.
    #[must_use]
    pub const fn rungs(self) -> &'static [Rung] {
        match self {
            Self::Mmap => &[Rung::Mmap],
            Self::SpeculativeMmap => &[Rung::Speculative, Rung::Mmap],
            Self::Speculative => &[Rung::Speculative],
            Self::VmaRwsemMmap | Self::VmaCountMmap | Self::VmaOwnMmap => {
                &[Rung::VmaLock, Rung::Mmap]
            }
        }
    }

    /// How faults lock VMAs, if they do.
    #[must_use]
    pub const fn vma_lock(self) -> Option<VmaLockBy> {
        match self {
            Self::VmaRwsemMmap => Some(VmaLockBy::Rwsem),
            Self::VmaCountMmap => Some(VmaLockBy::Count),
            Self::VmaOwnMmap => Some(VmaLockBy::Own),
            Self::Mmap | Self::SpeculativeMmap | Self::Speculative => None,
        }
    }

    /// Whether a fault may run without a lock.
    #[must_use]
    pub const fn speculates(self) -> bool {
        matches!(self, Self::SpeculativeMmap | Self::Speculative)
    }
}

impl Config {
    /// Who has the lock of an anon_vma next: it was a mutex as long as walks had it for writing.
    pub(crate) const fn anon_vma_lock(&self) -> Succession {
        match self.anon_rmap {
            AnonRmap::Shared => self.sleeping_locks.of_semaphore(),
            AnonRmap::Exclusive | AnonRmap::Skipped => self.sleeping_locks.of_mutex(),
        }
    }

    /// The same where no fault maps more than its own page: all that anonymous memory knows of it.
    #[must_use]
    pub const fn without_files(self) -> Self {
        Self {
            around: FaultAround::Order0,
            neighbours: Neighbours::Young,
            ..self.without_huge_pages()
        }
    }

    /// The same where no page moves: all that a system knows of it whose pages stay where they are.
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
    pub const fn broken(self, broken: Option<Broken>) -> Self {
        Self { broken, ..self }
    }

    /// The fix that is switched off, which is none on a machine without controls: the question, and
    /// what it guards, is compiled out there.
    #[inline(always)]
    pub(crate) const fn switched_off<M: Machine>(&self) -> Option<Broken> {
        if M::CONTROLS { self.broken } else { None }
    }

    /// Whether this fix is switched off.
    #[inline(always)]
    pub(crate) fn lacks<M: Machine>(&self, fix: Broken) -> bool {
        self.switched_off::<M>() == Some(fix)
    }
}

#[cfg(test)]
mod tests;
