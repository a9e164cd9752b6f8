//! The VMAs of an address space, by address: a persistent B+ tree.
//!
//! # Problem
//! Speculative faults look VMAs up while a writer inserts, splits and removes them. A reader must
//! never block, never see a torn node, and never miss a VMA that exists before and after the
//! change. (In-place writes of nodes under a reader's lock were a privilege escalation in Linux.)
//!
//! # Idea
//! A published node is never written again (but for words that only holders of `mmap_lock`
//! look at). A change copies the path from the root to the leaf,
//! publishes the new root by one store, and frees the copied-from nodes by the lifetime. A reader
//! that loads the root once sees one whole version.
//!
//! # Protocol
//! Writers: `mmap_lock` for writing. Readers: `mmap_lock`, or a read section of the lifetime's
//! domain. All nodes of a change are allocated before the root is stored, so a change happens or
//! does not.
//!
//! # Why it is correct
//! The root is the only word that changes. Release on its store and acquire on its load order the
//! nodes' contents. Old nodes are freed only when no reader of the old root is left.
//!
//! # Cost
//! Lookup: a node per level, its lines asked for at once, no branch that depends on a key. Under
//! `mmap_lock` a leaf's word says the rest, so that the lines in use are 3 per 10 VMAs and not one
//! for each: what 100,000 of them need stays in a cache of the CPU's own. Otherwise the VMA, whose
//! first record lies in one line with it. Change ([`change`]): a copy of `depth` nodes of 320
//! bytes.

mod change;
mod gaps;

use crate::error::NoMemory;
use crate::system::System;
use crate::vma::{Prot, Vma, VmaView};
use change::{Change, Entry};
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::slab::{Ensured, SlabObject};
use minflt_sync::{Atomic, Callback, Kind, Machine, Ordering};

/// Children of an inner node, VMAs of a leaf.
const FANOUT: usize = 14;

/// What a key that is not used holds. No key is larger, so that the difference of two has a sign.
const UNUSED: u64 = i64::MAX as u64;

/// A node: immutable once published, but for the words.
///
/// # Invariants
/// Keys ascend, and are below [`UNUSED`] where used.
#[derive(Debug)]
#[repr(C)]
struct Body {
    /// 0 for a leaf.
    level: u32,
    len: u32,
    /// Start addresses: of VMAs in a leaf, at most the smallest below the child in an inner node.
    keys: [u64; FANOUT],
    /// In a leaf, each VMA's [`word_of`] its range and protection; in an inner node each child's
    /// [`Body::gap_word`]. Guarded by: `mmap_lock`.
    words: UnsafeCell<[u32; FANOUT]>,
    /// VMAs in a leaf, nodes in an inner node.
    slots: [u64; FANOUT],
}

/// A node with what frees it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Node {
    body: Body,
    pub(crate) callback: Callback,
}

// SAFETY: nobody reads a freed node.
unsafe impl SlabObject for Node {}

/// The tree.
pub(crate) struct Tree<M: Mmu> {
    root: Atomic<u64, M>,
}

impl Body {
    const fn empty(level: u32) -> Self {
        Self {
            level,
            len: 0,
            keys: [UNUSED; FANOUT],
            words: UnsafeCell::new([0; FANOUT]),
            slots: [0; FANOUT],
        }
    }

    fn used(&self) -> usize {
        self.len as usize
    }

    /// Keys that are at most `addr`. All are looked at, which takes less than guessing where to
    /// stop, and by differences, whose signs every processor can add up two or more at a time.
    #[inline(always)]
    fn at_most(&self, addr: u64) -> usize {
        let addr = addr.min(UNUSED - 1);
        let above = |key: &u64| addr.wrapping_sub(*key) >> 63;
        FANOUT - self.keys.iter().map(above).sum::<u64>() as usize
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
    let pages = view.range.pages(P::SHIFT);
    let prot = u64::from(view.prot.bits());
    u32::try_from(pages << Prot::BITS | prot).unwrap_or(0)
}

/// What is mapped at an address, by the leaf alone.
fn by_word<P: Paging>(start: u64, word: u32) -> Option<Mapping> {
    let prot = Prot::from_bits(word);
    let len = u64::from(word >> Prot::BITS) << P::SHIFT;
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

/// Reads a node, announcing it to the machine.
///
/// # Safety
/// 1. `node` is a node that the caller's lock or read section keeps.
#[inline(always)]
unsafe fn read<'a, M: Machine>(node: u64) -> &'a Body {
    let node = node as *const Node;
    M::before(node.cast(), size_of::<Body>(), Kind::PlainRead);
    // SAFETY: 1 of this function: published whole, never written since.
    unsafe { &(*node).body }
}

impl<M: Mmu> Tree<M> {
    /// No VMAs.
    pub(crate) fn new() -> Self {
        Self {
            root: Atomic::new(0),
        }
    }

    /// The last VMA that starts at or before `addr`.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`, or a read section of the lifetime's domain, as long as
    ///    `'a`.
    #[inline]
    pub(crate) unsafe fn at_or_before<'a>(&self, addr: VirtAddr) -> Option<&'a Vma<M>> {
        // ORDERING: Acquire; pairs with [tree-root].
        let mut node = self.root.load(Ordering::Acquire);
        if node == 0 {
            return None;
        }
        loop {
            M::prefetch(node as *const u8, size_of::<Body>());
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            let at_most = body.at_most(addr.0);
            let slot = body.slots[at_most.saturating_sub(1)];
            if body.level == 0 {
                // SAFETY: 1 of this function: VMAs outlive the nodes that name them.
                return (at_most > 0).then(|| unsafe { vma(slot) });
            }
            node = slot;
        }
    }

    /// What is mapped at `addr`, mostly without a look at the VMA.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline]
    pub(crate) unsafe fn mapping(&self, addr: VirtAddr) -> Option<Mapping> {
        let mut node = self.root.load(Ordering::Relaxed);
        if node == 0 {
            return None;
        }
        loop {
            M::prefetch(node as *const u8, offset_of!(Body, slots));
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            let at_most = body.at_most(addr.0);
            let slot = at_most.saturating_sub(1);
            if body.level > 0 {
                node = body.slots[slot];
                continue;
            }
            // SAFETY: 1: 1 of this function.
            let word = unsafe { body.words::<M>() }[slot];
            let found = by_word::<M::Paging>(body.keys[slot], word);
            if found.is_none() || M::CHECKED {
                // SAFETY: 1 of this function: VMAs outlive the nodes that name them.
                let VmaView { range, prot, .. } = unsafe { vma::<M>(body.slots[slot]) }.view();
                let now = Mapping { range, prot };
                if found.is_some_and(|found| found != now) {
                    M::violation(format_args!("the tree says {found:?} of {now:?}"));
                }
                return range.contains(addr).then_some(now);
            }
            return found.filter(|it| it.range.contains(addr));
        }
    }

    /// The record of the VMA that starts where `view` does was replaced by one that says `view`.
    /// The caller holds `mmap_lock` for writing.
    pub(crate) fn changed(&self, view: VmaView) {
        let root = self.root.load(Ordering::Relaxed);
        if root != 0 {
            self.changed_below(root, view, u64::MAX);
        }
    }

    /// Changes the words below `node`, behind which the next VMA starts at `next`; returns how many
    /// pages of a hole came to be, for the words above.
    fn changed_below(&self, node: u64, view: VmaView, next: u64) -> u32 {
        let start = view.range.start().0;
        // SAFETY: 1: the writer's lock keeps the current version.
        let body = unsafe { read::<M>(node) };
        let slot = body.slot_for(start);
        let next = body.keys[..body.used()]
            .get(slot + 1)
            .map_or(next, |key| *key);
        let gap;
        let word;
        if body.level > 0 {
            gap = self.changed_below(body.slots[slot], view, next);
            // SAFETY: 1: the writer's lock.
            let old = unsafe { body.words::<M>() }[slot];
            if gap <= old {
                return gap;
            }
            word = gap;
        } else if body.keys[slot] == start {
            // SAFETY: 1: the writer's lock.
            let before = unsafe { body.end_of::<M>(slot) };
            let end = view.range.end().0;
            let hole = if end < before && next > end {
                next - end
            } else {
                0
            };
            gap = gaps::pages::<M>(hole);
            word = word_of::<M::Paging>(view);
        } else {
            return 0;
        }
        M::before(body.words.get().cast(), size_of::<u32>(), Kind::PlainWrite);
        // SAFETY: the writer's lock: nobody else looks at the words.
        let words = unsafe { &mut *body.words.get() };
        words[slot] = word;
        gap
    }

    /// The first VMA that starts at or after `addr`.
    ///
    /// # Safety
    /// 1. As for [`Tree::at_or_before`].
    pub(crate) unsafe fn at_or_after<'a>(&self, addr: VirtAddr) -> Option<&'a Vma<M>> {
        // ORDERING: Acquire; pairs with [tree-root].
        let mut node = self.root.load(Ordering::Acquire);
        // The subtree right of the path, nearest to the leaf.
        let mut right = 0;
        while node != 0 {
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            if body.level == 0 {
                let below = addr.0.checked_sub(1).map_or(0, |last| body.at_most(last));
                if below < body.used() {
                    // SAFETY: 1 of this function.
                    return Some(unsafe { vma(body.slots[below]) });
                }
                break;
            }
            let slot = body.slot_for(addr.0);
            if slot + 1 < body.used() {
                right = body.slots[slot + 1];
            }
            node = body.slots[slot];
        }
        while right != 0 {
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(right) };
            if body.level == 0 {
                // SAFETY: 1 of this function; a node is never empty.
                return Some(unsafe { vma(body.slots[0]) });
            }
            right = body.slots[0];
        }
        None
    }

    /// Adds a VMA that starts at `start`. The caller holds `mmap_lock` for writing.
    pub(crate) fn insert(
        &self,
        sys: &System<M>,
        start: VirtAddr,
        vma: NonNull<Vma<M>>,
    ) -> Result<(), NoMemory> {
        let mut change = Change::new(sys);
        let root = self.root.load(Ordering::Relaxed);
        // SAFETY: the caller has the VMA, in no tree yet.
        let word = word_of::<M::Paging>(unsafe { vma.as_ref() }.view());
        let root = change.insert(root, Entry::new(start.0, word, vma.as_ptr() as u64));
        change.finish(root, |root| self.set_root(root))
    }

    /// Takes the VMA that starts at `start` out. The caller holds `mmap_lock` for writing.
    pub(crate) fn remove(&self, sys: &System<M>, start: VirtAddr) -> Result<(), NoMemory> {
        let mut change = Change::new(sys);
        let root = self.root.load(Ordering::Relaxed);
        let root = change.remove(root, start.0);
        change.finish(root, |root| self.set_root(root))
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
        let entry = Entry::new(new.0, word, core::ptr::from_ref(vma) as u64);
        let mut change = Change::new(sys);
        let root = self.root.load(Ordering::Relaxed);
        let root = change.rekey(root, old.0, entry);
        change.finish(root.map(|root| root.slot()), |root| self.set_root(root))
    }

    /// Makes sure that so many changes, one after the other, do not fail: each is an insertion, a
    /// removal or a rekey. Good until the guard is dropped, which is before the caller sleeps.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn ensure<'s>(
        &self,
        sys: &'s System<M>,
        changes: u64,
    ) -> Result<Ensured<'s, M>, NoMemory> {
        let root = self.root.load(Ordering::Relaxed);
        // SAFETY: 1: the writer's lock keeps the current version.
        let level = NonNull::new(root as *mut Node).map_or(0, |_| unsafe { read::<M>(root) }.level);
        // Each level's node and one beside it, and a root above them.
        let nodes = changes * u64::from(2 * (level + 2) + 1);
        let nodes = u32::try_from(nodes).map_err(|_| NoMemory)?;
        sys.nodes.ensure(nodes, sys).ok_or(NoMemory)
    }

    fn set_root(&self, root: u64) {
        // ORDERING: Release; pairs with [tree-root].
        self.root.store(root, Ordering::Release);
    }

    /// Visits every VMA in order, without the door, for oracles and teardown; then every node.
    pub(crate) fn visit(
        &self,
        vmas: &mut dyn FnMut(&Vma<M>),
        nodes: &mut dyn FnMut(NonNull<Node>),
    ) {
        fn down<M: Mmu>(
            node: u64,
            vmas: &mut dyn FnMut(&Vma<M>),
            nodes: &mut dyn FnMut(NonNull<Node>),
        ) {
            let Some(node) = NonNull::new(node as *mut Node) else {
                return;
            };
            // SAFETY: called while nobody changes the tree.
            let body = &unsafe { node.as_ref() }.body;
            for slot in &body.slots[..body.used()] {
                if body.level == 0 {
                    // SAFETY: a leaf names VMAs.
                    vmas(unsafe { vma(*slot) });
                } else {
                    down(*slot, vmas, nodes);
                }
            }
            nodes(node);
        }
        down(self.root.peek(), vmas, nodes);
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
