//! Numbers of the Linux ABI: system calls, errors, flags.

/// `write(fd, buf, count)`.
pub(crate) const WRITE: u64 = 1;
/// `mmap(addr, length, prot, flags, fd, offset)`.
pub(crate) const MMAP: u64 = 9;
/// `mprotect(addr, length, prot)`.
pub(crate) const MPROTECT: u64 = 10;
/// `munmap(addr, length)`.
pub(crate) const MUNMAP: u64 = 11;
/// `madvise(addr, length, advice)`.
pub(crate) const MADVISE: u64 = 28;
/// `exit(status)`.
pub(crate) const EXIT: u64 = 60;
/// `exit_group(status)`.
pub(crate) const EXIT_GROUP: u64 = 231;
/// `getcpu(cpu, node, unused)`.
pub(crate) const GETCPU: u64 = 309;

/// `MADV_DONTNEED`.
pub(crate) const MADV_DONTNEED: u64 = 4;

/// `MAP_PRIVATE`.
pub(crate) const MAP_PRIVATE: u64 = 0x02;
/// `MAP_FIXED`.
pub(crate) const MAP_FIXED: u64 = 0x10;
/// `MAP_ANONYMOUS`.
pub(crate) const MAP_ANONYMOUS: u64 = 0x20;

/// `AT_NULL`: ends the auxiliary vector.
pub(crate) const AT_NULL: u64 = 0;
/// `AT_PAGESZ`: the page size.
pub(crate) const AT_PAGESZ: u64 = 6;
/// `AT_ENTRY`: the program's entry point.
pub(crate) const AT_ENTRY: u64 = 9;

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(u16);

impl Errno {
    /// Bad file descriptor.
    pub(crate) const EBADF: Self = Self(9);
    /// Out of memory, or a range that is not mapped.
    pub(crate) const ENOMEM: Self = Self(12);
    /// Bad address.
    pub(crate) const EFAULT: Self = Self(14);
    /// Invalid argument.
    pub(crate) const EINVAL: Self = Self(22);
    /// No such system call.
    pub(crate) const ENOSYS: Self = Self(38);

    /// The word a failed system call returns.
    pub(crate) const fn to_result(self) -> u64 {
        (self.0 as u64).wrapping_neg()
    }
}

/// What a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prot(u8);

impl Prot {
    /// `PROT_NONE`.
    pub(crate) const NONE: Self = Self(0);
    /// `PROT_READ`.
    pub(crate) const READ: Self = Self(1);
    /// `PROT_WRITE`.
    pub(crate) const WRITE: Self = Self(2);
    /// `PROT_EXEC`.
    pub(crate) const EXEC: Self = Self(4);

    /// From a system call's argument; `None` where unknown bits are set.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        (bits & !7 == 0).then_some(Self(bits as u8))
    }

    /// Both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is allowed.
    pub(crate) const fn allows(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether anything is allowed.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}
