//! TLB gather: frames and tables unmapped by a zap, kept until all TLBs are flushed.
//!
//! # Problem
//! A frame may not be reused while any CPU still caches a translation to it, and flushing all TLBs
//! is far more expensive than changing an entry.
//!
//! # Idea
//! Collect frames and the range they were mapped in; flush once for many.
//!
//! # Protocol
//! Change entries, [`Gather::page`] each; when [`Gather::is_full`] or done: flush
//! [`Gather::take_range`], then free the frames.
//!
//! # Why it is correct
//! Only the owner of the gather gives frames back, and only after the invalidation returned.

use core::mem::MaybeUninit;
use minflt_addr::{Pfn, VirtAddr, VirtRange};

/// Frames of pages held back at most, before an invalidation has to come: those of one table of
/// x86-64. Linux holds back 506 (2.6.10, i386; FREE_PTE_NR in asm-generic/tlb.h) to some 10,000
/// (since 3.0, MAX_GATHER_BATCH_COUNT in the same file).
pub const PAGES: usize = 512;

/// Frames of tables held back at most.
pub const TABLES: usize = 64;

/// Frames and table frames taken out of the tables, and the range to invalidate. One is made for
/// each call, and mostly little of it is used, so nothing is written before.
#[derive(Debug)]
pub struct Gather {
    pages: Batch<PAGES>,
    tables: Batch<TABLES>,
    start: u64,
    end: u64,
}

/// Some frames.
///
/// # Invariants
/// The first `len` were written.
#[derive(Debug)]
struct Batch<const MOST: usize> {
    frames: [MaybeUninit<Pfn>; MOST],
    len: usize,
}

impl<const MOST: usize> Batch<MOST> {
    #[inline(always)]
    const fn new() -> Self {
        // INVARIANT: none.
        Self {
            frames: [const { MaybeUninit::uninit() }; MOST],
            len: 0,
        }
    }

    fn push(&mut self, pfn: Pfn) {
        self.frames[self.len].write(pfn);
        // INVARIANT: written by the line before.
        self.len += 1;
    }

    fn take(&mut self) -> &[Pfn] {
        let len = core::mem::take(&mut self.len);
        let frames = &self.frames[..len];
        // SAFETY: by the invariant so many were written; the layout is that of `Pfn`.
        unsafe { core::slice::from_raw_parts(frames.as_ptr().cast(), len) }
    }
}

impl Gather {
    /// Nothing taken out yet.
    #[inline(always)]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pages: Batch::new(),
            tables: Batch::new(),
            start: u64::MAX,
            end: 0,
        }
    }

    /// The translations of `range` may be buffered somewhere.
    #[inline]
    pub fn touch(&mut self, range: VirtRange) {
        self.start = self.start.min(range.start().0);
        self.end = self.end.max(range.end().0);
    }

    /// A page was taken out; it holds one reference that is given back later.
    #[inline]
    pub fn page(&mut self, pfn: Pfn) {
        self.pages.push(pfn);
    }

    /// A table that covered `span` was unlinked.
    pub fn table(&mut self, pfn: Pfn, span: VirtRange) {
        self.touch(span);
        self.tables.push(pfn);
    }

    /// Whether one more page or table might not fit.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.pages.len == PAGES || self.tables.len == TABLES
    }

    /// Whether nothing waits for an invalidation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Takes the range to flush.
    pub fn take_range(&mut self) -> Option<VirtRange> {
        let range = VirtRange::new(VirtAddr(self.start), VirtAddr(self.end));
        let some = self.start < self.end;
        (self.start, self.end) = (u64::MAX, 0);
        some.then_some(range)
    }

    /// Takes the frames to free; call only after the TLB flush has returned.
    pub fn take_pages(&mut self) -> &[Pfn] {
        self.pages.take()
    }

    /// Takes the tables to free; call only after the TLB flush has returned.
    pub fn take_tables(&mut self) -> &[Pfn] {
        self.tables.take()
    }
}

impl Default for Gather {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Gather, PAGES};
    use minflt_addr::{Pfn, VirtAddr, VirtRange};

    #[test]
    fn the_range_covers_all_that_was_touched() {
        let mut gather = Gather::new();
        assert_eq!(gather.take_range(), None);
        gather.touch(VirtRange::new(VirtAddr(0x5000), VirtAddr(0x6000)));
        gather.touch(VirtRange::new(VirtAddr(0x1000), VirtAddr(0x2000)));
        let all = VirtRange::new(VirtAddr(0x1000), VirtAddr(0x6000));
        assert_eq!(gather.take_range(), Some(all));
        assert_eq!(gather.take_range(), None);
    }

    #[test]
    fn it_says_when_it_is_full() {
        let mut gather = Gather::new();
        for pfn in 0..PAGES as u64 {
            assert!(!gather.is_full());
            gather.page(Pfn(pfn));
        }
        assert!(gather.is_full());
        assert_eq!(gather.take_pages().len(), PAGES);
        assert!(gather.take_pages().is_empty());
    }
}
