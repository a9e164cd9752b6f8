//! Stacks, policies, accounting, segments.

use super::{Story, Subject, story};
use minflt_sim::Shape::StaleRead;

pub(super) const SUBJECT: Subject = Subject {
    name: "Stacks, policies, accounting, segments",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P31",
        StaleRead,
        &["grow stack", "grow other stack", "look up"],
        [
            "Two stacks grow at once, each changing the start of its VMA in the tree. With \
             mmap_lock held for reading only, two writers and the lookups beside them see a \
             tree that is half changed.",
            "take mmap_lock for writing to grow a stack.",
            "Linux 6.1 to 6.4 had this: StackRot, CVE-2023-3269.",
        ],
    ),
    story(
        "P35",
        StaleRead,
        &["store fault", "mbind, discard"],
        [
            "mbind changes the memory policy of a range and returns. A fault that read the old \
             policy before takes a page by it after that.",
            "change the policy inside the VMA's write section.",
            "No kernel with this form is recorded; it comes from the discussion of the \
             speculative-fault patches of 2017.",
        ],
    ),
    story(
        "P35-locked",
        StaleRead,
        &["mlock", "mlock", "mlockall"],
        [
            "Two calls lock memory at once. The count of locked pages is changed after \
             mmap_lock was released, by reading and then storing it, and one call's pages are \
             missing.",
            "change the count while mmap_lock is held for writing.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P39",
        StaleRead,
        &["store: stack grows", "munmap"],
        [
            "munmap downgrades or releases mmap_lock before it frees page tables. A stack grows \
             into the range just unmapped and faults there, and munmap frees the table that has \
             the new page.",
            "keep mmap_lock until the tables are gone, at least where a neighbour may grow into \
             the range.",
            "Linux 4.20 to 5.7 had this: CVE-2020-29369.",
        ],
    ),
    story(
        "commit",
        StaleRead,
        &["mmap 10 pages", "other mm: mmap 10 pages"],
        [
            "Two mappings are charged to per-CPU counters against one limit. Each adds its own \
             and reads the sum, but the addition is still in the other's store buffer: both are \
             admitted, and one fits.",
            "a full fence between adding and reading.",
            "Found with store buffers only; no kernel is recorded, and the race comes from this \
             project's own review.",
        ],
    ),
    story(
        "shm-remove",
        StaleRead,
        &["attach, store, detach", "remove"],
        [
            "A thread looks a shared-memory segment up and is about to map it. Another removes \
             the segment, which has no attachment yet, so it is destroyed while it is being \
             attached.",
            "the attaching thread counts itself before it maps.",
            "Linux counts in this way; no kernel without it is recorded, and the race comes \
             from this project's own review.",
        ],
    ),
];
