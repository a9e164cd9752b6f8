//! brk: grows and shrinks the heap at its end.
//!
//! # Problem
//! The *break* is a byte address; mappings are in pages. A program moves it by a few bytes at a
//! time, and the heap must not grow into another mapping.
//!
//! # Idea
//! The break is kept in bytes. Mapped is the range between the heap's start and the break, both
//! rounded up to pages: growing extends the VMA that ends there (or creates it), shrinking unmaps.
//!
//! # Protocol
//! `mmap_lock` for writing; a section on the VMA that is extended. A call that fails changes
//! nothing and returns the break in force, as in Linux, where the caller compares.
//!
//! # Why it is correct
//! Extending publishes one new record: a fault sees the old end or the new one. One page between
//! the heap and the next mapping stays free, so that an overrun of the heap is a signal.
//!
//! Linux: mm/mmap.c brk, do_brk_flags (v6.12).

use super::munmap;
use super::populate::{Failure, to_lock};
use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::error::{HeapError, NoMemory};
use crate::base::event::Event;
use crate::change::modify::{add_vma, nothing};
use crate::change::writers::{Afterwards, Writers};
use crate::memory::commit::Pages;
use crate::memory::lifetime::as_call;
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::space::tree::Beside;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Atomic, Ordering};

/// Where the heap is.
#[derive(Debug)]
pub(crate) struct Heap<M: Mmu> {
    /// Its first byte. Guarded by: `mmap_lock`.
    start: Atomic<u64, M>,
    /// The break: the first byte behind it. Guarded by: `mmap_lock`.
    end: Atomic<u64, M>,
}

impl<M: Mmu> Heap<M> {
    /// An empty heap two thirds up in user space, where Linux loads a program that may lie
    /// anywhere (`ELF_ET_DYN_BASE`), and the heap behind it.
    pub(crate) fn new() -> Self {
        Self::empty_at(VirtAddr(M::Paging::user_end() / 3 * 2).align_down(M::Paging::shift()))
    }

    fn empty_at(start: VirtAddr) -> Self {
        Self {
            start: Atomic::new(start.0),
            end: Atomic::new(start.0),
        }
    }

    /// Becomes the heap that `parent` is.
    pub(crate) fn copy_from(&self, parent: &Self) {
        self.start.store(parent.start().0, Ordering::Relaxed);
        self.end.store(parent.end().0, Ordering::Relaxed);
    }

    /// From its start to the break. The caller holds `mmap_lock`.
    pub(crate) fn range(&self) -> VirtRange {
        VirtRange::new(self.start(), self.end())
    }

    fn start(&self) -> VirtAddr {
        VirtAddr(self.start.load(Ordering::Relaxed))
    }

    fn end(&self) -> VirtAddr {
        VirtAddr(self.end.load(Ordering::Relaxed))
    }
}

impl<M: Mmu> Mm<M> {
    /// Moves the break to `at`, or only queries it; returns the break in force afterwards. It is
    /// the old one where the call fails: below the heap's start, into another mapping or the page
    /// before one, beyond user space or a limit, or without memory.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing; waits for TLB flushes.
    pub fn brk(&self, at: Option<VirtAddr>) -> VirtAddr {
        as_call(self.system(), || {
            self.system().count(Event::Brk);
            self.system()
                .with_memory(|| {
                    let writers = Writers::lock(self, Over::All);
                    let end = self.heap.end();
                    let Some(at) = at.filter(|at| *at >= self.heap.start()) else {
                        return Ok(end);
                    };
                    // Before the move, after which the lock may be held for reading only.
                    self.heap.end.store(at.0, Ordering::Relaxed);
                    let moved = self.move_break(&writers, end, at);
                    if moved.is_err() {
                        self.heap.end.store(end.0, Ordering::Relaxed);
                        return Err(end);
                    }
                    let locks = self.flags_of_new().has(VmaFlags::LOCKED);
                    drop(writers);
                    M::note(format_args!("brk {at}"));
                    if locks {
                        self.populate_heap(end, at);
                    }
                    Ok(at)
                })
                .unwrap_or_else(|end| end)
        })
    }

    /// Faults in the new pages of the heap between two breaks, as far as memory allows.
    #[cold]
    fn populate_heap(&self, from: VirtAddr, to: VirtAddr) {
        let page_up = |at: VirtAddr| at.align_up(M::Paging::shift());
        let (Some(start), Some(end)) = (page_up(from), page_up(to)) else {
            return;
        };
        if start < end {
            let share = Share::default();
            let more = VirtRange::new(start, end);
            let _some = self.populate_mapped(&share, more, Failure::Ends, to_lock);
            self.rss.sync(&share);
        }
    }

    /// Says where the heap starts, before its first use: behind a program's data, as exec does.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing.
    ///
    /// # Errors
    /// See [`HeapError`].
    pub fn set_start_brk(&self, at: VirtAddr) -> Result<(), HeapError> {
        let _writers = Writers::lock(self, Over::All);
        if self.heap.start() != self.heap.end() {
            return Err(HeapError::Used);
        }
        let user = Self::user_range();
        if at < user.start() || at > user.end() {
            return Err(HeapError::OutOfRange);
        }
        self.heap.start.store(at.0, Ordering::Relaxed);
        self.heap.end.store(at.0, Ordering::Relaxed);
        Ok(())
    }

    /// Maps and unmaps what the way from `from` to `to` takes.
    fn move_break(
        &self,
        writers: &Writers<'_, M>,
        from: VirtAddr,
        to: VirtAddr,
    ) -> Result<(), NoMemory> {
        let page_up = |at: VirtAddr| at.align_up(M::Paging::shift()).ok_or(NoMemory);
        let (old, new) = (page_up(from)?, page_up(to)?);
        if new < old {
            let gone = VirtRange::new(new, old);
            let mapped = writers.held().find(new).is_some_and(|vma| {
                let range = vma.view().range;
                range.overlaps(gone)
            });
            return if mapped && writers.held().cuts_no_huge_page(gone) {
                munmap::unmap(writers, gone, Afterwards::LetsGo)
            } else {
                Err(NoMemory)
            };
        }
        if new == old {
            return Ok(());
        }
        self.grow(writers, VirtRange::new(old, new))
    }

    /// Maps `more`, which begins where the heap's pages end.
    fn grow(&self, writers: &Writers<'_, M>, more: VirtRange) -> Result<(), NoMemory> {
        if !Self::user_range().covers(more) || !gap_after(writers.held(), more) {
            return Err(NoMemory);
        }
        let flags = VmaFlags::ACCOUNT.with(self.flags_of_new());
        let fresh = VmaView::anonymous::<M::Paging>(more, Prot::READ_WRITE, flags);
        let pages = more.pages(M::Paging::shift());
        let locks = flags.has(VmaFlags::LOCKED);
        if !self.may_expand(pages) || locks && self.may_lock(pages).is_err() {
            return Err(NoMemory);
        }
        let sys = self.system();
        if self.map_count() > sys.max_map_count() {
            return Err(NoMemory);
        }
        sys.charge(pages)?;
        self.extend(writers, fresh)
            .inspect_err(|_| sys.uncharge(pages))?;
        self.count_mapped(Pages::of::<M>(&fresh));
        Ok(())
    }

    /// Maps `fresh`: the VMA that ends where it begins is extended if it is of the heap and alike.
    fn extend(&self, writers: &Writers<'_, M>, fresh: VmaView) -> Result<(), NoMemory> {
        let start = fresh.range.start();
        // What ends where the heap begins is none of it.
        let beside = match start > self.heap.start() {
            true => Beside {
                above: None,
                ..writers.held().beside(fresh.range)
            },
            false => nothing(),
        };
        add_vma(writers, &fresh, beside, None).map(drop)
    }
}

/// Whether nothing is mapped in `more` and in the page behind it.
fn gap_after<M: Mmu>(held: Held<'_, M>, more: VirtRange) -> bool {
    held.find(more.start()).is_none_or(|next| {
        let next = held.start_with_gap(&next.view());
        next.0.saturating_sub(M::Paging::page()) >= more.end().0
    })
}
