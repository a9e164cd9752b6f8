//! Reclaim: frees frames of pages that were not used for some time.
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
//! What finds no memory fails, and undoes what it did, up to where nothing is held: a fault before
//! its next attempt, a call before it returns. There a [`Shortage`] makes room, a step at a time,
//! and after each step that freed something the whole is tried again.
//! 1. Handles that were dropped off a CPU are torn down. What waits for a grace period is freed, as
//!    far as no reader is in the way.
//! 2. The hand moves until a batch is free: at first over a part of each node, the nearest first,
//!    then over more. Each batch is twice the one before, so that a call which needs much is not
//!    tried often.
//! 3. Readers are waited for, for some time.
//!
//! Of each frame that the hand comes to ([`page`]): a reference, unless it has none; its lock,
//! unless somebody has it; then what it is.
//! - Mapped, and used: its accessed bits go, it stays for a round.
//! - Mapped by a locked mapping, pinned, or referred to by anybody: it stays.
//! - Anonymous: it is swapped out ([`crate::memory::swap`]).
//! - Of a file on a device: its entries go, it is written if it is dirty, and leaves the cache.
//! - Of a file that is memory only: it stays.
//!
//! Where there is a swap device, user memory leaves the system itself some frames, which it needs
//! to take others from user memory.
//!
//! # Why it is correct
//! Nothing is held, which is checked, so no lock that reclaim takes and no grace period can wait
//! for the one who waits. What is tried again had failed, and either had changed nothing or does no
//! harm when it is done once more. That there is no memory is said after the hand has passed each
//! frame [`LOOKS`] times, whatever others do meanwhile.
//!
//! # Cost
//! None before memory is short. Then a walk of the reverse map for each page looked at, and one
//! more and an invalidation for each that goes; a fault or call looks at each frame 8 times at
//! most. Many CPUs share the hand, which moves a batch at a time.
//!
//! Linux: mm/vmscan.c, whose pages stand in lists by age (`lru_lock`), and which does most of this
//! in the background (kswapd); its `priority` is the part of a list that is looked at. There a
//! fault holds the VMA's lock or `mmap_lock` meanwhile. The clock is the one that BSD and early
//! Linux had.

mod page;

pub(crate) use page::Spare;

use crate::base::event::Event;
use crate::base::policy::NodeMask;
use crate::memory::lifetime::WAITS;
use crate::system::System;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Instance, lockdep};

/// Frames to free at first, if memory is large enough for that. Linux: SWAP_CLUSTER_MAX.
const BATCH: u64 = 32;
/// Frames that the hand moves over at a time.
const STEP: u64 = 16;
/// How often the hand may pass a frame before there is no memory.
const LOOKS: u64 = 8;
/// The first steps look at two rounds of a node by 2^this, the next ones at twice as many.
const PRIORITY: u32 = 4;
/// How often deferred work is looked for: others may queue some all the time.
const DRAINS: u32 = 16;

/// One search for memory, of somebody who holds nothing: see the protocol above.
#[derive(Debug)]
pub(crate) struct Shortage {
    /// Frames to look at, at most.
    looks: u64,
    priority: u32,
    wanted: u64,
    drains: u32,
    waits: u32,
}

/// What one step of a search may do.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Frames to free.
    wanted: u64,
    /// Frames to look at, at most.
    looks: u64,
    /// Looks at two rounds of each node by 2^this.
    priority: u32,
}

impl Shortage {
    pub(crate) fn new<M: Mmu>(sys: &System<M>) -> Self {
        let all = sys.usable_frames();
        let share = all / (8 * u64::from(sys.machine_cpus()));
        Self {
            // Holes lie in the clock's way.
            looks: LOOKS * (all + sys.absent),
            priority: PRIORITY,
            wanted: share.clamp(1, BATCH),
            drains: DRAINS,
            waits: WAITS,
        }
    }

    /// Makes some room, of the nodes `within` or of any; false where there is none to make.
    ///
    /// # Context
    /// Holds nothing. Sleeps.
    #[cold]
    pub(crate) fn make_room<M: Mmu>(&mut self, sys: &System<M>, within: Option<NodeMask>) -> bool {
        lockdep::holds_nothing::<M>();
        sys.count(Event::ReclaimStalls);
        if self.drains > 0 {
            self.drains -= 1;
            if M::run_jobs(&sys.at) + sys.drain_deferred() > 0 {
                return true;
            }
        }
        self.take_pages(sys, within) || self.await_readers(sys)
    }

    fn take_pages<M: Mmu>(&mut self, sys: &System<M>, within: Option<NodeMask>) -> bool {
        if !sys.reclaims() {
            return false;
        }
        while self.looks > 0 {
            let round = Round {
                wanted: self.wanted,
                looks: self.looks,
                priority: self.priority,
            };
            let (freed, seen) = sys.reclaim(within, round);
            self.looks = self.looks.saturating_sub(seen.max(1));
            if freed > 0 {
                self.wanted *= 2;
                return true;
            }
            self.priority = self.priority.saturating_sub(1);
        }
        false
    }

    fn await_readers<M: Mmu>(&mut self, sys: &System<M>) -> bool {
        while self.waits > 0 && sys.deferred() > 0 {
            self.waits -= 1;
            M::pass();
            if sys.drain_deferred() > 0 {
                return true;
            }
        }
        false
    }
}

impl<M: Mmu> System<M> {
    /// Whether there can be anything to take from user memory.
    pub(crate) fn reclaims(&self) -> bool {
        self.swap.exists() || self.files.on_devices() != 0
    }

    /// Does something that may fail for lack of memory, and does it again when there may be more.
    /// When it fails it has changed nothing, or nothing that doing it again would hurt.
    ///
    /// # Context
    /// Holds nothing. Sleeps where memory is short.
    #[inline]
    pub(crate) fn with_memory<T, E>(&self, mut body: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        match body() {
            Ok(done) => Ok(done),
            Err(why) => self.try_again(why, body),
        }
    }

    /// The same where it has just failed.
    #[cold]
    #[inline(never)]
    fn try_again<T, E>(&self, mut why: E, mut body: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let mut shortage = Shortage::new(self);
        while self.frames.was_short() && shortage.make_room(self, None) {
            match body() {
                Ok(done) => return Ok(done),
                Err(again) => why = again,
            }
        }
        Err(why)
    }

    /// Frees what is wanted, or what there is. Returns how many frames, and how many it looked at.
    fn reclaim(&self, within: Option<NodeMask>, round: Round) -> (u64, u64) {
        let home = self.at.node_of(minflt_sync::this_cpu::<M>());
        let near_first = self.at.near_first(home);
        let allowed = near_first.filter(|node| within.is_none_or(|within| within.has(*node)));
        let (mut freed, mut seen) = (0, 0);
        for node in allowed {
            let left = Round {
                wanted: round.wanted - freed,
                looks: round.looks - seen,
                ..round
            };
            let (here, looked) = self.reclaim_node(node, left);
            freed += here;
            seen += looked;
            if freed >= round.wanted || seen >= round.looks {
                break;
            }
        }
        (freed, seen)
    }

    /// The same of one node.
    fn reclaim_node(&self, node: u32, round: Round) -> (u64, u64) {
        let (mut freed, mut seen) = (0, 0);
        loop {
            let (range, all) = self.frames.next_to_scan(node, STEP);
            seen += STEP;
            self.count_n(Event::ReclaimScanned, range.end - range.start);
            let looks = round.looks.min(((2 * all) >> round.priority) + STEP);
            for pfn in range.map(Pfn) {
                freed += u64::from(self.reclaim_frame(pfn));
            }
            if freed >= round.wanted || seen >= looks {
                self.count_n(Event::ReclaimStolen, freed);
                return (freed, seen);
            }
        }
    }
}
