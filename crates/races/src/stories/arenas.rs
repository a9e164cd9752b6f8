//! Address spaces in arenas.

use super::{Story, Subject, story};
use minflt_sim::Shape::{LostStore, StaleRead, UseAfterFree};

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
];
