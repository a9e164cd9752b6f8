//! Calls on files, and what they do to the mappings of them: ftruncate, fallocate, pread, pwrite,
//! msync.

use crate::abi::{FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MS_ASYNC, MS_INVALIDATE, MS_SYNC};
use crate::file::{File, Opened, Words, half};
use crate::space::Space;
use crate::vma::{Flags, Vma};
use crate::{Errno, PAGE, Result, is_aligned, page_align};

impl Space {
    /// Gives the address space a file of so many bytes; returns its number. Pages of it are given
    /// as they begin: index and words.
    pub fn add_file(&mut self, bytes: u64, pages: impl IntoIterator<Item = (u64, Words)>) -> usize {
        let mut file = File::new(bytes);
        for (index, words) in pages {
            file.set(index, 0, words[0]);
            file.set(index, 1, words[1]);
        }
        file.clear(bytes, u64::MAX);
        self.files.push(file);
        self.files.len() - 1
    }

    /// The files, those of shared anonymous memory among them.
    #[must_use]
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// What lies at `addr` of a mapping of a file: which page of it, or none behind its end.
    pub(crate) fn file_page(&self, vma: &Vma, addr: u64) -> Option<(usize, u64)> {
        let opened = vma.file?;
        let index = vma.pgoff_at(addr);
        (index < self.files[opened.file].pages()).then_some((opened.file, index))
    }

    /// What the page at `addr` would hold if it came from the mapped file.
    #[must_use]
    pub fn file_words(&self, vma: &Vma, addr: u64) -> Option<Words> {
        let (file, index) = self.file_page(vma, addr)?;
        Some(self.files[file].page(index))
    }

    /// ftruncate. Pages behind the new end go, private ones too. Linux: do_ftruncate,
    /// truncate_pagecache.
    ///
    /// # Errors
    /// As Linux.
    pub fn ftruncate(&mut self, opened: Opened, bytes: u64) -> Result<()> {
        if bytes > i64::MAX as u64 || !opened.writable {
            return Err(Errno::EINVAL);
        }
        self.files[opened.file].truncate(bytes);
        self.drop_behind(opened.file, bytes);
        Ok(())
    }

    /// Takes the pages out that lie behind byte `bytes` of a file, private ones too.
    fn drop_behind(&mut self, file: usize, bytes: u64) {
        let first = bytes.div_ceil(PAGE);
        for at in 0..self.vmas.len() {
            let vma = &self.vmas[at];
            if vma.file.is_some_and(|opened| opened.file == file) {
                let stays = first.saturating_sub(vma.pgoff).min(vma.pages());
                self.discard(vma.start + stays * PAGE, vma.end);
            }
        }
    }

    /// fallocate. A hole is punched into the file only: private pages stay. Linux: vfs_fallocate.
    ///
    /// # Errors
    /// As Linux.
    pub fn fallocate(&mut self, opened: Opened, mode: u64, offset: u64, len: u64) -> Result<()> {
        let end = File::check_range(offset, len);
        let punches = mode & FALLOC_FL_PUNCH_HOLE != 0;
        let keeps = mode & FALLOC_FL_KEEP_SIZE != 0;
        if end == Err(Errno::EINVAL) {
            return Err(Errno::EINVAL);
        }
        if mode & !(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) != 0 || (punches && !keeps) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !opened.writable {
            return Err(Errno::EBADF);
        }
        let end = end?;
        let file = &mut self.files[opened.file];
        if punches {
            file.clear(offset, end);
        } else if !keeps {
            file.reach(end);
        }
        Ok(())
    }

    /// pread of a word that begins a page or its second half: how many bytes there are, and those.
    ///
    /// # Errors
    /// As Linux.
    pub fn pread(&self, opened: Opened, offset: u64) -> Result<(u64, u64)> {
        let file = &self.files[opened.file];
        let bytes = file.bytes().saturating_sub(offset).min(8);
        let word = file.page(offset / PAGE)[half(offset)];
        let read = match bytes {
            8 => word,
            some => word & ((1 << (some * 8)) - 1),
        };
        Ok((bytes, read))
    }

    /// pwrite of a word that begins a page or its second half.
    ///
    /// # Errors
    /// As Linux.
    pub fn pwrite(&mut self, opened: Opened, offset: u64, word: u64) -> Result<u64> {
        if !opened.writable {
            return Err(Errno::EBADF);
        }
        let file = &mut self.files[opened.file];
        file.reach(offset + 8);
        file.set(offset / PAGE, half(offset), word);
        Ok(8)
    }

    /// msync. That nothing is lost cannot be seen by who goes on running. Linux: mm/msync.c.
    ///
    /// # Errors
    /// As Linux; what lies before and behind a hole has been written then.
    pub fn msync(&self, start: u64, len: u64, flags: u64) -> Result<()> {
        let both = MS_ASYNC | MS_SYNC;
        if flags & !(both | MS_INVALIDATE) != 0 || !is_aligned(start) || flags & both == both {
            return Err(Errno::EINVAL);
        }
        let end = start.wrapping_add(page_align(len));
        if end < start {
            return Err(Errno::ENOMEM);
        }
        let mut at = start;
        let mut result = Ok(());
        while at < end {
            let vma = self.vmas.get(self.find(at)).ok_or(Errno::ENOMEM)?;
            if vma.start > at {
                if flags == MS_ASYNC || vma.start >= end {
                    return Err(Errno::ENOMEM);
                }
                result = Err(Errno::ENOMEM);
            }
            if flags & MS_INVALIDATE != 0 && vma.flags.has(Flags::LOCKED) {
                return Err(Errno::EBUSY);
            }
            at = vma.end;
        }
        result
    }

    /// Goes on after a forked child that ran while this one waited: the files are common, and what
    /// was cut off is gone here, too.
    pub fn join(&mut self, child: Self) {
        if child.other.is_some() {
            *self = child.exit_huge().unwrap_or_else(|| self.clone());
            return;
        }
        self.files = child.files;
        for file in 0..self.files.len() {
            self.drop_behind(file, self.files[file].shortest);
        }
    }
}
