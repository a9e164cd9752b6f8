//! Holes: what lies between VMAs, and how the tree finds one that is large enough.
//!
//! The word of an inner node's slot is the largest gap, in pages, between VMAs below that child, or
//! between the last of them and the first below the next child. It is never too small: a search
//! goes where a word promises enough, from the top down, and mostly finds it there. All words are
//! guarded by `mmap_lock`.
//!
//! Linux: the gaps of lib/maple_tree.c, mas_empty_area_rev.

use super::{Body, FANOUT, Tree, read, vma};
use crate::vma::Prot;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Kind, Ordering};

impl<M: Mmu> Tree<M> {
    /// The highest hole of at least `len` bytes within `within`, which all VMAs lie in; whole.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    pub(crate) unsafe fn highest_hole(&self, len: u64, within: VirtRange) -> Option<VirtRange> {
        let enough = |start: u64, end: u64| {
            let hole = VirtRange::new(VirtAddr(start), VirtAddr(end));
            (end >= start && end - start >= len).then_some(hole)
        };
        let root = self.root.load(Ordering::Relaxed);
        if root == 0 {
            return enough(within.start().0, within.end().0);
        }
        // SAFETY: 1: 1 of this function, here and below.
        let first = unsafe { read::<M>(root) }.keys[0];
        // SAFETY: 1.
        enough(unsafe { end::<M>(root) }, within.end().0)
            // SAFETY: 1.
            .or_else(|| unsafe { below::<M>(root, &enough, pages::<M>(len)) })
            .or_else(|| enough(within.start().0, first))
    }

    /// Where the VMA before `addr`, which none covers, ends, and where the next one starts.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    pub(crate) unsafe fn around(&self, addr: VirtAddr) -> (Option<VirtAddr>, Option<VirtAddr>) {
        let mut node = self.root.load(Ordering::Relaxed);
        let mut next = None;
        while node != 0 {
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            let at_most = body.at_most(addr.0);
            // In a tree of more than one leaf the first key of all but the first is at most `addr`.
            let slot = at_most.saturating_sub(1);
            let after = if body.level == 0 { at_most } else { slot + 1 };
            if after < body.used() {
                next = Some(VirtAddr(body.keys[after]));
            }
            if body.level == 0 {
                // SAFETY: 1: 1 of this function.
                let before = (at_most > 0).then(|| unsafe { body.end_of::<M>(slot) });
                return (before.map(VirtAddr), next);
            }
            node = body.slots[slot];
        }
        (None, None)
    }
}

impl Body {
    /// Where the VMA in `slot` of a leaf ends.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline(always)]
    pub(super) unsafe fn end_of<M: Mmu>(&self, slot: usize) -> u64 {
        // SAFETY: 1: 1 of this function.
        let pages = unsafe { self.words::<M>() }[slot] >> Prot::BITS;
        if pages == 0 {
            // SAFETY: 1 of this function.
            return unsafe { vma::<M>(self.slots[slot]) }.view().range.end().0;
        }
        self.keys[slot] + (u64::from(pages) << M::Paging::SHIFT)
    }

    /// The words.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline(always)]
    pub(super) unsafe fn words<M: Mmu>(&self) -> &[u32; FANOUT] {
        M::before(
            self.words.get().cast(),
            size_of::<[u32; FANOUT]>(),
            Kind::PlainRead,
        );
        // SAFETY: 1 of this function: nobody writes them.
        unsafe { &*self.words.get() }
    }

    /// The largest gap between VMAs below this node, in pages.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    unsafe fn largest<M: Mmu>(&self) -> u32 {
        if self.level > 0 {
            // SAFETY: 1: 1 of this function.
            let words = unsafe { self.words::<M>() };
            return words[..self.used()].iter().copied().max().unwrap_or(0);
        }
        let mut largest = 0;
        for slot in 1..self.used().min(FANOUT) {
            // SAFETY: 1: 1 of this function.
            let end = unsafe { self.end_of::<M>(slot - 1) };
            largest = self.keys[slot].saturating_sub(end).max(largest);
        }
        pages::<M>(largest)
    }

    /// The word of the child in `slot` of an inner node, as that child and its neighbour are.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    pub(super) unsafe fn gap_word<M: Mmu>(&self, slot: usize) -> u32 {
        let child = self.slots[slot];
        // SAFETY: 1: 1 of this function.
        let body = unsafe { read::<M>(child) };
        // SAFETY: 1: 1 of this function.
        let inside = unsafe { body.largest::<M>() };
        if slot + 1 == self.used() {
            return inside;
        }
        // SAFETY: 1: 1 of this function.
        let end = unsafe { end::<M>(child) };
        inside.max(pages::<M>(self.keys[slot + 1].saturating_sub(end)))
    }
}

/// As many pages as a word can say.
pub(super) fn pages<M: Mmu>(bytes: u64) -> u32 {
    u32::try_from(bytes >> M::Paging::SHIFT).unwrap_or(u32::MAX)
}

/// Where the last VMA below `node` ends.
///
/// # Safety
/// 1. The caller holds `mmap_lock`.
unsafe fn end<M: Mmu>(mut node: u64) -> u64 {
    loop {
        // SAFETY: 1: 1 of this function.
        let body = unsafe { read::<M>(node) };
        let last = body.used() - 1;
        if body.level == 0 {
            // SAFETY: 1: 1 of this function.
            return unsafe { body.end_of::<M>(last) };
        }
        node = body.slots[last];
    }
}

/// The highest hole between VMAs below `node` that is `enough`, which `wanted` pages are.
///
/// # Safety
/// 1. The caller holds `mmap_lock`.
unsafe fn below<M: Mmu>(
    node: u64,
    enough: &impl Fn(u64, u64) -> Option<VirtRange>,
    wanted: u32,
) -> Option<VirtRange> {
    // SAFETY: 1: 1 of this function, here and below.
    let body = unsafe { read::<M>(node) };
    let behind = |slot: usize, end: u64| {
        let next = body.keys[..body.used()].get(slot + 1);
        next.and_then(|next| enough(end, *next))
    };
    if body.level == 0 {
        // SAFETY: 1.
        let hole = |slot| behind(slot, unsafe { body.end_of::<M>(slot) });
        return (0..body.used()).rev().find_map(hole);
    }
    // SAFETY: 1.
    let words = unsafe { body.words::<M>() };
    let promising = (0..body.used()).rev().filter(|slot| words[*slot] >= wanted);
    let hole = |slot: usize| {
        let child = body.slots[slot];
        // SAFETY: 1.
        let end = unsafe { end::<M>(child) };
        // SAFETY: 1.
        behind(slot, end).or_else(|| unsafe { below::<M>(child, enough, wanted) })
    };
    { promising }.find_map(hole)
}
