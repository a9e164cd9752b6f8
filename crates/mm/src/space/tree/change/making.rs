//! Nodes of a change: made, edited, published or freed.

use crate::base::error::NoMemory;
use crate::space::tree::node::{NodeRef, Slot};
use crate::space::tree::{Body, Node};
use crate::system::System;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Callback};

/// Levels at most: a change that needs more fails.
pub(super) const DEPTH: usize = 12;
/// Nodes of a change at most: of each level the path's, its neighbour, and a root that is left out.
const NODES: usize = 3 * DEPTH;

/// Nodes of a change.
///
/// # Invariants
/// The first `len` were written.
struct Nodes<M: Mmu> {
    nodes: [MaybeUninit<NonNull<Node<M>>>; NODES],
    len: usize,
}

impl<M: Mmu> Nodes<M> {
    #[inline(always)]
    const fn none() -> Self {
        // INVARIANT: none.
        Self {
            nodes: [const { MaybeUninit::uninit() }; NODES],
            len: 0,
        }
    }

    fn push(&mut self, node: NonNull<Node<M>>) {
        self.nodes[self.len].write(node);
        // INVARIANT: written by the line before.
        self.len += 1;
    }

    fn iter(&self) -> impl Iterator<Item = NonNull<Node<M>>> {
        let written = self.nodes[..self.len].iter();
        // SAFETY: by the invariant.
        written.map(|node| unsafe { node.assume_init() })
    }
}

/// A node that a change has made, and edits.
///
/// # Invariants
/// 1. It is in the change's list, and no slot names it as long as this exists.
pub(super) struct Made<M: Mmu> {
    at: NonNull<Node<M>>,
}

impl<M: Mmu> Made<M> {
    /// What names it from now on: it is not edited any more.
    pub(super) fn slot(self) -> Slot {
        self.node().slot()
    }

    /// Reads it as any other node.
    pub(super) fn read(&self) -> &Body<M> {
        // SAFETY: 1: by the invariant nobody writes it while this is borrowed.
        unsafe { NodeRef::new(self.at) }.read()
    }

    /// As a node that is not edited any more.
    pub(super) fn node<'t>(self) -> NodeRef<'t, M> {
        // SAFETY: 1: made, and so kept until the lock is released, unless the change is undone;
        // then nothing is left of it. It is edited through this only.
        unsafe { NodeRef::new(self.at) }
    }

    /// To edit.
    pub(super) fn edit(&mut self) -> &mut Body<M> {
        // SAFETY: by the invariant nobody else knows it.
        unsafe { &mut self.at.as_mut().body }
    }
}

/// Nodes that a change has made, which no lookup finds yet, and those that it replaces.
pub(super) struct Making<'t, M: Mmu> {
    sys: &'t System<M>,
    made: Nodes<M>,
    old: Nodes<M>,
}

impl<'t, M: Mmu> Making<'t, M> {
    pub(super) const fn new(sys: &'t System<M>) -> Self {
        Self {
            sys,
            made: Nodes::none(),
            old: Nodes::none(),
        }
    }

    pub(super) fn make(&mut self, body: Body<M>) -> Result<Made<M>, NoMemory> {
        let node = Node {
            body,
            callback: Callback::new(),
        };
        let at = self.sys.nodes.alloc(node, self.sys).map_err(|_| NoMemory)?;
        self.made.push(at);
        Ok(Made { at })
    }

    /// A copy to edit in place of `old`, which this change replaces; of a leaf without its holes.
    pub(super) fn copy(&mut self, old: NodeRef<'t, M>) -> Result<Made<M>, NoMemory> {
        let from = old.read();
        // SAFETY: 1: the writer's lock keeps it and its words as they are; a node that is not
        // retired has a callback that is in no list.
        let copy = unsafe { self.sys.nodes.alloc_copy(old.at, self.sys) };
        let mut copy = Made {
            at: copy.ok_or(NoMemory)?,
        };
        self.made.push(copy.at);
        self.old.push(old.at);
        if from.level == 0 && from.living() < from.used() {
            copy.edit().fill_holes();
        }
        Ok(copy)
    }

    /// The change's store takes a node out of the tree.
    pub(super) fn replaces(&mut self, old: NodeRef<'_, M>) {
        self.old.push(old.at);
    }

    /// Stores what is given where it is to stand, if anything, and retires what that takes out.
    pub(super) fn publish(self, store: Option<(&Atomic<u64, M>, Slot)>) {
        for mut node in self.made.iter() {
            // SAFETY: made by this change: nobody else knows it before the store below, and the
            // change edits none any more.
            let body = unsafe { &mut node.as_mut().body };
            if body.level > 0 {
                // What is below comes to start before the key that was there, or did already.
                body.keys[0] = 0;
            }
        }
        if let Some((place, new)) = store {
            new.publish(place);
        }
        for node in self.old.iter() {
            // SAFETY: 1: taken out by that store, under the writer's lock, and in no other change.
            unsafe { self.sys.retire_node(node) };
        }
    }

    /// Frees what was made.
    pub(super) fn undo(self) {
        for node in self.made.iter() {
            // SAFETY: 1, 2: made by this change, which stored it nowhere.
            unsafe { self.sys.nodes.free(node, self.sys) };
        }
    }
}
