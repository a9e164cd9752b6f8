//! Changes attributes of a part of a mapping: the one path for all calls.
//!
//! # Problem
//! mprotect, madvise, mlock, mbind and userfaultfd change the attributes of a part of a mapping.
//! The part becomes a VMA of its own, or merges with a neighbour of equal attributes; and a fault
//! must see attributes and PTEs either both before or both after the call.
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
//! Each case is one function: it allocates all memory before the first change, and undoes the one
//! change that may precede one that can fail.
//!
//! # Protocol
//! `mmap_lock` for writing. The write sections of all VMAs involved stay open until [`Modified`] is
//! dropped: the caller changes the PTEs before that.
//!
//! # Why it is correct
//! No fault begins on these VMAs while a write section is open, and one that began before detects
//! the change. For lookups meanwhile see [`super::split`].
//!
//! Linux: mm/vma.c vma_modify (v6.18).

use super::merge::{Neighbours, chain, grow_down, grow_up, may_go, neighbours, of_range, swallow};
use super::split::{NewRecord, NewVma, gone, split_huge};
use crate::base::attrs::VmaView;
use crate::base::config::Broken;
use crate::base::error::NoMemory;
use crate::change::writers::{Section, Writers};
use crate::mm::Mm;
use crate::space::vma::Vma;
use crate::space::vma_ptr::VmaPtr;
use minflt_addr::VirtRange;
use minflt_pgtable::Mmu;

/// A part of a mapping whose attributes have changed; dropping it ends the sections.
#[must_use = "the sections end when dropped"]
pub(crate) struct Modified<'w, M: Mmu> {
    vma: &'w Vma<M>,
    _sections: [Option<Section<'w, M>>; 3],
}

impl<'w, M: Mmu> Modified<'w, M> {
    fn new(vma: &'w Vma<M>, sections: [Option<Section<'w, M>>; 3]) -> Self {
        Self {
            vma,
            _sections: sections,
        }
    }

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
    mm: &'w Mm<M>,
    writers: &'w Writers<'_, M>,
    vma: VmaPtr<'w, M>,
    part: VirtRange,
    to: impl FnOnce(VmaView) -> VmaView,
) -> Result<Modified<'w, M>, NoMemory> {
    let outside = mm.system().lacks(Broken::ProtectWithoutSection);
    let open = |vma: &'w Vma<M>| {
        if outside {
            writers.begin_none(vma)
        } else {
            writers.begin(vma)
        }
    };
    let vma = alone_if_huge(mm, writers, vma.get(), part)?;
    let section = open(vma);
    let whole = vma.view();
    debug_assert!(whole.range.covers(part), "a part of one VMA");
    let old = whole.of_range::<M::Paging>(part);
    let new = VmaView {
        range: old.range,
        pgoff: old.pgoff,
        ..to(old)
    };
    if new == old {
        return Ok(Modified::new(vma, [Some(section), None, None]));
    }
    let all = whole.range == part;
    let beside = |vma: &'w Vma<M>| match mm.system().lacks(Broken::MergeWithoutSection) {
        true => writers.begin_none(vma),
        false => open(vma),
    };
    if all && !may_go::<M>(&old) {
        // Linux gives up, too, rather than let a neighbour have it.
        return split(mm, writers, section, new);
    }
    let others = writers.held().beside_part(part, whole.range);
    match neighbours(others, beside, &new, whole.range, Some(vma)) {
        Neighbours {
            below: Some(below),
            above: Some(above),
        } => {
            swallow_both(mm, &below, section, above)?;
            Ok(Modified::new(below.vma(), [Some(below), None, None]))
        }
        Neighbours {
            below: Some(below),
            above: None,
        } => {
            let rest = grow_up(mm, &below, section, part.end())?;
            Ok(Modified::new(below.vma(), [Some(below), rest, None]))
        }
        Neighbours {
            below: None,
            above: Some(above),
        } if all => {
            let end = above.vma().view().range.end();
            let grown = of_range::<M>(&new, part.start(), end);
            swallow(mm, &section, above, grown, None)?;
            Ok(Modified::new(vma, [Some(section), None, None]))
        }
        Neighbours {
            below: None,
            above: Some(above),
        } => {
            grow_down(mm, &above, &section, part.start())?;
            Ok(Modified::new(
                above.vma(),
                // What grows is found at its file before what shrinks is not.
                [Some(above), Some(section), None],
            ))
        }
        Neighbours {
            below: None,
            above: None,
        } => split(mm, writers, section, new),
    }
}

/// `vma`, or what of it is `part`: one of huge pages is cut first, and has nothing else then.
///
/// # Context
/// # Errors
/// As for [`split_huge`].
fn alone_if_huge<'w, M: Mmu>(
    mm: &'w Mm<M>,
    writers: &'w Writers<'_, M>,
    vma: &'w Vma<M>,
    part: VirtRange,
) -> Result<&'w Vma<M>, NoMemory> {
    if !vma.view().is_huge() {
        return Ok(vma);
    }
    split_huge(mm, writers, part.start())?;
    split_huge(mm, writers, part.end())?;
    writers.held().find(part.start()).ok_or(NoMemory)
}

/// `below` becomes all three; `middle` and `above` go.
fn swallow_both<'w, M: Mmu>(
    mm: &'w Mm<M>,
    below: &Section<'w, M>,
    middle: Section<'w, M>,
    above: Section<'w, M>,
) -> Result<(), NoMemory> {
    let view = below.vma().view();
    let upper = middle.vma().view().range;
    let end = above.vma().view().range.end();
    let grown = of_range::<M>(&view, view.range.start(), end);
    let chained = chain(mm, below.vma(), above.vma())?;
    let also = chain(mm, below.vma(), middle.vma())?;
    let grown = NewRecord::new(mm, grown)?;
    let ensured = mm.tree.ensure(mm.system(), 2, 0)?;
    let grown = grown.publish(below.vma());
    let (first, second) = (upper.start(), upper.end());
    let sys = mm.system();
    if let Err(NoMemory) = mm.tree.remove(sys, first) {
        grown.undo();
        return Err(NoMemory);
    }
    if let Err(NoMemory) = mm.tree.remove(sys, second) {
        M::violation(format_args!("preallocated memory is missing"));
    }
    drop(ensured);
    chained.keep();
    also.keep();
    below.vma().link_follows();
    gone(mm, middle);
    gone(mm, above);
    Ok(())
}

/// The part becomes a VMA of its own, if it is not all of one.
fn split<'w, M: Mmu>(
    mm: &'w Mm<M>,
    writers: &'w Writers<'_, M>,
    section: Section<'w, M>,
    new: VmaView,
) -> Result<Modified<'w, M>, NoMemory> {
    let vma = section.vma();
    let old = vma.view();
    let (part, all) = (new.range, old.range);
    let (lower, upper) = (part.start() > all.start(), part.end() < all.end());
    let more = u64::from(lower) + u64::from(upper);
    if !mm.may_split(more) {
        return Err(NoMemory);
    }
    let above = of_range::<M>(&old, part.end(), all.end());
    let above = upper.then(|| NewVma::like(mm, above, vma)).transpose()?;
    let (kept, middle) = if lower {
        let kept = of_range::<M>(&old, all.start(), part.start());
        (kept, Some(NewVma::like(mm, new, vma)?))
    } else {
        (new, None)
    };
    let kept = NewRecord::new(mm, kept)?;
    let two = (more > 1).then(|| mm.tree.ensure(mm.system(), 0, more));
    let _ensured = two.transpose()?;
    let above = above.map(|new| new.insert(writers)).transpose()?;
    let middle = middle.map(|new| new.insert(writers)).transpose()?;
    drop(kept.publish(vma));
    let part = middle.as_ref().map_or(vma, Section::vma);
    Ok(Modified::new(part, [Some(section), middle, above]))
}
