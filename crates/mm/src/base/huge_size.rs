//! Huge page sizes: what one entry above the leaf level maps.

use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Paging, span_of, span_shift};

/// A size of huge pages, by the level of the entries that map one.
///
/// Linux: `struct hstate`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HugeSize {
    /// What an entry of level 1 maps: 2 MiB on x86-64. Their tables can be shared.
    Large,
    /// What an entry of level 2 maps: 1 GiB on x86-64.
    Giant,
}

impl HugeSize {
    /// All of them, the smallest first.
    pub const ALL: [Self; 2] = [Self::Large, Self::Giant];

    /// The level of the entries that map one.
    #[inline(always)]
    pub(crate) const fn level(self) -> u32 {
        match self {
            Self::Large => 1,
            Self::Giant => 2,
        }
    }

    /// Whether a format has such pages.
    #[must_use]
    pub fn exists<P: Paging>(self) -> bool {
        P::huge().is_some_and(|huge| self.level() <= huge.top)
    }

    /// The size that has 2 to the power of `shift` bytes, if the format has it.
    #[must_use]
    pub fn of_shift<P: Paging>(shift: u32) -> Option<Self> {
        let fits = |size: &Self| size.exists::<P>() && size.shift::<P>() == shift;
        Self::ALL.into_iter().find(fits)
    }

    /// 2 to the power of this are the pages of one.
    #[inline(always)]
    pub(crate) fn order<P: Paging>(self) -> u32 {
        self.shift::<P>() - P::shift()
    }

    /// Its bytes, as a power of two.
    #[inline(always)]
    #[must_use]
    pub fn shift<P: Paging>(self) -> u32 {
        span_shift::<P>(self.level())
    }

    /// Its bytes.
    #[inline(always)]
    #[must_use]
    pub fn bytes<P: Paging>(self) -> u64 {
        1 << self.shift::<P>()
    }

    /// The huge page at `addr`.
    pub(crate) fn page_at<P: Paging>(self, addr: VirtAddr) -> VirtRange {
        span_of::<P>(addr, self.level())
    }

    /// The huge pages of a range whose ends are multiples of them.
    pub(crate) fn pages_of<P: Paging>(self, range: VirtRange) -> u64 {
        range.pages(self.shift::<P>())
    }

    /// The huge pages of a range that starts with one, each as a range.
    pub(crate) fn pages<P: Paging>(self, range: VirtRange) -> impl Iterator<Item = VirtRange> {
        let bytes = self.bytes::<P>();
        let at = move |page| VirtAddr(range.start().0 + page * bytes);
        (0..range.len().div_ceil(bytes)).map(move |page| VirtRange::new(at(page), at(page + 1)))
    }

    /// Whether `addr` is where one starts.
    pub(crate) fn is_aligned<P: Paging>(self, addr: VirtAddr) -> bool {
        addr.is_aligned(self.shift::<P>())
    }
}
