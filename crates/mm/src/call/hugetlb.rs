//! Hugetlb mappings: reservation at mmap, and its return at unmap.
//!
//! A shared memory segment reserves its pages at creation ([`crate::pages::file`]).
//!
//! Linux: mm/hugetlb.c hugetlb_reserve_pages, hugetlb_vm_op_close; fs/hugetlbfs/inode.c
//! hugetlbfs_file_mmap, hugetlb_file_setup.

use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::{FileError, MmapError, NoMemory};
use crate::base::huge_size::HugeSize;
use crate::call::mmap::MapRequest;
use crate::mm::Mm;
use crate::pages::file::{PageCache, Sharing};
use crate::pages::reserved::own::OwnPages;
use crate::pages::reserved::reserve::Change;
use crate::system::System;
use minflt_addr::VirtAddr;
use minflt_pgtable::Mmu;
use minflt_sync::WriteGuard;
use minflt_sync::order::HugeReserveLock;

/// Huge pages set aside for a mapping that is being made. Dropping it gives them back.
#[must_use = "dropped, it gives the pages back"]
pub(crate) struct SetAside<'c, M: Mmu> {
    sys: &'c System<M>,
    size: HugeSize,
    pages: u64,
    change: Option<Change<'c, M>>,
    /// Two concurrent mmaps of the same pages would reserve them twice, and a truncation would miss
    /// a reservation in progress. Released before the call waits for `i_mmap`, for which unmappers
    /// of the file may be waiting; but where the call replaces mappings, after that.
    _alone: Option<WriteGuard<'c, HugeReserveLock, M>>,
}

impl<M: Mmu> SetAside<'_, M> {
    /// The mapping is there.
    pub(crate) fn keep(mut self) {
        let Some(change) = self.change.take() else {
            // The mapping's own: it says so itself.
            self.pages = 0;
            return;
        };
        // Others may have reserved some of them meanwhile.
        let added = change.add();
        self.pages = self.pages.saturating_sub(added);
    }
}

impl<M: Mmu> Drop for SetAside<'_, M> {
    fn drop(&mut self) {
        self.sys.frames.unreserve_huge(self.size, self.pages);
    }
}

impl<M: Mmu> PageCache<M> {
    /// Sets pages aside for a new mapping, and says so in its flags; the file becomes as long as
    /// what may be stored to.
    ///
    /// # Errors
    /// Not so many are left.
    pub(crate) fn set_aside(&self, view: &mut VmaView) -> Result<SetAside<'_, M>, MmapError> {
        let (sys, size) = (self.system(), self.huge_size());
        let first = view.pgoff >> size.order::<M::Paging>();
        let end = first + size.pages_of::<M::Paging>(view.range);
        let none = |_| MmapError::NoMemory;
        let beside = sys.lacks(NegativeControl::ReserveBesideCut);
        let mut aside = SetAside {
            sys,
            size,
            pages: 0,
            change: None,
            _alone: (!beside).then(|| self.reserving.write()),
        };
        if self.counts_mappings() {
            // A segment's were reserved when it was made, or not at all. Linux: S_PRIVATE.
        } else if view.flags.has(VmaFlags::NORESERVE) {
            // Not reserved: a fault may find no page.
        } else if view.flags.has(VmaFlags::SHARED) {
            let change = self.reserved.change(sys, first, end).map_err(none)?;
            let missing = change.missing();
            sys.frames.reserve_huge(size, missing).map_err(none)?;
            aside.pages = change.missing();
            aside.change = Some(change);
        } else {
            sys.frames.reserve_huge(size, end - first).map_err(none)?;
            aside.pages = end - first;
            view.flags = view.flags.with(VmaFlags::HUGE_OWNER);
        }
        if view.prot.has(Prot::WRITE) {
            self.grow_to(end << size.shift::<M::Paging>());
        }
        Ok(aside)
    }

    /// Reserves all pages of a new, unpublished file, for as long as the file exists, whatever its
    /// mappings.
    ///
    /// # Errors
    /// The pool has too few unreserved pages; nothing is reserved then.
    pub(crate) fn reserve_all(&self) -> Result<(), NoMemory> {
        let sys = self.system();
        let change = self.reserved.change(sys, 0, self.huge_pages())?;
        sys.frames
            .reserve_huge(self.huge_size(), change.missing())?;
        change.add();
        Ok(())
    }
}

impl<M: Mmu> System<M> {
    /// Returns the unused reservation of a private mapping that is being removed, of pages `first`
    /// to `last` of its file.
    pub(crate) fn give_back_own(
        &self,
        own: &OwnPages<M>,
        size: HugeSize,
        (first, last): (u64, u64),
    ) {
        let order = size.order::<M::Paging>();
        let (first, end) = (first >> order, (last + 1) >> order);
        let used = own.used.count(first, end);
        self.frames
            .unreserve_huge(size, (end - first).saturating_sub(used));
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
        self.mmap_huge_of(HugeSize::Large, request, sharing)
    }

    /// The same of pages of size `size` (`MAP_HUGE_SHIFT`).
    ///
    /// # Context
    /// As [`Mm::mmap`].
    ///
    /// # Errors
    /// See [`MmapError`]; [`MmapError::Invalid`] where the format has no such pages.
    pub fn mmap_huge_of(
        &self,
        size: HugeSize,
        request: &MapRequest,
        sharing: Sharing,
    ) -> Result<VirtAddr, MmapError> {
        // What may not be stored to yet can be loaded, too. Linux: hugetlb_file_setup.
        let len = VirtAddr(request.len).align_up(size.shift::<M::Paging>());
        let len = len.map_or(0, |len| len.0);
        let file = self.system().new_huge_file_of(size, len);
        let file = file.map_err(|why| match why {
            FileError::Invalid => MmapError::Invalid,
            _ => MmapError::NoMemory,
        })?;
        self.mmap_file(request, &file, 0, sharing)
    }
}
