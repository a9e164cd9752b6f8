//! What each side does and leaves out.

/// What it does that the peer does not.
pub(crate) const IN_ADDITION: &str = "\
minflt does in addition: in each call and fault a lock that readers share, limits, accounting of
memory that is committed and resident, counts of events; in each mmap a search from the top of the
address space and a merge with what is alike beside it, in each munmap the end of page tables that
nothing is mapped below; in each first touch a reference and a map count of the page, and what
finds its mappings from the page (anon_vma); in each mprotect a split or merge and its charge; a
flush of the software TLB of each CPU that runs the address space (an interrupt for the other).
Its clear asks for the lines of the frame that is cleared next; the peer's does not.
On two threads of a system that does not shoot down translations, munmap would be unsafe.";

/// What the peer does that the library does not, and does not do.
pub(crate) const NOTES: &str = "\
The peer: one spin lock for the address space, one for all frames; mmap looks for room from the
bottom, area by area; munmap looks at every area; page tables go when the address space does; no
counts, no limits, no merging, no other CPU is told of what is unmapped (on the host target nor is
the own TLB). What a call of its kernel does around this is left out, as it is of ours.";

pub(crate) fn print() {
    println!("\n{IN_ADDITION}\n\n{NOTES}");
}
