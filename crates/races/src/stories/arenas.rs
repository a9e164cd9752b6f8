//! Address spaces in arenas.

use super::{Story, Subject, story};
use minflt_sim::Shape::{LostStore, StaleRead, StaleTranslation, UseAfterFree};

pub(super) const SUBJECT: Subject = Subject {
    name: "arenas",
    stories: STORIES,
};

const ORIGIN: &str = "As above: from this project's design for more CPUs.";

const STORIES: &[Story] = &[
    story(
        "P65",
        LostStore,
        &["mmap over two arenas", "mmap in the second"],
        [
            "mmap covers two arenas and has locked only the first. A call in the second changes \
             the same tree at the same time, and what one of them has mapped is lost.",
            "lock every arena of the range, under an outer lock, so that those that take several \
             come one after the other.",
            "The race comes from this project's design for more CPUs: no kernel has arenas.",
        ],
    ),
    story(
        "P66",
        UseAfterFree,
        &["munmap left of a border", "munmap right of it"],
        [
            "A mapping lies over the border of two arenas. A call on either side of the border \
             holds the arena of its range, and both cut the mapping.",
            "whoever changes a mapping holds all arenas that it overlaps: look how far it \
             reaches, and start again with those.",
            ORIGIN,
        ],
    ),
    story(
        "P67",
        StaleRead,
        &["mmap that divides", "munmap"],
        [
            "munmap waits for the lock of an address space that is being divided into arenas. It \
             gets that lock, looks into the old tree, where nothing is any more, and returns \
             without having unmapped anything.",
            "look again, with the lock held, whether there are arenas, and go there.",
            ORIGIN,
        ],
    ),
    story(
        "P68",
        StaleTranslation,
        &["munmap", "a CPU's first load in an arena"],
        [
            "A CPU walks to a page of an arena that it has not used before, buffers what it \
             finds, and joins the arena's CPU mask after that. munmap reads the mask in between, \
             and does not interrupt it.",
            "join first: a CPU that is not in the mask does not walk, and takes a fault, which \
             joins.",
            ORIGIN,
        ],
    ),
    story(
        "P69",
        StaleTranslation,
        &["a load", "mmap that divides, then munmap"],
        [
            "A CPU has buffered a translation while the address space had one CPU mask. It is \
             divided, and munmap asks the CPUs of one arena only.",
            "as it is divided, have CPUs join arenas from now on, and then flush everything on \
             all CPUs; only after that ask those of an arena alone.",
            ORIGIN,
        ],
    ),
    story(
        "P70",
        StaleTranslation,
        &["discard of a page", "discard over a border", "two stores"],
        [
            "Flushes to come are counted in the arena, or in the address space for those of \
             several arenas. One discard has taken an entry out and not yet flushed; another that \
             is counted elsewhere finds nothing, and returns too early.",
            "look at both counts: one of several arenas at those of its arenas, one of a single \
             arena at that of the address space.",
            ORIGIN,
        ],
    ),
    story(
        "P71",
        StaleRead,
        &["first stores", "first stores", "mmap that divides"],
        [
            "A fault without a lock is about to give its VMA an anon_vma, under the address \
             space's lock for that. The address space is divided, and another fault of the VMA \
             takes the lock of its arena: each gives it one, and one is lost.",
            "once mmap_lock is held, look whether the lock is still the right one; the division \
             holds mmap_lock for writing.",
            ORIGIN,
        ],
    ),
    story(
        "P72",
        StaleTranslation,
        &["munmap of a page, three times", "loads"],
        [
            "A CPU that is interrupted for one arena again and again leaves its mask. It has \
             flushed only what the last munmap asked for, and the next one does not ask it: it \
             goes on using a page that is gone.",
            "flush all of the arena before leaving its mask; a CPU that uses it again joins first.",
            ORIGIN,
        ],
    ),
    story(
        "P73",
        StaleRead,
        &["munmap", "an allocation that memory is too short for"],
        [
            "A CPU keeps frames that it has freed as runs. Before an allocation fails on another \
             CPU, that one gives all runs back to the zones, and takes each out of the CPU's list \
             only afterwards: meanwhile its CPU has added to the run, or taken from it.",
            "take a run out under the lock of the runs first; between the locks it is nobody \
             else's.",
            ORIGIN,
        ],
    ),
];
