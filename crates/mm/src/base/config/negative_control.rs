//! Negative controls: fixes that a test switches off to show what they prevent.

use core::fmt;

macro_rules! negative_controls {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {
        /// One fix, switched off.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum NegativeControl { $($(#[doc = $doc])+ $name),+ }

        impl NegativeControl {
            /// Each, with its name and what is switched off.
            pub const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$name, $text, concat!($($doc),+))),+];
        }

        impl fmt::Display for NegativeControl {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text),+ })
            }
        }
    };
}

negative_controls! {
    /// A fault links a missing page table without checking whether another fault already has.
    BlindPopulate = "blind-populate",
    /// A fault links a page table under the lock of that new table, which differs for each fault.
    LinksUnderOwnLock = "links-under-own-lock",
    /// A speculative fault puts a page table in without checking, with the parent's lock held,
    /// whether its VMA has changed.
    LinksUnchecked = "links-unchecked",
    /// munmap reads what a table leads to without its lock, which a fault may hold that is putting
    /// another one in.
    FreesUnlocked = "frees-unlocked",
    /// A fault that allocates the anon_vma of its VMA alone does not check, with `page_table_lock`
    /// held, whether another fault has done so.
    PreparesTwice = "prepares-twice",
    /// A speculative fault gives its VMA an anon_vma without checking, with `mmap_lock` held,
    /// whether that VMA has changed.
    PreparesUnchecked = "prepares-unchecked",
    /// A speculative fault gives its VMA an anon_vma without checking, with `mmap_lock` held,
    /// whether the address space was divided, and the lock for that is another one.
    PreparesUndivided = "prepares-undivided",
    /// A call that covers several arenas takes the lock of the first only.
    FirstArenaOnly = "first-arena-only",
    /// A call takes the arenas of its range, however far the mappings there reach.
    ReachIgnored = "reach-ignored",
    /// A call that waited for the lock of an undivided address space does not look whether it was
    /// divided meanwhile.
    DivisionUnseen = "division-unseen",
    /// A CPU joins the mask of an arena only after it has buffered a translation of it.
    JoinsAfterWalk = "joins-after-walk",
    /// An address space is divided, and what CPUs have buffered of it before is not flushed.
    DivisionUnflushed = "division-unflushed",
    /// A zap looks for flushes to come only where it counts its own: in its arena, or, if it is one
    /// of several arenas, in the address space.
    OtherFlushIgnored = "other-flush-ignored",
    /// The low-level handler stores the accessed bit into a stale copy of the PTE.
    StaleAccessBits = "stale-access-bits",
    /// The RSS count is reported as it is, even when negative.
    RawRss = "raw-rss",
    /// A speculative fault does not revalidate after it acquires the page-table lock.
    NoRevalidate = "no-revalidate",
    /// mprotect changes flags and PTEs outside a sequence-count write section.
    ProtectWithoutSection = "protect-without-section",
    /// A speculative fault spins for the page-table lock with interrupts off.
    SpinForTableLock = "spin-for-table-lock",
    /// Unlinked objects are freed immediately, despite lockless readers.
    NoGracePeriod = "no-grace-period",
    /// A zap that finds nothing returns although another zap's TLB flush is still pending.
    NoNestedFlush = "no-nested-flush",
    /// The zero page is replaced before the TLB flush of the CPUs that cache it, not after.
    ReplaceBeforeFlush = "replace-before-flush",
    /// The map count is raised after the exchange that makes the page reachable, as posted.
    MapCountAfterExchange = "map-count-after-exchange",
    /// Unlinked page tables are freed immediately, whatever the reclamation scheme.
    TablesAtOnce = "tables-at-once",
    /// A fault that holds a VMA lock does not check which address space owns the VMA.
    NoOwnerRecheck = "no-owner-recheck",
    /// A fault checks a VMA's range before it takes the VMA lock, and not after.
    NoRangeRecheck = "no-range-recheck",
    /// A new VMA is published before its attributes are set, and is not locked meanwhile.
    PublishEarly = "publish-early",
    /// A fault that needs `mmap_lock` waits for it with its VMA lock held.
    MmapLockUnderVmaLock = "mmap-lock-under-vma-lock",
    /// A fault retries the non-blocking lock modes without end, and never takes the blocking one.
    FallbackWithoutEnd = "fallback-without-end",
    /// A VMA is inserted in place into a tree leaf that lockless readers are walking.
    LeafInPlace = "leaf-in-place",
    /// A writer that waits for a VMA's readers admits new ones.
    WriterLetsReadersIn = "writer-lets-readers-in",
    /// The refused combination of a speculative fallback order and compare-and-exchange is
    /// admitted.
    SpeculativeExchange = "speculative-exchange",
    /// A store to a read-only page decides by the map count whether the page is shared.
    ReuseByMapCount = "reuse-by-map-count",
    /// A write fault checks whether a page is exclusive before it takes the page-table lock, and
    /// not after.
    ExclusiveBeforeLock = "exclusive-before-lock",
    /// fork shares pages without write-protecting them in the parent.
    ForkLeavesWritable = "fork-leaves-writable",
    /// mprotect takes the right to fetch from page tables, and lets CPUs keep translations with it.
    FetchWithoutFlush = "fetch-without-flush",
    /// fork checks which page tables are in use without having held their locks.
    ForkLooksUnlocked = "fork-looks-unlocked",
    /// munmap leaves the `anon_vma_chain` links of its mappings behind.
    ChainsStay = "chains-stay",
    /// fork copies an address space outside the VMA write sections of its mappings.
    ForkWithoutSections = "fork-without-sections",
    /// A thread or CPU folds its part of the RSS count into the total at twice its batch.
    LateRss = "late-rss",
    /// A PTE is exchanged in halves: one half is compared, and the two are written one after the
    /// other.
    HalfWidthExchange = "half-width-exchange",
    /// The exchange is emulated under the lock even where the caller already holds that lock.
    EmulateUnderLock = "emulate-under-lock",
    /// munmap releases `mmap_lock` before it frees the page tables.
    UnmapUnlocked = "unmap-unlocked",
    /// A userfaultfd handler write-protects pages without a TLB flush.
    ProtectWithoutFlush = "protect-without-flush",
    /// fork shares a pinned page with the child instead of copying it.
    ForkSharesPinned = "fork-shares-pinned",
    /// A pin without `mmap_lock` does not check whether a fork ran concurrently.
    PinWithoutSequence = "pin-without-sequence",
    /// A page that fork shares is pinned for reading without unsharing it.
    PinsShared = "pins-shared",
    /// A stack grows with `mmap_lock` held for reading, outside a VMA write section.
    ExpandUnderReadLock = "expand-under-read-lock",
    /// mremap ends the new mapping's write section before the pages are moved.
    RemapPublishesEarly = "remap-publishes-early",
    /// mremap flushes the TLB after it releases its locks, without marking the flush as pending.
    RemapFlushesLate = "remap-flushes-late",
    /// A fault checks whether a VMA has an anon_vma before it takes the VMA lock, and not after.
    AnonVmaBeforeLock = "anon-vma-before-lock",
    /// Instruction caches are flushed after the PTE is installed, as they were under the lock.
    FlushAfterInstall = "flush-after-install",
    /// A commit charge reads the sum of all charges without a fence after adding to it.
    ChargeWithoutFence = "charge-without-fence",
    /// munmap downgrades `mmap_lock` before the unmapped VMAs are detached.
    DetachLate = "detach-late",
    /// Page aging walks through ranges that munmap is unmapping.
    AgeHoles = "age-holes",
    /// A CPU that leaves the CPU mask of an address space flushes only the requested range.
    LeavesUnflushed = "leaves-unflushed",
    /// A CPU that leaves the CPU mask of an arena flushes only the requested range.
    ArenaLeftUnflushed = "arena-left-unflushed",
    /// A run of free frames goes back to the zones before it is taken from the CPU that keeps it.
    RunGivenFirst = "run-given-first",
    /// Page aging walks through hugetlb page tables that other address spaces may free.
    AgesShared = "ages-shared",
    /// A page-cache lookup does not recheck, after it takes a reference, that the frame is still
    /// that page.
    CachedUnchecked = "cached-unchecked",
    /// A fault checks the file size before it locks the page, and not after.
    SizeBeforeLock = "size-before-lock",
    /// Truncation unmaps once, without checking whether a page was mapped again.
    TruncateUnmapsOnce = "truncate-unmaps-once",
    /// Fault-around overwrites a PTE that is not empty.
    AroundReplaces = "around-replaces",
    /// Fault-around maps pages that are locked for read-in, or hardware-poisoned.
    AroundTakesAll = "around-takes-all",
    /// Fault-around maps pages beyond the end of the mapping.
    AroundUnclamped = "around-unclamped",
    /// Fault-around waits for page locks with a page-table lock held.
    AroundWaits = "around-waits",
    /// Fault-around treats a swap or migration entry as empty.
    AroundForgetsAway = "around-forgets-away",
    /// Fault-around PTEs are installed young, whatever the choice.
    FaultAroundYoung = "fault-around-young",
    /// A zap drops references to file pages before the TLB flush completes, since the cache has
    /// references, too; and munmap unlinks the mapping before that.
    FilePagesAtOnce = "file-pages-at-once",
    /// A forced write that made a copy assumes that the page it finds afterwards is that copy.
    ForceTrustsFault = "force-trusts-fault",
    /// munmap unlinks a mapping from its file before the TLB flush completes.
    UnlinkBeforeFlush = "unlink-before-flush",
    /// A page is written back while PTEs still allow stores to it.
    WriteUnprotected = "write-unprotected",
    /// A walk of an anon_vma tree takes no lock, as posted in 2012.
    RmapUnlocked = "rmap-unlocked",
    /// A page that was pinned meanwhile is swapped out all the same.
    SwapSharesPinned = "swap-shares-pinned",
    /// Migration copies a page before the TLB flush of the CPUs that may store to it.
    CopyBeforeFlush = "copy-before-flush",
    /// Unmapping for migration or swap reads the dirty bit before it exchanges the PTE.
    AwayForgetsDirty = "away-forgets-dirty",
    /// A migrated page is mapped with the protection from before its migration, not the current
    /// one.
    MoveKeepsGrant = "move-keeps-grant",
    /// fork leaves migration entries writable, in parent and child.
    ForkLeavesMoving = "fork-leaves-moving",
    /// mremap moves PTEs without the reverse-map locks.
    RemapUnlocked = "remap-unlocked",
    /// A page can be found, and unmapped, before the fault that creates it has counted its PTE.
    FoundBeforeCounted = "found-before-counted",
    /// Migrates a page without checking its reference count.
    MoveUncounted = "move-uncounted",
    /// Migration counts its own reference to the page as another user's.
    MoveCountsItself = "move-counts-itself",
    /// A userfaultfd handler skips pages under migration.
    WatchSkipsMoving = "watch-skips-moving",
    /// A VMA grows over another, and gets its anon_vma, outside its own write section.
    MergeWithoutSection = "merge-without-section",
    /// A migrated file page counts as clean, whether it is or not.
    MoveForgetsDirty = "move-forgets-dirty",
    /// A reverse-map walk visits the child's interval before the parent's.
    ChildFirst = "child-first",
    /// A reverse-map walk takes a reference to the page's anon_vma even if its count is already 0.
    HoldsFreedAnonVma = "holds-freed-anon-vma",
    /// One count holds both the children of an anon_vma and the VMAs that own it.
    ChildrenAndOwners = "children-and-owners",
    /// A VMA that takes over the pages of a moved VMA is not chained to their anon_vma.
    MergeForgetsChain = "merge-forgets-chain",
    /// Swap-out clears a PTE first, and installs the swap entry afterwards.
    SwapInTwoSteps = "swap-in-two-steps",
    /// Swap-out writes a page before it unmaps it, and not again if it was stored to in between.
    SwapForgetsDirty = "swap-forgets-dirty",
    /// A hinting fault restores the PTE that it read before it took the page-table lock.
    HintPutsBack = "hint-puts-back",
    /// mlock updates the locked-page count after it releases `mmap_lock`.
    LockedCountLate = "locked-count-late",
    /// A hugetlb fault holds nothing that keeps shared page tables alive: it waits for no mapping's
    /// lock, and no unmapper waits for the fault; it takes the file's lock only to see whether
    /// there is a table to share.
    HugeUnlocked = "huge-unlocked",
    /// Whether a hugetlb page table is shared is decided by its reference count.
    SharersByReferences = "sharers-by-references",
    /// Unsharing a page table does not record its interval for the TLB flush.
    UnshareWithoutFlush = "unshare-without-flush",
    /// A split of a hugetlb VMA unshares the page table there before its write section.
    SplitSharesAgain = "split-shares-again",
    /// The page table of an interval may be shared while a hugetlb VMA is split inside it.
    CutStillShared = "cut-still-shared",
    /// A shared page table is linked without checking whether another fault already has.
    BlindShare = "blind-share",
    /// A hugetlb VMA is linked to its file before its lock is set up.
    LinkBeforeLock = "link-before-lock",
    /// After a split of a hugetlb segment mapping, the new part refers to the other part's lock.
    SplitNamesLock = "split-names-lock",
    /// Hugetlb migration does not exclude faults on the page.
    HugeMoveBesideFaults = "huge-move-beside-faults",
    /// Hugetlb migration flushes the TLB only for the address space through whose page table it
    /// reached the page first.
    HugeMoveTellsOne = "huge-move-tells-one",
    /// fork treats a hugetlb migration entry as empty.
    ForkSkipsMoving = "fork-skips-moving",
    /// `MADV_DONTNEED` of huge pages holds nothing that excludes faults.
    DiscardUnlocked = "discard-unlocked",
    /// `MADV_DONTNEED` rounds an end inside a huge page up, and discards all of that page.
    DiscardRoundsUp = "discard-rounds-up",
    /// Truncation of a hugetlb file skips absent pages without taking their mutex.
    CutSkipsAbsent = "cut-skips-absent",
    /// A fault checks the size of a hugetlb file before it takes the page's fault mutex, and not
    /// after.
    SizeBeforeMutex = "size-before-mutex",
    /// Hole punching returns a page's reservation after it releases the fault mutex.
    HoleUnreservesLate = "hole-unreserves-late",
    /// mmap reserves huge pages of a file without excluding truncation.
    ReserveBesideCut = "reserve-beside-cut",
    /// Faults on one huge page of a file run concurrently.
    FaultsAtOnce = "faults-at-once",
    /// A reverse-map walk whose trylock of a mapping's lock fails goes on without the lock.
    WalkUnlocked = "walk-unlocked",
    /// Unmapping a huge page everywhere restarts after each lock that it waited for. CPUs stay in
    /// CPU masks: a walk that waits for no acknowledgements is too fast to be overtaken for ever.
    WalkStartsOver = "walk-starts-over",
    /// The page tables of a hugetlb mapping may be shared while it is unmapped.
    GoneStillShares = "gone-still-shares",
    /// A hugetlb mapping that replaces base pages is linked to its file before their page tables
    /// are freed.
    LinkBeforeTables = "link-before-tables",
    /// A read of a file lets the embedding kernel copy while the page is locked.
    CopiesLocked = "copies-locked",
    /// shmat does not count itself as an attachment while it maps the segment.
    AttachUncounted = "attach-uncounted",
}
