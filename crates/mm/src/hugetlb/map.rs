//! Mappings of huge pages: what they reserve when they are made, and give back when they go.
//!
//! Linux: mm/hugetlb.c hugetlb_reserve_pages, hugetlb_vm_op_close; fs/hugetlbfs/inode.c
//! hugetlbfs_file_mmap, hugetlb_file_setup.

use super::own::OwnPages;
use super::{order, pages_of, shift};
use crate::call::mmap::MapRequest;
use crate::config::Broken;
use crate::error::{FileError, MmapError};
use crate::file::{PageCache, Sharing};
use crate::mm::Mm;
use crate::system::System;
use crate::vma::{Prot, VmaFlags, VmaView};
use minflt_addr::VirtAddr;
use minflt_pgtable::Mmu;

/// Huge pages set aside for a private mapping that is being made. Dropping it gives them back.
#[must_use = "dropped, it gives the pages back"]
pub(crate) struct SetAside<'c, M: Mmu> {
    sys: &'c System<M>,
    pages: u64,
}

impl<M: Mmu> SetAside<'_, M> {
    /// The mapping is there, and says so itself.
    pub(crate) fn keep(mut self) {
        self.pages = 0;
    }
}

impl<M: Mmu> Drop for SetAside<'_, M> {
    fn drop(&mut self) {
        if self.pages > 0 {
            self.sys.frames.unreserve_huge(self.pages);
        }
    }
}

impl<M: Mmu> PageCache<M> {
    /// Sets pages aside for a new mapping, and says so in its flags; the file becomes as long as
    /// what may be stored to. What is reserved for the file stays so if there is no mapping after
    /// all: others may count on it already.
    ///
    /// # Context
    /// Under `mmap_lock`. Sleeps for `map_lock`.
    ///
    /// # Errors
    /// Not so many are left.
    pub(crate) fn set_aside(&self, view: &mut VmaView) -> Result<SetAside<'_, M>, MmapError> {
        let sys = self.system();
        let first = view.pgoff >> order::<M::Paging>();
        let end = first + pages_of::<M::Paging>(view.range);
        let none = |_| MmapError::NoMemory;
        let beside = sys.config.lacks(Broken::ReserveBesideCut);
        let _no_cut = (!beside).then(|| self.map_lock.write());
        let mut aside = SetAside { sys, pages: 0 };
        if view.flags.has(VmaFlags::NORESERVE) {
            // Pages are had when they are touched, or not.
        } else if view.flags.has(VmaFlags::SHARED) {
            let change = self.reserved.change(sys, first, end).map_err(none)?;
            let missing = change.missing();
            sys.frames.reserve_huge(missing).map_err(none)?;
            // Faults may have made some of them meanwhile.
            let both = missing.saturating_sub(change.add());
            sys.frames.unreserve_huge(both);
        } else {
            sys.frames.reserve_huge(end - first).map_err(none)?;
            aside.pages = end - first;
            view.flags = view.flags.with(VmaFlags::HUGE_OWNER);
        }
        if view.prot.has(Prot::WRITE) {
            self.grow_to(end << shift::<M::Paging>());
        }
        Ok(aside)
    }
}

impl<M: Mmu> System<M> {
    /// A mapping with pages of its own goes, which had the addresses of pages `first` to `last` of
    /// its file: what it has not used is anybody's again.
    pub(crate) fn give_back_own(&self, own: &OwnPages<M>, (first, last): (u64, u64)) {
        let order = order::<M::Paging>();
        let (first, end) = (first >> order, (last + 1) >> order);
        let used = own.used.count(first, end);
        self.frames
            .unreserve_huge((end - first).saturating_sub(used));
    }
}

impl<M: Mmu> Mm<M> {
    /// Maps memory of huge pages that has no file of its own (`MAP_HUGETLB`): private, or shared
    /// with children.
    ///
    /// # Context
    /// As [`Mm::mmap`].
    ///
    /// # Errors
    /// See [`MmapError`].
    pub fn mmap_huge(&self, request: &MapRequest, sharing: Sharing) -> Result<VirtAddr, MmapError> {
        // What may not be stored to yet can be loaded, too. Linux: hugetlb_file_setup.
        let len = VirtAddr(request.len).align_up(shift::<M::Paging>());
        let len = len.map_or(0, |len| len.0);
        let file = self.system().new_huge_file(len).map_err(|why| match why {
            FileError::Invalid => MmapError::Invalid,
            _ => MmapError::NoMemory,
        })?;
        self.mmap_file(request, &file, 0, sharing)
    }
}
