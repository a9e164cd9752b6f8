//! TLB invalidation.

use super::{Story, Subject, story};
use minflt_sim::Shape::StaleTranslation;

pub(super) const SUBJECT: Subject = Subject {
    name: "TLB invalidation",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P40",
        StaleTranslation,
        &["mremap", "discard, munmap there", "stores at old place"],
        [
            "mremap moves entries and releases the page-table locks before it flushes the old \
             place's translations. Another thread discards the page at its new place, and a \
             third still stores to it by the old translation.",
            "flush before the destination's page-table lock is released.",
            "Linux had this as CVE-2018-18281, repaired by eb66ae030829; CVE-2022-41222 was its \
             relative for whole page tables.",
        ],
    ),
    story(
        "P40-truncate",
        StaleTranslation,
        &["mremap", "truncate", "stores at old place"],
        [
            "As P40, with the page taken away by truncation of its file: the reverse map leads \
             to the new place, and the old translation is flushed too late.",
            "flush before the destination's page-table lock is released.",
            "Linux had this as CVE-2018-18281, repaired by eb66ae030829.",
        ],
    ),
    story(
        "P41",
        StaleTranslation,
        &["discard", "discard", "two stores"],
        [
            "Two threads discard one page. The first has taken the entry out and not yet \
             flushed; the second finds nothing and returns, and its caller believes that the \
             page is gone while a third CPU still stores to it.",
            "count the zaps under way in the address space, and flush even where nothing was \
             found if another is pending.",
            "Linux repaired this by 4647706ebeee, and for reclaim by 3ea277194daa.",
        ],
    ),
    story(
        "P42",
        StaleTranslation,
        &["munmap", "truncate", "four stores"],
        [
            "munmap unlinks a mapping of a file and drops its pages before it has flushed. \
             Truncation then finds no mapping, frees the pages, and a CPU still stores to them.",
            "keep the pages' references, and stay linked to the file, until the flush is \
             complete.",
            "Linux had this class as CVE-2022-39188, repaired by b67fbebd4cf9.",
        ],
    ),
    story(
        "P43",
        StaleTranslation,
        &["write-protect, read", "three stores"],
        [
            "A userfaultfd handler write-protects a page and copies it. Without a TLB flush \
             another CPU still stores to it, and the copy is torn.",
            "flush before the call returns, also where the entry is protected already and a \
             flush is pending.",
            "Linux repaired the like in copy on write by 6ce64428d62.",
        ],
    ),
    story(
        "P61",
        StaleTranslation,
        &["load, sleep, load", "munmap twice"],
        [
            "A CPU whose thread sleeps is interrupted by a flush and leaves the address space's \
             CPU mask, so as not to be interrupted again. It has flushed that range only, and \
             keeps a translation that the flush of a later munmap does not reach.",
            "flush the whole address space before leaving the mask.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P62",
        StaleTranslation,
        &["mprotect", "three fetches"],
        [
            "mprotect takes the right to fetch from a page's entry and leaves loads and stores. A \
             CPU that has the old translation goes on executing the page after the call returned.",
            "flush the TLBs for any right that is taken, as for a store's.",
            "No kernel with this bug is recorded; the scene came with the right to execute.",
        ],
    ),
];
