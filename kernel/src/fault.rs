//! What the CPU says of a page fault.

use minflt_pgtable::Access;

/// The access, from the error code that the CPU pushes. A reserved bit in an entry is the kernel's
/// own bug.
pub(crate) fn access(code: u64) -> Access {
    const WRITE: u64 = 1 << 1;
    const RESERVED: u64 = 1 << 3;
    const FETCH: u64 = 1 << 4;
    assert_eq!(
        code & RESERVED,
        0,
        "a page-table entry has a reserved bit set"
    );
    if code & FETCH != 0 {
        Access::Execute
    } else if code & WRITE != 0 {
        Access::Write
    } else {
        Access::Read
    }
}
