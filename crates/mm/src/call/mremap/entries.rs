//! Moves PTEs from one range of an address space to another.
//!
//! # Problem
//! A page that is moved must be found at its old address until the call, and at its new one after
//! it; and nobody may free it from the new place while a CPU still reaches it by the old one
//! (CVE-2018-18281).
//!
//! # Idea
//! Where a whole table is moved to where a whole table fits, the entry that points to it is moved,
//! and nothing below it. Elsewhere the entries are moved, table by table; and where a userfaultfd
//! watches stores, since its marks stay behind: nobody would ever take them off.
//!
//! # Protocol
//! ```text
//! the source's and the destination's VMAs: sections open, until all is moved
//! the source's VMA: locked from the beginning, where VMAs have locks
//! tables for the destination: put in before anything changes; the move takes no memory
//! whole tables:  every lock below held once      pointer -> none    all CPUs told    put in
//! entries:       both tables' locks held         entry -> none, put in    all CPUs told
//! ```
//! Two tables' locks are taken in the order of the tables' frames.
//!
//! # Why it is correct
//! Nobody faults at either place meanwhile. A speculative fault that was in its slot before the
//! section opened has let the table's lock go when that was held once; later ones see the section.
//! (Else one could go on in a table that has moved: a use after free in Android's, which moved
//! tables under locks that speculation did not take.) The value that is put in is what the exchange
//! returned, with what the hardware had set by then. The CPUs have forgotten the old place before
//! the lock of the new one, or of the whole address space, is let go: who takes the page out there
//! comes later.
//!
//! # Cost
//! One exchange and one store for each entry; two changes of the entry above for a table that moves
//! whole; an invalidation for each table.
//!
//! Linux: mm/mremap.c move_page_tables, move_ptes, move_pgt_entry (v6.18).

use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::base::event::Event;
use crate::entry::walk::{Tables, pages};
use crate::entry::zap::Zap;
use crate::mm::Mm;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Missing, Mmu, Paging, Pte, Walk, entries_of, span_of};

/// A part of what is moved.
#[derive(Clone, Copy)]
struct Part {
    from: VirtAddr,
    to: VirtAddr,
    bytes: u64,
    /// Whether whole tables may be moved.
    by_table: bool,
}

/// How a part is moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing is there.
    Nothing,
    /// By the entry of this level, which points to a table.
    Table(u32),
    /// By the entries of one table.
    Entries,
}

impl<M: Mmu> Tables<'_, M> {
    /// The first part of what is left to move, and how.
    ///
    /// # Context
    /// Under `mmap_lock` for writing.
    fn next_part(self, left: Part) -> (Part, Step) {
        let lowest = match self.walk(left.from) {
            Walk::Missing(Missing { level, .. }) => {
                let bytes = span_of::<M::Paging>(left.from, level).end().0 - left.from.0;
                return (left.first(bytes), Step::Nothing);
            }
            Walk::Leaf(_) => 1,
        };
        let fits = |level: &u32| {
            if !left.by_table {
                return false;
            }
            let span = span_of::<M::Paging>(left.from, *level);
            let there = span_of::<M::Paging>(left.to, *level);
            let aligned = span.start() == left.from && there.start() == left.to;
            aligned && span.len() <= left.bytes && self.is_empty_at(left.to, *level)
        };
        if let Some(level) = (lowest..M::Paging::levels()).rev().find(fits) {
            let span = span_of::<M::Paging>(left.from, level);
            return (left.first(span.len()), Step::Table(level));
        }
        let here = span_of::<M::Paging>(left.from, 1).end().0 - left.from.0;
        let there = span_of::<M::Paging>(left.to, 1).end().0 - left.to.0;
        (left.first(here.min(there)), Step::Entries)
    }

    /// Whether no table is put in at `addr` below its entry of `level`.
    fn is_empty_at(self, addr: VirtAddr, level: u32) -> bool {
        let found = self.walk(addr);
        matches!(found, Walk::Missing(Missing { level: missing, .. }) if missing >= level)
    }

    /// The table whose entry for `addr` is of `level`, put in where it is missing.
    fn table_above(self, addr: VirtAddr, level: u32) -> Result<Pfn, NoMemory> {
        let mut at = M::Paging::levels() - 1;
        let mut table = self.root;
        while at > level {
            let entry = self.table(table, at).entry_for(addr, at);
            if entry.load().is_none_at(at) {
                self.put_table_in(&Missing {
                    entry,
                    level: at,
                    table,
                })?;
            }
            let value = entry.load();
            table = value.pfn();
            at -= 1;
        }
        Ok(table)
    }

    /// The table whose entry for `addr` is of `level`, if it is there.
    fn table_at(self, addr: VirtAddr, level: u32) -> Option<Pfn> {
        let mut table = self.root;
        for at in (level + 1..M::Paging::levels()).rev() {
            let value = self.table(table, at).entry_for(addr, at).load();
            if value.is_none_at(at) {
                return None;
            }
            table = value.pfn();
        }
        Some(table)
    }

    /// Puts a table in where one is missing, unless a fault of a neighbour does.
    fn put_table_in(self, place: &Missing<'_, M>) -> Result<(), NoMemory> {
        let sys = self.system();
        let new = Mm::<M>::new_table(sys, place.level - 1).ok_or(NoMemory)?;
        if self.link_table(place, new, None) {
            sys.count(Event::TablesInstalled);
        } else {
            sys.count(Event::TablesLost);
            sys.put_table(new);
        }
        Ok(())
    }

    /// Puts in the tables that the pages of `from` need at `to`, but for those that they bring.
    ///
    /// # Context
    /// Under `mmap_lock` for writing, and nothing is mapped at `to`. The source's VMA is locked, if
    /// faults lock VMAs: a fault there would put in what there is no room for.
    ///
    /// # Errors
    /// No memory; some tables may be there then, with nothing in them.
    pub(super) fn make_room(self, from: &VmaView, to: VirtAddr) -> Result<(), NoMemory> {
        let mut left = Part::whole(from, to);
        while left.bytes > 0 {
            let (part, step) = self.next_part(left);
            match step {
                Step::Nothing => {}
                Step::Table(level) => drop(self.table_above(part.to, level)?),
                Step::Entries => drop(self.table_above(part.to, 0)?),
            }
            left = left.behind(part);
        }
        Ok(())
    }

    /// Moves the pages of `from` to `to`.
    ///
    /// # Context
    /// Under `mmap_lock` for writing, with sections open on the VMAs of both; after
    /// [`Tables::make_room`]. Waits for CPUs to forget translations.
    pub(super) fn move_entries(self, zap: &mut Zap<'_, M>, from: &VmaView, to: VirtAddr) {
        let mut left = Part::whole(from, to);
        while left.bytes > 0 {
            let (part, step) = self.next_part(left);
            match step {
                Step::Nothing => {}
                Step::Table(level) => self.move_table(zap, part, level),
                Step::Entries => self.move_part(zap, part),
            }
            left = left.behind(part);
        }
    }

    /// Moves a table, with all below it.
    fn move_table(self, zap: &mut Zap<'_, M>, part: Part, level: u32) {
        let sys = self.system();
        let (from, to) = (
            self.table_at(part.from, level),
            self.table_at(part.to, level),
        );
        // Nobody but faults of the VMA, which are kept out, puts in what the VMA alone uses.
        let (Some(from), Some(to)) = (from, to) else {
            M::violation(format_args!("destination page table is missing"))
        };
        let entry = self.table(from, level).entry_for(part.from, level);
        self.wait_for_slots(entry.load().pfn(), level - 1);
        let moved = entry.swap(self.exchange_of_tables(), Pte::none_at(level));
        zap.gather.touch(part.old());
        self.tell(zap);
        let entry = self.table(to, level).entry_for(part.to, level);
        entry.swap(self.exchange_of_tables(), moved);
        M::note(format_args!(
            "moves a table of level {} to {}",
            level - 1,
            part.to
        ));
        sys.count(Event::TablesMoved);
    }

    /// Holds the lock of each table of leaf entries below `table` once.
    fn wait_for_slots(self, table: Pfn, level: u32) {
        if level == 0 {
            return drop(self.table_lock(table).lock());
        }
        let entries = self.table(table, level);
        for index in 0..entries_of::<M::Paging>(level) as usize {
            let value = entries.entry(index).load();
            if !value.is_none_at(level) {
                self.wait_for_slots(value.pfn(), level - 1);
            }
        }
    }

    /// Moves entries of one table to one table.
    fn move_part(self, zap: &mut Zap<'_, M>, part: Part) {
        let Some(from) = self.table_at(part.from, 0) else {
            return;
        };
        let Some(to) = self.table_at(part.to, 0) else {
            return self.has_no_pages(from, part);
        };
        let how = self.exchange_under_lock();
        let (first, second) = (self.table_lock(from.min(to)), self.table_lock(from.max(to)));
        let _first = first.lock();
        let one = core::ptr::eq(first, second);
        let _second = (!one).then(|| second.lock_second());
        let distance = part.to.0.wrapping_sub(part.from.0);
        let mut moved = 0;
        for page in pages::<M>(part.old()) {
            let entry = self.entry(from, page.start());
            if entry.load().is_none() {
                continue;
            }
            let old = entry.swap(how, Pte::none());
            let there = VirtAddr(page.start().0.wrapping_add(distance));
            self.entry(to, there).store(old.without_uffd_wp());
            zap.gather.touch(page);
            moved += 1;
        }
        self.system().count_n(Event::EntriesMoved, moved);
        self.tell(zap);
    }

    /// A table that was not there when room was made: a fault of a neighbour put it in since, under
    /// the neighbour's lock. It has no page of the VMA's, whose faults are kept out.
    fn has_no_pages(self, table: Pfn, part: Part) {
        let none = |page: VirtRange| self.entry(table, page.start()).load().is_none();
        if !pages::<M>(part.old()).all(none) {
            M::violation(format_args!("destination page table is missing"));
        }
    }

    /// Makes every CPU forget the old place.
    fn tell(self, zap: &mut Zap<'_, M>) {
        if !self.system().lacks(NegativeControl::RemapFlushesLate) {
            zap.flush();
        }
    }
}

impl Part {
    const fn whole(from: &VmaView, to: VirtAddr) -> Self {
        Self {
            from: from.range.start(),
            to,
            bytes: from.range.len(),
            // Their entries may be marked for a userfaultfd, which does not watch the new place.
            // Linux: uffd_supports_page_table_move.
            by_table: !from.flags.has(VmaFlags::UFFD_WP),
        }
    }

    /// Its first bytes, as many as there are.
    fn first(self, bytes: u64) -> Self {
        Self {
            bytes: bytes.min(self.bytes),
            ..self
        }
    }

    /// What is left of it behind `part`.
    const fn behind(self, part: Self) -> Self {
        Self {
            from: VirtAddr(self.from.0 + part.bytes),
            to: VirtAddr(self.to.0 + part.bytes),
            bytes: self.bytes - part.bytes,
            ..self
        }
    }

    const fn old(self) -> VirtRange {
        VirtRange::new(self.from, VirtAddr(self.from.0 + self.bytes))
    }
}
