//! Edits of nodes that nobody else knows.

use super::node::{Entry, Slot};
use super::{Body, HOLE, UNUSED};
use minflt_pgtable::Mmu;

/// A node that nobody else knows.
impl<M: Mmu> Body<M> {
    pub(super) fn put(&mut self, at: usize, entry: Entry) {
        self.keys[at] = entry.key;
        *self.words[at].get_mut() = entry.word;
        self.set_slot(at, entry.slot);
    }

    pub(super) fn get(&mut self, at: usize) -> Entry {
        Entry::new(self.keys[at], self.words[at].get(), self.slot(at))
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
            self.put(slot, Entry::new(UNUSED, HOLE, Slot::NOTHING));
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

    /// Takes what stands from `at` on out, into a node of its own.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut right = Self::empty(self.level);
        for slot in at..self.used() {
            right.push(self.get(slot));
        }
        self.cut(at);
        right
    }

    /// Adds what `right` has, which fits and begins at `border`.
    pub(super) fn append(&mut self, right: &Self, border: u64) {
        for slot in 0..right.used() {
            let word = right.words()[slot].get();
            if self.level == 0 && word == HOLE {
                continue;
            }
            let inner = self.level > 0 && slot == 0;
            let key = if inner { border } else { right.keys[slot] };
            self.push(Entry::new(key, word, right.slot(slot)));
        }
    }
}
