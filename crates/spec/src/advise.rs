//! madvise and mincore.

use crate::abi::{
    FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MADV_COLD, MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP,
    MADV_DONTFORK, MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_HUGEPAGE, MADV_KEEPONFORK,
    MADV_MERGEABLE, MADV_NOHUGEPAGE, MADV_NORMAL, MADV_PAGEOUT, MADV_POPULATE_READ,
    MADV_POPULATE_WRITE, MADV_RANDOM, MADV_REMOVE, MADV_SEQUENTIAL, MADV_UNMERGEABLE,
    MADV_WILLNEED, MADV_WIPEONFORK,
};
use crate::file::Opened;
use crate::huge::HUGE;
use crate::space::Space;
use crate::vma::Flags;
use crate::{Errno, PAGE, Result, TASK_SIZE, is_aligned, page_align};

/// What an advice does to the flags of a mapping: those it takes away, those it sets.
const CHANGES: [(u64, Flags, Flags); 13] = [
    (MADV_NORMAL, READS, Flags::NONE),
    (MADV_RANDOM, READS, Flags::RAND_READ),
    (MADV_SEQUENTIAL, READS, Flags::SEQ_READ),
    (MADV_DONTFORK, Flags::NONE, Flags::DONTCOPY),
    (MADV_DOFORK, Flags::DONTCOPY, Flags::NONE),
    (MADV_WIPEONFORK, Flags::NONE, Flags::WIPEONFORK),
    (MADV_KEEPONFORK, Flags::WIPEONFORK, Flags::NONE),
    (MADV_DONTDUMP, Flags::NONE, Flags::DONTDUMP),
    (MADV_DODUMP, Flags::DONTDUMP, Flags::NONE),
    (MADV_MERGEABLE, Flags::NONE, Flags::MERGEABLE),
    (MADV_UNMERGEABLE, Flags::MERGEABLE, Flags::NONE),
    (MADV_HUGEPAGE, HUGES, Flags::HUGEPAGE),
    (MADV_NOHUGEPAGE, HUGES, Flags::NOHUGEPAGE),
];
const READS: Flags = Flags::RAND_READ.with(Flags::SEQ_READ);
const HUGES: Flags = Flags::HUGEPAGE.with(Flags::NOHUGEPAGE);

impl Space {
    /// madvise. Linux: mm/madvise.c do_madvise, madvise_walk_vmas, madvise_vma_behavior.
    ///
    /// # Errors
    /// As Linux; what could be done in the range has been done where part of it is not mapped.
    pub fn madvise(&mut self, start: u64, len: u64, advice: u64) -> Result<()> {
        // The argument is an int.
        let advice = advice & 0xffff_ffff;
        let pages_only = [
            MADV_WILLNEED,
            MADV_DONTNEED,
            MADV_DONTNEED_LOCKED,
            MADV_FREE,
            MADV_REMOVE,
            MADV_COLD,
            MADV_PAGEOUT,
            MADV_POPULATE_READ,
            MADV_POPULATE_WRITE,
        ];
        let change = CHANGES.iter().find(|change| change.0 == advice);
        let known = change.is_some() || pages_only.contains(&advice);
        let rounded = page_align(len);
        let end = start.wrapping_add(rounded);
        if !known || !is_aligned(start) || (len > 0 && rounded == 0) || end < start {
            return Err(Errno::EINVAL);
        }
        if matches!(advice, MADV_POPULATE_READ | MADV_POPULATE_WRITE) {
            return self.populate_by(start, end, advice);
        }
        let mut at = start;
        let mut result = Ok(());
        while at < end {
            let index = self.find(at);
            let vma = self.vmas.get(index).ok_or(Errno::ENOMEM)?;
            if vma.start > at {
                result = Err(Errno::ENOMEM);
                at = vma.start;
                if at >= end {
                    break;
                }
            }
            let to = vma.end.min(end);
            match change {
                Some((_, takes, sets)) => self.advise_flags(index, (at, to), *takes, *sets)?,
                None => self.advise_pages(index, (at, to), advice)?,
            }
            at = to;
        }
        result
    }

    fn advise_flags(
        &mut self,
        index: usize,
        range: (u64, u64),
        takes: Flags,
        sets: Flags,
    ) -> Result<()> {
        let vma = &self.vmas[index];
        if sets == Flags::WIPEONFORK && vma.file.is_some() {
            return Err(Errno::EINVAL);
        }
        if sets == Flags::MERGEABLE && vma.flags.has(Flags::MAYSHARE.with(Flags::HUGETLB)) {
            return Ok(());
        }
        let (flags, policy) = (vma.flags.without(takes).with(sets), vma.policy);
        if flags != vma.flags {
            self.modify(index, range, flags, policy)?;
        }
        Ok(())
    }

    /// Of pages that may be taken back later (`MADV_FREE`), the model keeps the contents.
    fn advise_pages(&mut self, index: usize, range: (u64, u64), advice: u64) -> Result<()> {
        if advice == MADV_WILLNEED {
            return Ok(());
        }
        let vma = &self.vmas[index];
        if vma.flags.has(Flags::LOCKED) && advice != MADV_DONTNEED_LOCKED {
            return Err(Errno::EINVAL);
        }
        if vma.flags.has(Flags::HUGETLB) && advice != MADV_REMOVE {
            return self.advise_huge(range, advice);
        }
        match (advice, vma.file) {
            (MADV_REMOVE, None) | (MADV_FREE, Some(_)) => return Err(Errno::EINVAL),
            (MADV_REMOVE, Some(opened)) => return self.remove(index, range, opened),
            _ => {}
        }
        if matches!(advice, MADV_DONTNEED | MADV_DONTNEED_LOCKED) {
            self.discard(range.0, range.1);
        }
        Ok(())
    }

    /// Huge pages can be thrown away, and nothing else; what is no whole page at the end stays.
    /// Linux: madvise_dontneed_free_valid_vma.
    fn advise_huge(&mut self, (start, end): (u64, u64), advice: u64) -> Result<()> {
        let throws = matches!(advice, MADV_DONTNEED | MADV_DONTNEED_LOCKED);
        if !throws || !start.is_multiple_of(HUGE) {
            return Err(Errno::EINVAL);
        }
        self.discard(start, end / HUGE * HUGE);
        Ok(())
    }

    /// Punches a hole into the file. Linux: mm/madvise.c madvise_remove.
    fn remove(&mut self, index: usize, range: (u64, u64), opened: Opened) -> Result<()> {
        let vma = &self.vmas[index];
        if !vma.flags.has(Flags::SHARED) {
            return Err(Errno::EACCES);
        }
        let (offset, len) = (vma.pgoff_at(range.0) * PAGE, range.1 - range.0);
        if vma.flags.has(Flags::HUGETLB) {
            self.huge_punch(opened.file, offset, offset + len);
            return Ok(());
        }
        let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        self.fallocate(opened, mode, offset, len)
    }

    /// mincore: for each page of private memory, whether it is present; of a file, whether it is
    /// in memory, which this model does not know. Linux: mm/mincore.c.
    ///
    /// # Errors
    /// As Linux.
    pub fn mincore(&self, start: u64, len: u64) -> Result<Vec<bool>> {
        if !is_aligned(start) {
            return Err(Errno::EINVAL);
        }
        if start.checked_add(len).is_none_or(|end| end > TASK_SIZE) {
            return Err(Errno::ENOMEM);
        }
        let pages = start / PAGE..(start + page_align(len)) / PAGE;
        pages
            .map(|page| match self.lookup(page * PAGE) {
                Some(_) => Ok(self.pages.contains_key(&page)),
                None => Err(Errno::ENOMEM),
            })
            .collect()
    }
}
