//! VMA lookups under `mmap_lock`.
//!
//! # Problem
//! VMAs and nodes of the tree are freed by writers. A lookup is sound only while the caller holds
//! `mmap_lock`, and a comment at each caller does not say so to the compiler.
//!
//! # Idea
//! A hold of `mmap_lock`, for reading or for writing, makes a [`Held`], which cannot outlive it.
//! All lookups are methods of that, and what they find lives no longer. It is a reference to the
//! address space, and says which [arenas](super) are held: lookups see nothing else.
//!
//! # Protocol
//! [`Reading`] makes it, and so does [`Writers`](crate::change::writers::Writers).
//! Functions that look at mappings take a [`Held`]. A writer that frees a VMA hands it around as a
//! [`VmaPtr`](super::vma::VmaPtr), which promises less.
//!
//! # Why it is correct
//! Only writers take VMAs and nodes out of the tree, and all free them by the reclamation scheme
//! after that. So a holder of `mmap_lock`, in either mode, finds nothing that another thread frees
//! before it releases the lock. What it frees itself, as a writer, it has unlinked itself.
//!
//! # Cost
//! None; one comparison a lookup says whether there are arenas.

use crate::base::attrs::VmaView;
use crate::base::config::NegativeControl;
use crate::entry::walk::Tables;
use crate::memory::arenas::Span;
use crate::mm::Mm;
use crate::space::arenas::lock::{Over, Reading};
use crate::space::tree::{Beside, End, Found, Hole, Locked, Mapping};
use crate::space::vma::Vma;
use core::ops::Deref;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

/// An address space whose `mmap_lock` the caller holds, for reading or for writing.
///
/// # Invariants
/// 1. As long as `'h` no other thread removes a VMA or a node from the tree.
pub(crate) struct Held<'h, M: Mmu> {
    mm: &'h Mm<M>,
    span: Span,
}

impl<M: Mmu> Clone for Held<'_, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mmu> Copy for Held<'_, M> {}

impl<M: Mmu> Deref for Held<'_, M> {
    type Target = Mm<M>;

    #[inline(always)]
    fn deref(&self) -> &Mm<M> {
        self.mm
    }
}

impl<'h, M: Mmu> Held<'h, M> {
    /// Arenas that are held.
    ///
    /// # Safety
    /// 1. As long as `'h` no other thread changes what lies in `span`: the caller has the locks,
    ///    the address space has no other user, or nothing else runs.
    #[inline(always)]
    pub(super) const unsafe fn over(mm: &'h Mm<M>, span: Span) -> Self {
        // INVARIANT: 1: 1 of this function.
        Self { mm, span }
    }

    /// All of it, where there is no guard.
    ///
    /// # Safety
    /// 1. As long as `'h` no other thread changes the tree: the address space has no other user, or
    ///    nothing else runs.
    pub(crate) unsafe fn without_guard(mm: &'h Mm<M>) -> Self {
        // SAFETY: 1: 1 of this function.
        unsafe { Self::over(mm, mm.whole()) }
    }

    /// The arenas that are held.
    #[inline(always)]
    pub(crate) const fn span(self) -> Span {
        self.span
    }

    /// The address space.
    #[inline(always)]
    pub(crate) const fn mm(self) -> &'h Mm<M> {
        self.mm
    }

    /// Its tables: below what is mapped, or where nothing is. Below huge pages the caller holds
    /// `i_mmap` of their file as well ([`Self::each_unshared`] says why).
    #[inline(always)]
    pub(crate) const fn tables(self) -> Tables<'h, M> {
        // SAFETY: 1: tables are freed below VMAs that a writer has removed from the tree, which
        // only the caller does as long as `'h`; after a downgrade others free none below a VMA that
        // the caller finds, and there are no walks below none.
        unsafe { Tables::kept(self.mm) }
    }

    /// The tree.
    #[inline(always)]
    const fn tree(self) -> Locked<'h, M> {
        // SAFETY: 1: by the invariant; a writer of the tree holds the lock for writing.
        unsafe { self.mm.tree.locked() }
    }

    /// The last VMA that starts at or before `addr`.
    #[inline]
    pub(crate) fn at_or_before(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        match self.span.is_undivided() {
            true => self.tree().at_or_before(addr),
            false => self.before_in_arenas(addr),
        }
    }

    /// The first VMA that starts at or after `addr`.
    #[inline]
    pub(crate) fn at_or_after(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        match self.span.is_undivided() {
            true => self.tree().at_or_after(addr),
            false => self.after_in_arenas(addr),
        }
    }

    /// The first VMA that ends after `addr`.
    pub(crate) fn find(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        match self.at_or_before(addr) {
            Some(vma) if vma.view().range.end() > addr => Some(vma),
            _ => self.at_or_after(addr),
        }
    }

    /// The VMA that starts at `start`, and where in the tree it is, for a caller that removes it.
    #[inline]
    pub(crate) fn found(self, start: VirtAddr) -> Option<Found<'h, M>> {
        match self.span.is_undivided() {
            true => self.tree().found(start),
            false => self.found_in_arenas(start),
        }
    }

    /// The VMAs that touch `range`.
    pub(crate) fn beside(self, range: VirtRange) -> Beside<'h, M> {
        match self.span.is_undivided() {
            true => self.tree().beside(range),
            false => self.beside_in_arenas(range),
        }
    }

    /// Where the VMA before `addr`, which none covers, ends, and where the next one starts.
    pub(crate) fn around(self, addr: VirtAddr) -> (Option<VirtAddr>, Option<VirtAddr>) {
        match self.span.is_undivided() {
            true => self.tree().around(addr),
            false => self.around_in_arenas(addr),
        }
    }

    /// The highest hole of at least `len` bytes from `bottom`, before which no VMA starts, up to
    /// `top`: as much of it as lies there. The caller holds the lock for writing.
    pub(crate) fn highest_hole(self, len: u64, bottom: VirtAddr, top: End) -> Option<Hole<'h, M>> {
        match self.span.is_undivided() {
            true => self.tree().highest_hole(len, bottom, top),
            false => self.hole_in_arenas(len, bottom, top),
        }
    }

    /// Calls `visit` with each VMA, in order.
    pub(crate) fn each(self, mut visit: impl FnMut(&'h Vma<M>)) {
        let mut at = VirtAddr(0);
        while let Some(vma) = self.at_or_after(at) {
            visit(vma);
            at = vma.view().range.end();
        }
    }

    /// Calls `visit` with the parts of `range` whose tables stay while the caller holds
    /// `mmap_lock`, in order: all mappings except hugetlb. Hugetlb tables may be shared, and then
    /// other sharers unshare and free them under `i_mmap`, regardless of `mmap_lock` (P59); a walk
    /// through them holds `i_mmap`, as [`Held::see_huge`] does.
    ///
    /// Linux: hugetlb_walk, which requires the mapping's lock or `i_mmap` (v6.3).
    pub(crate) fn each_unshared(self, range: VirtRange, mut visit: impl FnMut(VirtRange)) {
        let mut at = range.start();
        while at < range.end()
            && let Some(vma) = self.find(at)
        {
            let view = vma.view();
            let part = view.range.intersect(range);
            let stays = !view.is_huge() || self.system().lacks(NegativeControl::AgesShared);
            if stays && !part.is_empty() {
                visit(part);
            }
            at = view.range.end();
        }
    }
}

/// The mappings of an address space, none of which changes while this lives.
#[derive(Debug)]
pub struct Mappings<'m, M: Mmu> {
    held: Reading<'m, M>,
}

impl<M: Mmu> Mappings<'_, M> {
    /// What is mapped at `addr`.
    #[inline]
    #[must_use]
    pub fn at(&self, addr: VirtAddr) -> Option<Mapping> {
        let held = self.held.held();
        if held.span.is_undivided() {
            return held.tree().mapping(addr);
        }
        let view = held.at_or_before(addr)?.view();
        let (range, prot) = (view.range, view.prot);
        range.contains(addr).then_some(Mapping { range, prot })
    }

    /// The attributes of the mapping that covers `addr`, found as a fault finds them: by its VMA.
    #[inline]
    #[must_use]
    pub fn vma_at(&self, addr: VirtAddr) -> Option<VmaView> {
        let view = self.held.held().at_or_before(addr)?.view();
        view.range.contains(addr).then_some(view)
    }
}

impl<M: Mmu> Mm<M> {
    /// The mappings, held still: `mmap_lock` for reading until dropped.
    ///
    /// # Context
    /// Sleeps for the lock. Its holder calls nothing of this address space that takes it.
    #[inline]
    pub fn mappings(&self) -> Mappings<'_, M> {
        let held = self.read(Over::All);
        Mappings { held }
    }

    /// What is mapped at `addr`.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    #[inline]
    #[must_use]
    pub fn mapping_at(&self, addr: VirtAddr) -> Option<Mapping> {
        let held = self.read(Over::at(addr));
        Mappings { held }.at(addr)
    }

    /// Calls `visit` with each mapping, in order, under `mmap_lock`.
    pub fn for_each_mapping(&self, mut visit: impl FnMut(VirtRange, crate::base::attrs::Prot)) {
        self.read(Over::All).held().each(|vma| {
            let view = vma.view();
            visit(view.range, view.prot);
        });
    }

    /// Leaves of the tree of mappings, of at most 18 each: how full they are says how much memory
    /// lookups at random have to go through. Sleeps for `mmap_lock`.
    #[must_use]
    pub fn mapping_leaves(&self) -> usize {
        let reading = self.read(Over::All);
        let held = reading.held();
        match held.span.is_undivided() {
            true => held.tree().leaves(),
            false => held.leaves_in_arenas(),
        }
    }
}
