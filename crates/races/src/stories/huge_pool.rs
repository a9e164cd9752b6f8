//! hugetlb: pages, reservations, migration.

use super::{Story, Subject, story};
use minflt_sim::Shape::{LostStore, StaleRead, StaleTranslation};

pub(super) const SUBJECT: Subject = Subject {
    name: "hugetlb: pages, reservations, migration",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P46-huge",
        LostStore,
        &["parent stores", "child loads", "child discards"],
        [
            "As P46, with a private huge page: the child's discard lowers the map count before \
             its flush, and the parent writes to a page that the child still reads.",
            "decide by the reference count, which falls after the flush only.",
            "Found by reading this project's own code; no other kernel is recorded.",
        ],
    ),
    story(
        "P52",
        StaleRead,
        &["discard", "store pages 0, 1"],
        [
            "A private huge page is discarded while another thread stores to it. The entry is \
             empty already and the page not yet back in the pool, so the fault finds the pool \
             empty and gets a signal.",
            "a discard excludes faults of the mapping until its pages are back.",
            "Linux repaired this by 04ada095dcfc and bf4916922c60.",
        ],
    ),
    story(
        "P54",
        StaleRead,
        &["store pages 2, 0, 1", "truncate", "store pages 1, 2"],
        [
            "Truncation goes through the pages that a file has, and takes each one's mutex. It \
             skips absent pages, so a fault that is just making one loses count of the \
             reservation.",
            "take the mutex of absent pages, too.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P54-hole",
        StaleRead,
        &["store twice", "punch hole"],
        [
            "A hole punch frees a page, releases the fault mutex, and then returns the page's \
             reservation. A fault in between relies on a reservation that is about to go.",
            "return the reservation under the mutex.",
            "Found by this project's own search; no other kernel is recorded.",
        ],
    ),
    story(
        "P54-map",
        StaleRead,
        &["mmap that reserves", "truncate"],
        [
            "mmap reserves pages of a file while truncation returns reservations behind the new \
             end. Both read the same map of reservations, and the count is wrong for ever.",
            "exclude truncation while a mapping reserves.",
            "Found by this project's own search; no other kernel is recorded.",
        ],
    ),
    story(
        "P54-size",
        StaleRead,
        &["store pages 2, 0, 1", "truncate", "store pages 1, 2"],
        [
            "A fault checks the file's size and then takes the page's mutex. Truncation comes \
             in between, and the fault makes a page behind the end, which nothing removes.",
            "check the size under the mutex.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P55",
        StaleRead,
        &["store", "store"],
        [
            "Two threads fault on one huge page, of which the pool has one left. The first \
             takes it; the second finds the pool empty and gets a signal for a page that exists \
             a moment later.",
            "one mutex for each page of a file: the second fault waits, and finds the page.",
            "Linux has this mutex; no kernel without it is recorded, and the race comes from \
             this project's own list.",
        ],
    ),
    story(
        "huge-move",
        StaleRead,
        &["migrate", "three stores"],
        [
            "A huge page is migrated while another thread faults on it. The fault takes the \
             page for absent or uses it while it is being copied.",
            "the migrating thread holds the page's fault mutex, and faults wait for it.",
            "No bug of this kind was found; the race comes from this project's own search.",
        ],
    ),
    story(
        "huge-move-edge",
        LostStore,
        &["migrate page 1", "load page 1", "discard page 0 and a part"],
        [
            "MADV_DONTNEED ends inside a huge page and rounds the end up. All of that page is \
             discarded, with data behind the range.",
            "round the end down: a huge page that is covered in part stays.",
            "Linux rounded up until 8ebe0a5eaaeb.",
        ],
    ),
    story(
        "huge-move-fork",
        StaleRead,
        &["migrate", "child forks"],
        [
            "fork meets a huge page under migration and treats its entry as empty. The \
             grandchild has nothing there, and reads zeros.",
            "wait for the migration, or copy the migration entry.",
            "No bug of this kind was found; the race comes from this project's own search.",
        ],
    ),
    story(
        "huge-move-table",
        StaleTranslation,
        &["migrate", "child: three stores"],
        [
            "Two processes reach a huge page by one shared table. Its entry changes once, so \
             the migration meets one process, and flushes that one's CPUs only; the other goes \
             on storing to the old page.",
            "flush the CPUs of every address space that maps the page.",
            "No bug of this kind was found; the race comes from this project's own search.",
        ],
    ),
];
