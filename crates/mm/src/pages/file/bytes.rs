//! pread and pwrite: reads and writes bytes of a file through the page cache.
//!
//! Linux: generic_file_read_iter, shmem_file_read_iter, generic_perform_write.

use super::PageCache;
use crate::base::error::FileError;
use crate::pages::page::Locked;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};

/// Bytes of a file in one frame.
pub(crate) struct Part<'c, M: Mmu> {
    /// The page that has them; none in a hole.
    pub(crate) page: Option<Locked<'c, M>>,
    /// Its frame that has them: the zero page in a hole.
    pub(crate) pfn: Pfn,
    /// Where in the frame.
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

impl<M: Mmu> PageCache<M> {
    /// Reads bytes of one page, as far as the file has them; returns how many. A hole of a file in
    /// memory stays one.
    pub(crate) fn read_part(&self, offset: u64, to: &mut [u8]) -> Result<usize, FileError> {
        let Some(part) = self.part(offset, to.len())? else {
            return Ok(0);
        };
        let (at, to) = (&self.system().at, &mut to[..part.len]);
        match part.page {
            Some(_locked) => M::read_bytes(at, part.pfn, part.offset, to),
            None => to.fill(0),
        }
        Ok(to.len())
    }

    /// Those of `len` bytes of one page that the file has; `None` behind its end.
    pub(crate) fn part(&self, offset: u64, len: usize) -> Result<Option<Part<'_, M>>, FileError> {
        let (index, within) = (offset >> M::Paging::shift(), offset % M::Paging::page());
        let page = if self.is_huge() {
            self.huge_part(offset)
        } else if !self.writes_back() && self.find(index).is_none() {
            None
        } else {
            match self.whole_page(index)? {
                Some(page) => {
                    let pfn = page.pfn();
                    Some((page, pfn))
                }
                None => return Ok(None),
            }
        };
        // With the page locked: what truncation takes away is taken later, or is behind the size.
        let left = self.size().saturating_sub(offset);
        let len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
        let (page, pfn) = match page {
            Some((page, pfn)) => (Some(page), pfn),
            None => (None, self.system().zero_page),
        };
        Ok((len > 0).then_some(Part {
            page,
            pfn,
            offset: within,
            len,
        }))
    }

    /// Writes bytes of one page; the file becomes long enough for them, or, where they cannot be
    /// written, stays as long as it was. The caller holds `resize`.
    pub(crate) fn write_part(&self, offset: u64, from: &[u8]) -> Result<(), FileError> {
        let before = self.size();
        self.grow(offset + from.len() as u64)?;
        let page = match self.whole_page(offset >> M::Paging::shift()) {
            Ok(Some(page)) => page,
            refused => {
                if self.size() > before {
                    // The error that the caller is told is the first one.
                    let _kept = self.resize_alone(before);
                }
                return refused.and(Err(FileError::Io));
            }
        };
        let within = offset % M::Paging::page();
        M::write_bytes(&self.system().at, page.pfn(), within, from);
        page.frame().set_dirty();
        Ok(())
    }
}
