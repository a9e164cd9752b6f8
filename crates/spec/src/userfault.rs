//! userfaultfd: ranges whose holes, and whose protected pages, are somebody else's to decide.
//!
//! One userfaultfd, of a process that has nobody to decide: who touches such a page gets a signal
//! (`UFFD_FEATURE_SIGBUS`), and a call that would touch it says `EFAULT`. Anonymous memory only.

use crate::abi::{
    UFFDIO_COPY_MODE_DONTWAKE, UFFDIO_COPY_MODE_WP, UFFDIO_REGISTER_MODE_MISSING,
    UFFDIO_REGISTER_MODE_WP, UFFDIO_WRITEPROTECT_MODE_DONTWAKE, UFFDIO_WRITEPROTECT_MODE_WP,
    UFFDIO_ZEROPAGE_MODE_DONTWAKE,
};
use crate::space::{Page, Space};
use crate::vma::Flags;
use crate::{Errno, PAGE, Result, TASK_SIZE, is_aligned};

impl Space {
    /// `UFFDIO_REGISTER`. Linux: fs/userfaultfd.c userfaultfd_register, userfaultfd_register_range.
    ///
    /// # Errors
    /// As Linux.
    pub fn uffd_register(&mut self, start: u64, len: u64, mode: u64) -> Result<()> {
        let known = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;
        if mode == 0 || mode & !known != 0 {
            return Err(Errno::EINVAL);
        }
        let end = whole_pages(start, len)?;
        self.check_watchable(start, end)?;
        let mut watched = Flags::NONE;
        if mode & UFFDIO_REGISTER_MODE_MISSING != 0 {
            watched = watched.with(Flags::UFFD_MISSING);
        }
        if mode & UFFDIO_REGISTER_MODE_WP != 0 {
            watched = watched.with(Flags::UFFD_WP);
        }
        self.watch(start, end, |flags| {
            if watched.without(flags) == Flags::NONE {
                flags
            } else {
                flags.without(Flags::UFFD).with(watched)
            }
        });
        Ok(())
    }

    /// `UFFDIO_UNREGISTER`. Linux: userfaultfd_unregister.
    ///
    /// # Errors
    /// As Linux.
    pub fn uffd_unregister(&mut self, start: u64, len: u64) -> Result<()> {
        let end = whole_pages(start, len)?;
        self.check_watchable(start, end)?;
        self.watch(start, end, |flags| flags.without(Flags::UFFD));
        Ok(())
    }

    /// `UFFDIO_COPY` of pages of which number `i` begins with the word `value + i`. Linux:
    /// mm/userfaultfd.c mfill_atomic.
    ///
    /// # Errors
    /// As Linux; `EAGAIN` where a part was filled.
    pub fn uffd_copy(&mut self, to: u64, len: u64, value: u64, mode: u64) -> Result<()> {
        let end = whole_pages(to, len)?;
        if mode & !(UFFDIO_COPY_MODE_DONTWAKE | UFFDIO_COPY_MODE_WP) != 0 {
            return Err(Errno::EINVAL);
        }
        let protects = mode & UFFDIO_COPY_MODE_WP != 0;
        let index = self.watched(to, end)?;
        if protects && !self.vmas[index].flags.has(Flags::UFFD_WP) {
            return Err(Errno::EINVAL);
        }
        self.fill(to, end, |space, page| {
            let words = [value + (page - to / PAGE), 0];
            space.pages.insert(page, Page::Own(words));
            if protects {
                space.protected.insert(page);
            }
        })
    }

    /// `UFFDIO_ZEROPAGE`.
    ///
    /// # Errors
    /// As Linux; `EAGAIN` where a part was filled.
    pub fn uffd_zeropage(&mut self, start: u64, len: u64, mode: u64) -> Result<()> {
        let end = whole_pages(start, len)?;
        if mode & !UFFDIO_ZEROPAGE_MODE_DONTWAKE != 0 {
            return Err(Errno::EINVAL);
        }
        self.watched(start, end)?;
        self.fill(start, end, |space, page| {
            space.pages.insert(page, Page::Zero);
        })
    }

    /// `UFFDIO_WRITEPROTECT`. A hole is not protected. Linux: mm/userfaultfd.c mwriteprotect_range.
    ///
    /// # Errors
    /// As Linux; what lies before a mapping that is not watched has been done then.
    pub fn uffd_writeprotect(&mut self, start: u64, len: u64, mode: u64) -> Result<()> {
        let both = UFFDIO_WRITEPROTECT_MODE_WP | UFFDIO_WRITEPROTECT_MODE_DONTWAKE;
        let end = whole_pages(start, len)?;
        if mode & !both != 0 || mode == both {
            return Err(Errno::EINVAL);
        }
        let mut result = Err(Errno::ENOENT);
        for vma in self.vmas.iter().skip(self.find(start)) {
            let (from, to) = (vma.start.max(start), vma.end.min(end));
            if from >= to {
                break;
            }
            if !vma.flags.has(Flags::UFFD_WP) {
                return Err(Errno::ENOENT);
            }
            for page in from / PAGE..to / PAGE {
                if mode & UFFDIO_WRITEPROTECT_MODE_WP == 0 {
                    self.protected.remove(&page);
                } else if self.pages.contains_key(&page) {
                    self.protected.insert(page);
                }
            }
            result = Ok(());
        }
        result
    }

    /// Whether something is mapped in the range, and it is anonymous memory.
    fn check_watchable(&self, start: u64, end: u64) -> Result<()> {
        let inside = |vma: &&crate::Vma| vma.start < end && vma.end > start;
        let mut found = self.vmas.iter().filter(inside).peekable();
        if found.peek().is_none() || found.any(|vma| vma.file.is_some()) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Gives each mapping in the range the flags that `to` makes of its own; stores to pages are
    /// nobody's to decide any more where they are not watched.
    fn watch(&mut self, start: u64, end: u64, to: impl Fn(Flags) -> Flags) {
        let mut at = start;
        while at < end
            && let Some(vma) = self.vmas.get(self.find(at)).filter(|vma| vma.start < end)
        {
            let (index, from, stop) = (self.find(at), vma.start.max(at), vma.end.min(end));
            let (flags, policy) = (to(vma.flags), vma.policy);
            if flags != vma.flags {
                let _whole_pages = self.modify(index, (from, stop), flags, policy);
                if !flags.has(Flags::UFFD_WP) {
                    self.protected
                        .retain(|page| !(from / PAGE..stop / PAGE).contains(page));
                }
            }
            at = stop;
        }
    }

    /// The one watched mapping that has all of the range, which then has an anon_vma. Linux:
    /// uffd_mfill_lock, validate_dst_vma.
    fn watched(&mut self, start: u64, end: u64) -> Result<usize> {
        let index = self.lookup(start).ok_or(Errno::ENOENT)?;
        if !self.vmas[index].flags.has(Flags::SHARED) {
            self.prepare_anon(index);
        }
        let vma = &self.vmas[index];
        let has_all = end <= vma.end && vma.flags.has(Flags::UFFD);
        has_all.then_some(index).ok_or(Errno::ENOENT)
    }

    fn fill(&mut self, start: u64, end: u64, put: impl Fn(&mut Self, u64)) -> Result<()> {
        for page in start / PAGE..end / PAGE {
            if self.pages.contains_key(&page) {
                let first = page == start / PAGE;
                return Err(if first { Errno::EEXIST } else { Errno::EAGAIN });
            }
            put(self, page);
        }
        Ok(())
    }
}

/// The end of a range of whole pages. Linux: validate_range.
fn whole_pages(start: u64, len: u64) -> Result<u64> {
    let whole = is_aligned(start) && is_aligned(len) && len > 0;
    let end = start.checked_add(len).filter(|end| *end <= TASK_SIZE);
    end.filter(|_| whole).ok_or(Errno::EINVAL)
}
