//! Hugetlb page tables shared by several address spaces (PMD sharing).
//!
//! # Problem
//! One address space must be able to leave a shared table without the others noticing, and must
//! leave it before a change that only it may see.
//!
//! # Idea
//! A table counts its users other than its creator, its *sharers*, in a number of its own, since a
//! reference count includes transient references (P49). A mapping that needs a table looks for a
//! mapping that has one for the same part of the file, and uses that. A change of one mapping's
//! entries first unshares the table: removes it from that address space as a whole.
//!
//! # Protocol
//! May share: a shared mapping that has a lock ([`super::lock`]), in an interval that lies within
//! it; with a mapping of the same file, with the same flags and protection, that maps the same
//! pages at the same offsets in its interval.
//!
//! *Share*: `i_mmap` for reading; find the other's table; sharers + 1; link it like any table if
//! the entry is empty, else sharers - 1.
//!
//! *Unshare*: `map_lock` or the mapping's lock for writing, and `i_mmap` for writing; under
//! `page_table_lock`: if there are sharers, clear our entry, sharers - 1. The TLBs of this address
//! space are flushed for the whole interval before `i_mmap` is released (P48).
//!
//! # Why it is correct
//! `i_mmap` keeps the other's table in place while its sharers are raised: it excludes unsharing
//! and the unlinking of the other mapping from the file. The last user of a table finds no sharers,
//! and frees it like any table. The TLB flush waits for lockless walks, those of the hardware
//! included: none continues in a table that by then belongs to other address spaces only.
//!
//! A mapping that is split unshares the table of the interval that contains the split while its
//! write section is open: its own faults do not share it again before its attributes have the new
//! end (P50). From then until its link has the new attributes, no other mapping shares a table of
//! it either; nor a table of a mapping that is being removed, between unsharing and unlinking from
//! the file: its tables are about to be freed ([`super::zap`]).
//!
//! # Cost
//! One walk of the file's mappings for the first fault in each interval.
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
    /// Links another mapping's table at `place`, which covers the interval of `addr` and was empty,
    /// if there is one to share. Returns whether `place` is in use now.
    ///
    /// # Context
    /// The caller holds the lock that keeps tables in this address space. Sleeps for `i_mmap`.
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
            self.link_table(place, table, None)
        };
        if put_in {
            sys.count(Event::TablesShared);
            M::note(format_args!("table {table} is shared at {}", part.start()));
        } else {
            sharers.sub(1, Ordering::Relaxed);
        }
        true
    }

    /// A table's sharer count, and its value where the table is not shared.
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

    /// Unlinks the table for `addr` from this address space, if it has other sharers; returns
    /// whether it did. The caller then flushes TLBs for the whole interval before it releases
    /// `i_mmap`.
    ///
    /// # Context
    /// Under `i_mmap` and the lock that excludes faults, both for writing.
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
