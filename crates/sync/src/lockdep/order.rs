//! The lock order, written once. `docs/locking.md` repeats it and a check compares the two.

use super::{Class, Waiting};

macro_rules! lock_order {
    ($($(#[$doc:meta])* $name:ident: $waiting:ident),+ $(,)?) => {
        /// Every class, outermost first.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Rank { $($(#[$doc])* $name),+ }

        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;
            impl Class for $name {
                const RANK: Rank = Rank::$name;
                const WAITING: Waiting = Waiting::$waiting;
            }
        )+
    };
}

lock_order! {
    /// The size of a file, and which pages it has.
    FileLock: Sleeps,
    /// The arenas of an address space: which there are, and several of them at once.
    ArenasLock: Sleeps,
    /// The address space, or one arena: its tree of VMAs.
    MmapLock: Sleeps,
    /// Whoever maps a shared file of huge pages, and reserves what it lacks.
    HugeReserveLock: Sleeps,
    /// One VMA, read or write.
    VmaLock: Sleeps,
    /// The table of segments of shared memory.
    ShmLock: Sleeps,
    /// Who maps a file of huge pages, where faults hold that throughout.
    HugeMapLock: Sleeps,
    /// One of the locks of faults on huge pages: by file and page.
    HugeFaultLock: Sleeps,
    /// The tables of one mapping of huge pages.
    HugeVmaLock: Sleeps,
    /// One folio.
    FolioLock: Sleeps,
    /// The reverse map of a file.
    IMmapLock: Sleeps,
    /// The reverse map of anonymous memory, at its root.
    AnonVmaLock: Sleeps,
    /// The tables of one address space, or of one table.
    PageTableLock: SpinsWithIrqsOn,
    /// Which huge pages of a file are reserved, or which of a private mapping are used.
    ReservationLock: Spins,
    /// The pools of huge pages.
    HugetlbLock: Spins,
    /// The list of all files.
    FilesLock: Spins,
    /// Free objects of one type.
    SlabLock: Spins,
    /// Free frames that follow each other, of one CPU.
    RunsLock: Spins,
    /// Free frames of one node.
    ZoneLock: Spins,
    /// The state of one grace-period domain.
    GraceLock: Spins,
    /// The queue of a sleeping lock.
    WaitLock: Spins,
    /// Requests to one CPU to invalidate translations.
    ShootdownLock: Spins,
}
