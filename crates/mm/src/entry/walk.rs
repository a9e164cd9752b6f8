//! Page-table walks.
//!
//! # Problem
//! A page table may be freed during a walk. What keeps it alive differs: `mmap_lock`, a VMA lock, a
//! reverse-map lock, a read section, or the presence of this CPU in the CPU mask.
//!
//! # Idea
//! A holder of one of these gets a [`Tables`], and walks by its methods; the results of a walk live
//! no longer than it does. It is a reference to the address space and nothing more.
//!
//! # Protocol
//! `Held::tables` returns it under `mmap_lock`, `Stable::tables` during a fault, and `Mapped` in a
//! reverse-map walk. [`Mm::as_hardware`] is for CPUs.
//!
//! # Why it is correct
//! A page table is freed after it was unlinked, the TLB flush has completed, and the grace period
//! has passed; and it is unlinked under `mmap_lock` for writing, or downgraded, when nothing is
//! mapped below it. Each of the locks named at [`Tables::kept`] excludes one of these steps.
//!
//! # Cost
//! None.
//!
//! Linux: mm/pagewalk.c walk_page_range; Documentation/mm/process_addrs.rst, page tables (v6.13).

use crate::base::config::NegativeControl;
use crate::base::huge_size::HugeSize;
use crate::memory::frame::Use;
use crate::mm::Mm;
use core::ops::Deref;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{
    Access, EntryRef, Hardware, Leaf, Missing, Mmu, Paging, Pte, Table, Walk, entries_of,
    hardware_walk, index_of, span_of, span_shift, walk, walk_to,
};
use minflt_sync::Irq;

/// The page tables of an address space, as far as the caller's lock keeps them from being freed.
///
/// # Invariants
/// 1. Tables reached through this stay tables as long as `'h`.
pub(crate) struct Tables<'h, M: Mmu> {
    mm: &'h Mm<M>,
}

impl<M: Mmu> Clone for Tables<'_, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mmu> Copy for Tables<'_, M> {}

impl<M: Mmu> Deref for Tables<'_, M> {
    type Target = Mm<M>;

    #[inline(always)]
    fn deref(&self) -> &Mm<M> {
        self.mm
    }
}

impl<'h, M: Mmu> Tables<'h, M> {
    /// The page tables of `mm` that a lock of the caller keeps.
    ///
    /// # Safety
    /// 1. As long as `'h`, no other thread frees tables that the caller walks to. It holds one of
    ///    these:
    ///    - `mmap_lock`, and walks below a mapping, or below none; through hugetlb tables, which
    ///      other sharers may free (P59), only under `i_mmap` of their file;
    ///    - the lock of a VMA, and walks below it, with the same exception;
    ///    - the lock of a reverse map, and walks below the mappings in it;
    ///    - a read section of the reclamation scheme's domain, begun before the walk;
    ///    - interrupts off, on a CPU that is in the CPU mask: TLB flushes wait for it;
    ///    - the only handle of the address space, or a system in which nothing runs.
    #[inline(always)]
    pub(crate) const unsafe fn kept(mm: &'h Mm<M>) -> Self {
        // INVARIANT: 1: 1 of this function.
        Self { mm }
    }

    /// The address space.
    #[inline(always)]
    pub(crate) const fn mm(self) -> &'h Mm<M> {
        self.mm
    }

    /// Traverses the tables to the leaf entry for `addr`.
    #[inline(always)]
    pub(crate) fn walk(self, addr: VirtAddr) -> Walk<'h, M> {
        // SAFETY: 1: the hold keeps them as long as `'h`.
        unsafe { walk::<M>(&self.mm.system().at, self.mm.root, addr) }
    }

    /// The leaf entry for `addr`, if there is a table for it.
    #[inline(always)]
    pub(crate) fn leaf(self, addr: VirtAddr) -> Option<Leaf<'h, M>> {
        match self.walk(addr) {
            Walk::Leaf(leaf) => Some(leaf),
            Walk::Missing(_) => None,
        }
    }

    /// The entry that maps, or would map, a huge page at `addr`, if there is a table for it; else
    /// the entry below which one is missing.
    pub(crate) fn huge_entry(
        self,
        size: HugeSize,
        addr: VirtAddr,
    ) -> Result<Leaf<'h, M>, Missing<'h, M>> {
        // SAFETY: 1: the hold keeps them as long as `'h`.
        unsafe { walk_to::<M>(&self.mm.system().at, self.mm.root, addr, size.level()) }
    }

    /// The part of `within` from `at` on for which one walk answers, and the table of leaf entries
    /// that it ends at; none where no page of the smallest size is mapped in that part.
    pub(crate) fn part(self, at: VirtAddr, within: VirtRange) -> (Option<Leaf<'h, M>>, VirtRange) {
        let rest = VirtRange::new(at, within.end());
        match self.walk(at) {
            Walk::Leaf(leaf) => (Some(leaf), span_of::<M::Paging>(at, 1).intersect(rest)),
            Walk::Missing(Missing { level, .. }) => {
                (None, span_of::<M::Paging>(at, level).intersect(rest))
            }
        }
    }

    /// The next table of leaf entries at or after `at` within `range`, and the part of `range` that
    /// it covers; moves `at` behind it.
    pub(crate) fn next_table(
        self,
        at: &mut VirtAddr,
        range: VirtRange,
    ) -> Option<(Leaf<'h, M>, VirtRange)> {
        while *at < range.end() {
            match self.walk(*at) {
                Walk::Leaf(leaf) => {
                    let rest = VirtRange::new(*at, range.end());
                    let part = span_of::<M::Paging>(*at, 1).intersect(rest);
                    *at = part.end();
                    return Some((leaf, part));
                }
                Walk::Missing(Missing { table, level, .. }) => {
                    *at = self.behind_missing(table, level, *at, range.end());
                }
            }
        }
        None
    }

    /// The first address behind the entry for `at` of `table` whose entry there leads to a table;
    /// where there is none, the end of what the table covers, or `end`. Without walks from the
    /// root, which are as many as a range without tables has entries.
    fn behind_missing(self, table: Pfn, level: u32, at: VirtAddr, end: VirtAddr) -> VirtAddr {
        let table = self.table(table, level);
        let shift = span_shift::<M::Paging>(level);
        let behind = span_of::<M::Paging>(at, level).end();
        let last = index_of::<M::Paging>(at, level) as u64;
        // As many as the table has behind it, and `end` is not before.
        let left = end.0.saturating_sub(behind.0).div_ceil(1 << shift);
        let all = entries_of::<M::Paging>(level).min(last + 1 + left);
        let mut next = last as usize + 1;
        let mut found = None;
        while let Some((index, value)) = table.used_from(next, all as usize, level) {
            if value.is_table_at(level) {
                found = Some(VirtAddr(behind.0 + ((index as u64 - last - 1) << shift)));
                break;
            }
            next = index + 1;
        }
        self.was_kept(table.pfn());
        found.unwrap_or(VirtAddr(behind.0 + ((all - last - 1) << shift)).min(end))
    }

    /// A table that was read entry by entry was kept meanwhile: past the access hook, for an
    /// oracle.
    #[inline(always)]
    fn was_kept(self, table: Pfn) {
        if M::CHECKED && self.mm.system().frames.get(table).used_as() != Use::Table {
            M::violation(format_args!(
                "page table {table} was freed while a walk under a lock read it"
            ));
        }
    }

    /// A table of level `level` that is freed leads to no other: past the access hook, for an
    /// oracle.
    #[inline(always)]
    pub(crate) fn has_no_tables(self, table: Pfn, level: u32) {
        if M::CHECKED && level > 0 {
            let entries = 0..entries_of::<M::Paging>(level) as usize;
            let table = self.table(table, level);
            for index in entries {
                let below = table.entry(index).peek();
                if below.is_table_at(level) {
                    M::violation(format_args!(
                        "page table {} is freed, and entry {index} leads to another: frame {}",
                        table.pfn(),
                        below.pfn()
                    ));
                }
            }
        }
    }

    /// A table that a walk came to, of level `level`.
    #[inline(always)]
    pub(crate) fn table(self, table: Pfn, level: u32) -> Table<'h, M> {
        // SAFETY: 1: the walk found it to be one, and the lock keeps it as long as `'h`.
        unsafe { Table::<M>::at(&self.mm.system().at, table, level) }
    }

    /// The entry for `addr` in a table of leaf entries that a walk came to.
    #[inline(always)]
    pub(crate) fn entry(self, table: Pfn, addr: VirtAddr) -> EntryRef<'h, M> {
        self.table(table, 0).entry_for(addr, 0)
    }

    /// Calls `visit` with each page of `part` and its entry, under the lock of their table.
    pub(crate) fn each_entry(
        self,
        leaf: Leaf<'_, M>,
        part: VirtRange,
        mut visit: impl FnMut(VirtRange, EntryRef<'h, M>),
    ) {
        let _held = self.mm.table_lock(leaf.table).lock();
        for page in pages::<M>(part) {
            visit(page, self.entry(leaf.table, page.start()));
        }
    }

    /// Walks as the hardware does. Interrupts are off.
    #[inline(always)]
    pub(crate) fn hardware_walk(self, addr: VirtAddr, access: Access) -> Hardware {
        // SAFETY: 1: the hold keeps them as long as `'h`.
        unsafe { hardware_walk::<M>(&self.mm.system().at, self.mm.root, addr, access) }
    }
}

/// Interrupts are off, and this CPU is in the CPU mask, until this is dropped.
pub(crate) struct AsHardware<'m, M: Mmu> {
    mm: &'m Mm<M>,
    addr: VirtAddr,
    irq: Irq,
}

impl<M: Mmu> AsHardware<'_, M> {
    /// The tables, as long as interrupts are off.
    #[inline(always)]
    pub(crate) const fn tables(&self) -> Tables<'_, M> {
        // SAFETY: 1: a table is freed after the CPUs of the mask have acknowledged an
        // invalidation, and this one does that with interrupts on.
        unsafe { Tables::kept(self.mm) }
    }
}

impl<M: Mmu> Drop for AsHardware<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.mm.system().lacks(NegativeControl::JoinsAfterWalk) {
            self.mm.joins_arena(self.addr);
        }
        M::irq_restore(self.irq);
    }
}

/// The entries for `range` of a table of level `level` that covers it: from the first up to the one
/// behind the last.
#[inline(always)]
pub(crate) fn indices<M: Mmu>(range: VirtRange, level: u32) -> (usize, usize) {
    let last = VirtAddr(range.end().0.saturating_sub(1));
    let index = |addr| index_of::<M::Paging>(addr, level);
    (index(range.start()), index(last) + 1)
}

/// The page that is `behind` as many others as from `start` on.
#[inline(always)]
pub(crate) fn page_at<M: Mmu>(start: VirtAddr, behind: usize) -> VirtRange {
    let start = start.0 + ((behind as u64) << M::Paging::shift());
    VirtRange::new(VirtAddr(start), VirtAddr(start + M::Paging::page()))
}

/// The pages of a range, each as a range.
pub(crate) fn pages<M: Mmu>(range: VirtRange) -> impl Iterator<Item = VirtRange> {
    let shift = M::Paging::shift();
    (range.start().page(shift)..range.end().page(shift)).map(move |page| {
        let start = page << shift;
        VirtRange::new(VirtAddr(start), VirtAddr(start + M::Paging::page()))
    })
}

impl<M: Mmu> Mm<M> {
    /// The right to walk the tables to `addr` as the hardware of this CPU does; none where the walk
    /// ends above, since the CPU does not have that arena yet.
    #[inline(always)]
    pub(crate) fn as_hardware(&self, addr: VirtAddr) -> Option<AsHardware<'_, M>> {
        let irq = M::irq_save();
        if !self.enters(addr) {
            M::irq_restore(irq);
            return None;
        }
        let mm = self;
        Some(AsHardware { mm, addr, irq })
    }

    /// The table of level `level` for `addr`, without the door; none where one is missing. For
    /// oracles.
    pub(crate) fn peek_table(&self, addr: VirtAddr, level: u32) -> Option<Pfn> {
        let mut found = self.root;
        for above in (level + 1..M::Paging::levels()).rev() {
            let value = self.peek_in(found, addr, above);
            if !value.is_table_at(above) {
                return None;
            }
            found = value.pfn();
        }
        Some(found)
    }

    /// The current leaf entry for `addr`, read without the access hook; none where a table is
    /// missing. For oracles.
    pub(crate) fn peek_entry(&self, addr: VirtAddr) -> Pte<M::Paging> {
        let mut table = self.root;
        for level in (0..M::Paging::levels()).rev() {
            let value = self.peek_in(table, addr, level);
            if level == 0 {
                return value;
            }
            if !value.is_table_at(level) {
                let size = HugeSize::ALL.into_iter().find(|size| size.level() == level);
                if let Some(size) = size.filter(|_| value.is_present()) {
                    let within = addr.page(M::Paging::shift()) % (1 << size.order::<M::Paging>());
                    let page = Pte::page(Pfn(value.pfn().0 + within), value.grant());
                    return page.with_exec(value.exec());
                }
                break;
            }
            table = value.pfn();
        }
        Pte::none()
    }

    fn peek_in(&self, table: Pfn, addr: VirtAddr, level: u32) -> Pte<M::Paging> {
        // SAFETY: 1: nothing runs while an oracle looks.
        let table = unsafe { Table::<M>::at(&self.system().at, table, level) };
        table.entry(index_of::<M::Paging>(addr, level)).peek()
    }
}
