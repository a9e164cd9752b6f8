//! The VMA tree: a B+ tree by address, whose nodes are replaced one at a time.
//!
//! # Problem
//! Speculative faults look VMAs up while a writer inserts, splits and removes them. A reader must
//! never block, never see a torn node, and never miss a VMA that exists before and after the
//! change. (In-place writes of nodes under a reader's lock were a privilege escalation in Linux.)
//!
//! # Idea
//! The keys of a published node never change, and what a key leads to is one word. So a change is
//! one store: of a VMA into the slot of a key that is there, of nothing into the slot of a VMA that
//! goes, or of a new node into the slot of the node it replaces. What a slot without a VMA leaves
//! behind is a *hole*: a key that leads to nothing, to be filled by the next VMA that starts there
//! (as memory that is mapped and unmapped again and again does), and left out by the next copy.
//!
//! ```text
//! keys    a    b    c    d         remove c     a    b    c    d        insert e
//! slots   A    B    C    D         ------->     A    B    -    D        ------->   a copy: a b d e
//! ```
//!
//! # Protocol
//! Writers: `mmap_lock` for writing. Readers: `mmap_lock`, or a read section of the lifetime's
//! domain. All nodes of a change are allocated before its one store, so a change happens or does
//! not. A key of an inner node separates: at most the start of whatever is below its child, above
//! all starts before it, and not always the smallest below; the first is 0. Every leaf has a VMA.
//!
//! A VMA may reach over keys behind it that lead nowhere, also over a separator. So a lookup that
//! ends at a hole, or before all keys of its leaf, goes back to the last VMA before it.
//!
//! # Why it is correct
//! Of the VMA X that covers an address from before a lookup until after it: its key is in every
//! version of its leaf that the lookup can find, and of the keys that are between X's and the
//! address none leads to a VMA, since VMAs do not overlap. So a lookup that goes back finds X,
//! whichever of the leaves on the way are old and which are new: a leaf that is split or merged, or
//! shares with another, gets a new parent; the one that was there before keeps the leaf that was.
//! Release on a slot's store and acquire on its load order the contents of what it leads to. Old
//! nodes are freed only when no reader is left that could have found them. While a VMA is split a
//! lookup finds the old one or the new one, and has to ask its record, inside or outside of its
//! section.
//!
//! # Cost
//! Lookup: a node per level, its lines asked for at once, no branch that depends on a key. Under
//! `mmap_lock` a leaf's word says the rest, so that the lines in use are 4 per 15 VMAs and not one
//! for each: what 100,000 of them need stays in a cache of the CPU's own. Otherwise the VMA, whose
//! first record lies in one line with it. Change: a store where a hole is made or filled; else a
//! copy of a leaf of 384 bytes ([`change`]), and of nodes above only where leaves split or merge.
//!
//! Linux: lib/maple_tree.c (v6.1), which stores in place where it can, and else replaces a node.

mod change;
mod gaps;
mod look;
mod node;
mod valid;

use crate::base::attrs::{Prot, VmaView};
use crate::base::error::NoMemory;
use crate::space::vma::Vma;
use crate::system::System;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::NonNull;
pub(crate) use gaps::{Beside, End};
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::slab::{Ensured, SlabObject};
use minflt_sync::{Atomic, Callback, Kind, Ordering};
use node::Entry;

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
    words: UnsafeCell<[u32; FANOUT]>,
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

// SAFETY: nobody reads a freed node.
unsafe impl<M: Mmu> SlabObject for Node<M> {}

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
            words: UnsafeCell::new([HOLE; FANOUT]),
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

    /// What `slot` leads to: whole, also without a lock.
    #[inline(always)]
    fn found(&self, slot: usize) -> u64 {
        // ORDERING: Acquire; pairs with [tree-slot].
        self.slots[slot].load(Ordering::Acquire)
    }

    /// What `slot` leads to, for holders of `mmap_lock`.
    #[inline(always)]
    fn held(&self, slot: usize) -> u64 {
        self.slots[slot].peek()
    }

    /// The words.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline(always)]
    unsafe fn words(&self) -> &[u32; FANOUT] {
        let words = self.words.get();
        M::before(words.cast(), size_of::<[u32; FANOUT]>(), Kind::PlainRead);
        // SAFETY: 1 of this function: nobody writes them.
        unsafe { &*words }
    }

    /// Sets a word.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock` for writing, and no reference to the words.
    #[inline(always)]
    unsafe fn set_word(&self, slot: usize, word: u32) {
        let words = self.words.get();
        M::before(words.cast(), size_of::<u32>(), Kind::PlainWrite);
        // SAFETY: 1 of this function: nobody else looks at the words.
        unsafe { (*words)[slot] = word };
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

/// A VMA, and where in the tree it is.
pub(crate) struct Found<'a, M: Mmu> {
    /// The node may be freed while a function runs that was given this: see [`VmaPtr`].
    leaf: NonNull<Body<M>>,
    slot: usize,
    kept: PhantomData<&'a Body<M>>,
}

impl<'a, M: Mmu> Found<'a, M> {
    /// The VMA.
    pub(crate) fn vma(&self) -> &'a Vma<M> {
        // SAFETY: 1: a leaf's slot, and `mmap_lock` is held as long as `'a`.
        unsafe { vma(self.leaf().held(self.slot)) }
    }

    fn leaf(&self) -> &'a Body<M> {
        // SAFETY: found under `mmap_lock`, which is held as long as `'a`.
        unsafe { self.leaf.as_ref() }
    }
}

/// Reads a node, announcing its keys to the machine.
///
/// # Safety
/// 1. `node` is a node that the caller's lock or read section keeps.
#[inline(always)]
unsafe fn read<'a, M: Mmu>(node: u64) -> &'a Body<M> {
    let node = node as *const Node<M>;
    M::before(node.cast(), offset_of!(Body<M>, words), Kind::PlainRead);
    // SAFETY: 1 of this function: published whole; what changes is atomic, or the words.
    unsafe { &(*node).body }
}

impl<M: Mmu> Tree<M> {
    /// No VMAs.
    pub(crate) fn new() -> Self {
        Self {
            root: Atomic::new(0),
        }
    }

    /// The record of the VMA that starts where `view` does was replaced by one that says `view`.
    /// The caller holds `mmap_lock` for writing.
    pub(crate) fn changed(&self, view: VmaView) {
        let start = view.range.start().0;
        // SAFETY: 1: the writer's lock.
        let Some((leaf, slot)) = (unsafe { self.slot_of(start) }) else {
            return;
        };
        // SAFETY: 1: the writer's lock.
        let word = unsafe { leaf.words() }[slot];
        if word == HOLE {
            return;
        }
        let before = word >> Prot::BITS;
        let pages = gaps::pages::<M>(view.range.end().0 - start);
        // SAFETY: 1: the writer's lock.
        unsafe { leaf.set_word(slot, word_of::<M::Paging>(view)) };
        // 0 says nothing of how long it was.
        if before == 0 || pages < before {
            // SAFETY: 1: the writer's lock.
            if let Some(next) = unsafe { self.next_start(leaf, slot) } {
                let gap = gaps::pages::<M>(next.saturating_sub(view.range.end().0));
                // SAFETY: 1: the writer's lock.
                unsafe { self.raise(start, gap) };
            }
        }
    }

    /// Adds a VMA that starts at `start`. The caller holds `mmap_lock` for writing.
    #[inline]
    pub(crate) fn insert(
        &self,
        sys: &System<M>,
        start: VirtAddr,
        vma: NonNull<Vma<M>>,
    ) -> Result<(), NoMemory> {
        // SAFETY: the caller has the VMA, in no tree yet.
        let view = unsafe { vma.as_ref() }.view();
        let word = word_of::<M::Paging>(view);
        let vma = vma.as_ptr() as u64;
        // SAFETY: 1: the writer's lock.
        let Some((leaf, slot)) = (unsafe { self.slot_of(start.0) }) else {
            // SAFETY: 1: the writer's lock.
            unsafe { self.raise_around(view.range) };
            return self.insert_key(sys, Entry::new(start.0, word, vma));
        };
        // SAFETY: 1: the writer's lock.
        if !unsafe { leaf.is_between(slot) } {
            // SAFETY: 1: the writer's lock.
            unsafe { self.raise_around(view.range) };
        }
        // SAFETY: 1: the writer's lock.
        unsafe { leaf.set_word(slot, word) };
        // ORDERING: Release; pairs with [tree-slot].
        leaf.slots[slot].store(vma, Ordering::Release);
        Ok(())
    }

    /// The VMA that starts at `start`.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`, as long as `'a`.
    #[inline]
    pub(crate) unsafe fn found<'a>(&self, start: VirtAddr) -> Option<Found<'a, M>> {
        // SAFETY: 1: 1 of this function.
        let (leaf, slot) = unsafe { self.slot_of(start.0) }?;
        let found = Found {
            leaf: NonNull::from(leaf),
            slot,
            kept: PhantomData,
        };
        Some(found).filter(|_| leaf.held(slot) != 0)
    }

    /// Takes a VMA out that was found before under the same hold of the writer's lock, since when
    /// nothing has changed. Returns what is free around it then, if VMAs are on both sides of that.
    #[inline]
    pub(crate) fn remove_found(
        &self,
        sys: &System<M>,
        found: Found<'_, M>,
    ) -> Result<Option<VirtRange>, NoMemory> {
        let (leaf, slot) = (found.leaf(), found.slot);
        // First, since a word may be too large, and a leaf may go.
        // SAFETY: 1: the writer's lock.
        let around = unsafe { self.gap_around(leaf, slot) };
        if let Some((before, free)) = around {
            // SAFETY: 1: the writer's lock.
            unsafe { self.raise(before, gaps::pages::<M>(free.len())) };
        }
        let free = around.map(|(_, free)| free);
        // SAFETY: 1: the writer's lock.
        if unsafe { leaf.living() } <= self.fewest(leaf) {
            return self.remove_key(sys, leaf.keys[slot]).map(|()| free);
        }
        // SAFETY: 1: the writer's lock.
        unsafe { leaf.set_word(slot, HOLE) };
        // ORDERING: Release; pairs with [tree-slot].
        leaf.slots[slot].store(0, Ordering::Release);
        Ok(free)
    }

    /// Gives `vma`, which is in the tree at `old`, another start, before or after its record says
    /// so: it grew or shrank at its front, where no other is in the way. One change: whatever is
    /// mapped before and after is found at every moment.
    ///
    /// # Context
    /// The caller holds `mmap_lock` for writing, and has a section open on the VMA.
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
        let word = word_of::<M::Paging>(VmaView { range, ..view });
        let last = VirtAddr(old.0.saturating_sub(1));
        // SAFETY: 1: the writer's lock.
        let before = unsafe { self.at_or_before(last) }.filter(|_| new > old);
        if let Some(before) = before {
            let before = before.view().range;
            let gap = gaps::pages::<M>(new.0.saturating_sub(before.end().0));
            // SAFETY: 1: the writer's lock.
            unsafe { self.raise(before.start().0, gap) };
        }
        let entry = Entry::new(new.0, word, core::ptr::from_ref(vma) as u64);
        self.replace_key(sys, old.0, entry)
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
        let root = self.root.load(Ordering::Relaxed);
        // SAFETY: 1: the writer's lock keeps the current version.
        let level =
            NonNull::new(root as *mut Node<M>).map_or(0, |_| unsafe { read::<M>(root) }.level);
        // Of each level a removal or rekey copies one node at most, for it merges into its copy.
        // An insertion makes one more beside it, and a root above; one before may have, too.
        let nodes = removals * u64::from(level + 1) + insertions * u64::from(2 * (level + 2) + 1);
        let nodes = u32::try_from(nodes).map_err(|_| NoMemory)?;
        sys.nodes.ensure(nodes, sys).ok_or(NoMemory)
    }

    /// VMAs of a leaf that may not become fewer by a hole.
    fn fewest(&self, leaf: &Body<M>) -> usize {
        let root = self.root.load(Ordering::Relaxed);
        if core::ptr::from_ref(leaf) as u64 == root {
            1
        } else {
            change::FEW
        }
    }
}

/// # Safety
/// 1. `slot` is a leaf's slot, and the VMA lives as long as `'a`.
unsafe fn vma<'a, M: Mmu>(slot: u64) -> &'a Vma<M> {
    // SAFETY: 1 of this function.
    unsafe { &*(slot as *const Vma<M>) }
}

impl<M: Mmu> fmt::Debug for Tree<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tree")
    }
}
