//! Unmaps a range and optionally maps something in its place, in one step.
//!
//! # Problem
//! Unmapping a range removes VMAs, splits others at its edges, and may map something there at once.
//! A call that fails must leave everything as it was; and the teardown sleeps and takes time, but
//! allocates nothing.
//!
//! # Idea
//! ```text
//! before    VVVVVVVV WWW AAAAAAA       after munmap    VVVV            AAAA
//! range         ==============         after mmap      VVVVNNNNNNNNNNNNAAAA, or one VMA
//! ```
//! First the unmap plan, a [`Cut`]: it has allocated all memory and opened all VMA write sections,
//! but has changed nothing; dropping it undoes both. Then the tree and the attribute records
//! change, which can neither fail nor sleep. Then the unmapped VMAs are detached, and the write
//! sections of trimmed VMAs end. Last, pages, links and the unmapped VMAs are freed.
//!
//! # Protocol
//! `mmap_lock` for writing; if nothing is mapped afterwards and the configuration says so,
//! downgraded before pages are unmapped. Write sections are open on all VMAs that are removed or
//! changed: those of removed VMAs never end (detached); those of trimmed VMAs that no longer reach
//! into the range end when their record says so; those of VMAs mapped in the range end when the old
//! pages are unmapped.
//!
//! # Why it is correct
//! No fault begins in the range while its sections are open; what one installed before is zapped.
//! A VMA that lost a part and is let go before the zap says by its record that the range is none
//! of it; a speculative fault that read the old record sees that the count moved. See
//! [`crate::change::writers`] for what others may do after the downgrade.
//! New VMAs are found with their sections open, which end when the old pages are gone.
//!
//! Linux: mm/vma.c vms_gather_munmap_vmas, vms_complete_munmap_vmas (v6.18).

use super::changed::{Changed, FRESH, TableFate};
use super::merge::{Chained, chain, goes_on, may_go, of_range};
use super::split::{NewRecord, NewVma, split_huge};
use crate::base::attrs::VmaView;
use crate::base::error::NoMemory;
use crate::change::writers::{Afterwards, Section, Sections, Writers};
use crate::memory::commit::Pages;
use crate::mm::Mm;
use crate::space::vma::Vma;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

/// A VMA at an edge of the range, and the record it gets.
struct Edge<'w, M: Mmu> {
    section: Section<'w, M>,
    record: NewRecord<'w, M>,
}

/// What is to be done above the range.
enum Above<'w, M: Mmu> {
    Nothing,
    /// The VMA in the tree at `from` starts at `to` from now on.
    Starts {
        edge: Edge<'w, M>,
        from: VirtAddr,
        to: VirtAddr,
    },
    /// The upper part of a VMA that loses its middle.
    New(NewVma<'w, M>),
    /// One with what comes in the range's place, and with what is below.
    Swallowed(Section<'w, M>),
}

/// The plan.
///
/// One that is dropped ends its sections; who was chained in one is unchained before, since a fault
/// that comes next would make pages by these links. So `chained` comes first: fields are dropped in
/// their order.
pub(crate) struct Cut<'w, 'm, M: Mmu> {
    chained: Option<Chained<'w, M>>,
    mm: &'w Mm<M>,
    writers: &'w Writers<'m, M>,
    range: VirtRange,
    /// What goes.
    pub(crate) pages: Pages,
    /// The VMAs that go.
    whole: Sections<'w, 'm, M>,
    count: u64,
    /// The VMA below, which ends elsewhere from now on.
    below: Option<Edge<'w, M>>,
    above: Above<'w, M>,
    /// What comes in the range's place, as a VMA of its own.
    fresh: Option<NewVma<'w, M>>,
    /// A section that the caller has open already, on the VMA that the range is a part of.
    held: Option<Section<'w, M>>,
    then: Then,
}

/// What the range is afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Free,
    Mapped,
    /// Mapped by entries that are where the tables of the old mappings were.
    MappedHigher,
}

impl<'w, 'm, M: Mmu> Cut<'w, 'm, M> {
    /// Plans to take `range` out; none if nothing is mapped there.
    ///
    /// # Context
    /// Sleeps until faults have left the VMAs, and for locks of anon_vmas.
    ///
    /// # Errors
    /// No memory, or too many VMAs. Nothing has changed then.
    pub(crate) fn plan(
        mm: &'w Mm<M>,
        writers: &'w Writers<'m, M>,
        range: VirtRange,
    ) -> Result<Option<Self>, NoMemory> {
        Self::plan_in(mm, writers, range, None)
    }

    /// The same for a caller who may have a section open on the VMA that all of `range` is a part
    /// of: no fault sees the VMA between what the caller did to its pages and what is done here.
    ///
    /// # Context
    /// # Errors
    /// As for [`Cut::plan`].
    pub(crate) fn plan_in(
        mm: &'w Mm<M>,
        writers: &'w Writers<'m, M>,
        range: VirtRange,
        held: Option<Section<'w, M>>,
    ) -> Result<Option<Self>, NoMemory> {
        // Of huge pages whole mappings go.
        split_huge(mm, writers, range.start())?;
        split_huge(mm, writers, range.end())?;
        let Some(first) = writers.held().find(range.start()) else {
            return Ok(None);
        };
        let view = first.view();
        if view.range.start() >= range.end() {
            return Ok(None);
        }
        let whole = writers.none_from(range.start().max(view.range.start()));
        let mut cut = Self {
            chained: None,
            mm,
            writers,
            range,
            pages: Pages::default(),
            whole,
            count: 0,
            below: None,
            above: Above::Nothing,
            fresh: None,
            held,
            then: Then::Free,
        };
        if range.covers(view.range) {
            cut.take(first, &view);
        } else if view.range.start() < range.start() {
            cut.shorten(first, &view)?;
        } else {
            cut.start_later(first, &view)?;
        }
        cut.rest(view.range.end())?;
        Ok(Some(cut))
    }

    /// Plans the VMAs from `at` on.
    fn rest(&mut self, mut at: VirtAddr) -> Result<(), NoMemory> {
        while at < self.range.end()
            && let Some(vma) = self.writers.held().find(at)
        {
            let view = vma.view();
            if view.range.start() >= self.range.end() {
                break;
            }
            if view.range.end() > self.range.end() {
                return self.start_later(vma, &view);
            }
            self.take(vma, &view);
            at = view.range.end();
        }
        Ok(())
    }

    /// The section of `vma`: a new one, unless the caller had it.
    fn begin(&mut self, vma: &'w Vma<M>) -> Section<'w, M> {
        let held = self.held.take_if(|it| core::ptr::eq(it.vma(), vma));
        held.unwrap_or_else(|| self.writers.begin(vma))
    }

    fn take(&mut self, vma: &'w Vma<M>, view: &VmaView) {
        if self.count == 0 {
            self.whole = self.writers.none_from(view.range.start());
        }
        let section = self.begin(vma);
        self.whole.add_open(section);
        self.count += 1;
        self.pages.add(Pages::of::<M>(view));
    }

    /// `vma` ends where the range starts, and goes on behind it if it reached further.
    fn shorten(&mut self, vma: &'w Vma<M>, view: &VmaView) -> Result<(), NoMemory> {
        let (mm, range) = (self.mm, self.range);
        let section = self.begin(vma);
        let (start, end) = (view.range.start(), view.range.end());
        if end > range.end() {
            if !mm.may_split(1) {
                return Err(NoMemory);
            }
            let upper = of_range::<M>(view, range.end(), end);
            self.above = Above::New(NewVma::like(mm, upper, vma)?);
        }
        let record = NewRecord::new(mm, of_range::<M>(view, start, range.start()))?;
        self.below = Some(Edge { section, record });
        self.count_part(view);
        Ok(())
    }

    /// `vma` starts where the range ends.
    fn start_later(&mut self, vma: &'w Vma<M>, view: &VmaView) -> Result<(), NoMemory> {
        let section = self.begin(vma);
        let (from, to) = (view.range.start(), self.range.end());
        let record = NewRecord::new(self.mm, of_range::<M>(view, to, view.range.end()))?;
        let edge = Edge { section, record };
        self.above = Above::Starts { edge, from, to };
        self.count_part(view);
        Ok(())
    }

    fn count_part(&mut self, view: &VmaView) {
        let part = view.of_range::<M::Paging>(view.range.intersect(self.range));
        self.pages.add(Pages::of::<M>(&part));
    }

    /// The VMA that ends at the range once this is done, and what it then is.
    fn vma_below(&self) -> Option<(&'w Vma<M>, VmaView)> {
        let start = self.range.start();
        match &self.below {
            Some(edge) => {
                let vma = edge.section.vma();
                let view = vma.view();
                Some((vma, of_range::<M>(&view, view.range.start(), start)))
            }
            None => self
                .writers
                .held()
                .ends_at(start)
                .map(|vma| (vma, vma.view())),
        }
    }

    /// The VMA that starts behind the range once this is done, and what it then is; but for the
    /// upper part of one that loses its middle.
    fn vma_above(&self) -> Option<(&'w Vma<M>, VmaView)> {
        let end = self.range.end();
        match &self.above {
            Above::Starts { edge, .. } => {
                let vma = edge.section.vma();
                let view = vma.view();
                Some((vma, of_range::<M>(&view, end, view.range.end())))
            }
            Above::Nothing => self
                .writers
                .held()
                .starts_at(end)
                .map(|vma| (vma, vma.view())),
            Above::New(_) | Above::Swallowed(_) => None,
        }
    }

    /// Plans that a new mapping comes in the range's place, one with its neighbours where it can.
    ///
    /// # Context
    /// Sleeps, as [`Cut::plan`].
    ///
    /// # Errors
    /// No memory. Nothing has changed then.
    ///
    /// Linux: vma_merge_new_range.
    pub(crate) fn replace_by(mut self, view: VmaView) -> Result<Self, NoMemory> {
        let (mm, writers) = (self.mm, self.writers);
        if self.then == Then::Free {
            self.then = Then::Mapped;
        }
        let fits = |it: &(&Vma<M>, VmaView)| goes_on::<M::Paging>(&it.1, &view);
        let below = self.vma_below().filter(fits);
        if let (Some((vma, _)), Above::New(_)) = (below, &self.above) {
            // All that changes is that its middle has no pages.
            if vma.may_take(None) {
                self.above = Above::Nothing;
                let record = NewRecord::new(mm, vma.view())?;
                self.below = self.below.take().map(|edge| Edge { record, ..edge });
                return Ok(self);
            }
        }
        let fits = |it: &(&Vma<M>, VmaView)| goes_on::<M::Paging>(&view, &it.1);
        let above = self.vma_above().filter(fits);
        // Sections of those that the cut does not change are opened before it is decided by their
        // anon_vmas.
        let mut near = [
            below.filter(|_| self.below.is_none()),
            above.filter(|_| matches!(self.above, Above::Nothing)),
        ]
        .map(|it| it.map(|(vma, _)| writers.begin(vma)));
        let below = below.filter(|(vma, _)| vma.may_take(None));
        let above = above.filter(|(vma, _)| {
            let both = |(other, _): (&Vma<M>, _)| other.may_share(vma) && may_go::<M>(&view);
            vma.may_take(None) && below.is_none_or(both)
        });
        let (start, end) = (self.range.start(), self.range.end());
        match (below, above) {
            (None, None) => self.fresh = Some(NewVma::new(mm, view)?),
            (Some((vma, old)), above) => {
                let end = above.map_or(end, |(_, above)| above.range.end());
                let record = NewRecord::new(mm, of_range::<M>(&old, old.range.start(), end))?;
                if let Some((other, _)) = above {
                    self.chained = Some(chain(mm, vma, other)?);
                }
                let own = self.below.take().map(|edge| edge.section);
                let section = own.or_else(|| near[0].take());
                self.below = section.map(|section| Edge { section, record });
                if above.is_some() {
                    let section = self.section_above().or_else(|| near[1].take());
                    self.above = section.map_or(Above::Nothing, Above::Swallowed);
                }
            }
            (None, Some((vma, old))) => {
                let record = NewRecord::new(mm, of_range::<M>(&old, start, old.range.end()))?;
                let from = vma.view().range.start();
                let section = self.section_above().or_else(|| near[1].take());
                let starts = |section| Above::Starts {
                    edge: Edge { section, record },
                    from,
                    to: start,
                };
                self.above = section.map_or(Above::Nothing, starts);
            }
        }
        Ok(self)
    }

    /// The new mapping has larger pages than an old one: tables inside the range are freed.
    pub(crate) const fn with_tables(mut self) -> Self {
        self.then = Then::MappedHigher;
        self
    }

    fn section_above(&mut self) -> Option<Section<'w, M>> {
        match core::mem::replace(&mut self.above, Above::Nothing) {
            Above::Starts { edge, .. } => Some(edge.section),
            other => {
                self.above = other;
                None
            }
        }
    }

    /// Does what was planned.
    ///
    /// # Errors
    /// No memory for nodes of the tree. Nothing has changed then.
    pub(crate) fn commit(self, afterwards: Afterwards) -> Result<(), NoMemory> {
        let Self {
            mm,
            writers,
            range,
            then,
            ..
        } = self;
        let sys = mm.system();
        // One change of the tree that comes first may fail.
        let first = self.fresh.is_none() && !matches!(self.above, Above::Swallowed(_));
        let (more, new) = match self.above {
            Above::Nothing => (0, 0),
            Above::Starts { .. } | Above::Swallowed(_) => (1, 0),
            Above::New(_) => (0, 1),
        };
        let (removals, new) = (self.count + more, new + u64::from(self.fresh.is_some()));
        let ensured = match first && removals + new <= 1 {
            true => None,
            false => Some(mm.tree.ensure(sys, removals, new)?),
        };
        let mut changed = self.change()?;
        drop(ensured);
        let tables = match then {
            Then::Free => TableFate::Free(afterwards),
            Then::Mapped => TableFate::Keep,
            Then::MappedHigher => TableFate::FreeWithin,
        };
        match then {
            Then::Free => changed.end_sections(),
            Then::Mapped | Then::MappedHigher => changed.let_neighbours_go(range),
        }
        changed.take_pages_out(mm, writers, range, tables);
        Ok(())
    }

    /// Changes the tree and the records.
    fn change(mut self) -> Result<Changed<'w, 'm, M>, NoMemory> {
        let (mm, writers) = (self.mm, self.writers);
        let sys = mm.system();
        let last = self.take_out()?;
        let mut sections = [const { None }; 3];
        let mut swallowed = None;
        match self.above {
            Above::Nothing => {}
            Above::Starts { edge, from, to } => {
                let Edge { section, record } = edge;
                if from != to {
                    mm.tree.rekey(sys, from, to, section.vma())?;
                }
                drop(record.publish(section.vma()));
                sections[0] = Some(section);
            }
            Above::New(new) => sections[0] = Some(new.insert(writers)?),
            Above::Swallowed(section) => swallowed = Some(section),
        }
        if let Some(Edge { section, record }) = self.below {
            drop(record.publish(section.vma()));
            sections[1] = Some(section);
        }
        if let Some(section) = &swallowed {
            mm.tree.remove(sys, section.vma().view().range.start())?;
        }
        if let Some(new) = self.fresh {
            sections[FRESH] = Some(new.insert(writers)?);
        }
        self.whole.hand_over();
        if let Some(chained) = self.chained {
            chained.keep();
        }
        Ok(Changed {
            pages: self.pages,
            whole: self.whole,
            last,
            // Left open, as those of the others that go.
            swallowed: swallowed.map(Section::leave_open),
            sections,
            ended: [None; 3],
        })
    }

    /// Takes the VMAs out that go; returns the last, which remembers the one before.
    fn take_out(&mut self) -> Result<Option<NonNull<Vma<M>>>, NoMemory> {
        let within = self.whole.within();
        let (mut at, mut last) = (within.start(), None);
        while at < within.end()
            && let Some(vma) = self.writers.held().find(at)
        {
            let range = vma.view().range;
            self.mm.tree.remove(self.mm.system(), range.start())?;
            vma.callback.remember(last.map(NonNull::cast));
            last = Some(NonNull::from(vma));
            at = range.end();
        }
        Ok(last)
    }
}
