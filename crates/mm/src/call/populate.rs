//! Faults pages in on behalf of a call.
//!
//! Each page by a fault under `mmap_lock` for reading, which is released in between: mappings may
//! change meanwhile, and are looked up again if a fault finds a change.
//!
//! Linux: mm/gup.c `__mm_populate`, populate_vma_page_range, faultin_page_range (v6.18).

use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::entry::walk::pages;
use crate::fault::{FaultOutcome, Signal};
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Access, Mmu, span_of};

/// Why not every page of a range was faulted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotPopulated {
    /// Nothing is mapped there.
    Hole,
    /// The mapping does not allow it.
    Refused,
    /// There was no memory for the page.
    NoMemory,
    /// The file ends before the page, or it could not be read.
    Bus,
}

/// Whether a mapping whose pages cannot be faulted in ends the call, or is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// They are not faulted in.
    Ends,
    /// They are.
    Skips,
}

/// The access, if the mapping has the right by name.
pub(super) const fn willing(view: &VmaView, access: Access) -> Result<Access, NotPopulated> {
    let right = match access {
        Access::Read => Prot::READ,
        Access::Write => Prot::WRITE,
        Access::Execute => Prot::EXEC,
    };
    if view.prot.has(right) {
        Ok(access)
    } else {
        Err(NotPopulated::Refused)
    }
}

/// How a locked page is faulted in: as by a store where stores are allowed, so that it is not
/// copied later; what is shared never is. What is locked on touch waits for that.
///
/// Linux: populate_vma_page_range, which forces loads where anything is allowed.
pub(super) fn to_lock(view: &VmaView) -> Result<Option<Access>, NotPopulated> {
    if view.flags.has(VmaFlags::LOCKED_ON_FAULT) {
        Ok(None)
    } else if view.prot.has(Prot::WRITE) && !view.flags.has(VmaFlags::SHARED) {
        Ok(Some(Access::Write))
    } else if view.prot == Prot::EXEC {
        // Loads may not be allowed.
        Ok(Some(Access::Execute))
    } else if view.prot != Prot::NONE {
        Ok(Some(Access::Read))
    } else {
        Err(NotPopulated::Refused)
    }
}

impl<M: Mmu> Mm<M> {
    /// Faults in the pages of `range`, for each mapping as `how` says, which may skip it. Counted
    /// in the RSS share of the given thread.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, again and again; the caller holds nothing.
    ///
    /// # Errors
    /// The first page that cannot be faulted in; those before it are present.
    pub(super) fn populate_all(
        &self,
        share: &Share,
        range: VirtRange,
        how: impl Fn(&VmaView) -> Result<Option<Access>, NotPopulated>,
    ) -> Result<(), NotPopulated> {
        let mut at = range.start();
        while at < range.end() {
            let view = self.covering(at).ok_or(NotPopulated::Hole)?;
            let end = view.range.end().min(range.end());
            at = match how(&view)? {
                Some(access) if view.is_huge() => {
                    let at = at.align_down(view.huge_size().shift::<M::Paging>());
                    let pages = view.huge_size().pages::<M::Paging>(VirtRange::new(at, end));
                    self.populate_part(share, end, pages, access)?
                }
                Some(access) => {
                    let pages = pages::<M>(VirtRange::new(at, end));
                    self.populate_part(share, end, pages, access)?
                }
                None => end,
            };
        }
        Ok(())
    }

    /// The same, passing over holes.
    pub(super) fn populate_mapped(
        &self,
        share: &Share,
        range: VirtRange,
        failure: Failure,
        how: impl Fn(&VmaView) -> Result<Option<Access>, NotPopulated>,
    ) -> Result<(), NotPopulated> {
        let mut at = range.start();
        while let Some(part) = self.next_mapped(VirtRange::new(at, range.end())) {
            match self.populate_all(share, part, &how) {
                // Unmapped meanwhile.
                Ok(()) | Err(NotPopulated::Hole) => at = part.end(),
                Err(_) if failure == Failure::Skips => at = part.end(),
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Maps what is cached of the files mapped in `range`, as far as that needs no waiting.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, a table at a time; the caller holds nothing.
    pub(super) fn populate_ready(&self, share: &Share, range: VirtRange) {
        let mut at = range.start();
        while at < range.end() {
            self.map_ready(share, at);
            at = span_of::<M::Paging>(at, 1).end();
        }
    }

    /// What covers `at` now.
    fn covering(&self, at: VirtAddr) -> Option<VmaView> {
        let guard = self.read(Over::at(at));
        let view = guard.held().find(at).map(Vma::view)?;
        view.range.contains(at).then_some(view)
    }

    /// The first part of `range` that is mapped now.
    fn next_mapped(&self, range: VirtRange) -> Option<VirtRange> {
        let guard = self.read(Over::Range(range));
        let found = guard.held().find(range.start())?.view().range;
        let part = found.intersect(range);
        (!range.is_empty() && !part.is_empty()).then_some(part)
    }

    /// Faults pages of one mapping in, which reach up to `end`; returns how far it came before the
    /// mapping was another.
    fn populate_part(
        &self,
        share: &Share,
        end: VirtAddr,
        pages: impl Iterator<Item = VirtRange>,
        access: Access,
    ) -> Result<VirtAddr, NotPopulated> {
        for page in pages {
            match self.fault_in(share, page.start(), access) {
                FaultOutcome::Done(_) => {}
                FaultOutcome::Signal(Signal::Bus) => return Err(NotPopulated::Bus),
                FaultOutcome::Signal(_) => return Ok(page.start()),
                FaultOutcome::Oom => return Err(NotPopulated::NoMemory),
            }
        }
        Ok(end)
    }
}
