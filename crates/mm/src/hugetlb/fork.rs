//! Huge pages of a private mapping, shared with a child until one of the two stores.
//!
//! A shared mapping's entries are not copied: the child's faults find the pages, or a table to
//! share. Linux: mm/hugetlb.c copy_hugetlb_page_range; bcd51a3c679d.

use super::HugeSize;
use super::migrate::is_moving;
use crate::config::Broken;
use crate::error::NoMemory;
use crate::event::Event;
use crate::frame::Exclusive;
use crate::mm::Mm;
use crate::vma::{VmaFlags, VmaView};
use crate::zap::Zap;
use minflt_addr::VirtAddr;
use minflt_pgtable::{EntryRef, Grant, Missing, Mmu, Pte, span_of};
use minflt_sync::Ordering;

impl<M: Mmu> Zap<'_, M> {
    /// Shares the pages of a private mapping with a child that nobody else has yet. The caller has
    /// the mapping's section open, and `mmap_lock` for writing.
    ///
    /// # Errors
    /// No memory for the child's tables.
    pub(crate) fn share_huge(&mut self, view: &VmaView, child: &Mm<M>) -> Result<(), NoMemory> {
        if view.flags.has(VmaFlags::SHARED) {
            return Ok(());
        }
        let (mm, sys) = (self.mm, self.mm.system());
        let size = view.huge_size();
        let mut at = view.range.start();
        while at < view.range.end() {
            let leaf = match mm.huge_entry(size, at) {
                Ok(leaf) => leaf,
                Err(Missing { level, .. }) => {
                    at = span_of::<M::Paging>(at, level).end();
                    continue;
                }
            };
            let page = size.page_at::<M::Paging>(at);
            let found = leaf.entry.load();
            if is_moving::<M>(size, found) && self.awaits_move(view) {
                continue;
            }
            at = page.end();
            if !found.is_mapped() {
                continue;
            }
            let copy = child.huge_entry_for(size, page.start())?;
            let _held = sys.huge_lock(leaf.table).lock();
            let lower = |pte: Pte<M::Paging>| {
                pte.is_mapped()
                    .then(|| pte.with_grant(pte.grant().min(Grant::Read)))
            };
            let old = match leaf.entry.update(mm.exchange_of_huge(), lower) {
                Ok(old) => old,
                Err(found) => {
                    // Put away since it was looked at.
                    if is_moving::<M>(size, found) {
                        at = page.start();
                    }
                    continue;
                }
            };
            self.gather.touch(page);
            let frame = sys.huge_frame(old.pfn());
            frame.refs.add(1, Ordering::Relaxed);
            frame.maps.add(1, Ordering::Relaxed);
            frame.set_exclusive(Exclusive::No);
            copy.store(old.with_grant(old.grant().min(Grant::Read)).old());
            sys.count(Event::ForkEntries);
        }
        Ok(())
    }
}

impl<M: Mmu> Zap<'_, M> {
    /// Waits until whoever moves a page of the mapping is done with it: its entry has to be looked
    /// at again then.
    ///
    /// # Context
    /// Sleeps for `i_mmap`.
    #[cold]
    fn awaits_move(&self, view: &VmaView) -> bool {
        let sys = self.mm.system();
        let Some(cache) = view.cache::<M>() else {
            return false;
        };
        sys.count(Event::MigrationWaits);
        drop(cache.i_mmap.read());
        !sys.config.lacks(Broken::ForkSkipsMoving)
    }
}

impl<M: Mmu> Mm<M> {
    /// The entry for the huge page at `addr`, with the tables above it put in where they are
    /// missing. Nobody else has this address space, or puts tables in there.
    pub(super) fn huge_entry_for(
        &self,
        size: HugeSize,
        addr: VirtAddr,
    ) -> Result<EntryRef<'_, M>, NoMemory> {
        let sys = self.system();
        loop {
            match self.huge_entry(size, addr) {
                Ok(leaf) => return Ok(leaf.entry),
                Err(Missing { entry, level, .. }) => {
                    debug_assert!(level > size.level(), "there is a table of huge pages");
                    let table = Self::new_table(sys, level - 1).ok_or(NoMemory)?;
                    entry.store(Pte::table(table, level));
                    sys.count(Event::TablesInstalled);
                }
            }
        }
    }
}
