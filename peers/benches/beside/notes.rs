//! What each side does and leaves out: comparable only with this beside it.

use crate::frames::Fill;

/// Who is who.
pub(crate) const SIDES: &str = "\
memory_set          the parts of ArceOS's kernels: mappings by memory_set, page tables by
                    page_table_multiarch, a bitmap of frames
BTreeMap + x86_64   by hand: a BTreeMap of mappings, page tables by the x86_64 crate's
                    OffsetPageTable, the same bitmap
minflt, ERA         the library on the host target without checks, with `--prefetch nothing`
Both peers have a spin lock for the address space and one for all frames, and memory like minflt's.";

/// What it is; `memory_set`, by hand, minflt.
type Line = [&'static str; 4];

/// One line a thing that a side may do.
const LINES: [Line; 17] = [
    ["", "memory_set", "BTreeMap", "minflt"],
    ["faults of one address space in parallel", "no", "no", "yes"],
    ["frames cached for each CPU", "no", "no", "yes"],
    ["search for room", "from below", "from below", "from above"],
    ["munmap finds mappings", "one by one", "by key", "by key"],
    ["mappings that match are merged", "no", "no", "yes"],
    ["page tables freed by munmap", "no", "no", "yes"],
    ["own TLB flushed", "left out", "left out", "in software"],
    ["other CPUs' TLBs flushed", "no", "no", "yes"],
    [
        "reverse maps: from a page to its mappings",
        "no",
        "no",
        "yes",
    ],
    ["reference and map counts of pages", "no", "no", "yes"],
    [
        "undo where memory runs out midway",
        "no",
        "no",
        "yes, but mprotect",
    ],
    ["limits, commit charge, resident pages", "no", "no", "yes"],
    ["counts of events", "no", "no", "yes"],
    [
        "entries of swap, migration, files looked for",
        "no",
        "no",
        "yes",
    ],
    ["fork copies a page", "in fork", "in fork", "on a store"],
    ["a first touch prefetches frames", "no", "no", "no"],
];

/// What the lines do not say.
const MORE: &str = "\
The trap, the system call and the rest of a kernel are left out on all sides. Room from below is
below all mappings of the bench, so the peers' search ends at its first look; what makes memory_set
slow among many is its munmap.";

/// The same about fork.
const FORK: &str = "\
The stores of the fork rows are looked up in software: by the peers under their lock, by minflt in a
software TLB and then in its tables. With the child's store each side has copied each page once.
After a fork minflt's parent finds its pages read-only, and the last row has that fault; the peers'
parent has none.";

pub(crate) fn print(fill: Fill) {
    println!("\n{SIDES}\n");
    let line = |[what, memory_set, by_hand, minflt]: Line| {
        println!("{what:46}{memory_set:14}{by_hand:14}{minflt}");
    };
    LINES.into_iter().for_each(line);
    let peers = match fill {
        Fill::Alone => "nothing",
        Fill::PrefetchNext => "next frame",
    };
    line(["a clear or a copy prefetches", peers, peers, "next frame"]);
    println!("\n{MORE}\n{FORK}");
}
