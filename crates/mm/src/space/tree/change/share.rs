//! Insertion into a full leaf: rebalances with a sibling that has room, instead of splitting.
//!
//! Leaves that split whenever they are full stay emptier, where VMAs come in no order, than those
//! that share with a neighbour first: more than four fifths full then, fewer lines for a lookup to
//! go through. `leaves_that_fill_in_no_order_are_four_fifths_full` measures it (`tests/`).

use super::{Change, Up};
use crate::base::error::NoMemory;
use crate::space::tree::node::Entry;
use crate::space::tree::{Body, FANOUT, read};
use minflt_pgtable::Mmu;
use minflt_sync::Atomic;

/// Slots that are free in a neighbour that a full leaf shares with, at least.
const ROOM: usize = 2;

impl<M: Mmu> Change<'_, M> {
    /// The left of two leaves below `body` that can take `key` between them, where the one in slot
    /// `at`, which it belongs into, is full and a neighbour is not. What comes in order does not
    /// ask for it ([`Self::add`]).
    pub(super) fn can_share(body: &Body<M>, at: usize, key: u64) -> Option<usize> {
        // SAFETY: 1: the writer's lock keeps the current version.
        let leaf = |slot| unsafe { read::<M>(body.held(slot)) };
        // SAFETY: 1: the writer's lock.
        let living = |slot| unsafe { leaf(slot).living() };
        let is_between = |full: &Body<M>| (1..FANOUT).contains(&full.at_most(key));
        if body.level != 1 || !is_between(leaf(at)) || living(at) < FANOUT {
            return None;
        }
        let left = at.checked_sub(1).map(|left| (living(left), left));
        let right = (at + 1 < body.used()).then(|| (living(at + 1), at));
        let (others, left) = left.into_iter().chain(right).min()?;
        (others + ROOM <= FANOUT).then_some(left)
    }

    /// Shares what the leaves in slots `left` and `left + 1` of `node` have, and one more, out
    /// evenly among two new ones.
    pub(super) fn share(&mut self, node: u64, left: usize, entry: Entry) -> Result<Up, NoMemory> {
        let (copy, body) = self.copy(node)?;
        let both = [left, left + 1];
        // SAFETY: 1: the writer's lock keeps the current version.
        let old = both.map(|slot| unsafe { read::<M>(body.held(slot)) });
        // SAFETY: 1: the writer's lock.
        let living = old.map(|leaf| unsafe { leaf.living() });
        let half = living.iter().sum::<usize>() / 2;
        let mut new = both.map(|_| Body::empty(0));
        let mut put = |entry| {
            let behind = usize::from(new[0].used() > half);
            new[behind].push(entry);
        };
        let mut entry = Some(entry);
        for leaf in old {
            for slot in 0..leaf.used() {
                // SAFETY: 1: the writer's lock.
                let Some(there) = (unsafe { leaf.living_at(slot) }) else {
                    continue;
                };
                entry.take_if(|entry| entry.key < there.key).map(&mut put);
                put(there);
            }
        }
        entry.map(put);
        body.keys[left + 1] = new[1].keys[0];
        for (slot, leaf) in both.into_iter().zip(new) {
            self.old.push(body.held(slot));
            body.slots[slot] = Atomic::new(self.make(leaf)?);
        }
        both.iter().for_each(|slot| Self::measure(body, *slot));
        Ok(Up::One(copy))
    }
}
