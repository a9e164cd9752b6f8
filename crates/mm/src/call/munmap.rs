//! munmap.
//!
//! Order: split at the edges, take the VMAs out (their sequence counts stay odd for ever, their
//! locks are detached), zap, free the tables nobody else uses, invalidate, give frames back, free
//! the VMAs by the lifetime. A speculative fault that found a VMA before sees the odd count, or
//! takes the table's lock before the zap does and is zapped with the rest. A fault under the VMA's
//! lock was waited for, or does not get it any more.

use super::split::split_at;
use super::{as_call, page_range};
use crate::commit::Pages;
use crate::config::Broken;
use crate::error::{MunmapError, NoMemory};
use crate::event::Event;
use crate::mm::Mm;
use crate::oracle;
use crate::writers::Writers;
use crate::zap::Zap;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

impl<M: Mmu> Mm<M> {
    /// Unmaps `len` bytes (rounded up to pages) from `start` on; what is not mapped there is
    /// skipped.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing; waits for CPUs to forget translations.
    ///
    /// # Errors
    /// See [`MunmapError`]. Nothing is unmapped after `Invalid`; after `NoMemory` the mappings
    /// below the one that could not be taken out are gone, and it and the ones above it are whole.
    pub fn munmap(&self, start: VirtAddr, len: u64) -> Result<(), MunmapError> {
        as_call(self.system(), || {
            self.system().count(Event::Munmap);
            let range = page_range::<M>(start, len).ok_or(MunmapError::Invalid)?;
            if range.is_empty() || range.end().0 > M::Paging::USER_END {
                return Err(MunmapError::Invalid);
            }
            let writers = Writers::lock(self);
            unmap(self, &writers, range).map_err(|_| MunmapError::NoMemory)?;
            drop(writers);
            M::note(format_args!("munmap {range} returns"));
            Ok(())
        })
    }
}

/// Unmaps `range`, under `mmap_lock` for writing.
pub(super) fn unmap<M: Mmu>(
    mm: &Mm<M>,
    writers: &Writers<'_, M>,
    range: VirtRange,
) -> Result<(), NoMemory> {
    let mut next = mm.find(range.start());
    if next.is_some_and(|vma| vma.view().range != range) {
        split_at(mm, writers, range.start())?;
        split_at(mm, writers, range.end())?;
        next = mm.find(range.start());
    }
    let sys = mm.system();
    let mut zap = Zap::begin(mm, range);
    let mut gone = Pages::default();
    while let Some(vma) = next {
        let view = vma.view();
        if view.range.start() >= range.end() {
            break;
        }
        let section = writers.begin(vma);
        let start = view.range.start();
        let taken = mm.tree.remove(sys, start).or_else(|_| {
            // What was unmapped so far may be just the memory that is missing.
            zap.flush();
            sys.run_deferred_from(1);
            mm.tree.remove(sys, start)
        });
        if taken.is_err() {
            drop(section);
            zap.finish();
            mm.count_unmapped(gone);
            return Err(NoMemory);
        }
        gone.add(Pages::of::<M>(&view));
        mm.count_vmas(-1);
        zap.range(view.range);
        sys.unlink_anon_vmas(vma);
        section.for_ever();
        if view.uffd != 0 {
            mm.wake_userfaults(view.range);
        }
        // SAFETY: 1: taken out of the tree just now.
        unsafe { sys.retire_vma(NonNull::from(vma)) };
        if view.range.end() >= range.end() {
            break;
        }
        next = mm.find(range.start());
    }
    free_tables(mm, writers, range, &mut zap);
    zap.finish();
    mm.count_unmapped(gone);
    oracle::translations_agree(mm, range, u64::MAX);
    Ok(())
}

/// Unlinks the tables that only `range` used.
fn free_tables<M: Mmu>(
    mm: &Mm<M>,
    writers: &Writers<'_, M>,
    range: VirtRange,
    zap: &mut Zap<'_, M>,
) {
    let user_end = VirtAddr(M::Paging::USER_END);
    // SAFETY: 1: under `mmap_lock`.
    let (floor, ceiling) = unsafe { mm.tree.around(range.start()) };
    let (floor, ceiling) = (floor.unwrap_or(VirtAddr(0)), ceiling.unwrap_or(user_end));
    let bounds = VirtRange::new(floor, ceiling);
    if mm.system().config.lacks(Broken::UnmapUnlocked) {
        return writers.without(|| zap.free_tables(range, bounds));
    }
    zap.free_tables(range, bounds);
}

/// Takes every VMA out and frees every table, for a dying address space that nobody else has.
pub(crate) fn unmap_all<M: Mmu>(mm: &Mm<M>, all: VirtRange) {
    let sys = mm.system();
    let mut zap = Zap::begin_last(mm, all);
    let mut gone = Pages::default();
    let mut zap_vma = |vma: &crate::vma::Vma<M>| {
        let view = vma.peek();
        zap.range(view.range);
        gone.add(Pages::of::<M>(&view));
    };
    mm.tree.visit(&mut zap_vma, &mut |_| ());
    zap.free_tables(all, all);
    zap.finish();
    mm.count_unmapped(gone);
    let vma = |vma: &crate::vma::Vma<M>| {
        sys.unlink_anon_vmas(vma);
        if let Some(by) = sys.config.ladder.vma_lock() {
            vma.detach(by, mm);
        }
        // SAFETY: 1: nobody looks into the tree any more.
        unsafe { sys.retire_vma(NonNull::from(vma)) };
    };
    let node = |node| {
        // SAFETY: 1: nobody looks into the tree any more.
        unsafe { sys.retire_node(node) };
    };
    mm.tree.visit(&mut { vma }, &mut { node });
}
