//! Page faults of programs: what the CPU said, what comes of it.

use crate::bringup;

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
}

/// Why an access cannot go on: the program's signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// `SIGSEGV` with `SEGV_MAPERR`: nothing is mapped there.
    MapError,
    /// `SIGSEGV` with `SEGV_ACCERR`: what is mapped there does not allow it.
    AccessError,
    /// No memory to resolve it with.
    OutOfMemory,
}

/// Resolves a fault of the active program, by itself or by a copy on its behalf.
pub(crate) fn resolve(addr: u64, access: Access) -> Result<(), Signal> {
    bringup::fault(addr, access)
}
