//! Page-table entries without a lock.

use super::{Story, Subject, story};
use minflt_sim::Shape::{LostStore, StaleRead, UseAfterFree, Wait};

pub(super) const SUBJECT: Subject = Subject {
    name: "Page-table entries without a lock",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P1",
        StaleRead,
        &["store pages 0 and 2", "store pages 1 and 2"],
        [
            "Two faults find that a page table is missing, and both make one. Where the second \
             just stores its table over the first's, the first table is lost with all pages \
             that are in it already.",
            "link the table by compare-and-exchange or under a lock, and free it if another \
             thread was first.",
            "No released kernel had it: the race comes from the discussion of the atomic-PTE \
             patches of 2004.",
        ],
    ),
    story(
        "P5",
        StaleRead,
        &["exchange A for B", "exchange A for C", "swap in D, look"],
        [
            "An exchange compares half of an entry only, or writes it as two halves. Two \
             exchanges that start from one value both succeed, or another CPU reads an entry \
             that is half old and half new.",
            "compare and exchange the whole entry in one instruction.",
            "Review of the atomic-PTE patches of 2004 found it: i386 with PAE compared 32 of 64 \
             bits and wrote two halves, and x86-64 took the entry for an int.",
        ],
    ),
    story(
        "P6",
        Wait,
        &["store page 0", "store page 1", "discard, mprotect"],
        [
            "On a CPU without the instruction, the exchange of an entry is emulated under a \
             lock. A caller that holds that lock already waits for itself.",
            "a caller that holds the page-table lock says so, and changes the entry directly.",
            "No released kernel had it: the race comes from the discussion of the atomic-PTE \
             patches of 2004.",
        ],
    ),
    story(
        "P7",
        LostStore,
        &["load (sets accessed)", "mprotect READ, store"],
        [
            "Where software sets accessed bits, the handler reads an entry, adds the bit and \
             stores it. If mprotect has changed the entry in between, the store brings the old \
             permission back.",
            "set the bit by compare-and-exchange, and start over if the entry changed.",
            "No released kernel is recorded; the race comes from this project's own review of \
             the atomic-PTE patches of 2004.",
        ],
    ),
    story(
        "P8",
        StaleRead,
        &["store pages 2 and 3", "discard 0 and 1", "read RSS"],
        [
            "Counters of resident pages are kept in pieces, and changed without a lock. A \
             reader may see a page's removal and not its arrival, and shows a count below zero.",
            "show zero for what is negative, and never decide anything by an inexact count.",
            "No released kernel is recorded; the race comes from this project's own review of \
             the atomic-PTE patches of 2004.",
        ],
    ),
    story(
        "P9-age",
        UseAfterFree,
        &["age pages", "munmap"],
        [
            "munmap takes mappings out, downgrades mmap_lock to reading, and frees page tables. \
             A walk that ages pages holds mmap_lock for reading too, and reads entries in a \
             table that munmap frees.",
            "walk mapped ranges only: under the read lock these keep their tables.",
            "Munmap downgraded in this way from Linux 4.20 on; that this walk met it comes from \
             this project's own review.",
        ],
    ),
    story(
        "P57",
        StaleRead,
        &["store fault", "discard"],
        [
            "A fault installs an entry by one exchange and raises the page's map count \
             afterwards. A discard that comes in between finds the page mapped, and lowers a \
             count that is still zero.",
            "raise reference and map count while the page is still private, and lower them \
             again if the exchange fails.",
            "The atomic-PTE patches of 2004 had this order as posted; no released kernel is \
             recorded.",
        ],
    ),
    story(
        "P60",
        StaleRead,
        &["store pages 0 and 2", "store pages 1 and 2"],
        [
            "Two faults link a table into one empty entry, each under a lock. But they lock \
             different things, such as the table that each has just made, and one link \
             overwrites the other.",
            "take the lock of the parent table, or of the whole address space, which both must \
             take.",
            "Linux uses the parent table's lock since 3.13, and the address space's before \
             that; the race comes from this project's own review.",
        ],
    ),
    story(
        "flush",
        StaleRead,
        &["store pages 0 and 2", "store pages 1 and 2"],
        [
            "On some machines instruction caches must be flushed before a new page is used. \
             Without the page-table lock the entry is visible at once, and another CPU uses the \
             page before the flush.",
            "flush the caches before the entry is installed.",
            "No released kernel is recorded; the race comes from this project's own review of \
             the atomic-PTE patches of 2004.",
        ],
    ),
    story(
        "zero-page",
        StaleRead,
        &["store", "store", "four loads"],
        [
            "A store replaces the shared zero page by a new one. If the entry is changed before \
             other CPUs have flushed the zero page, one CPU's store has returned and another \
             CPU still loads zero.",
            "make the entry grant nothing, flush, and install the new page then.",
            "Found by reading this project's own code, which had it in every era; no other \
             kernel is recorded.",
        ],
    ),
];
