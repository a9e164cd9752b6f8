//! The buddy allocator of one memory node, or of a part of one.
//!
//! # Idea
//! Free blocks of 2^order frames, in a list per order; a freed block merges with its buddy (the
//! block whose number differs in one bit) while that is free, too. Frames that were never allocated
//! stay outside the lists, above a boundary that only rises, so that a node of a terabyte costs
//! nothing to initialise.
//!
//! A hole in the memory lies between two runs of frames. The boundary rises to the end of a run,
//! and goes on with the next one, which the descriptor of the hole's first frame names.
//!
//! # Why it is correct
//! All under the zone's lock. A block is merged only if its buddy's descriptor says "heads a free
//! block of this order", which only the lock's holder writes. No block spans a hole: none is made
//! above the boundary, and a hole's descriptors never head one.

use super::list::{BATCH, Batch};
use crate::memory::frame::{FrameTable, Links, Use};
use core::ops::Range;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::order::ZoneLock;
use minflt_sync::{Atomic, Ordering, SpinLock};

/// Blocks of at most 2^this frames.
pub(crate) const MAX_ORDER: u32 = 10;

/// The free frames of one node, or of a part of it.
#[derive(Debug)]
pub(crate) struct Zone<M: Mmu> {
    start: u64,
    /// Frames that reclaim has looked at so far.
    hand: Atomic<u64, M>,
    lists: SpinLock<Lists, ZoneLock, M>,
    /// The end of its frames.
    limit: u64,
}

/// What a zone gives to a CPU.
#[derive(Debug)]
pub(super) struct Fetched {
    /// Frames of small blocks.
    pub(super) frames: Batch,
    /// Frames that follow each other.
    pub(super) block: Range<u64>,
}

impl Fetched {
    pub(super) const NOTHING: Self = Self {
        frames: Batch::EMPTY,
        block: 0..0,
    };

    pub(super) const fn len(&self) -> usize {
        self.frames.len + (self.block.end - self.block.start) as usize
    }
}

/// Guarded by: the lock around it.
#[derive(Debug)]
struct Lists {
    /// First frame of the first block of each order.
    heads: [u32; MAX_ORDER as usize + 1],
    /// Frames in lists, and of runs behind `end`.
    free: u64,
    /// Frames from here to `end` were never used.
    untouched: u64,
    /// The end of the run of frames that `untouched` is in.
    end: u64,
}

impl<M: Mmu> Zone<M> {
    /// Those of `frames` that are memory; `first` are the first of the machine that are.
    pub(crate) fn new(table: &FrameTable<M>, frames: Range<u64>, first: Range<u64>) -> Self {
        let clip = |run: Range<u64>| {
            let start = run.start.clamp(frames.start, frames.end);
            start..run.end.clamp(start, frames.end)
        };
        let (mut run, mut first) = (clip(first.clone()), first);
        while run.is_empty() && first.end < frames.end {
            first = table.behind(first.end);
            run = clip(first.clone());
        }
        let (mut behind, mut free) = (first, 0);
        while behind.end < frames.end {
            behind = table.behind(behind.end);
            let part = clip(behind.clone());
            free += part.end - part.start;
        }
        let heads = [0; MAX_ORDER as usize + 1];
        Self {
            start: frames.start,
            hand: Atomic::new(0),
            lists: SpinLock::new(Lists {
                heads,
                free,
                untouched: run.start,
                end: run.end,
            }),
            limit: frames.end,
        }
    }

    /// Frames for a CPU's list, of the smallest blocks there are, so that large ones last: pieces
    /// until a batch is full, and where there are too few of these, a block of up to 2^`most`
    /// frames; `keep` frames and more stay free.
    ///
    /// The lock is held for as many list operations as there are pieces: behind every fault of
    /// every CPU, it is the one lock that all eras share. Linux: rmqueue_bulk.
    pub(super) fn fetch(&self, table: &FrameTable<M>, most: u32, keep: u64) -> Fetched {
        let mut held = self.lists.lock();
        let lists = &mut *held;
        let mut fetched = Fetched::NOTHING;
        let wanted = BATCH.min(1 << most);
        while fetched.frames.len < wanted {
            let spare = lists.spare().saturating_sub(keep).checked_ilog2();
            let smallest = lists.smallest(table, self.limit);
            let (Some(spare), Some(smallest)) = (spare, smallest) else {
                break;
            };
            let is_piece = 1 << smallest < wanted;
            if !is_piece && 2 * fetched.frames.len >= wanted {
                break;
            }
            let room = match is_piece {
                true => (BATCH - fetched.frames.len).ilog2(),
                false => most,
            };
            let (pfn, order) = lists.split(table, smallest, room.min(spare));
            let block = pfn.0..pfn.0 + (1 << order);
            if !is_piece {
                fetched.block = block;
                break;
            }
            block.for_each(|pfn| fetched.frames.push(Pfn(pfn)));
        }
        fetched
    }

    /// A block of exactly 2^`order` frames, which may be more than a list has; `keep` frames and
    /// more stay free.
    pub(crate) fn alloc_exactly(
        &self,
        table: &FrameTable<M>,
        order: u32,
        keep: u64,
    ) -> Option<Pfn> {
        let mut lists = self.lists.lock();
        let spare = lists.spare().checked_sub(keep)?;
        if spare >> order == 0 {
            return None;
        }
        match order > MAX_ORDER {
            true => lists.take_run(table, order, self.start..self.limit),
            false => lists.take_exactly(table, order, self.limit),
        }
    }

    /// Frees frames in ascending order, under one lock: those that make up an aligned block, as a
    /// block. Merging them one by one leads to the same blocks, by twice as many list operations as
    /// there are frames.
    pub(super) fn free_sorted(&self, table: &FrameTable<M>, frames: &[u32]) {
        let mut held = self.lists.lock();
        let lists = &mut *held;
        let mut left = frames;
        while let [first, ..] = *left {
            let follow = left.iter().zip(first..).take_while(|(a, b)| **a == *b);
            let order = first.trailing_zeros().min(follow.count().ilog2());
            let order = order.min(MAX_ORDER);
            for inside in first + 1..first + (1 << order) {
                table.get(Pfn(u64::from(inside))).set_use(Use::Free);
            }
            lists.free(table, Pfn(u64::from(first)), order, self.start);
            left = &left[1 << order..];
        }
    }

    /// Frees frames that follow each other, none of which says otherwise, under one lock: as the
    /// largest aligned blocks.
    pub(super) fn free_run(&self, table: &FrameTable<M>, run: Range<u64>) {
        let mut held = self.lists.lock();
        let lists = &mut *held;
        let mut left = run;
        while !left.is_empty() {
            let order = left.start.trailing_zeros();
            let order = order.min((left.end - left.start).ilog2()).min(MAX_ORDER);
            lists.free(table, Pfn(left.start), order, self.start);
            left.start += 1 << order;
        }
    }

    /// The end of its frames.
    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Frees blocks of 2^order frames, under one lock.
    pub(super) fn free_many(
        &self,
        table: &FrameTable<M>,
        blocks: impl Iterator<Item = Pfn>,
        order: u32,
    ) {
        let mut held = self.lists.lock();
        let lists = &mut *held;
        blocks.for_each(|pfn| lists.free(table, pfn, order, self.start));
    }

    pub(crate) fn count_free(&self) -> u64 {
        self.lists.peek(Lists::spare)
    }

    /// The same under the lock, while others allocate.
    pub(crate) fn free_now(&self) -> u64 {
        self.lists.lock().spare()
    }

    /// The frames that were used at least once.
    pub(crate) fn touched(&self) -> Range<u64> {
        self.start..self.lists.peek(|lists| lists.untouched)
    }

    /// The next frames to look at for ones to take from user memory, all of which were used at
    /// least once, `count` of them at most; and how many there are in all.
    pub(crate) fn next_to_scan(&self, count: u64) -> (Range<u64>, u64) {
        let end = self.lists.lock().untouched;
        let all = end - self.start;
        if all == 0 {
            return (0..0, 0);
        }
        let at = self.start + self.hand.add(count, Ordering::Relaxed) % all;
        (at..end.min(at + count), all)
    }

    /// How far reclaim has looked, to compare zones.
    pub(super) fn scanned(&self) -> u64 {
        self.hand.load(Ordering::Relaxed)
    }

    pub(crate) fn for_each_free(&self, table: &FrameTable<M>, mut visit: impl FnMut(Pfn)) {
        let mut lists = self.lists.lock();
        while lists.take_untouched(table, self.limit) {}
        for order in 0..=MAX_ORDER {
            let mut at = lists.heads[order as usize];
            while at != 0 {
                (0..1 << order).for_each(|i| visit(Pfn(u64::from(at) + i)));
                at = table.get(Pfn(u64::from(at))).links().next;
            }
        }
    }
}

impl Lists {
    /// Frames that are free, used before or not.
    const fn spare(&self) -> u64 {
        self.free + self.end - self.untouched
    }

    /// The order of the smallest block there is.
    fn smallest<M: Mmu>(&mut self, table: &FrameTable<M>, limit: u64) -> Option<u32> {
        loop {
            let found = self.heads.iter().position(|head| *head != 0);
            if found.is_some() || !self.take_untouched(table, limit) {
                return found.map(|order| order as u32);
            }
        }
    }

    /// A block of exactly this order, of the smallest that is large enough.
    fn take_exactly<M: Mmu>(
        &mut self,
        table: &FrameTable<M>,
        order: u32,
        limit: u64,
    ) -> Option<Pfn> {
        loop {
            let large_enough = self.heads.iter().skip(order as usize);
            let Some(at) = large_enough.clone().position(|head| *head != 0) else {
                if self.take_untouched(table, limit) {
                    continue;
                }
                return None;
            };
            return Some(self.split(table, order + at as u32, order).0);
        }
    }

    /// More frames than any block has: 2^`order` of them in whole blocks that follow each other,
    /// the first such that there are.
    ///
    /// Linux: alloc_contig_pages, which also moves what is in the way.
    fn take_run<M: Mmu>(
        &mut self,
        table: &FrameTable<M>,
        order: u32,
        within: Range<u64>,
    ) -> Option<Pfn> {
        let (run, block) = (1_u64 << order, 1_u64 << MAX_ORDER);
        let whole = |pfn| table.get(Pfn(pfn)).heads_block(MAX_ORDER);
        let mut at = within.start.next_multiple_of(run);
        loop {
            while at + run <= self.end {
                // Frames that were never used are in no list yet.
                let known = self.untouched.clamp(at, at + run);
                if (at..known).step_by(block as usize).all(whole) {
                    while self.untouched < at + run && self.take_untouched(table, within.end) {}
                    for pfn in (at..at + run).step_by(block as usize) {
                        self.unlink(table, Pfn(pfn), MAX_ORDER);
                    }
                    self.free -= run;
                    return Some(Pfn(at));
                }
                at += run;
            }
            // Behind the next hole.
            if self.end == within.end {
                return None;
            }
            while self.untouched < self.end {
                self.take_untouched(table, within.end);
            }
            if !self.next_run(table, within.end) {
                return None;
            }
        }
    }

    /// Takes the first block in the list of order `at`, split until it has at most 2^`most` frames.
    fn split<M: Mmu>(&mut self, table: &FrameTable<M>, at: u32, most: u32) -> (Pfn, u32) {
        let pfn = Pfn(u64::from(self.heads[at as usize]));
        let mut order = at;
        self.unlink(table, pfn, order);
        while order > most {
            order -= 1;
            self.link(table, Pfn(pfn.0 + (1 << order)), order);
        }
        self.free -= 1 << order;
        (pfn, order)
    }

    fn free<M: Mmu>(&mut self, table: &FrameTable<M>, pfn: Pfn, order: u32, start: u64) {
        self.free += 1 << order;
        let (mut pfn, mut order) = (pfn.0, order);
        while order < MAX_ORDER {
            let buddy = pfn ^ 1 << order;
            let inside = buddy >= start && buddy + (1 << order) <= self.untouched;
            if !inside || !table.get(Pfn(buddy)).heads_block(order) {
                break;
            }
            self.unlink(table, Pfn(buddy), order);
            pfn &= !(1 << order);
            order += 1;
        }
        self.link(table, Pfn(pfn), order);
    }

    /// Goes on behind the hole at the end of the run, if there is memory there below `limit`.
    #[cold]
    fn next_run<M: Mmu>(&mut self, table: &FrameTable<M>, limit: u64) -> bool {
        if self.end == limit {
            return false;
        }
        let run = table.behind(self.end);
        if run.is_empty() || run.start >= limit {
            return false;
        }
        (self.untouched, self.end) = (run.start, run.end.min(limit));
        self.free -= self.end - self.untouched;
        true
    }

    /// Moves the largest aligned block at the mark into the lists.
    fn take_untouched<M: Mmu>(&mut self, table: &FrameTable<M>, limit: u64) -> bool {
        if self.untouched == self.end && !self.next_run(table, limit) {
            return false;
        }
        let left = self.end - self.untouched;
        let order = self
            .untouched
            .trailing_zeros()
            .min(left.ilog2())
            .min(MAX_ORDER);
        let pfn = Pfn(self.untouched);
        self.untouched += 1 << order;
        self.free += 1 << order;
        self.link(table, pfn, order);
        true
    }

    fn link<M: Mmu>(&mut self, table: &FrameTable<M>, pfn: Pfn, order: u32) {
        let next = core::mem::replace(&mut self.heads[order as usize], pfn.0 as u32);
        let frame = table.get(pfn);
        frame.set_free_block(order);
        frame.link(|links| *links = Links { next, prev: 0 });
        if next != 0 {
            let next = table.get(Pfn(u64::from(next)));
            next.link(|links| links.prev = pfn.0 as u32);
        }
    }

    fn unlink<M: Mmu>(&mut self, table: &FrameTable<M>, pfn: Pfn, order: u32) {
        let frame = table.get(pfn);
        let Links { next, prev } = frame.links();
        if next != 0 {
            table
                .get(Pfn(u64::from(next)))
                .link(|links| links.prev = prev);
        }
        if prev == 0 {
            self.heads[order as usize] = next;
        } else {
            table
                .get(Pfn(u64::from(prev)))
                .link(|links| links.next = next);
        }
        frame.set_use(Use::Free);
    }
}
