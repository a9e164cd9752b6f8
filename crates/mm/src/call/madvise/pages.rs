//! Advice about pages: nothing about the mapping changes.

use super::Advice;
use crate::error::MadviseError;
use crate::file::FilePart;
use crate::mm::Mm;
use crate::oracle;
use crate::vma::VmaFlags;
use crate::zap::Zap;
use minflt_addr::{VirtAddr, VirtRange};
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
            let of_file = view.is_some_and(|view| view.file.is_file());
            if !allowed(advice, flags) || advice == Advice::Free && of_file {
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

impl<M: Mmu> Mm<M> {
    /// Advice that is about the files mapped, each with nothing held.
    ///
    /// Linux: madvise_willneed, madvise_remove.
    pub(super) fn advise_files(
        &self,
        range: VirtRange,
        advice: Advice,
    ) -> Result<(), MadviseError> {
        let mut at = range.start();
        let mut result = Ok(());
        while at < range.end() {
            let part = VirtRange::new(at, range.end());
            let found = self.next_file_part(part, advice)?;
            if found.hole {
                result = Err(MadviseError::NoMemory);
            }
            if let Some(held) = found.file {
                match advice {
                    Advice::Remove => held.punch()?,
                    _ => held.read(),
                }
            }
            at = found.end;
        }
        result
    }

    /// The first mapping of `range`: what advice about it means for its file.
    fn next_file_part(
        &self,
        range: VirtRange,
        advice: Advice,
    ) -> Result<Found<'_, M>, MadviseError> {
        let _held = self.mmap_lock.read();
        let view = self.find(range.start()).map(crate::vma::Vma::view);
        let view = view.ok_or(MadviseError::NoMemory)?;
        let part = view.range.intersect(range);
        let hole = view.range.start() > range.start();
        if part.is_empty() {
            // Nothing more is mapped there.
            return Ok(Found {
                hole: true,
                end: range.end(),
                file: None,
            });
        }
        let (end, cache) = (part.end(), view.cache::<M>());
        if advice == Advice::Remove {
            if view.flags.has(VmaFlags::LOCKED) || cache.is_none() {
                return Err(MadviseError::Invalid);
            }
            let shared = view.flags.has(VmaFlags::SHARED);
            if !shared || view.flags.has(VmaFlags::NEVER_WRITTEN) {
                return Err(MadviseError::Access);
            }
        }
        let file = cache.map(|cache| FilePart::new(cache, &view, part));
        Ok(Found { hole, end, file })
    }
}

/// What the first mapping of a range is.
struct Found<'m, M: Mmu> {
    /// Whether something before it is not mapped.
    hole: bool,
    end: VirtAddr,
    file: Option<FilePart<'m, M>>,
}

/// Whether a mapping with these flags goes with the advice. What is locked stays.
///
/// Linux: madvise_dontneed_free_valid_vma, can_madv_lru_vma, madvise_remove.
const fn allowed(advice: Advice, flags: VmaFlags) -> bool {
    match advice {
        Advice::DontNeed | Advice::Free | Advice::Cold | Advice::PageOut => {
            !flags.has(VmaFlags::LOCKED)
        }
        _ => true,
    }
}
