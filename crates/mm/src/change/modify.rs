//! Changes that keep all pages: attributes of a part of a mapping, and new mappings.
//!
//! # Problem
//! mprotect, madvise, mlock, mbind and userfaultfd change the attributes of a part of a mapping.
//! The part becomes a VMA of its own, or merges with a neighbour of equal attributes; and a fault
//! must see attributes and PTEs either both before or both after the call. mmap, brk and mremap
//! add mappings, which merge likewise.
//!
//! # Idea
//! ```text
//! before            BBBBVVVVVVVVAAAA         B, A: neighbours; V changes where marked *
//! a part            BBBBVV****VVAAAA         V keeps the lower part; two new ones
//! like B            BBBB****VVVVAAAA         B grows, V starts later
//! like A            BBBBVVVV****AAAA         A grows down, V ends earlier
//! all, like B       BBBB********AAAA         B grows, V goes
//! all, like A       BBBB********AAAA         V grows, A goes
//! all, like both    BBBB********AAAA         B grows, V and A go
//! ```
//! [`super::plan`] decides which. A mapping that merges with nothing, and cuts nothing, needs no
//! plan.
//!
//! # Protocol
//! `mmap_lock` for writing. The write sections of all VMAs involved stay open until [`Modified`] is
//! dropped: the caller changes the PTEs before that.
//!
//! # Why it is correct
//! No fault begins on these VMAs while a write section is open, and one that began before detects
//! the change. For lookups meanwhile see [`super::plan`].
//!
//! Linux: mm/vma.c vma_modify (v6.18).

use super::merge::{alike, of_range};
use super::owned::{NewRecord, NewVma};
use super::plan::{Kept, OWNER, Plan};
use crate::base::attrs::VmaView;
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::change::writers::{Section, Writers};
use crate::space::tree::Beside;
use crate::space::vma::Vma;
use crate::space::vma::VmaPtr;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

/// A part of a mapping whose attributes have changed; dropping it ends the sections.
#[must_use = "the sections end when dropped"]
pub(crate) struct Modified<'w, M: Mmu> {
    vma: &'w Vma<M>,
    _sections: Kept<'w, M>,
}

impl<'w, M: Mmu> Modified<'w, M> {
    /// The VMA that now covers the part.
    pub(crate) const fn vma(&self) -> &'w Vma<M> {
        self.vma
    }

    /// The addresses of the VMA that now covers the part; past the door, for assertions, which
    /// some builds have and others lack.
    pub(crate) fn range(&self) -> VirtRange {
        self.vma.peek().range
    }
}

/// Changes the attributes of `part`, which lies within `vma`, as `to` says: of what it returns
/// protection, flags, policy and userfaultfd count. Splits and merges as needed.
///
/// # Context
/// Under `mmap_lock` for writing. Sleeps until faults have left the VMAs involved, and for locks of
/// anon_vmas. The attributes are published when it returns; the caller then changes entries, and
/// drops what it got.
///
/// # Errors
/// No memory, or too many VMAs. Nothing has changed then.
pub(crate) fn modify<'w, M: Mmu>(
    writers: &'w Writers<'_, M>,
    vma: VmaPtr<'w, M>,
    part: VirtRange,
    to: impl FnOnce(VmaView) -> VmaView,
) -> Result<Modified<'w, M>, NoMemory> {
    let vma = alone_if_huge(writers, vma.get(), part)?;
    let outside = writers
        .held()
        .system()
        .lacks(NegativeControl::ProtectWithoutSection);
    let section = match outside {
        true => writers.begin_none(vma),
        false => writers.begin(vma),
    };
    let whole = vma.view();
    debug_assert!(whole.range.covers(part), "a part of one VMA");
    let old = whole.of_range::<M::Paging>(part);
    let new = VmaView {
        range: old.range,
        pgoff: old.pgoff,
        ..to(old)
    };
    if new == old {
        return Ok(Modified {
            vma,
            _sections: [Some(section), None, None],
        });
    }
    let inside = part.start() > whole.range.start() && part.end() < whole.range.end();
    let near = match inside {
        true => nothing(),
        false => alike(writers.held().beside(part), &new),
    };
    if whole.range == part && near.below.is_none() && near.above.is_none() {
        drop(NewRecord::new(writers.held().mm(), new)?.publish(vma));
        return Ok(Modified {
            vma,
            _sections: [Some(section), None, None],
        });
    }
    let mut plan = Plan::empty(writers, part, None);
    plan.take_part(section, whole.range);
    plan.change(Some((&new, near)))?;
    plan.settle();
    // Where another VMA has the part now, this one may be freed: its reference is not even passed.
    let vma = match &plan.kept[OWNER] {
        Some(owner) => owner.vma(),
        None => vma,
    };
    Ok(Modified {
        vma,
        _sections: plan.kept,
    })
}

/// `vma`, or what of it is `part`: one of huge pages is cut first, and has nothing else then.
///
/// # Context
/// # Errors
/// As for [`split_huge`].
fn alone_if_huge<'w, M: Mmu>(
    writers: &'w Writers<'_, M>,
    vma: &'w Vma<M>,
    part: VirtRange,
) -> Result<&'w Vma<M>, NoMemory> {
    if !vma.view().is_huge() {
        return Ok(vma);
    }
    split_huge(writers, part.start())?;
    split_huge(writers, part.end())?;
    writers.held().find(part.start()).ok_or(NoMemory)
}

impl<M: Mmu> Plan<'_, '_, M> {
    /// Frees the VMAs that have become part of the owner, with their pages.
    fn settle(&mut self) {
        if !self.removed.is_empty() {
            if let Some(owner) = &self.kept[OWNER] {
                owner.vma().link_follows();
            }
            self.removed.free();
        }
    }
}

/// No neighbours, for what is not to merge.
pub(crate) const fn nothing<'w, M: Mmu>() -> Beside<'w, M> {
    Beside {
        below: None,
        above: None,
        between: None,
    }
}

/// Maps `view` where nothing is mapped, merged with those `beside` it where it can be; with pages
/// of `from`, which are to come there. Returns the section of the VMA that covers it.
///
/// # Context
/// Under `mmap_lock` for writing. Sleeps until faults have left the VMAs it merges with, and for
/// locks of anon_vmas.
///
/// # Errors
/// No memory. Nothing has changed then.
///
/// Linux: vma_merge_new_range, copy_vma.
pub(crate) fn add_vma<'w, M: Mmu>(
    writers: &'w Writers<'_, M>,
    view: &VmaView,
    beside: Beside<'w, M>,
    from: Option<VmaPtr<'w, M>>,
) -> Result<Section<'w, M>, NoMemory> {
    let near = alike(beside, view);
    if near.below.is_none() && near.above.is_none() {
        let mm = writers.held().mm();
        return match from {
            Some(from) => NewVma::like(mm, *view, from.get())?,
            None => NewVma::new(mm, *view)?,
        }
        .insert(writers, near.between);
    }
    let mut plan = Plan::empty(writers, view.range, from);
    plan.change(Some((view, near)))?;
    plan.settle();
    let [owner, ..] = plan.kept;
    // What is mapped has an owner.
    owner.ok_or(NoMemory)
}

/// Where a mapping of huge pages has `at` in its middle, it becomes two. `at` is where one of its
/// pages starts.
///
/// # Context
/// Under `mmap_lock` for writing. Sleeps; waits for TLB flushes.
///
/// # Errors
/// No memory, or too many VMAs. Nothing has changed then.
///
/// Linux: split_vma, hugetlb_split.
pub(crate) fn split_huge<M: Mmu>(writers: &Writers<'_, M>, at: VirtAddr) -> Result<(), NoMemory> {
    let held = writers.held();
    let Some(vma) = held.find(at) else {
        return Ok(());
    };
    let view = vma.view();
    if !view.is_huge() || view.range.start() >= at {
        return Ok(());
    }
    if !held.may_split(1) {
        return Err(NoMemory);
    }
    let outside = held.system().lacks(NegativeControl::SplitSharesAgain);
    if outside {
        held.leave_cut_table(vma, &view, at);
    }
    let section = writers.begin(vma);
    if !outside {
        // No fault of this mapping shares it again before the records are as they will be.
        held.leave_cut_table(vma, &view, at);
    }
    let upper = of_range::<M>(&view, at, view.range.end());
    let mut plan = Plan::empty(writers, upper.range, None);
    plan.take_part(section, view.range);
    plan.change(Some((&upper, nothing())))
}
