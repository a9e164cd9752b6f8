//! VMAs and attribute records that only the caller has: before publication, and after removal.
//!
//! # Problem
//! A call that changes several VMAs must change all or none, so what it needs is allocated before
//! its first change; and what it removes is freed last, when no thread can reach it any more.
//!
//! # Idea
//! One owner for each state. [`NewRecord`] and [`NewVma`] are unpublished: dropping them frees
//! them. [`Published`] is a record whose write section is still open: the old one can be put back.
//! [`Removed`] are VMAs that are out of the tree: they are made by taking a VMA out, and nothing
//! else frees one that was published.
//!
//! # Why it is correct
//! All `unsafe` of VMA changes is in this file, and relies on four facts:
//!
//! 1. A new record or VMA is known to its owner only. Publication consumes the owner.
//! 2. A record has been unlinked when another was published in its place, once for each
//!    publication, under the VMA's write section.
//! 3. A VMA that was taken out of the tree is found by no lookup that starts later, so it is taken
//!    out once, and is in one list only.
//! 4. VMAs and records are retired, by the reclamation scheme, which waits for earlier lookups; a
//!    VMA only after it was detached.

use crate::base::attrs::VmaView;
use crate::base::error::NoMemory;
use crate::change::writers::{Section, Writers};
use crate::mm::Mm;
use crate::space::tree::{Between, Found};
use crate::space::vma::VmaPtr;
use crate::space::vma::{Attrs, Vma};
use crate::space::vma_lock;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;

/// An unpublished attribute record. Dropping it frees it.
pub(crate) struct NewRecord<'m, M: Mmu> {
    mm: &'m Mm<M>,
    attrs: NonNull<Attrs>,
}

impl<'m, M: Mmu> NewRecord<'m, M> {
    pub(crate) fn new(mm: &'m Mm<M>, view: VmaView) -> Result<Self, NoMemory> {
        let sys = mm.system();
        let attrs = sys.attrs.alloc(Attrs::new(view), sys);
        let attrs = attrs.map_err(|_| NoMemory)?;
        Ok(Self { mm, attrs })
    }

    /// The same memory, with other attributes.
    pub(crate) fn saying(self, view: VmaView) -> Self {
        // SAFETY: fact 1.
        unsafe { self.attrs.write(Attrs::new(view)) };
        self
    }

    /// Makes it the record of `vma`, inside the caller's section.
    pub(crate) fn publish<'v>(self, vma: &'v Vma<M>) -> Published<'v, M>
    where
        'm: 'v,
    {
        let mm = self.mm;
        let before = mm.recorded(vma);
        let old = self.publish_first(vma);
        mm.record_changed(vma, before);
        Published { mm, vma, old }
    }

    /// The same for a VMA that is in no tree.
    fn publish_first(self, vma: &Vma<M>) -> Option<NonNull<Attrs>> {
        vma.publish(ManuallyDrop::new(self).attrs)
    }
}

impl<M: Mmu> Drop for NewRecord<'_, M> {
    fn drop(&mut self) {
        // SAFETY: 1, 2: allocated by `new`, and fact 1.
        unsafe { self.mm.system().attrs.free(self.attrs, self.mm.system()) };
    }
}

/// A published record whose write section is still open: it can be taken back. Dropping it keeps
/// it.
pub(crate) struct Published<'v, M: Mmu> {
    mm: &'v Mm<M>,
    vma: &'v Vma<M>,
    /// The record to retire.
    old: Option<NonNull<Attrs>>,
}

impl<M: Mmu> Published<'_, M> {
    /// Puts the old record back.
    pub(crate) fn undo(mut self) {
        let before = self.mm.recorded(self.vma);
        self.old = match self.old.take() {
            Some(old) => self.vma.publish(old),
            None => self.vma.publish_first(),
        };
        self.mm.record_changed(self.vma, before);
    }
}

impl<M: Mmu> Drop for Published<'_, M> {
    fn drop(&mut self) {
        if let Some(old) = self.old {
            // SAFETY: 1: fact 2.
            unsafe { self.mm.system().retire_attrs(old) };
        }
    }
}

/// An unpublished VMA. Dropping it frees it.
pub(crate) struct NewVma<'m, M: Mmu> {
    mm: &'m Mm<M>,
    vma: NonNull<Vma<M>>,
}

impl<'m, M: Mmu> NewVma<'m, M> {
    pub(crate) fn new(mm: &'m Mm<M>, view: VmaView) -> Result<Self, NoMemory> {
        let sys = mm.system();
        let plain = view.is_plain::<M::Paging>();
        let record = (!plain).then(|| NewRecord::new(mm, view)).transpose()?;
        let id = mm.new_vma_id();
        let link = sys.new_link(mm, id, &view)?;
        let vma = sys.vmas.alloc(
            Vma::new(id, view, link, sys.config.sleeping_locks.of_semaphore()),
            sys,
        );
        let Ok(vma) = vma else {
            // The caller has the file as well.
            let _others_have_it = sys.drop_link(mm, link);
            return Err(NoMemory);
        };
        let new = Self { mm, vma };
        record.map(|record| record.publish_first(new.get()));
        Ok(new)
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
        // SAFETY: allocated by `new`, and fact 1.
        unsafe { self.vma.as_ref() }
    }

    /// Puts it into the tree of an address space that no other thread has yet.
    ///
    /// # Errors
    /// No memory; it is freed then.
    pub(crate) fn insert_alone(self) -> Result<&'m Vma<M>, NoMemory> {
        vma_lock::insert(self.mm, self.vma, |vma| self.mm.insert_record(vma, None))?;
        let inserted = ManuallyDrop::new(self);
        // SAFETY: allocated by `new`; it stays in the tree as long as no other thread has that.
        Ok(unsafe { inserted.vma.as_ref() })
    }

    /// Puts it into the tree, with its section open; `between` the two that a search has found.
    ///
    /// # Errors
    /// No memory; it is freed then.
    pub(crate) fn insert<'w>(
        self,
        writers: &'w Writers<'_, M>,
        between: Option<Between<'_, M>>,
    ) -> Result<Section<'w, M>, NoMemory> {
        // SAFETY: 1: fact 1; `mmap_lock` keeps it once it is in the tree.
        let vma = unsafe { VmaPtr::new(self.vma) };
        let section = writers.insert_open(vma, between)?;
        let _published = ManuallyDrop::new(self);
        Ok(section)
    }
}

impl<M: Mmu> Drop for NewVma<'_, M> {
    fn drop(&mut self) {
        let sys = self.mm.system();
        let vma = self.get();
        sys.unlink_anon_vmas(vma);
        // The caller has the file as well: it wanted it mapped, or has the VMA that this was to be
        // a part or a copy of.
        let _others_have_it = sys.drop_link(self.mm, vma.link());
        if let Some(attrs) = vma.attrs_ptr() {
            // SAFETY: 1, 2: fact 1.
            unsafe { sys.attrs.free(attrs, sys) };
        }
        // SAFETY: 1, 2: fact 1.
        unsafe { sys.vmas.free(self.vma, sys) };
    }
}

/// VMAs that were taken out of the tree, whose write sections never end.
///
/// # Invariants
/// 1. Each is out of the tree, in this list only, and alive: fact 3.
pub(crate) struct Removed<'w, 'm, M: Mmu> {
    writers: &'w Writers<'m, M>,
    /// The last one; the callback of each names the one before.
    last: Option<NonNull<Vma<M>>>,
    /// Whether all of them are detached.
    detached: bool,
}

impl<'w, 'm, M: Mmu> Removed<'w, 'm, M> {
    /// None yet.
    pub(crate) const fn none(writers: &'w Writers<'m, M>) -> Self {
        Self {
            writers,
            last: None,
            detached: false,
        }
    }

    pub(crate) const fn writers(&self) -> &'w Writers<'m, M> {
        self.writers
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Takes a VMA with an open section out of the tree. Returns what is free around it then, if
    /// VMAs are on both sides of that.
    ///
    /// # Errors
    /// No memory: it is still in the tree.
    pub(crate) fn take_out(&mut self, found: Found<'_, M>) -> Result<Option<VirtRange>, NoMemory> {
        let (mm, vma) = (self.writers.held().mm(), found.vma());
        let _ensured = self.writers.ensure_one(None)?;
        let free = mm.remove_record(found)?;
        self.add(vma);
        Ok(free)
    }

    /// Takes a VMA with an open section out, which starts at `start`.
    ///
    /// # Errors
    /// No memory: it is still in the tree.
    pub(crate) fn take_out_vma(&mut self, vma: &Vma<M>, start: VirtAddr) -> Result<(), NoMemory> {
        let held = self.writers.held();
        if self.writers.is_several() {
            let _ensured = self.writers.ensure_one(None)?;
            held.remove_records(vma)?;
            self.add(vma);
            return Ok(());
        }
        let found = held.found(start);
        found.map_or(Ok(()), |found| self.take_out(found).map(drop))
    }

    fn add(&mut self, vma: &Vma<M>) {
        vma.callback.remember(self.last.map(NonNull::cast));
        // INVARIANT: 1: taken out by the caller.
        self.last = Some(NonNull::from(vma));
    }

    /// Calls `each` with each VMA.
    pub(crate) fn each(&self, mut each: impl FnMut(&Vma<M>)) {
        let mut next = self.last;
        while let Some(vma) = next {
            // SAFETY: invariant 1.
            let vma = unsafe { vma.as_ref() };
            let before = vma.callback.recall();
            vma.callback.remember(before);
            next = before.map(NonNull::cast);
            each(vma);
        }
    }

    /// No thread validates against the VMAs or locks them from here on. Needed before a downgrade;
    /// otherwise [`Self::free`] does it.
    ///
    /// # Context
    /// May sleep, until faults of other address spaces have found out that a VMA is not theirs.
    pub(crate) fn detach(&mut self) {
        if !self.detached {
            self.each(|vma| self.writers.detach(vma));
            self.detached = true;
        }
    }

    /// Frees the VMAs, whose pages are gone or another VMA's, and leaves files that no VMA maps any
    /// more to be closed after `mmap_lock` is released.
    ///
    /// # Context
    /// Sleeps for the locks of their anon_vmas and of their files' mappings.
    pub(crate) fn free(&mut self) {
        self.detach();
        let mm = self.writers.held().mm();
        let sys = mm.system();
        let mut next = self.last.take();
        while let Some(gone) = next {
            // SAFETY: invariant 1.
            let vma = unsafe { gone.as_ref() };
            // What it remembers makes room for what frees it.
            next = vma.callback.recall().map(NonNull::cast);
            vma.give_back_own(sys);
            sys.unlink_anon_vmas(vma);
            self.writers.close_later(sys.drop_link(mm, vma.link()));
            // SAFETY: 1: invariant 1, and out of the list; detached above.
            unsafe { sys.retire_vma(gone) };
        }
    }
}
