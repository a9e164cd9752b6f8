//! Huge pages: a pool, files of its pages, and what mappings reserve.
//!
//! A page of a file of huge pages is in the file or nowhere; a private mapping has copies, and
//! pages of its own where the file has none. Which pages were promised stands in two maps that are
//! each other's opposite: of a file those that are reserved or there, of a private mapping those
//! that it reserved and has used.
//!
//! Two processes, of which one runs, have the pool and the files in common: who runs has them, and
//! the other one ([`Space::fork`]).
//!
//! Linux: mm/hugetlb.c, fs/hugetlbfs/inode.c.

mod file;

use crate::abi::{MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_POPULATE};
use crate::access::{Access, NotToBeHad};
use crate::file::{File, Opened, Words};
use crate::map::shared;
use crate::policy::Policy;
use crate::space::Space;
use crate::vma::{Flags, Vma};
use crate::{Errno, PAGE, Result, TASK_SIZE};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a huge page.
pub const HUGE: u64 = 2 << 20;
/// Pages of a huge page.
const PAGES: u64 = HUGE / PAGE;

/// The huge pages of the machine.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pool {
    total: u64,
    free: u64,
    reserved: u64,
    /// Those of private mappings.
    own: BTreeMap<u64, OwnPage>,
    next: u64,
}

/// A huge page of one private mapping, and of those who got it by fork.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OwnPage {
    words: Words,
    mapped: u64,
}

/// Whether a page was promised to who takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taking {
    Reserved,
    Unreserved,
}

impl Pool {
    /// A pool of so many pages.
    #[must_use]
    pub fn new(pages: u64) -> Self {
        Self {
            total: pages,
            free: pages,
            ..Self::default()
        }
    }

    /// Pages in the pool (`HugePages_Free`), and those of them that are promised
    /// (`HugePages_Rsvd`).
    #[must_use]
    pub const fn counts(&self) -> [u64; 2] {
        [self.free, self.reserved]
    }

    /// Linux: hugetlb_acct_memory.
    fn reserve(&mut self, pages: u64) -> Result<()> {
        if self.free - self.reserved < pages {
            return Err(Errno::ENOMEM);
        }
        self.reserved += pages;
        Ok(())
    }

    /// Linux: dequeue_hugetlb_folio_vma.
    fn take(&mut self, taking: Taking) -> core::result::Result<(), NotToBeHad> {
        match taking {
            Taking::Reserved => self.reserved -= 1,
            Taking::Unreserved if self.free == self.reserved => return Err(NotToBeHad),
            Taking::Unreserved => {}
        }
        self.free -= 1;
        Ok(())
    }

    fn make_own(&mut self, words: Words) -> u64 {
        self.next += 1;
        self.own.insert(self.next, OwnPage { words, mapped: 1 });
        self.next
    }

    /// One mapping less; whether that was the last one.
    fn drop_own(&mut self, id: u64) -> bool {
        let Some(page) = self.own.get_mut(&id) else {
            return false;
        };
        page.mapped -= 1;
        let last = page.mapped == 0;
        if last {
            self.own.remove(&id);
            self.free += 1;
        }
        last
    }
}

impl Space {
    /// Gives the machine a pool of so many huge pages.
    pub fn set_huge_pool(&mut self, pages: u64) {
        self.pool = Pool::new(pages);
    }

    /// The pool.
    #[must_use]
    pub const fn huge_pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether the machine has huge pages.
    pub(crate) fn has_huge_pages(&self) -> bool {
        self.pool.total > 0
    }

    /// Whether so many bytes of huge pages could be reserved.
    #[must_use]
    pub const fn has_huge_pages_for(&self, bytes: u64) -> bool {
        bytes.div_ceil(HUGE) <= self.pool.free - self.pool.reserved
    }

    /// Gives the address space a file of so many huge pages, none of them there; returns its
    /// number.
    pub fn add_huge_file(&mut self, pages: u64) -> usize {
        self.files.push(File::huge(pages * HUGE));
        self.known_files = self.files.len();
        self.files.len() - 1
    }

    /// The huge pages of private mappings that are there, by number, with their words.
    pub fn huge_pages(&self) -> impl Iterator<Item = (u64, Words)> {
        let words = |id: &u64| self.pool.own.get(id).map(|page| page.words);
        let pages = self.huge.iter();
        pages.filter_map(move |(page, id)| Some((*page, words(id)?)))
    }

    /// mmap with `MAP_HUGETLB`: anonymous memory of huge pages, each mapping a file of its own.
    ///
    /// # Errors
    /// As Linux.
    pub fn mmap_huge(&mut self, addr: u64, len: u64, prot: u64, map: u64) -> Result<u64> {
        let rounded = len.checked_next_multiple_of(HUGE).unwrap_or(0);
        self.files.push(File::huge(rounded));
        let opened = Opened {
            file: self.files.len() - 1,
            writable: true,
        };
        let mapped = self.map_huge(addr, rounded, prot, map, (opened, 0));
        self.forget_files();
        mapped
    }

    /// mmap of a file of huge pages, from byte `offset` on.
    ///
    /// # Errors
    /// As Linux.
    pub fn mmap_huge_file(
        &mut self,
        addr: u64,
        len: u64,
        prot: u64,
        map: u64,
        of: (Opened, u64),
    ) -> Result<u64> {
        if !of.1.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let rounded = len.checked_next_multiple_of(HUGE).unwrap_or(0);
        let mapped = self.map_huge(addr, rounded, prot, map, of);
        self.forget_files();
        mapped
    }

    /// Linux: hugetlb_get_unmapped_area, hugetlbfs_file_mmap.
    fn map_huge(
        &mut self,
        addr: u64,
        len: u64,
        prot: u64,
        map: u64,
        (opened, offset): (Opened, u64),
    ) -> Result<u64> {
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let fixed = map & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        if len <= TASK_SIZE && fixed && !addr.is_multiple_of(HUGE) {
            return Err(Errno::EINVAL);
        }
        // Down to a page, and then up to a huge one.
        let page = if fixed { addr } else { addr & !(PAGE - 1) };
        let hint = page.checked_next_multiple_of(HUGE).unwrap_or(0);
        let mut addr = self.place(hint, len, map)?;
        if !fixed && addr != hint {
            addr = self.hole(len, HUGE)?;
        }
        let end = addr + len;
        if map & MAP_FIXED_NOREPLACE != 0 && !self.is_free(addr, end) {
            return Err(Errno::EEXIST);
        }
        let flags = Flags::of_prot(prot).with(Flags::MAYWRITE);
        let mut flags = shared(flags, map, prot, Some((opened, 0)))?.with(Flags::HUGETLB);
        if map & MAP_NORESERVE != 0 {
            flags = flags.with(Flags::NORESERVE);
        }
        // What is replaced is gone before it is known whether there are pages, but for the files
        // that were mapped there.
        self.cut_out(addr, end)?;
        if !offset.is_multiple_of(HUGE) {
            return Err(Errno::EINVAL);
        }
        let (first, last) = (offset / HUGE, (offset + len) / HUGE);
        let own = self.set_aside(opened.file, first, last, flags)?;
        if flags.has(Flags::WRITE) {
            self.files[opened.file].reach(offset + len);
        }
        self.insert(Vma {
            start: addr,
            end,
            flags,
            file: Some(opened),
            pgoff: offset / PAGE,
            policy: Policy::Default,
            anon: None,
            forked: false,
            own,
        });
        if map & MAP_POPULATE != 0 {
            self.populate(addr, end);
        }
        Ok(addr)
    }

    /// Linux: hugetlb_reserve_pages.
    fn set_aside(
        &mut self,
        file: usize,
        first: u64,
        end: u64,
        flags: Flags,
    ) -> Result<Option<u64>> {
        if flags.has(Flags::NORESERVE) {
            return Ok(None);
        }
        if flags.has(Flags::MAYSHARE) {
            let promised = &mut self.files[file].promised;
            let missing: Vec<u64> = (first..end).filter(|at| !promised.contains(at)).collect();
            self.pool.reserve(missing.len() as u64)?;
            promised.extend(missing);
            return Ok(None);
        }
        self.pool.reserve(end - first)?;
        self.next_anon += 1;
        self.used.insert(self.next_anon, BTreeSet::new());
        Ok(Some(self.next_anon))
    }

    /// The number of the huge page at `addr` in the mapping's file.
    fn huge_index(vma: &Vma, addr: u64) -> u64 {
        vma.pgoff_at(addr & !(HUGE - 1)) / PAGES
    }

    /// The word at `addr`, which was faulted in.
    pub(crate) fn huge_word(&self, vma: &Vma, addr: u64) -> u64 {
        let half = (addr % HUGE / (HUGE / 2)) as usize;
        let own = self.huge.get(&(addr / HUGE));
        if let Some(page) = own.and_then(|id| self.pool.own.get(id)) {
            return page.words[half];
        }
        let file = vma.file.map(|opened| &self.files[opened.file]);
        file.map_or(0, |file| file.page(Self::huge_index(vma, addr))[half])
    }

    /// Sets the word at `addr`, which was faulted in for it.
    pub(crate) fn set_huge_word(&mut self, index: usize, addr: u64, value: u64) {
        let half = (addr % HUGE / (HUGE / 2)) as usize;
        let own = self.huge.get(&(addr / HUGE));
        if let Some(page) = own.and_then(|id| self.pool.own.get_mut(id)) {
            page.words[half] = value;
            return;
        }
        let vma = &self.vmas[index];
        let at = Self::huge_index(vma, addr);
        if let Some(opened) = vma.file {
            self.files[opened.file].set(at, half, value);
        }
    }

    /// Brings in what an access needs. Linux: hugetlb_fault, hugetlb_no_page, hugetlb_wp.
    pub(crate) fn huge_fault(
        &mut self,
        index: usize,
        addr: u64,
        access: Access,
    ) -> core::result::Result<(), NotToBeHad> {
        let vma = &self.vmas[index];
        let Some(opened) = vma.file else {
            return Err(NotToBeHad);
        };
        let (at, number) = (Self::huge_index(vma, addr), addr / HUGE);
        if let Some(id) = self.huge.get(&number).copied() {
            return match access {
                Access::Read => Ok(()),
                Access::Write => self.huge_copy(index, (number, at), id),
            };
        }
        let file = &mut self.files[opened.file];
        let there = file.made.contains(&at);
        // A page behind the end, which only fallocate makes, is there for all.
        if !there && at >= file.bytes() / HUGE {
            return Err(NotToBeHad);
        }
        if vma.flags.has(Flags::MAYSHARE) {
            if !there {
                let taking = match file.promised.contains(&at) {
                    true => Taking::Reserved,
                    false => Taking::Unreserved,
                };
                self.pool.take(taking)?;
                file.made.insert(at);
                file.promised.insert(at);
            }
            return Ok(());
        }
        if there && access == Access::Read {
            return Ok(());
        }
        let words = file.page(at);
        let id = self.take_own(index, at, words)?;
        self.huge.insert(number, id);
        Ok(())
    }

    /// A page for a private mapping: one that it reserved and has not used, else one that nobody
    /// did.
    fn take_own(
        &mut self,
        index: usize,
        at: u64,
        words: Words,
    ) -> core::result::Result<u64, NotToBeHad> {
        let used = self.vmas[index].own.and_then(|own| self.used.get_mut(&own));
        let promised = used.as_ref().is_some_and(|used| !used.contains(&at));
        self.pool.take(match promised {
            true => Taking::Reserved,
            false => Taking::Unreserved,
        })?;
        if let Some(used) = used {
            used.insert(at);
        }
        Ok(self.pool.make_own(words))
    }

    /// A store to a page of a private mapping, which others may have, too. If there is none for a
    /// copy, who reserved it wins.
    fn huge_copy(
        &mut self,
        index: usize,
        (number, at): (u64, u64),
        id: u64,
    ) -> core::result::Result<(), NotToBeHad> {
        let Some(page) = self.pool.own.get(&id).copied() else {
            return Err(NotToBeHad);
        };
        if page.mapped == 1 {
            return Ok(());
        }
        match self.take_own(index, at, page.words) {
            Ok(copy) => {
                self.huge.insert(number, copy);
                self.pool.drop_own(id);
                Ok(())
            }
            Err(NotToBeHad) if self.vmas[index].own.is_some() => {
                if let Some(other) = &mut self.other {
                    other.huge.retain(|_, theirs| *theirs != id);
                }
                if let Some(page) = self.pool.own.get_mut(&id) {
                    page.mapped = 1;
                }
                Ok(())
            }
            Err(none) => Err(none),
        }
    }

    /// Takes the huge pages in `[start, end)` out. Linux: `__unmap_hugepage_range`, which gives a
    /// private mapping's page back to who reserved it.
    pub(crate) fn discard_huge(&mut self, start: u64, end: u64) {
        let range = start.div_ceil(HUGE)..end / HUGE;
        let gone: Vec<(u64, u64)> = self
            .huge
            .iter()
            .filter(|(number, _)| range.contains(number))
            .map(|(number, id)| (*number, *id))
            .collect();
        for (number, id) in gone {
            self.huge.remove(&number);
            let last = self.pool.drop_own(id);
            let Some(vma) = self.at(number * HUGE) else {
                continue;
            };
            let (own, at) = (vma.own, Self::huge_index(vma, number * HUGE));
            if let Some(used) = own.and_then(|own| self.used.get_mut(&own))
                && used.remove(&at)
                && last
            {
                self.pool.reserved += 1;
            }
        }
    }

    /// A mapping goes, or a part of it: what it reserved and has not used is anybody's again.
    /// Linux: hugetlb_vm_op_close.
    pub(crate) fn give_back_own(&mut self, vma: &Vma) {
        if let Some(used) = vma.own.and_then(|own| self.used.get(&own)) {
            let first = vma.pgoff / PAGES;
            let pages = first..first + vma.pages() / PAGES;
            let unused = pages.filter(|at| !used.contains(at)).count();
            self.pool.reserved -= unused as u64;
        }
    }

    /// Of a forked child: it has the private huge pages, and nothing reserved; this address space
    /// becomes the other one.
    pub(crate) fn fork_huge(&self, child: &mut Self) {
        for vma in &mut child.vmas {
            vma.own = None;
        }
        child.used.clear();
        let inherited = |number: &u64| {
            let vma = child.at(number * HUGE);
            vma.is_some_and(|vma| vma.flags.has(Flags::HUGETLB))
        };
        let huge: BTreeMap<u64, u64> = self
            .huge
            .iter()
            .filter(|(number, _)| inherited(number))
            .map(|(number, id)| (*number, *id))
            .collect();
        for id in huge.values() {
            if let Some(page) = child.pool.own.get_mut(id) {
                page.mapped += 1;
            }
        }
        child.huge = huge;
        child.other = Some(Box::new(self.clone()));
    }

    /// The process ends: the other one, which goes on with the pool and the files.
    pub(crate) fn exit_huge(mut self) -> Option<Self> {
        let _all = self.unmap(self.window.start().0, self.window.end().0);
        self.forget_files();
        let mut other = *self.other?;
        other.pool = self.pool;
        other.files = self.files;
        Some(other)
    }
}
