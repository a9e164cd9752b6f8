//! Linux's numbers on x86-64.

/// An error number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Errno(pub i32);

#[expect(missing_docs, reason = "Linux's names say it")]
impl Errno {
    pub const EPERM: Self = Self(1);
    pub const EIO: Self = Self(5);
    pub const EBADF: Self = Self(9);
    pub const EAGAIN: Self = Self(11);
    pub const ENOMEM: Self = Self(12);
    pub const EACCES: Self = Self(13);
    pub const EFAULT: Self = Self(14);
    pub const EBUSY: Self = Self(16);
    pub const ENOENT: Self = Self(2);
    pub const EEXIST: Self = Self(17);
    pub const EINVAL: Self = Self(22);
    pub const EFBIG: Self = Self(27);
    pub const ENOSPC: Self = Self(28);
    pub const EOPNOTSUPP: Self = Self(95);
}

macro_rules! numbers {
    ($($name:ident = $value:expr;)*) => {
        $(
            #[expect(missing_docs, reason = "Linux's names say it")]
            pub const $name: u64 = $value;
        )*
    };
}

numbers! {
    PROT_READ = 1;
    PROT_WRITE = 2;
    PROT_EXEC = 4;
    PROT_SEM = 8;
    PROT_GROWSDOWN = 0x0100_0000;
    PROT_GROWSUP = 0x0200_0000;

    MAP_SHARED = 0x01;
    MAP_PRIVATE = 0x02;
    MAP_SHARED_VALIDATE = 0x03;
    MAP_TYPE = 0x0f;
    MAP_FIXED = 0x10;
    MAP_ANONYMOUS = 0x20;
    MAP_GROWSDOWN = 0x100;
    MAP_LOCKED = 0x2000;
    MAP_NORESERVE = 0x4000;
    MAP_POPULATE = 0x8000;
    MAP_NONBLOCK = 0x1_0000;
    MAP_STACK = 0x2_0000;
    MAP_HUGETLB = 0x4_0000;
    MAP_FIXED_NOREPLACE = 0x10_0000;

    MREMAP_MAYMOVE = 1;
    MREMAP_FIXED = 2;
    MREMAP_DONTUNMAP = 4;

    MADV_NORMAL = 0;
    MADV_RANDOM = 1;
    MADV_SEQUENTIAL = 2;
    MADV_WILLNEED = 3;
    MADV_DONTNEED = 4;
    MADV_FREE = 8;
    MADV_REMOVE = 9;
    MADV_DONTFORK = 10;
    MADV_DOFORK = 11;
    MADV_MERGEABLE = 12;
    MADV_UNMERGEABLE = 13;
    MADV_HUGEPAGE = 14;
    MADV_NOHUGEPAGE = 15;
    MADV_DONTDUMP = 16;
    MADV_DODUMP = 17;
    MADV_WIPEONFORK = 18;
    MADV_KEEPONFORK = 19;
    MADV_COLD = 20;
    MADV_PAGEOUT = 21;
    MADV_POPULATE_READ = 22;
    MADV_POPULATE_WRITE = 23;
    MADV_DONTNEED_LOCKED = 24;

    MS_ASYNC = 1;
    MS_INVALIDATE = 2;
    MS_SYNC = 4;

    FALLOC_FL_KEEP_SIZE = 1;
    FALLOC_FL_PUNCH_HOLE = 2;

    UFFDIO_REGISTER_MODE_MISSING = 1;
    UFFDIO_REGISTER_MODE_WP = 2;
    UFFDIO_COPY_MODE_DONTWAKE = 1;
    UFFDIO_COPY_MODE_WP = 2;
    UFFDIO_ZEROPAGE_MODE_DONTWAKE = 1;
    UFFDIO_WRITEPROTECT_MODE_WP = 1;
    UFFDIO_WRITEPROTECT_MODE_DONTWAKE = 2;

    MLOCK_ONFAULT = 1;
    MCL_CURRENT = 1;
    MCL_FUTURE = 2;
    MCL_ONFAULT = 4;

    MPOL_DEFAULT = 0;
    MPOL_PREFERRED = 1;
    MPOL_BIND = 2;
    MPOL_INTERLEAVE = 3;
    MPOL_LOCAL = 4;
    MPOL_PREFERRED_MANY = 5;
    MPOL_F_STATIC_NODES = 1 << 15;
    MPOL_F_RELATIVE_NODES = 1 << 14;
    MPOL_F_NUMA_BALANCING = 1 << 13;
    MPOL_F_NODE = 1;
    MPOL_F_ADDR = 2;
    MPOL_F_MEMS_ALLOWED = 4;
    MPOL_MF_STRICT = 1;
    MPOL_MF_MOVE = 2;
    MPOL_MF_MOVE_ALL = 4;
}
