//! A file handle: the reference by which a file is used.

use super::{FileAccess, FileRef, PageCache};
use crate::system::System;
use core::fmt;
use minflt_pgtable::Mmu;

/// A reference to a file. Dropping the last one, and the last mapping, writes back what is dirty
/// and drops what is cached; a thread that is no CPU may do so, as with an
/// [`MmHandle`](crate::MmHandle).
pub struct FileHandle<'s, M: Mmu> {
    pub(crate) sys: &'s System<M>,
    pub(crate) cache: FileRef<M>,
    pub(crate) access: FileAccess,
}

impl<'s, M: Mmu> FileHandle<'s, M> {
    pub(crate) fn cache(&self) -> &PageCache<M> {
        &self.cache
    }

    /// Another handle of the same file.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            cache: self.cache.keep(),
            ..*self
        }
    }

    /// Another handle of the same file, for loads only.
    #[must_use]
    pub fn read_only(&self) -> Self {
        let mut other = self.share();
        other.access = FileAccess::Read;
        other
    }

    /// What it may be used for.
    #[must_use]
    pub const fn access(&self) -> FileAccess {
        self.access
    }

    /// The system it belongs to.
    #[must_use]
    pub const fn system(&self) -> &'s System<M> {
        self.sys
    }

    /// Whether its pages are huge: a hugetlb file.
    #[must_use]
    pub fn is_huge(&self) -> bool {
        self.cache().is_huge()
    }

    /// Bytes in the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.cache().size()
    }

    /// Pages of it that are cached. A moment later it may be otherwise.
    #[must_use]
    pub fn cached_pages(&self) -> u64 {
        let mut pages = 0;
        self.cache().index.each(0, u64::MAX, |_, _| pages += 1);
        pages
    }

    /// The number of the file that a mapping's line in `maps` shows as its inode.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.cache().id
    }
}

impl<M: Mmu> fmt::Debug for FileHandle<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File {}", self.cache().id)
    }
}
