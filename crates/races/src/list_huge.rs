//! The races about huge pages.

use super::Race;
use super::hugetlb::Huge;
use super::list::USUAL;
use super::scenes::Scene;
use minflt_mm::Broken;

const fn huge(scene: Huge, fix: Broken) -> Race {
    Race {
        fix,
        shows_in: "hugetlb-vma-lock-2022",
        scene: Scene::Huge(scene),
        ..USUAL
    }
}

/// See [`super::RACES`].
pub(super) const HUGE: &[Race] = &[
    Race {
        number: "P47",
        name: "huge-unshare",
        never: "a fault writes to a table that was shared, and was taken away by a hole",
        shows_in: "linux-5.19",
        ..huge(Huge::Unshare, Broken::HugeUnlocked)
    },
    Race {
        number: "P48",
        name: "huge-leave",
        never: "a page is reached by way of a table that was left, after it was freed",
        ..huge(Huge::Leave, Broken::UnshareWithoutFlush)
    },
    Race {
        number: "P49",
        name: "huge-looked",
        never: "a table is taken for a shared one while somebody only looks at it",
        ..huge(Huge::Looked, Broken::SharersByReferences)
    },
    Race {
        number: "P50",
        name: "huge-split",
        shows_in: "linux-6.4",
        never: "a mapping is cut, and shares the table of the interval of the cut again meanwhile",
        ..huge(Huge::Cut, Broken::SplitSharesAgain)
    },
    Race {
        number: "P50-beside",
        name: "huge-split-beside",
        never: "a mapping is cut, and another comes to share the table of the interval meanwhile",
        ..huge(Huge::CutBeside, Broken::CutStillShared)
    },
    Race {
        number: "P51",
        name: "huge-fork",
        never: "who comes by the file finds a child's mapping before its lock",
        ..huge(Huge::Fork, Broken::LinkBeforeLock)
    },
    Race {
        number: "P52",
        name: "huge-discard",
        never: "a store gets a signal whose page is on its way back to the pool",
        ..huge(Huge::Discard, Broken::DiscardUnlocked)
    },
    Race {
        number: "P53",
        name: "huge-segment",
        never: "two mappings have one lock, which goes with one of them",
        ..huge(Huge::Segment, Broken::SplitNamesLock)
    },
    Race {
        number: "P54",
        name: "huge-truncate",
        never: "a page is behind the end after a cut, or counted as reserved",
        ..huge(Huge::Truncate, Broken::CutSkipsAbsent)
    },
    Race {
        number: "P54-size",
        name: "huge-size",
        never: "a fault makes a page behind the end, which it looked at too early",
        ..huge(Huge::Truncate, Broken::SizeBeforeMutex)
    },
    Race {
        number: "P54-hole",
        name: "huge-hole",
        never: "a fault takes a page for reserved whose reservation goes with a hole",
        ..huge(Huge::Hole, Broken::HoleUnreservesLate)
    },
    Race {
        number: "P54-map",
        name: "huge-map",
        never: "a mapping is told that pages are reserved which a cut takes back",
        ..huge(Huge::Map, Broken::ReserveBesideCut)
    },
    Race {
        number: "P55",
        name: "huge-last",
        never: "two want the last page for one place, and one gets a signal",
        ..huge(Huge::Last, Broken::FaultsAtOnce)
    },
    Race {
        number: "P56",
        name: "huge-walk",
        never: "a walk cannot have a mapping's lock, and takes its table away",
        ..huge(Huge::Unshare, Broken::WalkUnlocked)
    },
    Race {
        number: "P59",
        name: "huge-age",
        never: "a walk under mmap_lock alone is in a table that was shared, and that another freed",
        ..huge(Huge::Age, Broken::AgesShared)
    },
    Race {
        number: "huge-again",
        name: "huge-livelock",
        never: "a hole takes a page from two mappings in turn, which share a table, for ever",
        shows_in: "linux-6.15",
        seed: 1,
        ..huge(Huge::Unshare, Broken::WalkStartsOver)
    },
    Race {
        number: "huge-gone",
        name: "munmap-share",
        never: "a table is shared that munmap is about to free",
        ..huge(Huge::Gone, Broken::GoneStillShares)
    },
    Race {
        number: "huge-over",
        name: "mmap-share",
        never: "a table is shared that has tables of smaller pages still, which mmap frees",
        ..huge(Huge::Over, Broken::LinkBeforeTables)
    },
    Race {
        number: "huge-make",
        name: "make-share",
        never: "a table that a fault has put in is replaced by one to share",
        shows_in: "atomic-pte-2004",
        ..huge(Huge::Make, Broken::BlindShare)
    },
    Race {
        number: "huge-move",
        name: "huge-move-fault",
        never: "a fault maps a huge page that is being moved",
        ..huge(Huge::Move, Broken::HugeMoveBesideFaults)
    },
    Race {
        number: "huge-move-table",
        name: "huge-move-shared",
        never: "a store to a huge page is lost that was moved by way of a table others have, too",
        ..huge(Huge::MoveShared, Broken::HugeMoveTellsOne)
    },
    Race {
        number: "huge-move-fork",
        name: "huge-fork-move",
        never: "a child lacks a huge page that was being moved when it was forked",
        ..huge(Huge::MoveFork, Broken::ForkSkipsMoving)
    },
    Race {
        number: "huge-move-edge",
        name: "huge-move-discard",
        never: "MADV_DONTNEED discards the huge page in which its range ends",
        ..huge(Huge::MoveEdge, Broken::DiscardRoundsUp)
    },
    Race {
        number: "P46-huge",
        name: "huge-reuse",
        never: "a store reaches a huge page that another address space still reaches",
        ..huge(Huge::Reuse, Broken::ReuseByMapCount)
    },
];
