//! Looking at mappings, under `mmap_lock`.

use crate::base::attrs::VmaView;
use crate::base::config::Broken;
use crate::mm::Mm;
use crate::space::tree::Mapping;
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;
use minflt_sync::ReadGuard;
use minflt_sync::order::MmapLock;

/// The mappings of an address space, none of which changes while this lives.
#[derive(Debug)]
pub struct Mappings<'m, M: Mmu> {
    mm: &'m Mm<M>,
    _held: ReadGuard<'m, MmapLock, M>,
}

impl<M: Mmu> Mappings<'_, M> {
    /// What is mapped at `addr`.
    #[inline]
    #[must_use]
    pub fn at(&self, addr: VirtAddr) -> Option<Mapping> {
        // SAFETY: 1: under `mmap_lock`.
        unsafe { self.mm.tree.mapping(addr) }
    }

    /// The attributes of the mapping that covers `addr`, found as a fault finds them: by its VMA.
    #[inline]
    #[must_use]
    pub fn vma_at(&self, addr: VirtAddr) -> Option<VmaView> {
        // SAFETY: 1: under `mmap_lock`.
        let view = unsafe { self.mm.tree.at_or_before(addr) }?.view();
        view.range.contains(addr).then_some(view)
    }
}

impl<M: Mmu> Mm<M> {
    /// The mappings, held still: `mmap_lock` for reading until dropped.
    ///
    /// # Context
    /// Sleeps for the lock. Whoever holds it calls nothing of this address space that takes it.
    #[inline]
    pub fn mappings(&self) -> Mappings<'_, M> {
        Mappings {
            mm: self,
            _held: self.mmap_lock.read(),
        }
    }

    /// What is mapped at `addr`.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    #[inline]
    #[must_use]
    pub fn mapping_at(&self, addr: VirtAddr) -> Option<Mapping> {
        self.mappings().at(addr)
    }

    /// Calls `visit` with each mapping, in order, under `mmap_lock`.
    pub fn for_each_mapping(&self, mut visit: impl FnMut(VirtRange, crate::base::attrs::Prot)) {
        let _held = self.mmap_lock.read();
        self.tree_visit(|vma| {
            let view = vma.view();
            visit(view.range, view.prot);
        });
    }

    /// Leaves of the tree of mappings, of at most 18 each: how full they are says how much memory
    /// lookups at random have to go through. Sleeps for `mmap_lock`.
    #[must_use]
    pub fn mapping_leaves(&self) -> usize {
        let _held = self.mmap_lock.read();
        // SAFETY: 1: under `mmap_lock`.
        unsafe { self.tree.leaves() }
    }

    /// Calls `visit` with each VMA, in order. The caller holds `mmap_lock`.
    pub(crate) fn tree_visit<'a>(&'a self, mut visit: impl FnMut(&'a Vma<M>)) {
        let mut at = VirtAddr(0);
        // SAFETY: 1: under `mmap_lock`.
        while let Some(vma) = unsafe { self.tree.at_or_after(at) } {
            visit(vma);
            at = vma.view().range.end();
        }
    }

    /// Calls `visit` with the parts of `range` whose tables stay while the caller holds
    /// `mmap_lock`, in order: all that is mapped but huge pages. Tables of those may be shared, and
    /// then others leave and free them under `i_mmap`, whoever has `mmap_lock` (P59); a walk
    /// through them holds `i_mmap`, as [`Mm::see_huge`] does.
    ///
    /// Linux: hugetlb_walk, which asks for the mapping's lock or `i_mmap` (v6.3).
    pub(crate) fn each_unshared(&self, range: VirtRange, mut visit: impl FnMut(VirtRange)) {
        let mut at = range.start();
        while at < range.end()
            && let Some(vma) = self.find(at)
        {
            let view = vma.view();
            let part = view.range.intersect(range);
            let stays = !view.is_huge() || self.system().lacks(Broken::AgesShared);
            if stays && !part.is_empty() {
                visit(part);
            }
            at = view.range.end();
        }
    }

    /// The first VMA that ends after `addr`. The caller holds `mmap_lock`.
    pub(crate) fn find(&self, addr: VirtAddr) -> Option<&Vma<M>> {
        // SAFETY: 1: under `mmap_lock`.
        let before = unsafe { self.tree.at_or_before(addr) };
        match before {
            Some(vma) if vma.view().range.end() > addr => Some(vma),
            // SAFETY: 1: as above.
            _ => unsafe { self.tree.at_or_after(addr) },
        }
    }
}
