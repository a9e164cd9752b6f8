//! mmap: private anonymous memory.

use super::split::{discard_vma, new_vma};
use super::{as_call, munmap, page_range};
use crate::error::MmapError;
use crate::event::Event;
use crate::mm::Mm;
use crate::vma::{Prot, VmaView};
use crate::writers::Writers;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// Where a mapping shall go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Anywhere.
    Any,
    /// Here if the range is free, else anywhere. Rounded down to a page.
    Hint(VirtAddr),
    /// Here, in place of whatever is mapped (`MAP_FIXED`).
    Fixed(VirtAddr),
    /// Here, and only if nothing is mapped (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace(VirtAddr),
}

impl<M: Mmu> Mm<M> {
    /// Maps `len` bytes (rounded up to pages) of private anonymous memory; returns where.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing.
    ///
    /// # Errors
    /// See [`MmapError`]. Nothing is changed then, but that `MAP_FIXED` may have unmapped what
    /// stood there, as in Linux.
    pub fn mmap(&self, place: Place, len: u64, prot: Prot) -> Result<VirtAddr, MmapError> {
        as_call(self.system(), || {
            self.system().count(Event::Mmap);
            if len == 0 {
                return Err(MmapError::Invalid);
            }
            let writers = Writers::lock(self);
            let range = self.place(&writers, place, len)?;
            let vma = new_vma(self, VmaView { range, prot }).map_err(|_| MmapError::NoMemory)?;
            self.tree
                .insert(self.system(), range.start(), vma)
                .map_err(|_| {
                    discard_vma(self, vma);
                    MmapError::NoMemory
                })?;
            M::note(format_args!("mmap {range} {prot:?}"));
            Ok(range.start())
        })
    }

    fn place(
        &self,
        writers: &Writers<'_, M>,
        place: Place,
        len: u64,
    ) -> Result<VirtRange, MmapError> {
        let user = Self::user_range();
        let fixed = |at: VirtAddr| {
            let range = page_range::<M>(at, len).ok_or(if at.is_aligned(M::Paging::SHIFT) {
                MmapError::OutOfRange
            } else {
                MmapError::Invalid
            })?;
            if user.covers(range) {
                Ok(range)
            } else {
                Err(MmapError::OutOfRange)
            }
        };
        match place {
            Place::Fixed(at) => {
                let range = fixed(at)?;
                munmap::unmap(self, writers, range).map_err(|_| MmapError::NoMemory)?;
                Ok(range)
            }
            Place::FixedNoReplace(at) => {
                let range = fixed(at)?;
                if self.is_free(range) {
                    Ok(range)
                } else {
                    Err(MmapError::Exists)
                }
            }
            Place::Hint(at) => match fixed(at.align_down(M::Paging::SHIFT)) {
                Ok(range) if self.is_free(range) => Ok(range),
                _ => self.find_hole(len),
            },
            Place::Any => self.find_hole(len),
        }
    }

    fn is_free(&self, range: VirtRange) -> bool {
        self.find(range.start())
            .is_none_or(|vma| !vma.view().range.overlaps(range))
    }

    /// The highest hole of `len` bytes. Linux: `vm_unmapped_area` from the top down.
    fn find_hole(&self, len: u64) -> Result<VirtRange, MmapError> {
        let user = Self::user_range();
        let len = VirtAddr(len)
            .align_up(M::Paging::SHIFT)
            .ok_or(MmapError::NoMemory)?
            .0;
        // SAFETY: 1: under `mmap_lock`.
        let hole = unsafe { self.tree.highest_hole(len, user) }.ok_or(MmapError::NoMemory)?;
        Ok(VirtRange::new(VirtAddr(hole.end().0 - len), hole.end()))
    }
}
