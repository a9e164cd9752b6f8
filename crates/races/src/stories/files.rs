//! Files and fault-around.

use super::{Story, Subject, story};
use minflt_sim::Shape::{LostStore, StaleRead, UseAfterFree, Wait};

pub(super) const SUBJECT: Subject = Subject {
    name: "Files and fault-around",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P20",
        StaleRead,
        &["two loads", "truncate", "store to a copy"],
        [
            "A file is truncated while a load maps the pages around its own. Fault-around maps \
             a page past the new end after truncation has unmapped that range, and the page \
             stays mapped.",
            "check the size under the page's lock, and let truncation unmap a second time after \
             it has taken the pages out.",
            "No kernel with this bug is recorded; the race comes from the discussion of the \
             fault-around patches of 2014.",
        ],
    ),
    story(
        "P20-make",
        StaleRead,
        &["store", "truncate"],
        [
            "A store is about to create a page of a file, and has checked the size. Truncation \
             makes the file shorter, and then the page comes into being behind its end.",
            "check the size again under the page's lock.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P21",
        UseAfterFree,
        &["load pages", "punch hole, write other"],
        [
            "A lookup in the page cache finds a page and takes a reference. Before that a hole \
             was punched, and the frame is a page of another file now, which gets mapped.",
            "after taking the reference, check that the cache's slot still names this page.",
            "No kernel with this bug is recorded; the race comes from the discussion of the \
             fault-around patches of 2014.",
        ],
    ),
    story(
        "P22",
        StaleRead,
        &["two loads", "munmap the end"],
        [
            "Fault-around maps a window of pages around the address. If the window is not cut \
             at the mapping's end, pages are mapped where munmap has just removed the mapping.",
            "clamp the window to the mapping and to the page table.",
            "No kernel with this bug is recorded; the race comes from the discussion of the \
             fault-around patches of 2014.",
        ],
    ),
    story(
        "P23",
        StaleRead,
        &["load page 2", "load 1, 3, 2", "poison 0, load"],
        [
            "Fault-around maps whatever the cache has. A page that is still being read in shows \
             zeros, and one with a memory error is touched.",
            "skip pages that are locked, not up to date or poisoned; their own fault deals with \
             them.",
            "No kernel with this bug is recorded; the race comes from this project's own review \
             of the fault-around patches of 2014.",
        ],
    ),
    story(
        "P23-wait",
        Wait,
        &["load page 2", "load 1, 3, 2", "poison 0, load"],
        [
            "Fault-around holds a page-table lock when it comes to a page that is locked for \
             reading in. If it waits for the page, the reader may wait for the table's lock.",
            "only try to lock such pages, and skip those that are taken.",
            "No kernel with this bug is recorded; the race comes from this project's own review \
             of the fault-around patches of 2014.",
        ],
    ),
    story(
        "P24",
        LostStore,
        &["load 1 and 3", "store page 2"],
        [
            "Fault-around fills entries around its own. Another thread has just made a private \
             copy in one of them, and the file's page is mapped over the copy: the store is \
             lost.",
            "install an entry only where it is empty, checked under the page-table lock.",
            "No kernel with this bug is recorded; the race comes from this project's own review \
             of the fault-around patches of 2014.",
        ],
    ),
    story(
        "writeback",
        LostStore,
        &["two stores", "sync twice"],
        [
            "A page is marked clean and written to disk while an entry still allows stores. A \
             store during the write leaves no trace, and never reaches the disk.",
            "remove write permission and flush first, then mark the page clean, then write it.",
            "Found by reading this project's own code; no other kernel is recorded.",
        ],
    ),
    story(
        "writeback-unmap",
        LostStore,
        &["four stores", "munmap", "sync"],
        [
            "munmap unlinks a mapping from its file before the TLB flush. Writeback then finds \
             no mapping to protect, writes the page, and a store by a stale translation is \
             never written.",
            "unlink the mapping only after the flush.",
            "Found by reading this project's own code; no other kernel is recorded.",
        ],
    ),
];
