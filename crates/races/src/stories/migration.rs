//! Page migration.

use super::{Story, Subject, story};
use minflt_sim::Shape::{LostStore, StaleRead, Wait};

pub(super) const SUBJECT: Subject = Subject {
    name: "Page migration",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P13",
        StaleRead,
        &["migrate", "fork, store"],
        [
            "fork meets a page under migration and copies its migration entry with write \
             permission. When the migration ends both processes may write to one private page.",
            "make the migration entry read-only in parent and child, as for a present page.",
            "No kernel with this bug is recorded; the race comes from this project's own list, \
             by the rule that Linux's fork follows.",
        ],
    ),
    story(
        "P13-order",
        StaleRead,
        &["migrate", "fork, store"],
        [
            "A walk that puts migration entries back visits the child before the parent. fork \
             copies an entry to the child after the walk has been there, and it stays a \
             migration entry for ever.",
            "keep the parent's node in the tree before the child's, so that the walk comes to \
             copies after their originals.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P14",
        StaleRead,
        &["migrate", "mprotect READ, store"],
        [
            "A page is under migration when mprotect makes its mapping read-only. The migration \
             then restores the entry with the permission from before, and stores succeed again.",
            "keep the permission in the migration entry, where mprotect changes it, and restore \
             what is there.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P15",
        LostStore,
        &["migrate", "four stores", "three loads"],
        [
            "A migration copies a page before the CPUs that may store to it have flushed their \
             TLBs. A store by an old translation reaches the old page after the copy, and is \
             lost.",
            "replace the entry, flush, and copy only then.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "hint",
        StaleRead,
        &["store", "load", "mprotect, discard, munmap"],
        [
            "A hinting fault of NUMA balancing reads an entry and waits for the page-table \
             lock. Meanwhile another thread moves or discards the page; the fault then restores \
             what it read, an entry for a page that is gone.",
            "compare the entry with the sample under the lock, and give up if it differs.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "hole-move",
        StaleRead,
        &["migrate", "punch hole, load"],
        [
            "A page of a file is under migration while a hole is punched. The hole finds no \
             present entry and does not come again, and the migration maps the page that the \
             file no longer has.",
            "unmap a second time under the page's lock, when the page is known to go.",
            "No bug of this kind was found; the race comes from this project's own search.",
        ],
    ),
    story(
        "idle-move",
        StaleRead,
        &["migrate", "four stores", "three loads"],
        [
            "A migration compares the reference count with what it expects, and forgets that it \
             holds a reference itself. It then finds every page in use and moves none.",
            "expect one reference more for the migrating thread.",
            "No kernel had it: it guards this project's other races, which a migration that \
             moves nothing would all pass.",
        ],
    ),
    story(
        "pin-move",
        LostStore,
        &["migrate", "pin, store"],
        [
            "A page is pinned without a lock while it is migrated. The pin's stores go to the \
             old page, and the process reads the new one.",
            "compare the reference count after the entries are gone, and put the page back if \
             another thread holds one.",
            "No bug of this kind was found; the race comes from this project's own search.",
        ],
    ),
    story(
        "watch-move",
        Wait,
        &["write-protect, read", "three stores", "migrate"],
        [
            "A userfaultfd handler write-protects a range, and skips a page under migration. \
             The page comes back writable, or stays protected when the handler lifts the \
             protection, and its thread waits for ever.",
            "change the protection in the migration entry, too.",
            "Found by reading this project's own code; no other kernel is recorded.",
        ],
    ),
    story(
        "write-move",
        LostStore,
        &["migrate", "two stores", "write back"],
        [
            "A dirty page of a file is migrated and counts as clean afterwards. Nothing writes \
             it back, and what was stored is lost when it is reclaimed.",
            "carry the dirty state from the old page and its entries to the new one.",
            "No bug of this kind was found; the race comes from this project's own search.",
        ],
    ),
];
