//! The writers' half: what a call that changes a VMA owes to the rungs in use.
//!
//! # Problem
//! Speculation is sound only if *every* place that changes a VMA takes part; and an era without
//! speculation must not pay for it.
//!
//! # Idea
//! One door for all of them: a section is opened on the VMA, and opening it does whatever the
//! configured ladder needs. Today: a sequence section where the ladder speculates, nothing
//! elsewhere.
//!
//! # Protocol
//! The caller holds `mmap_lock` for writing, which the guard proves. Sections of one VMA do not
//! nest. A section that ends by [`Section::for_ever`] belongs to a VMA that was taken out.
//!
//! # Why it is correct
//! `mmap_lock` excludes other writers, so the count has one writer at a time.

use crate::mm::Mm;
use crate::vma::Vma;
use minflt_pgtable::Mmu;
use minflt_sync::WriteGuard;
use minflt_sync::order::MmapLock;

/// Proof that the caller may change VMAs of an address space.
pub(crate) struct Writers<'m, M: Mmu> {
    mm: &'m Mm<M>,
    _held: WriteGuard<'m, MmapLock, M>,
}

/// An open section on one VMA.
#[must_use = "the section ends when dropped"]
pub(crate) struct Section<'v, M: Mmu> {
    vma: Option<&'v Vma<M>>,
}

impl<'m, M: Mmu> Writers<'m, M> {
    /// Takes `mmap_lock` for writing.
    pub(crate) fn lock(mm: &'m Mm<M>) -> Self {
        Self {
            mm,
            _held: mm.mmap_lock.write(),
        }
    }

    /// Opens a section on every VMA of the address space, for a fork: none closes before the last
    /// page is copied and every CPU was told.
    pub(crate) fn begin_all(&self) -> Sections<'_, 'm, M> {
        self.mm.tree_visit(|vma| self.begin(vma).for_ever());
        Sections { writers: self }
    }

    /// Opens a section on `vma`.
    pub(crate) fn begin<'v>(&self, vma: &'v Vma<M>) -> Section<'v, M> {
        let speculates = self.mm.system().config.ladder.speculates();
        if speculates {
            vma.seq.write_begin();
        }
        Section {
            vma: speculates.then_some(vma),
        }
    }
}

/// Open sections on all VMAs.
#[must_use = "the sections end when dropped"]
pub(crate) struct Sections<'w, 'm, M: Mmu> {
    writers: &'w Writers<'m, M>,
}

impl<M: Mmu> Drop for Sections<'_, '_, M> {
    fn drop(&mut self) {
        let mm = self.writers.mm;
        if mm.system().config.ladder.speculates() {
            mm.tree_visit(|vma| drop(Section { vma: Some(vma) }));
        }
    }
}

impl<M: Mmu> Section<'_, M> {
    /// The VMA was taken out: nobody shall validate against it again.
    pub(crate) fn for_ever(mut self) {
        self.vma = None;
    }
}

impl<M: Mmu> Drop for Section<'_, M> {
    fn drop(&mut self) {
        if let Some(vma) = self.vma {
            vma.seq.write_end();
        }
    }
}
