//! Reading and writing a file by calls, a word at a time.
//!
//! Linux: generic_file_read_iter, generic_perform_write, of which these are the page's part.

use super::{FileAccess, FileHandle, PageCache, Sought};
use crate::error::FileError;
use crate::page::Locked;
use crate::vma::VmaFlags;
use minflt_pgtable::{Mmu, Paging};

impl<M: Mmu> PageCache<M> {
    /// Page `index`, read in where need be; none behind the end.
    pub(super) fn whole_page(&self, index: u64) -> Result<Option<Locked<'_, M>>, FileError> {
        loop {
            match self.seek(index)? {
                Sought::Locked(page) => return Ok(Some(page)),
                Sought::Absent => self.read_in(index, VmaFlags::NONE)?,
                Sought::Beyond if index < self.pages() => return Err(FileError::Io),
                Sought::Beyond => return Ok(None),
            }
        }
    }
}

impl<M: Mmu> FileHandle<'_, M> {
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
        let end = offset.checked_add(8).filter(|end| *end <= super::LARGEST);
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
}

/// The page and the place in it.
fn split<M: Mmu>(offset: u64) -> Result<(u64, u64), FileError> {
    if !offset.is_multiple_of(8) {
        return Err(FileError::Invalid);
    }
    Ok((offset >> M::Paging::shift(), offset % M::Paging::page()))
}
