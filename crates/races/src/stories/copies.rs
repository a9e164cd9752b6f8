//! fork and copy on write.

use super::{Story, Subject, story};
use minflt_sim::Shape::{LostStore, StaleRead};

pub(super) const SUBJECT: Subject = Subject {
    name: "fork and copy on write",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P32",
        LostStore,
        &["fork", "store pages 1, 0, 1"],
        [
            "fork copies entry after entry while a fault without mmap_lock still makes stores \
             possible. The child gets a later store of a thread and lacks an earlier one: it is \
             no copy of any moment.",
            "open write sections of all mappings before the first entry is copied, and close \
             them after the TLB flush.",
            "Linux repaired this for per-VMA locks by fb49c455323f.",
        ],
    ),
    story(
        "P32-fresh",
        LostStore,
        &["fork", "store pages 1, 0, 1"],
        [
            "fork skips page tables that look empty. A fault that is about to install an entry \
             there is not seen, and the child lacks that page but has a later store.",
            "take each page table's lock before deciding that it is empty.",
            "Found by reading this project's own code; no other kernel is recorded.",
        ],
    ),
    story(
        "P44",
        LostStore,
        &["forced write", "discard, load"],
        [
            "A debugger writes to a read-only private mapping of a file. It breaks copy on \
             write, and another thread discards the copy; the debugger then takes what it \
             finds, the file's own page, for the copy, and writes to it.",
            "write only to an exclusive anonymous page: nothing else shows that the copy was \
             made.",
            "This was Dirty COW (CVE-2016-5195), and came back for shared memory as \
             CVE-2022-2590.",
        ],
    ),
    story(
        "P45",
        LostStore,
        &["fork", "pin, store"],
        [
            "A thread pins a page without a lock while fork shares it with the child. The \
             pinning thread's next store makes a copy, and the pin keeps the old page: device \
             and process see different pages.",
            "fork raises a sequence count, and a pin that sees it changed gives the page back \
             and takes the slow way.",
            "Linux repaired this by 57efa1fe5957; that a child could read by its pin what the \
             parent wrote later was CVE-2020-29374.",
        ],
    ),
    story(
        "P45-move",
        LostStore,
        &["fork", "pin, store", "migrate"],
        [
            "A migration has unmapped a page when another thread's pin succeeds. fork then \
             copies the migration entry, the migration finds the pin and puts the page back, \
             and a pinned page is shared.",
            "check for pins under the page-table lock after the TLB flush, and restore the \
             entry at once if there is one.",
            "Found by this project's own search; no other kernel is recorded.",
        ],
    ),
    story(
        "P46",
        LostStore,
        &["parent stores", "child loads", "child discards"],
        [
            "Parent and child share a page. The child discards it: its map count falls before \
             the child's CPUs have flushed their TLBs, and the parent takes the page for its \
             own and writes, where the child still reads.",
            "decide by the reference count, which falls after the flush only.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P58",
        StaleRead,
        &["store", "migrate there and back"],
        [
            "A store finds a shared page read-only and tests whether it is exclusive. Meanwhile \
             another thread migrates the page away and back: the entry is equal bit by bit, but \
             the frame was exclusive for a moment, just when the test looked.",
            "test for exclusive under the lock under which the entry is exchanged.",
            "Found in this project's own review, after 842,208 schedules had not shown it; no \
             other kernel is recorded.",
        ],
    ),
];
