//! Writeback of dirty pages, without losing a store.
//!
//! # Protocol
//! ```text
//! lock the page, wait for an earlier writeback
//! write-protect its PTEs, by the reverse map; TLB flush
//! clear dirty, set writeback; unlock
//! write the page
//! clear writeback; after an error set dirty again, and report it to the caller
//! after the last page of a sync: flush the device's cache
//! ```
//!
//! # Why it is correct
//! A store before the TLB flush is in the page when it is written. A later store faults, and marks
//! the page dirty before its PTE allows it: the next sync writes it again. The mark is cleared with
//! the page locked, so no mark that a fault sets is lost.
//!
//! A page that reclaim wrote is clean, and yet may be in the device's cache only. So a sync flushes
//! that cache also where no page was dirty.
//!
//! Linux: mm/page-writeback.c write_cache_pages, folio_clear_dirty_for_io; mm/rmap.c folio_mkclean.
//! Dirty pages are found by scanning all cached pages; Linux tags them.

use super::PageCache;
use crate::base::config::NegativeControl;
use crate::base::event::Event;
use crate::base::file::IoError;
use crate::entry::zap::{Only, Zap};
use crate::memory::frame::Frame;
use crate::pages::page::{Locked, Page};
use core::ops::ControlFlow;
use minflt_addr::Pfn;
use minflt_pgtable::{Grant, Mmu};
use minflt_sync::Ordering;

impl<M: Mmu> PageCache<M> {
    /// Writes the dirty pages of the whole file, for good.
    pub(crate) fn write_all(&self) -> Result<(), IoError> {
        self.write_range(0, u64::MAX)
    }

    /// Writes the dirty pages `first` to `last`; waits until they are written, and what was
    /// written before, for good.
    ///
    /// # Context
    /// Sleeps, and waits for the device. The caller holds no lock behind `mmap_lock`.
    ///
    /// # Errors
    /// The device failed. What could not be written stays dirty, and is tried again by the next.
    ///
    /// Linux: vfs_fsync_range.
    pub(crate) fn write_range(&self, first: u64, last: u64) -> Result<(), IoError> {
        let Some(ops) = self.ops else {
            return Ok(());
        };
        let mut failed = None;
        self.index.each(first, last, |index, _| {
            if let Err(error) = self.write_one(index) {
                failed = Some(error);
            }
        });
        // What could be written is kept, even so.
        let flushed = ops.flush();
        failed.map_or(flushed, Err)
    }

    fn write_one(&self, index: u64) -> Result<(), IoError> {
        let Some(page) = self.find(index) else {
            return Ok(());
        };
        let page = page.lock();
        if !page.is(self, index) {
            return Ok(());
        }
        page.await_writeback();
        if !page.frame().is_dirty() {
            return Ok(());
        }
        self.write_locked(page).map(drop)
    }

    /// Writes a dirty page of this file that the caller has locked, and that is not under
    /// writeback. Dropping the cache waits for the write; after the return the cache may be gone.
    ///
    /// # Context
    /// Sleeps for the reverse map's lock, and for the device, with the page not locked.
    ///
    /// # Errors
    /// The device failed; the page stays dirty.
    pub(crate) fn write_locked<'s>(&self, page: Locked<'s, M>) -> Result<Page<'s, M>, IoError> {
        let Some(ops) = self.ops else {
            return Ok(page.unlock());
        };
        let (sys, frame) = (self.system(), page.frame());
        let index = frame.index.load(Ordering::Relaxed);
        if !sys.lacks(NegativeControl::WriteUnprotected) {
            self.protect(index, page.pfn());
        }
        frame.clean();
        frame.begin_writeback();
        let page = page.unlock();
        sys.count(Event::PagesWritten);
        let written = ops.write_page(&sys.at, index, page.pfn());
        if written.is_err() {
            frame.set_dirty();
        }
        sys.files.waits.clear_and_wake(
            page.pfn().0,
            frame.state(),
            Frame::<M>::WRITEBACK,
            Frame::<M>::WAITERS,
        );
        written.map(|()| page)
    }

    /// Takes the right to store from every entry that maps the page.
    ///
    /// Linux: folio_mkclean.
    fn protect(&self, index: u64, pfn: Pfn) {
        let _tree = self.i_mmap.read();
        let _all = self.spans.each(index, index, |part| {
            let mut zap = Zap::begin_only(part.tables, part.range, Only::OfFile);
            zap.change(part.range, |pte| {
                let stores = pte.grant() == Grant::Write || pte.is_dirty();
                (pte.pfn() == pfn && stores).then(|| {
                    let grant = pte.grant().min(Grant::Read);
                    pte.with_grant(grant).clean()
                })
            });
            zap.finish();
            ControlFlow::Continue(())
        });
    }
}
