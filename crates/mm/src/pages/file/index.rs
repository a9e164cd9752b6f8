//! The page cache index: maps page numbers to frames, with lockless lookup.
//!
//! # Problem
//! Every file fault looks up a page, on all CPUs at once, while other threads insert and remove
//! pages.
//!
//! # Idea
//! A radix tree whose nodes are only ever added: a slot changes from empty to a node by one
//! exchange, and never changes again. The nodes that a lookup visits stay allocated as long as the
//! cache exists.
//!
//! # Protocol
//! The root word names the top node and its height. A page number beyond its reach adds a new top
//! node, whose first slot is the old one. A page is inserted, by an exchange of an empty slot, and
//! removed by a thread that holds the page's lock.
//!
//! # Why it is correct
//! Nodes and slots do not change once they point to a node, so an old root leads to the same nodes
//! as a new one for the numbers it covers. Of two threads that add the same node one loses the
//! exchange, and frees its own. Nothing is freed before the cache is.
//!
//! # Cost
//! A load for each 6 bits of the largest page number. A node is 512 bytes; those of a truncated
//! file stay until it is closed.
//!
//! Linux: lib/xarray.c, whose readers run in an RCU section, and whose nodes are freed.

use crate::base::error::NoMemory;
use crate::system::System;
use core::array;
use core::ops::Range;
use core::ptr::NonNull;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Ordering};

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// The bits of a root word that say its height.
const HEIGHT: u64 = 63;

/// A node: slots of nodes, or of frame numbers; 0 for nothing.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct CacheNode<M: Mmu> {
    slots: [Atomic<u64, M>; SLOTS],
}

impl<M: Mmu> SlabObject for CacheNode<M> {}

/// The tree.
#[derive(Debug)]
pub(super) struct Index<M: Mmu> {
    /// The address of the top node and its height, from 1 on; 0 while there is none.
    root: Atomic<u64, M>,
}

/// The node at an address that a slot or root names.
fn node<'a, M: Mmu>(address: u64) -> Option<&'a CacheNode<M>> {
    // SAFETY: nodes live as long as the cache, which the caller holds.
    node_ptr(address).map(|node| unsafe { node.as_ref() })
}

/// Its address, to free it.
fn node_ptr<M: Mmu>(address: u64) -> Option<NonNull<CacheNode<M>>> {
    NonNull::new((address & !HEIGHT) as *mut CacheNode<M>)
}

/// The slot of `number` in a node of this height.
const fn slot_of(number: u64, height: u64) -> usize {
    (number >> ((height - 1) * BITS as u64)) as usize % SLOTS
}

/// Whether a node of this height has a place for `number`.
const fn reaches(height: u64, number: u64) -> bool {
    let bits = height * BITS as u64;
    bits >= 64 || number >> bits == 0
}

/// Slots looked at in order: the node that has the last one has most likely the next one.
pub(crate) struct InOrder<'i, M: Mmu> {
    index: &'i Index<M>,
    leaf: Option<(u64, &'i CacheNode<M>)>,
}

impl<'i, M: Mmu> InOrder<'i, M> {
    /// The slot of page `number`, if there is one.
    #[inline]
    pub(super) fn slot(&mut self, number: u64) -> Option<&'i Atomic<u64, M>> {
        let of = number >> BITS;
        let leaf = match self.leaf {
            Some((here, leaf)) if here == of => leaf,
            _ => {
                let leaf = self.index.leaf(number)?;
                self.leaf = Some((of, leaf));
                leaf
            }
        };
        Some(&leaf.slots[slot_of(number, 1)])
    }

    /// Prefetches the slots of a range, as far as they are in one node: all lines at once, so that
    /// the fetches overlap.
    #[inline]
    pub(super) fn prefetch(&mut self, range: Range<u64>) {
        /// Slots of a line.
        const LINE: usize = 64 / size_of::<u64>();
        if let Some(first) = self.slot(range.start) {
            let at = slot_of(range.start, 1);
            let behind = at % LINE;
            let slots = ((range.end - range.start) as usize).min(SLOTS - at);
            let line = core::ptr::from_ref(first).wrapping_sub(behind);
            M::prefetch(line.cast(), (behind + slots) * size_of::<u64>());
        }
    }
}

impl<M: Mmu> Index<M> {
    pub(super) fn new() -> Self {
        Self {
            root: Atomic::new(0),
        }
    }

    /// The slot of page `number`, if there is one.
    #[inline]
    pub(super) fn slot<'a>(&self, number: u64) -> Option<&'a Atomic<u64, M>> {
        Some(&self.leaf(number)?.slots[slot_of(number, 1)])
    }

    /// The lowest node above page `number`, if there is one.
    #[inline]
    fn leaf<'a>(&self, number: u64) -> Option<&'a CacheNode<M>> {
        // ORDERING: Acquire; pairs with [cache-slot].
        let root = self.root.load(Ordering::Acquire);
        let mut height = root & HEIGHT;
        if !reaches(height, number) {
            return None;
        }
        let mut at = node::<M>(root)?;
        while height > 1 {
            // ORDERING: Acquire; pairs with [cache-slot].
            at = node(at.slots[slot_of(number, height)].load(Ordering::Acquire))?;
            height -= 1;
        }
        Some(at)
    }

    /// The slots of pages that are looked at in order.
    pub(super) const fn in_order(&self) -> InOrder<'_, M> {
        InOrder {
            index: self,
            leaf: None,
        }
    }

    /// The slot of page `number`, with the nodes above it made where they are missing.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn slot_for<'a>(
        &self,
        sys: &System<M>,
        number: u64,
    ) -> Result<&'a Atomic<u64, M>, NoMemory> {
        let (mut at, mut height) = self.top(sys, number)?;
        while height > 1 {
            let slot = &at.slots[slot_of(number, height)];
            // ORDERING: Acquire; pairs with [cache-slot].
            at = match node(slot.load(Ordering::Acquire)) {
                Some(below) => below,
                None => put_in(sys, slot, 0, 0)?,
            };
            height -= 1;
        }
        Ok(&at.slots[slot_of(number, 1)])
    }

    /// A top node that reaches `number`.
    fn top<'a>(&self, sys: &System<M>, number: u64) -> Result<(&'a CacheNode<M>, u64), NoMemory> {
        loop {
            // ORDERING: Acquire; pairs with [cache-slot].
            let root = self.root.load(Ordering::Acquire);
            let height = root & HEIGHT;
            match node(root) {
                Some(top) if reaches(height, number) => return Ok((top, height)),
                _ => drop(put_in(sys, &self.root, root, height + 1)?),
            }
        }
    }

    /// Calls `visit` with the number and frame of each page from `first` to `last` that is there,
    /// in order.
    pub(super) fn each(&self, first: u64, last: u64, mut visit: impl FnMut(u64, Pfn)) {
        // ORDERING: Acquire; pairs with [cache-slot].
        let root = self.root.load(Ordering::Acquire);
        if let Some(top) = node::<M>(root) {
            each_below(top, root & HEIGHT, 0, (first, last), &mut visit);
        }
    }

    /// How many nodes there are. For oracles, while nothing runs.
    pub(super) fn nodes(&self) -> u64 {
        let root = self.root.peek();
        node::<M>(root).map_or(0, |top| count(top, root & HEIGHT))
    }

    /// The frame of page `number`. For oracles, while nothing runs.
    pub(super) fn peek(&self, number: u64) -> Option<Pfn> {
        let root = self.root.peek();
        let mut height = root & HEIGHT;
        let mut at = node::<M>(root).filter(|_| reaches(height, number))?;
        while height > 1 {
            at = node(at.slots[slot_of(number, height)].peek())?;
            height -= 1;
        }
        let slot = at.slots[slot_of(number, 1)].peek();
        (slot != 0).then_some(Pfn(slot))
    }

    /// Frees the nodes. Nobody else has the cache any more.
    pub(super) fn free(&self, sys: &System<M>) {
        let root = self.root.swap(0, Ordering::Relaxed);
        if let Some(top) = node_ptr::<M>(root) {
            // SAFETY: 1: the last reference to the cache frees it.
            unsafe { free_below(sys, top, root & HEIGHT) };
        }
    }
}

/// Installs a new node in a slot or root that holds `old`, unless another thread does; `height` is
/// the height for a root, and 0 for a slot. Returns the node that is there now.
fn put_in<'a, M: Mmu>(
    sys: &System<M>,
    place: &Atomic<u64, M>,
    old: u64,
    height: u64,
) -> Result<&'a CacheNode<M>, NoMemory> {
    let fresh = CacheNode {
        slots: array::from_fn(|slot| Atomic::new(if slot == 0 { old & !HEIGHT } else { 0 })),
    };
    let fresh = sys.files.nodes.alloc(fresh, sys).map_err(|_| NoMemory)?;
    let new = fresh.as_ptr() as u64 | height;
    // ORDERING: Release, Acquire; pairs with [cache-slot].
    let found = match place.cas(old, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(found) => {
            // SAFETY: 1, 2: allocated above, never published.
            unsafe { sys.files.nodes.free(fresh, sys) };
            found
        }
    };
    node(found).ok_or(NoMemory)
}

fn each_below<M: Mmu>(
    at: &CacheNode<M>,
    height: u64,
    base: u64,
    (first, last): (u64, u64),
    visit: &mut impl FnMut(u64, Pfn),
) {
    let shift = (height - 1) * u64::from(BITS);
    for (slot, place) in at.slots.iter().enumerate() {
        let Some(start) = (slot as u64).checked_shl(shift as u32).map(|it| base | it) else {
            return;
        };
        let end = start | ((1 << shift) - 1);
        if end < first || start > last {
            continue;
        }
        // ORDERING: Acquire; pairs with [cache-slot].
        let found = place.load(Ordering::Acquire);
        if found == 0 {
            continue;
        }
        if height == 1 {
            visit(start, super::named(found));
        } else if let Some(below) = node::<M>(found) {
            each_below(below, height - 1, start, (first, last), visit);
        }
    }
}

fn count<M: Mmu>(at: &CacheNode<M>, height: u64) -> u64 {
    if height == 1 {
        return 1;
    }
    let below = at.slots.iter().filter_map(|slot| node(slot.peek()));
    1 + below
        .map(|below| count::<M>(below, height - 1))
        .sum::<u64>()
}

/// # Safety
/// 1. `at` is a node of this height of an index without other users, and is unlinked from it.
unsafe fn free_below<M: Mmu>(sys: &System<M>, at: NonNull<CacheNode<M>>, height: u64) {
    if height > 1 {
        // SAFETY: a node of the index, which is freed after those below it.
        let slots = unsafe { at.as_ref() }.slots.iter();
        for below in slots.filter_map(|slot| node_ptr(slot.load(Ordering::Relaxed))) {
            // SAFETY: 1: by 1 the index is the caller's; this slot is not followed again.
            unsafe { free_below::<M>(sys, below, height - 1) };
        }
    }
    // SAFETY: 1, 2: made by `put_in`, named by nothing that is left, by 1.
    unsafe { sys.files.nodes.free(at, sys) };
}
