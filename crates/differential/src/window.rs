//! The window: the addresses that steps use. The tables of a top-level entry end in its middle.

use crate::step::Step;
use minflt_addr::{VirtAddr, VirtRange};
pub use minflt_spec::HUGE;

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

/// Which window a case has: of each a process sees one only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// That of pages.
    Small,
    /// That of huge pages.
    Huge,
}

/// Huge pages of the machine.
pub const POOL: u64 = 16;
/// Huge pages of the window of huge pages.
pub const HUGE_PAGES: u64 = 528;
/// Its first address: what follows its first eight pages is an interval of one table, whole.
pub const HUGE_START: u64 = (1 << 45) - 8 * HUGE;
/// The first address behind it.
pub const HUGE_END: u64 = HUGE_START + HUGE_PAGES * HUGE;
/// Huge pages that steps use, at either end of the window: so many have a bit in a record.
pub const HOT: u64 = 28;

/// The number in the window of the huge page that has this bit.
#[must_use]
pub const fn hot(bit: u64) -> u64 {
    if bit < HOT / 2 {
        bit
    } else {
        HUGE_PAGES - HOT + bit
    }
}

impl Window {
    /// The window that a case has.
    #[must_use]
    pub fn of(steps: &[Step]) -> Self {
        match steps.iter().any(Step::is_of_huge_pages) {
            true => Self::Huge,
            false => Self::Small,
        }
    }

    /// It as a range.
    #[must_use]
    pub const fn range(self) -> VirtRange {
        match self {
            Self::Small => range(),
            Self::Huge => VirtRange::new(VirtAddr(HUGE_START), VirtAddr(HUGE_END)),
        }
    }

    /// Whether the page, or huge page, at `addr` is in it.
    #[must_use]
    pub const fn has(self, addr: u64) -> bool {
        let range = self.range();
        range.start().0 <= addr && addr < range.end().0
    }
}
