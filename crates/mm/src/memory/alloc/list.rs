//! A CPU's list of free frames (per-CPU pages).
//!
//! # Problem
//! A cycle of map, touch and unmap allocates as many frames as it frees. A list shorter than a
//! cycle goes to the zone twice in each.
//!
//! # Idea
//! A ring: frames are allocated from and freed to its top, where they are cache-hot; excess frames
//! return to the zone from its bottom. The limit adapts to the CPU: if it has to refill after it
//! returned frames, it returned them too early, and the limit rises by as many. A CPU that returns
//! twice the maximum without a refill only frees frames that other CPUs allocated: its limit falls
//! again.
//!
//! Linux: mm/page_alloc.c, nr_pcp_free and nr_pcp_alloc (`pcp->high`, which adapts since v6.7).
//! There it also falls with time.

use core::ops::Range;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::Plain;

/// Room of a list: 2 MiB of pages of 4 KiB.
const ROOM: usize = 512;
/// What a list keeps at most: another task of the CPU may bring a batch, too.
pub(super) const MOST: usize = ROOM - BATCH;
/// What a list keeps at first, and the least it falls back to.
pub(super) const LEAST: usize = 64;
/// Frames that move between a list and a zone under one zone lock. Linux: 63 (`pcp->batch`).
pub(super) const BATCH: usize = 64;

/// The free frames of one CPU.
#[derive(Debug)]
pub(crate) struct CpuFrames<M: Mmu> {
    /// Guarded by: being this CPU's.
    pub(super) list: Plain<CpuList, M>,
    /// Whether a frame was asked for here in vain. Guarded by: being this CPU's.
    pub(super) short: Plain<bool, M>,
}

/// Frames on their way between a list and a zone.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) frames: [u32; BATCH],
    pub(super) len: usize,
}

impl Batch {
    pub(super) const EMPTY: Self = Self {
        frames: [0; BATCH],
        len: 0,
    };

    pub(super) fn push(&mut self, pfn: Pfn) {
        self.frames[self.len] = pfn.0 as u32;
        self.len += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == BATCH
    }
}

#[derive(Debug)]
pub(super) struct CpuList {
    /// Frames, those freed last on top.
    frames: [u32; ROOM],
    /// Place of the one at the bottom.
    bottom: usize,
    len: usize,
    /// Frames that are kept, at most.
    mark: usize,
    /// Frames given back that were not fetched again.
    given: usize,
    /// What is left of a block from a zone.
    pub(super) block: Range<u64>,
}

impl CpuList {
    /// The frame `below` as many others from the top.
    #[inline(always)]
    fn at(&self, below: usize) -> Pfn {
        let place = (self.bottom + self.len - 1 - below) % ROOM;
        Pfn(u64::from(self.frames[place]))
    }

    /// The frame that is taken next.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<Pfn> {
        self.coming(0)
    }

    /// The frame that is taken after `others`, as far as is known.
    #[inline(always)]
    pub(super) fn coming(&self, others: usize) -> Option<Pfn> {
        if others < self.len {
            return Some(self.at(others));
        }
        let pfn = self.block.start + (others - self.len) as u64;
        (pfn < self.block.end).then_some(Pfn(pfn))
    }

    /// Takes that frame.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Pfn> {
        let next = self.next()?;
        if self.len > 0 {
            self.len -= 1;
        } else {
            self.block.start += 1;
        }
        Some(next)
    }

    /// Puts a frame on top, if there is room.
    #[inline(always)]
    pub(super) fn push(&mut self, pfn: Pfn) -> bool {
        let room = self.len < ROOM;
        if room {
            self.frames[(self.bottom + self.len) % ROOM] = pfn.0 as u32;
            self.len += 1;
        }
        room
    }

    /// Whether more is kept than should be, where it may be `most`.
    #[inline(always)]
    pub(super) fn is_over(&self, most: usize) -> bool {
        self.len > self.mark.min(most)
    }

    /// Takes those off the bottom that were there longest: a batch, or half of a short list.
    pub(super) fn take_oldest(&mut self) -> Batch {
        let mut batch = Batch::EMPTY;
        for _ in 0..self.len.div_ceil(2).min(BATCH) {
            batch.push(Pfn(u64::from(self.frames[self.bottom])));
            self.bottom = (self.bottom + 1) % ROOM;
        }
        self.len -= batch.len;
        self.given += batch.len;
        if self.given > 2 * ROOM {
            (self.mark, self.given) = (LEAST, 0);
        }
        batch
    }

    /// `count` frames were fetched from a zone.
    pub(super) fn fetched(&mut self, count: usize) {
        let again = count.min(self.given);
        self.given -= again;
        self.mark = (self.mark + again).min(MOST);
    }

    /// All frames of the CPU.
    pub(super) fn all(&self) -> impl Iterator<Item = Pfn> + '_ {
        let freed = (0..self.len).map(|below| self.at(below));
        freed.chain(self.block.clone().map(Pfn))
    }
}

impl<M: Mmu> CpuFrames<M> {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            list: Plain::new(CpuList {
                frames: [0; ROOM],
                bottom: 0,
                len: 0,
                mark: LEAST,
                given: 0,
                block: 0..0,
            }),
            short: Plain::new(false),
        }
    }
}
