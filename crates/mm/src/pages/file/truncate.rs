//! Truncation and hole punching: unmaps the pages everywhere and removes them from the cache.
//!
//! ```text
//! truncate                                 fault
//! size                                     page locked
//! unmaps the PTEs, by the reverse map      size: still the old one
//! page: waits for its lock                 PTE installed
//!                                          unlocked
//! page locked; it is mapped: unmaps it
//! removes the page from the cache
//! unmaps private copies, once more
//! ```
//! A private copy of a page behind the end is unmapped, too; one of a page in a hole stays, since
//! it is the mapping's own.
//!
//! Linux: mm/truncate.c truncate_pagecache, truncate_inode_pages_range, truncate_cleanup_folio;
//! mm/memory.c unmap_mapping_range.

use super::{PageCache, pages_of};
use crate::base::attrs::VmaFlags;
use crate::base::config::NegativeControl;
use crate::base::error::FileError;
use crate::entry::zap::{Only, Zap};
use core::ops::ControlFlow;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Ordering;

/// More than any page's number.
const LAST: u64 = u64::MAX >> 8;

impl<M: Mmu> PageCache<M> {
    /// Unmaps pages `first` to `last` from every address space, with or without the private copies.
    ///
    /// # Context
    /// Sleeps for `i_mmap`; waits for TLB flushes.
    pub(super) fn unmap(&self, first: u64, last: u64, which: Only) {
        let _tree = self.i_mmap.read();
        let _all = self.spans.each(first, last, |part| {
            let mut zap = Zap::begin_only(part.tables, part.range, which);
            zap.range(part.range);
            zap.finish();
            ControlFlow::Continue(())
        });
    }

    /// Drops the pages `first` to `last`, which no fault maps from now on but one that has a page
    /// locked already.
    fn drop_pages(&self, first: u64, last: u64, which: Only) {
        let lacks = |fix| self.system().lacks(fix);
        self.unmap(first, last, which);
        self.index.each(first, last, |index, _| {
            let Some(page) = self.find(index) else { return };
            let page = page.lock();
            if !page.is(self, index) {
                return;
            }
            page.await_writeback();
            let mapped = page.frame().maps.load(Ordering::Relaxed) > 0;
            if mapped && !lacks(NegativeControl::TruncateUnmapsOnce) {
                self.unmap(index, index, which);
            }
            self.take_out(index, &page);
        });
        if which == Only::All && !lacks(NegativeControl::TruncateUnmapsOnce) {
            self.unmap(first, last, which);
        }
    }

    /// Nobody else has the file: drops all pages.
    pub(super) fn drop_all(&self) {
        self.index.each(0, u64::MAX, |index, _| {
            if let Some(page) = self.find(index) {
                let page = page.lock();
                // Reclaim may be at it, which has nothing but the page.
                page.await_writeback();
                self.take_out(index, &page);
            }
        });
    }

    /// Gives the file another size, and drops what lies behind it.
    pub(crate) fn resize(&self, bytes: u64) -> Result<(), FileError> {
        if bytes > super::LARGEST {
            return Err(FileError::TooLarge);
        }
        let _alone = self.resize.write();
        self.resize_alone(bytes)
    }

    /// The same. The caller holds `resize`.
    pub(super) fn resize_alone(&self, bytes: u64) -> Result<(), FileError> {
        if self.is_huge() {
            return self.resize_huge(bytes);
        }
        let old = self.size.load(Ordering::Relaxed);
        if bytes >= old {
            return self.grow(bytes);
        }
        // What the last page keeps behind its end has to be zeros, also on the device.
        if !bytes.is_multiple_of(M::Paging::page()) {
            self.read_in(bytes >> M::Paging::shift(), VmaFlags::RANDOM)?;
        }
        // ORDERING: Release; pairs with [file-size].
        self.size.store(bytes, Ordering::Release);
        // ORDERING: fence SeqCst; pairs with [file-resize]: the size is there before pages are
        // looked for.
        M::fence(Ordering::SeqCst);
        // Before any page is removed: if the device refuses, the file keeps its pages, too.
        if let Some(Err(error)) = self.ops.map(|ops| ops.resize(bytes)) {
            // ORDERING: Release; pairs with [file-size].
            self.size.store(old, Ordering::Release);
            return Err(error.into());
        }
        self.drop_pages(pages_of::<M>(bytes), LAST, Only::All);
        self.clear(bytes, bytes.next_multiple_of(M::Paging::page()));
        M::note(format_args!("truncate to {bytes} returns"));
        Ok(())
    }

    /// Makes the file longer, if it is not as long as that. The caller holds `resize`.
    pub(crate) fn grow(&self, bytes: u64) -> Result<(), FileError> {
        if bytes > self.size.load(Ordering::Relaxed) {
            self.ops.map_or(Ok(()), |ops| ops.resize(bytes))?;
            // ORDERING: Release; pairs with [file-size].
            self.size.store(bytes, Ordering::Release);
        }
        Ok(())
    }

    /// Clears the bytes from `from` up to `to`, which lie in one page, where that is cached.
    fn clear(&self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let index = from >> M::Paging::shift();
        let Some(page) = self.find(index) else {
            return;
        };
        let page = page.lock();
        if page.is(self, index) && page.frame().is_uptodate() {
            let base = index << M::Paging::shift();
            clear_bytes::<M>(&self.system().at, page.pfn(), from - base, to - base);
            page.frame().set_dirty();
        }
    }

    /// Makes a hole: the bytes from `from` up to `to` are zeros.
    pub(crate) fn punch(&self, from: u64, to: u64) -> Result<(), FileError> {
        let _alone = self.resize.write();
        if self.is_huge() {
            return self.punch_huge_bytes(from, to);
        }
        let shift = M::Paging::shift();
        let to = to.min(self.size().next_multiple_of(M::Paging::page()));
        if from >= to {
            return Ok(());
        }
        let (first, end) = (pages_of::<M>(from), to >> shift);
        if first > end {
            return self.clear_read(from, to);
        }
        self.clear_read(from, first << shift)?;
        self.clear_read(end << shift, to)?;
        if first == end {
            return Ok(());
        }
        if self.ops.is_none() {
            self.drop_pages(first, end - 1, Only::OfFile);
            return Ok(());
        }
        // A device has no holes of its own: zeros are written.
        for index in first..end {
            self.clear_read(index << shift, (index + 1) << shift)?;
        }
        Ok(())
    }

    /// The same, of a page that is read in where it is not cached.
    fn clear_read(&self, from: u64, to: u64) -> Result<(), FileError> {
        if from < to {
            self.read_in(from >> M::Paging::shift(), VmaFlags::RANDOM)?;
            self.clear(from, to);
        }
        Ok(())
    }

    /// The bytes from `offset` on are there: the file is as long as that, and its pages have
    /// memory, if it is memory.
    pub(crate) fn allocate(&self, offset: u64, len: u64) -> Result<(), FileError> {
        let end = offset.checked_add(len).filter(|end| *end <= super::LARGEST);
        let end = end.ok_or(FileError::TooLarge)?;
        let _alone = self.resize.write();
        if self.is_huge() {
            return self.allocate_huge(offset, end);
        }
        self.grow(end)?;
        if self.ops.is_none() {
            for index in offset >> M::Paging::shift()..pages_of::<M>(end) {
                drop(self.seek(index)?);
            }
        }
        Ok(())
    }
}

/// Clears the bytes from `from` up to `to` of a user frame. Others may store to the words around.
pub(crate) fn clear_bytes<M: Mmu>(at: &M::Instance, pfn: Pfn, from: u64, to: u64) {
    let mut offset = from & !7;
    while offset < to {
        let skipped = from.saturating_sub(offset);
        let kept = (offset + 8).saturating_sub(to);
        let mask = (u64::MAX << (8 * skipped)) & (u64::MAX >> (8 * kept));
        let mask = u64::from_ne_bytes(mask.to_le_bytes());
        if M::user_load(at, pfn, offset) & mask != 0 {
            M::user_merge(at, pfn, offset, 0, mask);
        }
        offset += 8;
    }
}
