//! mprotect: changes the protection of a range.
//!
//! Flags and PTEs change in one write section per VMA, so that a speculative fault sees both or
//! neither.
//!
//! A mapping that becomes writable is charged, if it was not yet ([`crate::memory::commit`]). One
//! that becomes read-only stays charged, unless it was never written.
//!
//! Linux: mm/mprotect.c do_mprotect_pkey, mprotect_fixup (v6.18).

use super::populate::{Failure, to_lock};
use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::error::{MprotectError, NoMemory};
use crate::base::event::Event;
use crate::change::modify::modify;
use crate::change::writers::Writers;
use crate::entry::translation;
use crate::entry::zap::Zap;
use crate::memory::lifetime::as_call;
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::space::vma::VmaPtr;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Ordering;

impl<M: Mmu> Mm<M> {
    /// Changes the protection of `len` bytes (rounded up to pages) from `start` on.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing; waits for TLB flushes.
    ///
    /// # Errors
    /// See [`MprotectError`]. Mappings before a hole, or before the mapping for which memory ran
    /// out, have been changed, as in Linux; no mapping is half changed.
    pub fn mprotect(&self, start: VirtAddr, len: u64, prot: Prot) -> Result<(), MprotectError> {
        as_call(self.system(), || {
            self.system().count(Event::Mprotect);
            self.system().with_memory(|| {
                if !start.is_aligned(M::Paging::shift()) {
                    return Err(MprotectError::Invalid);
                }
                if len == 0 {
                    return Ok(());
                }
                let range = super::page_range::<M>(start, len).filter(|range| !range.is_empty());
                let range = range.ok_or(MprotectError::NoMemory)?;
                let writers = Writers::lock(self, self.over(range));
                let mut locked = None;
                let result = self.protect_all(&writers, range, prot, &mut locked);
                drop(writers);
                if let Some(locked) = locked {
                    self.populate_locked(locked);
                }
                M::note(format_args!("mprotect {range} {prot:?} returns"));
                result
            })
        })
    }

    /// Copies the pages of what is locked and may be stored to from now on, so that no store waits
    /// for that. Linux: the end of mprotect_fixup.
    #[cold]
    fn populate_locked(&self, range: VirtRange) {
        let share = Share::default();
        // What lies between the first and the last of them may be otherwise.
        let how = |view: &VmaView| match view.flags.has(VmaFlags::LOCKED) {
            true if view.prot.has(Prot::WRITE) => to_lock(view),
            _ => Ok(None),
        };
        let _some = self.populate_mapped(&share, range, Failure::Skips, how);
        self.rss.sync(&share);
    }

    /// Changes the VMAs of a range, up to the first hole; `locked` becomes from where to where any
    /// became writable that is locked.
    fn protect_all(
        &self,
        writers: &Writers<'_, M>,
        range: VirtRange,
        prot: Prot,
        locked: &mut Option<VirtRange>,
    ) -> Result<(), MprotectError> {
        let mut at = range.start();
        while at < range.end() {
            let vma = writers.held().find(at).ok_or(MprotectError::NoMemory)?;
            let VmaView {
                range: whole,
                prot: old,
                flags,
                ..
            } = vma.view();
            if whole.start() > at {
                return Err(MprotectError::NoMemory);
            }
            let part = VirtRange::new(at, range.end()).intersect(whole);
            self.protect_one(writers, vma.into(), part, prot)?;
            let gains = prot.has(Prot::WRITE) && !old.has(Prot::WRITE);
            if gains && flags.has(VmaFlags::LOCKED) && !flags.has(VmaFlags::SHARED) {
                let start = locked.map_or(part.start(), VirtRange::start);
                *locked = Some(VirtRange::new(start, part.end()));
            }
            at = part.end();
        }
        Ok(())
    }

    /// Changes a part of one VMA.
    fn protect_one(
        &self,
        writers: &Writers<'_, M>,
        vma: VmaPtr<'_, M>,
        part: VirtRange,
        prot: Prot,
    ) -> Result<(), MprotectError> {
        let old = vma.get().view();
        if prot.has(Prot::WRITE) && old.flags.has(VmaFlags::NEVER_WRITTEN) {
            return Err(MprotectError::Access);
        }
        if old.prot == prot {
            return Ok(());
        }
        if old.cuts_huge_page::<M::Paging>(part) {
            return Err(MprotectError::Invalid);
        }
        let sys = self.system();
        let pages = part.pages(M::Paging::shift());
        let account = VmaFlags::ACCOUNT;
        let mut flags = old.flags;
        let (mut charged, mut freed) = (0, 0);
        if prot.has(Prot::WRITE) {
            // What was charged once, or never shall be, is not charged again.
            let never = VmaFlags::NORESERVE.with(VmaFlags::SHARED);
            let never = never.with(VmaFlags::HUGETLB);
            if !flags.has(account.with(never)) {
                sys.charge(pages).map_err(|_| MprotectError::Overcommit)?;
                flags = flags.with(account);
                charged = pages;
            }
        } else if flags.has(account)
            && !old.file.is_file()
            && vma.get().anon_vma.load(Ordering::Relaxed) == 0
        {
            flags = flags.without(account);
            freed = pages;
        }
        let to = |view| VmaView {
            prot,
            flags,
            ..view
        };
        let modified = modify(writers, vma, part, to).map_err(|NoMemory| {
            sys.uncharge(charged);
            MprotectError::NoMemory
        })?;
        debug_assert!(modified.range().covers(part), "it is one VMA, or in one");
        sys.uncharge(freed);
        let mut zap = Zap::begin(writers.held().tables(), part);
        if old.is_huge() {
            modified.vma().link_follows();
            zap.protect_huge(modified.vma(), &modified.vma().view(), part);
        } else {
            zap.protect(part, prot);
        }
        zap.finish();
        translation::translations_agree_alone(self, part);
        drop(modified);
        Ok(())
    }
}
