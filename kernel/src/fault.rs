//! What the CPU says of a page fault.

use minflt_pgtable::Access as DataAccess;

/// What an access tried to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A load.
    Read,
    /// A store, or both.
    Write,
    /// An instruction fetch.
    Execute,
}

impl Access {
    /// From the error code the CPU pushes. A reserved bit in an entry is the kernel's own bug.
    pub(crate) fn from_error_code(code: u64) -> Self {
        const WRITE: u64 = 1 << 1;
        const RESERVED: u64 = 1 << 3;
        const FETCH: u64 = 1 << 4;
        assert_eq!(
            code & RESERVED,
            0,
            "a page-table entry has a reserved bit set"
        );
        if code & FETCH != 0 {
            Self::Execute
        } else if code & WRITE != 0 {
            Self::Write
        } else {
            Self::Read
        }
    }

    /// The access as far as `minflt-mm` knows them: to fetch is to load.
    pub(crate) const fn data(self) -> DataAccess {
        match self {
            Self::Read | Self::Execute => DataAccess::Read,
            Self::Write => DataAccess::Write,
        }
    }
}
