//! Speculative faults: lookups without a lock.

use super::{Story, Subject, story};
use minflt_sim::Shape::{StaleRead, UseAfterFree, Wait};

pub(super) const SUBJECT: Subject = Subject {
    name: "Speculative faults: lookups without a lock",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P9",
        UseAfterFree,
        &["load each page", "load each page", "munmap"],
        [
            "A fault walks the page tables without a lock while munmap unlinks and frees one of \
             them. The walk goes on in memory that was reused, and takes what it finds there \
             for entries.",
            "free a page table only after a grace period, so that no walk that can have seen it \
             is still inside.",
            "Linux's fast pinning met the same problem when tables are collapsed (repaired by \
             70cbc3cc78a9); here it comes from the discussion of the speculative-fault patches \
             of 2017.",
        ],
    ),
    story(
        "P27",
        StaleRead,
        &["munmap, mmap", "store fault"],
        [
            "A speculative fault looks up its VMA and prepares a page. Meanwhile another thread \
             unmaps the range and maps something else there. The fault then installs its page, \
             by the rights of a mapping that is gone.",
            "after taking the page-table lock, compare the VMA's sequence count with the one \
             sampled at the lookup, and fall back if it changed.",
            "No released kernel had it: the race comes from the speculative-fault patches of \
             2017, whose design answers it.",
        ],
    ),
    story(
        "P28",
        StaleRead,
        &["mprotect NONE", "two stores"],
        [
            "mprotect takes away the right to store and returns; a fault that sampled the VMA \
             before installs a writable entry after that. The sequence count did not change, so \
             its recheck passes.",
            "change a VMA's attributes and its entries inside one write section of its sequence \
             count.",
            "No released kernel had it: the race comes from the speculative-fault patches of \
             2017, whose design answers it.",
        ],
    ),
    story(
        "P29",
        StaleRead,
        &["mremap", "load and store there"],
        [
            "mremap publishes the new mapping before the pages are there. A fault finds the new \
             mapping, finds its entry empty and installs a zeroed page, where the moved page \
             should go.",
            "keep the write section of the new mapping open until all entries have been moved.",
            "No released kernel had it: the race comes from the speculative-fault patches of \
             2017, whose design answers it. Android's kernel had a relative of it, when mremap \
             moves whole page tables beside speculative faults.",
        ],
    ),
    story(
        "P30",
        UseAfterFree,
        &["munmap, mmap", "store fault"],
        [
            "A fault looks up its VMA in the tree without a lock. munmap unlinks the VMA and \
             frees it, and the tree node with it, at once; the lookup goes on with a pointer \
             that it read before, and reads freed memory.",
            "free VMAs and tree nodes only after a grace period (SRCU in 2017, RCU since), and \
             read them inside a read section only.",
            "No released kernel had it: the race comes from the speculative-fault patches of \
             2017, whose design answers it.",
        ],
    ),
    story(
        "P31-insert",
        StaleRead,
        &["load each page", "two mmaps"],
        [
            "An mmap inserts a VMA into a leaf of the tree in place, by shifting the keys \
             behind it. A lookup without a lock that is in the leaf at that moment misses a \
             mapping that was there all the time.",
            "never change keys of a published node: write a new leaf, and publish it by one \
             store.",
            "The race is of the kind of StackRot (CVE-2023-3269); in this form it comes from \
             this project's own review.",
        ],
    ),
    story(
        "P37",
        Wait,
        &["replace zero page", "store, other page"],
        [
            "A thread holds a page-table lock and waits until all CPUs have acknowledged a TLB \
             flush. A speculative fault on another CPU spins for that lock with interrupts off, \
             so it never acknowledges, and both wait for ever.",
            "only try to take the page-table lock where interrupts are off, and fall back to \
             mmap_lock if it is taken.",
            "No released kernel had it: the race comes from the speculative-fault patches of \
             2017, whose design answers it.",
        ],
    ),
    story(
        "P63",
        UseAfterFree,
        &["load two pages", "munmap"],
        [
            "A speculative fault has made a page table, and links it into its parent after munmap \
             looked for tables there. munmap frees the parent, and the new table is lost.",
            "link under the parent's lock, and look with the lock held whether the mapping has \
             changed.",
            "The speculative-fault patches of 2017 went back to mmap_lock where a table was \
             missing; the race comes from this project's design for more CPUs.",
        ],
    ),
    story(
        "P63-lock",
        UseAfterFree,
        &["load two pages", "munmap"],
        [
            "A speculative fault has found its mapping unchanged and is about to link a page \
             table. munmap begins, finds no table there, and frees the parent.",
            "munmap takes the parent's lock once before it looks: who gets it later sees that the \
             mapping has changed.",
            "As above: from this project's design for more CPUs.",
        ],
    ),
    story(
        "P64",
        UseAfterFree,
        &["load two pages", "munmap"],
        [
            "A speculative fault has found a VMA without an anon_vma. munmap removes the VMA and \
             frees its links. The fault then locks mmap_lock and gives the removed VMA an \
             anon_vma, which nothing frees.",
            "check with mmap_lock held whether the VMA is the one that was found.",
            "Linux prepares an anon_vma only under mmap_lock, taken before the lookup; the race \
             comes from this project's design for more CPUs.",
        ],
    ),
    story(
        "P64-twice",
        StaleRead,
        &["store", "store"],
        [
            "Two first faults find that their VMA has no anon_vma. Each in turn gets \
             page_table_lock, allocates an anon_vma and links it; that of the first one is \
             overwritten.",
            "look with page_table_lock held whether the VMA has an anon_vma.",
            "Linux looks in the same place (__anon_vma_prepare), after the allocation.",
        ],
    ),
    story(
        "speculative-exchange",
        StaleRead,
        &["store fault", "munmap"],
        [
            "Speculative faults check the VMA under the page-table lock; faults that commit by \
             compare-and-exchange take no such lock. Together nothing keeps munmap from freeing \
             the table between the check and the exchange, and the entry is put into a table \
             that is gone.",
            "the combination of the two is refused; a speculative fault must commit under the \
             page-table lock.",
            "No kernel combined the two: the race comes from this project's own review.",
        ],
    ),
];
