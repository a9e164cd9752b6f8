//! Fixes that can be switched off, so that a test can show what they prevent.

use core::fmt;

macro_rules! broken {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {
        /// One fix, switched off.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Broken { $($(#[doc = $doc])+ $name),+ }

        impl Broken {
            /// Each, with its name and what is switched off.
            pub const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$name, $text, concat!($($doc),+))),+];
        }

        impl fmt::Display for Broken {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text),+ })
            }
        }
    };
}

broken! {
    /// A missing table is put in without looking whether another fault was faster.
    BlindPopulate = "blind-populate",
    /// Who puts a table in locks that table, which is another one for each.
    LinksUnderOwnLock = "links-under-own-lock",
    /// The low-level handler stores the accessed bit into a copy of the entry it read before.
    StaleAccessBits = "stale-access-bits",
    /// The resident count is shown as it is, also below zero.
    RawRss = "raw-rss",
    /// A speculative fault does not check again after it has the table's lock.
    NoRevalidate = "no-revalidate",
    /// mprotect changes flags and entries outside a sequence section.
    ProtectWithoutSection = "protect-without-section",
    /// A speculative fault spins for the table's lock, with interrupts off.
    SpinForTableLock = "spin-for-table-lock",
    /// What was unlinked is freed at once, also where readers look at it without a lock.
    NoGracePeriod = "no-grace-period",
    /// A zap that finds nothing returns without asking whether somebody else has yet to invalidate.
    NoNestedFlush = "no-nested-flush",
    /// The page of zeros is replaced first, and the CPUs that buffer it are told afterwards.
    ReplaceBeforeFlush = "replace-before-flush",
    /// The map count is raised after the exchange that makes the page reachable, as posted.
    MapCountAfterExchange = "map-count-after-exchange",
    /// A table that was unlinked is freed at once, whatever the lifetime.
    TablesAtOnce = "tables-at-once",
    /// A fault that has a VMA's lock does not ask whose the VMA is.
    NoOwnerRecheck = "no-owner-recheck",
    /// A fault asks what a VMA covers before it has its lock, and not after.
    NoRangeRecheck = "no-range-recheck",
    /// A new VMA can be found before it says what may be done there, and is not locked meanwhile.
    PublishEarly = "publish-early",
    /// A fault that needs `mmap_lock` waits for it with its VMA's lock held.
    MmapLockUnderVmaLock = "mmap-lock-under-vma-lock",
    /// A fault tries the rungs that do not wait again and again, and never the one that does.
    LadderWithoutEnd = "ladder-without-end",
    /// A VMA that comes between others is put into a leaf that readers are looking at.
    LeafInPlace = "leaf-in-place",
    /// A writer that waits for a VMA's readers lets new ones in.
    WriterLetsReadersIn = "writer-lets-readers-in",
    /// The refused mix of a speculative ladder and compare-and-exchange, let through.
    SpeculativeExchange = "speculative-exchange",
    /// A store to a read-only page decides by the map count whether anybody else has it.
    ReuseByMapCount = "reuse-by-map-count",
    /// A store asks whether a page is exclusive before it has the table's lock, and not after.
    ExclusiveBeforeLock = "exclusive-before-lock",
    /// fork shares pages that the parent goes on to store to.
    ForkLeavesWritable = "fork-leaves-writable",
    /// fork looks which tables are in use without having held their locks.
    ForkLooksUnlocked = "fork-looks-unlocked",
    /// munmap leaves the links of its mappings to their anon_vmas behind.
    ChainsStay = "chains-stay",
    /// fork copies an address space outside the sections of its mappings.
    ForkWithoutSections = "fork-without-sections",
    /// A thread or CPU adds its part of the resident count to the whole at twice its batch.
    LateRss = "late-rss",
    /// Entries are exchanged by halves: one half is compared, and one is written after the other.
    HalfWidthExchange = "half-width-exchange",
    /// The exchange is emulated under the lock also where the caller holds that lock already.
    EmulateUnderLock = "emulate-under-lock",
    /// munmap lets `mmap_lock` go before it frees the tables.
    UnmapUnlocked = "unmap-unlocked",
    /// A userfaultfd's handler protects pages, and no CPU is told to forget the right to store.
    ProtectWithoutFlush = "protect-without-flush",
    /// fork shares a page with the child though somebody has it pinned.
    ForkSharesPinned = "fork-shares-pinned",
    /// A pin without `mmap_lock` does not ask whether a fork came in between.
    PinWithoutSequence = "pin-without-sequence",
    /// A page is pinned for loads though a fork shares it.
    PinsShared = "pins-shared",
    /// A stack grows under `mmap_lock` for reading, outside a section.
    ExpandUnderReadLock = "expand-under-read-lock",
    /// mremap ends the new mapping's section before the pages are there.
    RemapPublishesEarly = "remap-publishes-early",
    /// mremap tells the CPUs after it has let its locks go, and nobody that it is going to.
    RemapFlushesLate = "remap-flushes-late",
    /// A fault asks whether a VMA has an anon_vma before it has its lock, and not after.
    AnonVmaBeforeLock = "anon-vma-before-lock",
    /// Instruction caches are flushed after the entry is there, as they were under the lock.
    FlushAfterInstall = "flush-after-install",
    /// A charge looks at the sum of all promises without a fence after adding to it.
    ChargeWithoutFence = "charge-without-fence",
    /// munmap lets others in again before the mappings that go are detached.
    DetachLate = "detach-late",
    /// Whoever ages pages walks through what munmap is taking out.
    AgeHoles = "age-holes",
    /// A CPU that leaves the CPU mask of an address space forgets what it was asked to only.
    LeavesUnflushed = "leaves-unflushed",
    /// Whoever ages pages walks through tables of huge pages, which others may free.
    AgesShared = "ages-shared",
    /// Whoever finds a page of a file does not look again, once he has a reference, whether it is
    /// that page still.
    CachedUnchecked = "cached-unchecked",
    /// A fault looks at a file's size before it has the page locked, and not after.
    SizeBeforeLock = "size-before-lock",
    /// Truncation takes entries out once, and does not ask whether a page was mapped again.
    TruncateUnmapsOnce = "truncate-unmaps-once",
    /// Fault-around replaces what stands in an entry.
    AroundReplaces = "around-replaces",
    /// Fault-around maps pages that are locked for reading in, or broken.
    AroundTakesAll = "around-takes-all",
    /// Fault-around maps pages behind the end of the mapping.
    AroundUnclamped = "around-unclamped",
    /// Fault-around waits for the locks of pages, with a table's lock held.
    AroundWaits = "around-waits",
    /// Fault-around takes an entry whose page is away for an empty one.
    AroundForgetsAway = "around-forgets-away",
    /// Pages that fault-around maps look as if they had been used, whatever the choice.
    NeighboursUsed = "neighbours-used",
    /// A zap lets pages of files go before every CPU has forgotten them, since the cache has them,
    /// too; and munmap unlinks the mapping before that.
    FilePagesAtOnce = "file-pages-at-once",
    /// A forced store that has made a copy takes what it finds there afterwards for that copy.
    ForceTrustsFault = "force-trusts-fault",
    /// munmap takes a mapping out of its file before every CPU has forgotten its pages.
    UnlinkBeforeFlush = "unlink-before-flush",
    /// A page is written back while entries still grant stores to it.
    WriteUnprotected = "write-unprotected",
    /// A walk of an anon_vma's tree takes no lock, as posted in 2012.
    RmapUnlocked = "rmap-unlocked",
    /// A page that somebody has pinned meanwhile goes to a slot all the same.
    SwapSharesPinned = "swap-shares-pinned",
    /// A page is copied before the CPUs that may store to it are told.
    CopyBeforeFlush = "copy-before-flush",
    /// Whoever takes a page away looks whether it was stored to before he exchanges the entry.
    AwayForgetsDirty = "away-forgets-dirty",
    /// A page that was moved is mapped with the protection that it had when it was taken away.
    MoveKeepsGrant = "move-keeps-grant",
    /// A fork leaves entries of pages that are being moved as they are, in parent and child.
    ForkLeavesMoving = "fork-leaves-moving",
    /// mremap moves entries without the locks of their reverse maps.
    RemapUnlocked = "remap-unlocked",
    /// A page can be found, and goes, before the fault that makes it has counted its entry.
    FoundBeforeCounted = "found-before-counted",
    /// Migrates a page without checking its reference count.
    MoveUncounted = "move-uncounted",
    /// Migration counts its own reference to the page as another user's.
    MoveCountsItself = "move-counts-itself",
    /// A userfaultfd's handler passes over pages that are being moved.
    WatchSkipsMoving = "watch-skips-moving",
    /// A mapping grows over another, and gets its anon_vma, outside of its own section.
    MergeWithoutSection = "merge-without-section",
    /// A page of a file that was moved counts as written, whether it is or not.
    MoveForgetsDirty = "move-forgets-dirty",
    /// A child's span comes before its parent's in a walk of the reverse map.
    ChildFirst = "child-first",
    /// Who comes from a page takes a reference to its anon_vma, whether that has one left or not.
    HoldsFreedAnonVma = "holds-freed-anon-vma",
    /// One number counts the children of an anon_vma and the mappings whose own it is.
    ChildrenAndOwners = "children-and-owners",
    /// A mapping that takes over the pages of one that moves is not chained to their anon_vma.
    MergeForgetsChain = "merge-forgets-chain",
    /// Swap-out empties an entry first, and then makes it name the slot.
    SwapInTwoSteps = "swap-in-two-steps",
    /// Swap-out writes a page before its entry goes, and not again if it was stored to in between.
    SwapForgetsDirty = "swap-forgets-dirty",
    /// A hinting fault puts back what it read before it had the table's lock.
    HintPutsBack = "hint-puts-back",
    /// mlock counts what it locked after it let `mmap_lock` go.
    LockedCountLate = "locked-count-late",
    /// A fault on huge pages holds nothing that keeps the tables which its mapping shares, and
    /// waits for no mapping's lock, nor does anybody wait for it; it takes the file's lock only to
    /// see whether there is a table to share.
    HugeUnlocked = "huge-unlocked",
    /// Whether others have a table of huge pages is asked of its references.
    SharersByReferences = "sharers-by-references",
    /// Whoever leaves a shared table does not note that its interval has to be forgotten.
    UnshareWithoutFlush = "unshare-without-flush",
    /// A mapping of huge pages that is cut leaves the table there before its section.
    SplitSharesAgain = "split-shares-again",
    /// Others may share the table of an interval while a mapping of huge pages is cut in it.
    CutStillShared = "cut-still-shared",
    /// A shared table is put in without looking whether another fault was faster.
    BlindShare = "blind-share",
    /// A mapping of huge pages can be found by its file before its lock is set up.
    LinkBeforeLock = "link-before-lock",
    /// The part that the mapping of a segment of huge pages is split into names the other's lock.
    SplitNamesLock = "split-names-lock",
    /// Who moves a huge page lets faults on it go on.
    HugeMoveBesideFaults = "huge-move-beside-faults",
    /// Who moves a huge page tells those CPUs only by whose table he came to it first.
    HugeMoveTellsOne = "huge-move-tells-one",
    /// fork takes a huge page that is being moved for none.
    ForkSkipsMoving = "fork-skips-moving",
    /// `MADV_DONTNEED` of huge pages holds nothing that keeps faults off.
    DiscardUnlocked = "discard-unlocked",
    /// `MADV_DONTNEED` rounds an end inside a huge page up, and discards all of that page.
    DiscardRoundsUp = "discard-rounds-up",
    /// A cut of a file of huge pages passes over pages that are not there, without their mutex.
    CutSkipsAbsent = "cut-skips-absent",
    /// A fault looks at the size of a file of huge pages before it has the page's mutex, not after.
    SizeBeforeMutex = "size-before-mutex",
    /// What was reserved for a page of a hole is given back after the page's mutex.
    HoleUnreservesLate = "hole-unreserves-late",
    /// mmap reserves huge pages of a file beside who cuts it.
    ReserveBesideCut = "reserve-beside-cut",
    /// Faults on one huge page of a file go on beside each other.
    FaultsAtOnce = "faults-at-once",
    /// Who comes by a file's reverse map and cannot have a mapping's lock goes on without it.
    WalkUnlocked = "walk-unlocked",
    /// Who takes a huge page away from all begins again after each lock that it waited for. CPUs
    /// stay in CPU masks: a walk that waits for no answers is too fast to be overtaken for ever.
    WalkStartsOver = "walk-starts-over",
    /// Others may share the tables of a mapping of huge pages that is being unmapped.
    GoneStillShares = "gone-still-shares",
    /// A mapping of huge pages that replaces smaller ones is found by its file before their tables
    /// are freed.
    LinkBeforeTables = "link-before-tables",
    /// shmat does not count as one who has the segment while it maps it.
    AttachUncounted = "attach-uncounted",
}
