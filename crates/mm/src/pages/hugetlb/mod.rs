//! Hugetlb: files of huge pages, and page tables shared by address spaces.
//!
//! # Problem
//! Processes that map the same large file each have page tables for it: with 2 MiB pages still one
//! table per gigabyte and process. And a huge page is rarely available on demand unless memory was
//! reserved beforehand.
//!
//! # Idea
//! Pages come from a pool ([`pool`], [`resize`]), and mappings reserve theirs at mmap ([`reserve`],
//! [`own`]). A huge page is mapped by an entry above the leaves, the higher the larger the page
//! ([`HugeSize`]): a file has pages of one size. A table of level-1 entries covers an *interval* of
//! addresses, and mappings that have the same pages of a file in an interval share one table
//! ([`share`]); larger pages have few tables, and share none.
//!
//! # Protocol
//! A shared table may be unshared from a mapping at any time ([`share`]), also by truncation in
//! another process. What a fault holds against that is a choice, [`Hugetlb`]:
//!
//! | choice | a fault holds | a thread that unshares holds |
//! |---|---|---|
//! | `i-mmap` | the file's `map_lock`, for reading | it, for writing |
//! | `vma-lock` | the mapping's lock ([`lock`]), for reading | it, for writing |
//!
//! and the file's `i_mmap` for writing, under which other mappings look for tables to share. With
//! the second choice a mapping can be added (fork, mmap) while faults run.
//!
//! Faults on one page of a file are serialised by a *fault mutex*, one of a fixed number, chosen by
//! file and page. Of two faults that need the pool's last page for the same page of the file, the
//! second then finds the page that the first installed (P55). Truncation takes the mutex of each
//! page that it removes: an earlier fault has installed its page, which truncation unmaps; a later
//! one sees the new size ([`file`]).
//!
//! Lock order: `reserving` (mmap, truncation, hole punching), `map_lock`, fault mutex, the
//! mapping's lock, folio lock, `i_mmap`, page-table lock. A holder of `i_mmap` only trylocks a
//! mapping's lock.
//!
//! # Why it is correct
//! A PTE is written under the lock of its table, which is in the table's own descriptor in every
//! protocol, since two address spaces may share the table. The table stays this address space's
//! while either lock is held, so a fault installs into a table of its own address space (P47).
//!
//! # Cost
//! A fault that takes a page from the pool: the page's fault mutex, the lock of its mapping, the
//! page's own, the table's and the pool's, and the file's reservations twice. With `i-mmap`, all
//! faults of all processes on a file write the cache line of one lock, though they take it for
//! reading.
//!
//! Migration holds the page's fault mutex and `i_mmap` ([`migrate`]).
//!
//! Other processes read, write and pin the pages as they do small ones; a pinned page of a private
//! mapping is exclusive, and a fork copies it ([`fork`]).
//!
//! Not implemented: surplus pages, mounts with limits, cgroups; userfaultfd.
//!
//! Linux: mm/hugetlb.c, fs/hugetlbfs/inode.c.
//!
//! [`Hugetlb`]: crate::base::config::Hugetlb

mod file;
mod fork;
mod migrate;
mod remap;
mod resize;
pub(crate) mod share;
mod zap;

#[cfg(test)]
mod tests;

use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::check::Check;
use crate::base::config::Config;
use crate::base::huge_size::HugeSize;
use crate::entry::table::is_table;
use crate::memory::frame::Frame;
use crate::pages::file::PageCache;
use crate::pages::reserved::{lock::HugeLock, own::OwnPages, reserve::Region};
use crate::system::System;
pub(crate) use file::NotMade;
pub(crate) use migrate::HugeSeen;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging, PtLock, span_of};
use minflt_sync::order::HugeFaultLock;
use minflt_sync::slab::{Magazine, Pages};
use minflt_sync::{PerCpu, RwSem, Slab};

/// The level of the entries whose tables can be shared.
const LEVEL: u32 = HugeSize::Large.level();

/// Where a fault on a page of huge size waits for others on the same page.
#[derive(Debug)]
pub(crate) struct FaultMutex<M: Mmu>(RwSem<HugeFaultLock, M>);

impl<M: Mmu> FaultMutex<M> {
    /// What makes them.
    pub(crate) fn by(config: &Config) -> impl FnMut(u32) -> Self + use<M> {
        let succession = config.sleeping_locks.of_mutex();
        move |_| Self(RwSem::new(succession))
    }
}

/// A system's hugetlb state other than the pools.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Huge<M: Mmu> {
    mutexes: PerCpu<FaultMutex<M>, M>,
    count: u32,
    pub(crate) locks: Slab<HugeLock<M>, M>,
    pub(crate) owns: Slab<OwnPages<M>, M>,
    pub(crate) regions: Slab<Region<M>, M>,
}

impl<M: Mmu> Huge<M> {
    /// How many fault mutexes a machine of `cpus` CPUs has.
    ///
    /// Linux: `num_fault_mutexes`.
    pub(crate) const fn mutexes(cpus: u32) -> u32 {
        (8 * cpus).next_power_of_two()
    }

    pub(crate) fn new(
        mutexes: PerCpu<FaultMutex<M>, M>,
        cpus: u32,
        [regions, locks, owns]: [PerCpu<Magazine<M>, M>; 3],
    ) -> Self {
        Self {
            mutexes,
            count: Self::mutexes(cpus),
            regions: Slab::new(12, regions, Pages::Leave),
            locks: Slab::new(13, locks, Pages::Leave),
            owns: Slab::new(14, owns, Pages::Leave),
        }
    }

    /// The mutex of page `index` of a file.
    ///
    /// Linux: hugetlb_fault_mutex_hash.
    pub(crate) fn mutex(&self, cache: &PageCache<M>, index: u64) -> &RwSem<HugeFaultLock, M> {
        let key = cache.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index;
        let mixed = (key ^ key >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let place = (mixed ^ mixed >> 29) as u32 & (self.count - 1);
        &self.mutexes.get(place).0
    }

    /// The number of the mutex that lies at a host address: for names.
    pub(crate) fn mutex_at(&self, at: usize) -> Option<u32> {
        self.mutexes.find(at).map(|(number, _)| number)
    }
}

/// The addresses that one table of huge pages covers.
///
/// Linux: the `PUD_SIZE` interval.
pub(crate) fn interval<P: Paging>(addr: VirtAddr) -> VirtRange {
    span_of::<P>(addr, LEVEL + 1)
}

/// Whether tables of huge pages can be shared at all: they are not the root.
pub(crate) fn has_intervals<P: Paging>() -> bool {
    P::levels() > LEVEL + 1
}

impl VmaView {
    /// Whether its pages are huge.
    #[inline(always)]
    #[must_use]
    pub const fn is_huge(&self) -> bool {
        self.flags.has(VmaFlags::HUGETLB)
    }

    /// What another mapping has to be alike in to share its tables of huge pages; 0 where it shares
    /// none.
    ///
    /// Linux: page_table_shareable, which leaves out `VM_LOCKED`, too.
    pub(crate) fn sharing_kind(&self) -> u64 {
        let locked = VmaFlags::LOCKED.with(VmaFlags::LOCKED_ON_FAULT);
        let flags = u64::from(self.flags.without(locked).bits());
        match self.flags.has(VmaFlags::SHARED) {
            true => 1 << 63 | flags << 3 | u64::from(self.prot.bits()),
            false => 0,
        }
    }
}

impl<M: Mmu> System<M> {
    /// The lock of a table of huge pages: in its descriptor, whatever the protocol.
    ///
    /// Linux: huge_pte_lock.
    pub(crate) fn huge_lock(&self, table: Pfn) -> &PtLock<M> {
        &self.frames.get(table).table_lock
    }

    /// The descriptor of the huge page that begins with a frame.
    pub(crate) fn huge_frame(&self, pfn: Pfn) -> &Frame<M> {
        self.frames.get(pfn)
    }
}

impl<M: Mmu> crate::mm::Mm<M> {
    /// Whether `table`, in which a fault has just written the PTE of `addr` under the table's lock,
    /// is still a table of this address space. Bypasses the access hook.
    pub(crate) fn has_huge_table(&self, size: HugeSize, addr: VirtAddr, table: Pfn) {
        if !M::CHECKED {
            return;
        }
        let sys = self.system();
        sys.looked(Check::Walk);
        let Some(found) = self.peek_table(addr, size.level()) else {
            M::violation(format_args!(
                "page table {table} unlinked during a fault at {addr}"
            ));
        };
        if found != table {
            M::violation(format_args!(
                "fault at {addr} uses page table {table}, but {found} is linked"
            ));
        }
        is_table(sys, table);
    }

    /// The table of huge pages for `addr`, if there is one: for scenes, while nothing runs.
    #[doc(hidden)]
    #[must_use]
    pub fn huge_table_for(&self, addr: VirtAddr) -> Option<Pfn> {
        self.peek_table(addr, HugeSize::Large.level())
    }
}
