//! The reservation map of a hugetlb file or mapping: a list of regions.
//!
//! # Problem
//! The pool counts reservations, not their owners ([`super::pool`]). A fault must know whether its
//! page is reserved, and two mappings of one file must not reserve the same page twice. Recording
//! an allocated page must not fail for want of memory.
//!
//! # Idea
//! A sorted list of disjoint, non-adjacent regions `from..to` of page numbers, in huge pages. As in
//! Linux, the meaning of one structure depends on its owner:
//!
//! | map of | a page in the map | a page that is not |
//! |---|---|---|
//! | a shared file: its inode has it | is reserved, or in the file | was never reserved |
//! | a private mapping: its first owner has it | the reservation is used up | is still reserved |
//!
//! So mmap of a shared file adds what it reserves, and mmap of private memory adds nothing; a fault
//! without a reservation adds its page to a file's map, and each fault of the owner adds its page
//! to a private map. A forked child has no map, and so no reservations.
//!
//! # Protocol
//! *Add* in two steps. [`Reservations::change`] says how many pages of a range are missing and
//! fetches all memory that may be needed; it may fail. Then pages are reserved or allocated, which
//! may fail, too. Then [`Change::add`], which cannot; or the change is dropped, and nothing was.
//! [`Change::add`] says how many pages it added. That is less than were missing if other threads
//! added some meanwhile: the caller, which reserved as many as were missing, returns the
//! difference. It would be more if they removed some, which is impossible where adding and removing
//! hold the file's lock or the page's fault mutex, as in Linux.
//!
//! [`Reservations::remove`] of a range out of the middle of a region makes two of one: that needs
//! memory, and can fail. [`Reservations::truncate`] removes an end, and cannot.
//!
//! The map's owner removes everything before it is dropped: the map does not know its system.
//!
//! # Why it is correct
//! Under the lock the regions are disjoint and sorted before and after each step. An added range is
//! merged with the regions that it touches, or becomes a new region: so one spare region is enough,
//! whatever other threads did meanwhile. Regions that leave the list are unreachable, and are freed
//! after the lock is released.
//!
//! # Cost
//! The regions before the range are walked, one cache line each: sequential faults make one region,
//! random ones many, as in Linux. Each change allocates a slab object and frees it where it was not
//! needed.
//!
//! Linux: mm/hugetlb.c struct resv_map, region_chg, region_add, region_abort, region_del,
//! region_count (v6.12).

use crate::base::error::NoMemory;
use crate::system::System;
use core::mem::replace;
use minflt_pgtable::Mmu;
use minflt_sync::order::ReservationLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Own, Owned, SpinLock};

/// A region and those behind it, or none.
type Link<M> = Option<Owned<Region<M>>>;

/// Some pages next to each other.
#[derive(Debug)]
pub(crate) struct Region<M: Mmu> {
    /// Guarded by: the lock of the map, while it is in one.
    part: Own<Part<M>, M>,
}

#[derive(Debug)]
struct Part<M: Mmu> {
    /// The first page.
    from: u64,
    /// The page behind the last one.
    to: u64,
    /// The next region up.
    next: Link<M>,
}

impl<M: Mmu> SlabObject for Region<M> {}

/// A map of pages: see the module.
#[derive(Debug)]
pub(crate) struct Reservations<M: Mmu> {
    list: SpinLock<List<M>, ReservationLock, M>,
}

/// The regions, in order.
///
/// # Invariants
/// `from < to`, and `to` is below the next one's `from`.
#[derive(Debug)]
struct List<M: Mmu> {
    first: Link<M>,
}

/// Where a list is linked: at its beginning, or behind a region.
enum Place<'l, M: Mmu> {
    First(&'l mut Link<M>),
    Behind(&'l mut Own<Part<M>, M>),
}

/// A range that is to be added, with all memory that this may need. Dropped, it adds nothing.
#[must_use = "adds nothing when it is dropped"]
#[derive(Debug)]
pub(crate) struct Change<'s, M: Mmu> {
    sys: &'s System<M>,
    map: &'s Reservations<M>,
    from: u64,
    to: u64,
    missing: u64,
    /// A region in no list.
    spare: List<M>,
}

/// A range lies in the middle of a region, and there is no second one for the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Split;

impl<M: Mmu> Reservations<M> {
    /// Nothing.
    pub(crate) fn new() -> Self {
        Self {
            list: SpinLock::new(List { first: None }),
        }
    }

    /// Prepares to add the pages `from..to`, where `from <= to`; none of them has to be missing.
    ///
    /// # Errors
    /// When there is no memory for a region.
    ///
    /// # Context
    /// Takes and releases the map's lock.
    ///
    /// Linux: region_chg.
    #[track_caller]
    pub(crate) fn change<'s>(
        &'s self,
        sys: &'s System<M>,
        from: u64,
        to: u64,
    ) -> Result<Change<'s, M>, NoMemory> {
        let spare = List::region(sys, from, to).ok_or(NoMemory)?;
        Ok(Change {
            sys,
            map: self,
            from,
            to,
            missing: (to - from) - self.count(from, to),
            spare,
        })
    }

    /// How many of the pages `from..to` are in the map.
    ///
    /// Linux: region_count.
    pub(crate) fn count(&self, from: u64, to: u64) -> u64 {
        self.list.lock().count(from, to)
    }

    /// Removes the pages `from..to`; returns how many of them were in the map.
    ///
    /// # Errors
    /// When they lie in the middle of a region, and there is no memory for a second one. Nothing
    /// has changed then.
    ///
    /// # Context
    /// Takes and releases the map's lock.
    ///
    /// Linux: region_del.
    #[track_caller]
    pub(crate) fn remove(&self, sys: &System<M>, from: u64, to: u64) -> Result<u64, NoMemory> {
        let mut spare = List { first: None };
        loop {
            let removed = self.list.lock().remove(from, to, &mut spare);
            match removed {
                Ok((pages, regions)) => {
                    regions.free(sys);
                    // Others may have removed what it was for.
                    spare.free(sys);
                    return Ok(pages);
                }
                Err(Split) => spare = List::region(sys, from, to).ok_or(NoMemory)?,
            }
        }
    }

    /// Removes all pages from `from` on; returns how many were in the map.
    ///
    /// # Context
    /// Takes and releases the map's lock.
    pub(crate) fn truncate(&self, sys: &System<M>, from: u64) -> u64 {
        let mut none = List { first: None };
        let removed = self.list.lock().remove(from, u64::MAX, &mut none);
        // Nothing is left behind the end, so that nothing is split.
        removed.map_or(0, |(pages, regions)| {
            regions.free(sys);
            pages
        })
    }

    /// Removes all pages; returns how many there were.
    ///
    /// # Context
    /// Takes and releases the map's lock.
    pub(crate) fn remove_all(&self, sys: &System<M>) -> u64 {
        self.truncate(sys, 0)
    }

    /// How many regions there are, and how many pages in them, if the list is as it should be. Only
    /// while nothing else runs.
    pub(crate) fn validate(&self) -> Result<(u64, u64), &'static str> {
        let (mut found, mut pages, mut end, mut apart) = (0, 0, None, true);
        self.peek_each(|from, to| {
            apart &= from < to && end.is_none_or(|end| from > end);
            end = Some(to);
            found += 1;
            pages += to - from;
        });
        if apart {
            Ok((found, pages))
        } else {
            Err("regions of reservations are not apart, or not in order")
        }
    }

    /// [`Self::count`] for oracles. Only while nothing else runs.
    pub(crate) fn peek_count(&self, from: u64, to: u64) -> u64 {
        let mut found = 0;
        self.peek_each(|first, end| found += end.min(to).saturating_sub(first.max(from)));
        found
    }

    fn peek_each(&self, mut visit: impl FnMut(u64, u64)) {
        self.list.peek(|list| {
            let mut at = list.first.as_ref();
            while let Some(region) = at {
                let part = region.part.peek();
                visit(part.from, part.to);
                at = part.next.as_ref();
            }
        });
    }
}

impl<M: Mmu> Change<'_, M> {
    /// How many pages of the range were missing when it was prepared.
    pub(crate) const fn missing(&self) -> u64 {
        self.missing
    }

    /// Adds the range; returns how many pages that added.
    ///
    /// # Context
    /// Takes and releases the map's lock.
    ///
    /// Linux: region_add.
    pub(crate) fn add(mut self) -> u64 {
        let spare = self.spare.take();
        let (pages, regions) = self.map.list.lock().add(self.from, self.to, spare);
        regions.free(self.sys);
        pages
    }
}

/// Linux: region_abort.
impl<M: Mmu> Drop for Change<'_, M> {
    fn drop(&mut self) {
        self.spare.take().free(self.sys);
    }
}

impl<M: Mmu> List<M> {
    /// A list of one region; `None` when memory is short.
    #[track_caller]
    fn region(sys: &System<M>, from: u64, to: u64) -> Option<Self> {
        let part = Part {
            from,
            to,
            next: None,
        };
        let region = Region {
            part: Own::new(part),
        };
        let region = sys.huge.regions.alloc_owned(region, sys).ok()?;
        Some(Self {
            first: Some(region),
        })
    }

    const fn take(&mut self) -> Self {
        Self {
            first: self.first.take(),
        }
    }

    /// Where the first region is linked that does not end below `from`, nor at it where `touching`
    /// is `Apart`.
    fn pass(&mut self, from: u64, touching: Touching) -> Place<'_, M> {
        let mut place = Place::First(&mut self.first);
        while let Some(region) = place.peek()
            && touching.passes(region.part.get(), from)
        {
            place = place.step();
        }
        place
    }

    fn count(&self, from: u64, to: u64) -> u64 {
        let (mut at, mut found) = (self.first.as_ref(), 0);
        while let Some(region) = at
            && let part = region.part.get()
            && Touching::Apart.passes(part, from)
        {
            at = part.next.as_ref();
        }
        while let Some(region) = at
            && let part = region.part.get()
            && part.from < to
        {
            found += part.to.min(to) - part.from.max(from);
            at = part.next.as_ref();
        }
        found
    }

    /// Adds `from..to`, by `spare` where it touches no region; returns how many pages that added,
    /// and the regions that are left over.
    fn add(&mut self, from: u64, to: u64, mut spare: Self) -> (u64, Self) {
        let added = (to - from) - self.count(from, to);
        if from == to {
            return (0, spare);
        }
        let mut place = self.pass(from, Touching::One);
        let first = place.peek().map(|first| first.part.get().from);
        if first.is_none_or(|first| first > to) {
            let Some(mut new) = spare.first.take() else {
                return (0, spare);
            };
            let next = place.quiet().take();
            *new.part.get_mut() = Part { from, to, next };
            place.link(Some(new));
            return (added, spare);
        }
        // All that it touches become the first of them.
        let Some(grown) = place.quiet() else {
            return (0, spare);
        };
        let start = grown.part.get().from.min(from);
        let mut end = grown.part.get().to.max(to);
        let mut last = Place::Behind(&mut grown.part);
        let mut absorbs = false;
        while let Some(part) = last.announced().map(|next| next.part.get())
            && part.from <= to
        {
            end = end.max(part.to);
            last = last.step();
            absorbs = true;
        }
        last.announced();
        let behind = last.quiet().take();
        if absorbs {
            last.link(spare.first.take());
            grown.part.get();
            spare.first = grown.part.peek_mut().next.take();
        }
        *grown.part.get_mut() = Part {
            from: start,
            to: end,
            next: behind,
        };
        (added, spare)
    }

    /// Removes `from..to`; returns how many pages that removed, and the regions that are left over.
    /// Takes a region out of `spare` where it needs one.
    fn remove(&mut self, from: u64, to: u64, spare: &mut Self) -> Result<(u64, Self), Split> {
        let mut regions = Self { first: None };
        let mut place = self.pass(from, Touching::Apart);
        let mut removed = 0;
        while from < to
            && let Some(region) = place.quiet()
        {
            let &Part {
                from: start,
                to: end,
                ..
            } = region.part.get();
            if start >= to {
                break;
            }
            removed += end.min(to) - start.max(from);
            if start < from && end > to {
                // The only one, and nothing was changed yet.
                let mut rest = spare.first.take().ok_or(Split)?;
                *rest.part.get_mut() = Part {
                    from: to,
                    to: end,
                    next: region.part.peek_mut().next.take(),
                };
                let part = region.part.get_mut();
                (part.to, part.next) = (from, Some(rest));
                place = place.step();
            } else if start < from {
                region.part.get_mut().to = from;
            } else if end > to {
                region.part.get_mut().from = to;
            } else {
                let next = region.part.peek_mut().next.take();
                if let Some(mut gone) = place.link(next) {
                    gone.part.get_mut().next = regions.first.take();
                    regions.first = Some(gone);
                }
                continue;
            }
            place = place.step();
        }
        Ok((removed, regions))
    }

    /// Frees the regions of a list that nobody else has.
    fn free(mut self, sys: &System<M>) {
        while let Some(mut region) = self.first.take() {
            region.part.get();
            self.first = region.part.peek_mut().next.take();
            sys.huge.regions.put_back(region, sys);
        }
    }
}

impl<M: Mmu> Place<'_, M> {
    /// What is linked there.
    const fn peek(&self) -> Option<&Owned<Region<M>>> {
        match self {
            Self::First(link) => link.as_ref(),
            Self::Behind(part) => part.peek().next.as_ref(),
        }
    }

    /// The same, announcing that it is looked at.
    fn announced(&self) -> Option<&Owned<Region<M>>> {
        match self {
            Self::First(link) => link.as_ref(),
            Self::Behind(part) => part.get().next.as_ref(),
        }
    }

    /// The link, for a caller that announces its accesses, or that removes what it links again.
    const fn quiet(&mut self) -> &mut Link<M> {
        match self {
            Self::First(link) => link,
            Self::Behind(part) => &mut part.peek_mut().next,
        }
    }

    /// Links something else there; returns what was.
    fn link(&mut self, to: Link<M>) -> Link<M> {
        match self {
            Self::First(link) => replace(link, to),
            Self::Behind(part) => replace(&mut part.get_mut().next, to),
        }
    }

    /// The place behind the region that is linked here.
    fn step(self) -> Self {
        let link = match self {
            Self::First(link) => link,
            Self::Behind(part) => &mut part.peek_mut().next,
        };
        match link {
            Some(region) => Self::Behind(&mut region.part),
            None => Self::First(link),
        }
    }
}

/// Whether a region that ends where a range begins counts as part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Touching {
    /// Yes: they become one.
    One,
    /// No.
    Apart,
}

impl Touching {
    /// Whether a region lies in front of what begins at `from`.
    const fn passes<M: Mmu>(self, part: &Part<M>, from: u64) -> bool {
        part.to < from || matches!(self, Self::Apart) && part.to == from
    }
}
