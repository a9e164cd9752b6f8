//! mlock, mlock2, munlock, mlockall, munlockall.

use crate::abi::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT};
use crate::space::Space;
use crate::vma::Flags;
use crate::{Errno, OUTSIDE, PAGE, Result, page_align};

impl Space {
    /// Whether a mapping with these flags may have `len` bytes more. Linux: mlock_future_ok.
    pub(crate) fn may_lock(&self, flags: Flags, len: u64) -> bool {
        let limit = self.memlock / PAGE;
        !flags.has(Flags::LOCKED) || self.locked_pages.saturating_add(len / PAGE) <= limit
    }

    /// mlock2, and mlock with no flags. Linux: mm/mlock.c do_mlock.
    ///
    /// # Errors
    /// As Linux; pages may have been locked then.
    pub fn mlock(&mut self, start: u64, len: u64, how: u64) -> Result<()> {
        if how & !MLOCK_ONFAULT != 0 {
            return Err(Errno::EINVAL);
        }
        if self.memlock == 0 {
            return Err(Errno::EPERM);
        }
        let mut flags = Flags::LOCKED;
        if how & MLOCK_ONFAULT != 0 {
            flags = flags.with(Flags::LOCKONFAULT);
        }
        let (start, len) = whole_pages(start, len);
        let limit = self.memlock / PAGE;
        let mut pages = (len / PAGE).saturating_add(self.locked_pages);
        if pages > limit {
            pages -= self.locked_in(start, start.saturating_add(len));
        }
        if pages > limit && self.memlock != u64::MAX {
            return Err(Errno::ENOMEM);
        }
        self.apply_lock(start, len, flags)?;
        self.populate_locked(start, start + len)
    }

    /// munlock.
    ///
    /// # Errors
    /// As Linux; what lies before a hole has been unlocked then.
    pub fn munlock(&mut self, start: u64, len: u64) -> Result<()> {
        let (start, len) = whole_pages(start, len);
        self.apply_lock(start, len, Flags::NONE)
    }

    /// mlockall. Linux: mm/mlock.c apply_mlockall_flags.
    ///
    /// # Errors
    /// As Linux.
    pub fn mlockall(&mut self, how: u64) -> Result<()> {
        if how == 0 || how & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 || how == MCL_ONFAULT {
            return Err(Errno::EINVAL);
        }
        if self.memlock == 0 {
            return Err(Errno::EPERM);
        }
        if how & MCL_CURRENT != 0 && OUTSIDE > self.memlock / PAGE {
            return Err(Errno::ENOMEM);
        }
        let mut flags = Flags::LOCKED;
        if how & MCL_ONFAULT != 0 {
            flags = flags.with(Flags::LOCKONFAULT);
        }
        self.future = Flags::NONE;
        if how & MCL_FUTURE != 0 {
            self.future = flags;
        }
        if how & MCL_CURRENT != 0 {
            self.lock_everything(flags);
            self.populate(0, u64::MAX);
        }
        Ok(())
    }

    /// munlockall.
    pub fn munlockall(&mut self) {
        self.future = Flags::NONE;
        self.lock_everything(Flags::NONE);
    }

    fn lock_everything(&mut self, lock: Flags) {
        let mut at = 0;
        while let Some(vma) = self.vmas.get(self.find(at)) {
            let (start, end) = (vma.start, vma.end);
            self.lock_one(self.find(at), start, end, lock);
            at = end;
        }
        let locks = lock.has(Flags::LOCKED);
        if locks && !self.outside_locked {
            self.locked_pages += OUTSIDE;
        } else if !locks && self.outside_locked {
            self.locked_pages = self.locked_pages.saturating_sub(OUTSIDE);
        }
        self.outside_locked = locks;
    }

    fn apply_lock(&mut self, start: u64, len: u64, lock: Flags) -> Result<()> {
        let end = start.wrapping_add(len);
        if end < start {
            return Err(Errno::EINVAL);
        }
        let mut at = start;
        while at < end {
            let index = self.lookup(at).ok_or(Errno::ENOMEM)?;
            let to = self.vmas[index].end.min(end);
            self.lock_one(index, at, to, lock);
            at = to;
        }
        Ok(())
    }

    /// Linux: mm/mlock.c mlock_fixup.
    fn lock_one(&mut self, index: usize, start: u64, end: u64, lock: Flags) {
        let vma = &self.vmas[index];
        let (old, policy) = (vma.flags, vma.policy);
        let new = old.without(Flags::LOCKS).with(lock);
        if new == old {
            return;
        }
        let _whole_pages = self.modify(index, (start, end), new, policy);
        let pages = (end - start) / PAGE;
        if !new.has(Flags::LOCKED) {
            self.locked_pages = self.locked_pages.saturating_sub(pages);
        } else if !old.has(Flags::LOCKED) {
            self.locked_pages += pages;
        }
    }

    /// Pages in `[start, end)` that are locked. Linux: count_mm_mlocked_page_nr.
    fn locked_in(&self, start: u64, end: u64) -> u64 {
        let locked = self.vmas.iter().filter(|vma| vma.flags.has(Flags::LOCKED));
        let part = |vma: &crate::Vma| vma.end.min(end).saturating_sub(vma.start.max(start)) / PAGE;
        locked.map(part).sum()
    }

    /// Faults what was locked in, until that fails. Linux: __mm_populate, whose errors mlock
    /// translates.
    fn populate_locked(&mut self, start: u64, end: u64) -> Result<()> {
        let mut at = start;
        while at < end {
            let Some(index) = self.lookup(at) else { break };
            let to = self.vmas[index].end.min(end);
            self.populate_one(index, at, to)
                .map_err(|_| Errno::ENOMEM)?;
            at = to;
        }
        Ok(())
    }
}

fn whole_pages(start: u64, len: u64) -> (u64, u64) {
    let len = page_align(len.wrapping_add(start % PAGE));
    (start & !(PAGE - 1), len)
}
