//! The races about pages that are moved, about who finds them, and about shared memory.

use super::lineage::Lineage;
use super::list::USUAL;
use super::migration::Moving;
use super::scenes::Scene;
use super::{Format, Race};
use minflt_mm::Broken;
use minflt_mm::config::ExchangeBy;

const fn moving(scene: Moving, fix: Broken) -> Race {
    Race {
        fix,
        shows_in: "linux-4.13",
        scene: Scene::Moving(scene),
        ..USUAL
    }
}

const fn lineage(scene: Lineage, fix: Broken) -> Race {
    Race {
        scene: Scene::Lineage(scene),
        ..moving(Moving::Store, fix)
    }
}

/// See [`super::RACES`].
pub(super) const MOVING: &[Race] = &[
    Race {
        number: "P2",
        name: "swap-fault",
        never: "a fault fills an entry whose page is on its way out",
        shows_in: "atomic-pte-2004",
        ..moving(Moving::Out, Broken::SwapInTwoSteps)
    },
    Race {
        number: "P3",
        name: "swap-store",
        never: "a store that comes before a page's entry goes is not in what is written",
        ..moving(Moving::Out, Broken::SwapForgetsDirty)
    },
    Race {
        number: "P4",
        name: "swap-install",
        never: "a page goes out before the fault that makes it has counted its entry",
        shows_in: "atomic-pte-2004",
        ..moving(Moving::OutFault, Broken::FoundBeforeCounted)
    },
    Race {
        number: "P6-swap",
        name: "swap-emulated",
        never: "swap-out, with the lock held that emulates the exchange, waits for itself",
        shows_in: "atomic-pte-2004",
        formats: Format::ALL,
        exchange: ExchangeBy::Emulated,
        ..moving(Moving::Out, Broken::EmulateUnderLock)
    },
    Race {
        number: "P10",
        name: "migrate-child",
        never: "a walk of the reverse map comes to a span that a child's exit frees, or misses one",
        ..moving(Moving::Child, Broken::RmapUnlocked)
    },
    Race {
        number: "P11",
        name: "migrate-fault",
        never: "a walk of the reverse map misses a page beside a neighbour's first fault",
        ..moving(Moving::FirstFault, Broken::RmapUnlocked)
    },
    Race {
        number: "P12",
        name: "migrate-remap",
        never: "mremap takes an entry past a walk that puts entries back",
        ..moving(Moving::Remap, Broken::RemapUnlocked)
    },
    Race {
        number: "P13",
        name: "migrate-fork",
        never: "a child gets an entry that grants stores, or that nobody puts back",
        ..moving(Moving::Fork, Broken::ForkLeavesMoving)
    },
    Race {
        number: "P13-order",
        name: "fork-order",
        never: "an entry is copied to a child that the walk has been to already",
        ..moving(Moving::Fork, Broken::ChildFirst)
    },
    Race {
        number: "P14",
        name: "migrate-mprotect",
        never: "a page that was moved grants stores that mprotect took away meanwhile",
        ..moving(Moving::Protect, Broken::MoveKeepsGrant)
    },
    Race {
        number: "P15",
        name: "migrate-store",
        never: "a store reaches the old page after that was copied",
        ..moving(Moving::Store, Broken::CopyBeforeFlush)
    },
    Race {
        number: "idle-move",
        name: "migrate-idle",
        never: "a page that nobody else uses is not moved",
        ..moving(Moving::Store, Broken::MoveCountsItself)
    },
    Race {
        number: "P58",
        name: "aba-exclusive",
        never: "a store takes a page for its own that was moved away and back, and that a child has",
        ..moving(Moving::Exclusive, Broken::ExclusiveBeforeLock)
    },
    Race {
        number: "P16",
        name: "find-recycled",
        never: "who comes from a page gets an anon_vma that is free, and frees it again",
        ..lineage(Lineage::Recycled, Broken::HoldsFreedAnonVma)
    },
    Race {
        number: "P17",
        name: "reuse-anon-vma",
        never: "a mapping has a page whose anon_vma it is not chained to, by two forks' reuse",
        ..lineage(Lineage::Reused, Broken::ChildrenAndOwners)
    },
    Race {
        number: "P17-merge",
        name: "merge-moved",
        never: "a mapping takes pages over that mremap brings, and not their anon_vma",
        ..lineage(Lineage::Inherited, Broken::MergeForgetsChain)
    },
    Race {
        number: "P18",
        name: "merge-refused",
        never: "a fault makes a page by a link to an anon_vma that is then taken back",
        shows_in: "linux-6.15",
        ..lineage(Lineage::Refused, Broken::MergeWithoutSection)
    },
    Race {
        number: "P25",
        name: "around-swap",
        never: "the file's page is mapped over a private copy that was swapped out",
        ..moving(Moving::AroundOut, Broken::AroundForgetsAway)
    },
    Race {
        number: "P26",
        name: "around-unused",
        never: "a page that was used goes while one stays that was mapped around and never used",
        ..moving(Moving::Unused, Broken::NeighboursUsed)
    },
    Race {
        number: "hint",
        name: "hint-discard",
        never: "a hinting fault puts back what it read of an entry whose page has gone",
        ..moving(Moving::Hint, Broken::HintPutsBack)
    },
    Race {
        number: "watch-move",
        name: "migrate-watched",
        never: "a page grants stores again that a handler protected while it was moved",
        ..moving(Moving::Watched, Broken::WatchSkipsMoving)
    },
    Race {
        number: "P45-move",
        name: "migrate-pin-fork",
        never: "fork shares a page that is pinned, since it is just being moved",
        ..moving(Moving::PinFork, Broken::SwapSharesPinned)
    },
    Race {
        number: "pin-move",
        name: "migrate-pin",
        never: "a page is moved that somebody has pinned",
        ..moving(Moving::Pin, Broken::MoveUncounted)
    },
    Race {
        number: "write-move",
        name: "migrate-write",
        never: "a page of a file that was moved is never written",
        ..moving(Moving::Written, Broken::MoveForgetsDirty)
    },
    Race {
        number: "hole-move",
        name: "migrate-hole",
        never: "a page that is being moved stays mapped where a hole was made of it",
        ..moving(Moving::Hole, Broken::TruncateUnmapsOnce)
    },
    Race {
        number: "shm-remove",
        name: "attach-remove",
        never: "a segment goes that somebody has attached",
        fix: Broken::AttachUncounted,
        shows_in: "linux-4.13",
        scene: Scene::AttachRemove,
        ..USUAL
    },
];
