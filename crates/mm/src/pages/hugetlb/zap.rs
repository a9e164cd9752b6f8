//! Zaps and write-protects huge PTEs of a mapping.
//!
//! A change of one mapping's PTEs must not reach other sharers of its page tables, so the mapping
//! is unshared first, also from a table of which only a part is to be changed: a shared mapping
//! finds its pages again by faults. All of this happens under the locks that exclude faults and
//! under `i_mmap` for writing; the TLB flush completes before `i_mmap` is released
//! ([`super::share`]).
//!
//! Linux: mm/hugetlb.c `__unmap_hugepage_range`, `__hugetlb_zap_begin`, hugetlb_change_protection,
//! hugetlb_unshare_pmds.

use super::{HugeSize, interval};
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::{Hugetlb, NegativeControl};
use crate::entry::allowed::Allowed;
use crate::entry::zap::Zap;
use crate::mm::Mm;
use crate::pages::file::PageCache;
use crate::pages::reserved::lock::HugeLock;
use crate::pages::reserved::own::OwnPages;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{EntryRef, Exchange, Missing, Mmu, Pte, span_of};
use minflt_sync::order::{HugeMapLock, HugeVmaLock};
use minflt_sync::{Cost, Ordering, WriteGuard};

/// What keeps faults off the tables of a mapping, or of all mappings of a file.
pub(super) struct NoFaults<'l, M: Mmu> {
    _map: Option<WriteGuard<'l, HugeMapLock, M>>,
    _vma: Option<WriteGuard<'l, HugeVmaLock, M>>,
}

impl<'l, M: Mmu> NoFaults<'l, M> {
    /// # Context
    /// Sleeps, until the faults that are at it are done.
    pub(super) fn lock(cache: &'l PageCache<M>, lock: Option<&'l HugeLock<M>>) -> Self {
        let by_vma = cache.system().config.hugetlb == Hugetlb::VmaLock;
        Self {
            _map: cache.faults_hold_map().then(|| cache.map_lock.write()),
            _vma: lock.filter(|_| by_vma).map(|lock| lock.sem.write()),
        }
    }
}

impl<M: Mmu> PageCache<M> {
    /// Whether faults hold `map_lock` throughout: then it is held for writing to add or remove a
    /// mapping, or a page table of one.
    pub(crate) fn faults_hold_map(&self) -> bool {
        let sys = self.system();
        let by_map = self.is_huge() && sys.config.hugetlb == Hugetlb::IMmap;
        by_map && !sys.lacks(NegativeControl::HugeUnlocked)
    }
}

impl<M: Mmu> Zap<'_, M> {
    /// Unmaps the huge pages of `part` from a mapping.
    ///
    /// # Context
    /// Under `mmap_lock`, or in an address space without other users. Sleeps; waits for TLB
    /// flushes.
    pub(crate) fn huge(&mut self, vma: &Vma<M>, view: &VmaView, part: VirtRange) {
        let Some(cache) = view.cache::<M>() else {
            return;
        };
        let unlocked = cache.system().lacks(NegativeControl::DiscardUnlocked);
        let _alone = (!unlocked).then(|| NoFaults::lock(cache, vma.huge_lock()));
        let _tree = cache.i_mmap.write();
        self.huge_locked(view.huge_size(), part);
    }

    /// The same for all of a mapping that is being removed: its tables, which are about to be
    /// freed, may no longer be shared. A mapping that stays may still share (P52).
    ///
    /// Linux: `__hugetlb_zap_end`, which removes the VMA's lock for that.
    pub(crate) fn huge_gone(&mut self, vma: &Vma<M>, view: &VmaView) {
        let Some(cache) = view.cache::<M>() else {
            return;
        };
        let _alone = NoFaults::lock(cache, vma.huge_lock());
        let _tree = cache.i_mmap.write();
        if !cache.system().lacks(NegativeControl::GoneStillShares) {
            vma.shares_no_more();
        }
        self.huge_locked(view.huge_size(), view.range);
    }

    /// The same, with the locks that exclude faults held, and `i_mmap` for writing.
    pub(super) fn huge_locked(&mut self, size: HugeSize, part: VirtRange) {
        self.each_huge(size, part, |zap, entry, page| {
            zap.take_huge_out(size, entry, page);
        });
        // The TLB flush completes under the file's lock.
        self.flush();
    }

    /// Unmaps a PTE; returns the frame, if it has no other mapping.
    fn take_huge_out(
        &mut self,
        size: HugeSize,
        entry: EntryRef<'_, M>,
        page: VirtRange,
    ) -> Option<Pfn> {
        let how = self.mm().exchange_of_huge();
        let old = entry.swap(how, Pte::none_at(size.level()));
        if !old.is_mapped() {
            return None;
        }
        self.gather.touch(page);
        // Descriptors of huge pages lie as far apart as those of all their small ones. The entry
        // says which, and its count is an exchange: both are waited for.
        M::charge(Cost::Cold);
        let frame = self.mm().system().huge_frame(old.pfn());
        // ORDERING: AcqRel; no pair: as of other pages.
        let maps = frame.maps.sub(1, Ordering::AcqRel);
        if maps == 0 {
            M::violation(format_args!("map count underflow of frame {}", old.pfn()));
        }
        self.gather.page(old.pfn());
        (maps == 1).then_some(old.pfn())
    }

    /// Throws the huge pages of `part` away, of a mapping that stays.
    ///
    /// # Context
    /// As for [`Self::huge`].
    pub(crate) fn discard_huge(&mut self, vma: &Vma<M>, view: &VmaView, part: VirtRange) {
        let (Some(own), Some(cache)) = (vma.huge_own(), view.cache::<M>()) else {
            return self.huge(vma, view, part);
        };
        let sys = self.mm().system();
        let size = view.huge_size();
        let mut page = size.page_at::<M::Paging>(part.start());
        while page.start() < part.end() {
            let index = view.huge_index::<M::Paging>(page.start());
            let by_vma = sys.config.hugetlb == Hugetlb::VmaLock;
            let held = !sys.lacks(NegativeControl::DiscardUnlocked);
            let by_map = held && cache.faults_hold_map();
            let _map = by_map.then(|| cache.map_lock.write());
            let _one = held.then(|| sys.huge.mutex(cache, index).write());
            let lock = vma.huge_lock().filter(|_| by_vma && held);
            let _tables = lock.map(|lock| lock.sem.write());
            let _tree = cache.i_mmap.write();
            self.huge_own(own, size, (index, page), true);
            page = size.page_at::<M::Paging>(page.end());
        }
    }

    /// Unmaps one page from a private mapping that stays. If `alone`, with the page's mutex held, a
    /// page of its own is reserved for the mapping again, unless the old one has other references.
    ///
    /// A thread that looks up a frame by number holds no mutex, so the mutex does not prove that
    /// there are no other references. A reference kept across the flush does: only the thread that
    /// drops the last one, in one step after which no lookup succeeds, may reserve the page again.
    ///
    /// Linux: `__unmap_hugepage_range` (since df7a6d1f6405).
    pub(super) fn huge_own(
        &mut self,
        own: &OwnPages<M>,
        size: HugeSize,
        (index, page): (u64, VirtRange),
        alone: bool,
    ) {
        let sys = self.mm().system();
        let mut last = None;
        self.each_huge(size, page, |zap, entry, page| {
            let own = |pfn: &Pfn| sys.huge_frame(*pfn).mapping.load(Ordering::Relaxed) == 0;
            let taken = zap.take_huge_out(size, entry, page).filter(own);
            last = taken.filter(|pfn| alone && sys.frames.hold(*pfn, 1));
        });
        // The page is in the pool, and reserved, before the mapping says so.
        self.flush();
        let Some(pfn) = last else { return };
        if !sys.frames.put_restored(pfn) {
            // Another thread has a reference, perhaps by frame number: the reservation is used up,
            // and the page is freed with that reference.
            sys.frames.put(pfn);
        } else if own.used.remove(sys, index, index + 1) != Ok(1) {
            sys.frames.unreserve_huge(size, 1);
        }
    }

    /// Reduces the PTE permissions in `part` to those of the mapping.
    ///
    /// # Context
    /// As for [`Self::huge`]. The mapping's link already has the new attributes, so that no table
    /// is shared by the old ones.
    pub(crate) fn protect_huge(&mut self, vma: &Vma<M>, view: &VmaView, part: VirtRange) {
        let Some(cache) = view.cache::<M>() else {
            return;
        };
        let allowed = Allowed::by(self.mm().system(), view.prot);
        let _alone = NoFaults::lock(cache, vma.huge_lock());
        let _tree = cache.i_mmap.write();
        self.each_huge(view.huge_size(), part, |zap, entry, page| {
            let how = zap.mm().exchange_of_huge();
            if entry
                .update(how, |pte| allowed.of_mapped(pte))
                .is_ok_and(|old| allowed.takes_from(old))
            {
                zap.gather.touch(page);
            }
        });
        self.flush();
    }

    /// Calls `each` with every entry of `part`, under the lock of its table; tables that others
    /// have, too, are left instead.
    fn each_huge(
        &mut self,
        size: HugeSize,
        part: VirtRange,
        mut each: impl FnMut(&mut Self, EntryRef<'_, M>, VirtRange),
    ) {
        let (tables, mm) = (self.tables, self.mm());
        let mut at = part.start();
        while at < part.end() {
            let leaf = match tables.huge_entry(size, at) {
                Ok(leaf) => leaf,
                Err(Missing { level, .. }) => {
                    at = span_of::<M::Paging>(at, level).end();
                    continue;
                }
            };
            if size == HugeSize::Large && tables.unshare_table(at) {
                let left = interval::<M::Paging>(at);
                if !mm.system().lacks(NegativeControl::UnshareWithoutFlush) {
                    self.gather.touch(left);
                }
                at = left.end();
                continue;
            }
            let page = size.page_at::<M::Paging>(at);
            let held = mm.system().huge_lock(leaf.table).lock();
            each(self, leaf.entry, page);
            drop(held);
            if self.gather.is_full() {
                self.flush();
            }
            at = page.end();
        }
    }
}

impl<M: Mmu> Mm<M> {
    /// How entries of huge pages are exchanged, under the lock of their table.
    pub(crate) fn exchange_of_huge(&self) -> Exchange<'_, M> {
        self.exchange_of_tables()
    }
}

impl<M: Mmu> Held<'_, M> {
    /// A mapping is split at `at`: unshares the page table whose interval `at` lies inside.
    ///
    /// # Context
    /// Inside the mapping's write section. Sleeps; waits for TLB flushes.
    ///
    /// Other mappings do not share its tables either until its link has the new attributes.
    ///
    /// Linux: hugetlb_split (since 081056dc00a2), where the file's lock is held from here until the
    /// attributes are changed.
    pub(crate) fn leave_cut_table(self, vma: &Vma<M>, view: &VmaView, at: VirtAddr) {
        let part = interval::<M::Paging>(at);
        let shares = view.is_huge() && view.huge_size() == HugeSize::Large;
        if !shares || !view.flags.has(VmaFlags::SHARED) || part.start() == at {
            return;
        }
        let Some(cache) = view.cache::<M>() else {
            return;
        };
        let mut zap = Zap::begin(self.tables(), part);
        {
            let _alone = NoFaults::lock(cache, vma.huge_lock());
            let _tree = cache.i_mmap.write();
            if !self.system().lacks(NegativeControl::CutStillShared) {
                vma.shares_no_more();
            }
            if self.tables().unshare_table(at) {
                zap.gather.touch(part);
                zap.flush();
            }
        }
        zap.finish();
    }

    /// Whether both ends of `range` are ends of huge pages, where they are in mappings of such.
    ///
    /// Linux: hugetlb_vm_op_split.
    pub(crate) fn cuts_no_huge_page(self, range: VirtRange) -> bool {
        let whole = |at: VirtAddr| {
            let vma = self.find(at);
            vma.is_none_or(|vma| {
                let view = vma.view();
                let inside = view.is_huge() && view.range.start() < at;
                !inside || view.huge_size().is_aligned::<M::Paging>(at)
            })
        };
        whole(range.start()) && whole(range.end())
    }
}
