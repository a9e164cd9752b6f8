//! munmap: unmaps a range.
//!
//! Order ([`crate::change::plan`], [`crate::change::unmap`]): trim the VMAs at the edges, remove
//! the others (their sequence counts stay odd, their locks are detached), downgrade `mmap_lock`
//! where that is the choice, zap, free the tables that no other VMA uses, flush TLBs, free frames,
//! and the VMAs by the reclamation scheme. A speculative fault that found a VMA before sees the odd
//! count, or takes the table's lock before the zap does and is zapped with the rest. A fault under
//! the VMA's lock was waited for, or does not get it any more.

use super::page_range;
use crate::base::error::{MunmapError, NoMemory};
use crate::base::event::Event;
use crate::change::unmap::{unmap_one, unmap_range};
use crate::change::writers::{Afterwards, Writers};
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::arenas::look::Held;
use crate::space::tree::Found;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

impl<M: Mmu> Mm<M> {
    /// Unmaps `len` bytes (rounded up to pages) from `start` on; holes are skipped.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing; waits for TLB flushes.
    ///
    /// # Errors
    /// See [`MunmapError`]. Nothing has changed then.
    pub fn munmap(&self, start: VirtAddr, len: u64) -> Result<(), MunmapError> {
        as_call(self.system(), || {
            self.system().count(Event::Munmap);
            self.system().with_memory(|| {
                let range = page_range::<M>(start, len).ok_or(MunmapError::Invalid)?;
                if range.is_empty() || range.end() > Self::user_range().end() {
                    return Err(MunmapError::Invalid);
                }
                let writers = Writers::lock(self, self.over(range));
                let unmapped = match exactly(writers.held(), range) {
                    Some(found) => unmap_one(&writers, found, Afterwards::LetsGo),
                    None if !writers.held().cuts_no_huge_page(range) => {
                        return Err(MunmapError::Invalid);
                    }
                    None => unmap_range(&writers, range, None, Afterwards::LetsGo),
                };
                unmapped.map_err(|NoMemory| MunmapError::NoMemory)?;
                drop(writers);
                M::note(format_args!("munmap {range} returns"));
                Ok(())
            })
        })
    }
}

/// The VMA that covers `range` and nothing else, if there is one.
fn exactly<M: Mmu>(held: Held<'_, M>, range: VirtRange) -> Option<Found<'_, M>> {
    let found = held.found(range.start());
    found.filter(|found| found.vma().view().range == range)
}

/// Unmaps `range`, under `mmap_lock` for writing: all of it, or nothing. It may be held for reading
/// only when this returns without an error, if the caller lets it go afterwards.
pub(super) fn unmap<M: Mmu>(
    writers: &Writers<'_, M>,
    range: VirtRange,
    afterwards: Afterwards,
) -> Result<(), NoMemory> {
    match exactly(writers.held(), range) {
        Some(found) => unmap_one(writers, found, afterwards),
        None => unmap_range(writers, range, None, afterwards),
    }
}
