//! madvise.

use super::{as_call, page_range};
use crate::error::MadviseError;
use crate::event::Event;
use crate::mm::Mm;
use crate::oracle;
use crate::zap::Zap;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

/// What is to be expected of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Its contents are not needed: the next access finds zeros (`MADV_DONTNEED`).
    DontNeed,
}

impl<M: Mmu> Mm<M> {
    /// Follows advice about `len` bytes (rounded up to pages) from `start` on.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading: faults and other calls like it run
    /// beside it. Waits for CPUs to forget translations.
    ///
    /// # Errors
    /// See [`MadviseError`]; what is mapped in the range has been done.
    pub fn madvise(&self, start: VirtAddr, len: u64, advice: Advice) -> Result<(), MadviseError> {
        let Advice::DontNeed = advice;
        as_call(self.system(), || {
            self.system().count(Event::Madvise);
            let range = page_range::<M>(start, len).ok_or(MadviseError::Invalid)?;
            let since = self.system().moment();
            let held = self.mmap_lock.read();
            let result = self.discard(range);
            drop(held);
            oracle::translations_agree(self, range, since);
            M::note(format_args!("madvise {range} DONTNEED returns"));
            result
        })
    }

    fn discard(&self, range: VirtRange) -> Result<(), MadviseError> {
        let mut zap = Zap::begin(self, range);
        let mut at = range.start();
        let mut result = Ok(());
        while at < range.end() {
            let Some(found) = self.find(at).map(|vma| vma.view().range) else {
                break;
            };
            if found.start() > at {
                result = Err(MadviseError::NoMemory);
            }
            zap.range(found.intersect(range));
            at = found.end().max(at);
        }
        zap.finish();
        if at < range.end() {
            Err(MadviseError::NoMemory)
        } else {
            result
        }
    }
}
