//! Tree changes that allocate nodes: insertion, removal or replacement of a key.
//!
//! A leaf is copied without its holes, and the copy is edited in place until one store puts it into
//! its parent's slot; nobody else knows it before. Only where a node splits, merges with a
//! neighbour, shares with it or goes is its parent copied too, and so on upwards; the store is then
//! further up. A change that fails has stored nothing, and gives back what it made.

mod share;

use super::node::{Entry, insert_in_place};
use super::{Body, FANOUT, Node, Tree, read};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::system::System;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Callback, Ordering};

/// A node with fewer merges with a neighbour where both fit.
pub(super) const FEW: usize = 4;
/// Levels at most: a change that needs more fails.
const DEPTH: usize = 12;
/// Nodes of a change at most: of each level the path's, its neighbour, and a root that is left out.
const NODES: usize = 3 * DEPTH;

/// A change: nodes made and not yet reachable, nodes replaced and still reachable.
struct Change<'t, M: Mmu> {
    sys: &'t System<M>,
    /// The one slot that is to be stored to, once the whole change is made; and what.
    target: Option<(&'t Atomic<u64, M>, u64)>,
    made: Nodes,
    old: Nodes,
}

/// What the parent of a node that was changed has to do.
enum Up {
    /// Nothing.
    Done,
    /// This takes the node's place.
    One(u64),
    /// The first takes its place, the second comes behind.
    Two(u64, Entry),
    /// Nothing takes its place.
    Gone,
}

/// Which nodes above a leaf get new keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// None.
    Stay,
    /// Those beside the path that the VMA's new start is on the wrong side of.
    Follow,
}

/// Nodes of a change.
///
/// # Invariants
/// The first `len` were written.
struct Nodes {
    nodes: [MaybeUninit<u64>; NODES],
    len: usize,
}

impl Nodes {
    #[inline(always)]
    const fn none() -> Self {
        // INVARIANT: none.
        Self {
            nodes: [const { MaybeUninit::uninit() }; NODES],
            len: 0,
        }
    }

    fn push(&mut self, node: u64) {
        self.nodes[self.len].write(node);
        // INVARIANT: written by the line before.
        self.len += 1;
    }

    fn iter<M: Mmu>(&self) -> impl Iterator<Item = NonNull<Node<M>>> {
        self.nodes[..self.len].iter().filter_map(|node| {
            // SAFETY: by the invariant.
            NonNull::new(unsafe { node.assume_init() } as *mut Node<M>)
        })
    }
}

impl<M: Mmu> Tree<M> {
    /// Adds a VMA whose start is no key.
    #[inline(never)]
    pub(super) fn insert_key(&self, sys: &System<M>, entry: Entry) -> Result<(), NoMemory> {
        let mut change = Change::new(sys);
        let root = self.root.load(Ordering::Relaxed);
        let made = change.insert(root, entry);
        change.finish(made, &self.root)
    }

    /// Takes the key of a VMA out.
    #[inline(never)]
    pub(super) fn remove_key(&self, sys: &System<M>, key: u64) -> Result<(), NoMemory> {
        let mut change = Change::new(sys);
        let root = self.root.load(Ordering::Relaxed);
        let made = change.remove_below(root, key).map(|up| change.shorter(up));
        change.finish(made, &self.root)
    }

    /// Puts `entry` in place of the VMA at `key`, with no other between the two keys.
    pub(super) fn replace_key(
        &self,
        sys: &System<M>,
        key: u64,
        entry: Entry,
    ) -> Result<(), NoMemory> {
        let mut change = Change::new(sys);
        let root = self.root.load(Ordering::Relaxed);
        // SAFETY: 1: the writer's lock, here and below.
        let keys = if unsafe { self.leaf_for(key) } == unsafe { self.leaf_for(entry.key) } {
            Keys::Stay
        } else {
            Keys::Follow
        };
        let made = change.replace_below(root, key, entry, keys);
        change.finish(made, &self.root)
    }

    /// The leaf that `addr` leads to.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    unsafe fn leaf_for(&self, addr: u64) -> u64 {
        let mut node = self.root.load(Ordering::Relaxed);
        loop {
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            if body.level == 0 {
                return node;
            }
            node = body.held(body.slot_for(addr));
        }
    }
}

impl<'t, M: Mmu> Change<'t, M> {
    const fn new(sys: &'t System<M>) -> Self {
        Self {
            sys,
            target: None,
            made: Nodes::none(),
            old: Nodes::none(),
        }
    }

    fn make(&mut self, body: Body<M>) -> Result<u64, NoMemory> {
        let node = Node {
            body,
            callback: Callback::new(),
        };
        let node = self.sys.nodes.alloc(node, self.sys).map_err(|_| NoMemory)?;
        self.made.push(node.as_ptr() as u64);
        Ok(node.as_ptr() as u64)
    }

    /// A copy to edit in place of `node`, which this change replaces; of a leaf without its holes.
    fn copy<'n>(&mut self, node: u64) -> Result<(u64, &'n mut Body<M>), NoMemory> {
        let Some(old) = NonNull::new(node as *mut Node<M>) else {
            return Err(NoMemory);
        };
        // SAFETY: 1: the writer's lock keeps the current version.
        let from = unsafe { read::<M>(node) };
        // SAFETY: 1: as above; a node that is not retired has a callback that is in no list.
        let copy = unsafe { self.sys.nodes.alloc_copy(old, self.sys) };
        let mut copy = copy.ok_or(NoMemory)?;
        self.made.push(copy.as_ptr() as u64);
        self.old.push(node);
        // SAFETY: made just now: nobody else knows it until the change is finished, and each node
        // is edited at one place below.
        let body = unsafe { &mut copy.as_mut().body };
        // SAFETY: 1: the writer's lock.
        if from.level == 0 && unsafe { from.living() } < from.used() {
            body.fill_holes();
        }
        Ok((copy.as_ptr() as u64, body))
    }

    /// What is stored where, if the change succeeds.
    fn store(&mut self, body: &'t Body<M>, slot: usize, node: u64) -> Up {
        self.target = Some((&body.slots[slot], node));
        Up::Done
    }

    /// Sets the word of `slot` of an inner node as the child is now.
    fn measure(body: &mut Body<M>, slot: usize) {
        // SAFETY: 1: the writer's lock.
        let behind = unsafe { body.behind(slot) };
        // SAFETY: 1: the writer's lock.
        body.words.get_mut()[slot] = unsafe { body.gap_word(slot, behind) };
    }

    /// The tree under `root` with one more.
    fn insert(&mut self, root: u64, entry: Entry) -> Result<Up, NoMemory> {
        if root == 0 {
            let mut leaf = Body::empty(0);
            leaf.push(entry);
            return Ok(Up::One(self.make(leaf)?));
        }
        let (left, right) = match self.insert_below(root, entry)? {
            Up::Two(left, right) => (left, right),
            up => return Ok(up),
        };
        // SAFETY: 1: made by this change.
        let below = unsafe { read::<M>(left) };
        if below.level as usize + 1 >= DEPTH {
            return Err(NoMemory);
        }
        let mut above = Body::empty(below.level + 1);
        above.push(Entry::new(below.keys[0], 0, left));
        above.push(right);
        Self::measure(&mut above, 0);
        Self::measure(&mut above, 1);
        Ok(Up::One(self.make(above)?))
    }

    fn insert_below(&mut self, node: u64, entry: Entry) -> Result<Up, NoMemory> {
        // SAFETY: 1: the writer's lock keeps the current version.
        let body = unsafe { read::<M>(node) };
        let (copy, right) = if body.level == 0 {
            if self.sys.lacks(NegativeControl::LeafInPlace) && body.used() < FANOUT {
                insert_in_place(body, entry);
                return Ok(Up::Done);
            }
            let (copy, body) = self.copy(node)?;
            (copy, self.add(body, body.at_most(entry.key), entry)?)
        } else {
            let at = body.slot_for(entry.key);
            if let Some(left) = Self::can_share(body, at, entry.key) {
                return self.share(node, left, entry);
            }
            let (left, right) = match self.insert_below(body.held(at), entry)? {
                Up::One(child) => return Ok(self.store(body, at, child)),
                Up::Two(left, right) => (left, right),
                up => return Ok(up),
            };
            let (copy, body) = self.copy(node)?;
            body.slots[at] = Atomic::new(left);
            let more = self.add(body, at + 1, right)?;
            if more.is_none() {
                Self::measure(body, at);
                Self::measure(body, at + 1);
            }
            (copy, more)
        };
        Ok(match right {
            None => Up::One(copy),
            Some(right) => Up::Two(copy, right),
        })
    }

    /// Adds to a node; one that is full becomes two. What comes in order, from above or from below,
    /// leaves fuller nodes behind.
    fn add(
        &mut self,
        body: &mut Body<M>,
        at: usize,
        entry: Entry,
    ) -> Result<Option<Entry>, NoMemory> {
        if body.used() < FANOUT {
            body.insert(at, entry);
            return Ok(None);
        }
        let middle = match at {
            0 => FEW - 1,
            FANOUT => FANOUT - FEW + 1,
            _ => FANOUT / 2,
        };
        let mut right = body.split_off(middle);
        if at <= middle {
            body.insert(at, entry);
        } else {
            right.insert(at - middle, entry);
        }
        if body.level > 0 {
            // Rare enough to do the whole of both.
            (0..body.used()).for_each(|slot| Self::measure(body, slot));
            (0..right.used()).for_each(|slot| Self::measure(&mut right, slot));
        }
        let key = right.keys[0];
        Ok(Some(Entry::new(key, 0, self.make(right)?)))
    }

    fn remove_below(&mut self, node: u64, key: u64) -> Result<Up, NoMemory> {
        // SAFETY: 1: the writer's lock keeps the current version.
        let body = unsafe { read::<M>(node) };
        if body.level == 0 {
            // SAFETY: 1: the writer's lock.
            if unsafe { body.living() } == 1 {
                self.old.push(node);
                return Ok(Up::Gone);
            }
            let (copy, body) = self.copy(node)?;
            body.remove(body.slot_for(key));
            return Ok(Up::One(copy));
        }
        let at = body.slot_for(key);
        match self.remove_below(body.held(at), key)? {
            Up::One(child) => self.merge(node, at, child),
            Up::Gone if body.used() == 1 => {
                self.old.push(node);
                Ok(Up::Gone)
            }
            Up::Gone => {
                let (copy, body) = self.copy(node)?;
                body.remove(at);
                Ok(Up::One(copy))
            }
            up => Ok(up),
        }
    }

    /// Puts `child`, a copy, in the place of the one in slot `at` of `node`; or, if it has few,
    /// both it and its right or left neighbour, where both fit.
    fn merge(&mut self, node: u64, at: usize, child: u64) -> Result<Up, NoMemory> {
        // SAFETY: 1: the writer's lock keeps the current version.
        let body = unsafe { read::<M>(node) };
        // SAFETY: made by this change, and edited here only.
        let merged = unsafe { &mut (*(child as *mut Node<M>)).body };
        if merged.used() >= FEW || body.used() == 1 {
            return Ok(self.store(body, at, child));
        }
        let left = at - usize::from(at + 1 == body.used());
        let neighbour = body.held(if left == at { at + 1 } else { left });
        // SAFETY: 1: kept by the writer's lock.
        let other = unsafe { read::<M>(neighbour) };
        let others = match other.level {
            // SAFETY: 1: as above.
            0 => unsafe { other.living() },
            _ => other.used(),
        };
        if merged.used() + others > FANOUT {
            return Ok(self.store(body, at, child));
        }
        self.old.push(neighbour);
        // An inner node's first key says nothing; its parent's does.
        let border = body.keys[left + 1];
        if left == at {
            merged.append(other, border);
        } else {
            let mut both = Body::empty(other.level);
            both.append(other, other.keys[0]);
            both.append(merged, border);
            *merged = both;
        }
        if merged.level > 0 {
            (0..merged.used()).for_each(|slot| Self::measure(merged, slot));
        }
        let (copy, body) = self.copy(node)?;
        body.slots[left] = Atomic::new(child);
        body.remove(left + 1);
        Self::measure(body, left);
        Ok(Up::One(copy))
    }

    /// An inner root with one child gives way to it.
    fn shorter(&mut self, up: Up) -> Up {
        let mut root = match up {
            Up::One(root) => root,
            Up::Gone => return Up::One(0),
            up => return up,
        };
        loop {
            // SAFETY: 1: made by this change, or kept by the writer's lock.
            let body = unsafe { read::<M>(root) };
            if body.level == 0 || body.len != 1 {
                return Up::One(root);
            }
            // The old one is freed with the others of its version. The new one never gets into any.
            self.old.push(root);
            root = body.held(0);
        }
    }

    fn replace_below(
        &mut self,
        node: u64,
        key: u64,
        entry: Entry,
        keys: Keys,
    ) -> Result<Up, NoMemory> {
        // SAFETY: 1: the writer's lock keeps the current version.
        let body = unsafe { read::<M>(node) };
        if body.level == 0 {
            let (copy, body) = self.copy(node)?;
            body.put(body.slot_for(key), entry);
            return Ok(Up::One(copy));
        }
        let at = body.slot_for(key);
        match (self.replace_below(body.held(at), key, entry, keys)?, keys) {
            (Up::One(child), Keys::Stay) => Ok(self.store(body, at, child)),
            (Up::One(child), Keys::Follow) => {
                let (copy, body) = self.copy(node)?;
                body.slots[at] = Atomic::new(child);
                body.keys[at] = body.keys[at].min(entry.key);
                // A border that it reached over, and now starts behind, with nothing in between.
                if at + 1 < body.used() && body.keys[at + 1] <= entry.key {
                    // SAFETY: 1: the writer's lock.
                    let next = unsafe { body.behind(at) };
                    body.keys[at + 1] = next.unwrap_or(entry.key + 1);
                }
                Ok(Up::One(copy))
            }
            (up, _) => Ok(up),
        }
    }

    /// Publishes the change, or undoes it.
    fn finish(&self, made: Result<Up, NoMemory>, root: &Atomic<u64, M>) -> Result<(), NoMemory> {
        for mut node in self.made.iter::<M>() {
            // SAFETY: made by this change: nobody else knows it before the store below.
            let body = unsafe { &mut node.as_mut().body };
            if body.level > 0 {
                // What is below comes to start before the key that was there, or did already.
                body.keys[0] = 0;
            }
        }
        let target = match made {
            Ok(Up::One(new)) => Some((root, new)),
            Ok(_) => self.target,
            Err(NoMemory) => {
                for node in self.made.iter() {
                    // SAFETY: 1, 2: made by this change, reachable from nowhere.
                    unsafe { self.sys.nodes.free(node, self.sys) };
                }
                return Err(NoMemory);
            }
        };
        if let Some((slot, new)) = target {
            // ORDERING: Release; pairs with [tree-slot].
            slot.store(new, Ordering::Release);
        }
        for node in self.old.iter() {
            // SAFETY: unlinked by that store, and in no other change.
            unsafe { self.sys.retire_node(node) };
        }
        Ok(())
    }
}
