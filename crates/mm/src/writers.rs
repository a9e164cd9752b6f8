//! The writers' half: what a call that changes a VMA owes to the rungs in use.
//!
//! # Problem
//! Faults without `mmap_lock` are sound only if *every* place that changes a VMA takes part; and
//! an era without such faults must not pay for them.
//!
//! # Idea
//! One door for all of them: a section is opened on the VMA, and opening it does whatever the
//! configured ladder needs: a sequence section where the ladder speculates, the VMA's write lock
//! where it locks VMAs, nothing elsewhere. New VMAs pass the same door.
//!
//! # Protocol
//! The caller holds `mmap_lock` for writing, which the guard proves. Sequence sections of one VMA
//! do not nest. A section that ends by [`Section::for_ever`] belongs to a VMA that was taken out.
//! A VMA's write lock outlasts its section: all of them end when the guard goes, and before
//! `mmap_lock` is let go.
//!
//! # Why it is correct
//! `mmap_lock` excludes other writers, so the count, the numbers and a VMA's lock have one writer
//! at a time.

use crate::config::VmaLockBy;
use crate::error::NoMemory;
use crate::mm::Mm;
use crate::vma::Vma;
use crate::vma_lock;
use core::cell::Cell;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;
use minflt_sync::WriteGuard;
use minflt_sync::order::MmapLock;

/// Proof that the caller may change VMAs of an address space.
pub(crate) struct Writers<'m, M: Mmu> {
    mm: &'m Mm<M>,
    held: Cell<Option<WriteGuard<'m, MmapLock, M>>>,
}

/// An open section on one VMA.
#[must_use = "the section ends when dropped"]
pub(crate) struct Section<'v, M: Mmu> {
    mm: &'v Mm<M>,
    vma: &'v Vma<M>,
    owes: Owes,
}

/// What the end of a section has to do.
#[derive(Clone, Copy)]
enum Owes {
    Nothing,
    /// The sequence count is odd.
    Even,
    /// The VMA is write-locked, and stays so for now.
    Detach(VmaLockBy),
}

impl<'m, M: Mmu> Writers<'m, M> {
    /// Takes `mmap_lock` for writing.
    pub(crate) fn lock(mm: &'m Mm<M>) -> Self {
        Self {
            mm,
            held: Cell::new(Some(mm.mmap_lock.write())),
        }
    }

    /// Opens a section on every VMA of the address space, for a fork: none closes before the last
    /// page is copied and every CPU was told.
    pub(crate) fn begin_all(&self) -> Sections<'_, 'm, M> {
        let mut all = self.none_from(VirtAddr(0));
        self.mm.tree_visit(|vma| all.add(vma));
        all
    }

    /// No sections yet: those of VMAs from `start` on are to be added.
    pub(crate) const fn none_from(&self, start: VirtAddr) -> Sections<'_, 'm, M> {
        Sections {
            writers: self,
            within: VirtRange::new(start, start),
        }
    }

    /// Opens a section on `vma`.
    ///
    /// # Context
    /// Sleeps until faults that hold the VMA's lock have left.
    pub(crate) fn begin<'v>(&'v self, vma: &'v Vma<M>) -> Section<'v, M> {
        let ladder = self.mm.system().config.ladder;
        let owes = if ladder.speculates() {
            vma.seq.write_begin();
            Owes::Even
        } else if let Some(by) = ladder.vma_lock() {
            vma.write_lock(by, self.mm);
            Owes::Detach(by)
        } else {
            Owes::Nothing
        };
        Section {
            mm: self.mm,
            vma,
            owes,
        }
    }

    /// Lets `mmap_lock` go while `unlocked` runs: for a control.
    #[cold]
    pub(crate) fn without(&self, unlocked: impl FnOnce()) {
        drop(self.held.take());
        unlocked();
        self.held.set(Some(self.mm.mmap_lock.write()));
    }

    /// Opens no section: for controls.
    pub(crate) fn begin_none<'v>(&'v self, vma: &'v Vma<M>) -> Section<'v, M> {
        Section {
            mm: self.mm,
            vma,
            owes: Owes::Nothing,
        }
    }

    /// Puts a new VMA, which is whole, into the tree with its section open: whoever finds it finds
    /// it being changed.
    ///
    /// # Errors
    /// When there is no memory: then the VMA is in no tree, and the caller's to free.
    pub(crate) fn insert_open<'v>(
        &'v self,
        start: VirtAddr,
        vma: &'v Vma<M>,
    ) -> Result<Section<'v, M>, NoMemory> {
        let ladder = self.mm.system().config.ladder;
        let owes = if ladder.speculates() {
            vma.seq.write_begin();
            Owes::Even
        } else {
            // Nobody gets the lock of a new one before this guard goes.
            ladder.vma_lock().map_or(Owes::Nothing, Owes::Detach)
        };
        let section = Section {
            mm: self.mm,
            vma,
            owes,
        };
        vma_lock::insert(self.mm, start, NonNull::from(vma))?;
        Ok(section)
    }
}

impl<M: Mmu> Drop for Writers<'_, M> {
    fn drop(&mut self) {
        if self.mm.system().config.ladder.vma_lock().is_some() {
            self.mm.lock_seq.end_all();
        }
    }
}

/// Open sections on the VMAs that start within a range.
#[must_use = "the sections end when dropped"]
pub(crate) struct Sections<'w, 'm, M: Mmu> {
    writers: &'w Writers<'m, M>,
    within: VirtRange,
}

impl<'w, M: Mmu> Sections<'w, '_, M> {
    /// Opens a section on `vma` as well, the next one behind those there are.
    ///
    /// # Context
    /// Sleeps until faults that hold the VMA's lock have left.
    pub(crate) fn add(&mut self, vma: &Vma<M>) {
        let section = self.writers.begin(vma);
        self.add_open(section);
    }

    /// Takes an open section over, as the next one behind those there are.
    pub(crate) fn add_open(&mut self, section: Section<'_, M>) {
        let end = section.vma().view().range.end();
        section.leave_open();
        self.within = VirtRange::new(self.within.start(), end);
    }

    /// Where the VMAs are.
    pub(crate) const fn within(&self) -> VirtRange {
        self.within
    }

    /// The VMAs are out of the tree: whoever took them out ends their sections, one by one.
    pub(crate) fn hand_over(&mut self) {
        let nothing = self.within.start();
        self.within = VirtRange::new(nothing, nothing);
    }

    /// The section of a VMA that was handed over.
    pub(crate) fn of<'v>(&self, vma: &'v Vma<M>) -> Section<'v, M>
    where
        'w: 'v,
    {
        let mm = self.writers.mm;
        let ladder = mm.system().config.ladder;
        let owes = if ladder.speculates() {
            Owes::Even
        } else {
            ladder.vma_lock().map_or(Owes::Nothing, Owes::Detach)
        };
        Section { mm, vma, owes }
    }
}

impl<M: Mmu> Drop for Sections<'_, '_, M> {
    fn drop(&mut self) {
        let mm = self.writers.mm;
        if !mm.system().config.ladder.speculates() {
            return;
        }
        let mut at = self.within.start();
        while at < self.within.end()
            && let Some(vma) = mm.find(at)
        {
            at = vma.view().range.end();
            let owes = Owes::Even;
            drop(Section { mm, vma, owes });
        }
    }
}

impl<'v, M: Mmu> Section<'v, M> {
    /// The VMA.
    pub(crate) const fn vma(&self) -> &'v Vma<M> {
        self.vma
    }
}

impl<M: Mmu> Section<'_, M> {
    /// The VMA was taken out: nobody shall validate against it or lock it again.
    pub(crate) fn for_ever(mut self) {
        if let Owes::Detach(by) = self.owes {
            self.vma.detach(by, self.mm);
        }
        self.owes = Owes::Nothing;
    }
}

impl<M: Mmu> Section<'_, M> {
    /// [`Sections`] closes it.
    fn leave_open(mut self) {
        self.owes = Owes::Nothing;
    }
}

impl<M: Mmu> Drop for Section<'_, M> {
    fn drop(&mut self) {
        if let Owes::Even = self.owes {
            self.vma.seq.write_end();
        }
    }
}
