//! Loads and stores, and the pages they bring in.

use crate::file::{HALF, half};
use crate::space::{Page, Space};
use crate::vma::Flags;
use crate::{Errno, PAGE, Result, STACK_GAP, abi};

/// Which signal an access raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Nothing is mapped there (`SIGSEGV`, `SEGV_MAPERR`).
    MapErr,
    /// The mapping does not allow it (`SIGSEGV`, `SEGV_ACCERR`).
    AccErr,
    /// The mapped file does not reach so far, or a userfaultfd decides (`SIGBUS`, `BUS_ADRERR`).
    Bus,
}

/// What a mapping of `PROT_EXEC` alone allows: a matter of the page-table format.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ExecAlone {
    /// Fetches and loads, as on x86 without protection keys.
    #[default]
    Loads,
    /// Fetches, as on AArch64, POWER and RISC-V.
    Fetches,
}

/// What is done to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The mapped file does not reach so far, or the page is for a userfaultfd to decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotToBeHad;

impl From<NotToBeHad> for Signal {
    fn from(_: NotToBeHad) -> Self {
        Self::Bus
    }
}

impl From<NotToBeHad> for Errno {
    fn from(_: NotToBeHad) -> Self {
        Self::EFAULT
    }
}

impl Space {
    /// Loads the word at `addr`, where a page or its second half begins.
    ///
    /// # Errors
    /// The signal the access raises.
    pub fn load(&mut self, addr: u64) -> core::result::Result<u64, Signal> {
        let index = self.grown_to(addr).ok_or(Signal::MapErr)?;
        if !self.may_load(self.vmas[index].flags) {
            return Err(Signal::AccErr);
        }
        self.fault(index, addr, Access::Read)?;
        Ok(self.word(index, addr))
    }

    /// As on the processor: whatever may be stored to may be loaded.
    const fn may_load(&self, flags: Flags) -> bool {
        match self.exec_alone {
            ExecAlone::Loads => flags.has(Flags::ACCESS),
            ExecAlone::Fetches => flags.has(Flags::READ.with(Flags::WRITE)),
        }
    }

    /// Stores to the word at `addr`, where a page or its second half begins.
    ///
    /// # Errors
    /// The signal the access raises.
    pub fn store(&mut self, addr: u64, value: u64) -> core::result::Result<(), Signal> {
        let index = self.grown_to(addr).ok_or(Signal::MapErr)?;
        if !self.vmas[index].flags.has(Flags::WRITE) {
            return Err(Signal::AccErr);
        }
        self.fault(index, addr, Access::Write)?;
        self.set_word(index, addr, value);
        Ok(())
    }

    /// The word at `addr`, which was faulted in.
    fn word(&self, index: usize, addr: u64) -> u64 {
        if self.vmas[index].flags.has(Flags::HUGETLB) {
            return self.huge_word(&self.vmas[index], addr);
        }
        let page = self.pages.get(&(addr / PAGE)).map(|page| page.words());
        let words = page.or_else(|| self.file_words(&self.vmas[index], addr));
        words.unwrap_or_default()[half(addr)]
    }

    /// Sets the word at `addr`, which was faulted in for it.
    fn set_word(&mut self, index: usize, addr: u64, value: u64) {
        let vma = &self.vmas[index];
        if vma.flags.has(Flags::HUGETLB) {
            return self.set_huge_word(index, addr, value);
        }
        if let Some(Page::Own(words)) = self.pages.get_mut(&(addr / PAGE)) {
            words[half(addr)] = value;
        } else if let Some((file, page)) = self.file_page(vma, addr) {
            self.files[file].set(page, half(addr), value);
        }
    }

    /// Brings in what an access needs: a load the zero page or the file's, a store to private
    /// memory a page of its own. Linux: do_anonymous_page, do_read_fault, do_cow_fault,
    /// do_shared_fault.
    pub(crate) fn fault(
        &mut self,
        index: usize,
        addr: u64,
        access: Access,
    ) -> core::result::Result<(), NotToBeHad> {
        let vma = &self.vmas[index];
        if vma.flags.has(Flags::HUGETLB) {
            return self.huge_fault(index, addr, access);
        }
        let is_private = !vma.flags.has(Flags::SHARED);
        let there = self.pages.get(&(addr / PAGE)).copied();
        if vma.flags.has(Flags::UFFD) && self.is_watched(vma.flags, addr, access) {
            if (access, there) == (Access::Write, None) {
                self.prepare_anon(index);
            }
            return Err(NotToBeHad);
        }
        match (access, there) {
            (_, Some(Page::Own(_))) | (Access::Read, Some(Page::Zero)) => {}
            (Access::Read, None) if vma.file.is_none() => {
                self.pages.insert(addr / PAGE, Page::Zero);
            }
            (Access::Write, _) if is_private => {
                // Before it is known whether there is anything to copy.
                self.prepare_anon(index);
                let words = match &self.vmas[index] {
                    vma if vma.file.is_some() => self.file_words(vma, addr).ok_or(NotToBeHad)?,
                    _ => [0; 2],
                };
                self.pages.insert(addr / PAGE, Page::Own(words));
            }
            _ => {
                self.file_page(vma, addr).ok_or(NotToBeHad)?;
            }
        }
        Ok(())
    }

    /// Whether a userfaultfd decides on the access. Linux: handle_userfault.
    fn is_watched(&self, flags: Flags, addr: u64, access: Access) -> bool {
        let page = addr / PAGE;
        let protected = self.protected.contains(&page) && flags.has(Flags::UFFD_WP);
        match access {
            _ if !self.pages.contains_key(&page) => flags.has(Flags::UFFD_MISSING),
            Access::Write => protected,
            Access::Read => false,
        }
    }

    /// The mapping has an anon_vma: a neighbour's that it may share, else one of its own. Linux:
    /// __anon_vma_prepare, find_mergeable_anon_vma.
    pub(crate) fn prepare_anon(&mut self, index: usize) {
        if self.vmas[index].anon.is_some() {
            return;
        }
        let vma = &self.vmas[index];
        let lends = |at: usize| self.vmas.get(at).and_then(|other| vma.lends_anon(other));
        let shared = lends(index + 1).or_else(|| lends(index.wrapping_sub(1)));
        let anon = shared.unwrap_or(self.next_anon);
        self.next_anon += 1;
        self.vmas[index].anon = Some(anon);
        self.vmas[index].forked = false;
    }

    /// The mapping at `addr`, after a stack above it has grown down to it. Linux:
    /// lock_mm_and_find_vma, expand_downwards.
    pub(crate) fn grown_to(&mut self, addr: u64) -> Option<usize> {
        if addr < self.window.start().0 {
            return None;
        }
        let index = self.find(addr);
        let vma = self.vmas.get(index)?;
        if vma.start <= addr {
            return Some(index);
        }
        if !vma.flags.has(Flags::GROWSDOWN) {
            return None;
        }
        let to = addr & !(PAGE - 1);
        if let Some(below) = index.checked_sub(1).map(|below| &self.vmas[below])
            && !below.flags.has(Flags::GROWSDOWN)
            && below.flags.has(Flags::ACCESS)
            && to - below.end < STACK_GAP
        {
            return None;
        }
        self.prepare_anon(index);
        let vma = &self.vmas[index];
        let more = (vma.start - to) / PAGE;
        let locked = vma.flags.has(Flags::LOCKED);
        if more > vma.pgoff || !self.may_expand(more) || !self.may_lock(vma.flags, more * PAGE) {
            return None;
        }
        if locked {
            self.locked_pages += more;
        }
        let vma = &mut self.vmas[index];
        vma.start = to;
        vma.pgoff -= more;
        Some(index)
    }

    /// Faults the pages of one mapping in for a call, as far as its lock does not say otherwise.
    /// Linux: populate_vma_page_range.
    pub(crate) fn populate_one(&mut self, index: usize, start: u64, end: u64) -> Result<()> {
        let flags = self.vmas[index].flags;
        if flags.has(Flags::LOCKONFAULT) {
            return Ok(());
        }
        if !flags.has(Flags::ACCESS) {
            return Err(Errno::EFAULT);
        }
        // Stores to what is shared copy nothing, and there is nothing else to do beforehand.
        let access = if flags.has(Flags::WRITE) && !flags.has(Flags::SHARED) {
            Access::Write
        } else {
            Access::Read
        };
        let step = self.vmas[index].unit();
        for addr in (start..end).step_by(step as usize) {
            self.fault(index, addr, access)?;
        }
        Ok(())
    }

    /// Faults `[start, end)` in; what cannot be is left out. Linux: mm_populate.
    pub(crate) fn populate(&mut self, start: u64, end: u64) {
        for index in 0..self.vmas.len() {
            let vma = &self.vmas[index];
            let (from, to) = (vma.start.max(start), vma.end.min(end));
            if from < to {
                let _left_out = self.populate_one(index, from, to);
            }
        }
    }

    /// Reads pages of this address space as another process does: `len` bytes from the page at
    /// `addr` on. Returns how many bytes could be read, and their pages' first words.
    ///
    /// # Errors
    /// `EFAULT` when nothing could be read.
    pub fn remote_read(&mut self, addr: u64, len: u64) -> Result<(u64, Vec<u64>)> {
        let mut words = Vec::new();
        let done = self.remote(addr, len, Flags::READ, |space, index, at| {
            space.fault(index, at, Access::Read)?;
            words.push(space.word(index, at));
            Ok(())
        })?;
        Ok((done, words))
    }

    /// Writes pages of this address space as another process does: page `i` from `addr` on begins
    /// with the word `value + i`. Returns how many bytes could be written.
    ///
    /// # Errors
    /// `EFAULT` when nothing could be written.
    pub fn remote_write(&mut self, addr: u64, len: u64, value: u64) -> Result<u64> {
        self.remote(addr, len, Flags::WRITE, |space, index, at| {
            space.fault(index, at, Access::Write)?;
            space.set_word(index, at, value + (at - addr) / PAGE);
            // Of a huge page the other word lies elsewhere.
            if !space.vmas[index].flags.has(Flags::HUGETLB) {
                space.set_word(index, at + HALF, 0);
            }
            Ok(())
        })
    }

    /// Linux: mm/process_vm_access.c process_vm_rw_single_vec.
    fn remote(
        &mut self,
        addr: u64,
        len: u64,
        right: Flags,
        mut page: impl FnMut(&mut Self, usize, u64) -> core::result::Result<(), NotToBeHad>,
    ) -> Result<u64> {
        let mut done = 0;
        while done < len {
            let at = addr + done;
            let found = self.lookup(at);
            let Some(index) = found.filter(|index| self.vmas[*index].flags.has(right)) else {
                break;
            };
            if page(self, index, at).is_err() {
                break;
            }
            done += PAGE;
        }
        if done == 0 && len > 0 {
            return Err(Errno::EFAULT);
        }
        Ok(done.min(len))
    }

    /// Reads a word as [`Self::load`] does, as a debugger does: whatever the mapping allows.
    ///
    /// # Errors
    /// `EIO` where nothing is mapped, and behind the end of a file.
    pub fn forced_read(&mut self, addr: u64) -> Result<u64> {
        let index = self.grown_to(addr).ok_or(Errno::EIO)?;
        self.fault(index, addr, Access::Read)
            .map_err(|_| Errno::EIO)?;
        Ok(self.word(index, addr))
    }

    /// Writes a word as [`Self::store`] does, as a debugger does: whatever the mapping allows, if
    /// the page is private. Linux: mm/gup.c check_vma_flags.
    ///
    /// # Errors
    /// `EIO` where nothing is mapped, behind the end of a file, and where the store would go to a
    /// file that the mapping may not write to.
    pub fn forced_write(&mut self, addr: u64, value: u64) -> Result<()> {
        let index = self.grown_to(addr).ok_or(Errno::EIO)?;
        let flags = self.vmas[index].flags;
        let copies = flags.has(Flags::MAYWRITE) && !flags.has(Flags::SHARED);
        if !flags.has(Flags::WRITE) && !copies {
            return Err(Errno::EIO);
        }
        self.fault(index, addr, Access::Write)
            .map_err(|_| Errno::EIO)?;
        self.set_word(index, addr, value);
        Ok(())
    }

    /// Faults `[start, end)` in by loads or stores, until one cannot be. Linux: mm/madvise.c
    /// madvise_populate.
    pub(crate) fn populate_by(&mut self, start: u64, end: u64, advice: u64) -> Result<()> {
        let (right, access) = if advice == abi::MADV_POPULATE_WRITE {
            (Flags::WRITE, Access::Write)
        } else {
            (Flags::READ, Access::Read)
        };
        let mut addr = start;
        while addr < end {
            let index = self.lookup(addr).ok_or(Errno::ENOMEM)?;
            if !self.vmas[index].flags.has(right) {
                return Err(Errno::EINVAL);
            }
            self.fault(index, addr, access)?;
            addr = (addr + 1).next_multiple_of(self.vmas[index].unit());
        }
        Ok(())
    }
}
