//! The value of one entry.

use crate::paging::{Bits, Paging};
use core::fmt;
use core::marker::PhantomData;
use minflt_addr::Pfn;
use minflt_sync::Word;

/// The value of an entry of format `P`, read in one access.
pub struct Pte<P: Paging> {
    raw: u64,
    format: PhantomData<fn() -> P>,
}

/// What a leaf entry lets user mode do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grant {
    /// A page is mapped that nobody may access now.
    Nothing,
    /// Loads.
    Read,
    /// Loads and stores.
    Write,
}

impl<P: Paging> Pte<P> {
    const B: Bits = P::BITS;

    /// The empty entry: nothing is mapped.
    pub const NONE: Self = Self {
        raw: 0,
        format: PhantomData,
    };

    /// The value read from a table.
    #[inline(always)]
    #[must_use]
    pub fn from_word(word: P::Word) -> Self {
        Self {
            raw: word.wide(),
            format: PhantomData,
        }
    }

    /// The value to write to a table.
    #[inline(always)]
    #[must_use]
    pub fn word(self) -> P::Word {
        P::Word::narrow(self.raw)
    }

    /// An entry that points to the table in frame `pfn`.
    #[must_use]
    pub const fn table(pfn: Pfn) -> Self {
        Self {
            raw: Self::B.table | pfn.0 << Self::B.pfn_shift,
            format: PhantomData,
        }
    }

    /// A leaf entry for frame `pfn`, used already (young).
    #[must_use]
    pub const fn page(pfn: Pfn, grant: Grant) -> Self {
        let raw = pfn.0 << Self::B.pfn_shift | Self::B.user | Self::B.accessed;
        Self {
            raw,
            format: PhantomData,
        }
        .with_grant(grant)
    }

    /// The same, granting `grant` and no more.
    #[inline(always)]
    #[must_use]
    pub const fn with_grant(self, grant: Grant) -> Self {
        let bare = self.raw & !(Self::B.present | Self::B.write | Self::B.no_access);
        let bits = match grant {
            Grant::Nothing => Self::B.no_access,
            Grant::Read => Self::B.present,
            Grant::Write => Self::B.present | Self::B.write,
        };
        Self {
            raw: bare | bits,
            format: PhantomData,
        }
    }

    /// The same, used.
    #[inline(always)]
    #[must_use]
    pub const fn young(self) -> Self {
        Self {
            raw: self.raw | Self::B.accessed,
            format: PhantomData,
        }
    }

    /// The same, not used.
    #[must_use]
    pub const fn old(self) -> Self {
        Self {
            raw: self.raw & !Self::B.accessed,
            format: PhantomData,
        }
    }

    /// The same, stored to.
    #[inline(always)]
    #[must_use]
    pub const fn dirty(self) -> Self {
        Self {
            raw: self.raw | Self::B.dirty,
            format: PhantomData,
        }
    }

    /// The same, marked as the shared page of zeros.
    #[must_use]
    pub const fn zero_page(self) -> Self {
        Self {
            raw: self.raw | Self::B.zero_page,
            format: PhantomData,
        }
    }

    /// Whether nothing at all stands here.
    #[inline(always)]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.raw == 0
    }

    /// Whether the hardware may use the entry.
    #[inline(always)]
    #[must_use]
    pub const fn is_present(self) -> bool {
        self.raw & Self::B.present != 0
    }

    /// Whether a page is mapped, accessible or not.
    #[inline(always)]
    #[must_use]
    pub const fn is_mapped(self) -> bool {
        self.raw & (Self::B.present | Self::B.no_access) != 0
    }

    /// What a mapped leaf entry grants.
    #[inline(always)]
    #[must_use]
    pub const fn grant(self) -> Grant {
        if self.raw & Self::B.present == 0 {
            Grant::Nothing
        } else if self.raw & Self::B.write == 0 {
            Grant::Read
        } else {
            Grant::Write
        }
    }

    /// Whether the page was used.
    #[inline(always)]
    #[must_use]
    pub const fn is_young(self) -> bool {
        self.raw & Self::B.accessed != 0
    }

    /// Whether the page was stored to.
    #[inline(always)]
    #[must_use]
    pub const fn is_dirty(self) -> bool {
        self.raw & Self::B.dirty != 0
    }

    /// Whether the entry maps the shared page of zeros.
    #[inline(always)]
    #[must_use]
    pub const fn is_zero_page(self) -> bool {
        self.raw & Self::B.zero_page != 0
    }

    /// The frame that a mapped entry or a table entry names.
    #[inline(always)]
    #[must_use]
    pub const fn pfn(self) -> Pfn {
        Pfn((self.raw & Self::B.pfn_mask) >> Self::B.pfn_shift)
    }
}

impl<P: Paging> Clone for Pte<P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Paging> Copy for Pte<P> {}

impl<P: Paging> PartialEq for Pte<P> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<P: Paging> Eq for Pte<P> {}

impl<P: Paging> fmt::Debug for Pte<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        if !self.is_mapped() {
            return write!(f, "{:#x}", self.raw);
        }
        let grant = match self.grant() {
            Grant::Nothing => "--",
            Grant::Read => "r-",
            Grant::Write => "rw",
        };
        let young = if self.is_young() { "a" } else { "-" };
        let dirty = if self.is_dirty() { "d" } else { "-" };
        if self.is_zero_page() {
            write!(f, "zero page {grant}{young}{dirty}")
        } else {
            write!(f, "frame {} {grant}{young}{dirty}", self.pfn())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Grant, Pte};
    use crate::paging::{Altix16K, Paging, X86_64};
    use minflt_addr::Pfn;

    fn round_trip<P: Paging>() {
        for grant in [Grant::Nothing, Grant::Read, Grant::Write] {
            let pte = Pte::<P>::page(Pfn(0x1234_5678), grant).dirty();
            let back = Pte::<P>::from_word(pte.word());
            assert_eq!(back.pfn(), Pfn(0x1234_5678));
            assert_eq!(back.grant(), grant);
            assert!(back.is_mapped() && back.is_dirty() && back.is_young());
            assert_eq!(back.is_present(), grant != Grant::Nothing);
            assert!(!back.old().is_young());
            assert_eq!(back.with_grant(Grant::Write).with_grant(grant), back);
        }
        assert!(Pte::<P>::NONE.is_none() && !Pte::<P>::NONE.is_mapped());
        assert_eq!(Pte::<P>::table(Pfn(77)).pfn(), Pfn(77));
        assert!(
            Pte::<P>::page(Pfn(1), Grant::Read)
                .zero_page()
                .is_zero_page()
        );
    }

    #[test]
    fn every_format_keeps_what_it_is_given() {
        round_trip::<X86_64>();
        round_trip::<Altix16K>();
    }

    #[test]
    fn the_bits_of_a_format_do_not_overlap() {
        fn disjoint<P: Paging>() {
            let b = P::BITS;
            let bits = [
                b.present,
                b.write,
                b.user,
                b.accessed,
                b.dirty,
                b.no_access,
                b.zero_page,
                b.pfn_mask,
            ];
            let sum = bits.iter().fold(0u64, |all, bit| {
                assert_eq!(all & bit, 0, "{}", P::NAME);
                all | bit
            });
            assert_ne!(sum, 0);
        }
        disjoint::<X86_64>();
        disjoint::<Altix16K>();
    }
}
