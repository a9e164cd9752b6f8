//! Changing the tree: by copies of the path from the root to a leaf.
//!
//! A node is copied once for each change, and the copy is edited in place until the new root is
//! stored; nobody else knows it before. Nodes fill up, or merge with a neighbour where both fit;
//! nothing is moved between nodes that stay.

use super::{Body, FANOUT, Node, UNUSED, read};
use crate::error::NoMemory;
use crate::system::System;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::Callback;

/// A node with fewer merges with a neighbour where both fit.
const FEW: usize = 4;
/// Levels at most: a change that needs more fails.
const DEPTH: usize = 12;
/// Nodes of a change at most: of each level the path's, its neighbour, and a root that is left out.
const NODES: usize = 3 * DEPTH;

/// A change: nodes made and not yet reachable, nodes replaced and still reachable.
pub(super) struct Change<'s, M: Mmu> {
    sys: &'s System<M>,
    made: Nodes,
    old: Nodes,
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

    fn iter(&self) -> impl Iterator<Item = NonNull<Node>> {
        self.nodes[..self.len].iter().filter_map(|node| {
            // SAFETY: by the invariant.
            NonNull::new(unsafe { node.assume_init() } as *mut Node)
        })
    }
}

/// What a node says of one VMA or child.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    key: u64,
    word: u32,
    slot: u64,
}

impl Entry {
    pub(super) const fn new(key: u64, word: u32, slot: u64) -> Self {
        Self { key, word, slot }
    }

    pub(super) const fn slot(&self) -> u64 {
        self.slot
    }
}

impl Body {
    /// What its parent says of it.
    fn entry(&self, node: NonNull<Node>) -> Entry {
        Entry::new(self.keys[0], 0, node.as_ptr() as u64)
    }

    fn put(&mut self, at: usize, entry: Entry) {
        (self.keys[at], self.slots[at]) = (entry.key, entry.slot);
        self.words.get_mut()[at] = entry.word;
    }

    fn insert(&mut self, at: usize, entry: Entry) {
        let len = self.used();
        self.keys.copy_within(at..len, at + 1);
        self.words.get_mut().copy_within(at..len, at + 1);
        self.slots.copy_within(at..len, at + 1);
        self.put(at, entry);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.used();
        self.keys.copy_within(at + 1..len, at);
        self.words.get_mut().copy_within(at + 1..len, at);
        self.slots.copy_within(at + 1..len, at);
        self.keys[len - 1] = UNUSED;
        self.len -= 1;
    }

    /// Takes what stands from `at` on out, into a node of its own.
    fn split_off(&mut self, at: usize) -> Self {
        let mut right = Self::empty(self.level);
        let more = self.used() - at;
        right.keys[..more].copy_from_slice(&self.keys[at..at + more]);
        right.words.get_mut()[..more].copy_from_slice(&self.words.get_mut()[at..at + more]);
        right.slots[..more].copy_from_slice(&self.slots[at..at + more]);
        right.len = more as u32;
        self.keys[at..].fill(UNUSED);
        self.len = at as u32;
        right
    }

    /// Adds all of `right`, which fits.
    fn append<M: Mmu>(&mut self, right: &Self) {
        let (len, more) = (self.used(), right.used());
        // SAFETY: 1: the writer's lock.
        let words = unsafe { &right.words::<M>()[..more] };
        self.words.get_mut()[len..len + more].copy_from_slice(words);
        self.keys[len..len + more].copy_from_slice(&right.keys[..more]);
        self.slots[len..len + more].copy_from_slice(&right.slots[..more]);
        self.len += right.len;
    }
}

impl<'s, M: Mmu> Change<'s, M> {
    pub(super) const fn new(sys: &'s System<M>) -> Self {
        Self {
            sys,
            made: Nodes::none(),
            old: Nodes::none(),
        }
    }

    fn make(&mut self, body: Body) -> Result<NonNull<Node>, NoMemory> {
        let node = Node {
            body,
            callback: Callback::new(),
        };
        let node = self.sys.nodes.alloc(node, self.sys).map_err(|_| NoMemory)?;
        self.made.push(node.as_ptr() as u64);
        Ok(node)
    }

    /// A copy to edit in place of `node`, which this change replaces.
    fn copy<'n>(&mut self, node: u64) -> Result<(NonNull<Node>, &'n mut Body), NoMemory> {
        let Some(old) = NonNull::new(node as *mut Node) else {
            return Err(NoMemory);
        };
        // SAFETY: 1: the writer's lock keeps the current version.
        let _announced = unsafe { read::<M>(node) };
        // SAFETY: 1: as above; a node that is not retired has a callback that is in no list.
        let copy = unsafe { self.sys.nodes.alloc_copy(old, self.sys) };
        let mut copy = copy.ok_or(NoMemory)?;
        self.made.push(copy.as_ptr() as u64);
        self.old.push(node);
        // SAFETY: made just now: nobody else knows it until the change is finished, and each node
        // is edited at one place below.
        Ok((copy, unsafe { &mut copy.as_mut().body }))
    }

    /// Sets the word of `slot` of an inner node as the child is now.
    fn measure(&self, body: &mut Body, slot: usize) {
        // SAFETY: 1: the writer's lock.
        let word = unsafe { body.gap_word::<M>(slot) };
        body.words.get_mut()[slot] = word;
    }

    /// Sets the words around `slot`, where what starts at `before` was replaced.
    fn measure_around(&self, body: &mut Body, slot: usize, before: u64) {
        if slot < body.used() {
            self.measure(body, slot);
        }
        let moved = slot >= body.used() || body.keys[slot] != before;
        if moved && slot > 0 {
            self.measure(body, slot - 1);
        }
    }

    /// The tree under `root` with one more; returns its root.
    pub(super) fn insert(&mut self, root: u64, entry: Entry) -> Result<u64, NoMemory> {
        if root == 0 {
            let mut leaf = Body::empty(0);
            leaf.insert(0, entry);
            return Ok(self.make(leaf)?.as_ptr() as u64);
        }
        let (left, right) = self.insert_below(root, entry)?;
        let Some(right) = right else {
            return Ok(left.slot);
        };
        // SAFETY: 1: made by this change.
        let level = unsafe { read::<M>(left.slot) }.level + 1;
        if level as usize >= DEPTH {
            return Err(NoMemory);
        }
        let mut above = Body::empty(level);
        above.insert(0, left);
        above.insert(1, right);
        self.measure(&mut above, 0);
        self.measure(&mut above, 1);
        Ok(self.make(above)?.as_ptr() as u64)
    }

    /// What takes the place of `node`: one node or two.
    fn insert_below(
        &mut self,
        node: u64,
        entry: Entry,
    ) -> Result<(Entry, Option<Entry>), NoMemory> {
        let (copy, body) = self.copy(node)?;
        let right = if body.level == 0 {
            let at = body.at_most(entry.key);
            self.add(body, at, entry)?
        } else {
            let at = body.slot_for(entry.key);
            let before = body.keys[at];
            let (left, right) = self.insert_below(body.slots[at], entry)?;
            body.put(at, left);
            let more = match right {
                Some(right) => self.add(body, at + 1, right)?,
                None => None,
            };
            if more.is_none() {
                self.measure_around(body, at, before);
                if right.is_some() {
                    self.measure(body, at + 1);
                }
            }
            more
        };
        Ok((body.entry(copy), right))
    }

    /// Adds to a node; one that is full becomes two. What comes in order, from above or from below,
    /// leaves fuller nodes behind.
    fn add(&mut self, body: &mut Body, at: usize, entry: Entry) -> Result<Option<Entry>, NoMemory> {
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
            (0..body.used()).for_each(|slot| self.measure(body, slot));
            (0..right.used()).for_each(|slot| self.measure(&mut right, slot));
        }
        let key = right.keys[0];
        let right = self.make(right)?;
        Ok(Some(Entry::new(key, 0, right.as_ptr() as u64)))
    }

    /// The tree under `node` with `entry` in place of the VMA at `key`, which is in it, with no
    /// other between the two keys; returns what takes the place of `node`.
    pub(super) fn rekey(&mut self, node: u64, key: u64, entry: Entry) -> Result<Entry, NoMemory> {
        let (copy, body) = self.copy(node)?;
        let at = body.slot_for(key);
        if body.level == 0 {
            body.put(at, entry);
        } else {
            let before = body.keys[at];
            let child = self.rekey(body.slots[at], key, entry)?;
            body.put(at, child);
            self.measure_around(body, at, before);
        }
        Ok(body.entry(copy))
    }

    /// The tree under `root` without `key`, which is in it; returns its root.
    pub(super) fn remove(&mut self, root: u64, key: u64) -> Result<u64, NoMemory> {
        let Some(entry) = self.remove_below(root, key)? else {
            return Ok(0);
        };
        // An inner root with one child gives way to it.
        let mut root = entry.slot;
        loop {
            // SAFETY: 1: made by this change, or kept by the writer's lock.
            let body = unsafe { read::<M>(root) };
            if body.level == 0 || body.len != 1 {
                return Ok(root);
            }
            // The old one is freed with the others of its version. The new one never gets into any.
            self.old.push(root);
            root = body.slots[0];
        }
    }

    /// What takes the place of `node`, if anything is left of it.
    fn remove_below(&mut self, node: u64, key: u64) -> Result<Option<Entry>, NoMemory> {
        // SAFETY: 1: the writer's lock keeps the current version.
        let body = unsafe { read::<M>(node) };
        if body.level == 0 && body.len == 1 {
            self.old.push(node);
            return Ok(None);
        }
        let (copy, body) = self.copy(node)?;
        let at = body.slot_for(key);
        if body.level == 0 {
            body.remove(at);
        } else {
            let before = body.keys[at];
            match self.remove_below(body.slots[at], key)? {
                None => {
                    body.remove(at);
                    self.measure_around(body, at, before);
                }
                Some(child) => {
                    body.put(at, child);
                    let at = self.merge(body, at);
                    self.measure_around(body, at, before);
                }
            }
        }
        if body.len == 0 {
            self.old.push(copy.as_ptr() as u64);
            return Ok(None);
        }
        Ok(Some(body.entry(copy)))
    }

    /// Merges the child in slot `at`, a copy, with its right or left neighbour if it has few and
    /// both fit; returns the slot it is in then.
    fn merge(&mut self, body: &mut Body, at: usize) -> usize {
        // SAFETY: made by this change, and edited here only.
        let child = unsafe { &mut (*(body.slots[at] as *mut Node)).body };
        if child.used() >= FEW || body.len == 1 {
            return at;
        }
        let neighbour = if at + 1 < body.used() { at + 1 } else { at - 1 };
        let old = body.slots[neighbour];
        // SAFETY: 1: kept by the writer's lock.
        let other = unsafe { read::<M>(old) };
        if child.used() + other.used() > FANOUT {
            return at;
        }
        self.old.push(old);
        if neighbour > at {
            child.append::<M>(other);
        } else {
            let mut both = Self::copied(other);
            both.append::<M>(child);
            *child = both;
            body.keys[at] = body.keys[neighbour];
        }
        if child.level > 0 {
            (0..child.used()).for_each(|slot| self.measure(child, slot));
        }
        body.remove(neighbour);
        at.min(neighbour)
    }

    /// A node like `body`.
    fn copied(body: &Body) -> Body {
        let mut copy = Body::empty(body.level);
        copy.append::<M>(body);
        copy
    }

    /// Publishes the change, or undoes it.
    pub(super) fn finish(
        &self,
        root: Result<u64, NoMemory>,
        publish: impl FnOnce(u64),
    ) -> Result<(), NoMemory> {
        let result = root.map(publish);
        if result.is_ok() {
            for node in self.old.iter() {
                // SAFETY: unlinked by the new root, and in no other change.
                unsafe { self.sys.retire_node(node) };
            }
        } else {
            for node in self.made.iter() {
                // SAFETY: 1, 2: made by this change, reachable from nowhere.
                unsafe { self.sys.nodes.free(node) };
            }
        }
        result
    }
}
