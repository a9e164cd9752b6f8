//! The write side of VMA changes: what a writer must do for each lock mode in use.
//!
//! # Problem
//! Faults without `mmap_lock` are sound only if *every* write path of a VMA participates; and an
//! era without such faults must not pay for them.
//!
//! # Idea
//! One interface for all of them: the writer opens a VMA write section, which does what the
//! configured lock modes need: a sequence-count section for speculative faults, the VMA write lock
//! for VMA locks, nothing otherwise. New VMAs use the same interface.
//!
//! # Protocol
//! The caller holds `mmap_lock` for writing, which the guard proves. Sequence-count sections of one
//! VMA do not nest. The section of a VMA that is removed never ends ([`Writers::detach`]). A VMA
//! write lock outlasts its section: all of them are released when the guard is dropped, before
//! `mmap_lock`. A call that has changed the tree and the records, and only unmaps pages after that,
//! *downgrades* where the configuration says so:
//!
//! ```text
//! CPU 0: munmap                        CPU 1: fault next to the range   CPU 2: mmap
//! V out of the tree; V detached
//! mm.lock_seq += 1                     the neighbour's lock: held       waits
//! mmap_lock: write becomes read        or mmap_lock, read: held
//! zaps, frees tables                   installs PTEs and tables
//! TLB flush completes; V is freed
//! mmap_lock released                                                    maps something there
//! ```
//!
//! # Why it is correct
//! `mmap_lock` excludes other writers, so the sequence count, the lock sequence numbers and a VMA
//! lock have one writer at a time.
//!
//! After a downgrade no fault is in the range, and none can enter:
//! - a lookup in the tree, under `mmap_lock` or lockless, finds nothing there; a fault that found V
//!   before is refused, since V was *detached* before the write locks ended (control:
//!   [`NegativeControl::DetachLate`](crate::base::config::NegativeControl)), or finds V's sequence
//!   count odd for ever; and the writer waited for holders of V's lock before it cut V;
//! - a call that maps there, or extends a neighbour (stacks, too, see `fault/stack.rs`), is a
//!   writer, and waits. So do fork, and any other munmap: only one downgraded writer exists at a
//!   time, which is why it may still write what `mmap_lock` guards and readers only read: the
//!   counts of mapped and locked pages;
//! - so no other thread changes or follows the entries of page tables that lie between the
//!   neighbours, and these may be freed as under the write lock. Page tables that reach into a
//!   neighbour are kept; faults install PTEs and tables there meanwhile, each in its own entry,
//!   under the page-table lock or by exchange, as during a discard;
//! - a page-table walk under `mmap_lock` for reading walks only below VMAs that it found under the
//!   same lock (control: [`NegativeControl::AgeHoles`](crate::base::config::NegativeControl)).
//!   Lockless walks are waited for by the TLB flush or the grace period, whatever lock munmap
//!   holds;
//! - other zaps may run concurrently with this one, as with a discard: they count each other
//!   ([`crate::entry::zap`], P41). They cannot affect the same pages.
//!
//! A section ends only when the link of a file-backed VMA agrees with its record
//! ([`crate::pages::file::links`]).
//!
//! Files whose last mapping was removed are closed after the lock is released ([`UnusedFiles`]):
//! that may wait for a device.
//!
//! Everything that can fail precedes the downgrade. After it the call only frees: pages, page
//! tables, links to anon_vmas under their own lock, VMAs, the commit charge.
//!
//! Linux: mm/vma.c vms_complete_munmap_vmas; include/linux/mmap_lock.h mmap_write_downgrade
//! (v6.18).

use crate::base::config::Unmap;
use crate::base::error::NoMemory;
use crate::mm::Mm;
use crate::pages::file::{Unused, UnusedFiles};
use crate::space::arenas::lock::{Exclusive, Over};
use crate::space::arenas::look::Held;
use crate::space::tree::{Between, Node};
use crate::space::vma::Vma;
use crate::space::vma::VmaPtr;
use crate::space::vma_lock;
use core::cell::Cell;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;
use minflt_sync::slab::Ensured;

/// Proof that the caller may change VMAs of an address space.
pub(crate) struct Writers<'m, M: Mmu> {
    mm: &'m Mm<M>,
    lock: Exclusive<'m, M>,
    /// Whether what changes the tree was ensured.
    ensured: Cell<bool>,
    /// Files to close. Dropped behind `lock`, so with the lock let go: fields are dropped in their
    /// order.
    files: UnusedFiles<M>,
}

/// What a caller does with `mmap_lock` after a part of its call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// Lets it go: it may have been downgraded.
    LetsGo,
    /// Changes VMAs.
    Writes,
}

/// Changes of the tree that do not fail as long as this is there.
#[must_use = "good until dropped"]
pub(crate) struct EnsuredTree<'w, 'm, M: Mmu> {
    writers: &'w Writers<'m, M>,
    _nodes: Ensured<'w, Node<M>, M>,
}

impl<M: Mmu> Drop for EnsuredTree<'_, '_, M> {
    fn drop(&mut self) {
        self.writers.ensured.set(false);
    }
}

/// An open section on one VMA.
#[must_use = "the section ends when dropped"]
pub(crate) struct Section<'v, M: Mmu> {
    /// Where it was taken out, it goes while a function still runs that was given the section.
    vma: VmaPtr<'v, M>,
    /// Whether the sequence count is odd, for the end of the section to make even. A VMA that is
    /// write-locked stays so.
    odd: bool,
}

impl<'m, M: Mmu> Writers<'m, M> {
    /// Takes `mmap_lock` for writing, as far as the call needs it.
    pub(crate) fn lock(mm: &'m Mm<M>, over: Over) -> Self {
        Self {
            mm,
            lock: Exclusive::lock(mm, over),
            ensured: Cell::new(false),
            files: UnusedFiles::new(),
        }
    }

    /// Takes other arenas instead.
    pub(crate) fn relock(&mut self, over: Over) {
        self.lock.relock(over);
    }

    /// Whether a change may be of several trees.
    #[inline]
    pub(crate) fn is_several(&self) -> bool {
        self.mm.is_several(self.lock.span())
    }

    /// Whether changes of the tree were made sure of.
    pub(crate) const fn is_ensured(&self) -> bool {
        self.ensured.get()
    }

    /// Makes sure that so many changes of the tree do not fail, `into` being where something comes:
    /// first removals and moves of starts, then insertions. Good until the guard is dropped, which
    /// is before the caller sleeps.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn ensure(
        &self,
        into: Option<VirtRange>,
        removals: u64,
        insertions: u64,
    ) -> Result<EnsuredTree<'_, 'm, M>, NoMemory> {
        let span = self.lock.span();
        let _nodes = self.mm.ensure_records(span, into, removals, insertions)?;
        self.ensured.set(true);
        Ok(EnsuredTree {
            writers: self,
            _nodes,
        })
    }

    /// The same where a single change may touch several trees, and nothing was ensured: what fails
    /// half way cannot be undone.
    ///
    /// # Errors
    /// No memory.
    #[inline]
    pub(crate) fn ensure_one(
        &self,
        into: Option<VirtRange>,
    ) -> Result<Option<EnsuredTree<'_, 'm, M>>, NoMemory> {
        let needed = self.is_several() && !self.is_ensured();
        needed.then(|| self.ensure(into, 1, 1)).transpose()
    }

    /// The tree and the records are as they will be, and what went is detached: others may read and
    /// fault again, if nothing is to be changed `afterwards`.
    ///
    /// Linux: mmap_write_downgrade.
    #[inline]
    pub(crate) fn downgrade(&self, afterwards: Afterwards) {
        let here = self.mm.system().config.unmap == Unmap::Downgrade;
        if here && afterwards == Afterwards::LetsGo && self.lock.writes() {
            self.end_all();
            self.lock.downgrade();
        }
    }

    /// Closes a file that nobody has any more, if there is one, once the lock is let go.
    #[inline]
    pub(crate) fn close_later(&self, unused: Option<Unused<M>>) {
        if let Some(unused) = unused {
            self.files.add(unused);
        }
    }

    /// A VMA with an open section is out of the tree: no thread validates against it or locks it
    /// again. The section does not end.
    ///
    /// # Context
    /// May sleep, until faults of other address spaces have found out that it is not theirs.
    pub(crate) fn detach(&self, vma: &Vma<M>) {
        let order = self.mm.system().config.fallback_order;
        if let Some(by) = order.vma_lock().filter(|_| !order.speculates()) {
            vma.detach(by, self.mm);
        }
        self.mm.count_vmas(-1);
    }

    fn end_all(&self) {
        vma_lock::end_all(self.mm);
    }

    /// The address space, to look at.
    #[inline(always)]
    pub(crate) const fn held(&self) -> Held<'_, M> {
        self.lock.held()
    }

    /// Opens a section on every VMA of the address space, for a fork: none closes before the last
    /// page is copied and every CPU was told.
    pub(crate) fn begin_all(&self) -> Sections<'_, 'm, M> {
        let mut all = self.none_from(VirtAddr(0));
        self.held().each(|vma| all.add(vma));
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
        debug_assert!(self.lock.writes(), "nothing is changed after a downgrade");
        let order = self.mm.system().config.fallback_order;
        let odd = order.speculates();
        if odd {
            vma.seq.write_begin();
        } else if let Some(by) = order.vma_lock() {
            vma.write_lock(by, self.mm);
        }
        let vma = VmaPtr::from(vma);
        Section { vma, odd }
    }

    /// Lets `mmap_lock` go while `unlocked` runs: for a control.
    #[cold]
    pub(crate) fn without(&self, unlocked: impl FnOnce()) {
        self.lock.without(unlocked);
    }

    /// Opens no section: for controls.
    pub(crate) fn begin_none<'v>(&'v self, vma: &'v Vma<M>) -> Section<'v, M> {
        let vma = VmaPtr::from(vma);
        Section { vma, odd: false }
    }

    /// Puts a new VMA, which is whole, into the tree with its section open: a lookup that finds it
    /// finds it being changed.
    ///
    /// # Errors
    /// When there is no memory: then the VMA is in no tree, and the caller's to free.
    pub(crate) fn insert_open<'v>(
        &'v self,
        new: VmaPtr<'v, M>,
        between: Option<Between<'_, M>>,
    ) -> Result<Section<'v, M>, NoMemory> {
        // No thread gets the lock of a new one before this guard goes.
        let odd = self.mm.system().config.fallback_order.speculates();
        if odd {
            new.get().seq.write_begin();
        }
        let section = Section { vma: new, odd };
        vma_lock::insert(self.mm, new.as_ptr(), |vma| {
            let _ensured = self.ensure_one(Some(vma.view().range))?;
            self.mm.insert_record(vma, between)
        })?;
        Ok(section)
    }
}

impl<M: Mmu> Drop for Writers<'_, M> {
    fn drop(&mut self) {
        if self.lock.writes() {
            self.end_all();
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
        let _vma = section.leave_open();
        self.within = VirtRange::new(self.within.start(), end);
    }

    /// Where the VMAs are.
    pub(crate) const fn within(&self) -> VirtRange {
        self.within
    }

    /// The VMAs are out of the tree: their sections never end.
    pub(crate) fn hand_over(&mut self) {
        let nothing = self.within.start();
        self.within = VirtRange::new(nothing, nothing);
    }
}

impl<M: Mmu> Drop for Sections<'_, '_, M> {
    fn drop(&mut self) {
        if !self.writers.mm.system().config.fallback_order.speculates() {
            return;
        }
        let mut at = self.within.start();
        while at < self.within.end()
            && let Some(vma) = self.writers.held().find(at)
        {
            at = vma.view().range.end();
            let (vma, odd) = (VmaPtr::from(vma), true);
            drop(Section { vma, odd });
        }
    }
}

impl<'v, M: Mmu> Section<'v, M> {
    /// The VMA.
    pub(crate) const fn vma(&self) -> &'v Vma<M> {
        self.vma.get()
    }

    /// Ends it, but leaves the link to a file for later: the VMA has lost pages that are still
    /// mapped.
    pub(crate) fn end_before_link(self) -> &'v Vma<M> {
        let section = core::mem::ManuallyDrop::new(self);
        section.end();
        section.vma()
    }

    /// [`Sections`] closes it.
    pub(crate) fn leave_open(self) -> VmaPtr<'v, M> {
        core::mem::ManuallyDrop::new(self).vma
    }
}

impl<M: Mmu> Drop for Section<'_, M> {
    fn drop(&mut self) {
        self.vma().link_follows();
        self.end();
    }
}

impl<M: Mmu> Section<'_, M> {
    fn end(&self) {
        if self.odd {
            self.vma().seq.write_end();
        }
    }
}
