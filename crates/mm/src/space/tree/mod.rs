//! The VMA tree: a B+ tree by address, whose nodes are replaced one at a time.
//!
//! # Problem
//! Speculative faults look VMAs up while a writer inserts, splits and removes them. A reader must
//! never block, never see a torn node, and never miss a VMA that exists before and after the
//! change. (In-place writes of nodes under a reader's lock were a privilege escalation in Linux.)
//!
//! # Idea
//! The keys of a published node never change, and a key's slot is one word. So a change is one
//! store: of a VMA into the slot of an existing key, of nothing into the slot of a removed VMA, or
//! of a new node into the slot of the node it replaces. A key with an empty slot is a *hole*: the
//! next VMA that starts there fills it (as when memory is mapped and unmapped repeatedly), and the
//! next copy of the node omits it.
//!
//! ```text
//! keys    a    b    c    d         remove c     a    b    c    d        insert e
//! slots   A    B    C    D         ------->     A    B    -    D        ------->   a copy: a b d e
//! ```
//!
//! # Protocol
//! Writers: `mmap_lock` for writing. Readers: `mmap_lock`, or a read section of the reclamation
//! scheme's domain. All nodes of a change are allocated before its one store, so a change is
//! atomic. A key of an inner node is a separator: at most the smallest start below its child,
//! greater than all starts before it, and not necessarily equal to the smallest below; the first is
//! 0. Every leaf has a VMA.
//!
//! A VMA may extend over following holes, also over a separator. So a lookup that ends at a hole,
//! or before all keys of its leaf, goes back to the last VMA before it.
//!
//! # Why it is correct
//! Let VMA X cover an address from before a lookup until after it. X's key is in every version of
//! its leaf that the lookup can find, and no key between X's and the address leads to a VMA, since
//! VMAs do not overlap. So a lookup that goes back finds X, however old and new leaves mix on its
//! way: a leaf that is split or merged, or shares VMAs with another, gets a new parent; the old
//! parent keeps the old leaf. Release on a slot's store and acquire on its load order the contents
//! of what it leads to. Old nodes are freed only when no reader is left that could have found them.
//! While a VMA is split a lookup finds the old one or the new one, and must check its attributes,
//! inside or outside of its write section.
//!
//! # Cost
//! Lookup: a node per level, its lines prefetched together, no branch that depends on a key. Under
//! `mmap_lock` a leaf's word has the rest, so that 15 VMAs use 4 lines and not one each: the lines
//! of 100,000 VMAs stay in a private cache of the CPU. Otherwise the VMA, whose first record lies
//! in one line with it. Change: a store where a hole is made or filled; else a copy of a leaf of
//! 384 bytes ([`change`]), and of nodes above only where leaves split or merge.
//!
//! Linux: lib/maple_tree.c (v6.1), which stores in place where it can, and else replaces a node.

mod change;
mod edit;
mod gaps;
mod look;
mod node;
mod valid;

use crate::base::attrs::{Prot, VmaView};
use crate::base::error::NoMemory;
use crate::space::vma::Vma;
use crate::system::System;
use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;
pub(crate) use gaps::{Beside, End, Hole};
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::slab::{Ensured, SlabObject};
use minflt_sync::{Atomic, Callback, Ordering};
pub(crate) use node::{Between, Found, Locked};
use node::{Entry, Slot};

/// Children of an inner node, VMAs of a leaf: as many as six lines of the cache hold with the rest
/// of a node. A random lookup among 100,000 took 0.58 of `BTreeMap`'s time so, 0.65 with 14 and
/// 0.63 with 21, before keys were counted and leaves filled as they are (AMD EPYC of family 25,
/// `benches/mappings`).
const FANOUT: usize = 18;

/// What a key that is not used holds. No key is larger.
const UNUSED: u64 = i64::MAX as u64;

/// A leaf's word of a key that leads to nothing. No VMA's word is this.
const HOLE: u32 = 3;

/// A node: of what is published only slots and words change.
///
/// # Invariants
/// Keys ascend, and are below [`UNUSED`] where used. The first of an inner node is 0: what is below
/// may start anywhere before the second.
#[derive(Debug)]
#[repr(C)]
struct Body<M: Mmu> {
    /// 0 for a leaf.
    level: u32,
    len: u32,
    /// Start addresses: of VMAs and holes in a leaf, separators in an inner node.
    keys: [u64; FANOUT],
    /// In a leaf, each VMA's [`word_of`] its range and protection, or [`HOLE`], also where no key
    /// is; in an inner node each child's gap ([`gaps`]). Guarded by: `mmap_lock`.
    words: [Cell<u32>; FANOUT],
    /// VMAs in a leaf, 0 for a hole; nodes in an inner node. Written by: `mmap_lock`, write.
    slots: [Atomic<u64, M>; FANOUT],
}

/// A node with what frees it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Node<M: Mmu> {
    body: Body<M>,
    pub(crate) callback: Callback,
}

impl<M: Mmu> SlabObject for Node<M> {}

/// The tree.
pub(crate) struct Tree<M: Mmu> {
    root: Atomic<u64, M>,
}

impl<M: Mmu> Body<M> {
    fn empty(level: u32) -> Self {
        Self {
            level,
            len: 0,
            keys: [UNUSED; FANOUT],
            words: [const { Cell::new(HOLE) }; FANOUT],
            slots: core::array::from_fn(|_| Atomic::new(0)),
        }
    }

    fn used(&self) -> usize {
        self.len as usize
    }

    /// Keys that are at most `addr`. All are looked at, which takes less than guessing where to
    /// stop; in three sums, so that none waits for the one before: two instructions a key.
    #[inline(always)]
    fn at_most(&self, addr: u64) -> usize {
        const SUMS: usize = 3;
        const { assert!(FANOUT.is_multiple_of(SUMS)) };
        let addr = addr.min(UNUSED - 1);
        let mut sums = [0; SUMS];
        for keys in self.keys.chunks_exact(SUMS) {
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum += usize::from(*key <= addr);
            }
        }
        sums.iter().sum()
    }

    /// The last slot whose key is at most `addr`; the first if there is none.
    #[inline(always)]
    fn slot_for(&self, addr: u64) -> usize {
        self.at_most(addr).saturating_sub(1)
    }
}

/// What a leaf says of a VMA: its pages and its protection; 0 where that does not fit, and the VMA
/// has to be asked. Pages of at most 2 TiB (of 4 KiB each) fit.
fn word_of<P: Paging>(view: VmaView) -> u32 {
    let pages = view.range.pages(P::shift());
    let prot = u64::from(view.prot.bits());
    u32::try_from(pages << Prot::BITS | prot).unwrap_or(0)
}

/// What is mapped at an address, by the leaf alone.
fn by_word<P: Paging>(start: u64, word: u32) -> Option<Mapping> {
    let prot = Prot::from_bits(word);
    let len = u64::from(word >> Prot::BITS) << P::shift();
    let range = VirtRange::new(VirtAddr(start), VirtAddr(start + len));
    (len > 0).then_some(Mapping { range, prot })
}

/// Where something is mapped, and what may be done there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The addresses.
    pub range: VirtRange,
    /// What may be done there.
    pub prot: Prot,
}

impl<M: Mmu> Tree<M> {
    /// No VMAs.
    pub(crate) fn new() -> Self {
        Self {
            root: Atomic::new(0),
        }
    }
}

/// Changes. The caller holds `mmap_lock` for writing.
impl<M: Mmu> Tree<M> {
    /// The record of the VMA that starts where `view` does was replaced by one that says `view`.
    pub(crate) fn changed(&self, view: VmaView) {
        let tree = self.written();
        let start = view.range.start().0;
        let Some((leaf, slot)) = tree.slot_of(start) else {
            return;
        };
        let word = leaf.words()[slot].get();
        if word == HOLE {
            return;
        }
        let before = word >> Prot::BITS;
        let pages = gaps::pages::<M>(view.range.end().0 - start);
        leaf.set_word(slot, word_of::<M::Paging>(view));
        // 0 says nothing of how long it was.
        if (before == 0 || pages < before)
            && let Some(next) = tree.next_start(leaf, slot)
        {
            let gap = gaps::pages::<M>(next.saturating_sub(view.range.end().0));
            tree.raise(start, gap);
        }
    }

    /// Adds a VMA as `view` says it, which the caller has and is not in this tree: between the two
    /// that a search has found, if it has and nothing has changed since.
    #[inline]
    pub(crate) fn insert(
        &self,
        sys: &System<M>,
        view: &VmaView,
        vma: &Vma<M>,
        between: Option<Between<'_, M>>,
    ) -> Result<(), NoMemory> {
        let tree = self.written();
        let (view, start) = (*view, view.range.start());
        let word = word_of::<M::Paging>(view);
        let to = Slot::vma(vma);
        // No word above has to be raised there: the gap that it is put into was as large.
        if let Some((leaf, slot)) = between.and_then(|between| between.hole(start.0)) {
            leaf.set_word(slot, word);
            leaf.publish(slot, to);
            return Ok(());
        }
        let Some((leaf, slot)) = tree.slot_of(start.0) else {
            tree.raise_around(view.range);
            return tree.insert_key(sys, Entry::new(start.0, word, to));
        };
        if !leaf.is_between(slot) {
            tree.raise_around(view.range);
        }
        leaf.set_word(slot, word);
        leaf.publish(slot, to);
        Ok(())
    }

    /// Takes a VMA out that was found before under the same hold of the writer's lock, since when
    /// nothing has changed. Returns what is free around it then, if VMAs are on both sides of that.
    #[inline]
    pub(crate) fn remove_found(
        &self,
        sys: &System<M>,
        found: Found<'_, M>,
    ) -> Result<Option<VirtRange>, NoMemory> {
        let tree = self.written();
        let (leaf, slot) = (found.leaf(), found.slot);
        // First, since a word may be too large, and a leaf may go.
        let around = tree.gap_around(leaf, slot);
        if let Some((before, free)) = around {
            tree.raise(before, gaps::pages::<M>(free.len()));
        }
        let free = around.map(|(_, free)| free);
        // Between two others of the only leaf: they need no counting.
        let stays = self.is_root(leaf) && around.is_some();
        if !stays && leaf.living() <= self.fewest(leaf) {
            return tree.remove_key(sys, leaf.keys[slot]).map(|()| free);
        }
        leaf.set_word(slot, HOLE);
        leaf.publish(slot, Slot::NOTHING);
        Ok(free)
    }

    /// Gives `vma`, which is in the tree at `old`, another start, before or after its record says
    /// so: it grew or shrank at its front, where no other is in the way. One change: whatever is
    /// mapped before and after is found at every moment.
    ///
    /// # Context
    /// The caller has a section open on the VMA.
    ///
    /// # Errors
    /// When there is no memory: then nothing has changed.
    pub(crate) fn rekey(
        &self,
        sys: &System<M>,
        old: VirtAddr,
        new: VirtAddr,
        vma: &Vma<M>,
    ) -> Result<(), NoMemory> {
        let view = vma.view();
        let range = VirtRange::new(new, view.range.end());
        self.rekey_part(sys, old, &VmaView { range, ..view }, vma)
    }

    /// The same for a tree that says of `vma` what `view` does from here on.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn rekey_part(
        &self,
        sys: &System<M>,
        old: VirtAddr,
        view: &VmaView,
        vma: &Vma<M>,
    ) -> Result<(), NoMemory> {
        let (tree, new) = (self.written(), view.range.start());
        let word = word_of::<M::Paging>(*view);
        let last = VirtAddr(old.0.saturating_sub(1));
        let before = tree.at_or_before(last).filter(|_| new > old);
        if let Some(before) = before {
            let before = before.view().range;
            let gap = gaps::pages::<M>(new.0.saturating_sub(before.end().0));
            tree.raise(before.start().0, gap);
        }
        let entry = Entry::new(new.0, word, Slot::vma(vma));
        tree.replace_key(sys, old.0, entry)
    }

    /// Makes sure that so many changes, one after the other, do not fail: first removals and
    /// rekeys, then insertions. Good until the guard is dropped, which is before the caller sleeps.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn ensure<'s>(
        &self,
        sys: &'s System<M>,
        removals: u64,
        insertions: u64,
    ) -> Result<Ensured<'s, Node<M>, M>, NoMemory> {
        Self::ensure_for(sys, self.levels(), removals, insertions, 0)
    }

    /// Levels above the leaves.
    pub(crate) fn levels(&self) -> u32 {
        self.written().root().map_or(0, |root| root.read().level)
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.written().root().is_none()
    }

    /// The same as [`Self::ensure`] for trees of so many levels above the leaves, and for as many
    /// first leaves.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn ensure_for(
        sys: &System<M>,
        level: u32,
        removals: u64,
        insertions: u64,
        leaves: u64,
    ) -> Result<Ensured<'_, Node<M>, M>, NoMemory> {
        // Of each level a removal or rekey copies one node at most, for it merges into its copy.
        // An insertion makes one more beside it, and a root above; one before may have, too.
        let nodes = removals * u64::from(level + 1) + insertions * u64::from(2 * (level + 2) + 1);
        let nodes = nodes + leaves;
        let nodes = u32::try_from(nodes).map_err(|_| NoMemory)?;
        sys.nodes.ensure(nodes, sys).ok_or(NoMemory)
    }

    /// VMAs of a leaf that may not become fewer by a hole.
    fn fewest(&self, leaf: &Body<M>) -> usize {
        match self.is_root(leaf) {
            true => 1,
            false => change::FEW,
        }
    }

    fn is_root(&self, leaf: &Body<M>) -> bool {
        core::ptr::from_ref(leaf) as u64 == self.root.load(Ordering::Relaxed)
    }
}

impl<M: Mmu> Tree<M> {
    /// Takes everything out; VMAs stay. The caller holds the lock for writing, and retires nodes.
    pub(crate) fn clear(&self, nodes: &mut dyn FnMut(NonNull<Node<M>>)) {
        let root = self.root.swap(0, Ordering::AcqRel);
        node::visit_from::<M>(root, &mut |_| (), nodes);
    }
}

impl<M: Mmu> fmt::Debug for Tree<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tree")
    }
}
