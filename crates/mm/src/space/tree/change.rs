//! Tree changes that allocate nodes: insertion, removal or replacement of a key.
//!
//! A leaf is copied without its holes, and the copy is edited in place until one store puts it into
//! its parent's slot; nobody else knows it before. Only where a node splits, merges with a
//! neighbour, shares with it or goes is its parent copied too, and so on upwards; the store is then
//! further up. A change that fails has stored nothing, and gives back what it made.

mod making;
mod share;

use super::node::{Entry, Locked, NodeRef, Slot, insert_in_place};
use super::{Body, FANOUT};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::system::System;
use making::{DEPTH, Made, Making};
use minflt_pgtable::Mmu;
use minflt_sync::Atomic;

/// A node with fewer merges with a neighbour where both fit.
pub(super) const FEW: usize = 4;
/// A change: nodes made and not yet reachable, nodes replaced and still reachable.
struct Change<'t, M: Mmu> {
    sys: &'t System<M>,
    /// The one slot that is to be stored to, once the whole change is made; and what.
    target: Option<(&'t Atomic<u64, M>, Slot)>,
    nodes: Making<'t, M>,
}

/// What the parent of a node that was changed has to do.
enum Up<M: Mmu> {
    /// Nothing.
    Done,
    /// This takes the node's place.
    One(Made<M>),
    /// The first takes its place, the second comes behind.
    Two(Made<M>, Entry),
    /// Nothing takes its place.
    Gone,
}

impl<M: Mmu> Up<M> {
    /// What the root is from now on, unless it stays.
    fn place(self) -> Option<Slot> {
        match self {
            Self::One(root) => Some(root.slot()),
            Self::Done | Self::Two(..) | Self::Gone => None,
        }
    }
}

/// Which nodes above a leaf get new keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// None.
    Stay,
    /// Those beside the path that the VMA's new start is on the wrong side of.
    Follow,
}

impl<'t, M: Mmu> Locked<'t, M> {
    /// Adds a VMA whose start is no key.
    #[inline(never)]
    pub(super) fn insert_key(self, sys: &'t System<M>, entry: Entry) -> Result<(), NoMemory> {
        let mut change = Change::new(sys);
        let made = change.insert(self.root(), entry);
        change.finish(made.map(Up::place), self)
    }

    /// Takes the key of a VMA out.
    #[inline(never)]
    pub(super) fn remove_key(self, sys: &'t System<M>, key: u64) -> Result<(), NoMemory> {
        let mut change = Change::new(sys);
        let made = match self.root() {
            Some(root) => change.remove_below(root, key),
            None => Ok(Up::Done),
        };
        let made = made.map(|up| change.shorter(up));
        change.finish(made, self)
    }

    /// Puts `entry` in place of the VMA at `key`, with no other between the two keys.
    pub(super) fn replace_key(
        self,
        sys: &'t System<M>,
        key: u64,
        entry: Entry,
    ) -> Result<(), NoMemory> {
        let mut change = Change::new(sys);
        let Some(root) = self.root() else {
            return Ok(());
        };
        let keys = if leaf_for(root, key) == leaf_for(root, entry.key) {
            Keys::Stay
        } else {
            Keys::Follow
        };
        let made = change.replace_below(root, key, entry, keys);
        change.finish(made.map(Up::place), self)
    }
}

/// What names the leaf that `addr` leads to.
fn leaf_for<M: Mmu>(mut node: NodeRef<'_, M>, addr: u64) -> Option<Slot> {
    loop {
        let body = node.read();
        if body.level == 0 {
            return Some(node.slot());
        }
        node = body.child(body.slot_for(addr))?;
    }
}

impl<'t, M: Mmu> Change<'t, M> {
    const fn new(sys: &'t System<M>) -> Self {
        Self {
            sys,
            target: None,
            nodes: Making::new(sys),
        }
    }

    /// What is stored where, if the change succeeds.
    fn store(&mut self, body: &'t Body<M>, slot: usize, node: Made<M>) -> Up<M> {
        self.target = Some((&body.slots[slot], node.slot()));
        Up::Done
    }

    /// Sets the word of `slot` of an inner node as the child is now.
    fn measure(body: &mut Body<M>, slot: usize) {
        let word = body.gap_word(slot, body.behind(slot));
        *body.words[slot].get_mut() = word;
    }

    /// The tree under `root` with one more.
    fn insert(&mut self, root: Option<NodeRef<'t, M>>, entry: Entry) -> Result<Up<M>, NoMemory> {
        let Some(root) = root else {
            let mut leaf = Body::empty(0);
            leaf.push(entry);
            return Ok(Up::One(self.nodes.make(leaf)?));
        };
        let (left, right) = match self.insert_below(root, entry)? {
            Up::Two(left, right) => (left, right),
            up => return Ok(up),
        };
        let below = left.read();
        if below.level as usize + 1 >= DEPTH {
            return Err(NoMemory);
        }
        let (level, first) = (below.level + 1, below.keys[0]);
        let mut above = Body::empty(level);
        above.push(Entry::new(first, 0, left.slot()));
        above.push(right);
        Self::measure(&mut above, 0);
        Self::measure(&mut above, 1);
        Ok(Up::One(self.nodes.make(above)?))
    }

    fn insert_below(&mut self, node: NodeRef<'t, M>, entry: Entry) -> Result<Up<M>, NoMemory> {
        let body = node.read();
        let (copy, right) = if body.level == 0 {
            if self.sys.lacks(NegativeControl::LeafInPlace) && body.used() < FANOUT {
                insert_in_place(body, entry);
                return Ok(Up::Done);
            }
            let mut copy = self.nodes.copy(node)?;
            let body = copy.edit();
            let right = self.add(body, body.at_most(entry.key), entry)?;
            (copy, right)
        } else {
            let at = body.slot_for(entry.key);
            if let Some(left) = Self::can_share(body, at, entry.key) {
                return self.share(node, left, entry);
            }
            let Some(child) = body.child(at) else {
                return Ok(Up::Done);
            };
            let (left, right) = match self.insert_below(child, entry)? {
                Up::One(child) => return Ok(self.store(body, at, child)),
                Up::Two(left, right) => (left, right),
                up => return Ok(up),
            };
            let mut copy = self.nodes.copy(node)?;
            let body = copy.edit();
            body.set_slot(at, left.slot());
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
        let right = self.nodes.make(right)?;
        Ok(Some(Entry::new(key, 0, right.slot())))
    }

    fn remove_below(&mut self, node: NodeRef<'t, M>, key: u64) -> Result<Up<M>, NoMemory> {
        let body = node.read();
        if body.level == 0 {
            if body.living() == 1 {
                self.nodes.replaces(node);
                return Ok(Up::Gone);
            }
            let mut copy = self.nodes.copy(node)?;
            let body = copy.edit();
            body.remove(body.slot_for(key));
            return Ok(Up::One(copy));
        }
        let at = body.slot_for(key);
        let Some(child) = body.child(at) else {
            return Ok(Up::Done);
        };
        match self.remove_below(child, key)? {
            Up::One(child) => self.merge(node, at, child),
            Up::Gone if body.used() == 1 => {
                self.nodes.replaces(node);
                Ok(Up::Gone)
            }
            Up::Gone => {
                let mut copy = self.nodes.copy(node)?;
                copy.edit().remove(at);
                Ok(Up::One(copy))
            }
            up => Ok(up),
        }
    }

    /// Puts `child`, a copy, in the place of the one in slot `at` of `node`; or, if it has few,
    /// both it and its right or left neighbour, where both fit.
    fn merge(
        &mut self,
        node: NodeRef<'t, M>,
        at: usize,
        mut child: Made<M>,
    ) -> Result<Up<M>, NoMemory> {
        let body = node.read();
        let has = child.edit().used();
        if has >= FEW || body.used() == 1 {
            return Ok(self.store(body, at, child));
        }
        let left = at - usize::from(at + 1 == body.used());
        let Some(neighbour) = body.child(if left == at { at + 1 } else { left }) else {
            return Ok(self.store(body, at, child));
        };
        let other = neighbour.read();
        let others = match other.level {
            0 => other.living(),
            _ => other.used(),
        };
        if has + others > FANOUT {
            return Ok(self.store(body, at, child));
        }
        self.nodes.replaces(neighbour);
        let merged = child.edit();
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
        let mut copy = self.nodes.copy(node)?;
        let body = copy.edit();
        body.set_slot(left, child.slot());
        body.remove(left + 1);
        Self::measure(body, left);
        Ok(Up::One(copy))
    }

    /// An inner root with one child gives way to it.
    fn shorter(&mut self, up: Up<M>) -> Option<Slot> {
        let root = match up {
            Up::One(root) => root,
            Up::Gone => return Some(Slot::NOTHING),
            up => return up.place(),
        };
        let mut at = root.node();
        loop {
            let body = at.read();
            if body.len != 1 {
                return Some(at.slot());
            }
            let Some(child) = body.child(0) else {
                return Some(at.slot());
            };
            // The old one is freed with the others of its version. The new one never gets into any.
            self.nodes.replaces(at);
            at = child;
        }
    }

    fn replace_below(
        &mut self,
        node: NodeRef<'t, M>,
        key: u64,
        entry: Entry,
        keys: Keys,
    ) -> Result<Up<M>, NoMemory> {
        let body = node.read();
        if body.level == 0 {
            let mut copy = self.nodes.copy(node)?;
            let body = copy.edit();
            body.put(body.slot_for(key), entry);
            return Ok(Up::One(copy));
        }
        let at = body.slot_for(key);
        let Some(child) = body.child(at) else {
            return Ok(Up::Done);
        };
        match (self.replace_below(child, key, entry, keys)?, keys) {
            (Up::One(child), Keys::Stay) => Ok(self.store(body, at, child)),
            (Up::One(child), Keys::Follow) => {
                let mut copy = self.nodes.copy(node)?;
                let body = copy.edit();
                body.set_slot(at, child.slot());
                body.keys[at] = body.keys[at].min(entry.key);
                // A border that it reached over, and now starts behind, with nothing in between.
                if at + 1 < body.used() && body.keys[at + 1] <= entry.key {
                    let next = body.behind(at);
                    body.keys[at + 1] = next.unwrap_or(entry.key + 1);
                }
                Ok(Up::One(copy))
            }
            (up, _) => Ok(up),
        }
    }

    /// Publishes the change, which makes the root what is given unless it stays; or undoes it.
    fn finish(
        self,
        made: Result<Option<Slot>, NoMemory>,
        tree: Locked<'t, M>,
    ) -> Result<(), NoMemory> {
        match made {
            Ok(Some(root)) => self.nodes.publish(Some((tree.root_slot(), root))),
            Ok(None) => self.nodes.publish(self.target),
            Err(NoMemory) => self.nodes.undo(),
        }
        made.map(drop)
    }
}
