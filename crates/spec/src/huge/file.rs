//! Files of huge pages: their pages made and taken away.

use super::{HUGE, PAGES, Taking};
use crate::abi::{FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE};
use crate::file::{File, Opened};
use crate::space::Space;
use crate::vma::Vma;
use crate::{Errno, Result};

/// Which promises of a file go with its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gone {
    /// Those of pages that were there.
    Made,
    All,
}

impl Space {
    /// Takes the pages from `first` on up to `end` of a file out of all private mappings, and out
    /// of the file. Linux: remove_inode_hugepages, hugetlb_unreserve_pages.
    pub(super) fn drop_huge(&mut self, file: usize, first: u64, end: u64, gone: Gone) {
        self.unmap_huge(file, first, end);
        if let Some(mut other) = self.other.take() {
            core::mem::swap(&mut self.pool, &mut other.pool);
            other.unmap_huge(file, first, end);
            core::mem::swap(&mut self.pool, &mut other.pool);
            self.other = Some(other);
        }
        let file = &mut self.files[file];
        let inside = |at: &u64| (first..end).contains(at);
        let made: Vec<u64> = file.made.iter().copied().filter(inside).collect();
        for at in &made {
            file.made.remove(at);
            file.set(*at, 0, 0);
            file.set(*at, 1, 0);
        }
        let before = file.promised.len();
        match gone {
            Gone::All => file.promised.retain(|at| !inside(at)),
            Gone::Made => file.promised.retain(|at| !made.contains(at)),
        }
        let unpromised = before - file.promised.len();
        self.pool.free += made.len() as u64;
        self.pool.reserved -= (unpromised - made.len()) as u64;
    }

    fn unmap_huge(&mut self, file: usize, first: u64, end: u64) {
        for at in 0..self.vmas.len() {
            let vma = &self.vmas[at];
            if vma.file.is_some_and(|opened| opened.file == file) {
                let from = vma.pgoff / PAGES;
                let pages = vma.pages() / PAGES;
                let place = |page: u64| vma.start + page.saturating_sub(from).min(pages) * HUGE;
                let (start, end) = (place(first), place(end));
                self.discard_huge(start, end);
            }
        }
    }

    /// ftruncate of a file of huge pages. Linux: hugetlbfs_setattr.
    ///
    /// # Errors
    /// As Linux.
    pub fn huge_ftruncate(&mut self, opened: Opened, bytes: u64) -> Result<()> {
        if bytes > i64::MAX as u64 || !bytes.is_multiple_of(HUGE) {
            return Err(Errno::EINVAL);
        }
        self.files[opened.file].truncate(bytes);
        self.drop_huge(opened.file, bytes / HUGE, u64::MAX / HUGE, Gone::All);
        Ok(())
    }

    /// fallocate of a file of huge pages. Linux: hugetlbfs_fallocate, hugetlbfs_punch_hole.
    ///
    /// # Errors
    /// As Linux; what could be made has been made when there are too few pages.
    pub fn huge_fallocate(
        &mut self,
        opened: Opened,
        mode: u64,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let end = File::check_range(offset, len);
        let punches = mode & FALLOC_FL_PUNCH_HOLE != 0;
        let keeps = mode & FALLOC_FL_KEEP_SIZE != 0;
        if end == Err(Errno::EINVAL) {
            return Err(Errno::EINVAL);
        }
        if mode & !(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) != 0 || (punches && !keeps) {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = end?;
        if punches {
            self.huge_punch(opened.file, offset, end);
            return Ok(());
        }
        for at in offset / HUGE..end.div_ceil(HUGE) {
            let file = &mut self.files[opened.file];
            if file.made.contains(&at) {
                continue;
            }
            let taking = match file.promised.contains(&at) {
                true => Taking::Reserved,
                false => Taking::Unreserved,
            };
            self.pool.take(taking).map_err(|_| Errno::ENOSPC)?;
            file.made.insert(at);
            file.promised.insert(at);
        }
        if !keeps {
            self.files[opened.file].reach(end);
        }
        Ok(())
    }

    pub(crate) fn huge_punch(&mut self, file: usize, offset: u64, end: u64) {
        self.files[file].clear(offset, end);
        let (first, last) = (offset.div_ceil(HUGE), end / HUGE);
        if first < last {
            self.drop_huge(file, first, last, Gone::Made);
        }
    }

    /// pread of a word of a file of huge pages: how many bytes there are, and those.
    ///
    /// # Errors
    /// As Linux.
    pub fn huge_pread(&self, opened: Opened, offset: u64) -> Result<(u64, u64)> {
        let file = &self.files[opened.file];
        let bytes = file.bytes().saturating_sub(offset).min(8);
        let word = file.page(offset / HUGE)[(offset % HUGE / (HUGE / 2)) as usize];
        let read = match bytes {
            8 => word,
            some => word & ((1 << (some * 8)) - 1),
        };
        Ok((bytes, read))
    }

    /// Files that no mapping and nobody else has are gone, their pages with them.
    pub(crate) fn forget_files(&mut self) {
        for file in self.known_files..self.files.len() {
            let is = |vma: &Vma| vma.file.is_some_and(|opened| opened.file == file);
            let theirs = self.other.iter().flat_map(|other| &other.vmas);
            if self.files[file].is_huge() && !self.vmas.iter().chain(theirs).any(is) {
                self.drop_huge(file, 0, u64::MAX / HUGE, Gone::All);
            }
        }
    }
}
