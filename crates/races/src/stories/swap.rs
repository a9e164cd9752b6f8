//! Reclaim and swap.

use super::{Story, Subject, story};
use minflt_sim::Shape::{LostStore, StaleRead, Wait};

pub(super) const SUBJECT: Subject = Subject {
    name: "Reclaim and swap",
    stories: STORIES,
};

const STORIES: &[Story] = &[
    story(
        "P2",
        LostStore,
        &["swap out twice", "store and load", "load"],
        [
            "A page is swapped out in two steps: the entry is cleared, and later the swap entry \
             is stored. A fault that takes no lock finds the entry empty and installs a zeroed \
             page in between, and the contents are lost.",
            "replace the entry by the swap entry in one exchange.",
            "No released kernel had it: the race comes from the discussion of the atomic-PTE \
             patches of 2004.",
        ],
    ),
    story(
        "P3",
        LostStore,
        &["swap out twice", "store and load", "load"],
        [
            "Swap-out finds a page clean, or writes it, and then unmaps it. A store in between \
             dirties the page, and what is on the swap device is old.",
            "unmap and flush first, take the dirty bit from the exchanged entry, and write the \
             page then.",
            "No released kernel had it: the race comes from the discussion of the atomic-PTE \
             patches of 2004.",
        ],
    ),
    story(
        "P4",
        StaleRead,
        &["swap out twice", "store fault"],
        [
            "A fault installs a page and counts its mapping afterwards. Reclaim finds the page \
             in between, and lowers a map count that is still zero.",
            "count before the page can be found; reclaim skips pages whose counts do not agree.",
            "No released kernel had it: the race comes from the discussion of the atomic-PTE \
             patches of 2004.",
        ],
    ),
    story(
        "P6-swap",
        Wait,
        &["swap out twice", "store and load", "load"],
        [
            "Swap-out holds the page-table lock and exchanges an entry, which on this CPU is \
             emulated under the same lock. It waits for itself.",
            "a caller that holds the lock says so, and the emulation does not take it.",
            "Comes from the atomic-PTE patches of 2004: the emulation for CPUs without the \
             instruction; no released kernel is recorded.",
        ],
    ),
    story(
        "P25",
        LostStore,
        &["swap out twice", "loads around", "load and store"],
        [
            "A private copy in a file mapping is swapped out, so its entry is not present. \
             Fault-around takes it for empty and maps the file's page over it, and the copy is \
             lost.",
            "install only where the entry is empty, not where it is merely not present.",
            "No kernel with this bug is recorded; the race comes from this project's own \
             review.",
        ],
    ),
    story(
        "P26",
        StaleRead,
        &["stores until full", "load used pages"],
        [
            "Fault-around installs entries as if the pages had been used. Reclaim then cannot \
             tell them from pages in use, and takes a used page while an unused one stays.",
            "install such entries old, so that the first round of the clock takes them.",
            "No bug of a released kernel: Linux offers old entries on machines that set the \
             accessed bit cheaply.",
        ],
    ),
];
