//! The plan of a change of VMAs: splits, merges and removals as one transaction.
//!
//! # Problem
//! mmap, munmap, mprotect and their like cut VMAs at the edges of a range, remove what is inside,
//! and merge what the range becomes with its neighbours. A call that fails must leave everything as
//! it was; and lockless readers must find each address that stays mapped in one VMA or another at
//! every moment.
//!
//! # Idea
//! A change is a range and what it is afterwards. A [`Plan`] holds the VMAs of the range, each with
//! its write section open: `lower` reaches into it from below, `upper` out of it above, `middle`
//! covers just the range; the pages of these stay, or those in the range go, with the VMAs that lie
//! inside (`whole`). The range then has one *owner*, B and A being the neighbours that merge with
//! it:
//!
//! | merges with | owner | removed |
//! |---|---|---|
//! | B and A | B grows | A, middle |
//! | B | B grows | middle |
//! | A, middle there | middle grows | A |
//! | A | A grows down | - |
//! | none, pages stay | middle, or upper, which then has a new VMA above; else a new VMA | - |
//! | none | a new VMA; nothing where nothing is mapped afterwards | - |
//!
//! `lower` and `upper` keep what is outside of the range, unless one of them is B or A; a `lower`
//! that reached beyond the range has a new VMA above. A VMA whose attributes do not change in the
//! end, such as one whose middle is mapped anew, keeps its record.
//!
//! # Protocol
//! `mmap_lock` for writing. All memory is allocated before the first change. Then, in this order:
//!
//! ```text
//! 1  VMAs whose pages go leave the tree
//! 2  the owner publishes its record, if that covers more
//! 3  the tree: VMAs that are part of the owner leave it, keys move, new VMAs are inserted
//! 4  VMAs that lose a part publish their records
//! ```
//!
//! A plan that is dropped has changed nothing. Tree nodes are ensured where the tree changes more
//! than once; a single change may fail, and then step 2 is undone.
//!
//! # Why it is correct
//! Where pages stay, a growing VMA publishes its record before the VMA that it replaces leaves the
//! tree, and a shrinking one once its new neighbour is in the tree; so a lookup finds the old VMA,
//! the new one, or both. No fault commits meanwhile, since each VMA that changes has its section
//! open, and a new one is inserted with it open. A VMA that takes pages over is chained to their
//! anon_vma in between: unchained before its section ends if the call fails, so no fault installs a
//! page through a link that is undone.
//!
//! # Cost
//! One lookup for each VMA in the range, one for both neighbours; a record for each VMA that stays
//! and changes. To map what merges with nothing, or to unmap one whole VMA, needs no plan.
//!
//! Linux: mm/vma.c vma_merge_existing_range, vma_merge_new_range, commit_merge, `__split_vma`,
//! vms_gather_munmap_vmas (v6.18).

use super::merge::{Chained, alike, chain, may_go, of_range};
use super::modify::{nothing, split_huge};
use super::owned::{NewRecord, NewVma, Published, Removed};
use crate::base::attrs::VmaView;
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::change::writers::{Section, Sections, Writers};
use crate::memory::commit::Pages;
use crate::space::tree::Beside;
use crate::space::vma::Vma;
use crate::space::vma::VmaPtr;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

/// A range, the VMAs in it, and what the change needs. Dropping it frees what was not used, and
/// ends the sections.
pub(crate) struct Plan<'w, 'm, M: Mmu> {
    /// Undone before sections end: fields are dropped in their order.
    chained: Option<Chained<'w, M>>,
    /// New VMAs: the owner, and one above the range.
    new: [Option<NewVma<'w, M>>; 2],
    writers: &'w Writers<'m, M>,
    pub(super) range: VirtRange,
    /// The VMA whose pages the range has afterwards, if it has any.
    from: Option<VmaPtr<'w, M>>,
    /// The VMAs that stay; and after the change those that came.
    pub(super) kept: Kept<'w, M>,
    /// The new records of those that change.
    records: [Option<NewRecord<'w, M>>; 3],
    /// The one of them, at most, that begins elsewhere: where it is in the tree before and after.
    moves: Option<(&'w Vma<M>, VirtAddr, VirtAddr)>,
    /// The VMA that covers just the range, and keeps its pages.
    middle: Option<Section<'w, M>>,
    /// The VMAs that become part of the owner.
    part: [Option<Section<'w, M>>; 2],
    /// The VMAs inside the range whose pages go.
    whole: Sections<'w, 'm, M>,
    count: u64,
    /// The pages that go.
    pub(crate) pages: Pages,
    /// After the change, the VMAs that went, for the caller to free.
    pub(super) removed: Removed<'w, 'm, M>,
}

/// VMAs that stay or come, each with its section open: the one that covers the range ([`OWNER`]),
/// the one that reaches into it from below ([`LOWER`]), and the one above it ([`UPPER`]). The link
/// of the first follows before those of VMAs that lost a part to it.
pub(super) type Kept<'w, M> = [Option<Section<'w, M>>; 3];

pub(super) const OWNER: usize = 0;
const LOWER: usize = 1;
const UPPER: usize = 2;

impl<'w, 'm, M: Mmu> Plan<'w, 'm, M> {
    /// A range where nothing is mapped; with the pages of `from`, which are to come there.
    #[inline]
    pub(crate) const fn empty(
        writers: &'w Writers<'m, M>,
        range: VirtRange,
        from: Option<VmaPtr<'w, M>>,
    ) -> Self {
        Self {
            chained: None,
            writers,
            range,
            from,
            kept: [const { None }; 3],
            records: [const { None }; 3],
            moves: None,
            middle: None,
            part: [const { None }; 2],
            whole: writers.none_from(range.start()),
            count: 0,
            pages: Pages {
                mapped: 0,
                accounted: 0,
                locked: 0,
            },
            new: [const { None }; 2],
            removed: Removed::none(writers),
        }
    }

    /// Takes in the VMA of `section`, which covers `all`: the range is a part of it, and keeps its
    /// pages.
    #[inline]
    pub(super) fn take_part(&mut self, section: Section<'w, M>, all: VirtRange) {
        self.from = Some(section.vma().into());
        if all.start() < self.range.start() {
            self.kept[LOWER] = Some(section);
        } else if all.end() > self.range.end() {
            self.kept[UPPER] = Some(section);
        } else {
            self.middle = Some(section);
        }
    }

    /// Takes in all that is mapped in the range, to be unmapped; false if nothing is. The caller
    /// may have a section open on the VMA that all of the range is a part of: no fault sees the VMA
    /// between what the caller did to its pages and what is done here.
    ///
    /// # Context
    /// Sleeps until faults have left the VMAs, and for locks of anon_vmas.
    ///
    /// # Errors
    /// No memory, or too many VMAs. Nothing has changed then.
    pub(crate) fn take_all(&mut self, mut held: Option<Section<'w, M>>) -> Result<bool, NoMemory> {
        let (writers, range) = (self.writers, self.range);
        // Of huge pages whole mappings go.
        split_huge(writers, range.start())?;
        split_huge(writers, range.end())?;
        let mut at = range.start();
        while at < range.end()
            && let Some(vma) = writers.held().find(at)
        {
            let view = vma.view();
            let all = view.range;
            if all.start() >= range.end() {
                break;
            }
            let held = held.take_if(|it| core::ptr::eq(it.vma(), vma));
            let section = held.unwrap_or_else(|| writers.begin(vma));
            let part = view.of_range::<M::Paging>(all.intersect(range));
            self.pages.add(Pages::of::<M>(&part));
            let ends_behind = all.end() > range.end();
            if all.start() < range.start() {
                self.kept[LOWER] = Some(section);
                if ends_behind && !writers.held().may_split(1) {
                    return Err(NoMemory);
                }
            } else if ends_behind {
                self.kept[UPPER] = Some(section);
            } else {
                if self.count == 0 {
                    self.whole = writers.none_from(all.start());
                }
                self.whole.add_open(section);
                self.count += 1;
            }
            at = all.end();
        }
        Ok(at > range.start())
    }

    /// The neighbours that `view` could merge with: what touches the range, or is cut at its edges;
    /// nothing but one VMA where the range lies inside of that.
    #[inline]
    pub(super) fn near(&self, view: &VmaView) -> Beside<'w, M> {
        let [_, lower, upper] = self.kept.each_ref().map(|it| it.as_ref().map(Section::vma));
        let inside = |vma: &Vma<M>| vma.view().range.end() > self.range.end();
        let near = match (lower, upper) {
            (Some(_), Some(_)) => nothing(),
            (Some(lower), None) if inside(lower) => nothing(),
            _ => self.writers.held().beside(self.range),
        };
        alike::<M>(
            Beside {
                below: lower.map(VmaPtr::from).or(near.below),
                above: upper.map(VmaPtr::from).or(near.above),
                between: None,
            },
            view,
        )
    }

    /// Opens the sections of the neighbours that are `near`, then decides with which of them `view`
    /// merges.
    #[inline]
    fn merges(&mut self, view: &VmaView, near: &Beside<'w, M>) -> [Option<Section<'w, M>>; 2] {
        let (below, above) = (near.below.map(VmaPtr::get), near.above.map(VmaPtr::get));
        // Linux gives up, too, rather than let a neighbour have it.
        if self.middle.is_some() && !may_go::<M>(view) {
            return [None, None];
        }
        let mut opened = [
            below
                .filter(|_| self.kept[LOWER].is_none())
                .map(|vma| self.open(vma)),
            above
                .filter(|_| self.kept[UPPER].is_none())
                .map(|vma| self.open(vma)),
        ];
        let from = self.from.map(VmaPtr::get);
        let below = below.filter(|vma| vma.may_take(from));
        let both = |vma| below.is_none_or(|it| it.may_share(vma) && may_go::<M>(view));
        let above = above.filter(|vma| vma.may_take(from) && both(vma));
        let below = below.and_then(|_| opened[0].take().or_else(|| self.kept[LOWER].take()));
        let above = above.and_then(|_| opened[1].take().or_else(|| self.kept[UPPER].take()));
        [below, above]
    }

    /// Opens the section of a neighbour.
    fn open(&self, vma: &'w Vma<M>) -> Section<'w, M> {
        let lacks = |fix| self.from.is_some() && self.writers.held().system().lacks(fix);
        if lacks(NegativeControl::MergeWithoutSection)
            || lacks(NegativeControl::ProtectWithoutSection)
        {
            return self.writers.begin_none(vma);
        }
        self.writers.begin(vma)
    }

    /// Maps the range as said, merged with what is `near` where it can be, or leaves it unmapped.
    ///
    /// # Context
    /// Sleeps until faults have left the VMAs it merges with, and for locks of anon_vmas.
    ///
    /// # Errors
    /// No memory, or too many VMAs. Nothing has changed then.
    pub(super) fn change(&mut self, to: Option<(&VmaView, Beside<'w, M>)>) -> Result<(), NoMemory> {
        self.allocate(to)?;
        self.commit()
    }

    /// Decides by the table above, and allocates all memory.
    fn allocate(&mut self, to: Option<(&VmaView, Beside<'w, M>)>) -> Result<(), NoMemory> {
        let mm = self.writers.held().mm();
        let (start, end) = (self.range.start(), self.range.end());
        let (mut below, mut above) = (None, None);
        if let Some((view, near)) = &to {
            [below, above] = self.merges(view, near);
        }
        // The VMA of which a new one takes over what is above the range.
        let mut cut = self.kept[LOWER].as_ref().map(Section::vma);
        match (to, below, above) {
            (None, ..) => {}
            (Some(_), Some(below), above) => {
                let old = below.vma().view();
                if old.range.end() > end {
                    // All that changes is that its middle has no pages.
                    self.kept[OWNER] = Some(below);
                } else {
                    let end = above.as_ref().map_or(end, end_of);
                    self.part = [above, self.middle.take()];
                    self.grow(below, of_range::<M>(&old, old.range.start(), end))?;
                }
            }
            (Some((view, _)), None, Some(above)) => {
                let end = end_of(&above);
                if let Some(middle) = self.middle.take() {
                    self.part[0] = Some(above);
                    self.grow(middle, of_range::<M>(view, start, end))?;
                } else {
                    let old = above.vma().view();
                    self.moves = Some((above.vma(), old.range.start(), start));
                    self.grow(above, of_range::<M>(&old, start, end))?;
                }
            }
            (Some((view, _)), None, None) => self.own(view, &mut cut)?,
        }
        if let Some(vma) = cut {
            let old = vma.view();
            if old.range.end() > end {
                let view = of_range::<M>(&old, end, old.range.end());
                self.new[1] = Some(NewVma::like(mm, view, vma)?);
            }
        }
        if let Some(lower) = &self.kept[LOWER] {
            let old = lower.vma().view();
            let view = of_range::<M>(&old, old.range.start(), start);
            self.records[LOWER] = Some(NewRecord::new(mm, view)?);
        }
        if let Some(upper) = &self.kept[UPPER] {
            let old = upper.vma().view();
            self.moves = Some((upper.vma(), old.range.start(), end));
            let view = of_range::<M>(&old, end, old.range.end());
            self.records[UPPER] = Some(NewRecord::new(mm, view)?);
        }
        Ok(())
    }

    /// The range merges with nothing: a VMA whose pages stay covers it, or a new one.
    fn own(&mut self, view: &VmaView, cut: &mut Option<&'w Vma<M>>) -> Result<(), NoMemory> {
        let mm = self.writers.held().mm();
        let Some(from) = self.from.map(VmaPtr::get) else {
            self.new[0] = Some(NewVma::new(mm, *view)?);
            return Ok(());
        };
        self.kept[OWNER] = self.middle.take();
        if let Some(upper) = self.kept[UPPER].take() {
            *cut = Some(upper.vma());
            self.kept[OWNER] = Some(upper);
        }
        let behind = cut.is_some_and(|vma| vma.view().range.end() > view.range.end());
        if !mm.may_split(u64::from(behind) + u64::from(self.kept[LOWER].is_some())) {
            return Err(NoMemory);
        }
        if self.kept[OWNER].is_some() {
            self.records[OWNER] = Some(NewRecord::new(mm, *view)?);
        } else {
            self.new[0] = Some(NewVma::like(mm, *view, from)?);
        }
        Ok(())
    }

    /// A VMA grows over the range and over those that become part of it.
    fn grow(&mut self, owner: Section<'w, M>, grown: VmaView) -> Result<(), NoMemory> {
        let (mm, vma) = (self.writers.held().mm(), owner.vma());
        self.kept[OWNER] = Some(owner);
        self.records[OWNER] = Some(NewRecord::new(mm, grown)?);
        let forgets = mm.system().lacks(NegativeControl::MergeForgetsChain);
        let from = self.from.filter(|_| !forgets).map(VmaPtr::get);
        for from in self.part.iter().flatten().map(Section::vma).chain(from) {
            if self.chained.is_none() {
                self.chained = chain(mm, vma, from)?;
            }
        }
        Ok(())
    }

    /// Does what was planned.
    ///
    /// # Errors
    /// No memory for nodes of the tree. Nothing has changed then.
    fn commit(&mut self) -> Result<(), NoMemory> {
        self.moves = self.moves.filter(|(_, from, to)| from != to);
        let parts = self.part.iter().flatten().count() as u64;
        let removals = self.count + parts + u64::from(self.moves.is_some());
        let new = self.new.iter().flatten().count() as u64;
        // A single change may fail.
        // Arenas are made where something comes.
        let comes = self.new[0].is_some() || self.records[OWNER].is_some();
        let into = comes.then_some(self.range);
        let needed = match self.writers.is_several() {
            true => !self.writers.is_ensured(),
            false => removals + new > 1,
        };
        let ensured = needed.then(|| self.writers.ensure(into, removals, new));
        let ensured = ensured.transpose()?;
        self.take_whole()?;
        // An owner that has a new VMA above loses a part.
        let grows = self.new[1].is_none();
        let grown = grows.then(|| self.publish(OWNER)).flatten();
        if let Err(NoMemory) = self.change_tree() {
            if let Some(grown) = grown {
                grown.undo();
            }
            return Err(NoMemory);
        }
        drop((ensured, grown));
        for loses in [UPPER, LOWER, OWNER] {
            drop(self.publish(loses));
        }
        if let Some(chained) = self.chained.take() {
            chained.keep();
        }
        self.whole.hand_over();
        for part in &mut self.part {
            let _open = part.take().map(Section::leave_open);
        }
        Ok(())
    }

    /// Publishes the new record of one, if it has one that is not published yet.
    fn publish(&mut self, which: usize) -> Option<Published<'w, M>> {
        let record = self.records[which].take()?;
        let vma = self.kept[which].as_ref()?.vma();
        Some(record.publish(vma))
    }

    /// Takes the VMAs out whose pages go.
    fn take_whole(&mut self) -> Result<(), NoMemory> {
        let within = self.whole.within();
        let mut at = within.start();
        while at < within.end()
            && let Some(vma) = self.writers.held().find(at)
        {
            let range = vma.view().range;
            self.removed.take_out_vma(vma, range.start())?;
            at = range.end();
        }
        Ok(())
    }

    /// The tree follows; new VMAs are kept, too.
    fn change_tree(&mut self) -> Result<(), NoMemory> {
        for part in self.part.iter().flatten() {
            let start = part.vma().view().range.start();
            self.removed.take_out_vma(part.vma(), start)?;
        }
        if let Some((vma, from, to)) = self.moves {
            self.writers.held().rekey_record(from, to, vma)?;
        }
        for (new, kept) in [(1, UPPER), (0, OWNER)] {
            if let Some(new) = self.new[new].take() {
                self.kept[kept] = Some(new.insert(self.writers, None)?);
            }
        }
        Ok(())
    }
}

/// Where the VMA of a section ends.
fn end_of<M: Mmu>(section: &Section<'_, M>) -> VirtAddr {
    section.vma().view().range.end()
}
