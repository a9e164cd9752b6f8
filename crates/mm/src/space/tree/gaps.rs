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
use super::node::{Between, Locked, NodeRef};
use super::{Body, FANOUT, HOLE};
use crate::base::attrs::Prot;
use crate::space::vma::{Vma, VmaPtr};
use core::cell::Cell;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// What touches a range.
pub(crate) struct Beside<'v, M: Mmu> {
    /// The VMA that ends where it starts.
    pub(crate) below: Option<VmaPtr<'v, M>>,
    /// The VMA that starts where it ends.
    pub(crate) above: Option<VmaPtr<'v, M>>,
    /// Where the range is to be inserted, if that was seen on the way.
    pub(crate) between: Option<Between<'v, M>>,
}

/// A hole that was found.
pub(crate) struct Hole<'h, M: Mmu> {
    range: VirtRange,
    between: Option<Between<'h, M>>,
}

impl<'h, M: Mmu> Hole<'h, M> {
    /// One that was found without a tree's gaps.
    pub(crate) const fn alone(range: VirtRange) -> Self {
        let between = None;
        Self { range, between }
    }

    /// Where it is.
    pub(crate) const fn range(&self) -> VirtRange {
        self.range
    }

    /// What touches `range`, which ends where the hole does, if the search has seen that: one leaf
    /// has what is around.
    #[inline]
    pub(crate) fn beside(&self, range: VirtRange) -> Option<Beside<'h, M>> {
        let (below, above) = self.between?.both();
        let touches = range.start() == self.range.start();
        Some(Beside {
            below: below.filter(|_| touches),
            above,
            between: self.between,
        })
    }
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

    /// Where that is.
    pub(crate) const fn address(self) -> VirtAddr {
        VirtAddr(self.at())
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
    fn enough<'h, M: Mmu>(&self, start: u64, end: u64) -> Option<Hole<'h, M>> {
        (end >= start && end - start >= self.bytes).then(|| Hole {
            range: VirtRange::new(VirtAddr(start), VirtAddr(end)),
            between: None,
        })
    }
}

impl<'h, M: Mmu> Locked<'h, M> {
    /// The highest hole of at least `len` bytes from `bottom`, before which no VMA starts, up to
    /// `top`: as much of it as lies there.
    pub(crate) fn highest_hole(self, len: u64, bottom: VirtAddr, top: End) -> Option<Hole<'h, M>> {
        let search = Search {
            bytes: len,
            pages: pages::<M>(len),
        };
        let Some(root) = self.root() else {
            return search.enough(bottom.0, top.at());
        };
        search.below(root, top).or_else(|| {
            let first = start(root)?;
            search.enough(bottom.0, top.before(first).at())
        })
    }

    /// Where the VMA before `addr`, which none covers, ends, and where the next one starts.
    pub(crate) fn around(self, addr: VirtAddr) -> (Option<VirtAddr>, Option<VirtAddr>) {
        if let Some((leaf, before, after)) = self.on_one_leaf(addr.0 + 1, addr.0) {
            let end = leaf.end_of(before);
            return (Some(VirtAddr(end)), Some(VirtAddr(leaf.keys[after])));
        }
        let (before, after) = self.neighbours(addr);
        (before.map(|it| it.end()), after.map(|it| it.start()))
    }

    /// The VMAs that touch `range`.
    pub(crate) fn beside(self, range: VirtRange) -> Beside<'h, M> {
        let (start, end) = (range.start(), range.end());
        if let Some((leaf, before, after)) = self.on_one_leaf(start.0, end.0) {
            let ends = leaf.end_of(before) == start.0;
            let starts = leaf.keys[after] == end.0;
            let at = |slot| leaf.vma(slot).map(VmaPtr::from);
            return Beside {
                below: ends.then(|| at(before)).flatten(),
                above: starts.then(|| at(after)).flatten(),
                between: None,
            };
        }
        let last = start.0.checked_sub(1).map(VirtAddr);
        let below = last.and_then(|last| self.at_or_before(last));
        let above = self.at_or_before(end);
        Beside {
            below: below
                .filter(|vma| vma.view().range.end() == start)
                .map(VmaPtr::from),
            above: above
                .filter(|vma| vma.view().range.start() == end)
                .map(VmaPtr::from),
            between: None,
        }
    }

    /// The last VMA that starts below `start` and the first that starts at `end` or behind, where
    /// one leaf has both: it and their slots.
    #[inline(always)]
    fn on_one_leaf(self, start: u64, end: u64) -> Option<(&'h Body<M>, usize, usize)> {
        let mut node = self.root()?;
        let last = start.checked_sub(1)?;
        loop {
            let body = node.read();
            if body.level > 0 {
                node = body.child(body.slot_for(last))?;
                continue;
            }
            let words = body.words();
            let lives = |slot: &usize| words[*slot].get() != HOLE;
            let here = body.at_most(last);
            let before = (0..here).rev().find(lives)?;
            let behind = |slot: &usize| lives(slot) && body.keys[*slot] >= end;
            let after = (here..FANOUT).find(behind)?;
            return Some((body, before, after));
        }
    }

    /// `range` is about to be mapped: what is free behind it is another VMA's gap then, and so is
    /// what is before it, where nothing is behind.
    pub(super) fn raise_around(self, range: VirtRange) {
        let (before, after) = self.neighbours(range.start());
        if let Some(after) = after {
            let gap = after.start().0.saturating_sub(range.end().0);
            self.raise(range.start().0, pages::<M>(gap));
        }
        if let Some(before) = before {
            let gap = range.start().0.saturating_sub(before.end().0);
            self.raise(before.start().0, pages::<M>(gap));
        }
    }

    /// The VMA before `addr` and the one that starts there or behind.
    #[inline(never)]
    fn neighbours(self, addr: VirtAddr) -> (Option<VirtRange>, Option<VirtRange>) {
        let before = self.at_or_before(addr);
        let after = self.at_or_after(addr);
        let range = |vma: &Vma<M>| vma.view().range;
        (before.map(range), after.map(range))
    }

    /// The gap behind the VMA that starts at `start` is `pages` now.
    #[inline]
    pub(super) fn raise(self, start: u64, pages: u32) {
        let mut node = self.root();
        while let Some(at) = node {
            let body = at.read();
            if body.level == 0 {
                return;
            }
            let slot = body.slot_for(start);
            if body.words()[slot].get() < pages {
                body.set_word(slot, pages);
            }
            node = body.child(slot);
        }
    }
}

impl<M: Mmu> Body<M> {
    /// Whether VMAs of this leaf are on both sides of `slot`.
    #[inline]
    pub(super) fn is_between(&self, slot: usize) -> bool {
        let words = self.words();
        let lives = |word: &Cell<u32>| word.get() != HOLE;
        words[..slot].iter().any(lives) && words[slot + 1..].iter().any(lives)
    }

    /// Where the VMA in `slot` of a leaf ends.
    #[inline(always)]
    pub(super) fn end_of(&self, slot: usize) -> u64 {
        let pages = self.words()[slot].get() >> Prot::BITS;
        if pages == 0
            && let Some(vma) = self.vma(slot)
        {
            return vma.view().range.end().0;
        }
        self.keys[slot] + (u64::from(pages) << M::Paging::shift())
    }

    /// The word of the child in `slot` of an inner node, behind which the next VMA starts at
    /// `next`.
    pub(super) fn gap_word(&self, slot: usize, next: Option<u64>) -> u32 {
        let Some(child) = self.child(slot) else {
            return 0;
        };
        let body = child.read();
        if body.level > 0 {
            let inside = body.words()[..body.used()].iter().map(Cell::get).max();
            let end = end(child);
            let behind = end.zip(next).map(|(end, next)| next.saturating_sub(end));
            return pages::<M>(behind.unwrap_or(0)).max(inside.unwrap_or(0));
        }
        let (mut largest, mut next) = (0, next);
        for slot in (0..body.used()).rev() {
            if body.lives(slot) {
                let end = body.end_of(slot);
                largest = next.map_or(0, |next| next.saturating_sub(end)).max(largest);
                next = Some(body.keys[slot]);
            }
        }
        pages::<M>(largest)
    }

    /// Where the first VMA behind the child in `slot` of an inner node starts, if that is below
    /// this node.
    pub(super) fn behind(&self, slot: usize) -> Option<u64> {
        (slot + 1 < self.used()).then(|| start(self.child(slot + 1)?))?
    }
}

/// As many pages as a word can say.
pub(super) fn pages<M: Mmu>(bytes: u64) -> u32 {
    u32::try_from(bytes >> M::Paging::shift()).unwrap_or(u32::MAX)
}

/// Where the last VMA below `node` ends.
fn end<M: Mmu>(node: NodeRef<'_, M>) -> Option<u64> {
    let (leaf, slot) = last(node)?;
    Some(leaf.end_of(slot))
}

/// Where the first VMA below `node` starts.
fn start<M: Mmu>(node: NodeRef<'_, M>) -> Option<u64> {
    let (leaf, slot) = first(Some(node))?;
    Some(leaf.keys[slot])
}

impl Search {
    /// The highest hole behind a VMA below `node`, up to `next`.
    ///
    /// # Correctness
    /// A word is put right only where all that lies behind its child is free up to the next VMA:
    /// where the search is cut off before that, the gap is larger than what is seen of it.
    fn below<'h, M: Mmu>(&self, node: NodeRef<'h, M>, mut next: End) -> Option<Hole<'h, M>> {
        let body = node.read();
        // The slot of a leaf that `next` is the start of.
        let mut after = None;
        if body.level > 0 {
            let hole = self.enough(end(node)?, next.at());
            if hole.is_some() {
                return hole;
            }
        }
        for slot in (0..body.used()).rev() {
            if slot > 0 && body.keys[slot] >= next.at() {
                // All of it is cut off.
                continue;
            }
            let word = body.words()[slot].get();
            if body.level == 0 {
                if word != HOLE {
                    if let Some(hole) = self.enough(body.end_of(slot), next.at()) {
                        let between = after.map(|after| Between::new(body, slot, after));
                        return Some(Hole { between, ..hole });
                    }
                    let cut = body.keys[slot] >= next.at();
                    next = next.before(body.keys[slot]);
                    after = (!cut).then_some(slot);
                }
            } else if word >= self.pages {
                let next = body.behind(slot).map_or(next, |at| next.before(at));
                let hole = self.below(body.child(slot)?, next);
                if hole.is_some() {
                    return hole;
                }
                if let End::Whole(next) = next {
                    let word = body.gap_word(slot, Some(next));
                    body.set_word(slot, word);
                }
            }
        }
        None
    }
}
