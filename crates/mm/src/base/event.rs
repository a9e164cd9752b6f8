//! Event counters, one per CPU and event, named as perf names its software events.

use crate::system::{CpuArea, System};
use core::fmt;
use minflt_pgtable::Mmu;

macro_rules! events {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {
        /// An event.
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
    /// Page faults taken, whatever their outcome.
    PageFaults = "page-faults",
    /// Faults resolved without I/O.
    MinorFaults = "minor-faults",
    /// Faults that waited for I/O.
    MajorFaults = "major-faults",
    /// Pages migrated to another frame.
    PagesMigrated = "pages-migrated",
    /// Failed page migrations.
    MigrationsFailed = "migrations-failed",
    /// Faults that waited on a migration entry.
    MigrationWaits = "migration-waits",
    /// Hugetlb faults that mapped a page.
    HugeFaults = "huge-faults",
    /// Huge pages allocated to a file.
    HugePagesMade = "huge-pages-made",
    /// Huge pages copied on write in a private mapping.
    HugeCopies = "huge-copies",
    /// Huge pages unmapped from children because the owner of the reservation stored to them and
    /// the pool was empty.
    HugePagesLost = "huge-pages-lost",
    /// Hugetlb page tables shared: one count per additional mapping.
    TablesShared = "tables-shared",
    /// Hugetlb page tables unshared from one mapping.
    TablesUnshared = "tables-unshared",
    /// VMA-lock trylocks that failed in a reverse-map walk (hugetlb).
    HugeLockMissed = "huge-lock-missed",
    /// Anonymous first-touch write faults: a zeroed frame was installed.
    AnonWrite = "anon-write-faults",
    /// Anonymous first-touch read faults: the shared zero page was installed.
    AnonRead = "anon-read-faults",
    /// Stores to the shared zero page: replaced by a zeroed frame.
    ZeroPageCow = "zero-page-cow-faults",
    /// Write faults on a read-only PTE of an exclusive page: made writable.
    Reuse = "reuse-faults",
    /// Write faults on a read-only PTE of a possibly shared page: copied.
    Cow = "cow-faults",
    /// Read faults on a file page, mapped alone.
    FileRead = "file-read-faults",
    /// Read faults on a file page, mapped together with its neighbours by fault-around.
    FileAround = "file-around-faults",
    /// First write faults on a page of a shared file mapping: the page was mapped.
    FileWrite = "file-write-faults",
    /// Write faults on a read-only PTE of a shared file mapping: made writable.
    FileShared = "file-shared-faults",
    /// First write faults on a page of a private file mapping: a copy was mapped.
    FileCopy = "file-copy-faults",
    /// Faults on swapped-out pages: read back in.
    SwapIn = "swap-in-faults",
    /// Pages written to the swap device and freed.
    SwapOut = "swapped-out",
    /// Swap-outs abandoned: the swap entries were removed and the page was mapped again.
    SwapPutBack = "swap-put-back",
    /// Allocations that waited for reclaim (direct reclaim).
    ReclaimStalls = "allocstall",
    /// Frames that reclaim scanned.
    ReclaimScanned = "pgscan",
    /// Frames that reclaim freed.
    ReclaimStolen = "pgsteal",
    /// NUMA hinting faults.
    NumaHintFaults = "numa-hint-faults",
    /// NUMA hinting faults from a CPU of the page's own node.
    NumaHintFaultsLocal = "numa-hint-faults-local",
    /// Pages that a NUMA hinting fault migrated to the faulting node.
    NumaPagesMigrated = "numa-pages-migrated",
    /// PTEs that NUMA balancing made `PROT_NONE`.
    NumaPteUpdates = "numa-pte-updates",
    /// Pages that fault-around mapped in addition to the faulting page.
    FaultAroundMapped = "fault-around-mapped",
    /// Cached pages that fault-around skipped because it would have had to wait.
    FaultAroundSkipped = "fault-around-skipped",
    /// File pages unmapped with a PTE still old: mapped by fault-around in vain, where fault-around
    /// PTEs are installed old.
    FaultAroundUnused = "fault-around-unused",
    /// File pages read from the backing store.
    PagesRead = "pages-read",
    /// File pages read ahead of demand.
    ReadAhead = "pages-read-ahead",
    /// File pages written to the backing store.
    PagesWritten = "pages-written",
    /// Faults that found nothing to change: another fault or the hardware was faster.
    Spurious = "spurious-faults",
    /// Accessed or dirty bits set by the low-level handler, without a fault.
    AccessBits = "access-bits-set",
    /// Faults that ended in a signal.
    Signals = "signals",
    /// Faults that failed for lack of memory.
    OutOfMemory = "out-of-memory",
    /// Faults completed without `mmap_lock`.
    Speculative = "speculative-faults",
    /// Attempts without `mmap_lock` that fell back.
    SpeculativeFailed = "speculative-faults-failed",
    /// Fallback: the VMA changed or was replaced.
    SpfVmaChanged = "spf-vma-changed",
    /// Fallback: a page table was missing or was replaced.
    SpfPmdChanged = "spf-pmd-changed",
    /// Fallback: the page-table lock was contended.
    SpfPteLock = "spf-pte-lock",
    /// Fallback: the VMA had no anon_vma yet.
    SpfNoAnonVma = "spf-no-anon-vma",
    /// Fallback: the kind of VMA or PTE is not handled speculatively.
    SpfNotSupported = "spf-not-supported",
    /// A speculative access that the VMA does not allow (a signal, not a fallback).
    SpfAccess = "spf-access",
    /// Faults completed under their VMA lock, without `mmap_lock`.
    VmaLockSuccess = "vma-lock-success",
    /// Faults whose VMA-lock trylock failed, and that fell back.
    VmaLockAbort = "vma-lock-abort",
    /// Faults that held their VMA lock and still needed `mmap_lock`.
    VmaLockRetry = "vma-lock-retry",
    /// VMAs detached between lookup and lock: looked up again.
    VmaLockMiss = "vma-lock-miss",
    /// Times a writer slept until readers had left a VMA (counted VMA locks only).
    VmaLockWaits = "vma-lock-writer-waits",
    /// Failed exchanges while setting flags of a present PTE.
    CasFlags = "cmpxchg-failed-flags",
    /// Failed exchanges while making an exclusive page writable.
    CasReuse = "cmpxchg-failed-reuse",
    /// PTEs that changed while a fault copied their page.
    CasCow = "cmpxchg-failed-cow",
    /// Failed exchanges while installing the zero page.
    CasAnonRead = "cmpxchg-failed-anon-read",
    /// Failed exchanges while installing a zeroed frame.
    CasAnonWrite = "cmpxchg-failed-anon-write",
    /// Page tables linked.
    TablesInstalled = "tables-installed",
    /// Page tables freed again because another fault linked one first.
    TablesLost = "tables-lost",
    /// TLB shootdowns sent to other CPUs.
    Shootdowns = "tlb-shootdowns",
    /// CPUs interrupted by TLB shootdowns.
    ShootdownTargets = "tlb-shootdown-targets",
    /// Times that a CPU left the CPU mask of an address space that it was not running (lazy TLB),
    /// or that of an arena.
    LeftMasks = "tlb-masks-left",
    /// TLB flushes broadcast by the machine, without interrupts.
    Broadcasts = "tlb-broadcasts",
    /// TLB flushes repeated because another flush of the address space was pending.
    NestedFlush = "tlb-flush-nested",
    /// Calls that create a mapping.
    Mmap = "mmap-calls",
    /// Calls of munmap.
    Munmap = "munmap-calls",
    /// Calls of mremap.
    Mremap = "mremap-calls",
    /// PTEs that mremap moved one by one.
    EntriesMoved = "entries-moved",
    /// Page tables that mremap moved whole.
    TablesMoved = "tables-moved",
    /// Calls of mprotect.
    Mprotect = "mprotect-calls",
    /// Calls of fork.
    Fork = "fork-calls",
    /// PTEs that fork shared with the child.
    ForkEntries = "fork-entries",
    /// Calls of msync.
    Msync = "msync-calls",
    /// Calls of madvise.
    Madvise = "madvise-calls",
    /// Calls of mlock, mlockall, munlock and munlockall.
    Mlock = "mlock-calls",
    /// Calls of mincore.
    Mincore = "mincore-calls",
    /// Calls of mbind, set_mempolicy and get_mempolicy.
    Mempolicy = "mempolicy-calls",
    /// Calls of move_pages, which migrates pages or reports their nodes.
    MovePages = "move-pages-calls",
    /// Calls of brk.
    Brk = "brk-calls",
    /// Pages faulted in by a call that populates. Counted as minor faults, as in Linux, but not as
    /// `page-faults`.
    Populated = "populated-pages",
    /// Faults that waited for a userfaultfd handler.
    Userfaults = "userfaults",
    /// Pinned pages that fork copied.
    ForkCopies = "fork-copies",
    /// Pages pinned without a lock.
    PinnedFast = "pages-pinned-fast",
    /// Stack expansions.
    StackGrown = "stack-growths",
    /// Objects freed by grace-period callbacks.
    CallbacksRun = "grace-period-callbacks",
    /// Times that a CPU waited for readers because it had queued too many callbacks.
    CallbackStalls = "grace-period-stalls",
}

impl<M: Mmu> System<M> {
    /// Per-CPU data of the current CPU.
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
    /// Counts an event in per-CPU data that the caller already has.
    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.events[event as usize].add(1);
    }
}
