//! A mapped part of a file that a call processes after it has released `mmap_lock`.

use super::{FileAccess, FileHandle, PageCache};
use crate::base::attrs::VmaView;
use crate::base::error::{FileError, MadviseError};
use core::ops::Range;
use minflt_addr::VirtRange;
use minflt_pgtable::{Mmu, Paging};

/// Pages of a file, which is held until this is dropped.
pub(crate) struct FilePart<'m, M: Mmu> {
    file: FileHandle<'m, M>,
    view: VmaView,
    pages: Range<u64>,
}

impl<'m, M: Mmu> FilePart<'m, M> {
    /// What `part` of the mapping `view` has of its file. The caller holds the mapping.
    pub(crate) fn new(cache: &'m PageCache<M>, view: &VmaView, part: VirtRange) -> Self {
        let first = view.page_index::<M::Paging>(part.start());
        Self {
            file: FileHandle {
                sys: cache.system(),
                cache: cache.keep(),
                access: FileAccess::ReadWrite,
            },
            view: *view,
            pages: first..first + part.pages(M::Paging::shift()),
        }
    }

    fn cache(&self) -> &PageCache<M> {
        self.file.cache()
    }

    /// Makes a hole.
    pub(crate) fn punch(&self) -> Result<(), MadviseError> {
        let shift = M::Paging::shift();
        let punched = self
            .cache()
            .punch(self.pages.start << shift, self.pages.end << shift);
        punched.map_err(|error| match error {
            FileError::NoMemory => MadviseError::NoMemory,
            _ => MadviseError::Io,
        })
    }

    /// Reads the pages in, as far as they can be had. What a file in memory has is there already,
    /// however long it is.
    ///
    /// Linux: madvise_willneed, which brings pages of such a file in from swap only.
    pub(crate) fn read(&self) {
        if !self.cache().writes_back() {
            return;
        }
        let end = self.pages.end.min(self.cache().pages());
        for index in self.pages.start..end {
            if !self.cache().has(index) && self.cache().read_in(index, self.view.flags).is_err() {
                return;
            }
        }
    }

    /// Writes what is dirty of it, for good.
    pub(crate) fn write(&self) -> Result<(), crate::base::file::IoError> {
        let last = self.pages.end.saturating_sub(1);
        self.cache().write_range(self.pages.start, last)
    }
}
