//! VMA merging: conditions and cost.
//!
//! # Problem
//! A program that maps, protects or locks memory piece by piece would accumulate VMAs. Adjacent
//! VMAs with equal attributes should be merged; but concurrent faults through either must stay
//! correct.
//!
//! # Idea
//! Mergeability compares two attribute records: one extended to the range of the other must equal
//! it, page offsets included. Their anon_vmas must be compatible: the same one, or only one VMA has
//! one, and it is linked to that one alone; then the other VMA is chained to it.
//!
//! # Protocol
//! `mmap_lock` for writing. Write sections are opened on all VMAs that may change or be removed
//! *before* their anon_vmas are compared (c46000458d57); those of VMAs that stay unchanged end at
//! once.
//!
//! # Why it is correct
//! A VMA that takes pages over is chained to their anon_vma before its record covers them, and
//! inside its write section, so no fault installs a page through a link that is then undone for
//! lack of memory (P18). The removed VMA is unchained afterwards, so the anon_vma is never without
//! links.
//!
//! Linux: mm/vma.c is_mergeable_vma, vma_merge_existing_range, vma_merge_new_range (v6.18).

use super::split::{NewRecord, NewVma, take_out};
use crate::base::attrs::VmaView;
use crate::base::config::Broken;
use crate::base::error::NoMemory;
use crate::change::writers::{Section, Writers};
use crate::mm::Mm;
use crate::space::look::Held;
use crate::space::tree::Beside;
use crate::space::vma::Vma;
use crate::space::vma_ptr::VmaPtr;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Ordering;

/// Those that a mapping can be one with, each with its section open.
pub(crate) struct Neighbours<'w, M: Mmu> {
    pub(crate) below: Option<Section<'w, M>>,
    pub(crate) above: Option<Section<'w, M>>,
}

/// Whether `above`, which starts where `below` ends, is the same but for that.
pub(crate) fn goes_on<P: Paging>(below: &VmaView, above: &VmaView) -> bool {
    // Each mapping of huge pages has a lock, and pages set aside. Linux: `VM_DONTEXPAND`.
    below.range.end() == above.range.start()
        && *above == below.of_range::<P>(above.range)
        && !above.is_huge()
}

/// Whether a mapping may become part of another: not where each that is there is counted.
///
/// Linux: can_merge_remove_vma.
pub(crate) fn may_go<M: Mmu>(view: &VmaView) -> bool {
    view.cache::<M>()
        .is_none_or(|cache| !cache.counts_mappings())
}

/// The neighbours that `view` can be one with, of those beside it: what lies at the edges of
/// `whole`, of which it is a part; with the pages of `from`, if it has any.
pub(crate) fn neighbours<'w, M: Mmu>(
    Beside { below, above }: Beside<'w, M>,
    open: impl Fn(&'w Vma<M>) -> Section<'w, M>,
    view: &VmaView,
    whole: VirtRange,
    from: Option<&Vma<M>>,
) -> Neighbours<'w, M> {
    let range = view.range;
    let (below, above) = (below.map(VmaPtr::get), above.map(VmaPtr::get));
    let below = below
        .filter(|_| whole.start() == range.start())
        .filter(|vma| goes_on::<M::Paging>(&vma.view(), view));
    let above = above
        .filter(|_| whole.end() == range.end())
        .filter(|vma| goes_on::<M::Paging>(view, &vma.view()));
    let (below, above) = (below.map(&open), above.map(&open));
    let below = below.filter(|it| it.vma().may_take(from));
    let both = |it: &Section<'w, M>| {
        let other = below.as_ref();
        other.is_none_or(|other| other.vma().may_share(it.vma()))
    };
    let above = above.filter(|it| it.vma().may_take(from) && both(it));
    Neighbours { below, above }
}

impl<M: Mmu> Vma<M> {
    /// Whether it could take over pages of `other` by its anon_vma: a new mapping's where that is
    /// `None`. The caller holds `mmap_lock` for writing.
    ///
    /// A mapping that may still have pages of a parent's does not spread: each page that is found
    /// from the parent's anon_vma is one more under its lock.
    ///
    /// Linux: is_mergeable_anon_vma, vma_is_fork_child (v6.18).
    pub(crate) fn may_take(&self, other: Option<&Self>) -> bool {
        let own = self.anon_vma.load(Ordering::Relaxed);
        let others = other.map_or(0, |other| other.anon_vma.load(Ordering::Relaxed));
        match (own, others) {
            (0, 0) => true,
            (0, _) => other.is_some_and(|other| other.only_anon_vma().is_some()),
            (_, 0) => self.only_anon_vma().is_some(),
            (own, others) => own == others,
        }
    }

    /// Whether both may be in one mapping. Linux: can_vma_merge_right.
    pub(crate) fn may_share(&self, other: &Self) -> bool {
        let own = self.anon_vma.load(Ordering::Relaxed);
        let others = other.anon_vma.load(Ordering::Relaxed);
        own == 0 || others == 0 || own == others
    }
}

impl<'h, M: Mmu> Held<'h, M> {
    /// What touches `part` of a mapping of `whole`: nothing but that mapping, where it lies inside.
    pub(crate) fn beside_part(self, part: VirtRange, whole: VirtRange) -> Beside<'h, M> {
        if part.start() > whole.start() && part.end() < whole.end() {
            return Beside {
                below: None,
                above: None,
            };
        }
        self.beside(part)
    }

    /// The VMA that ends at `addr`.
    pub(crate) fn ends_at(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        let last = VirtAddr(addr.0.checked_sub(1)?);
        let vma = self.at_or_before(last);
        vma.filter(|vma| vma.view().range.end() == addr)
    }

    /// The VMA that starts at `addr`.
    pub(crate) fn starts_at(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        let vma = self.at_or_before(addr);
        vma.filter(|vma| vma.view().range.start() == addr)
    }
}

/// A mapping that was chained to the anon_vma of the one it takes pages from. Dropping it undoes
/// that.
pub(crate) struct Chained<'v, M: Mmu> {
    mm: &'v Mm<M>,
    vma: Option<&'v Vma<M>>,
}

impl<M: Mmu> Chained<'_, M> {
    /// The pages were taken over.
    pub(crate) fn keep(mut self) {
        self.vma = None;
    }
}

impl<M: Mmu> Drop for Chained<'_, M> {
    fn drop(&mut self) {
        if let Some(vma) = self.vma {
            self.mm.system().unlink_anon_vmas(vma);
        }
    }
}

/// Chains `to`, inside its section, to what `from` is chained to, if it is chained to nothing yet.
///
/// Linux: dup_anon_vma.
pub(crate) fn chain<'v, M: Mmu>(
    mm: &'v Mm<M>,
    to: &'v Vma<M>,
    from: &Vma<M>,
) -> Result<Chained<'v, M>, NoMemory> {
    let has = |vma: &Vma<M>| vma.anon_vma.load(Ordering::Relaxed) != 0;
    let takes = has(from) && !has(to);
    if takes {
        mm.system().split_anon_vma(mm, to, from)?;
    }
    let vma = takes.then_some(to);
    Ok(Chained { mm, vma })
}

/// Grows `below` to `end`, over a part of `middle` that starts where it ends: `middle` loses that
/// part, or goes.
pub(crate) fn grow_up<'w, M: Mmu>(
    mm: &'w Mm<M>,
    below: &Section<'w, M>,
    middle: Section<'w, M>,
    end: VirtAddr,
) -> Result<Option<Section<'w, M>>, NoMemory> {
    let (target, vma) = (below.vma(), middle.vma());
    let (view, old) = (target.view(), vma.view());
    let rest = VirtRange::new(end, old.range.end());
    let grown = of_range::<M>(&view, view.range.start(), end);
    let grown = NewRecord::new(mm, grown)?;
    let rest = (!rest.is_empty()).then(|| NewRecord::new(mm, old.of_range::<M::Paging>(rest)));
    let rest = rest.transpose()?;
    let chained = chain(mm, target, vma)?;
    let grown = grown.publish(target);
    let start = old.range.start();
    let Some(rest) = rest else {
        return match take_out(mm, target, start, middle) {
            Ok(()) => {
                chained.keep();
                Ok(None)
            }
            Err((NoMemory, middle)) => {
                grown.undo();
                drop((chained, middle));
                Err(NoMemory)
            }
        };
    };
    if let Err(NoMemory) = mm.tree.rekey(mm.system(), start, end, vma) {
        grown.undo();
        return Err(NoMemory);
    }
    chained.keep();
    drop(rest.publish(vma));
    Ok(Some(middle))
}

/// Grows `above` down to `start`, over the upper part of `middle`, which keeps a lower part.
pub(crate) fn grow_down<M: Mmu>(
    mm: &Mm<M>,
    above: &Section<'_, M>,
    middle: &Section<'_, M>,
    start: VirtAddr,
) -> Result<(), NoMemory> {
    let (target, vma) = (above.vma(), middle.vma());
    let (view, old) = (target.view(), vma.view());
    let grown = of_range::<M>(&view, start, view.range.end());
    let grown = NewRecord::new(mm, grown)?;
    let rest = NewRecord::new(mm, of_range::<M>(&old, old.range.start(), start))?;
    let chained = chain(mm, target, vma)?;
    let grown = grown.publish(target);
    let from = view.range.start();
    if let Err(NoMemory) = mm.tree.rekey(mm.system(), from, start, target) {
        grown.undo();
        return Err(NoMemory);
    }
    chained.keep();
    drop(rest.publish(vma));
    Ok(())
}

/// Gives `below` the record `grown`, which covers `above` as well, and takes that out; with the
/// pages of `from`.
pub(crate) fn swallow<'w, M: Mmu>(
    mm: &'w Mm<M>,
    below: &Section<'w, M>,
    above: Section<'w, M>,
    grown: VmaView,
    from: Option<VmaPtr<'_, M>>,
) -> Result<(), NoMemory> {
    let target = below.vma();
    let start = above.vma().view().range.start();
    let grown = NewRecord::new(mm, grown)?;
    let chained = chain(mm, target, above.vma())?;
    let also = from.map(|from| chain(mm, target, from.get()));
    let also = also.transpose()?;
    let grown = grown.publish(target);
    match take_out(mm, target, start, above) {
        Ok(()) => {
            chained.keep();
            if let Some(also) = also {
                also.keep();
            }
            Ok(())
        }
        Err((NoMemory, _above)) => {
            grown.undo();
            Err(NoMemory)
        }
    }
}

/// Puts a mapping where nothing is, one with those `beside` where it can be; with pages of `from`,
/// which are to come there. Returns its section, or that of the VMA that it is now a part of.
///
/// # Context
/// As for [`super::modify::modify`]. `open` opens a section on what is already there.
///
/// # Errors
/// No memory. Nothing has changed then.
///
/// Linux: vma_merge_new_range, copy_vma.
pub(crate) fn add<'w, M: Mmu>(
    mm: &'w Mm<M>,
    writers: &'w Writers<'_, M>,
    beside: Beside<'w, M>,
    open: impl Fn(&'w Vma<M>) -> Section<'w, M>,
    view: &VmaView,
    from: Option<VmaPtr<'_, M>>,
) -> Result<Section<'w, M>, NoMemory> {
    let Neighbours { below, above } =
        neighbours(beside, open, view, view.range, from.map(VmaPtr::get));
    let (start, end) = (view.range.start(), view.range.end());
    let Some(below) = below else {
        let section = match above {
            Some(above) => begin_earlier(mm, above, start, from.map(VmaPtr::get))?,
            None => match from {
                Some(from) => NewVma::like(mm, *view, from.get())?,
                None => NewVma::new(mm, *view)?,
            }
            .insert(writers)?,
        };
        return Ok(section);
    };
    let old = below.vma().view();
    let grown = |end| of_range::<M>(&old, old.range.start(), end);
    match above {
        Some(above) if may_go::<M>(view) => {
            let grown = grown(above.vma().view().range.end());
            swallow(mm, &below, above, grown, from)?;
        }
        _ => {
            let grown = NewRecord::new(mm, grown(end))?;
            let forgets = mm.system().lacks(Broken::MergeForgetsChain);
            let from = from.filter(|_| !forgets);
            let chained = from.map(|from| chain(mm, below.vma(), from.get()));
            let chained = chained.transpose()?;
            drop(grown.publish(below.vma()));
            if let Some(chained) = chained {
                chained.keep();
            }
        }
    }
    Ok(below)
}

/// Grows `above` down to `start`, over nothing.
fn begin_earlier<'w, M: Mmu>(
    mm: &'w Mm<M>,
    above: Section<'w, M>,
    start: VirtAddr,
    from: Option<&Vma<M>>,
) -> Result<Section<'w, M>, NoMemory> {
    let vma = above.vma();
    let view = vma.view();
    let key = view.range.start();
    let grown = NewRecord::new(mm, of_range::<M>(&view, start, view.range.end()))?;
    let chained = from.map(|from| chain(mm, vma, from)).transpose()?;
    mm.tree.rekey(mm.system(), key, start, vma)?;
    drop(grown.publish(vma));
    if let Some(chained) = chained {
        chained.keep();
    }
    Ok(above)
}

/// `view` from `start` to `end`.
pub(crate) fn of_range<M: Mmu>(view: &VmaView, start: VirtAddr, end: VirtAddr) -> VmaView {
    view.of_range::<M::Paging>(VirtRange::new(start, end))
}
