//! mprotect.
//!
//! Flags and entries change in one section per VMA, so that a speculative fault sees both or
//! neither.
//!
//! What becomes writable is charged as committed, where it was not yet ([`crate::commit`]). What
//! becomes read-only stays charged.

use super::split::{new_attrs, publish, split_at};
use super::{as_call, page_range};
use crate::config::Broken;
use crate::error::{MprotectError, NoMemory};
use crate::event::Event;
use crate::mm::Mm;
use crate::oracle;
use crate::vma::{Prot, VmaFlags, VmaView};
use crate::writers::Writers;
use crate::zap::Zap;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

impl<M: Mmu> Mm<M> {
    /// Changes the protection of `len` bytes (rounded up to pages) from `start` on.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing; waits for CPUs to forget translations.
    ///
    /// # Errors
    /// See [`MprotectError`]. Where part of the range is not mapped, what lies before the hole has
    /// been changed, as in Linux.
    pub fn mprotect(&self, start: VirtAddr, len: u64, prot: Prot) -> Result<(), MprotectError> {
        as_call(self.system(), || {
            self.system().count(Event::Mprotect);
            let range = page_range::<M>(start, len).ok_or(MprotectError::Invalid)?;
            let writers = Writers::lock(self);
            let result = self.protect_all(&writers, range, prot);
            drop(writers);
            M::note(format_args!("mprotect {range} {prot:?} returns"));
            result
        })
    }

    fn protect_all(
        &self,
        writers: &Writers<'_, M>,
        range: VirtRange,
        prot: Prot,
    ) -> Result<(), MprotectError> {
        let mut at = range.start();
        while at < range.end() {
            let vma = self.find(at).ok_or(MprotectError::NoMemory)?;
            if vma.view().range.start() > at {
                return Err(MprotectError::NoMemory);
            }
            at = self.protect_one(writers, range, at, prot)?;
        }
        Ok(())
    }

    /// Changes the VMA at `at`, as far as it lies in the range; returns where it ends.
    fn protect_one(
        &self,
        writers: &Writers<'_, M>,
        range: VirtRange,
        at: VirtAddr,
        prot: Prot,
    ) -> Result<VirtAddr, MprotectError> {
        let whole = self.find(at).ok_or(MprotectError::NoMemory)?.view();
        if whole.prot == prot {
            return Ok(whole.range.end());
        }
        // Linux: mprotect_fixup. What was charged once, or never shall be, is not charged again.
        let mut flags = whole.flags;
        let mut charged = 0;
        if prot.has(Prot::WRITE) && !flags.has(VmaFlags::ACCOUNT.with(VmaFlags::NORESERVE)) {
            let part = VirtRange::new(at, range.end()).intersect(whole.range);
            charged = part.pages(M::Paging::SHIFT);
            let sys = self.system();
            sys.charge(charged).map_err(|_| MprotectError::Overcommit)?;
            flags = flags.with(VmaFlags::ACCOUNT);
        }
        self.change_one(writers, range, at, prot, flags)
            .map_err(|NoMemory| {
                self.system().uncharge(charged);
                MprotectError::NoMemory
            })
    }

    /// Splits the VMA at `at` at the edges of the range, and changes what lies within.
    fn change_one(
        &self,
        writers: &Writers<'_, M>,
        range: VirtRange,
        at: VirtAddr,
        prot: Prot,
        flags: VmaFlags,
    ) -> Result<VirtAddr, NoMemory> {
        let whole = self.find(at).ok_or(NoMemory)?.view();
        split_at(self, writers, at)?;
        if whole.range.contains(range.end()) {
            split_at(self, writers, range.end())?;
        }
        let vma = self.find(at).ok_or(NoMemory)?;
        let view = vma.view();
        let attrs = new_attrs(
            self,
            VmaView {
                prot,
                flags,
                ..view
            },
        )?;
        let outside = self.system().config.lacks(Broken::ProtectWithoutSection);
        let section = (!outside).then(|| writers.begin(vma));
        publish(self, vma, attrs);
        let mut zap = Zap::begin(self, view.range);
        zap.protect(view.range, prot);
        zap.finish();
        oracle::translations_agree(self, view.range, u64::MAX);
        drop(section);
        Ok(view.range.end())
    }
}
