//! Migration and swap entries: non-present entries whose page is being migrated to another frame,
//! or is on a swap device.
//!
//! The hardware ignores all bits of an invalid entry, so software defines their meaning. It is the
//! empty entry with a number in the frame's field and a code in the four bits that every format has
//! for "shared zero page", "granting stores", "accessed" and "dirty":
//!
//! ```text
//! zeros write  accessed dirty
//!   1   stores  young   dirty    the page is migrating from this frame; loads are allowed
//!   0     1     young   dirty    the same, without any access permission
//!   0     0       -       1      the page lies in the slot of this number
//!   0     0       1       0      free
//! ```
//! A migration entry keeps all bits of the PTE, protection included: mprotect lowers the protection
//! here, too, and restoring the PTE needs no VMA. The userfaultfd write-protect bit is kept in
//! both.

use super::{Grant, Pte};
use crate::paging::Paging;
use core::fmt;
use minflt_addr::Pfn;

/// What a non-present entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NonPresent {
    /// The page is migrating from this frame to another: faults wait. Linux: a migration entry.
    Migration(Pfn),
    /// The page is in this slot of a swap device. Linux: a swap entry.
    Swap(u64),
}

impl<P: Paging> Pte<P> {
    /// Swap slots that an entry can name: those below this number.
    #[must_use]
    pub fn slots() -> u64 {
        (P::bits().pfn_mask >> P::bits().pfn_shift) + 1
    }

    /// The migration entry that replaces the mapped entry `self`.
    #[must_use]
    pub fn migration(self) -> Self {
        let (old, b) = (self.settled(), P::bits());
        let rights = b.of_exec() | b.load;
        let kept = old & (b.pfn_mask | b.accessed | b.dirty | b.uffd_wp | rights);
        Self::of(P::tree()[0].none | kept).granting_later(self.grant())
    }

    /// The swap entry that replaces the mapped entry `self`, whose page is in `slot`, which is
    /// below [`Self::slots`].
    #[must_use]
    pub fn swapped(self, slot: u64) -> Self {
        let kept = self.raw & P::bits().uffd_wp;
        Self::of(P::tree()[0].none | slot << P::bits().pfn_shift | P::bits().dirty | kept)
    }

    /// The mapped entry that comes in place of the migration entry `self`, whose page is in frame
    /// `pfn` now.
    #[must_use]
    pub fn migrated(self, pfn: Pfn) -> Self {
        let page = Self::page(pfn, self.grant_later());
        let page = if self.is_young() { page } else { page.old() };
        let page = if self.raw & P::bits().dirty == 0 {
            page
        } else {
            page.dirty()
        };
        Self::of(page.raw | self.raw & P::bits().uffd_wp).with_exec(self.exec())
    }

    /// What it says, if it is neither empty nor maps a page.
    #[inline]
    #[must_use]
    pub fn nonpresent(self) -> Option<NonPresent> {
        if self.is_none() || self.is_mapped() {
            return None;
        }
        let number = (self.raw & P::bits().pfn_mask) >> P::bits().pfn_shift;
        Some(if self.raw & (P::bits().zero_page | P::bits().write) == 0 {
            NonPresent::Swap(number)
        } else {
            NonPresent::Migration(Pfn(number))
        })
    }

    /// The frame that is being moved, if that is what the entry says.
    #[inline]
    #[must_use]
    pub fn moving(self) -> Option<Pfn> {
        match self.nonpresent() {
            Some(NonPresent::Migration(pfn)) => Some(pfn),
            _ => None,
        }
    }

    /// The same, but a migration entry is reported as the PTE that it replaced: for queries of what
    /// is mapped.
    #[must_use]
    pub fn unmoved(self) -> Self {
        match self.moving() {
            Some(pfn) => self.migrated(pfn),
            None => self,
        }
    }

    /// What a migration entry says that the page's entry grants.
    #[must_use]
    pub fn grant_later(self) -> Grant {
        if self.raw & P::bits().zero_page == 0 {
            Grant::Nothing
        } else if self.raw & P::bits().write == 0 {
            Grant::Read
        } else {
            Grant::Write
        }
    }

    /// A migration entry that says so.
    #[must_use]
    pub fn granting_later(self, grant: Grant) -> Self {
        let kept = self.raw & !(P::bits().zero_page | P::bits().write);
        let bits = match grant {
            Grant::Nothing => P::bits().write,
            Grant::Read => P::bits().zero_page,
            Grant::Write => P::bits().zero_page | P::bits().write,
        };
        Self::of(kept | bits)
    }
}

/// As [`fmt::Debug`] of an entry shows it.
pub(super) fn show<P: Paging>(pte: Pte<P>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match pte.nonpresent() {
        Some(NonPresent::Swap(slot)) => write!(f, "in slot {slot}"),
        Some(NonPresent::Migration(pfn)) => write!(f, "frame {pfn} is being moved"),
        None => write!(f, "{:#x}", pte.raw),
    }
}
