//! Frames that follow each other, which a CPU keeps behind its list.
//!
//! # Problem
//! A thread that maps, touches and unmaps more than its CPU's list holds moves all the rest between
//! the list and a zone, 64 frames at a time: each time a lock, and lines of the zone's descriptors,
//! that some dozens of CPUs share.
//!
//! # Idea
//! What a long list gives back is mostly frames that follow each other, since they came as blocks.
//! So a CPU keeps them as runs, a first frame and a count: a few words for hundreds of frames, and
//! no descriptor but the frame's own is written. It takes from the run that grew last. What is too
//! much goes to the zones from the oldest run, some [`PIECE`] frames under one lock.
//!
//! # Protocol
//! Each CPU's runs have a lock, which that CPU takes once for a batch, and others only where memory
//! is short: before an allocation fails, they give everything that is kept back to the zones.
//!
//! # Why it is correct
//! A frame in a run is free and in no zone: no descriptor says that it heads a free block, so the
//! zone does not merge with it. Runs are given back without the lock of runs held: between the two
//! locks the frames are the holder's. They are taken out first: a run that goes to a zone while its
//! CPU still has it is given twice (race P73).
//!
//! # Cost
//! A lock of this CPU for each batch of 64 frames, under which each of its runs is looked at up to
//! three times for each run that the batch makes. A CPU keeps at most its part of an eighth of all
//! memory, with its list.

use super::list::BATCH;
use super::{Frames, list::Batch};
use crate::base::config::{Config, NegativeControl, Zones};
use crate::memory::frame::Use;
use core::ops::Range;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::SpinLock;
use minflt_sync::order::RunsLock;

/// Runs that a CPU keeps, at most. A page table among the frames of a mapping divides them into two
/// runs, so this is for some 128 tables, 256 MiB of small pages.
const ROOM: usize = 256;
/// Frames that go back to a zone at a time.
const PIECE: u32 = 1024;

/// A CPU's runs.
#[derive(Debug)]
pub(crate) struct CpuRuns<M: Mmu> {
    runs: SpinLock<Runs, RunsLock, M>,
}

/// Guarded by: the lock around it.
#[derive(Debug)]
struct Runs {
    /// The one that grew last behind the others.
    runs: [Run; ROOM],
    len: usize,
    /// Frames in all of them.
    frames: u64,
    /// Whether others give a run back before they take it out: the fix of P73, switched off.
    gives_first: bool,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    count: u32,
}

impl Run {
    const NONE: Self = Self { first: 0, count: 0 };

    const fn touches(self, other: Self) -> bool {
        self.first + self.count == other.first || other.first + other.count == self.first
    }

    fn frames(self) -> Range<u64> {
        u64::from(self.first)..u64::from(self.first + self.count)
    }
}

impl Runs {
    /// Adds frames that follow each other, to the runs that they touch; what has no place otherwise
    /// is given back: the oldest run.
    fn put(&mut self, new: Run) -> Option<Run> {
        self.frames += u64::from(new.count);
        let mut whole = new;
        // At most one before and one behind.
        while let Some(at) = self.runs[..self.len]
            .iter()
            .rposition(|run| run.touches(whole))
        {
            let run = self.runs[at];
            whole.first = whole.first.min(run.first);
            whole.count += run.count;
            self.runs[at..self.len].rotate_left(1);
            self.len -= 1;
        }
        let oldest = (self.len == ROOM).then(|| self.remove_oldest());
        self.runs[self.len] = whole;
        self.len += 1;
        oldest
    }

    fn remove_oldest(&mut self) -> Run {
        let oldest = self.runs[0];
        self.runs[..self.len].rotate_left(1);
        self.len -= 1;
        self.frames -= u64::from(oldest.count);
        oldest
    }

    /// Up to `most` frames of the run that grew last, from its start.
    fn take(&mut self, most: u32) -> Option<Run> {
        let last = self.len.checked_sub(1)?;
        Some(self.cut(last, most))
    }

    /// What [`Self::take`] would take.
    fn last(&self, most: u32) -> Option<Run> {
        let run = *self.runs[..self.len].last()?;
        let count = run.count.min(most);
        Some(Run { count, ..run })
    }

    /// Up to `most` frames of the oldest run.
    fn take_oldest(&mut self, most: u32) -> Option<Run> {
        (self.len > 0).then(|| self.cut(0, most))
    }

    fn cut(&mut self, at: usize, most: u32) -> Run {
        let run = &mut self.runs[at];
        let count = run.count.min(most);
        let taken = Run {
            first: run.first,
            count,
        };
        (run.first, run.count) = (run.first + count, run.count - count);
        if run.count == 0 {
            self.runs[at..self.len].rotate_left(1);
            self.len -= 1;
        }
        self.frames -= u64::from(count);
        taken
    }
}

impl<M: Mmu> CpuRuns<M> {
    /// None.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            runs: SpinLock::new(Runs {
                runs: [Run::NONE; ROOM],
                len: 0,
                frames: 0,
                gives_first: config.lacks::<M>(NegativeControl::RunGivenFirst),
            }),
        }
    }

    fn take(&self, most: u32) -> Option<Run> {
        self.runs.lock().take(most)
    }

    /// Takes up to `most` frames for `give`; whether there were any.
    fn give(&self, most: u32, give: impl FnOnce(Run)) -> bool {
        let mut runs = self.runs.lock();
        let gives_first = runs.gives_first;
        let run = match gives_first {
            false => runs.take(most),
            true => runs.last(most),
        };
        drop(runs);
        let some = run.is_some();
        if let Some(run) = run {
            give(run);
            if gives_first {
                self.take(most);
            }
        }
        some
    }

    /// A piece of what is kept beyond `most` frames.
    fn take_beyond(&self, most: u64) -> Option<Run> {
        let mut runs = self.runs.lock();
        let beyond = runs.frames.saturating_sub(most).min(PIECE.into());
        (beyond > 0)
            .then(|| runs.take_oldest(beyond as u32))
            .flatten()
    }

    /// How many frames there are. Only while nothing else runs.
    pub(super) fn count(&self) -> u64 {
        self.runs.peek(|runs| runs.frames)
    }

    /// All frames. Only while nothing else runs.
    pub(super) fn peek_each(&self, mut visit: impl FnMut(Pfn)) {
        self.runs.peek(|runs| {
            let frames = runs.runs[..runs.len].iter().flat_map(|run| run.frames());
            frames.for_each(|pfn| visit(Pfn(pfn)));
        });
    }
}

/// How many of `cpus` CPUs keep runs: all or none.
pub(crate) const fn runs_for(config: &Config, cpus: u32) -> u32 {
    match config.zones {
        Zones::PerNode => 0,
        Zones::PerCpuGroup => cpus,
    }
}

impl<M: Mmu> Frames<M> {
    /// Whether CPUs keep runs.
    #[inline(always)]
    pub(super) const fn keeps_runs(&self) -> bool {
        self.most_in_runs > 0
    }

    /// Up to 2^`order` frames of this CPU's runs; none where it has none.
    pub(super) fn take_run_here(&self, order: u32) -> Range<u64> {
        let run = match self.keeps_runs() {
            true => self.runs.this().take(1 << order),
            false => None,
        };
        run.map_or(0..0, Run::frames)
    }

    /// Keeps a batch of this CPU's list as runs; what is too much goes to the zones.
    pub(super) fn keep_as_runs(&self, mut batch: Batch) {
        let frames = &mut batch.frames[..batch.len];
        frames.sort_unstable();
        for pfn in frames.iter() {
            self.get(Pfn(u64::from(*pfn))).set_use(Use::Free);
        }
        let mut displaced = [Run::NONE; BATCH];
        let mut many = 0;
        let mine = self.runs.this();
        {
            let mut runs = mine.runs.lock();
            for follow in frames.chunk_by(|a, b| a + 1 == *b) {
                let run = Run {
                    first: follow[0],
                    count: follow.len() as u32,
                };
                if let Some(oldest) = runs.put(run) {
                    displaced[many] = oldest;
                    many += 1;
                }
            }
        }
        for run in &displaced[..many] {
            self.free_kept(*run);
        }
        while let Some(run) = mine.take_beyond(self.most_in_runs) {
            self.free_kept(run);
        }
    }

    /// Gives the runs of all CPUs back to the zones; whether there were any.
    #[cold]
    pub(super) fn drain_runs(&self) -> bool {
        let mut some = false;
        if self.keeps_runs() {
            for runs in self.runs.iter() {
                while runs.give(PIECE, |run| self.free_kept(run)) {
                    some = true;
                }
            }
        }
        some
    }

    /// Gives a run back, each part to its zone.
    fn free_kept(&self, run: Run) {
        let mut left = run.frames();
        while !left.is_empty() {
            let zone = self.zones.get(self.zone_of(Pfn(left.start)));
            let part = left.start..left.end.min(zone.limit());
            left.start = part.end;
            zone.free_run(&self.table, part);
        }
    }
}
