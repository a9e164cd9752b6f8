//! The VMAs of an address space, by address: a persistent B+ tree.
//!
//! # Problem
//! Speculative faults look VMAs up while a writer inserts, splits and removes them. A reader must
//! never block, never see a torn node, and never miss a VMA that exists before and after the
//! change. (In-place writes of nodes under a reader's lock were a privilege escalation in Linux.)
//!
//! # Idea
//! A published node is never written again. A change copies the path from the root to the leaf,
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
//! Lookup: one line or two per level. Change: a copy of `depth` nodes of 256 bytes.

use crate::error::NoMemory;
use crate::system::System;
use crate::vma::Vma;
use core::fmt;
use core::ptr::NonNull;
use minflt_addr::VirtAddr;
use minflt_pgtable::Mmu;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Callback, Kind, Machine, Ordering};

/// Children of an inner node, VMAs of a leaf.
const FANOUT: usize = 14;
/// A node with fewer merges with a neighbour where both fit.
const FEW: usize = 4;
const DEPTH: usize = 16;

/// A node: immutable once published.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Body {
    /// 0 for a leaf.
    level: u32,
    len: u32,
    /// Start addresses: of VMAs in a leaf, at most the smallest below the child in an inner node.
    keys: [u64; FANOUT],
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

/// A change: nodes made and not yet reachable, nodes replaced and still reachable.
struct Change<'s, M: Mmu> {
    sys: &'s System<M>,
    made: [Option<NonNull<Node>>; 2 * DEPTH],
    made_len: usize,
    old: [Option<NonNull<Node>>; 2 * DEPTH],
    old_len: usize,
}

/// What takes a child's place in its parent: nothing, one node or two.
type Replacement = [Option<(u64, NonNull<Node>)>; 2];

impl Body {
    const fn empty(level: u32) -> Self {
        Self {
            level,
            len: 0,
            keys: [0; FANOUT],
            slots: [0; FANOUT],
        }
    }

    fn used(&self) -> usize {
        self.len as usize
    }

    /// The last slot whose key is at most `addr`; the first if there is none.
    fn slot_for(&self, addr: u64) -> usize {
        let at_most = self.keys[..self.used()]
            .iter()
            .filter(|key| **key <= addr)
            .count();
        at_most.saturating_sub(1)
    }

    fn insert(&mut self, at: usize, key: u64, slot: u64) {
        let len = self.used();
        self.keys.copy_within(at..len, at + 1);
        self.slots.copy_within(at..len, at + 1);
        (self.keys[at], self.slots[at]) = (key, slot);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.used();
        self.keys.copy_within(at + 1..len, at);
        self.slots.copy_within(at + 1..len, at);
        self.len -= 1;
    }

    /// Inserts; a full node becomes two.
    fn insert_split(mut self, at: usize, key: u64, slot: u64) -> (Self, Option<Self>) {
        if self.used() < FANOUT {
            self.insert(at, key, slot);
            return (self, None);
        }
        let half = FANOUT / 2;
        let mut right = Self::empty(self.level);
        right.len = (FANOUT - half) as u32;
        right.keys[..FANOUT - half].copy_from_slice(&self.keys[half..]);
        right.slots[..FANOUT - half].copy_from_slice(&self.slots[half..]);
        self.len = half as u32;
        if at <= half {
            self.insert(at, key, slot);
        } else {
            right.insert(at - half, key, slot);
        }
        (self, Some(right))
    }
}

/// Reads a node, announcing it to the machine.
///
/// # Safety
/// 1. `node` is a node that the caller's lock or read section keeps.
#[inline]
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
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            let slot = body.slot_for(addr.0);
            if body.level == 0 {
                // SAFETY: 1 of this function: VMAs outlive the nodes that name them.
                return (body.keys[slot] <= addr.0).then(|| unsafe { vma(body.slots[slot]) });
            }
            node = body.slots[slot];
        }
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
                let next = body.keys[..body.used()]
                    .iter()
                    .position(|key| *key >= addr.0);
                if let Some(slot) = next {
                    // SAFETY: 1 of this function.
                    return Some(unsafe { vma(body.slots[slot]) });
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
        let new = if root == 0 {
            let mut leaf = Body::empty(0);
            leaf.insert(0, start.0, vma.as_ptr() as u64);
            change.make(leaf).map(|node| [Some((start.0, node)), None])
        } else {
            change.insert(root, start.0, vma.as_ptr() as u64)
        };
        let root = new.and_then(|nodes| change.root(nodes));
        change.finish(root, |root| self.set_root(root))
    }

    /// Takes the VMA that starts at `start` out. The caller holds `mmap_lock` for writing.
    pub(crate) fn remove(&self, sys: &System<M>, start: VirtAddr) -> Result<(), NoMemory> {
        let mut change = Change::new(sys);
        let root = self.root.load(Ordering::Relaxed);
        let root = change
            .remove(root, start.0)
            .and_then(|nodes| change.root(nodes));
        change.finish(root, |root| self.set_root(root))
    }

    fn set_root(&self, root: Option<NonNull<Node>>) {
        let root = root.map_or(0, |node| node.as_ptr() as u64);
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
            let body = unsafe { node.as_ref() }.body;
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

impl<'s, M: Mmu> Change<'s, M> {
    fn new(sys: &'s System<M>) -> Self {
        Self {
            sys,
            made: [None; 2 * DEPTH],
            made_len: 0,
            old: [None; 2 * DEPTH],
            old_len: 0,
        }
    }

    fn make(&mut self, body: Body) -> Result<NonNull<Node>, NoMemory> {
        let node = Node {
            body,
            callback: Callback::new(),
        };
        let node = self.sys.nodes.alloc(node, self.sys).map_err(|_| NoMemory)?;
        self.made[self.made_len] = Some(node);
        self.made_len += 1;
        Ok(node)
    }

    /// The node is replaced by this change.
    fn replaces(&mut self, node: u64) -> Body {
        self.old[self.old_len] = NonNull::new(node as *mut Node);
        self.old_len += 1;
        // SAFETY: 1: the writer's lock keeps the current version.
        *unsafe { read::<M>(node) }
    }

    fn insert(&mut self, node: u64, key: u64, slot: u64) -> Result<Replacement, NoMemory> {
        let mut body = self.replaces(node);
        let at = body.slot_for(key);
        let (left, right) = if body.level == 0 {
            let at = if body.keys[at] <= key { at + 1 } else { at };
            body.insert_split(at, key, slot)
        } else {
            let [first, second] = self.insert(body.slots[at], key, slot)?;
            if let Some((key, node)) = first {
                (body.keys[at], body.slots[at]) = (key, node.as_ptr() as u64);
            }
            match second {
                Some((key, node)) => body.insert_split(at + 1, key, node.as_ptr() as u64),
                None => (body, None),
            }
        };
        let left = (left.keys[0], self.make(left)?);
        let right = match right {
            Some(body) => Some((body.keys[0], self.make(body)?)),
            None => None,
        };
        Ok([Some(left), right])
    }

    fn remove(&mut self, node: u64, key: u64) -> Result<Replacement, NoMemory> {
        let mut body = self.replaces(node);
        let at = body.slot_for(key);
        if body.level == 0 {
            body.remove(at);
        } else {
            match self.remove(body.slots[at], key)?[0] {
                None => body.remove(at),
                Some((key, child)) => {
                    (body.keys[at], body.slots[at]) = (key, child.as_ptr() as u64);
                    self.merge_child(&mut body, at)?;
                }
            }
        }
        if body.len == 0 {
            return Ok([None, None]);
        }
        Ok([Some((body.keys[0], self.make(body)?)), None])
    }

    /// Merges the child in slot `at` with its right or left neighbour if it has few and both fit.
    fn merge_child(&mut self, body: &mut Body, at: usize) -> Result<(), NoMemory> {
        let neighbour = if at + 1 < body.used() {
            at + 1
        } else {
            at.wrapping_sub(1)
        };
        if neighbour >= body.used() {
            return Ok(());
        }
        // SAFETY: 1: made by this change, or kept by the writer's lock.
        let child = *unsafe { read::<M>(body.slots[at]) };
        // SAFETY: 1: as above.
        let other = *unsafe { read::<M>(body.slots[neighbour]) };
        if child.used() >= FEW || child.used() + other.used() > FANOUT {
            return Ok(());
        }
        let left_at = at.min(neighbour);
        let (mut left, right) = if at < neighbour {
            (child, other)
        } else {
            (other, child)
        };
        let (len, more) = (left.used(), right.used());
        left.keys[len..len + more].copy_from_slice(&right.keys[..more]);
        left.slots[len..len + more].copy_from_slice(&right.slots[..more]);
        left.len += right.len;
        self.replaces(body.slots[neighbour]);
        self.unmake(body.slots[at]);
        let merged = self.make(left)?;
        (body.keys[left_at], body.slots[left_at]) = (left.keys[0], merged.as_ptr() as u64);
        body.remove(left_at + 1);
        Ok(())
    }

    /// A node of this change is not needed after all.
    fn unmake(&mut self, node: u64) {
        for made in &mut self.made[..self.made_len] {
            if made.is_some_and(|made| made.as_ptr() as u64 == node)
                && let Some(node) = made.take()
            {
                // SAFETY: 1, 2: made by this change, reachable from nowhere.
                unsafe { self.sys.nodes.free(node) };
            }
        }
    }

    /// One root over what replaces the old root; an inner root with one child gives way to it.
    fn root(&mut self, [left, right]: Replacement) -> Result<Option<NonNull<Node>>, NoMemory> {
        let Some((key, mut root)) = left else {
            return Ok(None);
        };
        if let Some((right_key, right)) = right {
            // SAFETY: made by this change.
            let level = unsafe { root.as_ref() }.body.level;
            let mut body = Body::empty(level + 1);
            body.insert(0, key, root.as_ptr() as u64);
            body.insert(1, right_key, right.as_ptr() as u64);
            return self.make(body).map(Some);
        }
        loop {
            // SAFETY: made by this change, or kept by the writer's lock.
            let body = unsafe { root.as_ref() }.body;
            if body.level == 0 || body.len != 1 {
                return Ok(Some(root));
            }
            let Some(child) = NonNull::new(body.slots[0] as *mut Node) else {
                return Ok(Some(root));
            };
            self.unmake(root.as_ptr() as u64);
            root = child;
        }
    }

    /// Publishes the change, or undoes it.
    fn finish(
        self,
        root: Result<Option<NonNull<Node>>, NoMemory>,
        publish: impl FnOnce(Option<NonNull<Node>>),
    ) -> Result<(), NoMemory> {
        let result = root.map(publish);
        let unused = if result.is_ok() {
            &self.old[..self.old_len]
        } else {
            &[]
        };
        for node in unused.iter().flatten() {
            // SAFETY: unlinked by the new root, and in no other change.
            unsafe { self.sys.retire_node(*node) };
        }
        if result.is_err() {
            for node in self.made[..self.made_len].iter().flatten() {
                // SAFETY: 1, 2: made by this change, reachable from nowhere.
                unsafe { self.sys.nodes.free(*node) };
            }
        }
        result
    }
}

impl<M: Mmu> fmt::Debug for Tree<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tree")
    }
}
