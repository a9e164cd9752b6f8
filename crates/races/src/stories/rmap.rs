//! Reverse map: from a page to its mappings.

use super::{Story, Subject, story};
use minflt_sim::Shape::{StaleRead, UseAfterFree};

pub(super) const SUBJECT: Subject = Subject {
    name: "Reverse map: from a page to its mappings",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P10",
        UseAfterFree,
        &["migrate page 2", "child: munmap, exit"],
        [
            "A migration walks the reverse map of a page that a child shares, without the \
             anon_vma's lock. The child unmaps a part and exits, and the walk comes to an \
             interval node that was freed, or misses one.",
            "hold the anon_vma lock for the whole walk.",
            "The NUMA-balancing posting of 2012 walked without the lock; see `races P10 \
             --as-posted`.",
        ],
    ),
    story(
        "P11",
        StaleRead,
        &["migrate page 2", "first store to page 1"],
        [
            "A reverse-map walk runs while the first fault of a neighbouring mapping links its \
             interval node into the same tree. The tree is being rebalanced: for a moment a \
             node is not reached, and the walk misses an entry.",
            "hold the anon_vma lock: mmap_lock for reading excludes no fault.",
            "The NUMA-balancing posting of 2012 argued that mmap_lock for reading suffices; see \
             `races P11 --as-posted`.",
        ],
    ),
    story(
        "P12",
        StaleRead,
        &["migrate", "mremap back"],
        [
            "A migration that puts entries back visits mapping after mapping. mremap moves the \
             entry from one not visited yet to one visited already, and its migration entry \
             stays for ever.",
            "mremap takes the reverse-map locks while it moves entries in that direction.",
            "No kernel with this bug is recorded; the race comes from this project's own list, \
             by the rule that Linux's mremap follows.",
        ],
    ),
    story(
        "P16",
        UseAfterFree,
        &["migrate by frame", "munmap, mmap twice"],
        [
            "A thread that comes from a page follows its pointer to an anon_vma whose last \
             mapping has just gone. It raises a count that is zero already, and later frees the \
             object a second time.",
            "raise the count only if it is not zero, and recheck that the page still names this \
             anon_vma.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P17",
        StaleRead,
        &["migrate", "child: mprotect twice", "parent exits"],
        [
            "fork reuses an anon_vma that seems to have no user. One number counts both \
             children and owners, so after forks, splits and exits two mappings own one \
             anon_vma with different chains, and a page outlives the anon_vma it names.",
            "count children and owning mappings apart, and reuse an anon_vma only without \
             either.",
            "Linux had this as CVE-2022-42703.",
        ],
    ),
    story(
        "P17-merge",
        StaleRead,
        &["migrate", "mremap back"],
        [
            "mremap moves a mapping that has pages next to one that has none, and they merge. \
             The merged mapping takes over the pages, but is not linked to their anon_vma.",
            "link the merged mapping to the anon_vma of the one that brings the pages.",
            "Linux had this as CVE-2026-23077.",
        ],
    ),
];
