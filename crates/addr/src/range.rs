//! Half-open ranges of virtual addresses.

use crate::VirtAddr;
use core::fmt;

/// The addresses from `start` up to, not including, `end`.
///
/// # Invariants
/// `start <= end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VirtRange {
    start: VirtAddr,
    end: VirtAddr,
}

impl VirtRange {
    /// The range `[start, end)`; empty when `end` lies before `start`.
    #[must_use]
    #[inline(always)]
    pub const fn new(start: VirtAddr, end: VirtAddr) -> Self {
        // INVARIANT: `end` is raised to `start`.
        Self {
            start,
            end: if end.0 < start.0 { start } else { end },
        }
    }

    /// The `len` bytes from `start` on, or `None` when they pass the end of the address space.
    #[must_use]
    #[inline(always)]
    pub const fn from_len(start: VirtAddr, len: u64) -> Option<Self> {
        match start.checked_add(len) {
            Some(end) => Some(Self::new(start, end)),
            None => None,
        }
    }

    /// The first address.
    #[must_use]
    #[inline(always)]
    pub const fn start(self) -> VirtAddr {
        self.start
    }

    /// The first address after the range.
    #[must_use]
    #[inline(always)]
    pub const fn end(self) -> VirtAddr {
        self.end
    }

    /// The length in bytes.
    #[must_use]
    #[inline(always)]
    pub const fn len(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether there is no address in the range.
    #[must_use]
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.start.0 == self.end.0
    }

    /// The length in whole pages of `1 << shift` bytes.
    #[must_use]
    #[inline(always)]
    pub const fn pages(self, shift: u32) -> u64 {
        self.len() >> shift
    }

    /// Whether `addr` lies in the range.
    #[must_use]
    #[inline(always)]
    pub const fn contains(self, addr: VirtAddr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end.0
    }

    /// Whether every address of `other` lies in the range.
    #[must_use]
    #[inline(always)]
    pub const fn covers(self, other: Self) -> bool {
        self.start.0 <= other.start.0 && other.end.0 <= self.end.0
    }

    /// Whether the ranges share an address.
    #[must_use]
    #[inline(always)]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0
    }

    /// The addresses in both ranges; empty when there are none.
    #[must_use]
    #[inline(always)]
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
}

impl fmt::Debug for VirtRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

impl fmt::Display for VirtRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::VirtRange;
    use crate::VirtAddr;

    fn range(start: u64, end: u64) -> VirtRange {
        VirtRange::new(VirtAddr(start), VirtAddr(end))
    }

    #[test]
    fn overlap_is_half_open() {
        // AAAA
        //     BBBB
        assert!(!range(0, 4).overlaps(range(4, 8)));
        assert!(range(0, 5).overlaps(range(4, 8)));
        assert!(range(0, 4).intersect(range(4, 8)).is_empty());
        assert_eq!(range(0, 6).intersect(range(4, 8)), range(4, 6));
    }

    #[test]
    fn a_range_past_the_end_is_refused() {
        assert_eq!(VirtRange::from_len(VirtAddr(u64::MAX - 1), 4), None);
        assert!(range(0, 8).covers(range(2, 8)));
        assert!(!range(0, 8).covers(range(2, 9)));
    }
}
