//! Hugetlb page tables shared by several address spaces (PMD sharing).
//!
//! # Problem
//! A table that two address spaces have must be left by one of them without the other noticing, and
//! by whoever changes what only one of them may see.
//!
//! # Idea
//! A table counts who has it beside the one that made it: its *sharers*, a number of its own, since
//! references of passers-by say nothing about that (P49). A mapping that needs a table looks for
//! another that has one for the same part of the file, and uses that. Whoever wants to change
//! entries for one mapping only takes the table out of its address space first, all at once.
//!
//! # Protocol
//! May share: a shared mapping that has a lock ([`super::lock`]), of an interval that lies all in
//! it; with a mapping of the same file, the same flags and protection, that has the same pages at
//! addresses of the same place in their interval.
//!
//! *Share*: `i_mmap` for reading; find the other's table; sharers + 1; put it in as any table,
//! where there is none, else sharers - 1.
//!
//! *Unshare*: `map_lock` or the mapping's lock for writing, and `i_mmap` for writing; under
//! `page_table_lock`: if there are sharers, our entry becomes empty, sharers - 1. All CPUs of this
//! address space forget the whole interval before `i_mmap` is let go (P48).
//!
//! # Why it is correct
//! `i_mmap` keeps the other's table where it is while its sharers are raised: nobody unshares, and
//! nobody takes the other mapping out of the file. The last to have a table has no sharers; it is
//! the one that frees it, as tables are freed. Walks without locks, the hardware's among them, are
//! waited for by the invalidation: none goes on in a table that is another's by then.
//!
//! A mapping that is cut loses the table of the interval that the cut is in while its section is
//! open: no fault of its own shares it again before the record says that it ends there (P50). And
//! nobody comes to share a table of the mapping from then on until its link says that, too; nor
//! one of a mapping that goes, between its leaving what it shares and its being out of the file:
//! its tables are about to be freed ([`super::zap`]).
//!
//! # Cost
//! One walk of the file's mappings for each interval that is touched first.
//!
//! Linux: mm/hugetlb.c huge_pmd_share, huge_pmd_unshare, want_pmd_share, page_table_shareable.

use super::{HugeSize, LEVEL, has_intervals, interval};
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::event::Event;
use crate::entry::walk::Tables;
use crate::mm::Mm;
use crate::pages::file::{PageCache, huge_lock_of};
use crate::space::vma::Vma;
use core::ops::ControlFlow;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Missing, Mmu, Paging, Pte};
use minflt_sync::{Atomic, Ordering};

/// A mapping may have tables that others have, too.
fn may_share<M: Mmu>(vma: &Vma<M>, view: &VmaView, part: VirtRange) -> bool {
    has_intervals::<M::Paging>()
        && view.huge_size() == HugeSize::Large
        && view.flags.has(VmaFlags::SHARED)
        && vma.huge_lock().is_some()
        && view.range.covers(part)
}

impl<M: Mmu> Mm<M> {
    /// Puts another's table in at `place`, which covers the interval of `addr` and was empty, if
    /// there is one to share; whether something stands there now.
    ///
    /// # Context
    /// The caller holds what keeps tables in this address space. Sleeps for `i_mmap`.
    pub(crate) fn share_table(
        &self,
        vma: &Vma<M>,
        view: &VmaView,
        cache: &PageCache<M>,
        (place, addr): (&Missing<'_, M>, VirtAddr),
    ) -> bool {
        let part = interval::<M::Paging>(addr);
        if !may_share(vma, view, part) {
            return false;
        }
        let sys = self.system();
        let first = view.page_index::<M::Paging>(part.start());
        let last = first + part.pages(M::Paging::shift()) - 1;
        let _tree = cache.i_mmap.read();
        let mut found = None;
        let _first_of_them = cache.spans.each(first, last, |other| {
            let like = other
                .span
                .is_some_and(|span| span.like() == view.sharing_kind());
            let like = like && huge_lock_of(&other).is_some();
            let whole = other.range == interval::<M::Paging>(other.range.start());
            // Its own mapping may be among them, which has no table there.
            match (like && whole).then(|| other.tables.huge_table(other.range.start())) {
                Some(Some(table)) => {
                    found = Some(table);
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        });
        let Some(table) = found else { return false };
        let (sharers, _) = self.sharers(table);
        sharers.add(1, Ordering::Relaxed);
        let put_in = if sys.lacks(NegativeControl::BlindShare) {
            let _held = self.page_table_lock.lock();
            let empty = place.entry.load().is_none_at(LEVEL + 1);
            if empty {
                place.entry.store(Pte::table(table, LEVEL + 1));
            }
            empty
        } else {
            // As a fault does that makes one, which may be doing that now.
            self.link_table(place, table)
        };
        if put_in {
            sys.count(Event::TablesShared);
            M::note(format_args!("table {table} is shared at {}", part.start()));
        } else {
            sharers.sub(1, Ordering::Relaxed);
        }
        true
    }

    /// The number that says who has a table, and what that is where it is not shared.
    fn sharers(&self, table: Pfn) -> (&Atomic<u32, M>, u32) {
        let sys = self.system();
        let frame = sys.frames.get(table);
        match sys.lacks(NegativeControl::SharersByReferences) {
            true => (&frame.refs, 1),
            false => (&frame.maps, 0),
        }
    }
}

impl<M: Mmu> Tables<'_, M> {
    /// The table of huge pages for `addr`, if there is one. Under `i_mmap` of a file that is mapped
    /// there.
    fn huge_table(self, addr: VirtAddr) -> Option<Pfn> {
        self.huge_entry(HugeSize::Large, addr)
            .ok()
            .map(|leaf| leaf.table)
    }

    /// Takes the table for `addr` out of this address space, if others have it, too; whether it
    /// did. The caller makes all CPUs forget the whole interval then, before it lets `i_mmap` go.
    ///
    /// # Context
    /// Under `i_mmap` and what faults hold against this, for writing.
    pub(crate) fn unshare_table(self, addr: VirtAddr) -> bool {
        if !has_intervals::<M::Paging>() {
            return false;
        }
        let sys = self.system();
        let Ok(leaf) = self.huge_entry(HugeSize::Large, addr) else {
            return false;
        };
        let (sharers, alone) = self.sharers(leaf.table);
        let _held = self.page_table_lock.lock();
        if sharers.load(Ordering::Relaxed) == alone {
            return false;
        }
        leaf.parent.store(Pte::none_at(LEVEL + 1));
        sharers.sub(1, Ordering::Relaxed);
        sys.count(Event::TablesUnshared);
        M::note(format_args!("table {} is left at {addr}", leaf.table));
        true
    }
}
