//! Tree lookups with and without `mmap_lock`, and writers' searches.

use super::node::{Found, Locked, NodeRef, Section, SeenRef};
use super::{Body, FANOUT, HOLE, Mapping, by_word};
use crate::base::attrs::VmaView;
use crate::space::vma::Vma;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

impl<M: Mmu> Section<'_, M> {
    /// Where the last VMA is that starts at or before `addr`. It may be freed meanwhile, and be
    /// another by now, as under `type-stable`: a reference would say that nobody writes it.
    #[inline(always)]
    pub(crate) fn at_or_before(self, addr: VirtAddr) -> Option<NonNull<Vma<M>>> {
        let mut node = self.root()?;
        loop {
            node.prefetch();
            let seen = node.read();
            let at_most = seen.at_most(addr.0);
            if seen.is_leaf() {
                let vma = seen.vma(at_most.saturating_sub(1));
                if at_most > 0 && vma.is_some() {
                    return vma;
                }
                let before = (0..at_most).rev().find_map(|slot| seen.vma(slot));
                return before.or_else(|| self.before_hole(addr));
            }
            node = seen.child(at_most.saturating_sub(1))?;
        }
    }

    /// The same where no key of the leaf that is at most `addr` leads anywhere.
    #[cold]
    #[inline(never)]
    pub(super) fn before_hole(self, addr: VirtAddr) -> Option<NonNull<Vma<M>>> {
        fn down<M: Mmu>(node: SeenRef<'_, M>, addr: u64) -> Option<NonNull<Vma<M>>> {
            let seen = node.read();
            let at_most = seen.at_most(addr);
            if seen.is_leaf() {
                return (0..at_most).rev().find_map(|slot| seen.vma(slot));
            }
            // The first leaf may have none; the next one has.
            let mut children = (0..at_most.max(1)).rev();
            children.find_map(|slot| down(seen.child(slot)?, addr))
        }
        down(self.root()?, addr.0)
    }
}

impl<'h, M: Mmu> Locked<'h, M> {
    /// What is mapped at `addr`, mostly without a look at the VMA.
    #[inline]
    pub(crate) fn mapping(self, addr: VirtAddr) -> Option<Mapping> {
        let mut node = self.root()?;
        loop {
            node.prefetch(core::mem::offset_of!(Body<M>, slots));
            let body = node.read();
            let at_most = body.at_most(addr.0);
            let slot = at_most.saturating_sub(1);
            if body.level > 0 {
                node = body.child(slot)?;
                continue;
            }
            let word = body.words()[slot].get();
            let found = by_word::<M::Paging>(body.keys[slot], word);
            if at_most == 0 || found.is_none() || M::CHECKED {
                return self.mapping_of_vma(addr, found.filter(|_| at_most > 0));
            }
            return found.filter(|it| it.range.contains(addr));
        }
    }

    /// The same by the VMA, which has to say what the leaf said, if it said anything.
    #[cold]
    #[inline(never)]
    fn mapping_of_vma(self, addr: VirtAddr, said: Option<Mapping>) -> Option<Mapping> {
        let VmaView { range, prot, .. } = self.at_or_before(addr)?.view();
        let now = Mapping { range, prot };
        if said.is_some_and(|said| said != now) {
            M::violation(format_args!(
                "stale range in the VMA tree: {said:?} instead of {now:?}"
            ));
        }
        range.contains(addr).then_some(now)
    }

    /// The first VMA that starts at or after `addr`.
    pub(crate) fn at_or_after(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        let mut node = self.root();
        // The subtree right of the path, nearest to the leaf.
        let mut right = None;
        while let Some(at) = node {
            let body = at.read();
            if body.level == 0 {
                let below = addr.0.checked_sub(1).map_or(0, |last| body.at_most(last));
                let found = (below..body.used()).find(|slot| body.lives(*slot));
                if let Some(slot) = found {
                    return body.vma(slot);
                }
                break;
            }
            let slot = body.slot_for(addr.0);
            if slot + 1 < body.used() {
                right = body.child(slot + 1);
            }
            node = body.child(slot);
        }
        let (leaf, slot) = first(right)?;
        leaf.vma(slot)
    }

    /// The VMA that starts at `start`, and where it is.
    #[inline]
    pub(crate) fn found(self, start: VirtAddr) -> Option<Found<'h, M>> {
        let (leaf, slot) = self.slot_of(start.0)?;
        Found::new(leaf, slot)
    }

    /// The leaf and the slot of the key `start`, if there is one: a VMA's or a hole.
    #[inline]
    pub(super) fn slot_of(self, start: u64) -> Option<(&'h Body<M>, usize)> {
        let mut node = self.root()?;
        loop {
            let body = node.read();
            let slot = body.slot_for(start);
            if body.level == 0 {
                return (body.keys[slot] == start).then_some((body, slot));
            }
            node = body.child(slot)?;
        }
    }

    /// What is not mapped when the VMA in `slot` of `leaf` goes, if VMAs are on both sides: where
    /// the one before starts, and what is free.
    #[inline]
    pub(super) fn gap_around(self, leaf: &Body<M>, slot: usize) -> Option<(u64, VirtRange)> {
        let words = leaf.words();
        let lives = |slot: &usize| words[*slot].get() != HOLE;
        let (start, end) = match (0..slot).rev().find(lives) {
            Some(before) => (leaf.keys[before], leaf.end_of(before)),
            None => {
                let last = VirtAddr(leaf.keys[slot].checked_sub(1)?);
                let range = self.before_hole(last)?.view().range;
                (range.start().0, range.end().0)
            }
        };
        let next = self.next_start(leaf, slot)?;
        // Of those that a merge is about to take out, another covers it already.
        let free = VirtRange::new(VirtAddr(end.min(next)), VirtAddr(next));
        Some((start, free))
    }

    /// Where the first VMA behind the key in `slot` of `leaf` starts.
    #[inline]
    pub(super) fn next_start(self, leaf: &Body<M>, slot: usize) -> Option<u64> {
        let words = leaf.words();
        if let Some(next) = (slot + 1..FANOUT).find(|slot| words[*slot].get() != HOLE) {
            return Some(leaf.keys[next]);
        }
        let next = self.at_or_after(VirtAddr(leaf.keys[slot] + 1));
        next.map(|next| next.view().range.start().0)
    }

    /// How many leaves there are.
    pub(crate) fn leaves(self) -> usize {
        fn below<M: Mmu>(node: NodeRef<'_, M>) -> usize {
            let body = node.read();
            if body.level == 0 {
                return 1;
            }
            let children = (0..body.used()).filter_map(|slot| body.child(slot));
            children.map(below).sum()
        }
        self.root().map_or(0, below)
    }
}

impl<M: Mmu> Body<M> {
    /// Whether the key in `slot` of a leaf leads to a VMA.
    #[inline(always)]
    pub(super) fn lives(&self, slot: usize) -> bool {
        self.words()[slot].get() != HOLE
    }

    /// The VMAs of a leaf.
    #[inline]
    pub(super) fn living(&self) -> usize {
        let words = self.words();
        words
            .iter()
            .map(|word| u32::from(word.get() != HOLE))
            .sum::<u32>() as usize
    }
}

/// The leaf and the slot of the first VMA below `node`.
pub(super) fn first<M: Mmu>(node: Option<NodeRef<'_, M>>) -> Option<(&Body<M>, usize)> {
    let mut node = node?;
    loop {
        let body = node.read();
        if body.level == 0 {
            let slot = (0..FANOUT).find(|slot| body.lives(*slot))?;
            return Some((body, slot));
        }
        node = body.child(0)?;
    }
}

/// The leaf and the slot of the last VMA below `node`.
pub(super) fn last<M: Mmu>(node: NodeRef<'_, M>) -> Option<(&Body<M>, usize)> {
    let mut node = node;
    loop {
        let body = node.read();
        if body.level == 0 {
            let slot = (0..FANOUT).rev().find(|slot| body.lives(*slot))?;
            return Some((body, slot));
        }
        node = body.child(body.used() - 1)?;
    }
}
