//! Advice about pages: nothing about the mapping changes.

use super::Advice;
use crate::error::MadviseError;
use crate::mm::Mm;
use crate::oracle;
use crate::vma::VmaFlags;
use crate::zap::Zap;
use minflt_addr::VirtRange;
use minflt_pgtable::Mmu;

impl<M: Mmu> Mm<M> {
    /// Advice about pages, under `mmap_lock` for reading.
    pub(super) fn advise_pages(
        &self,
        range: VirtRange,
        advice: Advice,
    ) -> Result<(), MadviseError> {
        let since = self.system().moment();
        let held = self.mmap_lock.read();
        let mut zap = Zap::begin(self, range);
        let result = self.advise_each(range, |part| {
            let view = self.find(part.start()).map(crate::vma::Vma::view);
            let flags = view.map_or(VmaFlags::NONE, |view| view.flags);
            if !allowed(advice, flags) {
                return Err(MadviseError::Invalid);
            }
            match advice {
                Advice::DontNeed | Advice::DontNeedLocked => zap.range(part),
                Advice::Free => zap.forget_stores(part),
                Advice::Cold => zap.cool(part),
                _ => {}
            }
            Ok(())
        });
        zap.finish();
        drop(held);
        if let Advice::DontNeed | Advice::DontNeedLocked = advice {
            oracle::translations_agree(self, range, since);
        }
        result
    }
}

/// Whether a mapping with these flags goes with the advice. What is locked stays.
///
/// Linux: madvise_dontneed_free_valid_vma, can_madv_lru_vma, madvise_remove.
const fn allowed(advice: Advice, flags: VmaFlags) -> bool {
    match advice {
        Advice::DontNeed | Advice::Free | Advice::Cold | Advice::PageOut => {
            !flags.has(VmaFlags::LOCKED)
        }
        Advice::Remove => false,
        _ => true,
    }
}
