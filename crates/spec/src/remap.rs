//! mremap.

use crate::abi::{MAP_FIXED, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use crate::space::Space;
use crate::vma::{Flags, Vma};
use crate::{Errno, PAGE, Result, TASK_SIZE, is_aligned, page_align};

/// One move or change of size, of one mapping.
#[derive(Clone, Copy, Debug)]
struct Remap {
    addr: u64,
    old_len: u64,
    new_len: u64,
    flags: u64,
    new_addr: u64,
}

impl Remap {
    const fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Whether it goes elsewhere for certain.
    const fn moves(&self) -> bool {
        self.has(MREMAP_FIXED | MREMAP_DONTUNMAP)
    }
}

impl Space {
    /// mremap. Linux: mm/mremap.c do_mremap (v6.17 and later).
    ///
    /// # Errors
    /// As Linux; what lay at a fixed place may be gone then.
    pub fn mremap(
        &mut self,
        addr: u64,
        old_len: u64,
        new_len: u64,
        flags: u64,
        new_addr: u64,
    ) -> Result<u64> {
        let remap = Remap {
            addr,
            old_len: page_align(old_len),
            new_len: page_align(new_len),
            flags,
            new_addr,
        };
        remap.check()?;
        if remap.has(MREMAP_FIXED) && remap.old_len == remap.new_len {
            return self.move_all(remap);
        }
        self.check_vma(&remap)?;
        if remap.moves() {
            self.move_to(remap)
        } else {
            self.resize(remap)
        }
    }

    /// Moves all mappings of a range, which may be several where the size stays. Linux:
    /// remap_move.
    fn move_all(&mut self, all: Remap) -> Result<u64> {
        let end = all.addr.wrapping_add(all.old_len);
        let mut at = all.addr;
        let mut first = None;
        while at < end
            && let Some(vma) = self.vmas.get(self.find(at)).filter(|vma| vma.start < end)
        {
            if first.is_none() && vma.start > all.addr {
                return Err(Errno::EFAULT);
            }
            // Linux: vma_multi_allowed.
            if vma.flags.has(Flags::UFFD) && (first.is_some() || vma.end < end) {
                return Err(Errno::EFAULT);
            }
            let (start, stop) = (vma.start.max(at), vma.end.min(end));
            let part = Remap {
                addr: start,
                old_len: stop - start,
                new_len: stop - start,
                new_addr: all.new_addr + (start - all.addr),
                ..all
            };
            self.check_vma(&part)?;
            let to = self.move_to(part)?;
            first = first.or(Some(to));
            at = stop;
        }
        first.ok_or(Errno::EFAULT)
    }

    /// Linux: check_prep_vma.
    fn check_vma(&self, remap: &Remap) -> Result<()> {
        let index = self.lookup(remap.addr).ok_or(Errno::EFAULT)?;
        let vma = &self.vmas[index];
        let grows = remap.new_len > remap.old_len;
        if !grows && !remap.moves() {
            return Ok(());
        }
        // Nothing of a shared mapping, made more, is a second mapping of the same.
        if remap.old_len == 0 && !vma.flags.has(Flags::MAYSHARE) {
            return Err(Errno::EINVAL);
        }
        if remap.old_len.min(remap.new_len) > vma.end - remap.addr {
            return Err(Errno::EFAULT);
        }
        let more = remap.new_len.saturating_sub(remap.old_len);
        if grows && !self.may_lock(vma.flags, more) {
            return Err(Errno::EAGAIN);
        }
        if grows && !self.may_expand(more / PAGE) {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// Linux: mremap_to.
    fn move_to(&mut self, mut remap: Remap) -> Result<u64> {
        if remap.has(MREMAP_FIXED) {
            self.unmap(remap.new_addr, remap.new_addr + remap.new_len)?;
        }
        if remap.new_len < remap.old_len {
            self.unmap(remap.addr + remap.new_len, remap.addr + remap.old_len)?;
            remap.old_len = remap.new_len;
        }
        if remap.has(MREMAP_DONTUNMAP) && !self.may_expand(remap.old_len / PAGE) {
            return Err(Errno::ENOMEM);
        }
        let map = if remap.has(MREMAP_FIXED) {
            MAP_FIXED
        } else {
            0
        };
        remap.new_addr = self.place(remap.new_addr, remap.new_len, map)?;
        self.move_one(remap)
    }

    /// Grows or shrinks where it is, or moves to grow. Linux: mremap_at, expand_vma.
    fn resize(&mut self, mut remap: Remap) -> Result<u64> {
        let end = remap.addr + remap.old_len;
        if remap.new_len < remap.old_len {
            self.unmap(remap.addr + remap.new_len, end)?;
        }
        if remap.new_len <= remap.old_len {
            return Ok(remap.addr);
        }
        let index = self.lookup(remap.addr).ok_or(Errno::EFAULT)?;
        let vma = self.vmas[index].clone();
        let more = remap.new_len - remap.old_len;
        let behind = vma.end.checked_add(more);
        if vma.end == end && behind.is_some_and(|behind| self.is_free(end, behind)) {
            let fresh = Vma {
                start: end,
                end: end + more,
                pgoff: vma.pgoff_at(end),
                ..vma.clone()
            };
            self.insert(fresh);
            self.count_grown(&vma, remap.addr, &remap);
            return Ok(remap.addr);
        }
        if !remap.has(MREMAP_MAYMOVE) {
            return Err(Errno::ENOMEM);
        }
        remap.new_addr = self.place(0, remap.new_len, 0)?;
        self.move_one(remap)
    }

    /// Linux: move_vma, copy_vma, unmap_source_vma, dontunmap_complete.
    fn move_one(&mut self, remap: Remap) -> Result<u64> {
        let index = self.lookup(remap.addr).ok_or(Errno::EFAULT)?;
        let old = self.vmas[index].clone();
        let end = remap.addr + remap.old_len;
        // Without pages it may forget where it was, and so fit its new neighbours.
        let pgoff = match (old.anon, old.file) {
            (None, None) => remap.new_addr / PAGE,
            _ => old.pgoff_at(remap.addr),
        };
        let new = self.insert(Vma {
            start: remap.new_addr,
            end: remap.new_addr + remap.new_len,
            pgoff,
            ..old.clone()
        });
        self.move_pages(remap.addr, remap.new_addr, remap.old_len);
        // Linux: mremap_userfaultfd_prep.
        if old.flags.has(Flags::UFFD) {
            let flags = self.vmas[new].flags;
            self.vmas[new].flags = flags.without(Flags::UFFD);
        }
        if remap.has(MREMAP_DONTUNMAP) {
            if old.flags.has(Flags::LOCKED) {
                self.locked_pages += remap.new_len / PAGE;
            }
            self.leave_behind(remap.addr, end);
        } else {
            self.unmap(remap.addr, end)?;
            self.locked_pages += match old.flags.has(Flags::LOCKED) {
                true => remap.old_len / PAGE,
                false => 0,
            };
            self.count_grown(&old, remap.new_addr, &remap);
        }
        Ok(remap.new_addr)
    }

    /// What stays of a mapping whose pages went elsewhere: it is not locked any more, as a whole
    /// even if only a part was moved.
    fn leave_behind(&mut self, start: u64, end: u64) {
        if let Some(index) = self.lookup(start) {
            let vma = &mut self.vmas[index];
            vma.flags = vma.flags.without(Flags::LOCKS);
            if (vma.start, vma.end) == (start, end) {
                vma.anon = None;
                vma.forked = false;
            }
        }
    }

    /// Counts and faults in by what a locked mapping grew; it is at `addr` now.
    fn count_grown(&mut self, old: &Vma, addr: u64, remap: &Remap) {
        if old.flags.has(Flags::LOCKED) && remap.new_len > remap.old_len {
            self.locked_pages += (remap.new_len - remap.old_len) / PAGE;
            self.populate(addr + remap.old_len, addr + remap.new_len);
        }
    }

    fn move_pages(&mut self, from: u64, to: u64, len: u64) {
        let range = from / PAGE..(from + len) / PAGE;
        let inside: Vec<_> = self
            .pages
            .range(range)
            .map(|(at, page)| (*at, *page))
            .collect();
        for (at, page) in inside {
            self.pages.remove(&at);
            self.protected.remove(&at);
            self.pages.insert(at - from / PAGE + to / PAGE, page);
        }
    }
}

impl Remap {
    /// Linux: check_mremap_params.
    fn check(&self) -> Result<()> {
        let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        if self.flags & !known != 0 || !is_aligned(self.addr) {
            return Err(Errno::EINVAL);
        }
        if self.new_len == 0 || self.new_len > TASK_SIZE {
            return Err(Errno::EINVAL);
        }
        if !self.moves() {
            return Ok(());
        }
        let resizes = self.old_len != self.new_len;
        if self.new_addr > TASK_SIZE - self.new_len
            || !is_aligned(self.new_addr)
            || !self.has(MREMAP_MAYMOVE)
            || (self.has(MREMAP_DONTUNMAP) && resizes)
            || self.overlaps()
        {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    fn overlaps(&self) -> bool {
        self.addr.wrapping_add(self.old_len) > self.new_addr
            && self.new_addr + self.new_len > self.addr
    }
}
