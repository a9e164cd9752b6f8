//! Hugetlb files: allocation and removal of their pages.
//!
//! # Problem
//! A truncation that first removed pages and later found out which faults had been faster would
//! have to undo, in four states of a reservation, what a fault had done.
//!
//! # Idea
//! Set the size first; then remove the pages behind it, under the fault mutex of *every* page
//! number, whether that page exists or not.
//!
//! # Protocol
//! ```text
//! truncate                          fault
//! size                              mutex
//!                                   size: the old one
//! waits for the mutex               allocates, maps the page
//! mutex: unmaps, removes the page   mutex released
//! ```
//! A mapped page is unmapped everywhere, by the file's reverse map. Under `i_mmap` a mapping's lock
//! is only tried; if that fails, truncation releases `i_mmap`, waits for the lock, and keeps it
//! while it walks the file's mappings again. With `i-mmap` a truncation holds `map_lock`
//! throughout.
//!
//! # Why it is correct
//! A fault that takes the mutex first either sees the new size and allocates nothing, or its page
//! is found. One that takes it later sees the new size (P54).
//!
//! mmap extends a file, and reserves pages, with `mmap_lock` held, so not under the lock of the
//! file's size. `reserving` excludes it from truncation and hole punching, which change the same
//! two: a reservation is not withdrawn before the mapping that made it has recorded it.
//!
//! # Cost
//! For each page removed: its fault mutex, its own lock, the locks of the pool, of the file's
//! reservations, and of the page tables that map it. `i_mmap` and the mappings' locks once.
//!
//! Linux: fs/hugetlbfs/inode.c remove_inode_hugepages, hugetlb_unmap_file_folio,
//! hugetlb_vmdelete_list (v6.1).

use super::HugeSize;
use super::zap::NoFaults;
use crate::base::config::{Hugetlb, NegativeControl};
use crate::base::error::FileError;
use crate::base::event::Event;
use crate::base::policy::Policy;
use crate::entry::zap::{Only, Zap};
use crate::memory::alloc::pool::Taking;
use crate::pages::file::{FileHandle, PageCache, clear_bytes, huge_lock_of, own_pages_of};
use crate::pages::interval::Mapped;
use crate::pages::page::{Locked, Page};
use crate::pages::reserved::lock::{HugeLock, KeptLock};
use crate::system::System;
use core::ops::ControlFlow;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Ordering;

/// Why a huge page could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotMade {
    /// The pool has no unreserved page.
    Empty,
    /// No memory for what names it.
    NoMemory,
}

impl<M: Mmu> System<M> {
    /// A new file of huge pages, of `bytes` bytes, a multiple of such a page, all zeros: what
    /// hugetlbfs, `memfd_create(MFD_HUGETLB)` and `MAP_HUGETLB` are made of. Pages come from the
    /// pool ([`System::resize_huge_pool`]).
    ///
    /// # Errors
    /// [`FileError::Invalid`] where the size is no multiple, or the format has no huge pages; no
    /// memory.
    pub fn new_huge_file(&self, bytes_of_it: u64) -> Result<FileHandle<'_, M>, FileError> {
        self.new_huge_file_of(HugeSize::Large, bytes_of_it)
    }

    /// The same of pages of size `size`.
    ///
    /// # Errors
    /// [`FileError::Invalid`] where `bytes` is no multiple, or the format has no such pages; no
    /// memory.
    pub fn new_huge_file_of(
        &self,
        size: HugeSize,
        bytes: u64,
    ) -> Result<FileHandle<'_, M>, FileError> {
        if !size.exists::<M::Paging>() || !bytes.is_multiple_of(size.bytes::<M::Paging>()) {
            return Err(FileError::Invalid);
        }
        Ok(self.make_file(None, bytes, Some(size))?)
    }

    /// Clears a huge page, unless it is known to be zeros.
    pub(crate) fn clear_huge(&self, pfn: Pfn, size: HugeSize) {
        if self.huge_frame(pfn).is_zeroed() {
            return;
        }
        for part in pfn.0..pfn.0 + (1 << size.order::<M::Paging>()) {
            M::clear(&self.at, Pfn(part));
        }
    }
}

impl<M: Mmu> PageCache<M> {
    /// Whether its pages are huge, and numbered so.
    pub(crate) const fn is_huge(&self) -> bool {
        self.huge.is_some()
    }

    /// How large they are then.
    pub(crate) fn huge_size(&self) -> HugeSize {
        self.huge.unwrap_or(HugeSize::Large)
    }

    /// The bytes of one, and their number as a power of two.
    fn unit(&self) -> (u64, u32) {
        let size = self.huge_size();
        (size.bytes::<M::Paging>(), size.shift::<M::Paging>())
    }

    /// Huge pages that have bytes of the file.
    pub(crate) fn huge_pages(&self) -> u64 {
        self.size() >> self.unit().1
    }

    /// A new zeroed page, locked, and added to the file.
    ///
    /// # Context
    /// Under the page's mutex; the page is not there, and within the file.
    pub(crate) fn make_huge(&self, index: u64, policy: Policy) -> Result<Locked<'_, M>, NotMade> {
        let sys = self.system();
        let no_memory = |_| NotMade::NoMemory;
        let change = self
            .reserved
            .change(sys, index, index + 1)
            .map_err(no_memory)?;
        let slot = self.slot_of_huge(index).map_err(no_memory)?;
        let taking = match change.missing() {
            0 => Taking::Reserved,
            _ => Taking::Unreserved,
        };
        let pfn = sys
            .frames
            .take_huge(&sys.at, self.huge_size(), (policy, index), taking);
        let pfn = pfn.ok_or(NotMade::Empty)?;
        let frame = sys.huge_frame(pfn);
        sys.clear_huge(pfn, self.huge_size());
        let page = Page::held(sys, pfn).lock();
        frame.mapping.store(self.address(), Ordering::Relaxed);
        frame.index.store(index, Ordering::Relaxed);
        // The file's.
        frame.refs.add(1, Ordering::Relaxed);
        frame.set_uptodate();
        // ORDERING: Release; pairs with [cache-slot].
        slot.store(pfn.0, Ordering::Release);
        // A mapping may have reserved the page meanwhile; the page exists now. Linux:
        // alloc_hugetlb_folio, `map_chg > map_commit`.
        let missing = change.missing();
        let both = missing.saturating_sub(change.add());
        if both > 0 {
            sys.frames.unreserve_huge(self.huge_size(), both);
        }
        sys.huge_frame(pfn).clear_restore_reserve();
        sys.count(Event::HugePagesMade);
        Ok(page)
    }

    /// Gives the file another size, a multiple of a huge page. The caller holds `resize`.
    pub(crate) fn resize_huge(&self, new: u64) -> Result<(), FileError> {
        if !new.is_multiple_of(self.unit().0) {
            return Err(FileError::Invalid);
        }
        // Nobody maps it meanwhile, which may make it longer, and reserve what goes here.
        let _no_mmap = self.reserving.write();
        let _no_faults = NoFaults::lock(self, None);
        let old = self.size();
        self.set_size(new);
        // Pages and reservations may lie behind a former end of the file, too.
        let first = new >> self.unit().1;
        self.made_to.store(first, Ordering::Relaxed);
        let freed = self.drop_huge(first, old);
        let gone = self.reserved.truncate(self.system(), first);
        let unused = gone.saturating_sub(freed);
        let frames = &self.system().frames;
        frames.unreserve_huge(self.huge_size(), unused);
        M::note(format_args!("truncate to {new} returns"));
        Ok(())
    }

    /// Makes a hole of the huge pages from `first` on up to `end`. The caller holds `resize`.
    ///
    /// # Errors
    /// No memory for what is still reserved: the page is there then, and those before it are not.
    pub(crate) fn punch_huge(&self, first: u64, end: u64) -> Result<(), FileError> {
        // Nobody maps it meanwhile, which may make it longer, and reserve what goes here.
        let _no_mmap = self.reserving.write();
        let _no_faults = NoFaults::lock(self, None);
        let inside = self.inside(first, self.size()).min(end.max(first));
        self.unmap_huge(first, inside);
        (first..inside).try_for_each(|index| self.punch_one(index))?;
        let mut done = Ok(());
        if inside < end {
            self.each_cached(inside, end - 1, |index| {
                done = done.and_then(|()| self.punch_one(index));
            });
        }
        done
    }

    /// The same for one page. The reservation of a page that is gone is released to others; a later
    /// fault takes what the pool has left.
    fn punch_one(&self, index: u64) -> Result<(), FileError> {
        let sys = self.system();
        let one = sys.huge.mutex(self, index).write();
        let Some(page) = self.unmapped(index) else {
            return Ok(());
        };
        let page = page.lock();
        let remove = || self.reserved.remove(sys, index, index + 1);
        let late = sys.lacks(NegativeControl::HoleUnreservesLate);
        if !late {
            // Under the mutex: a fault that allocates the page again must not find it reserved. And
            // first, since the rest of the reservation may need memory that is not there.
            remove().map_err(|_| FileError::NoMemory)?;
        }
        self.take_out(index, &page);
        drop(page);
        drop(one);
        if late {
            let _gone = remove();
        }
        Ok(())
    }

    /// Makes a hole of the bytes from `from` up to `to`: of what is not a whole page, zeros. The
    /// caller holds `resize`.
    pub(crate) fn punch_huge_bytes(&self, from: u64, to: u64) -> Result<(), FileError> {
        let (size, _) = self.unit();
        let (first, end) = (from.div_ceil(size), to / size);
        if first > end {
            self.clear_huge_bytes(from, to);
            return Ok(());
        }
        self.clear_huge_bytes(from, first * size);
        self.clear_huge_bytes(end * size, to);
        self.punch_huge(first, end)
    }

    /// The huge page that has `offset`, and the frame of it, if there is one.
    ///
    /// # Context
    /// Sleeps for the page's mutex, which a page that is moved has for as long as it is copied, and
    /// for its lock.
    pub(crate) fn huge_part(&self, offset: u64) -> Option<(Locked<'_, M>, Pfn)> {
        let (bytes, shift) = self.unit();
        let index = offset >> shift;
        // Held until the page is locked: migration locks it first.
        let _one = self.system().huge.mutex(self, index).read();
        let page = self.find(index)?.lock();
        let part = (offset % bytes) >> M::Paging::shift();
        let pfn = Pfn(page.pfn().0 + part);
        Some((page, pfn))
    }

    /// Clears bytes of one page, where there is one.
    fn clear_huge_bytes(&self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (bytes, shift) = self.unit();
        let index = from >> shift;
        let _one = self.system().huge.mutex(self, index).write();
        let Some(page) = self.find(index) else { return };
        let page = page.lock();
        let mut at = from;
        while at < to {
            let end = (at + 1).next_multiple_of(M::Paging::page()).min(to);
            let part = (at % bytes) >> M::Paging::shift();
            let base = at & !(M::Paging::page() - 1);
            let pfn = Pfn(page.pfn().0 + part);
            clear_bytes::<M>(&self.system().at, pfn, at - base, end - base);
            at = end;
        }
    }

    /// The bytes from `offset` on have memory. The caller holds `resize`.
    pub(crate) fn allocate_huge(&self, offset: u64, end: u64) -> Result<(), FileError> {
        let sys = self.system();
        let (bytes, shift) = self.unit();
        let first = offset >> shift;
        let last = end.div_ceil(bytes);
        let before = self.made_to.load(Ordering::Relaxed);
        self.made_to.store(before.max(last), Ordering::Relaxed);
        for index in first..last {
            let _one = sys.huge.mutex(self, index).write();
            if self.find(index).is_none() {
                self.make_huge(index, Policy::DEFAULT)
                    .map_err(|why| match why {
                        NotMade::Empty => FileError::NoSpace,
                        NotMade::NoMemory => FileError::NoMemory,
                    })?;
            }
        }
        // As it was asked for: the last page may lie behind the end, and is there.
        self.grow_to(end);
        Ok(())
    }

    /// Nobody else has the file: drops all pages, and what is reserved.
    pub(crate) fn drop_all_huge(&self) {
        let sys = self.system();
        let mut freed = 0;
        self.each_cached(0, u64::MAX, |index| {
            if let Some(page) = self.find(index) {
                self.take_out(index, &page.lock());
                freed += 1;
            }
        });
        let gone = self.reserved.truncate(sys, 0);
        sys.frames
            .unreserve_huge(self.huge_size(), gone.saturating_sub(freed));
    }

    /// The page behind the last that has bytes of a file of `size` bytes; not before `first`.
    fn inside(&self, first: u64, size: u64) -> u64 {
        size.div_ceil(self.unit().0).max(first)
    }

    /// Removes the pages from `first` on; returns their number. The file had `size` bytes: no fault
    /// allocates a page behind them, so only existing pages are searched there.
    fn drop_huge(&self, first: u64, size: u64) -> u64 {
        let inside = self.inside(first, size);
        self.unmap_huge(first, inside);
        let mut freed = (first..inside).map(|index| self.drop_one(index)).sum();
        self.each_cached(inside, u64::MAX, |index| freed += self.drop_one(index));
        freed
    }

    /// Takes page `index` away from everybody; returns how many there were: one, or none.
    fn drop_one(&self, index: u64) -> u64 {
        let sys = self.system();
        if sys.lacks(NegativeControl::CutSkipsAbsent) && self.find(index).is_none() {
            return 0;
        }
        let _one = sys.huge.mutex(self, index).write();
        let Some(page) = self.unmapped(index) else {
            return 0;
        };
        self.take_out(index, &page.lock());
        1
    }

    /// The page `index`, if there is one, unmapped everywhere. Under its mutex, and `map_lock`.
    fn unmapped(&self, index: u64) -> Option<Page<'_, M>> {
        let page = self.find(index)?;
        if page.frame().maps.load(Ordering::Relaxed) > 0 {
            self.unmap_for_sure(index, &page);
        }
        Some(page)
    }

    /// Unmaps pages `first` up to `end` from the mappings whose locks a trylock gets.
    fn unmap_huge(&self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let sys = self.system();
        let _tree = self.i_mmap.write();
        let mut owners = false;
        let _all = self.each_mapping(first, end - 1, |part| {
            if own_pages_of(&part).is_some() {
                owners = true;
                return ControlFlow::Continue(());
            }
            let lock = self.kept_off_by(&part);
            let tried = lock.map(|lock| lock.sem.try_write());
            if matches!(tried, Some(None)) && !sys.lacks(NegativeControl::WalkUnlocked) {
                sys.count(Event::HugeLockMissed);
                return ControlFlow::Continue(());
            }
            self.unmap_part(part);
            self.is_locked_by(lock, &part);
            ControlFlow::Continue(())
        });
        // Who reserved a page is the last to have it, and has it reserved again.
        let _owners = owners.then(|| {
            self.each_mapping(first, end - 1, |part| {
                if own_pages_of(&part).is_some() {
                    self.unmap_part(part);
                }
                ControlFlow::Continue(())
            })
        });
    }

    /// The lock that keeps faults off a mapping, unless `map_lock` does. Under `i_mmap`.
    fn kept_off_by<'l>(&self, part: &Mapped<'l, M>) -> Option<&'l HugeLock<M>> {
        match self.system().config.hugetlb {
            Hugetlb::IMmap => None,
            Hugetlb::VmaLock => huge_lock_of(part),
        }
    }

    /// Called before that lock is released: it is still the mapping's, as when it was taken (P51).
    fn is_locked_by(&self, lock: Option<&HugeLock<M>>, part: &Mapped<'_, M>) {
        if M::CHECKED {
            let address = |lock: Option<_>| lock.map(core::ptr::from_ref::<HugeLock<M>>);
            if address(lock) != address(self.kept_off_by(part)) {
                M::violation(format_args!(
                    "walk locked one lock of the mapping at {}, but would unlock another",
                    part.range.start()
                ));
            }
        }
    }

    /// The same for one page, until no mapping is left. Under its mutex, and `map_lock`.
    ///
    /// After it has waited for a mapping's lock, it keeps that lock while it visits the others. It
    /// ends when no PTE is left, not when all mappings were visited in one pass: mappings that
    /// fault may share and unshare their tables without end.
    fn unmap_for_sure(&self, index: u64, page: &Page<'_, M>) {
        let sys = self.system();
        let starts_over = sys.lacks(NegativeControl::WalkStartsOver);
        let mut waited: Option<KeptLock<M>> = None;
        while starts_over || page.frame().maps.load(Ordering::Relaxed) > 0 {
            let mut missed = None;
            {
                let _alone = waited.as_ref().map(|lock| lock.get().sem.write());
                let _tree = self.i_mmap.write();
                let _some = self.each_mapping(index, index, |part| {
                    let lock = self.kept_off_by(&part);
                    let ours = waited
                        .as_ref()
                        .zip(lock)
                        .is_some_and(|(waited, lock)| core::ptr::eq(waited.get(), lock));
                    if starts_over && waited.is_some() && !ours {
                        return ControlFlow::Continue(());
                    }
                    let tried = lock.filter(|_| !ours).map(|lock| lock.sem.try_write());
                    if matches!(tried, Some(None)) && !sys.lacks(NegativeControl::WalkUnlocked) {
                        sys.count(Event::HugeLockMissed);
                        missed = lock.map(HugeLock::keep);
                        return ControlFlow::Break(());
                    }
                    self.unmap_part(part);
                    self.is_locked_by(lock, &part);
                    ControlFlow::Continue(())
                });
            }
            let all = missed.is_none() && waited.is_none();
            if let Some(waited) = core::mem::replace(&mut waited, missed) {
                waited.put(sys);
            }
            if starts_over && all {
                break;
            }
        }
        if let Some(waited) = waited {
            waited.put(sys);
        }
    }

    /// Calls `visit` with every mapping of huge pages `first` to `last`. Under `i_mmap`.
    pub(super) fn each_mapping(
        &self,
        first: u64,
        last: u64,
        visit: impl FnMut(Mapped<'_, M>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let order = self.huge_size().order::<M::Paging>();
        let last = (last << order) + ((1 << order) - 1);
        self.spans.each(first << order, last, visit)
    }

    fn unmap_part(&self, part: Mapped<'_, M>) {
        let sys = self.system();
        let size = self.huge_size();
        let mut zap = Zap::begin_only(part.tables, part.range, Only::All);
        match own_pages_of(&part).zip(part.first_page()) {
            Some((own, first)) => {
                let mut index = first >> size.order::<M::Paging>();
                let mut page = size.page_at::<M::Paging>(part.range.start());
                while page.start() < part.range.end() {
                    // Whoever has the page in a fault may refer to it still: then it is used up.
                    let one = sys.huge.mutex(self, index).try_write();
                    zap.huge_own(own, size, (index, page), one.is_some());
                    page = size.page_at::<M::Paging>(page.end());
                    index += 1;
                }
            }
            None => zap.huge_locked(size, part.range),
        }
        zap.finish();
    }
}
