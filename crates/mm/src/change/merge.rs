//! VMA merging: conditions and cost.
//!
//! # Problem
//! A program that maps, protects or locks memory piece by piece would accumulate VMAs. Adjacent
//! VMAs with equal attributes should be merged; but concurrent faults through either must stay
//! correct.
//!
//! # Idea
//! Mergeability compares two attribute records: one extended to the range of the other must equal
//! it, page offsets included. Their anon_vmas must be compatible: the same one, or only one VMA has
//! one, and it is linked to that one alone; then the other VMA is chained to it.
//!
//! # Protocol
//! `mmap_lock` for writing. Write sections are opened on all VMAs that may change or be removed
//! *before* their anon_vmas are compared (c46000458d57); those of VMAs that stay unchanged end at
//! once. [`super::plan`] does both.
//!
//! # Why it is correct
//! A VMA that takes pages over is chained to their anon_vma before its record covers them, and
//! inside its write section, so no fault installs a page through a link that is then undone for
//! lack of memory (P18). The removed VMA is unchained afterwards, so the anon_vma is never without
//! links.
//!
//! Linux: mm/vma.c is_mergeable_vma, can_vma_merge_right, dup_anon_vma (v6.18).

use crate::base::attrs::VmaView;
use crate::base::error::NoMemory;
use crate::mm::Mm;
use crate::space::tree::Beside;
use crate::space::vma::Vma;
use crate::space::vma::VmaPtr;
use core::mem::ManuallyDrop;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;
use minflt_sync::Ordering;

/// `view` from `start` to `end`.
pub(crate) fn of_range<M: Mmu>(view: &VmaView, start: VirtAddr, end: VirtAddr) -> VmaView {
    view.of_range::<M::Paging>(VirtRange::new(start, end))
}

/// Those of the VMAs below and above `view` that are like it but for the range.
#[inline]
pub(crate) fn alike<'w, M: Mmu>(near: Beside<'w, M>, view: &VmaView) -> Beside<'w, M> {
    // Each mapping of huge pages has a lock, and pages set aside. Linux: `VM_DONTEXPAND`.
    let alike = |vma: &VmaPtr<'w, M>| {
        let other = vma.get().view();
        other == view.of_range::<M::Paging>(other.range) && !view.is_huge()
    };
    Beside {
        below: near.below.filter(alike),
        above: near.above.filter(alike),
        between: near.between,
    }
}

/// Whether a mapping may become part of another: not where each that is there is counted.
///
/// Linux: can_merge_remove_vma.
pub(crate) fn may_go<M: Mmu>(view: &VmaView) -> bool {
    view.cache::<M>()
        .is_none_or(|cache| !cache.counts_mappings())
}

impl<M: Mmu> Vma<M> {
    /// Whether it could take over pages of `other` by its anon_vma: a new mapping's where that is
    /// `None`. The caller holds `mmap_lock` for writing.
    ///
    /// A mapping that may still have pages of a parent's does not spread: each page that is found
    /// from the parent's anon_vma is one more under its lock.
    ///
    /// Linux: is_mergeable_anon_vma, vma_is_fork_child (v6.18).
    pub(crate) fn may_take(&self, other: Option<&Self>) -> bool {
        let own = self.anon_vma.load(Ordering::Relaxed);
        let others = other.map_or(0, |other| other.anon_vma.load(Ordering::Relaxed));
        match (own, others) {
            (0, 0) => true,
            (0, _) => other.is_some_and(|other| other.only_anon_vma().is_some()),
            (_, 0) => self.only_anon_vma().is_some(),
            (own, others) => own == others,
        }
    }

    /// Whether both may be in one mapping. Linux: can_vma_merge_right.
    pub(crate) fn may_share(&self, other: &Self) -> bool {
        let own = self.anon_vma.load(Ordering::Relaxed);
        let others = other.anon_vma.load(Ordering::Relaxed);
        own == 0 || others == 0 || own == others
    }
}

/// A VMA that was chained to the anon_vma of the one it takes pages from. Dropping it undoes that.
pub(crate) struct Chained<'v, M: Mmu> {
    mm: &'v Mm<M>,
    vma: &'v Vma<M>,
}

impl<M: Mmu> Chained<'_, M> {
    /// The pages were taken over.
    pub(crate) fn keep(self) {
        let _kept = ManuallyDrop::new(self);
    }
}

impl<M: Mmu> Drop for Chained<'_, M> {
    fn drop(&mut self) {
        self.mm.system().unlink_anon_vmas(self.vma);
    }
}

/// Chains `to`, inside its section, to what `from` is chained to, if it is chained to nothing yet.
///
/// Linux: dup_anon_vma.
pub(crate) fn chain<'v, M: Mmu>(
    mm: &'v Mm<M>,
    to: &'v Vma<M>,
    from: &Vma<M>,
) -> Result<Option<Chained<'v, M>>, NoMemory> {
    let has = |vma: &Vma<M>| vma.anon_vma.load(Ordering::Relaxed) != 0;
    if !has(from) || has(to) {
        return Ok(None);
    }
    mm.system().split_anon_vma(mm, to, from)?;
    Ok(Some(Chained { mm, vma: to }))
}
