//! Reads and writes a file by calls, one word at a time.
//!
//! Linux: generic_file_read_iter, generic_perform_write, of which these are the page's part.

use super::{PageCache, Sought};
use crate::base::attrs::VmaFlags;
use crate::base::error::FileError;
use crate::pages::page::Locked;
use minflt_pgtable::Mmu;

impl<M: Mmu> PageCache<M> {
    /// Page `index`, read in where need be; none behind the end.
    pub(crate) fn whole_page(&self, index: u64) -> Result<Option<Locked<'_, M>>, FileError> {
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
