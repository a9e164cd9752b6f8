//! Reclaim: frames for who needs them, from pages that nobody has used for some time.
//!
//! # Problem
//! Memory that is used once stays in use. When no frame is free, somebody else's has to become
//! so, and should be one that is not needed soon; finding it must not cost every fault something
//! as long as there is memory.
//!
//! # Idea
//! A *clock* for each memory node: a hand goes round over the descriptors of its frames, and looks
//! at those of user memory. A page that was used since the hand came by last is passed over, and
//! its accessed bits are cleared, by the reverse map; one that was not goes. There is no list of
//! pages by age, so a fault does nothing for reclaim, and no line of a list is written by all.
//!
//! # Protocol
//! Whoever finds no frame in one of the places named below, holding nothing that spins, moves the
//! hand until enough has become free ([`System::reclaim_for`]), and asks again. Of each frame
//! ([`page`]): a reference, unless it has none; its lock, unless somebody has it; then what it is.
//! - Mapped, and used: its accessed bits go, it stays for a round.
//! - Mapped by a locked mapping, pinned, or referred to by anybody: it stays.
//! - Anonymous: it is swapped out ([`crate::swap`]).
//! - Of a file on a device: its entries go, it is written if it is dirty, and leaves the cache.
//! - Of a file that is memory only: it stays.
//!
//! Only user memory asks for this, where a fault may wait: a page of its own or of a file, its
//! place in the file's index, a copy, a table. What the system itself needs comes from frames
//! that user memory leaves it where a swap device is there, since it may be asked for under locks
//! that reclaim takes.
//!
//! # Why it is correct
//! What is held where it is called: `mmap_lock` for reading, a VMA's lock, a page of a file. All
//! stand before the locks it waits for, those of the reverse maps and of tables; pages it only
//! tries. A page that is written back is not waited for, since the caller may have another one that
//! the writer wants. That it is out of memory is said only after some rounds of the whole clock in
//! which nobody's page could go.
//!
//! # Cost
//! None before memory is short. Then a walk of the reverse map for each page looked at, and one
//! more and an invalidation for each that goes. Many CPUs share the hand, which moves a batch at a
//! time.
//!
//! Linux: mm/vmscan.c, whose pages stand in lists by age (`lru_lock`), and which does most of this
//! in the background (kswapd). The clock is the one that BSD and early Linux had.

mod page;

pub(crate) use page::Spare;

use crate::event::Event;
use crate::policy::NodeMask;
use crate::system::System;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Instance, lockdep};

/// Frames that a CPU frees at a time, if memory is large enough for that. Linux:
/// SWAP_CLUSTER_MAX.
const BATCH: u64 = 32;
/// Frames that the hand moves over at a time.
const STEP: u64 = 16;
/// Rounds in vain, each twice around the clock, after which there is no memory.
const ROUNDS: u32 = 4;

impl<M: Mmu> System<M> {
    /// Whether there can be anything to take from user memory.
    pub(crate) fn reclaims(&self) -> bool {
        self.swap.exists() || self.files.on_devices() != 0
    }

    /// What `alloc` gives; if that is nothing, after others' pages have gone for it. Of the nodes
    /// `within`, or of any.
    ///
    /// # Context
    /// Sleeps; holds what stands before the lock of a page, or pages of files.
    pub(crate) fn alloc_or_reclaim<T>(
        &self,
        within: Option<NodeMask>,
        alloc: impl Fn() -> Option<T>,
    ) -> Option<T> {
        alloc().or_else(|| self.reclaim_for(within, alloc))
    }

    /// The same, where `alloc` has just given nothing.
    #[cold]
    pub(crate) fn reclaim_for<T>(
        &self,
        within: Option<NodeMask>,
        alloc: impl Fn() -> Option<T>,
    ) -> Option<T> {
        if !self.reclaims() || M::CHECKED && self.frames.refusals.spoke() {
            return None;
        }
        lockdep::might_sleep::<M>();
        self.count(Event::ReclaimStalls);
        let mut in_vain = 0;
        while in_vain < ROUNDS {
            let freed = self.reclaim(within);
            // Others may have freed some, or taken what was.
            if let Some(had) = alloc() {
                return Some(had);
            }
            in_vain = if freed == 0 { in_vain + 1 } else { 0 };
        }
        None
    }

    /// Frees a batch of frames, or what there is; returns how many.
    fn reclaim(&self, within: Option<NodeMask>) -> u64 {
        let share = self.usable_frames() / (8 * u64::from(self.machine_cpus()));
        let wanted = share.clamp(1, BATCH);
        let home = self.at.node_of(minflt_sync::this_cpu::<M>());
        let near_first = self.at.near_first(home);
        let allowed = near_first.filter(|node| within.is_none_or(|within| within.has(*node)));
        let mut freed = 0;
        for node in allowed {
            freed += self.reclaim_node(node, wanted - freed);
            if freed >= wanted {
                break;
            }
        }
        freed
    }

    /// The same of one node: until `wanted` are free, or the hand went round twice.
    fn reclaim_node(&self, node: u32, wanted: u64) -> u64 {
        let (mut freed, mut seen) = (0, 0);
        loop {
            let (range, all) = self.frames.next_to_scan(node, STEP);
            seen += STEP;
            self.count_n(Event::ReclaimScanned, range.end - range.start);
            for pfn in range.map(Pfn) {
                freed += u64::from(self.reclaim_frame(pfn));
            }
            if freed >= wanted || seen >= 2 * all + STEP {
                self.count_n(Event::ReclaimStolen, freed);
                return freed;
            }
        }
    }
}
