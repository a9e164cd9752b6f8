//! mprotect.

use crate::abi::{PROT_EXEC, PROT_GROWSDOWN, PROT_GROWSUP, PROT_READ, PROT_SEM, PROT_WRITE};
use crate::space::Space;
use crate::vma::Flags;
use crate::{Errno, Result, is_aligned, page_align};

impl Space {
    /// mprotect. Linux: mm/mprotect.c do_mprotect_pkey, mprotect_fixup.
    ///
    /// # Errors
    /// As Linux; what lies before a hole has been changed then.
    pub fn mprotect(&mut self, start: u64, len: u64, prot: u64) -> Result<()> {
        let grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);
        let prot = prot & !grows;
        if grows == PROT_GROWSDOWN | PROT_GROWSUP || !is_aligned(start) {
            return Err(Errno::EINVAL);
        }
        if len == 0 {
            return Ok(());
        }
        let end = start.wrapping_add(page_align(len));
        if end <= start {
            return Err(Errno::ENOMEM);
        }
        if prot & !(PROT_READ | PROT_WRITE | PROT_EXEC | PROT_SEM) != 0 {
            return Err(Errno::EINVAL);
        }
        let first = self.vmas.get(self.find(start));
        let first = first.filter(|vma| vma.start < end).ok_or(Errno::ENOMEM)?;
        let mut at = start;
        if grows & PROT_GROWSDOWN != 0 {
            at = first.start;
            if !first.flags.has(Flags::GROWSDOWN) {
                return Err(Errno::EINVAL);
            }
        } else if first.start > start {
            return Err(Errno::ENOMEM);
        } else if grows & PROT_GROWSUP != 0 {
            return Err(Errno::EINVAL);
        }
        while at < end {
            let index = self.lookup(at).ok_or(Errno::ENOMEM)?;
            let to = self.vmas[index].end.min(end);
            self.protect_one(index, at, to, Flags::of_prot(prot))?;
            at = to;
        }
        Ok(())
    }

    fn protect_one(&mut self, index: usize, start: u64, end: u64, rights: Flags) -> Result<()> {
        let vma = &self.vmas[index];
        let (old, policy) = (vma.flags, vma.policy);
        let mut new = old.without(Flags::ACCESS).with(rights);
        if rights.has(Flags::WRITE) && !old.has(Flags::MAYWRITE) {
            return Err(Errno::EACCES);
        }
        if new == old {
            return Ok(());
        }
        let counted = Flags::ACCOUNT.with(Flags::WRITE).with(Flags::NORESERVE);
        let counted = counted.with(Flags::SHARED).with(Flags::HUGETLB);
        if new.has(Flags::WRITE) {
            if !old.has(counted) {
                new = new.with(Flags::ACCOUNT);
            }
        } else if vma.anon.is_none() && vma.file.is_none() {
            new = new.without(Flags::ACCOUNT);
        }
        let index = self.modify(index, (start, end), new, policy)?;
        // A locked mapping that becomes writable gets its pages at once, as far as there are any.
        let was = old.and(Flags::LOCKED.with(Flags::WRITE).with(Flags::SHARED));
        if was == Flags::LOCKED && new.has(Flags::WRITE) {
            let _as_far = self.populate_one(index, start, end);
        }
        Ok(())
    }
}
