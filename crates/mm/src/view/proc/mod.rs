//! An address space as text, as in Linux's `/proc/PID`: `maps`, `smaps`, `status`; and the binary
//! `pagemap`.
//!
//! # Problem
//! Whoever reads the text may be slow, or be stopped. With `mmap_lock` held for reading meanwhile,
//! the first writer that comes waits for the reader, and every fault waits behind the writer.
//!
//! # Idea
//! No lock is held while text is written. The records of a few mappings are copied under
//! `mmap_lock`, then it is let go, then they are printed; the next few are looked up by the address
//! where the last one ended. Entries are counted a table at a time.
//!
//! # Protocol
//! ```text
//! reader                        writer            fault
//! mmap_lock, read
//! copies up to BATCH records    waits
//! lets go                       gets the lock     waits
//! prints                        lets go           gets the lock
//! mmap_lock, read ...
//! ```
//!
//! # Why it is correct
//! Each line is of one moment: a record is immutable. Two lines may be of two moments: a mapping
//! that is moved meanwhile may show twice or not at all, one that stays shows once, for the next
//! address is behind its end. Linux gives the same promise. Each batch is a call of its own, as a
//! read of such a file is: between two the CPU answers interrupts and reports to grace periods.
//!
//! # Cost
//! A walk of the tree every [`BATCH`] mappings; an entry's look, for `smaps`, takes the table's
//! lock.
//!
//! Linux: fs/proc/task_mmu.c m_start, m_next, show_map_vma, show_smap, task_mem (v6.12).

mod maps;
mod names;
mod pagemap;
mod smaps;
mod status;

pub use names::{FileId, FileNames};
pub use pagemap::Mapped;

use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::vma::Vma;
use core::fmt;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Ordering;

/// Records copied under one hold of `mmap_lock`.
const BATCH: usize = 16;

/// A mapping as it was at one moment.
#[derive(Clone, Copy)]
struct Line {
    view: VmaView,
    name: Name,
    /// The file's number, 0 for none.
    file: u64,
    /// Where in the file the mapping begins, in bytes.
    offset: u64,
}

/// What a mapping is known as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Nothing,
    Heap,
    /// What the embedder said the stack is.
    Stack,
}

impl Name {
    const fn text(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Heap => "[heap]",
            Self::Stack => "[stack]",
        }
    }
}

impl<M: Mmu> Mm<M> {
    /// Calls `print` with each mapping, in order, holding nothing.
    fn each_line(&self, mut print: impl FnMut(Line) -> fmt::Result) -> fmt::Result {
        let nothing = VirtRange::new(VirtAddr(0), VirtAddr(0));
        let empty = Line {
            view: VmaView::anonymous::<M::Paging>(nothing, Prot::NONE, VmaFlags::NONE),
            name: Name::Nothing,
            file: 0,
            offset: 0,
        };
        let mut lines = [empty; BATCH];
        let mut at = VirtAddr(0);
        loop {
            let copied = as_call(self.system(), || self.copy_lines(at, &mut lines));
            for line in &lines[..copied] {
                print(*line)?;
                at = line.view.range.end();
            }
            if copied < BATCH {
                return Ok(());
            }
        }
    }

    /// Copies what is mapped from `at` on, as far as it fits; returns how much that was.
    fn copy_lines(&self, mut at: VirtAddr, lines: &mut [Line; BATCH]) -> usize {
        let guard = self.read(Over::All);
        let held = guard.held();
        let heap = self.heap.range();
        let stack = VirtAddr(self.start_stack.load(Ordering::Relaxed));
        let mut copied = 0;
        while copied < BATCH
            && let Some(view) = held.find(at).map(Vma::view)
        {
            let name = if view.range.overlaps(heap) {
                Name::Heap
            } else if view.range.start() <= stack && stack <= view.range.end() {
                Name::Stack
            } else {
                Name::Nothing
            };
            let cache = view.cache::<M>();
            let offset = cache.map_or(0, |_| view.pgoff << M::Paging::shift());
            let file = cache.map_or(0, |cache| cache.id);
            lines[copied] = Line {
                view,
                name,
                file,
                offset,
            };
            copied += 1;
            at = view.range.end();
        }
        copied
    }
}

/// Pages in kB, as the text has all sizes.
fn kib<M: Mmu>(pages: u64) -> u64 {
    pages << M::Paging::shift() >> 10
}
