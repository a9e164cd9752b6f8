//! Zaps and write-protects PTEs: operations of unmapping calls.
//!
//! # Problem
//! Faults, the hardware and other zaps change PTEs concurrently; frames may be reused only when no
//! CPU can reach them; and a zap that finds nothing may not return while the TLB flush of another
//! zap is pending.
//!
//! # Idea
//! Exchange each PTE and act on the old value; gather frames, and flush the TLB once for many.
//! Count the zaps whose TLB flush is pending: a zap that is not alone flushes the whole range.
//!
//! # Protocol
//! ```text
//! CPU 0: DONTNEED              CPU 1: DONTNEED, same range      CPU 2: stores, old translation
//! pending = 1
//! entry -> none
//!                              pending = 2
//!                              finds none
//!                              pending > 1: flushes             flushed
//!                              pending = 1, returns
//! flushes, frees
//! ```
//! All changes are made under the protocol's lock: the page-table lock, or the address space's.
//! Under compare-and-exchange, faults take it only to replace a page, so changes are exchanges
//! there, too, except when the last user tears the address space down, which has no concurrent
//! access.
//!
//! In a divided address space a zap within one arena counts in that one, any other in the address
//! space. The former is alone if its arena's count is 1 and that of the address space 0; the latter
//! if the address space's count is 1 and none of its arenas counts any.
//!
//! # Why it is correct
//! The zap whose exchange returned the page owns its removal. Frames are released after
//! [`shootdown::flush`] returned. The count is raised before the first PTE is read, so of two
//! overlapping zaps the later one to read a PTE sees the count of the other until that has flushed:
//! it looks at each count that a zap that overlaps it may have raised.
//!
//! # Cost
//! An entry of each level for each span of the range that has a table.
//!
//! Linux: mm/memory.c zap_pte_range, mm/mmu_gather.c; mm_tlb_flush_nested since
//! 4647706ebeee.

use crate::base::attrs::Prot;
use crate::base::config::NegativeControl;
use crate::base::event::Event;
use crate::entry::allowed::Allowed;
use crate::entry::part::Part;
use crate::entry::shootdown;
use crate::entry::table;
use crate::entry::walk::{Tables, indices, page_at, pages};
use crate::memory::frame::Use;
use crate::mm::Mm;
use crate::system::System;
use minflt_addr::VirtRange;
use minflt_pgtable::{Exchange, Gather, Leaf, Mmu, NonPresent, Pte};
use minflt_sync::order::PageTableLock;
use minflt_sync::{Atomic, Cost, Ordering, SpinGuard};

/// Who else may change the entries meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// Faults, other zaps, and the hardware of CPUs that run a thread.
    Some,
    /// Nobody: the last to have the address space tears it down.
    Nobody,
}

/// Which pages are taken out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    All,
    /// Those of files; copies that private mappings made stay.
    OfFile,
}

/// What a zap has yet to invalidate that ended before: see [`Zap::hide`].
pub(crate) struct Hidden {
    touched: Option<VirtRange>,
    whole: VirtRange,
}

/// A zap or protect under way.
pub(crate) struct Zap<'m, M: Mmu> {
    pub(crate) tables: Tables<'m, M>,
    pub(crate) gather: Gather,
    pub(super) others: Others,
    only: Only,
    whole: VirtRange,
    /// Where it says that its invalidation is to come, if not in the address space.
    part: Option<&'m Part<M>>,
    /// Whether other CPUs have no translation of a dying address space any more.
    is_left: bool,
}

impl<'m, M: Mmu> Zap<'m, M> {
    /// Starts.
    #[inline(always)]
    pub(crate) fn begin(tables: Tables<'m, M>, whole: VirtRange) -> Self {
        let part = tables.mm().part_of(whole);
        let pending = part.map_or(&tables.mm().flushes_pending, |part| &part.flushes_pending);
        // ORDERING: SeqCst; pairs with [flush-pending]: raised before the first entry is read.
        pending.add(1, Ordering::SeqCst);
        if tables.links_speculatively() {
            // ORDERING: fence SeqCst; pairs with [table-link]: the counts of VMAs that are unmapped
            // are odd before this, and their tables are looked for after it.
            M::fence(Ordering::SeqCst);
        }
        Self {
            tables,
            gather: Gather::new(),
            others: Others::Some,
            only: Only::All,
            whole,
            part,
            is_left: false,
        }
    }

    /// The same, for the last user of the address space: entries are cleared without exchanges, and
    /// one flush for everything interrupts other CPUs: no thread is left to fill a TLB again. Idle
    /// CPUs that still have these tables loaded leave them in that interrupt.
    ///
    /// Linux: ptep_get_and_clear_full; leave_mm in flush_tlb_func (arch/x86/mm/tlb.c, 3.14). On
    /// ia64 flush_tlb_mm returns at once in exit_mmap (2.6.10).
    pub(crate) fn begin_last(tables: Tables<'m, M>, whole: VirtRange) -> Self {
        Self {
            others: Others::Nobody,
            ..Self::begin(tables, whole)
        }
    }

    /// The same, of some pages only.
    pub(crate) fn begin_only(tables: Tables<'m, M>, whole: VirtRange, only: Only) -> Self {
        Self {
            only,
            ..Self::begin(tables, whole)
        }
    }

    /// The address space.
    #[inline(always)]
    pub(crate) const fn mm(&self) -> &'m Mm<M> {
        self.tables.mm()
    }

    /// Takes every page of `range` out.
    pub(crate) fn range(&mut self, range: VirtRange) {
        let mut at = range.start();
        while let Some((leaf, span)) = self.tables.next_table(&mut at, range) {
            let mut todo = span;
            while !todo.is_empty() {
                todo = self.zap_table(leaf, todo);
                if self.gather.is_full() {
                    self.flush();
                }
            }
        }
    }

    /// Lowers what the entries of `range` grant to what `prot` allows. The right to fetch is given
    /// as well as taken: nothing else hangs on it.
    pub(crate) fn protect(&mut self, range: VirtRange, prot: Prot) {
        let allowed = Allowed::by(self.mm().system(), prot);
        let keeps_moving = self.mm().system().lacks(NegativeControl::MoveKeepsGrant);
        let how = self.mm().exchange_under_lock();
        let mut at = range.start();
        while let Some((leaf, span)) = self.tables.next_table(&mut at, range) {
            let _held = self.mm().table_lock(leaf.table).lock();
            for page in pages::<M>(span) {
                let entry = self.tables.entry(leaf.table, page.start());
                let change = |pte: Pte<M::Paging>| match pte.moving() {
                    Some(_) if !keeps_moving => allowed.of_moving(pte),
                    _ => allowed.of_mapped(pte),
                };
                if entry
                    .update(how, change)
                    .is_ok_and(|old| allowed.takes_from(old))
                {
                    self.gather.touch(page);
                }
            }
        }
    }

    /// Forgets that there is anything to invalidate: for a control.
    #[cold]
    pub(crate) fn forget(&mut self) {
        self.gather.take_range();
    }

    /// Clears the accessed bits of `range`; returns how many were set.
    pub(crate) fn age(&mut self, range: VirtRange) -> u64 {
        self.change(range, |pte| pte.is_young().then(|| pte.old()))
    }

    /// Clears the accessed bits of the pages of `range` that have no other mapping.
    ///
    /// Linux: madvise_cold_or_pageout_pte_range.
    pub(crate) fn cool(&mut self, range: VirtRange) {
        let sys = self.mm().system();
        self.change(range, |pte| {
            (pte.is_young() && sys.maps_once(pte)).then(|| pte.old())
        });
    }

    /// Clears the dirty bits of the pages of `range` that have no other mapping.
    ///
    /// Linux: madvise_free_pte_range.
    pub(crate) fn forget_stores(&mut self, range: VirtRange) {
        let sys = self.mm().system();
        self.change(range, |pte| {
            let used = pte.is_young() || pte.is_dirty();
            (used && sys.maps_once(pte)).then(|| pte.old().clean())
        });
    }

    /// Clears the userfaultfd write-protect bits of the pages of `range`, whose registration ended.
    pub(crate) fn unmark(&mut self, range: VirtRange) {
        self.change_any(range, |pte| pte.is_uffd_wp().then(|| pte.without_uffd_wp()));
    }

    /// Changes bits of the mapped entries of `range`, those for which `to` says so; returns how
    /// many. The translations are invalidated, so that the next use sets what was cleared again.
    pub(crate) fn change(
        &mut self,
        range: VirtRange,
        to: impl Fn(Pte<M::Paging>) -> Option<Pte<M::Paging>>,
    ) -> u64 {
        self.change_any(range, |pte| pte.is_mapped().then(|| to(pte)).flatten())
    }

    /// The same of all entries that are not empty.
    pub(crate) fn change_any(
        &mut self,
        range: VirtRange,
        to: impl Fn(Pte<M::Paging>) -> Option<Pte<M::Paging>>,
    ) -> u64 {
        let how = self.mm().exchange_under_lock();
        let mut changed = 0;
        let mut at = range.start();
        while let Some((leaf, span)) = self.tables.next_table(&mut at, range) {
            let _held = self.mm().table_lock(leaf.table).lock();
            for page in pages::<M>(span) {
                // Checked before the change, too: a frame that is not a table belongs to another
                // user.
                table::is_table(self.mm().system(), leaf.table);
                let entry = self.tables.entry(leaf.table, page.start());
                let some = |pte: Pte<M::Paging>| (!pte.is_none()).then(|| to(pte)).flatten();
                if entry.update(how, some).is_ok() {
                    changed += 1;
                    self.gather.touch(page);
                }
            }
            table::is_table(self.mm().system(), leaf.table);
        }
        changed
    }

    /// As [`Self::finish`], for the last user of the address space.
    pub(crate) fn finish_last(&mut self) {
        self.end();
        if !self.is_left {
            shootdown::leave_last(self.mm().system(), self.mm(), self.whole);
        }
    }

    /// Invalidates what has to be, gives the frames back, and ends.
    #[inline(always)]
    pub(crate) fn finish(&mut self) {
        self.end();
    }

    /// Flushes TLBs for all entries removed so far, by this zap or by concurrent ones. Pages of a
    /// file's mapping must be flushed before the mapping is unlinked from the file: otherwise
    /// writeback finds no mapping while a CPU with a stale translation still stores to the page.
    pub(crate) fn settle(&mut self) {
        let sys = self.mm().system();
        // ORDERING: SeqCst; pairs with [flush-pending].
        let alone = self.pending().load(Ordering::SeqCst) == 1 && !self.is_beside_others();
        if !alone && !sys.lacks(NegativeControl::NoNestedFlush) {
            sys.count(Event::NestedFlush);
            self.gather.touch(self.whole);
        }
        self.flush();
    }

    fn end(&mut self) {
        self.settle();
        // ORDERING: SeqCst; pairs with [flush-pending]: lowered after the invalidation returned.
        self.pending().sub(1, Ordering::SeqCst);
    }

    /// The count of those that have an invalidation to do.
    #[inline(always)]
    fn pending(&self) -> &Atomic<u64, M> {
        self.part
            .map_or(&self.mm().flushes_pending, |part| &part.flushes_pending)
    }

    /// Whether others that are counted elsewhere have one to do: those of several arenas, beside
    /// one in an arena; those in the arenas of this one, beside one of several.
    #[inline(always)]
    fn is_beside_others(&self) -> bool {
        let mm = self.mm();
        if mm.system().lacks(NegativeControl::OtherFlushIgnored) {
            return false;
        }
        match self.part {
            None => mm.are_flushes_pending(self.whole),
            // ORDERING: SeqCst; pairs with [flush-pending].
            Some(_) => mm.flushes_pending.load(Ordering::SeqCst) != 0,
        }
    }

    /// Ends without a TLB flush, and hides that one is pending: for a negative control.
    pub(crate) fn hide(mut self) -> Hidden {
        self.pending().sub(1, Ordering::Relaxed);
        Hidden {
            touched: self.gather.take_range(),
            whole: self.whole,
        }
    }

    /// Invalidates what has to be and gives the frames gathered so far back.
    pub(crate) fn flush(&mut self) {
        let sys = self.mm().system();
        if let Some(range) = self.gather.take_range() {
            match self.others {
                Others::Some => shootdown::flush(sys, self.mm(), range),
                Others::Nobody if self.is_left => shootdown::flush_here(sys, self.mm(), range),
                Others::Nobody => shootdown::flush_last(sys, self.mm(), self.whole),
            }
            self.is_left = true;
        }
        for pfn in self.gather.take_pages() {
            // Linux: release_pages frees only the pages that have no other reference.
            if sys.frames.put(*pfn) {
                M::charge(Cost::Free);
            }
        }
        for pfn in self.gather.take_tables() {
            // SAFETY: 1: unlinked, and invalidated by the lines above.
            unsafe { sys.retire_table(*pfn) };
        }
    }

    /// Takes pages of one table out, until the gather is full; returns what is left to do.
    fn zap_table(&mut self, leaf: Leaf<'m, M>, span: VirtRange) -> VirtRange {
        let sys = self.mm().system();
        let how = match self.others {
            Others::Some => self.mm().exchange_under_lock(),
            Others::Nobody => Exchange::Held,
        };
        let held: SpinGuard<'_, (), PageTableLock, M> = self.mm().table_lock(leaf.table).lock();
        let mut resident = 0;
        let mut left = VirtRange::new(span.end(), span.end());
        let (table, (mut next, end)) = (self.tables.table(leaf.table, 0), indices::<M>(span, 0));
        let first = next;
        while let Some((index, found)) = table.used_from(next, end, 0) {
            next = index + 1;
            if self.keeps(found) {
                continue;
            }
            let old = table.entry(index).swap(how, Pte::none());
            let page = page_at::<M>(span.start(), index - first);
            if !old.is_mapped() {
                resident -= i64::from(self.mm().drop_nonpresent(old));
                continue;
            }
            self.gather.touch(page);
            if old.is_zero_page() {
                continue;
            }
            M::note(format_args!(
                "zap {} takes frame {} out",
                page.start(),
                old.pfn()
            ));
            // ORDERING: AcqRel; no pair: the count is compared with itself only, and the frame
            // itself is handed on by [frame-put].
            if sys.frames.get(old.pfn()).maps.sub(1, Ordering::AcqRel) == 0 {
                M::violation(format_args!("map count underflow of frame {}", old.pfn()));
            }
            if !old.is_young() && sys.is_of_file(old) {
                sys.count(Event::FaultAroundUnused);
            }
            resident -= 1;
            if sys.lacks(NegativeControl::FilePagesAtOnce) && sys.is_of_file(old) {
                sys.frames.put(old.pfn());
                continue;
            }
            self.gather.page(old.pfn());
            if self.gather.is_full() {
                left = VirtRange::new(page.end(), span.end());
                break;
            }
        }
        if resident != 0 {
            self.mm().count_resident(None, resident);
        }
        drop(held);
        left
    }

    /// Whether the entry is skipped. Under the lock that is required to replace its page.
    #[inline(always)]
    fn keeps(&self, found: Pte<M::Paging>) -> bool {
        self.only == Only::OfFile && !self.mm().system().is_of_file(found)
    }
}

impl<M: Mmu> System<M> {
    /// Whether an entry names a page of a file. Under the lock of its table.
    #[inline(always)]
    pub(crate) fn is_of_file(&self, pte: Pte<M::Paging>) -> bool {
        let frame = |pte: Pte<M::Paging>| self.frames.get(pte.pfn());
        pte.is_mapped() && !pte.is_zero_page() && frame(pte).used_as() == Use::File
    }

    /// Whether a mapped entry is the only one that maps its frame. The caller holds the lock of the
    /// entry's table.
    pub(crate) fn maps_once(&self, pte: Pte<M::Paging>) -> bool {
        // Of a count that others may raise or lower a moment later: a hint, as what it is for.
        !pte.is_zero_page() && self.frames.get(pte.pfn()).maps.load(Ordering::Relaxed) == 1
    }
}

impl<M: Mmu> Mm<M> {
    /// The end of [`Zap::hide`].
    #[cold]
    pub(crate) fn finish_hidden(&self, hidden: Hidden) {
        let sys = self.system();
        self.flushes_pending.add(1, Ordering::Relaxed);
        // ORDERING: SeqCst; pairs with [flush-pending].
        let alone = self.flushes_pending.load(Ordering::SeqCst) == 1;
        let range = if alone || sys.lacks(NegativeControl::NoNestedFlush) {
            hidden.touched
        } else {
            sys.count(Event::NestedFlush);
            Some(hidden.whole)
        };
        if let Some(range) = range {
            shootdown::flush(sys, self, range);
        }
        // ORDERING: SeqCst; pairs with [flush-pending]: lowered after the invalidation returned.
        self.flushes_pending.sub(1, Ordering::SeqCst);
    }

    /// What a zap does with an entry that it took out and that maps nothing; returns whether the
    /// entry counted as resident.
    #[cold]
    pub(crate) fn drop_nonpresent(&self, old: Pte<M::Paging>) -> bool {
        match old.nonpresent() {
            Some(NonPresent::Migration(_)) => true,
            Some(NonPresent::Swap(slot)) => {
                self.system().swap.put(slot);
                false
            }
            None => false,
        }
    }
}
