//! Unpublished VMAs and attribute records, and what publishing them requires.
//!
//! # Problem
//! A call that splits, merges or moves VMAs changes several of them, and must change all or none.
//!
//! # Idea
//! All memory is allocated before the first change: unpublished VMAs and attribute records are
//! freed by their drop if the call fails before it publishes them.
//!
//! # Why it is correct
//! Lockless readers find each address that is mapped before and after the call in one VMA or
//! another at every moment, by the order of its steps: a growing VMA changes its record before the
//! VMA that it replaces leaves the tree, and a shrinking one changes its record once its new
//! neighbour is in the tree.

use super::merge::of_range;
use crate::base::attrs::VmaView;
use crate::base::config::Broken;
use crate::base::error::NoMemory;
use crate::change::writers::{Section, Writers};
use crate::mm::Mm;
use crate::pages::file::Unused;
use crate::space::vma::{Attrs, Vma};
use crate::space::vma_lock;
use crate::space::vma_ptr::VmaPtr;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use minflt_addr::VirtAddr;
use minflt_pgtable::Mmu;

/// A record that nobody knows yet. Dropping it frees it.
pub(crate) struct NewRecord<'m, M: Mmu> {
    mm: &'m Mm<M>,
    attrs: NonNull<Attrs>,
}

impl<'m, M: Mmu> NewRecord<'m, M> {
    pub(crate) fn new(mm: &'m Mm<M>, view: VmaView) -> Result<Self, NoMemory> {
        let attrs = new_attrs(mm, view)?;
        Ok(Self { mm, attrs })
    }

    /// The same memory, saying `view`.
    pub(crate) fn saying(self, view: VmaView) -> Self {
        // SAFETY: allocated by `new`; nobody else has it.
        unsafe { self.attrs.write(Attrs::new(view)) };
        self
    }

    /// Makes it the record of `vma`, inside the caller's section.
    pub(crate) fn publish<'v>(self, vma: &'v Vma<M>) -> Published<'v, M>
    where
        'm: 'v,
    {
        let new = ManuallyDrop::new(self);
        let old = vma.publish(new.attrs);
        new.mm.tree.changed(vma.view());
        Published {
            mm: new.mm,
            vma,
            old,
        }
    }
}

impl<M: Mmu> Drop for NewRecord<'_, M> {
    fn drop(&mut self) {
        // SAFETY: 1, 2: allocated by `new`, never published.
        unsafe { self.mm.system().attrs.free(self.attrs, self.mm.system()) };
    }
}

/// A record that was published, while its section is open: it can be taken back. Dropping it keeps
/// it.
pub(crate) struct Published<'v, M: Mmu> {
    mm: &'v Mm<M>,
    vma: &'v Vma<M>,
    old: Option<NonNull<Attrs>>,
}

impl<M: Mmu> Published<'_, M> {
    /// Puts the old record back.
    pub(crate) fn undo(self) {
        let mut published = ManuallyDrop::new(self);
        let (mm, vma) = (published.mm, published.vma);
        let new = match published.old.take() {
            Some(old) => vma.publish(old),
            None => vma.publish_first(),
        };
        mm.tree.changed(vma.view());
        if let Some(new) = new {
            // SAFETY: 1: unlinked just now.
            unsafe { mm.system().retire_attrs(new) };
        }
    }
}

impl<M: Mmu> Drop for Published<'_, M> {
    fn drop(&mut self) {
        if let Some(old) = self.old {
            // SAFETY: 1: unlinked when the new one was published.
            unsafe { self.mm.system().retire_attrs(old) };
        }
    }
}

/// A VMA that nobody knows yet. Dropping it frees it.
pub(crate) struct NewVma<'m, M: Mmu> {
    mm: &'m Mm<M>,
    vma: NonNull<Vma<M>>,
}

impl<'m, M: Mmu> NewVma<'m, M> {
    pub(crate) fn new(mm: &'m Mm<M>, view: VmaView) -> Result<Self, NoMemory> {
        let vma = new_vma(mm, view)?;
        Ok(Self { mm, vma })
    }

    /// Like `old`, with which it shares or from which it takes pages.
    pub(crate) fn like(mm: &'m Mm<M>, view: VmaView, old: &Vma<M>) -> Result<Self, NoMemory> {
        let new = Self::new(mm, view)?;
        new.get().share_own(old);
        new.get().link_follows();
        mm.system().split_anon_vma(mm, new.get(), old)?;
        Ok(new)
    }

    pub(crate) fn get(&self) -> &Vma<M> {
        // SAFETY: allocated by `new`; nobody else has it.
        unsafe { self.vma.as_ref() }
    }

    /// Puts it into the tree of an address space that nobody else has yet.
    ///
    /// # Errors
    /// No memory; it is freed then.
    pub(crate) fn insert_alone(self) -> Result<&'m Vma<M>, NoMemory> {
        let start = self.get().view().range.start();
        vma_lock::insert(self.mm, start, self.vma)?;
        let inserted = ManuallyDrop::new(self);
        // SAFETY: allocated by `new`; it stays in the tree as long as nobody else has that.
        Ok(unsafe { inserted.vma.as_ref() })
    }

    /// Puts it into the tree, with its section open.
    ///
    /// # Errors
    /// No memory; it is freed then.
    pub(crate) fn insert<'w>(
        self,
        writers: &'w Writers<'_, M>,
    ) -> Result<Section<'w, M>, NoMemory> {
        let start = self.get().view().range.start();
        // SAFETY: 1: allocated by `new`; `mmap_lock` keeps it once it is in the tree.
        let vma = unsafe { VmaPtr::new(self.vma) };
        let section = writers.insert_open(start, vma)?;
        // Others know it now.
        let _published = ManuallyDrop::new(self);
        Ok(section)
    }
}

impl<M: Mmu> Drop for NewVma<'_, M> {
    fn drop(&mut self) {
        discard_vma(self.mm, self.vma);
    }
}

/// Where a mapping of huge pages has `at` in its middle, it becomes two. `at` is where one of its
/// pages starts.
///
/// # Context
/// Under `mmap_lock` for writing. Sleeps; waits for CPUs to forget translations.
///
/// # Errors
/// No memory, or too many VMAs. Nothing has changed then.
///
/// Linux: split_vma, hugetlb_split.
pub(crate) fn split_huge<M: Mmu>(
    mm: &Mm<M>,
    writers: &Writers<'_, M>,
    at: VirtAddr,
) -> Result<(), NoMemory> {
    let Some(vma) = writers.held().find(at) else {
        return Ok(());
    };
    let view = vma.view();
    if !view.is_huge() || view.range.start() >= at {
        return Ok(());
    }
    if !mm.may_split(1) {
        return Err(NoMemory);
    }
    let outside = mm.system().lacks(Broken::SplitSharesAgain);
    if outside {
        writers.held().leave_cut_table(vma, &view, at);
    }
    let section = writers.begin(vma);
    if !outside {
        // No fault of this mapping shares it again before the records are as they will be.
        writers.held().leave_cut_table(vma, &view, at);
    }
    let upper = NewVma::like(mm, of_range::<M>(&view, at, view.range.end()), vma)?;
    let lower = NewRecord::new(mm, of_range::<M>(&view, view.range.start(), at))?;
    let upper = upper.insert(writers)?;
    drop(lower.publish(vma));
    drop(section);
    drop(upper);
    Ok(())
}

/// A new VMA, in no tree.
pub(crate) fn new_vma<M: Mmu>(mm: &Mm<M>, view: VmaView) -> Result<NonNull<Vma<M>>, NoMemory> {
    let sys = mm.system();
    let plain = view.is_plain::<M::Paging>();
    let attrs = (!plain).then(|| new_attrs(mm, view)).transpose()?;
    let free_attrs = |attrs: Option<_>| {
        // SAFETY: 1, 2: allocated above, never published.
        attrs
            .into_iter()
            .for_each(|it| unsafe { sys.attrs.free(it, sys) });
    };
    let id = sys.new_id();
    let link = sys.new_link(mm, id, &view);
    let link = link.inspect_err(|_| free_attrs(attrs))?;
    let vma = sys.vmas.alloc(
        Vma::new(id, view, link, sys.config.sleeping_locks.of_semaphore()),
        sys,
    );
    match (vma, attrs) {
        (Ok(vma), None) => Ok(vma),
        (Ok(vma), Some(attrs)) => {
            // SAFETY: allocated above; nobody else has it.
            unsafe { vma.as_ref() }.publish(attrs);
            Ok(vma)
        }
        (Err(_), attrs) => {
            free_attrs(attrs);
            // Not the last: what it was to be a mapping of is the caller's.
            let _others_have_it = sys.drop_link(mm, link);
            Err(NoMemory)
        }
    }
}

/// A new record, published nowhere.
fn new_attrs<M: Mmu>(mm: &Mm<M>, view: VmaView) -> Result<NonNull<Attrs>, NoMemory> {
    let sys = mm.system();
    sys.attrs.alloc(Attrs::new(view), sys).map_err(|_| NoMemory)
}

/// Frees a VMA that was never published. A file that it maps somebody else has, too: the one who
/// wanted it mapped, or the VMA that this one was to be a part or a copy of.
pub(crate) fn discard_vma<M: Mmu>(mm: &Mm<M>, vma: NonNull<Vma<M>>) {
    let sys = mm.system();
    // SAFETY: nobody else has it.
    sys.unlink_anon_vmas(unsafe { vma.as_ref() });
    // SAFETY: nobody else has it.
    let _others_have_it = sys.drop_link(mm, unsafe { vma.as_ref() }.link());
    // SAFETY: nobody else has it.
    if let Some(attrs) = unsafe { vma.as_ref() }.attrs_ptr() {
        // SAFETY: 1, 2: nobody else has it.
        unsafe { sys.attrs.free(attrs, sys) };
    }
    // SAFETY: 1, 2: nobody else has it.
    unsafe { sys.vmas.free(vma, sys) };
}

/// Takes a VMA out of the tree for good, which `over` has grown over.
///
/// # Errors
/// No memory: then it is in the tree, and the section goes back.
pub(crate) fn take_out<'v, M: Mmu>(
    mm: &Mm<M>,
    over: &Vma<M>,
    start: VirtAddr,
    section: Section<'v, M>,
) -> Result<(), (NoMemory, Section<'v, M>)> {
    match mm.tree.remove(mm.system(), start) {
        Ok(_) => {
            over.link_follows();
            gone(mm, section);
            Ok(())
        }
        Err(none) => Err((none, section)),
    }
}

/// The VMA of a section is out of the tree, and part of another one: it goes.
pub(crate) fn gone<M: Mmu>(mm: &Mm<M>, section: Section<'_, M>) {
    let vma = section.ptr();
    detach(mm, section);
    // SAFETY: 1: out of the tree, and detached just now. The file, if any, is mapped by the other.
    let _others_have_it = unsafe { free(mm, vma.as_ptr()) };
}

/// The VMA of a section is out of the tree: nobody finds it any more, nor gets its lock.
///
/// # Context
/// May sleep, until faults of other address spaces have found out that it is not theirs.
pub(crate) fn detach<M: Mmu>(mm: &Mm<M>, section: Section<'_, M>) {
    mm.count_vmas(-1);
    section.for_ever();
}

/// Frees a VMA that was detached, and whose pages are gone or somebody else's. If it was the last
/// to have its file, the caller closes that, with nothing held.
///
/// # Context
/// Sleeps for the locks of its anon_vmas and of its file's mappings.
///
/// # Safety
/// 1. The VMA is out of the tree, detached, and freed once.
#[must_use = "dropping it closes the file, which may wait for a device"]
pub(crate) unsafe fn free<M: Mmu>(mm: &Mm<M>, gone: NonNull<Vma<M>>) -> Option<Unused<M>> {
    // SAFETY: 1 of this function.
    let vma = unsafe { gone.as_ref() };
    vma.give_back_own(mm.system());
    mm.system().unlink_anon_vmas(vma);
    let unused = mm.system().drop_link(mm, vma.link());
    // SAFETY: 1: 1 of this function.
    unsafe { mm.system().retire_vma(gone) };
    unused
}
