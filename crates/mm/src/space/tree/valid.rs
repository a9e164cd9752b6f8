//! Invariants of a quiescent tree, for oracles: read without instrumented access.

use super::{Body, FANOUT, HOLE, Tree, UNUSED, gaps, word_of};
use crate::base::attrs::VmaView;
use minflt_addr::VirtRange;
use minflt_pgtable::Mmu;

/// What a node promises its parent, as it is.
#[derive(Clone, Copy)]
struct Below {
    start: u64,
    end: u64,
    /// The largest gap inside, in pages.
    gap: u32,
}

impl<M: Mmu> Tree<M> {
    /// # Errors
    /// What is wrong with a tree of what lies in `addresses`.
    pub(crate) fn validate(&self, addresses: VirtRange) -> Result<(), &'static str> {
        match self.peek_root() {
            None => Ok(()),
            Some(root) => root.peek().validate(addresses, 0, UNUSED).map(|_| ()),
        }
    }
}

fn ensure(holds: bool, or: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(or) }
}

impl<M: Mmu> Body<M> {
    /// All that is below starts from `low` on and below `high`.
    fn validate(&self, addresses: VirtRange, low: u64, high: u64) -> Result<Below, &'static str> {
        ensure((1..=FANOUT).contains(&self.used()), "a node is empty")?;
        ensure(self.keys.is_sorted(), "keys do not ascend")?;
        ensure(
            self.level == 0 || self.keys[0] == 0,
            "an inner node's first key says something",
        )?;
        let unused = self.keys[self.used()..].iter().all(|key| *key == UNUSED);
        ensure(unused, "a key that is not used is none")?;
        let mut all: Option<Below> = None;
        for slot in 0..self.used() {
            let found = if self.level == 0 {
                self.validate_vma(addresses, slot, low, high)?
            } else {
                Some(self.validate_child(addresses, slot, low, high)?)
            };
            let Some(found) = found else { continue };
            let so_far = all.unwrap_or(Below {
                end: found.start,
                ..found
            });
            ensure(so_far.end <= found.start, "what is mapped overlaps")?;
            let gap = gaps::pages::<M>(found.start - so_far.end);
            if self.level > 0 && slot > 0 {
                ensure(
                    self.words[slot - 1].get() >= gap,
                    "a word hides a gap behind it",
                )?;
            }
            all = Some(Below {
                start: so_far.start,
                end: found.end,
                gap: gap.max(so_far.gap).max(found.gap),
            });
        }
        all.ok_or("a leaf has no VMA")
    }

    fn validate_vma(
        &self,
        addresses: VirtRange,
        slot: usize,
        low: u64,
        high: u64,
    ) -> Result<Option<Below>, &'static str> {
        let vma = self.vma(slot);
        ensure(
            (self.words[slot].get() == HOLE) == vma.is_none(),
            "a word says hole of a VMA",
        )?;
        let Some(vma) = vma else {
            return Ok(None);
        };
        let view = vma.peek();
        let range = view.range.intersect(addresses);
        let view = VmaView { range, ..view };
        let (start, end) = (view.range.start().0, view.range.end().0);
        ensure(start == self.keys[slot], "a key is not the VMA's start")?;
        ensure(
            (low..high).contains(&start),
            "a VMA is not found by its start",
        )?;
        let word = word_of::<M::Paging>(view);
        ensure(
            self.words[slot].get() == word,
            "a word says something else of a VMA",
        )?;
        let gap = 0;
        Ok(Some(Below { start, end, gap }))
    }

    fn validate_child(
        &self,
        addresses: VirtRange,
        slot: usize,
        low: u64,
        high: u64,
    ) -> Result<Below, &'static str> {
        let low = if slot == 0 { low } else { self.keys[slot] };
        let next = self.keys[..self.used()].get(slot + 1);
        let child = self.child(slot).ok_or("a child is missing")?.peek();
        ensure(child.level + 1 == self.level, "a level is left out")?;
        let below = child.validate(addresses, low, next.map_or(high, |next| *next))?;
        ensure(
            self.words[slot].get() >= below.gap,
            "a word hides a gap below it",
        )?;
        Ok(below)
    }
}
