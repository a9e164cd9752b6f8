//! mprotect.
//!
//! Flags and entries change in one section per VMA, so that a speculative fault sees both or
//! neither.

use super::split::{new_attrs, publish, split_at};
use super::{as_call, page_range};
use crate::config::Broken;
use crate::error::MprotectError;
use crate::event::Event;
use crate::mm::Mm;
use crate::oracle;
use crate::vma::{Prot, VmaView};
use crate::writers::Writers;
use crate::zap::Zap;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

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
        let no_memory = |_| MprotectError::NoMemory;
        let whole = self.find(at).ok_or(MprotectError::NoMemory)?.view();
        if whole.prot == prot {
            return Ok(whole.range.end());
        }
        split_at(self, writers, at).map_err(no_memory)?;
        if whole.range.contains(range.end()) {
            split_at(self, writers, range.end()).map_err(no_memory)?;
        }
        let vma = self.find(at).ok_or(MprotectError::NoMemory)?;
        let view = vma.view();
        let attrs = new_attrs(self, VmaView { prot, ..view }).map_err(no_memory)?;
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
