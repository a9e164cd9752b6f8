//! VMA locks.

use super::{Story, Subject, story};
use minflt_sim::Shape::{StaleRead, UseAfterFree, Wait};

pub(super) const SUBJECT: Subject = Subject {
    name: "VMA locks",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P18",
        StaleRead,
        &["mprotect that merges", "store fault"],
        [
            "Two mappings become one, and the one that stays takes over the other's anon_vma. \
             Then the merge runs out of memory and takes that back, but a fault has already \
             made a page by the new link.",
            "write-lock the VMA that grows before it gets the anon_vma, so that no fault uses \
             it before the merge is sure.",
            "Linux repaired this by d8ab9f7b644a.",
        ],
    ),
    story(
        "P27-detach",
        StaleRead,
        &["two loads", "munmap, mmap elsewhere"],
        [
            "munmap takes VMAs out of the tree and downgrades mmap_lock before it has marked \
             them as detached. A fault that found one earlier locks it, takes it for mapped, \
             and installs a page after the zap.",
            "detach all VMAs under the write lock, and downgrade only then.",
            "No kernel with this bug is recorded; the race comes from this project's own review \
             of per-VMA locks with a downgrading munmap.",
        ],
    ),
    story(
        "P30-range",
        StaleRead,
        &["two loads", "munmap of that page"],
        [
            "A fault finds a VMA and checks that it covers the address; then it takes the VMA's \
             lock. In between munmap has split the VMA, and the locked one no longer covers the \
             address.",
            "check the range again under the VMA lock, and retry if it does not cover the \
             address.",
            "Linux checks this since per-VMA locks came in 6.4; no kernel without the check is \
             recorded, and the race comes from this project's own list.",
        ],
    ),
    story(
        "P30-reuse",
        UseAfterFree,
        &["two loads", "munmap, mmap in other mm"],
        [
            "VMAs come from a type-stable slab: a freed one may be another address space's a \
             moment later. A fault that still has the pointer takes a reference, finds the \
             address covered, and goes on with another process's mapping.",
            "after taking the reference, compare the VMA's owner with the fault's address \
             space, and release the VMA without touching the other one.",
            "Linux 6.15 made VMAs type-stable; touching the other address space after the \
             release was CVE-2025-38554.",
        ],
    ),
    story(
        "P33",
        StaleRead,
        &["mmap", "three loads"],
        [
            "mmap links a new VMA into the tree before all of its attributes are set. A fault \
             finds it and decides by flags that are half set.",
            "publish a VMA only when it is complete, or keep it write-locked until it is.",
            "Linux repaired this by 33313a747e81.",
        ],
    ),
    story(
        "P34",
        StaleRead,
        &["mremap, keep old", "store to page 1"],
        [
            "A fault sees that its VMA has an anon_vma, and then takes the VMA's lock. In \
             between mremap moves the pages away with MREMAP_DONTUNMAP and the VMA loses its \
             anon_vma; the page that the fault makes is reached by no reverse map.",
            "check for the anon_vma under the VMA lock.",
            "Known from Linux's per-VMA locks, and in another form from Android's speculative \
             faults.",
        ],
    ),
    story(
        "P36",
        Wait,
        &["store fault", "mprotect"],
        [
            "A fault holds its VMA's lock and finds that it needs mmap_lock, to give the VMA an \
             anon_vma. It waits for mmap_lock, whose holder waits for the VMA's lock.",
            "release the VMA lock, take mmap_lock, and start the fault again.",
            "No kernel with this bug is recorded: it is a rule of Linux's per-VMA locks, and \
             the race comes from this project's own list.",
        ],
    ),
    story(
        "P38",
        StaleRead,
        &["four mprotects", "three loads"],
        [
            "A fault tries the lock modes that do not wait, fails because of a writer, and \
             tries them again. As long as writers follow each other it makes no progress.",
            "fall back once to mmap_lock, which is fair.",
            "No kernel with this bug is recorded; the race comes from this project's own list \
             of what fallbacks must guarantee.",
        ],
    ),
    story(
        "P38-writer",
        StaleRead,
        &["loads", "loads", "mprotect"],
        [
            "A writer waits until a VMA's readers have left, while new faults keep coming in. \
             With enough of them the count never falls to zero.",
            "the writer first marks the VMA, and readers that come later go to mmap_lock, where \
             they wait behind the writer.",
            "No kernel with this bug is recorded; the race comes from this project's own list.",
        ],
    ),
];
