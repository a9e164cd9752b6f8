//! Frees page tables: after the zap of an unmapping call.
//!
//! # Problem
//! Tables that map nothing any more cost memory. While they are looked for, faults without a lock
//! put others in, and hardware walks.
//!
//! # Idea
//! *Every table overlaps a mapping.* So of a table that goes only the entries for the range are
//! read, not all 512: below the others there is no table.
//!
//! # Protocol
//! Go down from the root along the range. For each table: wait once for those that are putting
//! tables into it; go on below; unlink those that serve nothing outside of the hole, gather them,
//! and free them after the next flush.
//!
//! # Why it is correct
//! A table is linked by a fault or by mremap for an address that is mapped, or about to be, and
//! nothing unmaps that address meanwhile: it is linked under `mmap_lock` or under a VMA's lock, for
//! which munmap waits, or under the parent's lock with the VMA unchanged ([`crate::entry::table`]).
//! The call that unmaps the last mapping that a table overlaps frees the table. Where a new mapping
//! takes the place, it overlaps the tables instead. Checked machines read all entries of a table
//! above leaves that goes.
//!
//! In a divided address space a table may lie below a hole: one that serves several arenas, of
//! which a call holds one; one over the last page of an arena, which stays while calls hold that
//! arena only; and one that a fault put in late, where the call did not wait for it. The first two
//! go only with a call that looks at all entries; a late one goes with the other mapping for which
//! its parent stayed.
//!
//! # Cost
//! An entry of each level for each span of the range that has a table.
//!
//! Linux: mm/memory.c free_pgd_range.

use crate::base::config::NegativeControl;
use crate::entry::walk::indices;
use crate::entry::zap::{Others, Zap};
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging, Pte, Table, span_of, span_shift};

impl<'m, M: Mmu> Zap<'m, M> {
    /// Unlinks the tables that overlap `range` and cover nothing outside `bounds`, within which
    /// nothing is mapped outside `range`. The caller holds `mmap_lock` for writing, or downgraded
    /// it, and removed the VMAs: no other thread changes or follows entries that point to tables
    /// within the bounds.
    pub(crate) fn free_tables(&mut self, range: VirtRange, bounds: VirtRange) {
        // The lowest tables at both ends are shared with others, and there is none between them.
        let first = span_of::<M::Paging>(range.start(), 1);
        let last = span_of::<M::Paging>(VirtAddr(range.end().0.saturating_sub(1)), 1);
        let kept = !bounds.covers(first) && !bounds.covers(last);
        if kept && last.start() <= first.end() {
            return;
        }
        let root = (self.mm().root, M::Paging::levels() - 1);
        self.free_below(root, range, range, bounds);
    }

    /// Frees tables below one of level `level`: of the entries for `range`, and below these of all
    /// where there may be tables below holes. Nothing was mapped in `asked` outside of what the
    /// caller unmaps there.
    fn free_below(
        &mut self,
        (table, level): (Pfn, u32),
        range: VirtRange,
        asked: VirtRange,
        bounds: VirtRange,
    ) {
        if level == 0 || range.is_empty() {
            return;
        }
        let mm = self.mm();
        let table = self.tables.table(table, level);
        let shift = span_shift::<M::Paging>(level);
        let start = range.start().align_down(shift);
        let (first, end) = indices::<M>(range, level);
        self.wait_for_linkers(table, level, range.intersect(asked), bounds);
        let mut next = first;
        while let Some((index, value)) = table.used_from(next, end, level) {
            next = index + 1;
            if !value.is_table_at(level) {
                continue;
            }
            let at = start.0 + (((index - first) as u64) << shift);
            let span = VirtRange::new(VirtAddr(at), VirtAddr(at + (1 << shift)));
            let goes = bounds.covers(span);
            // Some may have stayed below holes when others went.
            let all = goes && mm.may_have_tables_below_holes(level - 1, span);
            let part = if all { span } else { span.intersect(range) };
            self.free_below((value.pfn(), level - 1), part, asked, bounds);
            if goes {
                self.tables.has_no_tables(value.pfn(), level - 1);
                let entry = table.entry(index);
                entry.swap(mm.exchange_of_tables(), Pte::none_at(level));
                self.gather.table(value.pfn(), span);
                if self.gather.is_full() {
                    self.flush();
                }
            }
        }
    }

    /// Waits for faults without a lock that put tables into this one for `range`, which is what of
    /// it is unmapped. For what was unmapped before, that call has waited.
    ///
    /// Above leaf tables one lock serves all entries. It is not waited for where no table goes that
    /// this one leads to, as long as there are arenas: a table that comes late then stays below a
    /// hole, as others do; the call that frees this one waits for all.
    fn wait_for_linkers(
        &self,
        table: Table<'m, M>,
        level: u32,
        range: VirtRange,
        bounds: VirtRange,
    ) {
        let mm = self.mm();
        let lacks = mm.system().lacks(NegativeControl::FreesUnlocked);
        if self.others == Others::Nobody || !mm.links_speculatively() || lacks {
            return;
        }
        if level > 1 {
            let shift = span_shift::<M::Paging>(level);
            let first_whole = bounds
                .start()
                .align_up(shift)
                .map(|at| at.0.checked_add(1 << shift));
            let some_go = first_whole
                .flatten()
                .is_some_and(|end| end <= bounds.end().0);
            if !some_go && mm.has_several_writers() {
                return;
            }
        }
        if !range.is_empty() {
            let (first, end) = indices::<M>(range, level);
            mm.wait_for_linkers(table, level, first..end);
        }
    }
}
