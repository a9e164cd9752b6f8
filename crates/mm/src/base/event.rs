//! What is counted: one number per CPU and event, named as perf names its software events.

use crate::system::{CpuArea, System};
use core::fmt;
use minflt_pgtable::Mmu;

macro_rules! events {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {
        /// Something worth counting.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Event { $($(#[doc = $doc])+ $name),+ }

        impl Event {
            /// Every event.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// What it counts.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+)),+ }
            }
        }

        impl fmt::Display for Event {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

events! {
    /// Faults taken, whatever came of them.
    PageFaults = "page-faults",
    /// Faults done without waiting for a device.
    MinorFaults = "minor-faults",
    /// Faults done after waiting for a device.
    MajorFaults = "major-faults",
    /// Pages moved to another frame.
    PagesMigrated = "pages-migrated",
    /// Pages that were to be moved, and could not be.
    MigrationsFailed = "migrations-failed",
    /// Faults that waited for a page that was being moved.
    MigrationWaits = "migration-waits",
    /// Faults that mapped a huge page.
    HugeFaults = "huge-faults",
    /// Huge pages that a file got.
    HugePagesMade = "huge-pages-made",
    /// Huge pages that a store to a private mapping copied.
    HugeCopies = "huge-copies",
    /// Huge pages that children lost, since whoever reserved them stored to them.
    HugePagesLost = "huge-pages-lost",
    /// Tables of huge pages that were shared, each time by one mapping more.
    TablesShared = "tables-shared",
    /// Tables of huge pages that one of the mappings which shared them left.
    TablesUnshared = "tables-unshared",
    /// Mappings of huge pages whose lock could not be had at once by who came from the file.
    HugeLockMissed = "huge-lock-missed",
    /// Anonymous first touches by a store: a frame of zeros was installed.
    AnonWrite = "anon-write-faults",
    /// Anonymous first touches by a load: the shared page of zeros was installed.
    AnonRead = "anon-read-faults",
    /// Stores to the shared page of zeros: replaced by a frame of its own.
    ZeroPageCow = "zero-page-cow-faults",
    /// Stores to a read-only entry of a page that nobody shares: made writable.
    Reuse = "reuse-faults",
    /// Stores to a read-only entry of a page that may be shared: replaced by a copy.
    Cow = "cow-faults",
    /// Loads of a page of a file that nobody around had mapped: mapped.
    FileRead = "file-read-faults",
    /// Loads of a page of a file, mapped with those around it by one fault.
    FileAround = "file-around-faults",
    /// First stores to a page of a shared file: mapped.
    FileWrite = "file-write-faults",
    /// Stores to a read-only entry of a page of a shared file: made writable.
    FileShared = "file-shared-faults",
    /// First stores to a page of a private file: a copy was mapped.
    FileCopy = "file-copy-faults",
    /// Faults on pages that were swapped out: read back in.
    SwapIn = "swap-in-faults",
    /// Pages written to the swap device, whose frames were given back.
    SwapOut = "swapped-out",
    /// Pages that were to be swapped out, and came back before they were gone.
    SwapPutBack = "swap-put-back",
    /// Times that an allocation had to wait until pages were given back.
    ReclaimStalls = "allocstall",
    /// Frames that reclaim looked at.
    ReclaimScanned = "pgscan",
    /// Frames that reclaim gave back.
    ReclaimStolen = "pgsteal",
    /// Faults on pages of which balancing had taken the right to use them away.
    NumaHintFaults = "numa-hint-faults",
    /// Those of them that came from a CPU of the page's own node.
    NumaHintFaultsLocal = "numa-hint-faults-local",
    /// Pages moved to the node that they were used from, by such faults.
    NumaPagesMigrated = "numa-pages-migrated",
    /// Entries of which balancing took that right away.
    NumaPteUpdates = "numa-pte-updates",
    /// Pages that a fault mapped beside the one it was for.
    FaultAroundMapped = "fault-around-mapped",
    /// Pages around a fault that were cached and could not be mapped without waiting.
    FaultAroundSkipped = "fault-around-skipped",
    /// Pages of files that were unmapped and had not been used: mapped by fault-around in vain,
    /// where it maps its neighbours as old.
    FaultAroundUnused = "fault-around-unused",
    /// Pages of files that were read from where the file is.
    PagesRead = "pages-read",
    /// Those of them that nobody had asked for yet.
    ReadAhead = "pages-read-ahead",
    /// Pages of files that were written to where the file is.
    PagesWritten = "pages-written",
    /// Faults that found nothing to change: another fault or the hardware was faster.
    Spurious = "spurious-faults",
    /// Accessed or dirty bits set by the low-level handler, without a fault.
    AccessBits = "access-bits-set",
    /// Faults that ended in a signal.
    Signals = "signals",
    /// Faults that found no memory.
    OutOfMemory = "out-of-memory",
    /// Faults done without `mmap_lock`.
    Speculative = "speculative-faults",
    /// Attempts without `mmap_lock` that had to fall back.
    SpeculativeFailed = "speculative-faults-failed",
    /// Fell back: the VMA was or became another.
    SpfVmaChanged = "spf-vma-changed",
    /// Fell back: a table was missing or became another.
    SpfPmdChanged = "spf-pmd-changed",
    /// Fell back: the table's lock was taken.
    SpfPteLock = "spf-pte-lock",
    /// Fell back: the VMA had no anon_vma yet.
    SpfNoAnonVma = "spf-no-anon-vma",
    /// Fell back: a kind of VMA or entry that is not handled speculatively.
    SpfNotSupported = "spf-not-supported",
    /// A speculative access that the VMA does not allow (a signal, not a fallback).
    SpfAccess = "spf-access",
    /// Faults done under their VMA's lock, without `mmap_lock`.
    VmaLockSuccess = "vma-lock-success",
    /// Faults that did not get a VMA's lock, and fell back.
    VmaLockAbort = "vma-lock-abort",
    /// Faults that had their VMA's lock and could not go on without `mmap_lock`.
    VmaLockRetry = "vma-lock-retry",
    /// VMAs that were taken out between being found and being locked: looked up again.
    VmaLockMiss = "vma-lock-miss",
    /// Times a writer slept until faults had left a VMA (counted VMA locks only).
    VmaLockWaits = "vma-lock-writer-waits",
    /// Exchanges lost while setting flags of a present entry.
    CasFlags = "cmpxchg-failed-flags",
    /// Exchanges lost while making a page writable that nobody shares.
    CasReuse = "cmpxchg-failed-reuse",
    /// Entries that changed while a fault made the copy of their page.
    CasCow = "cmpxchg-failed-cow",
    /// Exchanges lost while installing the page of zeros.
    CasAnonRead = "cmpxchg-failed-anon-read",
    /// Exchanges lost while installing a frame.
    CasAnonWrite = "cmpxchg-failed-anon-write",
    /// Tables put in.
    TablesInstalled = "tables-installed",
    /// Tables thrown away because another fault was faster.
    TablesLost = "tables-lost",
    /// Invalidations asked of other CPUs.
    Shootdowns = "tlb-shootdowns",
    /// CPUs interrupted for them.
    ShootdownTargets = "tlb-shootdown-targets",
    /// Times that a CPU left the CPU mask of an address space that it did not run.
    LeftMasks = "tlb-masks-left",
    /// Invalidations that the machine broadcast, interrupting nobody.
    Broadcasts = "tlb-broadcasts",
    /// Invalidations repeated because another one over the address space was under way.
    NestedFlush = "tlb-flush-nested",
    /// Mapping calls.
    Mmap = "mmap-calls",
    /// Unmapping calls.
    Munmap = "munmap-calls",
    /// Calls of mremap.
    Mremap = "mremap-calls",
    /// Entries that mremap moved, one by one.
    EntriesMoved = "entries-moved",
    /// Tables that mremap moved whole.
    TablesMoved = "tables-moved",
    /// Protection calls.
    Mprotect = "mprotect-calls",
    /// Address spaces copied.
    Fork = "fork-calls",
    /// Entries shared by fork.
    ForkEntries = "fork-entries",
    /// Calls that synchronize files with what is mapped of them.
    Msync = "msync-calls",
    /// Advice calls.
    Madvise = "madvise-calls",
    /// Calls that lock or unlock memory.
    Mlock = "mlock-calls",
    /// Calls that ask which pages are there.
    Mincore = "mincore-calls",
    /// Calls about memory policies.
    Mempolicy = "mempolicy-calls",
    /// Calls that move pages to nodes, or ask where they are.
    MovePages = "move-pages-calls",
    /// Calls that move or ask for the heap's end.
    Brk = "brk-calls",
    /// Pages faulted in by a call that maps and populates. They are minor faults, as in Linux, but
    /// no `page-faults`.
    Populated = "populated-pages",
    /// Faults that waited for a userfaultfd's handler.
    Userfaults = "userfaults",
    /// Pages copied by fork, because somebody had them pinned.
    ForkCopies = "fork-copies",
    /// Pages pinned without a lock.
    PinnedFast = "pages-pinned-fast",
    /// Stacks that grew down to an access below them.
    StackGrown = "stack-growths",
    /// Objects freed by grace-period callbacks.
    CallbacksRun = "grace-period-callbacks",
    /// Times that a CPU had queued so many callbacks that it waited for readers.
    CallbackStalls = "grace-period-stalls",
}

impl<M: Mmu> System<M> {
    /// What the CPU that the caller runs on has of its own.
    #[inline(always)]
    pub(crate) fn here(&self) -> &CpuArea<M> {
        self.cpus.this()
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.here().count(event);
    }

    #[inline(always)]
    pub(crate) fn count_n(&self, event: Event, n: u64) {
        self.cpus.this().events[event as usize].add(n);
    }
}

impl<M: Mmu> CpuArea<M> {
    /// For who asked once whose it is.
    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.events[event as usize].add(1);
    }
}
