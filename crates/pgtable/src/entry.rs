//! The value of one entry.

mod nonpresent;

pub use nonpresent::NonPresent;

use crate::paging::{ByteOrder, Paging};
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
///
/// [`Bits::invalid`]: crate::Bits::invalid
/// [`Bits::read_only`]: crate::Bits::read_only
pub struct Pte<P: Paging> {
    /// As the manual numbers the bits, whatever the order of bytes in memory.
    raw: u64,
    format: PhantomData<fn() -> P>,
}

/// What a leaf entry lets user mode do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grant {
    /// A page is mapped without permissions (`PROT_NONE`).
    Nothing,
    /// Loads; instruction fetches alone where the entry says [`Exec::Only`].
    Read,
    /// Loads and stores.
    Write,
}

/// What a leaf entry that grants anything says of instruction fetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exec {
    /// None.
    No,
    /// What can be loaded can be fetched.
    Yes,
    /// Fetches, and no loads: *execute-only*. Of entries that grant no stores, in formats that have
    /// such entries ([`Bits::load`](crate::Bits::load)); in others it is [`Exec::Yes`].
    Only,
}

impl<P: Paging> Pte<P> {
    /// The empty leaf entry: nothing is mapped.
    #[inline(always)]
    #[must_use]
    pub fn none() -> Self {
        Self::of(P::tree()[0].none)
    }

    #[inline(always)]
    const fn of(raw: u64) -> Self {
        Self {
            raw,
            format: PhantomData,
        }
    }

    /// The empty entry of level `level`: nothing is mapped, and no table is linked.
    #[inline(always)]
    #[must_use]
    pub fn none_at(level: u32) -> Self {
        if P::shape().zero_is_none {
            Self::of(0)
        } else {
            Self::of(P::tree()[level as usize].none)
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
    pub fn table(pfn: Pfn, level: u32) -> Self {
        Self::of(P::tree()[level as usize].fixed | pfn.0 << P::bits().pfn_shift)
    }

    /// A leaf entry for frame `pfn`, used already (young), from which no instruction is fetched.
    #[must_use]
    pub fn page(pfn: Pfn, grant: Grant) -> Self {
        let raw = pfn.0 << P::bits().pfn_shift | P::tree()[0].fixed | P::bits().accessed;
        // Not stored to, until said otherwise.
        let not_yet = P::bits().read_only | P::bits().no_exec;
        Self::of(raw | not_yet | P::bits().load).with_grant(grant)
    }

    /// The leaf entry `self` as an entry above the leaves that maps a huge page, which begins with
    /// the frame that it names. Of a format without huge pages it is the same.
    #[must_use]
    pub fn huge(self) -> Self {
        match P::huge() {
            Some(huge) => Self::of(self.raw & !huge.clear | huge.set),
            None => self,
        }
    }

    /// The same, granting `grant` and no more.
    #[inline(always)]
    #[must_use]
    pub fn with_grant(self, grant: Grant) -> Self {
        let kept = self.settled() & !(P::bits().present | P::bits().write | P::bits().no_access);
        let bits = match grant {
            Grant::Nothing => P::bits().no_access,
            Grant::Read => P::bits().present,
            Grant::Write => P::bits().present | P::bits().write,
        };
        Self::sealed(kept | bits)
    }

    /// The same, with the right to fetch instructions or without it; what it grants else stays. The
    /// right goes with the entry, also where that grants nothing for now.
    #[inline(always)]
    #[must_use]
    pub fn with_exec(self, exec: Exec) -> Self {
        let b = P::bits();
        let neither = self.raw & !(b.of_exec() | b.load);
        Self::of(match exec {
            Exec::No => neither | b.no_exec | b.load,
            Exec::Yes => neither | b.exec | b.load,
            Exec::Only => neither | b.exec,
        })
    }

    /// What it says of instruction fetches: [`Exec::Yes`] where no bit says it.
    #[inline(always)]
    #[must_use]
    pub fn exec(self) -> Exec {
        if !self.is_exec() {
            Exec::No
        } else if self.is_loadable() {
            Exec::Yes
        } else {
            Exec::Only
        }
    }

    /// Whether instructions can be fetched from the page, if the entry grants anything.
    #[inline(always)]
    #[must_use]
    pub fn is_exec(self) -> bool {
        self.raw & P::bits().of_exec() == P::bits().exec
    }

    /// Whether the page can be loaded from, if the entry grants anything.
    #[inline(always)]
    #[must_use]
    pub fn is_loadable(self) -> bool {
        !P::bits().execute_only() || self.raw & P::bits().load != 0
    }

    /// Whether the entry grants this access.
    #[inline(always)]
    #[must_use]
    pub fn lets(self, access: Access) -> bool {
        let (loads, fetches) = (access == Access::Read, access == Access::Execute);
        let refused = !self.is_present()
            || self.grant() < access.needs()
            || fetches && !self.is_exec()
            || loads && !self.is_loadable();
        !refused
    }

    /// The same, used.
    #[inline(always)]
    #[must_use]
    pub fn young(self) -> Self {
        Self::sealed(self.settled() | P::bits().accessed)
    }

    /// The same, not used.
    #[must_use]
    pub fn old(self) -> Self {
        Self::sealed(self.settled() & !P::bits().accessed)
    }

    /// The same, stored to.
    #[inline(always)]
    #[must_use]
    pub fn dirty(self) -> Self {
        Self::sealed(self.settled() | P::bits().dirty)
    }

    /// The same, not stored to.
    #[must_use]
    pub fn clean(self) -> Self {
        Self::sealed(self.settled() & !P::bits().dirty)
    }

    /// The same, marked as the shared zero page.
    #[must_use]
    pub fn zero_page(self) -> Self {
        Self::of(self.raw | P::bits().zero_page)
    }

    /// The same, marked: stores to the page are for a userfaultfd's handler.
    #[must_use]
    pub fn uffd_wp(self) -> Self {
        Self::of(self.raw | P::bits().uffd_wp)
    }

    /// The same without that mark.
    #[must_use]
    pub fn without_uffd_wp(self) -> Self {
        Self::of(self.raw & !P::bits().uffd_wp)
    }

    /// What hardware that writes entries makes of it when it lets an access through. Such hardware
    /// knows its own bits only: "stored to" it may say by clearing `read_only`.
    #[inline(always)]
    #[must_use]
    pub fn used_by_hardware(self, access: Access) -> Self {
        let used = self.raw | P::bits().accessed;
        match access {
            Access::Read | Access::Execute => Self::of(used),
            Access::Write if P::bits().read_only != 0 => Self::of(used & !P::bits().read_only),
            Access::Write => Self::of(used | P::bits().dirty),
        }
    }

    /// Whether this leaf entry is empty.
    #[inline(always)]
    #[must_use]
    pub fn is_none(self) -> bool {
        self.raw == P::tree()[0].none
    }

    /// Whether this entry of level `level` is empty.
    #[inline(always)]
    #[must_use]
    pub fn is_none_at(self, level: u32) -> bool {
        self.raw == Self::none_at(level).raw
    }

    /// Whether this entry of level `level` (1 and up) points to a table: else it is empty, or says
    /// of one huge page what a leaf entry says of a page.
    #[inline(always)]
    #[must_use]
    pub fn is_table_at(self, level: u32) -> bool {
        match P::huge() {
            Some(huge) => self.raw & huge.mask == huge.table,
            None => !self.is_none_at(level),
        }
    }

    /// Whether it grants anything.
    #[inline(always)]
    #[must_use]
    pub fn is_present(self) -> bool {
        self.raw & P::bits().present != 0
    }

    /// Whether a page is mapped, accessible or not.
    #[inline(always)]
    #[must_use]
    pub fn is_mapped(self) -> bool {
        self.raw & (P::bits().present | P::bits().no_access) != 0
    }

    /// What a mapped leaf entry grants.
    #[inline(always)]
    #[must_use]
    pub fn grant(self) -> Grant {
        if self.raw & P::bits().present == 0 {
            Grant::Nothing
        } else if self.raw & P::bits().write == 0 {
            Grant::Read
        } else {
            Grant::Write
        }
    }

    /// Whether the page was used.
    #[inline(always)]
    #[must_use]
    pub fn is_young(self) -> bool {
        self.raw & P::bits().accessed != 0
    }

    /// Whether the page was stored to, as software or hardware says it.
    #[inline(always)]
    #[must_use]
    pub fn is_dirty(self) -> bool {
        self.settled() & P::bits().dirty != 0
    }

    /// Whether the entry maps the shared zero page.
    #[inline(always)]
    #[must_use]
    pub fn is_zero_page(self) -> bool {
        self.raw & P::bits().zero_page != 0
    }

    /// Whether stores to the page are for a userfaultfd's handler.
    #[inline(always)]
    #[must_use]
    pub fn is_uffd_wp(self) -> bool {
        self.raw & P::bits().uffd_wp != 0
    }

    /// The frame that a mapped entry or a table entry names.
    #[inline(always)]
    #[must_use]
    pub fn pfn(self) -> Pfn {
        Pfn((self.raw & P::bits().pfn_mask) >> P::bits().pfn_shift)
    }

    /// The bits, with what hardware said by clearing [`Bits::read_only`] said by the dirty bit too:
    /// it has to outlive the right to store.
    #[inline(always)]
    fn settled(self) -> u64 {
        let stored = P::bits().read_only != 0
            && self.raw & P::bits().write != 0
            && self.raw & P::bits().read_only == 0;
        if stored {
            self.raw | P::bits().dirty
        } else {
            self.raw
        }
    }

    /// An entry of these bits, with [`Bits::invalid`] and [`Bits::read_only`] as they follow.
    #[inline(always)]
    fn sealed(mut raw: u64) -> Self {
        if P::bits().invalid != 0 {
            raw |= P::bits().invalid;
            if raw & P::bits().present != 0 && raw & P::bits().accessed != 0 {
                raw &= !P::bits().invalid;
            }
        }
        if P::bits().read_only != 0 {
            raw |= P::bits().read_only;
            if raw & P::bits().write != 0 && raw & P::bits().dirty != 0 {
                raw &= !P::bits().read_only;
            }
        }
        // INVARIANT: both follow now.
        Self::of(raw)
    }
}

/// Between an entry's bits and the word that lies in memory, either way.
#[inline(always)]
fn in_memory<P: Paging>(wide: u64) -> u64 {
    let narrow = size_of::<P::Word>() == 4;
    match P::bytes() {
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
            Grant::Read if !self.is_loadable() => "only ",
            Grant::Read => "r-",
            Grant::Write => "rw",
        };
        let has_bit = P::bits().of_exec() != 0;
        let exec = if has_bit && self.is_exec() { "x" } else { "" };
        let young = if self.is_young() { "a" } else { "-" };
        let dirty = if self.is_dirty() { "d" } else { "-" };
        if self.is_zero_page() {
            write!(f, "zero page {grant}{exec}{young}{dirty}")
        } else {
            write!(f, "frame {} {grant}{exec}{young}{dirty}", self.pfn())
        }
    }
}
