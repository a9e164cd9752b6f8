//! Advice that acts on pages and leaves the mapping unchanged.

use super::{Advice, advise_each};
use crate::base::attrs::VmaFlags;
use crate::base::config::NegativeControl;
use crate::base::error::MadviseError;
use crate::entry::translation;
use crate::entry::walk::{Tables, pages};
use crate::entry::zap::Zap;
use crate::mm::Mm;
use crate::pages::file::FilePart;
use crate::pages::page::Page;
use crate::pages::reclaim::Spare;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

impl<M: Mmu> Mm<M> {
    /// Advice about pages, under `mmap_lock` for reading.
    pub(super) fn advise_pages(
        &self,
        range: VirtRange,
        advice: Advice,
    ) -> Result<(), MadviseError> {
        let since = self.system().moment();
        let guard = self.read(Over::Range(range));
        let held = guard.held();
        let mut zap = Zap::begin(held.tables(), range);
        // What follows may be mapped, and moved meanwhile: a part of a huge page, and what a
        // mapping that refuses kept.
        let mut done = range.start();
        let result = advise_each(held, range, |part| {
            let view = held.find(part.start()).map(Vma::view);
            let flags = view.map_or(VmaFlags::NONE, |view| view.flags);
            let of_file = view.is_some_and(|view| view.file.is_file());
            if !allowed(advice, flags) || advice == Advice::Free && of_file {
                return Err(MadviseError::Invalid);
            }
            if let Some(vma) = held.find(part.start()).filter(|vma| vma.view().is_huge()) {
                done = self.discard_huge(&mut zap, vma, part, advice)?;
                return Ok(());
            }
            match advice {
                Advice::DontNeed | Advice::DontNeedLocked => zap.range(part),
                Advice::Free => zap.forget_stores(part),
                Advice::Cold => zap.cool(part),
                Advice::PageOut => page_out(held, part),
                _ => {}
            }
            done = part.end();
            Ok(())
        });
        zap.finish();
        drop(guard);
        if let Advice::DontNeed | Advice::DontNeedLocked = advice {
            let gone = VirtRange::new(range.start(), done);
            translation::translations_agree(self, gone, since);
        }
        result
    }
}

impl<M: Mmu> Mm<M> {
    /// Advice about huge pages: which can be thrown away, and nothing else. What is not a whole
    /// page at the end of the part stays; returns where that begins.
    ///
    /// Linux: madvise_dontneed_free_valid_vma.
    fn discard_huge(
        &self,
        zap: &mut Zap<'_, M>,
        vma: &Vma<M>,
        part: VirtRange,
        advice: Advice,
    ) -> Result<VirtAddr, MadviseError> {
        let discards = matches!(advice, Advice::DontNeed | Advice::DontNeedLocked);
        let unit = vma.view().huge_size().shift::<M::Paging>();
        if !discards || !part.start().is_aligned(unit) {
            return Err(MadviseError::Invalid);
        }
        let mut end = part.end().align_down(unit);
        if self.system().lacks(NegativeControl::DiscardRoundsUp) {
            end = part.end().align_up(unit).unwrap_or(end);
        }
        if part.start() < end {
            zap.discard_huge(vma, &vma.view(), VirtRange::new(part.start(), end));
        }
        Ok(end)
    }
}

impl<M: Mmu> Mm<M> {
    /// Advice that is about the files mapped, each with nothing held.
    ///
    /// Linux: madvise_willneed, madvise_remove.
    pub(super) fn advise_files(
        &self,
        range: VirtRange,
        advice: Advice,
    ) -> Result<(), MadviseError> {
        let mut at = range.start();
        let mut result = Ok(());
        while at < range.end() {
            let part = VirtRange::new(at, range.end());
            let found = self.next_file_part(part, advice)?;
            if found.hole {
                result = Err(MadviseError::NoMemory);
            }
            if let Some(held) = found.file {
                match advice {
                    Advice::Remove => held.punch()?,
                    _ => held.read(),
                }
            }
            at = found.end;
        }
        result
    }

    /// The first mapping of `range`: what advice about it means for its file.
    fn next_file_part(
        &self,
        range: VirtRange,
        advice: Advice,
    ) -> Result<Found<'_, M>, MadviseError> {
        let guard = self.read(Over::Range(range));
        let view = guard.held().find(range.start()).map(Vma::view);
        let view = view.ok_or(MadviseError::NoMemory)?;
        let part = view.range.intersect(range);
        let hole = view.range.start() > range.start();
        if part.is_empty() {
            // Nothing more is mapped there.
            return Ok(Found {
                hole: true,
                end: range.end(),
                file: None,
            });
        }
        let (end, cache) = (part.end(), view.cache::<M>());
        if advice == Advice::Remove {
            if view.flags.has(VmaFlags::LOCKED) || cache.is_none() {
                return Err(MadviseError::Invalid);
            }
            let shared = view.flags.has(VmaFlags::SHARED);
            if !shared || view.flags.has(VmaFlags::NEVER_WRITTEN) {
                return Err(MadviseError::Access);
            }
        }
        let file = cache.map(|cache| FilePart::new(cache, &view, part));
        Ok(Found { hole, end, file })
    }
}

/// Reclaims the pages of `part` that have no other mapping, recently used or not.
///
/// Linux: madvise_cold_or_pageout_pte_range, reclaim_pages.
fn page_out<M: Mmu>(held: Held<'_, M>, part: VirtRange) {
    let sys = held.system();
    let mut at = part.start();
    loop {
        let mut zap = Zap::begin(held.tables(), part);
        let next = held.tables().next_table(&mut at, part);
        zap.finish();
        let Some((leaf, span)) = next else { return };
        for page in pages::<M>(span) {
            let found = hold_alone(held.tables(), leaf.table, page.start());
            if let Some(Ok(page)) = found.map(|pfn| Page::held(sys, pfn).try_lock()) {
                sys.reclaim_page(page, Spare::Nothing);
            }
        }
    }
}

/// A reference to the page that an entry maps, if no other entry does.
fn hold_alone<M: Mmu>(tables: Tables<'_, M>, table: Pfn, at: VirtAddr) -> Option<Pfn> {
    let sys = tables.system();
    let _held = tables.table_lock(table).lock();
    let pte = tables.entry(table, at).load();
    let uncounted = sys.lacks(NegativeControl::FoundBeforeCounted) && !pte.is_zero_page();
    let alone = pte.is_mapped() && (sys.maps_once(pte) || uncounted);
    (alone && sys.frames.hold(pte.pfn(), 1)).then(|| pte.pfn())
}

/// What the first mapping of a range is.
struct Found<'m, M: Mmu> {
    /// Whether something before it is not mapped.
    hole: bool,
    end: VirtAddr,
    file: Option<FilePart<'m, M>>,
}

/// Whether the advice applies to a mapping with these flags. Locked pages stay.
///
/// Linux: madvise_dontneed_free_valid_vma, can_madv_lru_vma, madvise_remove.
const fn allowed(advice: Advice, flags: VmaFlags) -> bool {
    match advice {
        Advice::DontNeed | Advice::Free | Advice::Cold | Advice::PageOut => {
            !flags.has(VmaFlags::LOCKED)
        }
        _ => true,
    }
}
