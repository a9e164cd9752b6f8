//! The second half of a [`Cut`](super::cut): the tree and the attribute records have changed; what
//! was unmapped is torn down.
//!
//! Nothing here can fail. The unmapped VMAs are detached first, since only then may `mmap_lock` be
//! downgraded ([`crate::change::writers`] says why). Then PTEs are zapped, the VMAs and their links
//! to anon_vmas are removed, and page tables are freed; nothing is reused before the TLB flush
//! completes.
//!
//! Linux: mm/vma.c vms_complete_munmap_vmas, vms_clear_ptes (v6.18).

use super::split::{detach, free};
use crate::base::config::Broken;
use crate::change::writers::{Afterwards, Section, Sections, Writers};
use crate::entry::translation;
use crate::entry::zap::Zap;
use crate::memory::commit::Pages;
use crate::mm::Mm;
use crate::space::look::Held;
use crate::space::vma::Vma;
use crate::space::vma_ptr::VmaPtr;
use crate::system::System;
use core::cell::Cell;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// Which of [`Changed::sections`] is a new mapping's.
pub(crate) const FRESH: usize = 2;

/// A plan whose records and places in the tree are done.
pub(crate) struct Changed<'w, 'm, M: Mmu> {
    pub(crate) pages: Pages,
    pub(crate) whole: Sections<'w, 'm, M>,
    /// The last of the VMAs that go.
    pub(crate) last: Option<NonNull<Vma<M>>>,
    /// One more that goes, which is part of another now.
    pub(crate) swallowed: Option<VmaPtr<'w, M>>,
    /// Of those that stay or come: above the range, below it, and in it ([`FRESH`]).
    pub(crate) sections: [Option<Section<'w, M>>; 3],
    /// Those of them whose section has ended.
    pub(crate) ended: [Option<&'w Vma<M>>; 3],
}

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

impl<'w, M: Mmu> Changed<'w, '_, M> {
    /// Calls `each` with the VMAs that go; it may free them.
    fn each_gone(&self, mut each: impl FnMut(VmaPtr<'_, M>)) {
        let mut next = self.last;
        while let Some(vma) = next {
            // SAFETY: 1: taken out, and not yet retired.
            let vma = unsafe { VmaPtr::new(vma) };
            let callback = &vma.get().callback;
            let before = callback.recall();
            callback.remember(before);
            next = before.map(NonNull::cast);
            each(vma);
        }
        if let Some(vma) = self.swallowed {
            each(vma);
        }
    }

    /// Those that stay are as they will be.
    pub(crate) fn end_sections(&mut self) {
        self.end_those(|_| true);
    }

    fn end_those(&mut self, which: impl Fn(&Section<'_, M>) -> bool) {
        for (section, ended) in self.sections.iter_mut().zip(&mut self.ended) {
            let gone = section.take_if(|it| which(it));
            *ended = gone.map(Section::end_before_link);
        }
    }

    /// Whether any of them maps a file.
    fn maps_files(&self) -> bool {
        let found = Cell::new(false);
        self.each_kept(|vma| found.set(found.get() || vma.link() != 0));
        self.each_gone(|vma| found.set(found.get() || vma.get().link() != 0));
        found.get()
    }

    /// Calls `each` with those that stay or come.
    fn each_kept(&self, each: impl Fn(&Vma<M>)) {
        let open = self.sections.iter().flatten().map(Section::vma);
        open.chain(self.ended.into_iter().flatten()).for_each(each);
    }

    /// Detaches what goes, lets others in again where that is the choice, and takes pages and
    /// tables out.
    ///
    /// # Context
    /// Sleeps for locks of anon_vmas; waits for CPUs to forget translations.
    pub(crate) fn take_pages_out(
        self,
        mm: &Mm<M>,
        writers: &Writers<'_, M>,
        range: VirtRange,
        tables: TableFate,
    ) {
        let late = mm.system().lacks(Broken::DetachLate);
        if !late {
            self.detach(mm);
        }
        // Those that grew have the pages of those that go.
        self.each_kept(Vma::link_grows);
        if let TableFate::Free(afterwards) = tables {
            writers.downgrade(afterwards);
        }
        let mut zap = Zap::begin(writers.held().tables(), range);
        self.each_gone(|vma| {
            let vma = vma.get();
            let view = vma.view();
            if view.is_huge() {
                zap.huge_gone(vma, &view);
            }
        });
        zap.range(range);
        if late {
            self.detach(mm);
        }
        // Those that lost a part have none of its pages any more, and no CPU reaches them.
        if self.maps_files() && !unlinks_first(mm.system()) {
            zap.settle();
        }
        // Others reach a new mapping's tables by its link, share them even: where tables of smaller
        // pages are still to be freed, the link is put in when its section ends.
        let fresh = self.sections[FRESH].as_ref().map(Section::vma);
        let early = mm.system().lacks(Broken::LinkBeforeTables);
        let later = fresh.filter(|_| tables == TableFate::FreeWithin && !early);
        self.each_kept(|vma| {
            if !later.is_some_and(|later| core::ptr::eq(later, vma)) {
                vma.link_follows();
            }
        });
        self.free(mm, writers);
        match tables {
            TableFate::Free(_) => free_own_tables(writers, range, None, &mut zap),
            TableFate::FreeWithin => zap.free_tables(range, range),
            TableFate::Keep => {}
        }
        zap.finish();
        mm.wake_unmapped(range);
        mm.count_unmapped(self.pages);
        translation::translations_agree(mm, range, u64::MAX);
    }

    /// Those that go are nobody's any more.
    fn detach(&self, mm: &Mm<M>) {
        self.each_gone(|vma| detach(mm, self.whole.of(vma)));
    }

    /// Ends the sections of those that have nothing in `range`.
    pub(crate) fn let_neighbours_go(&mut self, range: VirtRange) {
        self.end_those(|it| !it.vma().view().range.overlaps(range));
    }

    /// Frees those that go.
    fn free(&self, mm: &Mm<M>, writers: &Writers<'_, M>) {
        self.each_gone(|vma| {
            // What it remembers makes room for what frees it.
            let _before = vma.get().callback.recall();
            // SAFETY: 1: taken out and detached, and each of them once.
            writers.close_later(unsafe { free(mm, vma.as_ptr()) });
        });
    }
}

/// For controls: files forget a mapping before every CPU has forgotten its pages.
pub(crate) fn unlinks_first<M: Mmu>(sys: &System<M>) -> bool {
    sys.lacks(Broken::UnlinkBeforeFlush) || sys.lacks(Broken::FilePagesAtOnce)
}

/// Unlinks the tables that only `range` used.
pub(crate) fn free_tables<M: Mmu>(held: Held<'_, M>, range: VirtRange, zap: &mut Zap<'_, M>) {
    zap.free_tables(range, hole(held, range));
}

/// The same for munmap, which may know what is not mapped around `range`, and whose control lets
/// `mmap_lock` go meanwhile.
pub(crate) fn free_own_tables<M: Mmu>(
    writers: &Writers<'_, M>,
    range: VirtRange,
    free_around: Option<VirtRange>,
    zap: &mut Zap<'_, M>,
) {
    let hole = free_around.unwrap_or_else(|| hole(writers.held(), range));
    if writers.held().system().lacks(Broken::UnmapUnlocked) {
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
