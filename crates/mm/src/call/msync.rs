//! msync: writes dirty pages of shared mappings back to their files.
//!
//! Linux: mm/msync.c (v6.18). Asynchronous calls do nothing, as in Linux.

use super::page_range;
use crate::base::attrs::VmaFlags;
use crate::base::error::MsyncError;
use crate::base::event::Event;
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::pages::file::FilePart;
use crate::space::arenas::lock::Over;
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// What msync is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Msync {
    /// Wait until all is written (`MS_SYNC`).
    pub wait: bool,
    /// Begin to write, and do not wait (`MS_ASYNC`). Nothing has to be done for that: what is dirty
    /// is known to be.
    pub begin: bool,
    /// Other mappings of the file shall see what this one does (`MS_INVALIDATE`): they do anyway;
    /// but a mapping that is locked refuses.
    pub invalidate: bool,
}

impl Msync {
    /// `MS_SYNC`.
    pub const SYNC: Self = Self {
        wait: true,
        begin: false,
        invalidate: false,
    };

    /// The request of Linux's bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !7 != 0 {
            return None;
        }
        Some(Self {
            begin: bits & 1 != 0,
            invalidate: bits & 2 != 0,
            wait: bits & 4 != 0,
        })
    }
}

impl<M: Mmu> Mm<M> {
    /// Writes what was stored to the shared mappings in `len` bytes (rounded up to pages) from
    /// `start` on to their files.
    ///
    /// # Context
    /// Holds nothing. Sleeps for `mmap_lock`, which it takes for reading, and, without it, for the
    /// files' devices.
    ///
    /// # Errors
    /// See [`MsyncError`].
    pub fn msync(&self, start: VirtAddr, len: u64, how: Msync) -> Result<(), MsyncError> {
        as_call(self.system(), || {
            self.system().count(Event::Msync);
            if how.wait && how.begin || !start.is_aligned(M::Paging::shift()) {
                return Err(MsyncError::Invalid);
            }
            // What wraps when it is rounded up is 0, as in Linux.
            let len = VirtAddr(len)
                .align_up(M::Paging::shift())
                .map_or(0, |len| len.0);
            let range = page_range::<M>(start, len).ok_or(MsyncError::NoMemory)?;
            let mut at = range.start();
            let mut result = Ok(());
            while at < range.end() {
                let part = VirtRange::new(at, range.end());
                let (hole, found) = self.next_synced(part, how)?;
                if hole {
                    result = Err(MsyncError::NoMemory);
                }
                let Some((end, file)) = found else { break };
                if let Some(file) = file {
                    file.write().map_err(MsyncError::from)?;
                }
                at = end;
            }
            result
        })
    }

    /// Whether something before the first mapping of `range` is not mapped; and where that mapping
    /// ends, with its file if that is to be written.
    #[expect(clippy::type_complexity, reason = "said once")]
    fn next_synced(
        &self,
        range: VirtRange,
        how: Msync,
    ) -> Result<(bool, Option<(VirtAddr, Option<FilePart<'_, M>>)>), MsyncError> {
        let guard = self.read(Over::Range(range));
        let view = guard.held().find(range.start()).map(Vma::view);
        let view = view.ok_or(MsyncError::NoMemory)?;
        let part = view.range.intersect(range);
        if part.is_empty() {
            return Ok((true, None));
        }
        if how.invalidate && view.flags.has(VmaFlags::LOCKED) {
            return Err(MsyncError::Busy);
        }
        let written = how.wait && view.flags.has(VmaFlags::SHARED);
        let cache = view.cache::<M>().filter(|_| written);
        let file = cache.map(|cache| FilePart::new(cache, &view, part));
        let hole = view.range.start() > range.start();
        Ok((hole, Some((part.end(), file))))
    }
}
