//! What each race teaches: what went wrong, which fix, and which kernel or patch had it.
//!
//! A story stands beside its race's row by number. Where no kernel is known to have had the bug,
//! the story says where the race comes from.

mod arenas;
mod calls;
mod copies;
mod entries;
mod files;
mod huge;
mod huge_pool;
mod migration;
mod rmap;
mod speculation;
mod swap;
mod tlb;
mod vma_locks;

use minflt_sim::Shape;

/// Races about one thing.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// What they are about.
    pub name: &'static str,
    /// The races, sorted by number.
    pub stories: &'static [Story],
}

/// What a race teaches.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// The race's number.
    pub race: &'static str,
    /// How a run fails without the fix.
    pub shape: Shape,
    /// What each thread of the scene does, in their order.
    pub lanes: &'static [&'static str],
    /// What went wrong.
    pub wrong: &'static str,
    /// What the fix is.
    pub fix: &'static str,
    /// Which kernel or patch had it, or would have had it; else where the race comes from.
    pub origin: &'static str,
}

impl Story {
    /// The story as one paragraph.
    #[must_use]
    pub fn paragraph(&self) -> String {
        format!("{} Fix: {} {}", self.wrong, self.fix, self.origin)
    }
}

/// Every race, by subject.
pub const SUBJECTS: &[Subject] = &[
    speculation::SUBJECT,
    arenas::SUBJECT,
    vma_locks::SUBJECT,
    entries::SUBJECT,
    copies::SUBJECT,
    rmap::SUBJECT,
    migration::SUBJECT,
    files::SUBJECT,
    swap::SUBJECT,
    huge::SUBJECT,
    huge_pool::SUBJECT,
    tlb::SUBJECT,
    calls::SUBJECT,
];

/// Five races to learn speculative faults by, in this order, and what each teaches.
pub const FIVE: [(&str, &str); 5] = [
    (
        "P30",
        "a lookup without a lock needs its VMA to outlive it: grace periods",
    ),
    (
        "P27",
        "what was looked up may be gone at the end: recheck under the table's lock",
    ),
    (
        "P28",
        "the recheck sees only what writers announce: write sections",
    ),
    (
        "P9",
        "page tables are looked up without a lock, too, and freed too early",
    ),
    (
        "P37",
        "a fault with interrupts off must not spin: trylock, and fall back",
    ),
];

/// A story, written in one piece.
const fn story(
    race: &'static str,
    shape: Shape,
    lanes: &'static [&'static str],
    [wrong, fix, origin]: [&'static str; 3],
) -> Story {
    Story {
        race,
        shape,
        lanes,
        wrong,
        fix,
        origin,
    }
}
