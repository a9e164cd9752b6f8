//! Advice that is recorded in the flags of a mapping.

use super::{Advice, advise_each};
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::error::{MadviseError, NoMemory};
use crate::change::modify::modify;
use crate::change::writers::Writers;
use crate::mm::Mm;
use minflt_addr::VirtRange;
use minflt_pgtable::Mmu;

impl<M: Mmu> Mm<M> {
    /// Advice about mappings, under `mmap_lock` for writing; a section on each that changes.
    ///
    /// Linux: madvise_vma_behavior, madvise_update_vma.
    pub(super) fn advise_mappings(
        &self,
        range: VirtRange,
        advice: Advice,
    ) -> Result<(), MadviseError> {
        let writers = Writers::lock(self, self.over(range));
        advise_each(writers.held(), range, |part| {
            let vma = writers
                .held()
                .find(part.start())
                .ok_or(MadviseError::NoMemory)?;
            let view = vma.view();
            if advice == Advice::WipeOnFork && view.file.is_file() {
                return Err(MadviseError::Invalid);
            }
            let old = view.flags;
            let flags = advised(old, advice);
            if flags == old {
                return Ok(());
            }
            if view.cuts_huge_page::<M::Paging>(part) {
                return Err(MadviseError::Invalid);
            }
            modify(&writers, vma.into(), part, |view| VmaView { flags, ..view })
                .map(drop)
                .map_err(|NoMemory| MadviseError::Again)
        })
    }
}

/// The flags of a mapping that was advised so.
const fn advised(flags: VmaFlags, advice: Advice) -> VmaFlags {
    let order = VmaFlags::SEQUENTIAL.with(VmaFlags::RANDOM);
    let huge = VmaFlags::HUGE_PAGE.with(VmaFlags::NO_HUGE_PAGE);
    match advice {
        Advice::Normal => flags.without(order),
        Advice::Sequential => flags.without(order).with(VmaFlags::SEQUENTIAL),
        Advice::Random => flags.without(order).with(VmaFlags::RANDOM),
        Advice::DontFork => flags.with(VmaFlags::DONT_FORK),
        Advice::DoFork => flags.without(VmaFlags::DONT_FORK),
        Advice::HugePage => flags.without(huge).with(VmaFlags::HUGE_PAGE),
        Advice::NoHugePage => flags.without(huge).with(VmaFlags::NO_HUGE_PAGE),
        Advice::DontDump => flags.with(VmaFlags::DONT_DUMP),
        Advice::DoDump => flags.without(VmaFlags::DONT_DUMP),
        Advice::WipeOnFork => flags.with(VmaFlags::WIPE_ON_FORK),
        Advice::KeepOnFork => flags.without(VmaFlags::WIPE_ON_FORK),
        _ => flags,
    }
}
