//! A software TLB, for machines with a software MMU.
//!
//! # Problem
//! Stale translations are the worst bugs of this field, so machines without an MMU of their own
//! must cache translations as a real one does, and an oracle must be able to inspect the cache.
//!
//! # Idea
//! Direct-mapped, one slot per page number modulo [`SLOTS`]. A slot remembers the frame's
//! generation and when it was filled, for the oracles.
//!
//! # Protocol
//! Only its own CPU uses it. Other CPUs request a flush by an interrupt.
//!
//! # Cost
//! A hit is one compare on a private line.

use crate::entry::Exec;
use crate::mmu::SpaceId;
use crate::paging::Paging;
use crate::walk::Access;
use core::cell::Cell;
use minflt_addr::{Pfn, VirtRange};

/// Slots of a buffer.
pub const SLOTS: usize = 256;

/// What a buffered translation serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Stores.
    pub writable: bool,
    /// Instruction fetches, and loads unless [`Exec::Only`].
    pub exec: Exec,
}

impl Rights {
    /// Whether it serves this access, in format `P`.
    #[inline(always)]
    #[must_use]
    pub fn serve<P: Paging>(self, access: Access) -> bool {
        match access {
            Access::Read => !P::bits().execute_only() || self.exec != Exec::Only,
            Access::Write => self.writable,
            Access::Execute => self.exec != Exec::No,
        }
    }
}

/// One buffered translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The address space.
    pub space: SpaceId,
    /// The virtual page number.
    pub page: u64,
    /// The frame.
    pub pfn: Pfn,
    /// What it serves.
    pub rights: Rights,
    /// The frame's generation when the slot was filled.
    pub generation: u32,
    /// The system's operation stamp when the slot was filled.
    pub filled: u64,
}

/// One CPU's buffer.
#[derive(Debug)]
pub struct Tlb {
    slots: [Cell<Option<Translation>>; SLOTS],
    /// Bit n: of the n-th [`PART`] of the slots some may be filled. The rest need no look: most
    /// buffers of a large machine are all but empty.
    filled: Cell<u64>,
}

/// Slots that a bit stands for.
const PART: usize = SLOTS.div_ceil(u64::BITS as usize);

impl Tlb {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: [const { Cell::new(None) }; SLOTS],
            filled: Cell::new(0),
        }
    }

    /// The translation of `page` in `space`, if buffered.
    #[inline]
    #[must_use]
    pub fn lookup(&self, space: SpaceId, page: u64) -> Option<Translation> {
        self.slots[page as usize % SLOTS]
            .get()
            .filter(|t| t.page == page && t.space == space)
    }

    /// Buffers a translation in place of whatever was in its slot.
    #[inline]
    pub fn fill(&self, translation: Translation) {
        let slot = translation.page as usize % SLOTS;
        self.slots[slot].set(Some(translation));
        self.filled.set(self.filled.get() | 1 << (slot / PART));
    }

    /// The slots that may be filled.
    fn parts(&self) -> impl Iterator<Item = (usize, &[Cell<Option<Translation>>])> {
        let filled = self.filled.get();
        let parts = self.slots.chunks(PART).enumerate();
        // Most are empty: nothing is looked at then.
        let all = if filled == 0 { 0 } else { SLOTS };
        parts.take(all).filter(move |(n, _)| filled & 1 << n != 0)
    }

    /// Forgets the translations of `range` in `space`, for pages of `1 << shift` bytes.
    pub fn flush(&self, space: SpaceId, range: VirtRange, shift: u32) {
        let (first, pages) = (range.start().page(shift), range.len().div_ceil(1 << shift));
        if pages >= SLOTS as u64 {
            for (n, part) in self.parts() {
                for slot in part {
                    let old = slot.get();
                    if old.is_some_and(|t| t.space == space && t.page.wrapping_sub(first) < pages) {
                        slot.set(None);
                    }
                }
                if part.iter().all(|slot| slot.get().is_none()) {
                    self.filled.set(self.filled.get() & !(1 << n));
                }
            }
        } else {
            for page in first..first + pages {
                if self.lookup(space, page).is_some() {
                    self.slots[page as usize % SLOTS].set(None);
                }
            }
        }
    }

    /// Forgets everything.
    pub fn flush_all(&self) {
        for (_, part) in self.parts() {
            part.iter().for_each(|slot| slot.set(None));
        }
        self.filled.set(0);
    }

    /// The buffered translations, for oracles.
    pub fn iter(&self) -> impl Iterator<Item = Translation> + '_ {
        let parts = self.parts().flat_map(|(_, part)| part);
        parts.filter_map(Cell::get)
    }
}

impl Default for Tlb {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Exec, Rights, SLOTS, Tlb, Translation};
    use crate::mmu::SpaceId;
    use minflt_addr::{Pfn, VirtAddr, VirtRange};

    fn translation(space: u64, page: u64) -> Translation {
        Translation {
            space: SpaceId(space),
            page,
            pfn: Pfn(page + 1),
            rights: Rights {
                writable: true,
                exec: Exec::No,
            },
            generation: 0,
            filled: 0,
        }
    }

    #[test]
    fn a_flush_takes_the_range_and_nothing_else() {
        let tlb = Tlb::new();
        for page in 0..8 {
            tlb.fill(translation(1, page));
        }
        tlb.fill(translation(2, 9));
        let range = |from: u64, to: u64| VirtRange::new(VirtAddr(from << 12), VirtAddr(to << 12));
        tlb.flush(SpaceId(1), range(2, 4), 12);
        assert!(tlb.lookup(SpaceId(1), 1).is_some());
        assert!(tlb.lookup(SpaceId(1), 2).is_none());
        assert!(tlb.lookup(SpaceId(1), 3).is_none());
        assert!(tlb.lookup(SpaceId(1), 4).is_some());
        tlb.flush(SpaceId(1), range(0, 2 * SLOTS as u64), 12);
        assert!(tlb.iter().all(|t| t.space == SpaceId(2)));
        assert_eq!(tlb.iter().count(), 1);
    }
}
