//! Tree nodes: edits of unpublished nodes (and, as a negative control, of a published one), and
//! their freeing.

use super::{Body, HOLE, Node, UNUSED};
use crate::memory::lifetime::{embedded, owner};
use crate::system::System;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Callback, Kind, Ordering};

/// What a node says of one VMA or child.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) word: u32,
    pub(super) slot: u64,
}

impl Entry {
    pub(super) const fn new(key: u64, word: u32, slot: u64) -> Self {
        Self { key, word, slot }
    }
}

/// A node that nobody else knows.
impl<M: Mmu> Body<M> {
    pub(super) fn put(&mut self, at: usize, entry: Entry) {
        self.keys[at] = entry.key;
        self.words.get_mut()[at] = entry.word;
        self.slots[at] = Atomic::new(entry.slot);
    }

    pub(super) fn get(&mut self, at: usize) -> Entry {
        Entry::new(
            self.keys[at],
            self.words.get_mut()[at],
            self.slots[at].peek(),
        )
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.put(self.used(), entry);
        self.len += 1;
    }

    pub(super) fn insert(&mut self, at: usize, entry: Entry) {
        for slot in (at..self.used()).rev() {
            let moved = self.get(slot);
            self.put(slot + 1, moved);
        }
        self.put(at, entry);
        self.len += 1;
    }

    fn cut(&mut self, len: usize) {
        for slot in len..self.used() {
            self.put(slot, Entry::new(UNUSED, HOLE, 0));
        }
        self.len = len as u32;
    }

    pub(super) fn remove(&mut self, at: usize) {
        for slot in at + 1..self.used() {
            let moved = self.get(slot);
            self.put(slot - 1, moved);
        }
        self.cut(self.used() - 1);
    }

    /// Leaves the holes of a leaf out.
    pub(super) fn fill_holes(&mut self) {
        let mut living = 0;
        for slot in 0..self.used() {
            let entry = self.get(slot);
            if entry.word != HOLE {
                self.put(living, entry);
                living += 1;
            }
        }
        self.cut(living);
    }

    /// What stands in a slot of a leaf, if that is no hole.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    pub(super) unsafe fn living_at(&self, slot: usize) -> Option<Entry> {
        // SAFETY: 1: 1 of this function.
        let word = unsafe { self.words() }[slot];
        (word != HOLE).then(|| Entry::new(self.keys[slot], word, self.held(slot)))
    }

    /// Takes what stands from `at` on out, into a node of its own.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut right = Self::empty(self.level);
        for slot in at..self.used() {
            right.push(self.get(slot));
        }
        self.cut(at);
        right
    }

    /// Adds what `right` has, which fits and begins at `border`. The writer's lock keeps it.
    pub(super) fn append(&mut self, right: &Self, border: u64) {
        for slot in 0..right.used() {
            // SAFETY: 1: the writer's lock.
            let word = unsafe { right.words() }[slot];
            if self.level == 0 && word == HOLE {
                continue;
            }
            let inner = self.level > 0 && slot == 0;
            let key = if inner { border } else { right.keys[slot] };
            self.push(Entry::new(key, word, right.held(slot)));
        }
    }
}

/// Shifts keys and slots of a leaf that readers may be looking at, to show what that does.
#[cold]
pub(super) fn insert_in_place<M: Mmu>(leaf: &Body<M>, entry: Entry) {
    let at = leaf.at_most(entry.key);
    let used = leaf.used();
    let body = core::ptr::from_ref(leaf).cast_mut();
    let write = |slot: usize, entry: Entry| {
        M::before(body.cast(), size_of::<u64>(), Kind::PlainWrite);
        // SAFETY: a key of the leaf. Readers are in the way: that is what this is to show.
        unsafe { (*body).keys[slot] = entry.key };
        // SAFETY: 1: the writer's lock.
        unsafe { leaf.set_word(slot, entry.word) };
        leaf.slots[slot].store(entry.slot, Ordering::Release);
    };
    for slot in (at..used).rev() {
        // SAFETY: 1: the writer's lock.
        let word = unsafe { leaf.words() }[slot];
        write(slot + 1, Entry::new(leaf.keys[slot], word, leaf.held(slot)));
    }
    write(at, entry);
    // SAFETY: as above.
    unsafe { (*body).len += 1 };
}

impl<M: Mmu> System<M> {
    /// Frees an unlinked tree node by the configured reclamation scheme.
    ///
    /// # Safety
    /// 1. The node is unlinked, and retired once.
    pub(crate) unsafe fn retire_node(&self, node: NonNull<Node<M>>) {
        // SAFETY: 1: a live object, of which that is the callback.
        let callback = unsafe { embedded(node, offset_of!(Node<M>, callback)) };
        // SAFETY: 1, 2: 1 of this function. 3: the function finds the node from its callback.
        unsafe { self.retire(callback, free_node::<M>) };
    }
}

/// # Safety
/// 1. `sys` is the system. 2. The callback is a retired node's.
unsafe fn free_node<M: Mmu>(sys: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function.
    let sys = unsafe { &*sys.cast::<System<M>>() };
    // SAFETY: 1: 2 of this function.
    let node = unsafe { owner::<Node<M>>(callback, offset_of!(Node<M>, callback)) };
    // SAFETY: 1, 2: retired once, and the grace period is over.
    unsafe { sys.nodes.free(node, sys) };
}
