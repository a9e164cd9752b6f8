//! Search for a free swap slot.
//!
//! # Problem
//! When nearly all slots are in use, a linear scan takes time proportional to the device size, for
//! each page that is swapped out.
//!
//! # Idea
//! A bit for each group of 64 slots says that the group has no free slot. A search scans only
//! groups whose bit is clear. One flag says that the device is full.
//!
//! # Protocol
//! ```text
//! a search finds nothing in a group        a thread frees a slot
//!   the group's bit is set                   word: becomes 0
//!   the group is searched again              the group's bit is set? cleared
//!   a free slot? the bit is cleared          the flag is set? cleared
//!                the flag is set? cleared
//! a search finds nothing at all
//!   the flag is set
//!   a second search; found? the flag is cleared
//! ```
//!
//! # Why it is correct
//! All these steps are in one total order ([swap-full]). One thread sets a bit and then rereads the
//! slots; another frees a slot and then reads the bit: at least one of them sees the other's store.
//! The same holds for setting the flag and then rereading the bits, against clearing a bit and then
//! reading the flag. A bit may be clear although the group is full: then the next search of the
//! group sets it. Since a CPU sets it when it leaves a group, there are at most as many such groups
//! as CPUs.
//!
//! Linux: mm/swapfile.c, whose clusters are in lists by how full they are (v6.18).

use super::{SwapArea, WRITING};
use core::ops::Range;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Ordering};

/// Slots that a bit speaks for.
const GROUP: u64 = 64;
/// Slots that a word of bits speaks for.
const WORD: u64 = GROUP * u64::BITS as u64;

/// Words that have a bit for each group of so many slots.
pub(super) const fn words_for(slots: u64) -> u64 {
    slots.div_ceil(WORD)
}

impl<M: Mmu> SwapArea<M> {
    /// Takes a free slot, as one that is being written. `from` is where the caller looked last,
    /// counted from `first`.
    pub(super) fn begin(&self, from: &Atomic<u64, M>, first: u64) -> Option<u64> {
        if self.full.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let found = self.search(from, first);
        if found.is_some() {
            return found;
        }
        // ORDERING: SeqCst; pairs with [swap-full]: a thread that frees a slot after the last check
        // below sees this flag, and clears it.
        self.full.store(1, Ordering::SeqCst);
        let found = self.search(from, first);
        if found.is_some() {
            self.full.store(0, Ordering::Relaxed);
        }
        found
    }

    fn search(&self, from: &Atomic<u64, M>, first: u64) -> Option<u64> {
        let start = (first + from.load(Ordering::Relaxed)) % self.slots;
        let found = self.find_free(start)?;
        let next = (found + 1 + self.slots - first) % self.slots;
        from.store(next, Ordering::Relaxed);
        Some(found)
    }

    /// The first free slot from `start` on, all around.
    fn find_free(&self, start: u64) -> Option<u64> {
        let own = start / GROUP;
        let whole = self.group(own);
        self.take_in(own, start..whole.end)
            .or_else(|| self.take_between(own + 1, self.slots.div_ceil(GROUP)))
            .or_else(|| self.take_between(0, own))
            .or_else(|| self.take_in(own, whole.start..start))
    }

    /// The first free slot of some groups.
    fn take_between(&self, from: u64, end: u64) -> Option<u64> {
        let mut next = from;
        while let Some(group) = self.next_open(next, end) {
            let found = self.take_in(group, self.group(group));
            if found.is_some() {
                return found;
            }
            next = group + 1;
        }
        None
    }

    /// The first free slot of a part of a group. Where there is none, or it is the group's last, it
    /// is noted if the group has none any more.
    fn take_in(&self, group: u64, part: Range<u64>) -> Option<u64> {
        if part.is_empty() || self.is_noted(group) {
            return None;
        }
        let found = part.into_iter().find(|slot| {
            let word = self.word(*slot);
            // ORDERING: Relaxed, SeqCst; pairs with [swap-full]. Acquire, by the second; pairs
            // with [swap-slot]: what was read from the slot before has been read.
            word.load(Ordering::SeqCst) == 0
                && word
                    .cas(0, WRITING, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        });
        // The next search begins in the next group.
        let leaves = found.is_none_or(|slot| slot + 1 == self.group(group).end);
        if leaves && !self.has_free(group) {
            let (word, bit) = self.bit(group);
            // ORDERING: SeqCst; pairs with [swap-full].
            word.or(bit, Ordering::SeqCst);
            if self.has_free(group) {
                self.reopen(group);
            }
        }
        found
    }

    /// The first group of those up to `end` that may have free slots.
    fn next_open(&self, from: u64, end: u64) -> Option<u64> {
        let mut at = from;
        while at < end {
            let within = at % u64::from(u64::BITS);
            // ORDERING: SeqCst; pairs with [swap-full].
            let open = !self.bit(at).0.load(Ordering::SeqCst) >> within;
            if open != 0 {
                let group = at + u64::from(open.trailing_zeros());
                return (group < end).then_some(group);
            }
            at += u64::from(u64::BITS) - within;
        }
        None
    }

    /// Whether it is noted that nothing in a group is free.
    fn is_noted(&self, group: u64) -> bool {
        let (word, bit) = self.bit(group);
        // ORDERING: SeqCst; pairs with [swap-full].
        word.load(Ordering::SeqCst) & bit != 0
    }

    /// Whether a slot of a group is free, at a look.
    fn has_free(&self, group: u64) -> bool {
        // ORDERING: SeqCst; pairs with [swap-full].
        self.group(group)
            .any(|slot| self.word(slot).load(Ordering::SeqCst) == 0)
    }

    /// A slot was freed.
    pub(super) fn freed(&self, slot: u64) {
        self.reopen(slot / GROUP);
    }

    /// There is a free slot in a group.
    fn reopen(&self, group: u64) {
        if self.is_noted(group) {
            let (word, bit) = self.bit(group);
            // ORDERING: SeqCst; pairs with [swap-full].
            word.and(!bit, Ordering::SeqCst);
        }
        // ORDERING: SeqCst; pairs with [swap-full].
        if self.full.load(Ordering::SeqCst) != 0 {
            self.full.store(0, Ordering::Relaxed);
        }
    }

    /// The slots of a group.
    fn group(&self, group: u64) -> Range<u64> {
        group * GROUP..((group + 1) * GROUP).min(self.slots)
    }

    /// The bit of a group, and the word that has it.
    fn bit(&self, group: u64) -> (&Atomic<u64, M>, u64) {
        let bits = u64::from(u64::BITS);
        (self.bits(group / bits), 1 << (group % bits))
    }
}
