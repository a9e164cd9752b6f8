//! Gaps between VMAs, and the search for one that is large enough.
//!
//! The word of an inner node's slot is the largest gap, in pages, between VMAs below that child, or
//! between the last of them and the first behind it. It is never too small: what makes a gap larger
//! raises the words above it. What makes it smaller leaves them, and a search that goes where a
//! word promised too much puts it right; so most changes touch none. All words are guarded by
//! `mmap_lock`.
//!
//! Linux: the gaps of lib/maple_tree.c, mas_empty_area_rev.

use super::look::{first, last};
use super::{Body, FANOUT, HOLE, Tree, read, vma};
use crate::base::attrs::Prot;
use crate::space::vma::Vma;
use crate::space::vma_ptr::VmaPtr;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Ordering;

/// What touches a range.
pub(crate) struct Beside<'v, M: Mmu> {
    /// The VMA that ends where it starts.
    pub(crate) below: Option<VmaPtr<'v, M>>,
    /// The VMA that starts where it ends.
    pub(crate) above: Option<VmaPtr<'v, M>>,
}

/// Where what is searched ends.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Where a VMA starts, or user space ends.
    Whole(u64),
    /// Within a hole, whose rest is not to be used.
    Cut(u64),
}

impl End {
    #[inline(always)]
    const fn at(self) -> u64 {
        match self {
            Self::Whole(at) | Self::Cut(at) => at,
        }
    }

    /// The end of what lies before a VMA that starts at `start`.
    #[inline(always)]
    const fn before(self, start: u64) -> Self {
        if start < self.at() {
            Self::Whole(start)
        } else {
            self
        }
    }
}

/// A hole that is searched for.
struct Search {
    bytes: u64,
    pages: u32,
}

impl Search {
    /// What lies between, if it is enough.
    #[inline(always)]
    fn enough(&self, start: u64, end: u64) -> Option<VirtRange> {
        let hole = VirtRange::new(VirtAddr(start), VirtAddr(end));
        (end >= start && end - start >= self.bytes).then_some(hole)
    }
}

impl<M: Mmu> Tree<M> {
    /// The highest hole of at least `len` bytes from `bottom`, before which no VMA starts, up to
    /// `top`: as much of it as lies there.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock` for writing.
    pub(crate) unsafe fn highest_hole(
        &self,
        len: u64,
        bottom: VirtAddr,
        top: End,
    ) -> Option<VirtRange> {
        let search = Search {
            bytes: len,
            pages: pages::<M>(len),
        };
        let root = self.root.load(Ordering::Relaxed);
        if root == 0 {
            return search.enough(bottom.0, top.at());
        }
        // SAFETY: 1: 1 of this function.
        unsafe { search.below::<M>(root, top) }.or_else(|| {
            // SAFETY: 1: 1 of this function.
            let first = unsafe { start::<M>(root) }?;
            search.enough(bottom.0, top.before(first).at())
        })
    }

    /// Where the VMA before `addr`, which none covers, ends, and where the next one starts.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    pub(crate) unsafe fn around(&self, addr: VirtAddr) -> (Option<VirtAddr>, Option<VirtAddr>) {
        // SAFETY: 1: 1 of this function, here and below.
        if let Some((leaf, before, after)) = unsafe { self.on_one_leaf(addr.0 + 1, addr.0) } {
            // SAFETY: 1.
            let end = unsafe { leaf.end_of(before) };
            return (Some(VirtAddr(end)), Some(VirtAddr(leaf.keys[after])));
        }
        // SAFETY: 1.
        let (before, after) = unsafe { self.neighbours(addr) };
        (before.map(|it| it.end()), after.map(|it| it.start()))
    }

    /// The VMAs that touch `range`.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`, as long as `'a`.
    pub(crate) unsafe fn beside<'a>(&self, range: VirtRange) -> Beside<'a, M> {
        let (start, end) = (range.start(), range.end());
        // SAFETY: 1: 1 of this function, here and below.
        if let Some((leaf, before, after)) = unsafe { self.on_one_leaf(start.0, end.0) } {
            // SAFETY: 1.
            let ends = unsafe { leaf.end_of(before) } == start.0;
            let starts = leaf.keys[after] == end.0;
            // SAFETY: 1 of this function, here and below.
            let at = |slot| unsafe { vma(leaf.held(slot)) };
            return Beside {
                below: ends.then(|| at(before).into()),
                above: starts.then(|| at(after).into()),
            };
        }
        let last = start.0.checked_sub(1).map(VirtAddr);
        // SAFETY: 1.
        let below = last.and_then(|last| unsafe { self.at_or_before(last) });
        // SAFETY: 1.
        let above = unsafe { self.at_or_before(end) };
        Beside {
            below: below
                .filter(|vma| vma.view().range.end() == start)
                .map(VmaPtr::from),
            above: above
                .filter(|vma| vma.view().range.start() == end)
                .map(VmaPtr::from),
        }
    }

    /// The last VMA that starts below `start` and the first that starts at `end` or behind, where
    /// one leaf has both: it and their slots.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`, as long as `'a`.
    #[inline(always)]
    unsafe fn on_one_leaf<'a>(&self, start: u64, end: u64) -> Option<(&'a Body<M>, usize, usize)> {
        let mut node = self.root.load(Ordering::Relaxed);
        let last = start.checked_sub(1)?;
        while node != 0 {
            // SAFETY: 1: 1 of this function, here and below.
            let body = unsafe { read::<M>(node) };
            if body.level > 0 {
                node = body.held(body.slot_for(last));
                continue;
            }
            // SAFETY: 1.
            let words = unsafe { body.words() };
            let lives = |slot: &usize| words[*slot] != HOLE;
            let here = body.at_most(last);
            let before = (0..here).rev().find(lives)?;
            let behind = |slot: &usize| lives(slot) && body.keys[*slot] >= end;
            let after = (here..FANOUT).find(behind)?;
            return Some((body, before, after));
        }
        None
    }

    /// `range` is about to be mapped: what is free behind it is another VMA's gap then, and so is
    /// what is before it, where nothing is behind.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock` for writing.
    pub(super) unsafe fn raise_around(&self, range: VirtRange) {
        // SAFETY: 1: 1 of this function, here and below.
        let (before, after) = unsafe { self.neighbours(range.start()) };
        if let Some(after) = after {
            let gap = after.start().0.saturating_sub(range.end().0);
            // SAFETY: 1.
            unsafe { self.raise(range.start().0, pages::<M>(gap)) };
        }
        if let Some(before) = before {
            let gap = range.start().0.saturating_sub(before.end().0);
            // SAFETY: 1.
            unsafe { self.raise(before.start().0, pages::<M>(gap)) };
        }
    }

    /// The VMA before `addr` and the one that starts there or behind.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline(never)]
    unsafe fn neighbours(&self, addr: VirtAddr) -> (Option<VirtRange>, Option<VirtRange>) {
        // SAFETY: 1: 1 of this function.
        let before = unsafe { self.at_or_before(addr) };
        // SAFETY: 1: 1 of this function.
        let after = unsafe { self.at_or_after(addr) };
        let range = |vma: &Vma<M>| vma.view().range;
        (before.map(range), after.map(range))
    }

    /// The gap behind the VMA that starts at `start` is `pages` now.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock` for writing.
    #[inline]
    pub(super) unsafe fn raise(&self, start: u64, pages: u32) {
        let mut node = self.root.load(Ordering::Relaxed);
        while node != 0 {
            // SAFETY: 1: 1 of this function, here and below.
            let body = unsafe { read::<M>(node) };
            if body.level == 0 {
                return;
            }
            let slot = body.slot_for(start);
            // SAFETY: 1.
            if unsafe { body.words() }[slot] < pages {
                // SAFETY: 1.
                unsafe { body.set_word(slot, pages) };
            }
            node = body.held(slot);
        }
    }
}

impl<M: Mmu> Body<M> {
    /// Whether VMAs of this leaf are on both sides of `slot`.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline]
    pub(super) unsafe fn is_between(&self, slot: usize) -> bool {
        // SAFETY: 1: 1 of this function.
        let words = unsafe { self.words() };
        let lives = |word: &u32| *word != HOLE;
        words[..slot].iter().any(lives) && words[slot + 1..].iter().any(lives)
    }

    /// Where the VMA in `slot` of a leaf ends.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline(always)]
    pub(super) unsafe fn end_of(&self, slot: usize) -> u64 {
        // SAFETY: 1: 1 of this function.
        let pages = unsafe { self.words() }[slot] >> Prot::BITS;
        if pages == 0 {
            // SAFETY: 1 of this function.
            return unsafe { vma::<M>(self.held(slot)) }.view().range.end().0;
        }
        self.keys[slot] + (u64::from(pages) << M::Paging::shift())
    }

    /// The word of the child in `slot` of an inner node, behind which the next VMA starts at
    /// `next`.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    pub(super) unsafe fn gap_word(&self, slot: usize, next: Option<u64>) -> u32 {
        let child = self.held(slot);
        // SAFETY: 1: 1 of this function, here and below.
        let body = unsafe { read::<M>(child) };
        if body.level > 0 {
            // SAFETY: 1.
            let inside = unsafe { body.words() }[..body.used()].iter().copied().max();
            // SAFETY: 1.
            let end = unsafe { end::<M>(child) };
            let behind = end.zip(next).map(|(end, next)| next.saturating_sub(end));
            return pages::<M>(behind.unwrap_or(0)).max(inside.unwrap_or(0));
        }
        let (mut largest, mut next) = (0, next);
        for slot in (0..body.used()).rev() {
            // SAFETY: 1.
            if unsafe { body.lives(slot) } {
                // SAFETY: 1.
                let end = unsafe { body.end_of(slot) };
                largest = next.map_or(0, |next| next.saturating_sub(end)).max(largest);
                next = Some(body.keys[slot]);
            }
        }
        pages::<M>(largest)
    }

    /// Where the first VMA behind the child in `slot` of an inner node starts, if that is below
    /// this node.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    pub(super) unsafe fn behind(&self, slot: usize) -> Option<u64> {
        // SAFETY: 1: 1 of this function.
        (slot + 1 < self.used()).then(|| unsafe { start::<M>(self.held(slot + 1)) })?
    }
}

/// As many pages as a word can say.
pub(super) fn pages<M: Mmu>(bytes: u64) -> u32 {
    u32::try_from(bytes >> M::Paging::shift()).unwrap_or(u32::MAX)
}

/// Where the last VMA below `node` ends.
///
/// # Safety
/// 1. The caller holds `mmap_lock`.
unsafe fn end<M: Mmu>(node: u64) -> Option<u64> {
    // SAFETY: 1: 1 of this function.
    let (leaf, slot) = unsafe { last::<M>(node) }?;
    // SAFETY: 1: 1 of this function.
    Some(unsafe { leaf.end_of(slot) })
}

/// Where the first VMA below `node` starts.
///
/// # Safety
/// 1. The caller holds `mmap_lock`.
unsafe fn start<M: Mmu>(node: u64) -> Option<u64> {
    // SAFETY: 1: 1 of this function.
    let (leaf, slot) = unsafe { first::<M>(node) }?;
    Some(leaf.keys[slot])
}

impl Search {
    /// The highest hole behind a VMA below `node`, up to `next`.
    ///
    /// # Correctness
    /// A word is put right only where all that lies behind its child is free up to the next VMA:
    /// where the search is cut off before that, the gap is larger than what is seen of it.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock` for writing.
    unsafe fn below<M: Mmu>(&self, node: u64, mut next: End) -> Option<VirtRange> {
        // SAFETY: 1: 1 of this function, here and below.
        let body = unsafe { read::<M>(node) };
        if body.level > 0 {
            // SAFETY: 1.
            let hole = self.enough(unsafe { end::<M>(node) }?, next.at());
            if hole.is_some() {
                return hole;
            }
        }
        for slot in (0..body.used()).rev() {
            if slot > 0 && body.keys[slot] >= next.at() {
                // All of it is cut off.
                continue;
            }
            // SAFETY: 1.
            let word = unsafe { body.words() }[slot];
            if body.level == 0 {
                if word != HOLE {
                    // SAFETY: 1.
                    let hole = self.enough(unsafe { body.end_of(slot) }, next.at());
                    if hole.is_some() {
                        return hole;
                    }
                    next = next.before(body.keys[slot]);
                }
            } else if word >= self.pages {
                // SAFETY: 1.
                let next = unsafe { body.behind(slot) }.map_or(next, |at| next.before(at));
                // SAFETY: 1.
                let hole = unsafe { self.below::<M>(body.held(slot), next) };
                if hole.is_some() {
                    return hole;
                }
                if let End::Whole(next) = next {
                    // SAFETY: 1.
                    let word = unsafe { body.gap_word(slot, Some(next)) };
                    // SAFETY: 1.
                    unsafe { body.set_word(slot, word) };
                }
            }
        }
        None
    }
}
