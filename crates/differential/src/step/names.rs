//! Names of the bits and values that arguments are.

use minflt_spec::abi;

/// Names of bits or values, without what Linux's names begin with.
#[derive(Debug)]
pub struct Names {
    /// What Linux's names begin with.
    pub prefix: &'static str,
    /// The names.
    pub names: &'static [(&'static str, u64)],
}

/// Names of `prot` bits.
pub static PROT: Names = Names {
    prefix: "PROT_",
    names: &[
        ("READ", abi::PROT_READ),
        ("WRITE", abi::PROT_WRITE),
        ("EXEC", abi::PROT_EXEC),
        ("SEM", abi::PROT_SEM),
        ("GROWSDOWN", abi::PROT_GROWSDOWN),
        ("GROWSUP", abi::PROT_GROWSUP),
    ],
};

/// Names of mmap's flags.
pub static MAP: Names = Names {
    prefix: "MAP_",
    names: &[
        ("PRIVATE", abi::MAP_PRIVATE),
        ("ANONYMOUS", abi::MAP_ANONYMOUS),
        ("FIXED", abi::MAP_FIXED),
        ("FIXED_NOREPLACE", abi::MAP_FIXED_NOREPLACE),
        ("POPULATE", abi::MAP_POPULATE),
        ("NONBLOCK", abi::MAP_NONBLOCK),
        ("NORESERVE", abi::MAP_NORESERVE),
        ("LOCKED", abi::MAP_LOCKED),
        ("GROWSDOWN", abi::MAP_GROWSDOWN),
        ("STACK", abi::MAP_STACK),
        ("SHARED", abi::MAP_SHARED),
    ],
};

/// Names of the files, as they are open.
pub static FILE: Names = Names {
    prefix: "fd_",
    names: &[
        ("tmpfs", 0),
        ("disk", 1),
        ("tmpfs-readonly", 2),
        ("disk-readonly", 3),
    ],
};

/// Names of msync's flags.
pub static SYNC: Names = Names {
    prefix: "MS_",
    names: &[
        ("ASYNC", abi::MS_ASYNC),
        ("INVALIDATE", abi::MS_INVALIDATE),
        ("SYNC", abi::MS_SYNC),
    ],
};

/// Names of fallocate's modes.
pub static FALLOC: Names = Names {
    prefix: "FALLOC_FL_",
    names: &[
        ("KEEP_SIZE", abi::FALLOC_FL_KEEP_SIZE),
        ("PUNCH_HOLE", abi::FALLOC_FL_PUNCH_HOLE),
    ],
};

/// Names of mremap's flags.
pub static REMAP: Names = Names {
    prefix: "MREMAP_",
    names: &[
        ("MAYMOVE", abi::MREMAP_MAYMOVE),
        ("FIXED", abi::MREMAP_FIXED),
        ("DONTUNMAP", abi::MREMAP_DONTUNMAP),
    ],
};

/// Names of advice.
pub static ADVICE: Names = Names {
    prefix: "MADV_",
    names: &[
        ("NORMAL", abi::MADV_NORMAL),
        ("RANDOM", abi::MADV_RANDOM),
        ("SEQUENTIAL", abi::MADV_SEQUENTIAL),
        ("WILLNEED", abi::MADV_WILLNEED),
        ("DONTNEED", abi::MADV_DONTNEED),
        ("FREE", abi::MADV_FREE),
        ("DONTFORK", abi::MADV_DONTFORK),
        ("DOFORK", abi::MADV_DOFORK),
        ("MERGEABLE", abi::MADV_MERGEABLE),
        ("UNMERGEABLE", abi::MADV_UNMERGEABLE),
        ("HUGEPAGE", abi::MADV_HUGEPAGE),
        ("NOHUGEPAGE", abi::MADV_NOHUGEPAGE),
        ("DONTDUMP", abi::MADV_DONTDUMP),
        ("DODUMP", abi::MADV_DODUMP),
        ("WIPEONFORK", abi::MADV_WIPEONFORK),
        ("KEEPONFORK", abi::MADV_KEEPONFORK),
        ("COLD", abi::MADV_COLD),
        ("PAGEOUT", abi::MADV_PAGEOUT),
        ("POPULATE_READ", abi::MADV_POPULATE_READ),
        ("POPULATE_WRITE", abi::MADV_POPULATE_WRITE),
        ("DONTNEED_LOCKED", abi::MADV_DONTNEED_LOCKED),
        ("REMOVE", abi::MADV_REMOVE),
    ],
};

/// Names of mlock2's flags.
pub static LOCK2: Names = Names {
    prefix: "MLOCK_",
    names: &[("ONFAULT", abi::MLOCK_ONFAULT)],
};

/// Names of mlockall's flags.
pub static LOCKALL: Names = Names {
    prefix: "MCL_",
    names: &[
        ("CURRENT", abi::MCL_CURRENT),
        ("FUTURE", abi::MCL_FUTURE),
        ("ONFAULT", abi::MCL_ONFAULT),
    ],
};

/// Names of memory policies' modes and their flags.
pub static MODE: Names = Names {
    prefix: "MPOL_",
    names: &[
        ("DEFAULT", abi::MPOL_DEFAULT),
        ("PREFERRED", abi::MPOL_PREFERRED),
        ("BIND", abi::MPOL_BIND),
        ("INTERLEAVE", abi::MPOL_INTERLEAVE),
        ("LOCAL", abi::MPOL_LOCAL),
        ("PREFERRED_MANY", abi::MPOL_PREFERRED_MANY),
        (
            "PREFERRED|STATIC",
            abi::MPOL_PREFERRED | abi::MPOL_F_STATIC_NODES,
        ),
        ("BIND|STATIC", abi::MPOL_BIND | abi::MPOL_F_STATIC_NODES),
        ("BIND|RELATIVE", abi::MPOL_BIND | abi::MPOL_F_RELATIVE_NODES),
    ],
};

/// Names of mbind's flags.
pub static BIND: Names = Names {
    prefix: "MPOL_MF_",
    names: &[
        ("STRICT", abi::MPOL_MF_STRICT),
        ("MOVE", abi::MPOL_MF_MOVE),
        ("MOVE_ALL", abi::MPOL_MF_MOVE_ALL),
    ],
};

/// Names of get_mempolicy's flags.
pub static GET: Names = Names {
    prefix: "MPOL_F_",
    names: &[
        ("NODE", abi::MPOL_F_NODE),
        ("ADDR", abi::MPOL_F_ADDR),
        ("MEMS_ALLOWED", abi::MPOL_F_MEMS_ALLOWED),
    ],
};

/// Names of what a userfaultfd watches for.
pub static WATCH: Names = Names {
    prefix: "UFFDIO_REGISTER_MODE_",
    names: &[
        ("MISSING", abi::UFFDIO_REGISTER_MODE_MISSING),
        ("WP", abi::UFFDIO_REGISTER_MODE_WP),
    ],
};

/// Names of the ways to fill a hole.
pub static COPY: Names = Names {
    prefix: "UFFDIO_COPY_MODE_",
    names: &[
        ("DONTWAKE", abi::UFFDIO_COPY_MODE_DONTWAKE),
        ("WP", abi::UFFDIO_COPY_MODE_WP),
    ],
};

/// Names of the ways to fill a hole with zeros.
pub static ZEROPAGE: Names = Names {
    prefix: "UFFDIO_ZEROPAGE_MODE_",
    names: &[("DONTWAKE", abi::UFFDIO_ZEROPAGE_MODE_DONTWAKE)],
};

/// Names of what is done to the pages of a range.
pub static WRITEPROTECT: Names = Names {
    prefix: "UFFDIO_WRITEPROTECT_MODE_",
    names: &[
        ("WP", abi::UFFDIO_WRITEPROTECT_MODE_WP),
        ("DONTWAKE", abi::UFFDIO_WRITEPROTECT_MODE_DONTWAKE),
    ],
};
