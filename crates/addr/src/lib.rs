//! Addresses, frame numbers, page offsets and ranges.
//!
//! No page size lives here: whoever turns bytes into pages passes the shift of its own paging
//! format, because the project models 4, 16 and 64 KiB pages side by side.
#![no_std]
#![forbid(unsafe_code)]

mod range;

pub use range::VirtRange;

use core::fmt;

/// A user virtual address, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VirtAddr(pub u64);

/// A physical address of one machine, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PhysAddr(pub u64);

/// A physical frame number: a physical address divided by the machine's page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pfn(pub u64);

/// An offset within a mapped object, in pages of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PgOff(pub u64);

impl VirtAddr {
    /// The address rounded down to a multiple of `1 << shift` bytes.
    #[must_use]
    #[inline(always)]
    pub const fn align_down(self, shift: u32) -> Self {
        Self(self.0 >> shift << shift)
    }

    /// The address rounded up to a multiple of `1 << shift` bytes, or `None` past the end.
    #[must_use]
    #[inline(always)]
    pub const fn align_up(self, shift: u32) -> Option<Self> {
        match self.0.checked_add((1 << shift) - 1) {
            Some(sum) => Some(Self(sum >> shift << shift)),
            None => None,
        }
    }

    /// Whether the address is a multiple of `1 << shift` bytes.
    #[must_use]
    #[inline(always)]
    pub const fn is_aligned(self, shift: u32) -> bool {
        self.0 & ((1 << shift) - 1) == 0
    }

    /// The offset within the page of `1 << shift` bytes.
    #[must_use]
    #[inline(always)]
    pub const fn page_offset(self, shift: u32) -> u64 {
        self.0 & ((1 << shift) - 1)
    }

    /// The virtual page number for pages of `1 << shift` bytes.
    #[must_use]
    #[inline(always)]
    pub const fn page(self, shift: u32) -> u64 {
        self.0 >> shift
    }

    /// The address `bytes` further on, or `None` past the end of the address space.
    #[must_use]
    #[inline(always)]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

impl PhysAddr {
    /// The frame that holds the address, for pages of `1 << shift` bytes.
    #[must_use]
    #[inline(always)]
    pub const fn pfn(self, shift: u32) -> Pfn {
        Pfn(self.0 >> shift)
    }
}

impl Pfn {
    /// The first byte of the frame, for pages of `1 << shift` bytes.
    #[must_use]
    #[inline(always)]
    pub const fn phys(self, shift: u32) -> PhysAddr {
        PhysAddr(self.0 << shift)
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phys {:#x}", self.0)
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}", self.0)
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for PgOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Pfn, PhysAddr, VirtAddr};

    #[test]
    fn aligning_uses_the_callers_page_size() {
        let addr = VirtAddr(0x1_2345);
        assert_eq!(addr.align_down(12), VirtAddr(0x1_2000));
        assert_eq!(addr.align_down(14), VirtAddr(0x1_0000));
        assert_eq!(addr.align_up(14), Some(VirtAddr(0x1_4000)));
        assert_eq!(VirtAddr(u64::MAX).align_up(12), None);
        assert_eq!(addr.page_offset(12), 0x345);
    }

    #[test]
    fn frames_and_physical_addresses_agree() {
        assert_eq!(Pfn(3).phys(14), PhysAddr(0xc000));
        assert_eq!(PhysAddr(0xffff).pfn(14), Pfn(3));
    }
}
