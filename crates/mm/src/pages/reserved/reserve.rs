//! The reservation map of a hugetlb file or mapping: a list of regions.
//!
//! # Problem
//! The pool counts promises, not whose they are ([`super::pool`]). A fault must know whether its
//! page was promised, and two mappings of one file must not have the same page promised twice. What
//! a fault writes down after it has got a page must not fail for want of memory.
//!
//! # Idea
//! A list of regions `from..to` of page numbers, in huge pages, sorted, none touching another.
//! Linux uses the one structure in two ways that are each other's opposite:
//!
//! | map of | a page in the map | a page that is not |
//! |---|---|---|
//! | a shared file: its inode has it | is reserved, or in the file | was never promised |
//! | a private mapping: its first owner has it | the promise is used up | is reserved still |
//!
//! So mmap of a shared file adds what it reserves, and mmap of private memory adds nothing; a fault
//! without a promise adds its page to a file's map, and each fault of the owner adds its page to a
//! private map. A child of fork has no map, and so no promises.
//!
//! # Protocol
//! *Add* in two steps. [`Reservations::change`] says how many pages of a range are missing and
//! fetches all memory that may be needed; it may fail. Then pages are reserved or allocated, which
//! may fail, too. Then [`Change::add`], which cannot; or the change is dropped, and nothing was.
//! [`Change::add`] says how many pages it added. That is less than were missing if others added
//! some meanwhile: the caller, who reserved as many as were missing, gives the difference back. It
//! is more if they removed some, which nobody can where who adds and who removes hold the lock of
//! the file, or of the page's fault, as in Linux.
//!
//! [`Reservations::remove`] of a range out of the middle of a region makes two of one: that needs
//! memory, and can fail. [`Reservations::truncate`] removes an end, and cannot.
//!
//! Whoever has the map removes everything before he goes: it does not know its system.
//!
//! # Why it is correct
//! Under the lock the regions are apart and in order before and after each step. A range that is
//! added becomes part of the regions that it touches, which become one, or a new region: so one
//! spare region is enough whatever others did since. Regions that leave the list are freed after
//! the lock was let go; they are in nobody's reach.
//!
//! # Cost
//! The regions in front of the range are passed, one line each: faults in order make one region,
//! faults here and there many, as in Linux. Each change takes an object of a slab and gives it
//! back where it was not needed.
//!
//! Linux: mm/hugetlb.c struct resv_map, region_chg, region_add, region_abort, region_del,
//! region_count (v6.12).

use crate::base::error::NoMemory;
use crate::system::System;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::order::ReservationLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Plain, SpinLock};

/// Where a region lies; `None` for nowhere.
type Link<M> = Option<NonNull<Region<M>>>;

/// Some pages next to each other.
#[derive(Debug)]
pub(crate) struct Region<M: Mmu> {
    /// Guarded by: the lock of the map, while it is in one.
    part: Plain<Part<M>, M>,
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
/// Each is a live object of the slab, in this list only. `from < to`, and `to` is below the next
/// one's `from`. They are touched by whoever has the list, which is under its lock, or taken out.
#[derive(Debug)]
struct List<M: Mmu> {
    first: Link<M>,
}

// SAFETY: the regions are the list's, and it is used by one at a time.
unsafe impl<M: Mmu> Send for List<M> {}

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
    /// Takes and lets go the map's lock.
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
    /// Takes and lets go the map's lock.
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
    /// Takes and lets go the map's lock.
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
    /// Takes and lets go the map's lock.
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
        // SAFETY: 1: nothing else runs.
        let mut at = self.list.peek(|list| list.first);
        while let Some(region) = at {
            // SAFETY: by the list's invariants.
            let region = unsafe { region.as_ref() };
            // SAFETY: 1: nothing else runs.
            let part = unsafe { region.part.peek() };
            visit(part.from, part.to);
            at = part.next;
        }
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
    /// Takes and lets go the map's lock.
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
            part: Plain::new(part),
        };
        let region = sys.huge.regions.alloc(region, sys).ok()?;
        // INVARIANT: allocated just now.
        Some(Self {
            first: Some(region),
        })
    }

    const fn take(&mut self) -> Self {
        Self {
            first: self.first.take(),
        }
    }

    fn part(&self, at: NonNull<Region<M>>) -> &Part<M> {
        // SAFETY: by the invariants it lives.
        let region = unsafe { at.as_ref() };
        // SAFETY: 1: the list is borrowed, so it has its regions to itself.
        unsafe { region.part.get() }
    }

    fn part_mut(&mut self, at: NonNull<Region<M>>) -> &mut Part<M> {
        // SAFETY: by the invariants it lives; what it is borrowed from is its slab's memory.
        let region = unsafe { at.as_ref() };
        // SAFETY: 1: the list is borrowed alone, and so is the part.
        unsafe { region.part.get_mut() }
    }

    /// Makes what follows `before`, or the list, begin with `next`.
    fn link(&mut self, before: Link<M>, next: Link<M>) {
        match before {
            Some(before) => self.part_mut(before).next = next,
            None => self.first = next,
        }
    }

    /// Passes the regions that end below `from`, or at it where `touching` is `No`: the last of
    /// these, and the one behind it.
    fn pass(&self, from: u64, touching: Touching) -> (Link<M>, Link<M>) {
        let (mut before, mut at) = (None, self.first);
        while let Some(region) = at {
            let part = self.part(region);
            let passed = part.to < from || touching == Touching::Apart && part.to == from;
            if !passed {
                break;
            }
            (before, at) = (at, part.next);
        }
        (before, at)
    }

    fn count(&self, from: u64, to: u64) -> u64 {
        let (_, mut at) = self.pass(from, Touching::Apart);
        let mut found = 0;
        while let Some(region) = at {
            let part = self.part(region);
            if part.from >= to {
                break;
            }
            found += part.to.min(to) - part.from.max(from);
            at = part.next;
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
        let (before, first) = self.pass(from, Touching::One);
        let touched = first.filter(|first| self.part(*first).from <= to);
        let Some(grown) = touched else {
            let Some(new) = spare.first.take() else {
                return (0, spare);
            };
            *self.part_mut(new) = Part {
                from,
                to,
                next: first,
            };
            self.link(before, Some(new));
            return (added, spare);
        };
        // All that it touches become the first of them.
        let start = self.part(grown).from.min(from);
        let (mut last, mut end) = (grown, self.part(grown).to.max(to));
        while let Some(next) = self.part(last).next {
            let part = self.part(next);
            if part.from > to {
                break;
            }
            end = end.max(part.to);
            last = next;
        }
        let behind = self.part(last).next;
        if last != grown {
            let absorbed = self.part(grown).next;
            self.part_mut(last).next = spare.first;
            spare.first = absorbed;
        }
        *self.part_mut(grown) = Part {
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
        let (mut before, mut at) = self.pass(from, Touching::Apart);
        let mut removed = 0;
        while let Some(region) = at.filter(|_| from < to) {
            let &Part {
                from: start,
                to: end,
                next,
            } = self.part(region);
            if start >= to {
                break;
            }
            removed += end.min(to) - start.max(from);
            if start < from && end > to {
                // The only one, and nothing was changed yet.
                let rest = spare.first.take().ok_or(Split)?;
                *self.part_mut(rest) = Part {
                    from: to,
                    to: end,
                    next,
                };
                let part = self.part_mut(region);
                (part.to, part.next) = (from, Some(rest));
            } else if start < from {
                self.part_mut(region).to = from;
            } else if end > to {
                self.part_mut(region).from = to;
            } else {
                self.link(before, next);
                self.part_mut(region).next = regions.first;
                regions.first = at;
                at = next;
                continue;
            }
            (before, at) = (at, next);
        }
        Ok((removed, regions))
    }

    /// Frees the regions of a list that nobody else has.
    fn free(self, sys: &System<M>) {
        let mut at = self.first;
        while let Some(region) = at {
            at = self.part(region).next;
            // SAFETY: 1, 2: by the invariants live, in no other list, and read for the last time.
            unsafe { sys.huge.regions.free(region, sys) };
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
