//! mremap: grows, shrinks, or moves a mapping with its pages.
//!
//! # Problem
//! Pages shall be found at another address, without being copied, while other threads use them; and
//! a call that fails must not leave them in two places or in none.
//!
//! # Idea
//! Shrinking unmaps. Growing adds a mapping behind, which becomes one with the old. Moving makes a
//! mapping at the new place that is like the old one, moves the entries ([`entries`]), and unmaps
//! the old place.
//!
//! # Protocol
//! ```text
//! mmap_lock for writing
//! tables for the new place; memory for all that follows
//! the new VMA is found, with its section open
//! the entries move, under the reverse map's lock; all CPUs are told
//! the old VMA is cut, or stays without its pages (MREMAP_DONTUNMAP)
//! ```
//! What could fail comes before the first change. Only what stood at a fixed target is unmapped
//! before, and stays so where the call then fails, as in Linux; and of several mappings moved at
//! once those before the one that fails have been moved.
//!
//! # Why it is correct
//! A fault at the new place would put a page in where one is about to be moved to; none begins
//! there before the section ends (P29). Pages keep their number, since the new mapping continues
//! the old one's; only one that has no pages of its own gets numbers by its new address, so that it
//! can be one with its neighbours there.
//!
//! # Cost
//! As munmap and mmap, and that of moving the entries.
//!
//! Linux: mm/mremap.c (v6.18).

mod entries;
mod huge;
mod moving;

use super::munmap::unmap;
use super::place::Place;
use super::populate::{Failure, to_lock};
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::error::MremapError;
use crate::base::event::Event;
use crate::call::thread::Thread;
use crate::change::modify::add_vma;
use crate::change::writers::{Afterwards, Writers};
use crate::entry::zap::Hidden;
use crate::memory::commit::Pages;
use crate::memory::lifetime::as_call;
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// Where a mapping may be moved to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remap {
    /// Nowhere.
    InPlace,
    /// Anywhere, if it does not fit where it is (`MREMAP_MAYMOVE`).
    MayMove,
    /// To this address, in place of whatever is mapped there (`MREMAP_FIXED`).
    Fixed(VirtAddr),
    /// To this address if there is room, else anywhere; and the old place stays mapped, without its
    /// pages (`MREMAP_DONTUNMAP`).
    DontUnmap(VirtAddr),
    /// Both (`MREMAP_FIXED | MREMAP_DONTUNMAP`).
    FixedDontUnmap(VirtAddr),
}

/// What to remap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemapRequest {
    /// Where it is.
    pub old: VirtAddr,
    /// How long it is, in bytes, rounded up to pages.
    pub old_len: u64,
    /// How long it shall be, in bytes, rounded up to pages.
    pub new_len: u64,
    /// Where it may go.
    pub how: Remap,
}

/// A request whose lengths are whole pages.
#[derive(Clone, Copy)]
struct Plan {
    old: VirtAddr,
    old_len: u64,
    new_len: u64,
    how: Remap,
}

/// What a call that succeeded did.
struct Done {
    at: VirtAddr,
    /// What is to be populated, since it is locked.
    more: Option<VirtRange>,
}

/// A flush that a control leaves for later.
type Late = Option<Hidden>;

impl Remap {
    const fn target(self) -> Option<VirtAddr> {
        match self {
            Self::InPlace | Self::MayMove => None,
            Self::Fixed(to) | Self::DontUnmap(to) | Self::FixedDontUnmap(to) => Some(to),
        }
    }

    const fn is_fixed(self) -> bool {
        matches!(self, Self::Fixed(_) | Self::FixedDontUnmap(_))
    }

    const fn keeps_old(self) -> bool {
        matches!(self, Self::DontUnmap(_) | Self::FixedDontUnmap(_))
    }

    /// The same, to another address.
    const fn to(self, to: VirtAddr) -> Self {
        match self {
            Self::FixedDontUnmap(_) => Self::FixedDontUnmap(to),
            _ => Self::Fixed(to),
        }
    }
}

impl Plan {
    fn new<M: Mmu>(request: &RemapRequest) -> Self {
        // What wraps is 0, as in Linux.
        let page_up = |len| {
            VirtAddr(len)
                .align_up(M::Paging::shift())
                .map_or(0, |len| len.0)
        };
        Self {
            old: request.old,
            old_len: page_up(request.old_len),
            new_len: page_up(request.new_len),
            how: request.how,
        }
    }

    const fn grows(&self) -> bool {
        self.new_len > self.old_len
    }

    const fn shrinks(&self) -> bool {
        self.new_len < self.old_len
    }

    /// Linux: check_mremap_params.
    fn check<M: Mmu>(&self) -> Result<(), MremapError> {
        let end = Mm::<M>::user_range().end().0;
        let aligned = |at: VirtAddr| at.is_aligned(M::Paging::shift());
        if !aligned(self.old) || self.new_len == 0 || self.new_len > end {
            return Err(MremapError::Invalid);
        }
        let Some(to) = self.how.target() else {
            return Ok(());
        };
        let overlaps = self.old.0.wrapping_add(self.old_len) > to.0
            && to.0.wrapping_add(self.new_len) > self.old.0;
        let resized = self.how.keeps_old() && self.old_len != self.new_len;
        if to.0 > end - self.new_len || !aligned(to) || overlaps || resized {
            return Err(MremapError::Invalid);
        }
        Ok(())
    }
}

impl<M: Mmu> Mm<M> {
    /// Makes a mapping longer or shorter, or moves it with its pages; returns where it is.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing, and then, to populate what is locked,
    /// for reading; waits for CPUs to forget translations.
    ///
    /// # Errors
    /// See [`MremapError`]. Nothing has changed then, but that what stood at a fixed address is
    /// unmapped, and that of several mappings those below may have been moved.
    pub fn mremap(&self, request: &RemapRequest) -> Result<VirtAddr, MremapError> {
        self.for_no_thread(|share| self.remap_and_populate(share, request))
    }

    fn remap_and_populate(
        &self,
        share: &Share,
        request: &RemapRequest,
    ) -> Result<VirtAddr, MremapError> {
        as_call(self.system(), || {
            self.system().count(Event::Mremap);
            self.system().with_memory(|| {
                let done = self.remap(&Plan::new::<M>(request))?;
                if let Some(more) = done.more {
                    // Linux ignores what cannot be had: mm_populate.
                    let _some = self.populate_mapped(share, more, Failure::Skips, to_lock);
                }
                M::note(format_args!("mremap {} returns {}", request.old, done.at));
                Ok(done.at)
            })
        })
    }
}

impl<M: Mmu> Thread<'_, M> {
    /// Makes a mapping longer or shorter, or moves it; see [`Mm::mremap`].
    ///
    /// # Context
    /// As [`Mm::mremap`].
    ///
    /// # Errors
    /// As [`Mm::mremap`].
    pub fn mremap(&self, request: &RemapRequest) -> Result<VirtAddr, MremapError> {
        self.mm().remap_and_populate(&self.share, request)
    }
}

impl<M: Mmu> Mm<M> {
    fn remap(&self, plan: &Plan) -> Result<Done, MremapError> {
        plan.check::<M>()?;
        let mut late = None;
        let writers = Writers::lock(self, Over::All);
        let most = self.system().max_map_count();
        // Both places may be cut in three.
        if plan.how.target().is_some() && self.map_count() + 5 >= most {
            return Err(MremapError::NoMemory);
        }
        let result = if plan.how.is_fixed() && plan.old_len == plan.new_len {
            self.remap_all(&writers, plan, &mut late)
        } else {
            self.remap_one(&writers, plan, &mut late)
        };
        drop(writers);
        if let Some(hidden) = late {
            self.finish_hidden(hidden);
        }
        result
    }

    fn remap_one(
        &self,
        writers: &Writers<'_, M>,
        plan: &Plan,
        late: &mut Late,
    ) -> Result<Done, MremapError> {
        let view = mapped_at(writers.held(), plan.old)?.view();
        if view.is_huge() {
            return self.remap_huge(writers, plan);
        }
        self.may_remap(plan, &view)?;
        if let Some(to) = plan.how.target() {
            return self.remap_to(writers, plan, to, late);
        }
        if plan.shrinks() {
            self.cut_tail(writers, plan, Afterwards::LetsGo)?;
        } else if plan.grows() {
            return self.expand(writers, plan, late);
        }
        Ok(Done {
            at: plan.old,
            more: None,
        })
    }

    /// Moves whatever is mapped in a range, each mapping as far from the others as it was.
    ///
    /// Linux: remap_move.
    fn remap_all(
        &self,
        writers: &Writers<'_, M>,
        plan: &Plan,
        late: &mut Late,
    ) -> Result<Done, MremapError> {
        let (start, end) = (plan.old, VirtAddr(plan.old.0.wrapping_add(plan.old_len)));
        let mut to = plan.how.target().ok_or(MremapError::Invalid)?;
        let mut first = None;
        let mut at = start;
        while at < end
            && let Some(view) = writers.held().find(at).map(Vma::view)
            && view.range.start() < end
        {
            if first.is_none() && view.range.start() > start {
                break;
            }
            let part = view.range.intersect(VirtRange::new(start, end));
            // Who is told of its faults is told where it goes, of one at a time.
            if view.uffd != 0 && (first.is_some() || view.range.end() < end) {
                return Err(MremapError::Fault);
            }
            to = VirtAddr(to.0 + (part.start().0 - at.0));
            let one = Plan {
                old: part.start(),
                old_len: part.len(),
                new_len: part.len(),
                how: plan.how.to(to),
            };
            let done = if view.is_huge() {
                self.remap_huge(writers, &one)?
            } else {
                self.may_remap(&one, &view)?;
                self.remap_to(writers, &one, to, late)?
            };
            first = first.or(Some(done));
            to = VirtAddr(to.0 + part.len());
            at = part.end();
        }
        first.ok_or(MremapError::Fault)
    }

    /// Whether `view`, which the request begins in, may be remapped so. Linux: check_prep_vma.
    fn may_remap(&self, plan: &Plan, view: &VmaView) -> Result<(), MremapError> {
        if !plan.grows() && plan.how.target().is_none() {
            return Ok(());
        }
        // Nothing of a shared mapping, made longer, is a second mapping of the same.
        if plan.old_len == 0 && !view.flags.has(VmaFlags::SHARED) {
            return Err(MremapError::Invalid);
        }
        if plan.old_len.min(plan.new_len) > view.range.end().0 - plan.old.0 {
            return Err(MremapError::Fault);
        }
        if !plan.grows() {
            return Ok(());
        }
        let more = (plan.new_len - plan.old_len) >> M::Paging::shift();
        if view.flags.has(VmaFlags::LOCKED) {
            self.may_lock(more).map_err(|_| MremapError::LockLimit)?;
        }
        if self.may_expand(more) {
            Ok(())
        } else {
            Err(MremapError::Limit)
        }
    }

    /// Unmaps what a shorter mapping loses.
    fn cut_tail(
        &self,
        writers: &Writers<'_, M>,
        plan: &Plan,
        afterwards: Afterwards,
    ) -> Result<(), MremapError> {
        let end = plan.old.0.checked_add(plan.old_len).map(VirtAddr);
        let end = end.filter(|end| *end <= Self::user_range().end());
        let end = end.ok_or(MremapError::Invalid)?;
        let tail = VirtRange::new(VirtAddr(plan.old.0 + plan.new_len), end);
        self.unmap_whole(writers, tail, afterwards)
    }

    /// Unmaps `range`, unless it cuts a huge page.
    fn unmap_whole(
        &self,
        writers: &Writers<'_, M>,
        range: VirtRange,
        afterwards: Afterwards,
    ) -> Result<(), MremapError> {
        match writers.held().cuts_no_huge_page(range) {
            true => Ok(unmap(writers, range, afterwards)?),
            false => Err(MremapError::Invalid),
        }
    }

    /// Linux: expand_vma.
    fn expand(
        &self,
        writers: &Writers<'_, M>,
        plan: &Plan,
        late: &mut Late,
    ) -> Result<Done, MremapError> {
        let vma = mapped_at(writers.held(), plan.old)?;
        let view = vma.view();
        let end = view.range.end();
        let more = plan.new_len - plan.old_len;
        let whole = end.0 - plan.old.0 == plan.old_len;
        let room = end.checked_add(more).map(|to| VirtRange::new(end, to));
        let room =
            room.filter(|room| Self::user_range().covers(*room) && writers.held().is_free(*room));
        if let Some(room) = room.filter(|_| whole) {
            return self.grow_in_place(writers, vma, room, plan);
        }
        if plan.how == Remap::InPlace {
            return Err(MremapError::NoMemory);
        }
        let to = writers.held().place(Place::Any, plan.new_len);
        let to = to.map_err(|_| MremapError::NoMemory)?;
        self.move_vma(writers, plan, to.start(), late)
    }

    /// Linux: expand_vma_in_place.
    fn grow_in_place(
        &self,
        writers: &Writers<'_, M>,
        vma: &Vma<M>,
        room: VirtRange,
        plan: &Plan,
    ) -> Result<Done, MremapError> {
        let sys = self.system();
        let view = vma.view().of_range::<M::Paging>(room);
        let pages = Pages::of::<M>(&view);
        sys.charge(pages.accounted)
            .map_err(|_| MremapError::Overcommit)?;
        let beside = writers.held().beside(room);
        let added = add_vma(writers, &view, beside, Some(vma.into()));
        drop(added.inspect_err(|_| sys.uncharge(pages.accounted))?);
        self.count_mapped(pages);
        Ok(Done {
            at: plan.old,
            more: view.flags.has(VmaFlags::LOCKED).then_some(room),
        })
    }

    /// Linux: mremap_to.
    fn remap_to(
        &self,
        writers: &Writers<'_, M>,
        plan: &Plan,
        to: VirtAddr,
        late: &mut Late,
    ) -> Result<Done, MremapError> {
        let mut plan = *plan;
        if plan.how.is_fixed() {
            let target = VirtRange::new(to, VirtAddr(to.0 + plan.new_len));
            self.unmap_whole(writers, target, Afterwards::Writes)?;
            mapped_at(writers.held(), plan.old)?;
        }
        if plan.shrinks() {
            self.cut_tail(writers, &plan, Afterwards::Writes)?;
            plan.old_len = plan.new_len;
        }
        let pages = plan.old_len >> M::Paging::shift();
        if plan.how.keeps_old() && !self.may_expand(pages) {
            return Err(MremapError::Limit);
        }
        if plan.how.is_fixed() {
            if to < Self::user_range().start() {
                return Err(MremapError::NotPermitted);
            }
            return self.move_vma(writers, &plan, to, late);
        }
        let place = writers.held().place(Place::Hint(to), plan.new_len);
        let place = place.map_err(|_| MremapError::NoMemory)?;
        self.move_vma(writers, &plan, place.start(), late)
    }
}

/// The VMA that covers `at`.
fn mapped_at<M: Mmu>(held: Held<'_, M>, at: VirtAddr) -> Result<&Vma<M>, MremapError> {
    let vma = held.find(at).ok_or(MremapError::Fault)?;
    let here = vma.view().range.contains(at);
    here.then_some(vma).ok_or(MremapError::Fault)
}
