//! Insertion into a full leaf: rebalances with a sibling that has room, instead of splitting.
//!
//! Leaves that split whenever they are full stay emptier, where VMAs come in no order, than those
//! that share with a neighbour first: more than four fifths full then, fewer lines for a lookup to
//! go through. `leaves_that_fill_in_no_order_are_four_fifths_full` measures it (`tests/`).

use super::{Change, Up};
use crate::base::error::NoMemory;
use crate::space::tree::node::{Entry, NodeRef};
use crate::space::tree::{Body, FANOUT};
use minflt_pgtable::Mmu;

/// Slots that are free in a neighbour that a full leaf shares with, at least.
const ROOM: usize = 2;

impl<'t, M: Mmu> Change<'t, M> {
    /// The left of two leaves below `body` that can take `key` between them, where the one in slot
    /// `at`, which it belongs into, is full and a neighbour is not. What comes in order does not
    /// ask for it ([`Self::add`]).
    pub(super) fn can_share(body: &Body<M>, at: usize, key: u64) -> Option<usize> {
        let leaf = |slot| body.child(slot).map(NodeRef::read);
        let living = |slot| leaf(slot).map_or(FANOUT, Body::living);
        let is_between = |full: &Body<M>| (1..FANOUT).contains(&full.at_most(key));
        if body.level != 1 || !is_between(leaf(at)?) || living(at) < FANOUT {
            return None;
        }
        let left = at.checked_sub(1).map(|left| (living(left), left));
        let right = (at + 1 < body.used()).then(|| (living(at + 1), at));
        let (others, left) = left.into_iter().chain(right).min()?;
        (others + ROOM <= FANOUT).then_some(left)
    }

    /// Shares what the leaves in slots `left` and `left + 1` of `node` have, and one more, out
    /// evenly among two new ones.
    pub(super) fn share(
        &mut self,
        node: NodeRef<'t, M>,
        left: usize,
        entry: Entry,
    ) -> Result<Up<M>, NoMemory> {
        let mut copy = self.nodes.copy(node)?;
        let both = [left, left + 1];
        let (Some(first), Some(second)) = (node.peek().child(left), node.peek().child(left + 1))
        else {
            return Ok(Up::Done);
        };
        let old = [first, second].map(NodeRef::read);
        let half = old.map(Body::living).iter().sum::<usize>() / 2;
        let mut new = both.map(|_| Body::empty(0));
        let mut put = |entry| {
            let behind = usize::from(new[0].used() > half);
            new[behind].push(entry);
        };
        let mut entry = Some(entry);
        for leaf in old {
            for slot in 0..leaf.used() {
                let Some(there) = leaf.living_at(slot) else {
                    continue;
                };
                entry.take_if(|entry| entry.key < there.key).map(&mut put);
                put(there);
            }
        }
        entry.map(put);
        let body = copy.edit();
        body.keys[left + 1] = new[1].keys[0];
        self.nodes.replaces(first);
        self.nodes.replaces(second);
        for (slot, leaf) in both.into_iter().zip(new) {
            body.set_slot(slot, self.nodes.make(leaf)?.slot());
        }
        both.iter().for_each(|slot| Self::measure(body, *slot));
        Ok(Up::One(copy))
    }
}
