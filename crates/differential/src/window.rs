//! The window: the addresses that steps use. The tables of a top-level entry end in its middle.

use minflt_addr::{VirtAddr, VirtRange};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Pages of the window.
pub const PAGES: u64 = 96;
/// Its first address.
pub const START: u64 = (1 << 46) - PAGES / 2 * PAGE;
/// The first address behind it.
pub const END: u64 = START + PAGES * PAGE;
/// Where the heap starts.
pub const HEAP: u64 = START + 40 * PAGE;

/// The window as a range.
#[must_use]
pub const fn range() -> VirtRange {
    VirtRange::new(VirtAddr(START), VirtAddr(END))
}

/// The page of the window that `addr` is in.
#[must_use]
pub const fn page_of(addr: u64) -> u64 {
    (addr - START) / PAGE
}
