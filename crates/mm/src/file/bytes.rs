//! Reading and writing a file by calls, as pread and pwrite do.
//!
//! Linux: generic_file_read_iter, shmem_file_read_iter, generic_perform_write.

use super::{FileHandle, PageCache};
use crate::bytes;
use crate::error::FileError;
use minflt_pgtable::{Mmu, Paging};

impl<M: Mmu> PageCache<M> {
    /// Reads bytes of one page, as far as the file has them; returns how many. A hole of a file in
    /// memory stays one.
    fn read_part(&self, offset: u64, to: &mut [u8]) -> Result<usize, FileError> {
        let at = &self.system().at;
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
                None => return Ok(0),
            }
        };
        // With the page locked: what truncation takes away is taken later, or is behind the size.
        let left = self.size().saturating_sub(offset);
        let len = to.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match page {
            Some((_locked, pfn)) => bytes::load::<M>(at, pfn, within, &mut to[..len]),
            None => to[..len].fill(0),
        }
        Ok(len)
    }

    /// Writes bytes of one page; the file becomes long enough for them, or, where they cannot be
    /// written, stays as long as it was. The caller holds `resize`.
    fn write_part(&self, offset: u64, from: &[u8]) -> Result<(), FileError> {
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
        bytes::store::<M>(&self.system().at, page.pfn(), within, from);
        page.frame().set_dirty();
        Ok(())
    }
}

/// How many of `len` bytes from `offset` on lie in its page.
fn in_page<M: Mmu>(offset: u64, len: usize) -> usize {
    len.min((M::Paging::page() - offset % M::Paging::page()) as usize)
}

impl<M: Mmu> FileHandle<'_, M> {
    /// Reads into `to` from `offset` on; returns how many bytes: fewer than asked for where the
    /// file ends, 0 behind its end. Holes are zeros, and stay holes.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device. Page by page: a write at the same time may
    /// be seen in part.
    ///
    /// # Errors
    /// See [`FileError`], where not even the first byte can be read. `Invalid`: more than one word,
    /// on a machine whose user frames keep one ([`Mmu::ONE_WORD`]).
    ///
    /// Linux: pread.
    pub fn read_bytes_at(&self, offset: u64, to: &mut [u8]) -> Result<usize, FileError> {
        if !bytes::can_copy::<M>(offset, to.len()) {
            return Err(FileError::Invalid);
        }
        let cache = self.cache();
        let mut done = 0;
        while done < to.len() {
            let Some(at) = offset.checked_add(done as u64) else {
                break;
            };
            let part = in_page::<M>(at, to.len() - done);
            let to = &mut to[done..done + part];
            let read = match self.call(|| cache.read_part(at, to)) {
                Ok(read) => read,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += read;
            if read < part {
                break;
            }
        }
        Ok(done)
    }

    /// Writes the bytes of `from` from `offset` on; returns how many could be written. The file
    /// becomes long enough for them, and what lies between its old end and `offset` is zeros.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device. Other writes and changes of the size wait
    /// until it is done, unless memory is short; a read at the same time may see a part.
    ///
    /// # Errors
    /// See [`FileError`], where not even the first byte can be written; the file is as long as it
    /// was. `Invalid`: more than one word, on a machine whose user frames keep one
    /// ([`Mmu::ONE_WORD`]), or a file of huge pages, which can be mapped only.
    ///
    /// Linux: pwrite.
    pub fn write_bytes_at(&self, offset: u64, from: &[u8]) -> Result<usize, FileError> {
        self.writable()?;
        let cache = self.cache();
        if cache.is_huge() || !bytes::can_copy::<M>(offset, from.len()) {
            // Linux: hugetlbfs has no write.
            return Err(FileError::Invalid);
        }
        let room = super::LARGEST.saturating_sub(offset);
        let len = from.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if len == 0 && !from.is_empty() {
            return Err(FileError::TooLarge);
        }
        let mut done = 0;
        let written = self.call(|| {
            let _alone = cache.resize.write();
            while done < len {
                let at = offset + done as u64;
                let part = in_page::<M>(at, len - done);
                cache.write_part(at, &from[done..done + part])?;
                done += part;
            }
            Ok(())
        });
        match written {
            Err(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }
}
