//! mmap, munmap and brk.

use crate::abi::{
    MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE,
    MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, PROT_WRITE,
};
use crate::file::{File, Opened};
use crate::policy::Policy;
use crate::space::Space;
use crate::vma::{Flags, Vma};
use crate::{Errno, PAGE, Result, TASK_SIZE, is_aligned, page_align};

impl Space {
    /// mmap of anonymous memory. Linux: mm/mmap.c do_mmap, mm/vma.c __mmap_region.
    ///
    /// # Errors
    /// As Linux.
    pub fn mmap(&mut self, addr: u64, len: u64, prot: u64, map: u64) -> Result<u64> {
        self.map(addr, len, prot, map, None)
    }

    /// mmap of a file from byte `offset` on.
    ///
    /// # Errors
    /// As Linux.
    pub fn mmap_file(
        &mut self,
        addr: u64,
        len: u64,
        prot: u64,
        map: u64,
        (opened, offset): (Opened, u64),
    ) -> Result<u64> {
        if !is_aligned(offset) {
            return Err(Errno::EINVAL);
        }
        self.map(addr, len, prot, map, Some((opened, offset / PAGE)))
    }

    fn map(
        &mut self,
        addr: u64,
        len: u64,
        prot: u64,
        map: u64,
        mut of: Option<(Opened, u64)>,
    ) -> Result<u64> {
        let mut flags = Flags::of_prot(prot).with(self.future).with(Flags::MAYWRITE);
        for (bit, flag) in [
            (MAP_GROWSDOWN, Flags::GROWSDOWN),
            (MAP_LOCKED, Flags::LOCKED),
            (MAP_STACK, Flags::NOHUGEPAGE),
        ] {
            if map & bit != 0 {
                flags = flags.with(flag);
            }
        }
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let len = page_align(len);
        if len == 0 {
            return Err(Errno::ENOMEM);
        }
        let addr = self.place(addr, len, map)?;
        let end = addr + len;
        if map & MAP_FIXED_NOREPLACE != 0 && !self.is_free(addr, end) {
            return Err(Errno::EEXIST);
        }
        if map & MAP_LOCKED != 0 && self.memlock == 0 {
            return Err(Errno::EPERM);
        }
        if !self.may_lock(flags, len) {
            return Err(Errno::EAGAIN);
        }
        flags = shared(flags, map, prot, of)?;
        if map & MAP_NORESERVE != 0 {
            flags = flags.with(Flags::NORESERVE);
        }
        let replaced = self.mapped_in(addr, end);
        if !self.may_expand(len / PAGE - replaced) {
            // What would have been replaced was cut off already.
            self.split(addr)?;
            self.split(end)?;
            return Err(Errno::ENOMEM);
        }
        let counts = Flags::WRITE.with(Flags::NORESERVE).with(Flags::SHARED);
        if flags.and(counts) == Flags::WRITE {
            flags = flags.with(Flags::ACCOUNT);
        }
        self.unmap(addr, end)?;
        if of.is_none() && flags.has(Flags::SHARED) {
            of = Some((self.file_of_its_own(len), 0));
        }
        self.insert(Vma {
            start: addr,
            end,
            flags,
            file: of.map(|(opened, _)| opened),
            pgoff: of.map_or(addr / PAGE, |(_, pgoff)| pgoff),
            policy: Policy::Default,
            anon: None,
            forked: false,
            own: None,
        });
        if flags.has(Flags::LOCKED) {
            self.locked_pages += len / PAGE;
        }
        let now = map & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE;
        if now || flags.has(Flags::LOCKED) {
            self.populate(addr, end);
        }
        Ok(addr)
    }

    /// What shared anonymous memory is of. Linux: shmem_zero_setup.
    fn file_of_its_own(&mut self, len: u64) -> Opened {
        self.files.push(File::new(len));
        Opened {
            file: self.files.len() - 1,
            writable: true,
        }
    }

    /// Where a mapping of `len` bytes goes. Linux: mm/mmap.c __get_unmapped_area.
    pub(crate) fn place(&self, addr: u64, len: u64, map: u64) -> Result<u64> {
        if len > TASK_SIZE {
            return Err(Errno::ENOMEM);
        }
        if map & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            if addr > TASK_SIZE - len {
                return Err(Errno::ENOMEM);
            }
            if !is_aligned(addr) {
                return Err(Errno::EINVAL);
            }
            return Ok(addr);
        }
        let hint = addr & !(PAGE - 1);
        if hint != 0 && self.knows(hint, len) {
            let next = self.vmas.get(self.find(hint));
            if next.is_none_or(|next| hint + len <= next.start_gap()) {
                return Ok(hint);
            }
        }
        self.hole(len, PAGE)
    }

    /// A hole with room to align what lies in it: the start of `len` bytes there, aligned.
    pub(crate) fn hole(&self, len: u64, unit: u64) -> Result<u64> {
        let room = len + (unit - PAGE);
        let up = |start: u64| start.next_multiple_of(unit);
        let down = |start: u64| (start + room - len) / unit * unit;
        let highest = self.highest_hole(room).map(down);
        let lowest = || self.lowest_hole(room).map(up);
        highest.or_else(lowest).ok_or(Errno::ENOMEM)
    }

    /// Linux: mm/vma.c unmapped_area_topdown. What lies below a stack's gap is looked at only
    /// below the gap: holes within it are passed over, whoever is their neighbour.
    fn highest_hole(&self, len: u64) -> Option<u64> {
        let mut limit = self.window.end().0;
        for index in (0..=self.vmas.len()).rev() {
            let next = self.vmas.get(index);
            let end = next.map_or(self.window.end().0, |vma| vma.start).min(limit);
            let start = self.end_below(index);
            if start >= end || end - start < len {
                continue;
            }
            let gap = next.map_or(u64::MAX, Vma::start_gap);
            if gap < end {
                limit = gap;
                if start < gap && gap - start >= len {
                    return Some(gap - len);
                }
                continue;
            }
            return Some(end - len);
        }
        None
    }

    /// Linux: mm/vma.c unmapped_area.
    fn lowest_hole(&self, len: u64) -> Option<u64> {
        (0..=self.vmas.len()).find_map(|index| {
            let next = self.vmas.get(index);
            let end = next.map_or(self.window.end().0, Vma::start_gap);
            let start = self.end_below(index);
            (start < end && end - start >= len).then_some(start)
        })
    }

    /// Where the mapping below that at `index` ends.
    fn end_below(&self, index: usize) -> u64 {
        let below = index.checked_sub(1).map(|below| self.vmas[below].end);
        below.unwrap_or(self.window.start().0)
    }

    /// Pages mapped in `[start, end)`.
    fn mapped_in(&self, start: u64, end: u64) -> u64 {
        let part = |vma: &Vma| vma.end.min(end).saturating_sub(vma.start.max(start)) / PAGE;
        self.vmas.iter().map(part).sum()
    }

    /// munmap. Linux: mm/vma.c do_vmi_munmap.
    ///
    /// # Errors
    /// As Linux.
    pub fn munmap(&mut self, addr: u64, len: u64) -> Result<()> {
        if !is_aligned(addr) || addr > TASK_SIZE || len > TASK_SIZE - addr || len == 0 {
            return Err(Errno::EINVAL);
        }
        self.unmap(addr, addr + page_align(len))
    }

    /// brk: moves the break, and returns where it is. Linux: mm/mmap.c brk.
    pub fn brk(&mut self, brk: u64) -> u64 {
        if brk >= self.start_brk && self.move_break(brk).is_some() {
            self.brk = brk;
        }
        self.brk
    }

    fn move_break(&mut self, brk: u64) -> Option<()> {
        let (old, new) = (page_align(self.brk), page_align(brk));
        if old == new {
            return Some(());
        }
        if brk <= self.brk {
            let first = self.vmas.get(self.find(new))?;
            if first.start >= old {
                return None;
            }
            self.unmap(new, old).ok()?;
            return Some(());
        }
        let len = new.checked_sub(old)?;
        self.place(old, len, MAP_FIXED).ok()?;
        let flags = Flags::of_prot(3).with(Flags::ACCOUNT).with(Flags::MAYWRITE);
        let flags = flags.with(self.future);
        if !self.may_lock(flags, len) {
            return None;
        }
        // A page stays free behind the heap, and the gap of a stack above it.
        let next = self.vmas.get(self.find(old));
        let next = next.map_or(self.window.end().0, Vma::start_gap);
        if new + PAGE > next || !self.may_expand(len / PAGE) {
            return None;
        }
        let fresh = Vma {
            start: old,
            end: new,
            flags,
            file: None,
            pgoff: old / PAGE,
            policy: Policy::Default,
            anon: None,
            forked: false,
            own: None,
        };
        let below = self.find(old).checked_sub(1);
        let of_heap = below.is_some_and(|below| self.vmas[below].end > self.start_brk);
        if of_heap {
            self.extend(fresh);
        } else {
            let index = self.find(old);
            self.vmas.insert(index, fresh);
        }
        if self.future.has(Flags::LOCKED) {
            self.locked_pages += len / PAGE;
            self.populate(old, new);
        }
        Some(())
    }
}

/// The flags of a mapping with what the kind of sharing adds, and whether that may be at all.
/// Linux: do_mmap, from where it asks for `MAP_TYPE` on.
pub(crate) fn shared(
    flags: Flags,
    map: u64,
    prot: u64,
    of: Option<(Opened, u64)>,
) -> Result<Flags> {
    let kind = map & MAP_TYPE;
    let grows = flags.has(Flags::GROWSDOWN);
    let shares = Flags::SHARED.with(Flags::MAYSHARE);
    match (kind, of) {
        (MAP_PRIVATE, None) => Ok(flags),
        (MAP_SHARED, None) if !grows => Ok(flags.with(shares)),
        // Flags that are younger than this kind of sharing are not passed over by it.
        (MAP_SHARED_VALIDATE, Some(_)) if map & MAP_FIXED_NOREPLACE != 0 => Err(Errno::EOPNOTSUPP),
        (MAP_SHARED | MAP_SHARED_VALIDATE, Some((opened, _))) => {
            if prot & PROT_WRITE != 0 && !opened.writable {
                return Err(Errno::EACCES);
            }
            if grows {
                return Err(Errno::EINVAL);
            }
            if opened.writable {
                return Ok(flags.with(shares));
            }
            Ok(flags.with(Flags::MAYSHARE).without(Flags::MAYWRITE))
        }
        (MAP_PRIVATE, Some(_)) if !grows => Ok(flags),
        _ => Err(Errno::EINVAL),
    }
}
