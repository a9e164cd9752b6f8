//! What each call and flag of `mm` is, compared with Linux: the one table, and what it says in
//! `docs/linux-compat.md`.

use crate::histogram::Histogram;
use crate::run::Ran;
use core::fmt::Write as _;
use minflt_report::replace_generated;

/// What `mm` does, compared with Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Says {
    /// The same result, errno, mappings and contents.
    Same,
    /// Something else, by design: what.
    Differs(&'static str),
    /// Not there: what happens instead.
    Unsupported(&'static str),
}

use Says::{Differs, Same, Unsupported};

/// A call, a flag of it, or a result: by the name that [`Histogram`] counts it under.
pub const ROWS: &[(&str, Says)] = &[
    ("mmap", Same),
    ("mmap MAP_PRIVATE", Same),
    ("mmap MAP_SHARED", Same),
    ("mmap MAP_FIXED", Same),
    ("mmap MAP_FIXED_NOREPLACE", Same),
    ("mmap MAP_POPULATE", Same),
    ("mmap MAP_NONBLOCK", Same),
    ("mmap MAP_NORESERVE", Same),
    ("mmap MAP_LOCKED", Same),
    ("mmap MAP_GROWSDOWN", Same),
    ("mmap PROT_NONE", Same),
    ("mmap PROT_READ", Same),
    ("mmap PROT_WRITE", Same),
    ("mmap PROT_EXEC", Same),
    ("mmap PROT_SEM", Same),
    ("mmap PROT_GROWSDOWN", Same),
    ("mmap PROT_GROWSUP", Same),
    ("mmap PROT_unknown", Same),
    ("mmap EINVAL", Same),
    ("mmap ENOMEM", Same),
    ("mmap EEXIST", Same),
    ("mmap EAGAIN", Same),
    ("mmap EPERM", Same),
    (
        "mmap ENOMEM over RLIMIT_AS",
        Differs(
            "`MAP_FIXED` over mappings: Linux has cut them at the edges of the range, here nothing changes",
        ),
    ),
    (
        "mmap MAP_STACK",
        Unsupported("no word for it in the library; Linux wants no huge pages there"),
    ),
    (
        "mmap MAP_SHARED_VALIDATE, MAP_DROPPABLE, MAP_32BIT, MAP_SYNC",
        Unsupported("no words in the library; the kernel says `EINVAL`"),
    ),
    ("mmap_file", Same),
    ("mmap_file fd_tmpfs", Same),
    ("mmap_file fd_disk", Same),
    ("mmap_file fd_tmpfs-readonly", Same),
    ("mmap_file fd_disk-readonly", Same),
    ("mmap_file MAP_PRIVATE", Same),
    ("mmap_file MAP_SHARED", Same),
    ("mmap_file MAP_FIXED", Same),
    ("mmap_file MAP_FIXED_NOREPLACE", Same),
    ("mmap_file MAP_POPULATE", Same),
    ("mmap_file MAP_NONBLOCK", Same),
    ("mmap_file MAP_NORESERVE", Same),
    ("mmap_file MAP_LOCKED", Same),
    ("mmap_file MAP_GROWSDOWN", Same),
    ("mmap_file PROT_NONE", Same),
    ("mmap_file PROT_READ", Same),
    ("mmap_file PROT_WRITE", Same),
    ("mmap_file PROT_EXEC", Same),
    ("mmap_file EPERM", Same),
    ("mmap_file EACCES", Same),
    ("mmap_file EINVAL", Same),
    ("mmap_file ENOMEM", Same),
    ("mmap_file EEXIST", Same),
    ("mmap_file EAGAIN", Same),
    (
        "mmap_file MAP_PRIVATE of two descriptors of one file",
        Differs("a handle is no descriptor: two such mappings that meet in line become one"),
    ),
    (
        "mmap_file MAP_POPULATE|MAP_NONBLOCK",
        Differs("maps what is cached, without waiting; in Linux it does nothing"),
    ),
    ("munmap", Same),
    ("munmap EINVAL", Same),
    ("mprotect", Same),
    ("mprotect PROT_NONE", Same),
    ("mprotect PROT_READ", Same),
    ("mprotect PROT_WRITE", Same),
    ("mprotect PROT_EXEC", Same),
    (
        "mprotect of several mappings, one of them locked",
        Differs(
            "what becomes writable is filled at the end; Linux fills one after the other, so that fewer merge",
        ),
    ),
    ("mprotect EINVAL", Same),
    ("mprotect ENOMEM", Same),
    ("mprotect EACCES", Same),
    (
        "mprotect PROT_GROWSDOWN, PROT_GROWSUP, unknown bits",
        Unsupported("no words in the library; the kernel says `EINVAL`"),
    ),
    ("mremap", Same),
    ("mremap MREMAP_NONE", Same),
    ("mremap MREMAP_MAYMOVE", Same),
    ("mremap MREMAP_FIXED", Same),
    ("mremap MREMAP_DONTUNMAP", Same),
    ("mremap MREMAP_unknown", Same),
    (
        "mremap MREMAP_DONTUNMAP of locked memory",
        Differs("what stays behind is not counted as locked; Linux counts it, though it is not"),
    ),
    ("mremap EINVAL", Same),
    ("mremap EFAULT", Same),
    ("mremap ENOMEM", Same),
    ("mremap EAGAIN", Same),
    ("madvise", Same),
    ("madvise MADV_NORMAL", Same),
    ("madvise MADV_RANDOM", Same),
    ("madvise MADV_SEQUENTIAL", Same),
    ("madvise MADV_WILLNEED", Same),
    ("madvise MADV_DONTNEED", Same),
    ("madvise MADV_FREE", Same),
    ("madvise MADV_REMOVE", Same),
    ("madvise MADV_DONTFORK", Same),
    ("madvise MADV_DOFORK", Same),
    ("madvise MADV_HUGEPAGE", Same),
    ("madvise MADV_NOHUGEPAGE", Same),
    ("madvise MADV_DONTDUMP", Same),
    ("madvise MADV_DODUMP", Same),
    ("madvise MADV_WIPEONFORK", Same),
    ("madvise MADV_KEEPONFORK", Same),
    ("madvise MADV_COLD", Same),
    ("madvise MADV_PAGEOUT", Same),
    ("madvise MADV_POPULATE_READ", Same),
    ("madvise MADV_POPULATE_WRITE", Same),
    ("madvise MADV_DONTNEED_LOCKED", Same),
    ("madvise MADV_unknown", Same),
    ("madvise EINVAL", Same),
    ("madvise ENOMEM", Same),
    ("madvise EACCES", Same),
    ("madvise EFAULT", Same),
    (
        "madvise MADV_MERGEABLE, MADV_UNMERGEABLE",
        Unsupported("`EINVAL`, as Linux without KSM"),
    ),
    (
        "madvise MADV_COLLAPSE, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, MADV_HWPOISON, MADV_SOFT_OFFLINE",
        Unsupported("`EINVAL`"),
    ),
    ("msync", Same),
    ("msync MS_ASYNC", Same),
    ("msync MS_SYNC", Same),
    ("msync MS_INVALIDATE", Same),
    ("msync MS_unknown", Same),
    ("msync EINVAL", Same),
    ("msync ENOMEM", Same),
    ("msync EBUSY", Same),
    ("ftruncate", Same),
    ("ftruncate fd_tmpfs", Same),
    ("ftruncate fd_disk", Same),
    ("ftruncate EINVAL", Same),
    ("fallocate", Same),
    ("fallocate FALLOC_FL_NONE", Same),
    ("fallocate FALLOC_FL_PUNCH_HOLE", Same),
    ("fallocate EBADF", Same),
    ("fallocate EINVAL", Same),
    (
        "fallocate FALLOC_FL_KEEP_SIZE alone, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE, UNSHARE_RANGE",
        Unsupported("no words in the library"),
    ),
    ("pread", Same),
    ("pwrite", Same),
    ("pwrite EBADF", Same),
    ("mlock", Same),
    ("mlock ENOMEM", Same),
    ("mlock EINVAL", Same),
    ("mlock EPERM", Same),
    ("mlock2", Same),
    ("mlock2 MLOCK_ONFAULT", Same),
    ("mlock2 MLOCK_unknown", Same),
    ("mlock2 EINVAL", Same),
    ("mlock2 ENOMEM", Same),
    ("mlock2 EPERM", Same),
    ("munlock", Same),
    ("munlock ENOMEM", Same),
    ("munlock EINVAL", Same),
    ("mlockall", Same),
    ("mlockall MCL_CURRENT", Same),
    ("mlockall MCL_FUTURE", Same),
    ("mlockall MCL_ONFAULT", Same),
    ("mlockall MCL_unknown", Same),
    ("mlockall ENOMEM", Same),
    ("mlockall EPERM", Same),
    ("mlockall EINVAL", Same),
    ("munlockall", Same),
    ("mincore", Same),
    ("mincore ENOMEM", Same),
    ("mincore EINVAL", Same),
    (
        "mincore of files",
        Differs("says what is cached, as Linux does; what that is, readahead decides"),
    ),
    ("brk", Same),
    ("mbind", Same),
    ("mbind MPOL_DEFAULT", Same),
    ("mbind MPOL_PREFERRED", Same),
    ("mbind MPOL_BIND", Same),
    ("mbind MPOL_INTERLEAVE", Same),
    ("mbind MPOL_LOCAL", Same),
    ("mbind MPOL_PREFERRED_MANY", Same),
    ("mbind MPOL_unknown", Same),
    ("mbind MPOL_MF_STRICT", Same),
    ("mbind MPOL_MF_MOVE", Same),
    ("mbind MPOL_MF_MOVE_ALL", Same),
    ("mbind EINVAL", Same),
    ("mbind EFAULT", Same),
    ("set_mempolicy", Same),
    ("set_mempolicy MPOL_DEFAULT", Same),
    ("set_mempolicy MPOL_PREFERRED", Same),
    ("set_mempolicy MPOL_BIND", Same),
    ("set_mempolicy MPOL_INTERLEAVE", Same),
    ("set_mempolicy MPOL_LOCAL", Same),
    ("set_mempolicy MPOL_PREFERRED_MANY", Same),
    ("set_mempolicy MPOL_unknown", Same),
    ("set_mempolicy EINVAL", Same),
    ("get_mempolicy", Same),
    ("get_mempolicy MPOL_F_ADDR", Same),
    ("get_mempolicy MPOL_F_NODE", Same),
    ("get_mempolicy MPOL_F_MEMS_ALLOWED", Same),
    ("get_mempolicy MPOL_F_unknown", Same),
    ("get_mempolicy EINVAL", Same),
    ("get_mempolicy EFAULT", Same),
    (
        "get_mempolicy MPOL_F_NODE|MPOL_F_ADDR without PROT_READ",
        Differs("`EFAULT`; Linux tells the node of a page that is there and may be stored to"),
    ),
    (
        "mbind MPOL_WEIGHTED_INTERLEAVE, MPOL_F_STATIC_NODES, MPOL_F_RELATIVE_NODES, MPOL_F_NUMA_BALANCING",
        Unsupported("no words in the library"),
    ),
    ("limit_memlock", Same),
    ("limit_as", Same),
    ("load", Same),
    ("load SEGV_MAPERR", Same),
    ("load SEGV_ACCERR", Same),
    ("load BUS_ADRERR", Same),
    ("store", Same),
    ("store SEGV_MAPERR", Same),
    ("store SEGV_ACCERR", Same),
    ("store BUS_ADRERR", Same),
    ("remote_read", Same),
    ("remote_read EFAULT", Same),
    ("remote_write", Same),
    ("remote_write EFAULT", Same),
    ("forced_read", Same),
    ("forced_read EIO", Same),
    ("forced_write", Same),
    ("forced_write EIO", Same),
    ("fork", Same),
    ("uffd_register", Same),
    ("uffd_register UFFDIO_REGISTER_MODE_MISSING", Same),
    ("uffd_register UFFDIO_REGISTER_MODE_WP", Same),
    ("uffd_register EINVAL", Same),
    ("uffd_unregister", Same),
    ("uffd_unregister EINVAL", Same),
    ("uffd_copy", Same),
    ("uffd_copy UFFDIO_COPY_MODE_WP", Same),
    ("uffd_copy UFFDIO_COPY_MODE_DONTWAKE", Same),
    ("uffd_copy EINVAL", Same),
    ("uffd_copy ENOENT", Same),
    ("uffd_copy EEXIST", Same),
    ("uffd_copy EAGAIN", Same),
    ("uffd_zeropage", Same),
    ("uffd_zeropage UFFDIO_ZEROPAGE_MODE_DONTWAKE", Same),
    ("uffd_zeropage EINVAL", Same),
    ("uffd_zeropage ENOENT", Same),
    ("uffd_zeropage EEXIST", Same),
    ("uffd_zeropage EAGAIN", Same),
    ("uffd_writeprotect", Same),
    ("uffd_writeprotect UFFDIO_WRITEPROTECT_MODE_WP", Same),
    ("uffd_writeprotect UFFDIO_WRITEPROTECT_MODE_DONTWAKE", Same),
    ("uffd_writeprotect EINVAL", Same),
    ("uffd_writeprotect ENOENT", Same),
    (
        "uffd_register of files in memory",
        Unsupported("`EINVAL`; Linux watches them, too"),
    ),
    (
        "uffd_register for missing pages only, where stores were watched",
        Differs(
            "protected pages are not any more; in Linux they are again once stores are watched again",
        ),
    ),
    (
        "mremap of a watched mapping beside one that it goes with",
        Differs(
            "it is not watched afterwards, and becomes one with a neighbour that is alike then; Linux asks before, and watches neither any more",
        ),
    ),
    (
        "uffd_copy ENOENT of a mapping nobody has stored to",
        Differs(
            "nothing changes; Linux gives it an anon_vma, by which it may become one with fewer neighbours",
        ),
    ),
    (
        "userfaultfd UFFD_FEATURE_MINOR, UFFDIO_CONTINUE, POISON, MOVE, events, WP_UNPOPULATED, WP_ASYNC",
        Unsupported("no words in the library"),
    ),
    ("huge_mmap", Same),
    ("huge_mmap MAP_PRIVATE", Same),
    ("huge_mmap MAP_SHARED", Same),
    ("huge_mmap MAP_FIXED", Same),
    ("huge_mmap MAP_FIXED_NOREPLACE", Same),
    ("huge_mmap MAP_NORESERVE", Same),
    ("huge_mmap MAP_POPULATE", Same),
    ("huge_mmap PROT_NONE", Same),
    ("huge_mmap PROT_READ", Same),
    ("huge_mmap PROT_WRITE", Same),
    ("huge_mmap EINVAL", Same),
    ("huge_mmap ENOMEM", Same),
    ("huge_mmap EEXIST", Same),
    ("huge_mmap_file", Same),
    ("huge_mmap_file MAP_PRIVATE", Same),
    ("huge_mmap_file MAP_SHARED", Same),
    ("huge_mmap_file MAP_FIXED", Same),
    ("huge_mmap_file MAP_FIXED_NOREPLACE", Same),
    ("huge_mmap_file MAP_NORESERVE", Same),
    ("huge_mmap_file MAP_POPULATE", Same),
    ("huge_mmap_file PROT_NONE", Same),
    ("huge_mmap_file PROT_READ", Same),
    ("huge_mmap_file PROT_WRITE", Same),
    ("huge_mmap_file EINVAL", Same),
    ("huge_mmap_file ENOMEM", Same),
    ("huge_mmap_file EEXIST", Same),
    (
        "huge_mmap MAP_FIXED ENOMEM",
        Differs("nothing changes; in Linux what was to be replaced is gone"),
    ),
    (
        "huge_mmap MAP_FIXED of reserved pages",
        Differs("what the old mapping reserved is not counted; in Linux what a private one did is"),
    ),
    (
        "huge_mmap MAP_FIXED|MAP_POPULATE of shared pages without a file",
        Differs("the old pages may be used; Linux gives them back when the call returns"),
    ),
    ("huge_munmap", Same),
    ("huge_munmap EINVAL", Same),
    ("huge_mprotect", Same),
    ("huge_mprotect PROT_NONE", Same),
    ("huge_mprotect PROT_READ", Same),
    ("huge_mprotect PROT_WRITE", Same),
    ("huge_mprotect EINVAL", Same),
    ("huge_mprotect ENOMEM", Same),
    (
        "huge_munmap, huge_mprotect, huge_madvise EINVAL of a range that ends within a huge page",
        Differs("nothing is cut; Linux has cut the mapping where the range begins"),
    ),
    ("huge_madvise", Same),
    ("huge_madvise MADV_DONTNEED", Same),
    ("huge_madvise MADV_REMOVE", Same),
    ("huge_madvise EINVAL", Same),
    ("huge_madvise ENOMEM", Same),
    ("huge_madvise EACCES", Same),
    ("huge_load", Same),
    ("huge_load SEGV_MAPERR", Same),
    ("huge_load SEGV_ACCERR", Same),
    ("huge_load BUS_ADRERR", Same),
    ("huge_store", Same),
    ("huge_store SEGV_MAPERR", Same),
    ("huge_store SEGV_ACCERR", Same),
    ("huge_store BUS_ADRERR", Same),
    ("huge_fork", Same),
    (
        "huge_fork, then munmap or MADV_DONTNEED of what the child still has",
        Differs(
            "a page is reserved again only for who had it last; Linux counts a reservation less than there are, below zero if there are none",
        ),
    ),
    ("huge_ftruncate", Same),
    ("huge_ftruncate EINVAL", Same),
    ("huge_fallocate", Same),
    ("huge_fallocate FALLOC_FL_NONE", Same),
    ("huge_fallocate FALLOC_FL_PUNCH_HOLE", Same),
    ("huge_fallocate EINVAL", Same),
    ("huge_fallocate ENOSPC", Same),
    ("huge_pread", Same),
    (
        "huge_fallocate FALLOC_FL_KEEP_SIZE alone",
        Unsupported("no word in the library"),
    ),
    (
        "surplus pages of hugetlb, limits of its mounts and of cgroups",
        Unsupported("not there"),
    ),
];

/// The fewest steps of a run that a row which says *same* needs to be believed.
pub const HITS: u64 = 100;

/// The rows that say *same* and were hit too rarely.
#[must_use]
pub fn rare(histogram: &Histogram) -> Vec<&'static str> {
    let rows = ROWS.iter().filter(|(_, says)| *says == Same);
    let rare = rows.filter(|(name, _)| histogram.of(name) < HITS);
    rare.map(|(name, _)| *name).collect()
}

/// Fills the generated parts of the page.
///
/// # Errors
/// When the page lacks one of them.
pub fn fill(page: &str, ran: &Ran, command: &str, subjects: &[String]) -> Result<String, String> {
    let mut words = format!("`{command}`: {} steps agree among the model", ran.steps);
    for subject in subjects {
        let _written = write!(words, ", {subject}");
    }
    words.push_str(".\n");
    let parts = [
        ("differential-run", words),
        ("differential-rows", rows_table(&ran.histogram)),
        ("differential-results", ran.histogram.results_table()),
        ("differential-flags", ran.histogram.flags_table()),
    ];
    parts
        .into_iter()
        .try_fold(page.to_owned(), |page, (name, body)| {
            replace_generated(&page, name, &body).map_err(|error| format!("{name}: {error}"))
        })
}

fn rows_table(histogram: &Histogram) -> String {
    let mut text = String::from("| call, flag or result | compared with Linux | steps |\n");
    text.push_str("|---|---|---:|\n");
    for (name, says) in ROWS {
        let name_shown = name.replace('|', "\\|");
        let (says, hits) = match says {
            Same => ("same".to_owned(), histogram.of(name).to_string()),
            Differs(how) => (format!("differs: {how}"), String::new()),
            Unsupported(what) => (format!("unsupported: {what}"), String::new()),
        };
        let _written = writeln!(text, "| `{name_shown}` | {says} | {hits} |");
    }
    text
}
