//! The value of one entry.

mod nonpresent;

pub use nonpresent::NonPresent;

use crate::paging::{Bits, ByteOrder, Paging};
use crate::walk::Access;
use core::fmt;
use core::marker::PhantomData;
use minflt_addr::Pfn;
use minflt_sync::Word;

/// The value of an entry of format `P`, read in one access.
///
/// # Invariants
/// In a leaf entry that maps a page, [`Bits::invalid`] and [`Bits::read_only`] are what follows
/// from the other bits, or what the hardware made of that.
pub struct Pte<P: Paging> {
    /// As the manual numbers the bits, whatever the order of bytes in memory.
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

    /// The empty leaf entry: nothing is mapped.
    pub const NONE: Self = Self::of(P::TREE[0].none);

    #[inline(always)]
    const fn of(raw: u64) -> Self {
        Self {
            raw,
            format: PhantomData,
        }
    }

    /// The empty entry of level `level`: nothing is mapped there, and no table stands below.
    #[inline(always)]
    #[must_use]
    pub const fn none_at(level: u32) -> Self {
        if const { P::SHAPE.zero_is_none } {
            Self::of(0)
        } else {
            Self::of(P::TREE[level as usize].none)
        }
    }

    /// The value read from a table.
    #[inline(always)]
    #[must_use]
    pub fn from_word(word: P::Word) -> Self {
        Self::of(in_memory::<P>(word.wide()))
    }

    /// The value to write to a table.
    #[inline(always)]
    #[must_use]
    pub fn word(self) -> P::Word {
        P::Word::narrow(in_memory::<P>(self.raw))
    }

    /// The value as the manual numbers its bits.
    #[inline(always)]
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.raw
    }

    /// An entry of level `level` (1 and up) that points to the table that begins in frame `pfn`.
    #[must_use]
    pub const fn table(pfn: Pfn, level: u32) -> Self {
        Self::of(P::TREE[level as usize].fixed | pfn.0 << Self::B.pfn_shift)
    }

    /// A leaf entry for frame `pfn`, used already (young).
    #[must_use]
    pub const fn page(pfn: Pfn, grant: Grant) -> Self {
        let raw = pfn.0 << Self::B.pfn_shift | P::TREE[0].fixed | Self::B.accessed;
        // Not stored to, until said otherwise.
        Self::of(raw | Self::B.read_only).with_grant(grant)
    }

    /// The leaf entry `self` as an entry of level 1 that maps a huge page, which begins with the
    /// frame that it names. Of a format without huge pages it is the same.
    #[must_use]
    pub const fn huge(self) -> Self {
        match P::HUGE {
            Some(huge) => Self::of(self.raw & !huge.clear | huge.set),
            None => self,
        }
    }

    /// The same, granting `grant` and no more.
    #[inline(always)]
    #[must_use]
    pub const fn with_grant(self, grant: Grant) -> Self {
        let kept = self.settled() & !(Self::B.present | Self::B.write | Self::B.no_access);
        let bits = match grant {
            Grant::Nothing => Self::B.no_access,
            Grant::Read => Self::B.present,
            Grant::Write => Self::B.present | Self::B.write,
        };
        Self::sealed(kept | bits)
    }

    /// The same, used.
    #[inline(always)]
    #[must_use]
    pub const fn young(self) -> Self {
        Self::sealed(self.settled() | Self::B.accessed)
    }

    /// The same, not used.
    #[must_use]
    pub const fn old(self) -> Self {
        Self::sealed(self.settled() & !Self::B.accessed)
    }

    /// The same, stored to.
    #[inline(always)]
    #[must_use]
    pub const fn dirty(self) -> Self {
        Self::sealed(self.settled() | Self::B.dirty)
    }

    /// The same, not stored to.
    #[must_use]
    pub const fn clean(self) -> Self {
        Self::sealed(self.settled() & !Self::B.dirty)
    }

    /// The same, marked as the shared page of zeros.
    #[must_use]
    pub const fn zero_page(self) -> Self {
        Self::of(self.raw | Self::B.zero_page)
    }

    /// The same, marked: stores to the page are for a userfaultfd's handler.
    #[must_use]
    pub const fn uffd_wp(self) -> Self {
        Self::of(self.raw | Self::B.uffd_wp)
    }

    /// The same without that mark.
    #[must_use]
    pub const fn without_uffd_wp(self) -> Self {
        Self::of(self.raw & !Self::B.uffd_wp)
    }

    /// What hardware that writes entries makes of it when it lets an access through. Such hardware
    /// knows its own bits only: "stored to" it may say by clearing [`Bits::read_only`].
    #[inline(always)]
    #[must_use]
    pub const fn used_by_hardware(self, access: Access) -> Self {
        let used = self.raw | Self::B.accessed;
        match access {
            Access::Read => Self::of(used),
            Access::Write if Self::B.read_only != 0 => Self::of(used & !Self::B.read_only),
            Access::Write => Self::of(used | Self::B.dirty),
        }
    }

    /// Whether nothing at all stands in this leaf entry.
    #[inline(always)]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.raw == P::TREE[0].none
    }

    /// Whether nothing stands in this entry of level `level`.
    #[inline(always)]
    #[must_use]
    pub const fn is_none_at(self, level: u32) -> bool {
        self.raw == Self::none_at(level).raw
    }

    /// Whether this entry of level `level` (1 and up) points to a table: else it is empty, or says
    /// of one huge page what a leaf entry says of a page.
    #[inline(always)]
    #[must_use]
    pub const fn is_table_at(self, level: u32) -> bool {
        match P::HUGE {
            Some(huge) => self.raw & huge.mask == huge.table,
            None => !self.is_none_at(level),
        }
    }

    /// Whether it grants anything.
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

    /// Whether the page was stored to, as software or hardware says it.
    #[inline(always)]
    #[must_use]
    pub const fn is_dirty(self) -> bool {
        self.settled() & Self::B.dirty != 0
    }

    /// Whether the entry maps the shared page of zeros.
    #[inline(always)]
    #[must_use]
    pub const fn is_zero_page(self) -> bool {
        self.raw & Self::B.zero_page != 0
    }

    /// Whether stores to the page are for a userfaultfd's handler.
    #[inline(always)]
    #[must_use]
    pub const fn is_uffd_wp(self) -> bool {
        self.raw & Self::B.uffd_wp != 0
    }

    /// The frame that a mapped entry or a table entry names.
    #[inline(always)]
    #[must_use]
    pub const fn pfn(self) -> Pfn {
        Pfn((self.raw & Self::B.pfn_mask) >> Self::B.pfn_shift)
    }

    /// The bits, with what hardware said by clearing [`Bits::read_only`] said by the dirty bit too:
    /// it has to outlive the right to store.
    #[inline(always)]
    const fn settled(self) -> u64 {
        let stored = Self::B.read_only != 0
            && self.raw & Self::B.write != 0
            && self.raw & Self::B.read_only == 0;
        if stored {
            self.raw | Self::B.dirty
        } else {
            self.raw
        }
    }

    /// An entry of these bits, with [`Bits::invalid`] and [`Bits::read_only`] as they follow.
    #[inline(always)]
    const fn sealed(mut raw: u64) -> Self {
        if Self::B.invalid != 0 {
            raw |= Self::B.invalid;
            if raw & Self::B.present != 0 && raw & Self::B.accessed != 0 {
                raw &= !Self::B.invalid;
            }
        }
        if Self::B.read_only != 0 {
            raw |= Self::B.read_only;
            if raw & Self::B.write != 0 && raw & Self::B.dirty != 0 {
                raw &= !Self::B.read_only;
            }
        }
        // INVARIANT: both follow now.
        Self::of(raw)
    }
}

/// Between an entry's bits and the word that lies in memory, either way.
#[inline(always)]
const fn in_memory<P: Paging>(wide: u64) -> u64 {
    let narrow = size_of::<P::Word>() == 4;
    match P::BYTES {
        ByteOrder::Little if narrow => (wide as u32).to_le() as u64,
        ByteOrder::Little => wide.to_le(),
        ByteOrder::Big if narrow => (wide as u32).to_be() as u64,
        ByteOrder::Big => wide.to_be(),
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
            return nonpresent::show(*self, f);
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
