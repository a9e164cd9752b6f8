//! What follows a change of VMAs: the teardown of what was unmapped.
//!
//! # Problem
//! Unmapping sleeps and takes time, and other threads shall fault meanwhile; but nothing may be
//! reused while a CPU can still reach it.
//!
//! # Protocol
//! The tree and the attribute records have changed ([`super::plan`]); nothing here can fail. The
//! unmapped VMAs are detached first, since only then may `mmap_lock` be downgraded
//! ([`crate::change::writers`] says why). Then PTEs are zapped, the VMAs and their links to
//! anon_vmas are removed, and page tables are freed; nothing is reused before the TLB flush
//! completes. Sections of removed VMAs never end (detached); those of trimmed VMAs that no longer
//! reach into the range end before the zap; those of VMAs mapped in the range end when the old
//! pages are unmapped.
//!
//! # Why it is correct
//! No fault begins in the range while its sections are open; what one installed before is zapped.
//! The record of a VMA that lost a part no longer covers the range when its section ends; a
//! speculative fault that read the old record sees that the count moved.
//!
//! Linux: mm/vma.c vms_complete_munmap_vmas, vms_clear_ptes (v6.18).

use super::owned::Removed;
use super::plan::Plan;
use crate::base::attrs::VmaView;
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::change::writers::{Afterwards, Section, Writers};
use crate::entry::translation;
use crate::entry::zap::Zap;
use crate::memory::commit::Pages;
use crate::space::arenas::look::Held;
use crate::space::tree::{Beside, Found};
use crate::space::vma::Vma;
use crate::system::System;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// What becomes of the tables below a range whose pages go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableFate {
    /// Those that nobody else uses go, and what the caller does then.
    Free(Afterwards),
    /// A new mapping takes the range's place.
    Keep,
    /// The same, by larger pages: tables that cover nothing outside the range are freed.
    FreeWithin,
}

/// A range whose pages go.
struct Gone<'w, M: Mmu> {
    range: VirtRange,
    pages: Pages,
    /// The VMAs that stay or come: the one that covers the range, the one below, the one above.
    kept: [Option<&'w Vma<M>>; 3],
    tables: TableFate,
    /// What is not mapped around the range, if that is known.
    around: Option<VirtRange>,
}

impl<'w, M: Mmu> Plan<'w, '_, M> {
    /// Maps the range as `view` says, merged with its neighbours where it can be, in place of what
    /// is mapped there.
    ///
    /// # Context
    /// As [`unmap_range`]; sleeps until faults have left the neighbours.
    ///
    /// # Errors
    /// No memory. Nothing has changed then.
    pub(crate) fn replace_by(&mut self, view: &VmaView, tables: TableFate) -> Result<(), NoMemory> {
        let near = self.near(view);
        self.unmap(Some((view, near)), tables)
    }

    fn unmap(
        &mut self,
        to: Option<(&VmaView, Beside<'w, M>)>,
        tables: TableFate,
    ) -> Result<(), NoMemory> {
        let (range, pages) = (self.range, self.pages);
        let maps = to.is_some();
        self.change(to)?;
        let kept = self.kept.each_ref().map(|it| it.as_ref().map(Section::vma));
        for section in &mut self.kept {
            // Those that have nothing in the range are as they will be.
            let done = |it: &mut Section<'w, M>| !maps || !it.vma().view().range.overlaps(range);
            section.take_if(done).map(Section::end_before_link);
        }
        let gone = Gone {
            range,
            pages,
            kept,
            tables,
            around: None,
        };
        take_pages_out(&mut self.removed, &gone);
        self.kept = [const { None }; 3];
        Ok(())
    }
}

/// Unmaps whatever is mapped in `range`. The caller may have a section open on the VMA that all of
/// the range is a part of ([`Plan::take_all`]).
///
/// # Context
/// Under `mmap_lock` for writing, which is downgraded on success where that is the choice and the
/// caller releases it afterwards. Sleeps for VMA locks and locks of anon_vmas; waits for TLB
/// flushes.
///
/// # Errors
/// No memory, or too many VMAs. Nothing has changed then.
pub(crate) fn unmap_range<'w, M: Mmu>(
    writers: &'w Writers<'_, M>,
    range: VirtRange,
    held: Option<Section<'w, M>>,
    afterwards: Afterwards,
) -> Result<(), NoMemory> {
    let mut plan = Plan::empty(writers, range, None);
    match plan.take_all(held)? {
        true => plan.unmap(None, TableFate::Free(afterwards)),
        false => Ok(()),
    }
}

/// Unmaps the whole of a VMA and nothing else, as most calls do: without a plan.
///
/// # Context
/// # Errors
/// As for [`unmap_range`].
pub(crate) fn unmap_one<M: Mmu>(
    writers: &Writers<'_, M>,
    found: Found<'_, M>,
    afterwards: Afterwards,
) -> Result<(), NoMemory> {
    let view = found.vma().view();
    let section = writers.begin(found.vma());
    let mut removed = Removed::none(writers);
    // Stays as it is after a downgrade, too: a call that maps there, or grows a neighbour, waits.
    let around = removed.take_out(found)?;
    let _open = section.leave_open();
    let gone = Gone {
        range: view.range,
        pages: Pages::of::<M>(&view),
        kept: [None; 3],
        tables: TableFate::Free(afterwards),
        around,
    };
    take_pages_out(&mut removed, &gone);
    Ok(())
}

/// Detaches the VMAs that go, lets others in again where that is the choice, and takes pages and
/// tables out.
///
/// # Context
/// Sleeps for locks of anon_vmas; waits for TLB flushes.
#[inline(always)]
fn take_pages_out<M: Mmu>(removed: &mut Removed<'_, '_, M>, gone: &Gone<'_, M>) {
    let (range, writers) = (gone.range, removed.writers());
    let held = writers.held();
    let kept = || gone.kept.iter().flatten().copied();
    if !held.system().lacks(NegativeControl::DetachLate) {
        removed.detach();
    }
    // Those that grew have the pages of those that go.
    kept().for_each(Vma::link_grows);
    if let TableFate::Free(afterwards) = gone.tables {
        writers.downgrade(afterwards);
    }
    let mut zap = Zap::begin(held.tables(), range);
    let mut files = kept().any(|vma| vma.link() != 0);
    let mut all_huge = true;
    removed.each(|vma| {
        let file = (vma.link() != 0).then(|| vma.view());
        files |= file.is_some();
        match file.filter(VmaView::is_huge) {
            Some(view) => zap.huge_gone(vma, &view),
            None => all_huge = false,
        }
    });
    if !all_huge || kept().next().is_some() {
        zap.range(range);
    }
    removed.detach();
    // Those that lost a part have none of its pages any more, and no CPU reaches them.
    if files && !unlinks_first(held.system()) {
        zap.settle();
    }
    // Others reach a new mapping's tables by its link, share them even: where tables of smaller
    // pages are still to be freed, the link is put in when its section ends.
    let early = held.system().lacks(NegativeControl::LinkBeforeTables);
    let later = gone.tables == TableFate::FreeWithin && !early;
    gone.kept
        .iter()
        .skip(usize::from(later))
        .flatten()
        .for_each(|vma| vma.link_follows());
    removed.free();
    match gone.tables {
        TableFate::Free(_) => free_own_tables(writers, range, gone.around, &mut zap),
        TableFate::FreeWithin => zap.free_tables(range, range),
        TableFate::Keep => {}
    }
    zap.finish();
    held.wake_unmapped(range);
    held.count_unmapped(gone.pages);
    translation::translations_agree(held.mm(), range, u64::MAX);
}

/// For controls: files forget a mapping before every CPU has forgotten its pages.
fn unlinks_first<M: Mmu>(sys: &System<M>) -> bool {
    sys.lacks(NegativeControl::UnlinkBeforeFlush) || sys.lacks(NegativeControl::FilePagesAtOnce)
}

/// Unlinks the tables that only `range` used.
pub(crate) fn free_tables<M: Mmu>(held: Held<'_, M>, range: VirtRange, zap: &mut Zap<'_, M>) {
    zap.free_tables(range, hole(held, range));
}

/// The same for munmap, which may know what is not mapped around `range`, and whose control lets
/// `mmap_lock` go meanwhile.
fn free_own_tables<M: Mmu>(
    writers: &Writers<'_, M>,
    range: VirtRange,
    free_around: Option<VirtRange>,
    zap: &mut Zap<'_, M>,
) {
    let hole = free_around.unwrap_or_else(|| hole(writers.held(), range));
    if writers
        .held()
        .system()
        .lacks(NegativeControl::UnmapUnlocked)
    {
        return writers.without(|| zap.free_tables(range, hole));
    }
    zap.free_tables(range, hole);
}

/// What is not mapped around the start of `range`.
fn hole<M: Mmu>(held: Held<'_, M>, range: VirtRange) -> VirtRange {
    let user_end = VirtAddr(M::Paging::user_end());
    let (floor, ceiling) = held.around(range.start());
    let (floor, ceiling) = (floor.unwrap_or(VirtAddr(0)), ceiling.unwrap_or(user_end));
    VirtRange::new(floor, ceiling)
}
