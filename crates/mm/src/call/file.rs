//! Calls on a file.
//!
//! Linux: generic_file_read_iter, shmem_file_read_iter, generic_perform_write, ftruncate,
//! fallocate, fsync.

use crate::base::bytes;
use crate::base::error::{FileError, NoMemory};
use crate::base::file::IoError;
use crate::memory::lifetime::as_call;
use crate::pages::file::{FileAccess, FileHandle, FileOps, LARGEST};
use crate::system::System;
use minflt_pgtable::{Mmu, Paging};

impl<M: Mmu> System<M> {
    /// A new file of `bytes` bytes that is memory only, all zeros: what tmpfs, memfd and shared
    /// anonymous memory are made of.
    ///
    /// # Errors
    /// No memory, or too large.
    pub fn new_file(&self, bytes: u64) -> Result<FileHandle<'_, M>, NoMemory> {
        as_call(self, || {
            self.with_memory(|| self.make_file(None, bytes, None))
        })
    }

    /// A file of `bytes` bytes whose pages are read and written by `ops`. Each call creates another
    /// page cache; a file must have only one.
    ///
    /// # Errors
    /// No memory, or too large; `ops` then is not released.
    pub fn open_file(
        &self,
        ops: &'static dyn FileOps<M>,
        bytes: u64,
    ) -> Result<FileHandle<'_, M>, NoMemory> {
        as_call(self, || {
            self.with_memory(|| self.make_file(Some(ops), bytes, None))
        })
    }
}

impl<M: Mmu> FileHandle<'_, M> {
    /// Does what a call on the file does, again where memory was short.
    pub(super) fn call<T, E>(&self, body: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        as_call(self.sys, || self.sys.with_memory(body))
    }

    /// That it may be written.
    pub(super) fn writable(&self) -> Result<(), FileError> {
        match self.access {
            FileAccess::ReadWrite => Ok(()),
            FileAccess::Read => Err(FileError::ReadOnly),
        }
    }

    /// The word at `offset`, a multiple of 8; none behind the end of the file.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn read_word(&self, offset: u64) -> Result<Option<u64>, FileError> {
        let (index, within) = split::<M>(offset)?;
        if offset >= self.bytes() {
            return Ok(None);
        }
        let sys = self.cache().system();
        if self.cache().is_huge() {
            let there = self.cache().huge_part(offset);
            let word = there.map(|(_page, pfn)| M::user_load(&sys.at, pfn, within));
            return Ok(Some(word.unwrap_or(0)));
        }
        let page = self.call(|| self.cache().whole_page(index))?;
        Ok(page.map(|page| M::user_load(&sys.at, page.pfn(), within)))
    }

    /// Writes the word at `offset`, a multiple of 8; the file becomes long enough for it.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn write_word(&self, offset: u64, value: u64) -> Result<(), FileError> {
        self.writable()?;
        let (index, within) = split::<M>(offset)?;
        let end = offset.checked_add(8).filter(|end| *end <= LARGEST);
        let end = end.ok_or(FileError::TooLarge)?;
        let cache = self.cache();
        if cache.is_huge() {
            // Linux: hugetlbfs has no write.
            return Err(FileError::Invalid);
        }
        let sys = cache.system();
        self.call(|| {
            let _alone = cache.resize.write();
            cache.grow(end)?;
            let page = cache.whole_page(index)?.ok_or(FileError::Io)?;
            M::user_store(&sys.at, page.pfn(), within, value);
            page.frame().set_dirty();
            Ok(())
        })
    }

    /// Reads into `to` from `offset` on; returns how many bytes: fewer than asked for where the
    /// file ends, 0 behind its end. Holes are zeros, and stay holes.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device. Page by page: it may see part of a
    /// concurrent write.
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
    /// until it is done, unless memory is short; a concurrent read may see a part.
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
        let room = LARGEST.saturating_sub(offset);
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

    /// Changes the file's size. Pages behind a shorter size are unmapped everywhere, private
    /// copies, too; a longer file reads as zeros behind its old end.
    ///
    /// # Context
    /// Holds nothing. Sleeps; waits for TLB flushes, and for the device.
    ///
    /// # Errors
    /// See [`FileError`]. Nothing has changed then, except that a concurrent access behind the new
    /// end may have failed.
    ///
    /// Linux: ftruncate.
    pub fn truncate(&self, bytes: u64) -> Result<(), FileError> {
        self.writable()?;
        self.call(|| self.cache().resize(bytes))
    }

    /// Makes the bytes zeros and gives their memory back; the size stays. Copies of private
    /// mappings stay.
    ///
    /// # Context
    /// As [`Self::truncate`].
    ///
    /// # Errors
    /// See [`FileError`].
    ///
    /// Linux: fallocate with `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<(), FileError> {
        self.writable()?;
        let end = offset.checked_add(len).filter(|_| len > 0);
        let end = end.ok_or(FileError::Invalid)?;
        self.call(|| self.cache().punch(offset, end))
    }

    /// Makes the file long enough for these bytes, and takes the memory for them.
    ///
    /// # Context
    /// As [`Self::truncate`].
    ///
    /// # Errors
    /// See [`FileError`]. The file may be longer already then.
    ///
    /// Linux: fallocate.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<(), FileError> {
        self.writable()?;
        if len == 0 {
            return Err(FileError::Invalid);
        }
        self.call(|| self.cache().allocate(offset, len))
    }

    /// Writes dirty pages, and waits until the device reports them as durable.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device.
    ///
    /// # Errors
    /// The device failed. Unwritten pages stay dirty, and the next sync retries them.
    ///
    /// Linux: fsync.
    pub fn sync(&self) -> Result<(), IoError> {
        as_call(self.sys, || self.cache().write_all())
    }
}

/// How many of `len` bytes from `offset` on lie in its page.
pub(super) fn in_page<M: Mmu>(offset: u64, len: usize) -> usize {
    len.min((M::Paging::page() - offset % M::Paging::page()) as usize)
}

/// The page and the place in it.
fn split<M: Mmu>(offset: u64) -> Result<(u64, u64), FileError> {
    if !offset.is_multiple_of(8) {
        return Err(FileError::Invalid);
    }
    Ok((offset >> M::Paging::shift(), offset % M::Paging::page()))
}
