//! mmap: maps anonymous memory and files.
//!
//! All checks that can fail come before the first change: the address, `RLIMIT_AS`, the commit
//! charge ([`crate::memory::commit`]). Linux: mm/mmap.c do_mmap, mmap_region (v6.12).

use super::hugetlb::SetAside;
use super::place::Place;
use super::populate::{Failure, to_lock};
use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::error::{MmapError, NoMemory};
use crate::base::event::Event;
use crate::base::huge_size::HugeSize;
use crate::call::thread::Thread;
use crate::change::modify::add_vma;
use crate::change::plan::Plan;
use crate::change::unmap::TableFate;
use crate::change::writers::Writers;
use crate::memory::commit::{self, Pages, Reserve};
use crate::memory::lifetime::as_call;
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::pages::file::{FileAccess, FileHandle, Sharing};
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::space::tree::Beside;
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// Whether the pages of a mapping are faulted in at once (`MAP_POPULATE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Populate {
    /// When they are touched.
    OnTouch,
    /// By the call, after it released the write lock: each page by a fault under `mmap_lock` for
    /// reading. Pages that cannot be faulted in are skipped, and the call succeeds.
    Now,
    /// By the call, as far as possible without waiting: cached file pages are mapped, as by
    /// fault-around; nothing is read in, and only page tables are allocated.
    ///
    /// In Linux `MAP_POPULATE | MAP_NONBLOCK` does nothing; the posting of 2014 had this in mind.
    NonBlock,
}

/// Whether a mapping is locked from the start (`MAP_LOCKED`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// As mlockall said of what will be mapped (`MCL_FUTURE`), else not.
    AsSaid,
    /// In any case. What is locked is populated, too, unless mlockall said that it waits for
    /// touches.
    Yes,
}

/// Whether a mapping grows down to accesses below it (`MAP_GROWSDOWN`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// It stays as it is.
    Fixed,
    /// As a stack does.
    Down,
}

/// What to map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRequest {
    /// Where.
    pub place: Place,
    /// Bytes, rounded up to pages.
    pub len: u64,
    /// What may be done there.
    pub prot: Prot,
    /// Whether to fault the pages in.
    pub populate: Populate,
    /// Whether the pages are promised.
    pub reserve: Reserve,
    /// Whether the pages are locked.
    pub lock: Lock,
    /// Whether it grows.
    pub growth: Growth,
}

impl MapRequest {
    /// A mapping that is promised and populated by its first touches.
    #[must_use]
    pub const fn new(place: Place, len: u64, prot: Prot) -> Self {
        Self {
            place,
            len,
            prot,
            populate: Populate::OnTouch,
            reserve: Reserve::Charged,
            lock: Lock::AsSaid,
            growth: Growth::Fixed,
        }
    }
}

/// A part of a file, and how it is mapped.
pub(super) struct Part<'f, M: Mmu> {
    pub(super) file: &'f FileHandle<'f, M>,
    /// In bytes.
    pub(super) offset: u64,
    pub(super) sharing: Sharing,
}

impl<M: Mmu> Mm<M> {
    /// Maps `len` bytes (rounded up to pages) of private anonymous memory; returns where. The short
    /// form of [`Mm::mmap_as`].
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing.
    ///
    /// # Errors
    /// See [`MmapError`]. Nothing is changed then.
    pub fn mmap(&self, place: Place, len: u64, prot: Prot) -> Result<VirtAddr, MmapError> {
        self.mmap_as(&MapRequest::new(place, len, prot))
    }

    /// Maps private anonymous memory as the request says; returns where.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing, and then, to populate, for reading.
    ///
    /// # Errors
    /// As [`Mm::mmap`].
    pub fn mmap_as(&self, request: &MapRequest) -> Result<VirtAddr, MmapError> {
        self.for_no_thread(|share| self.map_and_populate(share, request, None))
    }

    /// Maps a file from `offset` on, in bytes, as the request says. What lies behind the file's end
    /// can be mapped, and raises SIGBUS when it is touched.
    ///
    /// # Context
    /// As [`Mm::mmap`].
    ///
    /// # Errors
    /// See [`MmapError`]. Nothing is changed then.
    pub fn mmap_file(
        &self,
        request: &MapRequest,
        file: &FileHandle<'_, M>,
        offset: u64,
        sharing: Sharing,
    ) -> Result<VirtAddr, MmapError> {
        let part = Part {
            file,
            offset,
            sharing,
        };
        self.for_no_thread(|share| self.map_and_populate(share, request, Some(&part)))
    }

    fn map_and_populate(
        &self,
        share: &Share,
        request: &MapRequest,
        part: Option<&Part<'_, M>>,
    ) -> Result<VirtAddr, MmapError> {
        let sys = self.system();
        as_call(sys, || {
            sys.with_memory(|| self.map_populated(share, request, part))
        })
    }

    /// The same as a part of a call.
    pub(super) fn map_populated(
        &self,
        share: &Share,
        request: &MapRequest,
        part: Option<&Part<'_, M>>,
    ) -> Result<VirtAddr, MmapError> {
        let view = self.map(request, part)?;
        let locked = view.flags.has(VmaFlags::LOCKED);
        if request.populate == Populate::Now || locked {
            // Linux ignores pages that cannot be faulted in: mm_populate.
            let _some = self.populate_mapped(share, view.range, Failure::Skips, to_lock);
        } else if request.populate == Populate::NonBlock && view.file.is_file() {
            self.populate_ready(share, view.range);
        }
        Ok(view.range.start())
    }

    /// Maps under the write lock; returns what.
    fn map(&self, request: &MapRequest, part: Option<&Part<'_, M>>) -> Result<VmaView, MmapError> {
        let sys = self.system();
        sys.count(Event::Mmap);
        let MapRequest { len, prot, .. } = *request;
        let misaligned = |part: &Part<'_, M>| !part.offset.is_multiple_of(M::Paging::page());
        if len == 0 || part.is_some_and(misaligned) {
            return Err(MmapError::Invalid);
        }
        // What wraps is 0, and no length for a place.
        let size = part.and_then(|part| part.file.cache().huge);
        let huge = size.is_some();
        let unit = size.map_or(M::Paging::shift(), HugeSize::shift::<M::Paging>);
        let len = VirtAddr(len).align_up(unit).map_or(0, |len| len.0);
        self.divide_if_shared();
        let mut writers = Writers::lock(self, self.over_request(request, len, unit));
        if self.map_count() > sys.max_map_count() {
            return Err(MmapError::NoMemory);
        }
        if huge && len == 0 {
            return Err(MmapError::Invalid);
        }
        let placed = writers.held().place_of_unit(request.place, len, unit);
        let (range, beside) = match self.elsewhere(request.place, &placed, unit) {
            None => placed?,
            Some(over) => (self.place_in(&mut writers, over, request, len, unit)?, None),
        };
        let misaligned = |part: &Part<'_, M>| !VirtAddr(part.offset).is_aligned(unit);
        // A place that was looked for is free.
        let cuts =
            matches!(request.place, Place::Fixed(_)) && !writers.held().cuts_no_huge_page(range);
        if cuts || huge && part.is_some_and(misaligned) {
            return Err(MmapError::Invalid);
        }
        let mut flags = commit::flags(prot, request.reserve, sys.overcommit());
        flags = flags.with(self.locking(request.lock)?);
        if request.growth == Growth::Down {
            flags = flags.with(VmaFlags::GROWS_DOWN);
        }
        let mut view = VmaView::anonymous::<M::Paging>(range, prot, flags);
        if let Some(part) = part {
            view = part.view(view)?;
        }
        let aside = match part {
            Some(part) if huge => Some(part.file.cache().set_aside(&mut view)?),
            _ => None,
        };
        let pages = Pages::of::<M>(&view);
        if self.may_lock(pages.locked).is_err() {
            return Err(MmapError::LockLimit);
        }
        if let Some(part) = part {
            part.allows(&view)?;
        }
        // What stands there goes, so only what comes on top of it is asked for.
        let mut gone = None;
        // A place that was looked for is free.
        if let Place::Fixed(_) = request.place {
            let plan = gone.insert(Plan::empty(&writers, range, None));
            let mapped = plan.take_all(None);
            if !mapped.map_err(|NoMemory| MmapError::NoMemory)? {
                gone = None;
            }
        }
        let old = gone.as_ref().map_or(Pages::default(), |gone| gone.pages);
        self.charge_instead(pages, old)?;
        self.put_in(&writers, (view, aside), beside, gone.as_mut())
            .map_err(|NoMemory| {
                sys.uncharge(pages.accounted);
                MmapError::NoMemory
            })?;
        self.count_mapped(pages);
        M::note(format_args!("mmap {range} {prot:?}"));
        Ok(view)
    }

    /// Promises `pages` in place of what is mapped there.
    #[inline]
    fn charge_instead(&self, pages: Pages, old: Pages) -> Result<(), MmapError> {
        let sys = self.system();
        if !self.may_expand(pages.mapped.saturating_sub(old.mapped)) {
            return Err(MmapError::Limit);
        }
        let more = pages.accounted.saturating_sub(old.accounted);
        sys.charge(more).map_err(|_| MmapError::Overcommit)?;
        // Unmapping the old mappings returns their commit charge, which no other thread may take
        // meanwhile.
        sys.charge_again(pages.accounted - more);
        Ok(())
    }

    /// Which arenas to look in instead, where those that are held have no place, or not the one
    /// that was hinted at.
    #[inline]
    fn elsewhere(
        &self,
        place: Place,
        placed: &Result<(VirtRange, Option<Beside<'_, M>>), MmapError>,
        unit: u32,
    ) -> Option<Over> {
        self.divided()?;
        let far = |at: VirtAddr, range: &VirtRange| at.0.abs_diff(range.start().0) >= 1 << unit;
        match (place, placed) {
            (_, Err(MmapError::NoMemory)) => Some(Over::All),
            // Then anywhere, which is not where others are.
            (Place::Hint(at), Ok((range, _))) if at.0 != 0 && far(at, range) => {
                Some(self.over_anywhere())
            }
            _ => None,
        }
    }

    /// The place for `len` bytes, in other arenas than are held, or else in all.
    #[cold]
    fn place_in(
        &self,
        writers: &mut Writers<'_, M>,
        over: Over,
        request: &MapRequest,
        len: u64,
        unit: u32,
    ) -> Result<VirtRange, MmapError> {
        writers.relock(over);
        if over != Over::All {
            match writers.held().place_of_unit(Place::Any, len, unit) {
                Err(MmapError::NoMemory) => writers.relock(Over::All),
                placed => return placed.map(|(range, _)| range),
            }
        }
        let placed = writers.held().place_of_unit(request.place, len, unit);
        placed.map(|(range, _)| range)
    }

    /// The flags of a new mapping that say how it is locked.
    fn locking(&self, lock: Lock) -> Result<VmaFlags, MmapError> {
        let said = self.flags_of_new();
        match lock {
            Lock::AsSaid => Ok(said),
            Lock::Yes if self.can_lock() => Ok(said.with(VmaFlags::LOCKED)),
            Lock::Yes => Err(MmapError::NotPermitted),
        }
    }

    /// A new mapping with what is set aside for it, in place of what is mapped there.
    fn put_in(
        &self,
        writers: &Writers<'_, M>,
        (view, aside): (VmaView, Option<SetAside<'_, M>>),
        beside: Option<Beside<'_, M>>,
        gone: Option<&mut Plan<'_, '_, M>>,
    ) -> Result<(), NoMemory> {
        let section = match gone {
            Some(gone) => {
                let tables = match has_smaller(writers.held(), &view) {
                    true => TableFate::FreeWithin,
                    false => TableFate::Keep,
                };
                gone.replace_by(&view, tables)?;
                None
            }
            None => {
                let beside = beside.unwrap_or_else(|| writers.held().beside(view.range));
                Some(add_vma(writers, &view, beside, None)?)
            }
        };
        // Nothing fails any more. Who ends the section waits for the file's other mappings.
        if let Some(aside) = aside {
            aside.keep();
        }
        drop(section);
        Ok(())
    }
}

impl<M: Mmu> Part<'_, M> {
    /// What anonymous memory is when it is this part of a file.
    ///
    /// # Errors
    /// It would reach further than page numbers do.
    fn view(&self, anonymous: VmaView) -> Result<VmaView, MmapError> {
        // Linux: file_mmap_ok.
        let end = self.offset.checked_add(anonymous.range.len());
        end.filter(|end| i64::try_from(*end).is_ok())
            .ok_or(MmapError::Overflow)?;
        let mut flags = anonymous.flags;
        if self.sharing == Sharing::Shared {
            // What is shared is the file's, and promised by it.
            flags = flags.without(VmaFlags::ACCOUNT).with(VmaFlags::SHARED);
            if self.file.access() == FileAccess::Read {
                flags = flags.with(VmaFlags::NEVER_WRITTEN);
            }
        }
        if let Some(size) = self.file.cache().huge {
            // Its pages are reserved, not promised; and stay, locked or not.
            let locked = VmaFlags::LOCKED.with(VmaFlags::LOCKED_ON_FAULT);
            let without = VmaFlags::ACCOUNT.with(locked);
            flags = flags.without(without).with(VmaFlags::HUGETLB);
            if size == HugeSize::Giant {
                flags = flags.with(VmaFlags::HUGE_GIANT);
            }
        }
        Ok(VmaView {
            pgoff: self.offset >> M::Paging::shift(),
            flags,
            file: self.file.cache().key(),
            ..anonymous
        })
    }

    /// Whether it may be mapped so.
    ///
    /// Linux: do_mmap, for `MAP_SHARED` and `MAP_PRIVATE`.
    fn allows(&self, view: &VmaView) -> Result<(), MmapError> {
        if view.flags.has(VmaFlags::NEVER_WRITTEN) && view.prot.has(Prot::WRITE) {
            return Err(MmapError::Access);
        }
        // Below a file's first page there is nothing to grow into.
        if view.flags.has(VmaFlags::GROWS_DOWN) {
            return Err(MmapError::Invalid);
        }
        Ok(())
    }
}

impl<M: Mmu> Thread<'_, M> {
    /// Maps a file; see [`Mm::mmap_file`].
    ///
    /// # Context
    /// As [`Thread::mmap`].
    ///
    /// # Errors
    /// As [`Mm::mmap_file`].
    pub fn mmap_file(
        &self,
        request: &MapRequest,
        file: &FileHandle<'_, M>,
        offset: u64,
        sharing: Sharing,
    ) -> Result<VirtAddr, MmapError> {
        let part = Part {
            file,
            offset,
            sharing,
        };
        let mm = self.mm();
        mm.map_and_populate(&self.share, request, Some(&part))
    }

    /// Maps private anonymous memory as the request says; see [`Mm::mmap_as`].
    ///
    /// # Context
    /// As [`Mm::mmap_as`].
    ///
    /// # Errors
    /// As [`Mm::mmap`].
    pub fn mmap(&self, request: &MapRequest) -> Result<VirtAddr, MmapError> {
        self.mm().map_and_populate(&self.share, request, None)
    }
}

/// Whether a mapping in the range of `new` has smaller pages than that: their tables are in the
/// place of its entries.
fn has_smaller<M: Mmu>(held: Held<'_, M>, new: &VmaView) -> bool {
    let mut at = new.range.start();
    while new.is_huge()
        && let Some(view) = held.find(at).map(Vma::view)
        && view.range.start() < new.range.end()
    {
        if !view.is_huge() || view.huge_size() < new.huge_size() {
            return true;
        }
        at = view.range.end();
    }
    false
}
