//! munmap: unmaps a range.
//!
//! Order ([`crate::change::cut`]): split the VMAs at the edges of the range; remove those inside
//! from the tree (their sequence counts stay odd, their locks are detached); downgrade `mmap_lock`
//! where that is the choice; zap; free the page tables that cover nothing else; flush TLBs; free
//! the frames; free the VMAs by the reclamation scheme. A speculative fault that found a VMA
//! earlier sees the odd count, or takes the page-table lock before the zap, which then unmaps its
//! page, too. A fault that holds the VMA lock is waited for; a later one cannot lock the VMA.

use super::page_range;
use crate::base::config::NegativeControl;
use crate::base::error::{MunmapError, NoMemory};
use crate::base::event::Event;
use crate::change::changed::{free_own_tables, unlinks_first};
use crate::change::cut::Cut;
use crate::change::split::{detach, free};
use crate::change::writers::{Afterwards, Writers};
use crate::entry::translation;
use crate::entry::walk::Tables;
use crate::entry::zap::Zap;
use crate::memory::commit::Pages;
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::pages::file::UnusedFiles;
use crate::space::look::Held;
use crate::space::tree::Found;
use crate::space::vma_ptr::VmaPtr;
use core::ptr::NonNull;
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
                let writers = Writers::lock(self);
                let unmapped = match exactly(writers.held(), range) {
                    Some(found) => unmap_one(self, &writers, found, Afterwards::LetsGo),
                    None if !writers.held().cuts_no_huge_page(range) => {
                        return Err(MunmapError::Invalid);
                    }
                    None => unmap_parts(self, &writers, range, Afterwards::LetsGo),
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

/// Unmaps the whole of a VMA and nothing else, as most calls do.
///
/// # Errors
/// No memory. Nothing has changed then.
fn unmap_one<M: Mmu>(
    mm: &Mm<M>,
    writers: &Writers<'_, M>,
    found: Found<'_, M>,
    afterwards: Afterwards,
) -> Result<(), NoMemory> {
    let vma = found.vma();
    let view = vma.view();
    let range = view.range;
    let section = writers.begin(vma);
    // The gap does not change after a downgrade either: mapping there, or extending a neighbour,
    // needs the write lock.
    let free_around = mm.tree.remove_found(mm.system(), found)?;
    let mut late = None;
    if mm.system().lacks(NegativeControl::DetachLate) {
        late = Some(section);
    } else {
        detach(mm, section);
    }
    writers.downgrade(afterwards);
    let mut zap = Zap::begin(writers.held().tables(), range);
    if view.is_huge() {
        zap.huge_gone(vma, &view);
    } else {
        zap.range(range);
    }
    if let Some(section) = late {
        detach(mm, section);
    }
    if vma.link() != 0 && !unlinks_first(mm.system()) {
        zap.settle();
    }
    // SAFETY: 1: taken out and detached above.
    writers.close_later(unsafe { free(mm, NonNull::from(vma)) });
    free_own_tables(writers, range, free_around, &mut zap);
    zap.finish();
    mm.wake_unmapped(range);
    mm.count_unmapped(Pages::of::<M>(&view));
    translation::translations_agree(mm, range, u64::MAX);
    Ok(())
}

/// Unmaps `range`, under `mmap_lock` for writing: all of it, or nothing. If this returns without an
/// error the lock may have been downgraded, and the caller must release it next.
pub(super) fn unmap<M: Mmu>(
    mm: &Mm<M>,
    writers: &Writers<'_, M>,
    range: VirtRange,
    afterwards: Afterwards,
) -> Result<(), NoMemory> {
    match exactly(writers.held(), range) {
        Some(found) => unmap_one(mm, writers, found, afterwards),
        None => unmap_parts(mm, writers, range, afterwards),
    }
}

/// The same, whatever is mapped there.
fn unmap_parts<M: Mmu>(
    mm: &Mm<M>,
    writers: &Writers<'_, M>,
    range: VirtRange,
    afterwards: Afterwards,
) -> Result<(), NoMemory> {
    match Cut::plan(mm, writers, range)? {
        Some(cut) => cut.commit(afterwards),
        None => Ok(()),
    }
}

/// Removes all VMAs and frees all page tables of a dying address space without other users.
pub(crate) fn unmap_all<M: Mmu>(mm: &Mm<M>, all: VirtRange) {
    let sys = mm.system();
    // SAFETY: 1: the address space has no other user.
    let tables = unsafe { Tables::kept(mm) };
    let mut zap = Zap::begin_last(tables, all);
    let mut gone = Pages::default();
    let mut zap_vma = |vma: VmaPtr<'_, M>| {
        let vma = vma.get();
        let view = vma.peek();
        if view.is_huge() {
            zap.huge_gone(vma, &view);
        } else {
            zap.range(view.range);
        }
        gone.add(Pages::of::<M>(&view));
    };
    mm.tree.visit(&mut zap_vma, &mut |_| ());
    let files = UnusedFiles::new();
    // A reverse-map walk may be walking the tables.
    let mut unlink = |vma: VmaPtr<'_, M>| {
        let vma = vma.get();
        vma.give_back_own(sys);
        if let Some(unused) = sys.drop_link(mm, vma.link()) {
            files.add(unused);
        }
        sys.unlink_anon_vmas(vma);
    };
    mm.tree.visit(&mut unlink, &mut |_| ());
    zap.free_tables(all, all);
    zap.finish();
    mm.count_unmapped(gone);
    let vma = |vma: VmaPtr<'_, M>| {
        if let Some(by) = sys.config.fallback_order.vma_lock() {
            vma.get().detach(by, mm);
        }
        // SAFETY: 1: nobody looks into the tree any more.
        unsafe { sys.retire_vma(vma.as_ptr()) };
    };
    let node = |node| {
        // SAFETY: 1: nobody looks into the tree any more.
        unsafe { sys.retire_node(node) };
    };
    mm.tree.visit(&mut { vma }, &mut { node });
    // They may wait for a device, which nothing else does now.
    drop(files);
}
