//! hugetlb: shared page tables.

use super::{Story, Subject, story};
use minflt_sim::Shape::{StaleRead, StaleTranslation, UseAfterFree};

pub(super) const SUBJECT: Subject = Subject {
    name: "hugetlb: shared page tables",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P47",
        UseAfterFree,
        &["parent stores", "punch hole", "child stores"],
        [
            "Two processes share a page table of huge pages. A fault walks to its entry without \
             any lock that keeps the table, a hole punch unshares and frees it, and the fault \
             writes into it.",
            "a fault holds the mapping's own lock for reading, and unsharing takes it for \
             writing.",
            "Comes from the patches of 2022, of which this form was reverted.",
        ],
    ),
    story(
        "P48",
        StaleTranslation,
        &["child discards", "child stores", "punch hole"],
        [
            "A process gives up a shared table, but the translations that its CPUs read through \
             it are not flushed. Pages behind it are freed, and are still reached.",
            "record the whole interval of the table for the flush.",
            "Linux had this as CVE-2021-4002, repaired by a4a118f2eead; a lockless walk that \
             meets the table's next use was CVE-2025-38085.",
        ],
    ),
    story(
        "P49",
        StaleRead,
        &["look at the table", "discard, load"],
        [
            "Whether a table is shared is decided by its reference count. A thread that only \
             looks at the frame raises it for a moment, and the owner gives up a table that no \
             other process has.",
            "count sharers in a number of their own.",
            "Linux had this as CVE-2024-57883, repaired by 59d9094df3d7; a place that was \
             forgotten then was repaired by 14967a9c7d24.",
        ],
    ),
    story(
        "P50",
        StaleRead,
        &["madvise that splits", "store"],
        [
            "A mapping is split inside the interval of a shared table. The table is unshared \
             first and the split's write section begins after that; in between a fault shares \
             the table again.",
            "unshare inside the write section.",
            "Linux had this as CVE-2025-38084.",
        ],
    ),
    story(
        "P50-beside",
        StaleRead,
        &["madvise that splits", "child stores"],
        [
            "As P50, but another process comes to share the table of the interval while the \
             mapping is being split there.",
            "forbid sharing by the file's link of the mapping before it is split.",
            "Linux had the race with a process's own fault as CVE-2025-38084; this form comes \
             from this project's own search.",
        ],
    ),
    story(
        "P51",
        StaleRead,
        &["fork", "punch hole"],
        [
            "fork links the child's mapping to the file before the mapping has its lock. A hole \
             punch finds the mapping, locks what is there, and unlocks something else.",
            "set up the lock first, and link the mapping last.",
            "Linux had this as CVE-2024-27022.",
        ],
    ),
    story(
        "P53",
        UseAfterFree,
        &["mprotect, munmap half", "two stores"],
        [
            "An attached segment of huge pages is split, and the new part refers to the old \
             part's lock. When one part is unmapped, it frees the lock that the other still \
             uses.",
            "forward the segment's split to the file below, which gives each part a lock of its \
             own.",
            "Linux had this, repaired by b6305049f306.",
        ],
    ),
    story(
        "P56",
        UseAfterFree,
        &["parent stores", "punch hole", "child stores"],
        [
            "A walk of the reverse map only tries to take a mapping's lock. Where that fails it \
             goes on all the same, and unshares a table under a fault.",
            "give up, or release what is held, wait for the lock and start over.",
            "Comes from the discussion of the hugetlb locks of 2022: their failure paths left \
             with another lock held.",
        ],
    ),
    story(
        "P59",
        UseAfterFree,
        &["age pages", "punch hole, munmap"],
        [
            "A walk that ages pages holds mmap_lock for reading and goes through tables that \
             another process shares. That process's munmap, after a hole punch, is the last to \
             have the table and frees it.",
            "skip huge pages in such walks, or hold the file's i_mmap lock.",
            "Found in this project's own review; no other kernel is recorded.",
        ],
    ),
    story(
        "huge-again",
        StaleRead,
        &["parent stores", "punch hole", "child stores"],
        [
            "A hole punch waits for a mapping's lock and then starts its walk again. Meanwhile \
             the mapping shares the table anew, and there is no end to it.",
            "keep the lock that was waited for until no entry is left.",
            "Found by this project's own explorer; no other kernel is recorded.",
        ],
    ),
    story(
        "huge-gone",
        UseAfterFree,
        &["munmap", "child stores, loads"],
        [
            "munmap has unmapped a mapping whose link to the file still exists. Another process \
             finds the link, shares its table, and munmap frees that.",
            "forbid sharing by the link before the file's lock is first released.",
            "Found by reading this project's own code; no other kernel is recorded.",
        ],
    ),
    story(
        "huge-make",
        StaleRead,
        &["store page 0", "store page 1", "child stores page 2"],
        [
            "A fault links a table that it found to share by a plain store. Another fault has \
             just linked its own there, which is lost with its entries.",
            "link by compare-and-exchange, and drop the shared table if another was first.",
            "Found by reading this project's own code; no other kernel is recorded.",
        ],
    ),
    story(
        "huge-over",
        StaleRead,
        &["mmap over small pages", "child stores"],
        [
            "mmap replaces small pages by a mapping of huge ones and links it to the file at \
             once. Another process finds the link and shares a table that still has entries of \
             small pages.",
            "link the mapping only when the old tables are gone.",
            "Found by reading this project's own code; no other kernel is recorded.",
        ],
    ),
];
