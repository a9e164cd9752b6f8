//! Chooses the address of a new mapping.
//!
//! A requested address is checked; otherwise a hole is searched from the top of user space down.
//! The guard gap below a stack stays free, unless a mapping requests an address inside it.
//!
//! Linux: mm/mmap.c `__get_unmapped_area`, mm/vma.c unmapped_area_topdown, unmapped_area (v6.18).

use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::error::MmapError;
use crate::mm::Mm;
use crate::space::arenas::look::Held;
use crate::space::tree::{Beside, End};
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// Where a mapping shall go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Anywhere.
    Any,
    /// Anywhere, and another thread than the caller will use it (`MAP_STACK`). Where each CPU has
    /// an arena for its own mappings it goes into none of these: else the thread's CPU would be
    /// interrupted for all that this one unmaps.
    Stack,
    /// Here if the range is free, else anywhere. Rounded down to a page, and up to what may be
    /// mapped; 0 is anywhere.
    Hint(VirtAddr),
    /// Here, in place of whatever is mapped (`MAP_FIXED`).
    Fixed(VirtAddr),
    /// Here, and only if nothing is mapped (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace(VirtAddr),
}

impl<'h, M: Mmu> Held<'h, M> {
    /// The place for `len` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// See [`MmapError`].
    pub(super) fn place(self, place: Place, len: u64) -> Result<VirtRange, MmapError> {
        self.place_beside(place, len).map(|(range, _)| range)
    }

    /// The same, and what touches it, if that was seen on the way.
    ///
    /// # Errors
    /// See [`MmapError`].
    #[inline]
    fn place_beside(
        self,
        place: Place,
        len: u64,
    ) -> Result<(VirtRange, Option<Beside<'h, M>>), MmapError> {
        let user = Mm::<M>::user_range();
        if len == 0 || len > user.end().0 {
            return Err(MmapError::OutOfRange);
        }
        match place {
            Place::Fixed(at) => Ok((Self::fixed(at, len)?, None)),
            Place::FixedNoReplace(at) => {
                let range = Self::fixed(at, len)?;
                let free = self.is_free(range);
                free.then_some((range, None)).ok_or(MmapError::Exists)
            }
            Place::Hint(VirtAddr(0)) | Place::Any | Place::Stack => self.find_hole(len),
            Place::Hint(at) => {
                let at = at.align_down(M::Paging::shift()).max(user.start());
                match Self::fixed(at, len) {
                    Ok(range) if self.is_roomy(range) => Ok((range, None)),
                    _ => self.find_hole(len),
                }
            }
        }
    }

    /// The place for `len` bytes, both multiples of 2 to the power of `unit`, and what touches it,
    /// if that was seen on the way.
    ///
    /// # Errors
    /// See [`MmapError`].
    #[inline]
    pub(super) fn place_of_unit(
        self,
        place: Place,
        len: u64,
        unit: u32,
    ) -> Result<(VirtRange, Option<Beside<'h, M>>), MmapError> {
        if unit == M::Paging::shift() {
            return self.place_beside(place, len);
        }
        Ok((self.place_aligned(place, len, unit)?, None))
    }

    /// The place for `len` bytes that starts at a multiple of 2 to the power of `unit`, which is
    /// more than a page.
    fn place_aligned(self, place: Place, len: u64, unit: u32) -> Result<VirtRange, MmapError> {
        if len > Mm::<M>::user_range().end().0 {
            return Err(MmapError::OutOfRange);
        }
        let aligned = |at: VirtAddr| at.is_aligned(unit);
        match place {
            Place::Fixed(at) | Place::FixedNoReplace(at) if !aligned(at) => Err(MmapError::Invalid),
            Place::Fixed(_) | Place::FixedNoReplace(_) => self.place(place, len),
            Place::Hint(at) if at.align_down(M::Paging::shift()).0 != 0 => {
                // Down to a page, and then up to the unit.
                let hint = at.align_down(M::Paging::shift()).align_up(unit);
                let hint = hint.unwrap_or(VirtAddr(0));
                let found = self.place(Place::Hint(hint), len)?;
                match found.start() == hint {
                    true => Ok(found),
                    false => self.place_aligned(Place::Any, len, unit),
                }
            }
            Place::Hint(_) | Place::Any | Place::Stack => {
                // A hole with room to move within.
                let more = len.checked_add((1 << unit) - M::Paging::page());
                let hole = self.place(Place::Any, more.ok_or(MmapError::OutOfRange)?)?;
                let start = VirtAddr(hole.end().0 - len).align_down(unit);
                Ok(VirtRange::new(start, VirtAddr(start.0 + len)))
            }
        }
    }

    fn fixed(at: VirtAddr, len: u64) -> Result<VirtRange, MmapError> {
        let user = Mm::<M>::user_range();
        if at.0 > user.end().0 - len {
            Err(MmapError::OutOfRange)
        } else if !at.is_aligned(M::Paging::shift()) {
            Err(MmapError::Invalid)
        } else if at < user.start() {
            Err(MmapError::NotPermitted)
        } else {
            Ok(VirtRange::new(at, VirtAddr(at.0 + len)))
        }
    }

    /// Whether nothing is mapped in `range`.
    pub(super) fn is_free(self, range: VirtRange) -> bool {
        self.find(range.start())
            .is_none_or(|vma| !vma.view().range.overlaps(range))
    }

    /// The same, and the gap below a stack as well.
    fn is_roomy(self, range: VirtRange) -> bool {
        self.find(range.start())
            .is_none_or(|next| range.end() <= self.start_with_gap(&next.view()))
    }

    /// The upper end of the highest hole of `len` bytes. Where that is a stack's guard gap, the
    /// search continues below it, once for each such stack; holes above that limit are then
    /// skipped. If none is left the lowest hole is taken, and checked against its own neighbour.
    ///
    /// Linux: mm/vma.c unmapped_area_topdown, which starts again below `vm_start_gap`.
    fn find_hole(self, len: u64) -> Result<(VirtRange, Option<Beside<'h, M>>), MmapError> {
        let (bottom, mut top) = self.bounds();
        loop {
            let Some(hole) = self.highest_hole(len, bottom, top) else {
                return match top {
                    End::Whole(_) => Err(MmapError::NoMemory),
                    End::Cut(_) => Ok((self.lowest_hole(len).ok_or(MmapError::NoMemory)?, None)),
                };
            };
            let end = hole.range().end();
            let range = VirtRange::new(VirtAddr(end.0 - len), end);
            let beside = hole.beside(range).unwrap_or_else(|| self.beside(range));
            let limit = beside.above.map(|above| above.get().view());
            let limit = limit.map_or(end, |view| self.start_with_gap(&view));
            if limit >= end {
                return Ok((range, Some(beside)));
            }
            top = End::Cut(limit.0);
        }
    }

    /// Where a place may be looked for. Of arenas that end below the end of user space, not up to
    /// that: a stack may begin there.
    fn bounds(self) -> (VirtAddr, End) {
        let user = Mm::<M>::user_range();
        let held = self.held_addresses();
        let bottom = user.start().max(held.start());
        if held.end() >= user.end() {
            return (bottom, End::Whole(user.end().0));
        }
        let top = held.end().0.saturating_sub(self.stack_gap_bytes());
        (bottom, End::Cut(top.max(bottom.0)))
    }

    /// The lowest hole of `len` bytes, for where nothing else is free; all mappings are looked at.
    ///
    /// Linux: mm/vma.c unmapped_area.
    #[cold]
    fn lowest_hole(self, len: u64) -> Option<VirtRange> {
        let (mut at, end) = self.bounds();
        let end = end.address();
        loop {
            let next = self.find(at).map(Vma::view);
            let next = next.filter(|view| view.range.start() < end);
            let (hole, limit) = next.map_or((end, end), |view| {
                (view.range.start(), self.start_with_gap(&view))
            });
            if hole.0.saturating_sub(at.0) >= len && at.0 + len <= limit.0 {
                return Some(VirtRange::new(at, VirtAddr(at.0 + len)));
            }
            at = next?.range.end();
        }
    }
}

impl<M: Mmu> Mm<M> {
    /// Where a VMA starts, with the gap that has to stay free below a stack.
    ///
    /// Linux: vm_start_gap.
    pub(super) fn start_with_gap(&self, view: &VmaView) -> VirtAddr {
        let start = view.range.start();
        if !view.flags.has(VmaFlags::GROWS_DOWN) {
            return start;
        }
        VirtAddr(start.0.saturating_sub(self.stack_gap_bytes()))
    }

    /// The gap below a stack.
    pub(super) fn stack_gap_bytes(&self) -> u64 {
        let gap = self.system().stack_guard_gap();
        gap.saturating_mul(M::Paging::page())
    }
}
