//! The first anon_vma of a VMA.
//!
//! # Problem
//! The threads of a process touch a new VMA for the first time at the same moment. In Linux each
//! of these faults takes `mmap_lock`, allocates an anon_vma and a link, and all but one free them
//! again: on 256 CPUs they spend most of a short run waiting for the lock of the slab.
//!
//! # Idea
//! One fault allocates ([`AnonVmaPreparation::OneFault`]): it holds `page_table_lock`, and the
//! others wait until that lock is free. They do not take it, since the first look after the wait
//! finds the anon_vma. It holds `mmap_lock`, too, but only if a trylock gets it: so a speculative
//! fault can do this inside its read section.
//!
//! # Protocol
//! - *Each fault* holds `mmap_lock` for reading. It allocates, takes the root's lock and
//!   `page_table_lock`, looks whether another fault was faster, and links.
//! - *One fault*: (1) look for the anon_vma, wait until `page_table_lock` is free, look again, and
//!   trylock it; (2) trylock `mmap_lock` for reading, unless it is held; (3) check that the VMA is
//!   the sampled one, and look for the anon_vma once more; (4) allocate, trylock the root's lock,
//!   and link. If a trylock fails in 2 or 4, the fault does as *each fault* does, after it has
//!   fallen back to `mmap_lock`.
//! - Both share a neighbour's anon_vma where possible, so that the two VMAs can be merged.
//!
//! # Why it is correct
//! Linking happens under `mmap_lock`, the root's lock and `page_table_lock` in both forms, so
//! readers of a VMA's links need not know which it was. Only one fault links: the last look is
//! under `page_table_lock`, which every fault that links holds.
//!
//! The lock is that of one moment: an address space that is divided has one for each arena. A
//! fault that holds `mmap_lock` when it chooses has the right one, since the division takes that
//! for writing; a speculative fault chooses before, and so asks again after step 2.
//!
//! A sampled VMA can be taken out before step 2; an anon_vma that it gets later would never be
//! unlinked. Writers hold `mmap_lock` for writing, or for reading with the VMA marked as changing
//! for ever, until they are done with it: so it is unchanged as long as step 3 finds it unchanged.
//!
//! Nothing sleeps with `page_table_lock` held, and no lock is waited for out of order: a try adds
//! no edge, and the locks of slabs and zones come later in the order. The allocations fail rather
//! than wait for memory; the lock is released before the caller reclaims.
//!
//! # Cost
//! *One fault*: the waiting faults read two lines. The allocating fault holds `page_table_lock` for
//! as long as two allocations take, which may include a page for each slab.
//!
//! Linux: mm/rmap.c __anon_vma_prepare.

use super::anon_vma::{AnonVma, Chain, address};
use crate::base::attrs::VmaView;
use crate::base::config::{AnonVmaPreparation, NegativeControl};
use crate::base::error::NoMemory;
use crate::mm::Mm;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use crate::system::System;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, PtLock};
use minflt_sync::order::PageTableLock;
use minflt_sync::{Ordering, SpinGuard};

/// `page_table_lock`, held.
type Locked<'g, M> = SpinGuard<'g, (), PageTableLock, M>;

/// Whether a VMA has an anon_vma now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prepared {
    Yes,
    /// A lock was taken, or the VMA has changed.
    NotNow,
}

/// An anon_vma for a VMA, and a link to it that is in no list yet.
struct Parts<'h, M: Mmu> {
    own: &'h AnonVma<M>,
    chain: &'h Chain<M>,
    /// Whether it is new, and not a neighbour's.
    fresh: bool,
}

impl<M: Mmu> Parts<'_, M> {
    fn discard(self, sys: &System<M>) {
        sys.discard_new_chain(self.chain);
        if self.fresh {
            sys.discard_anon_vma(NonNull::from(self.own));
        }
    }

    /// Gives them to the VMA. The root's lock and `page_table_lock` are held.
    fn link_locked(&self, vma: &Vma<M>) {
        self.own.link(self.chain, &vma.view());
        self.own.active.add(1, Ordering::Relaxed);
        if self.fresh {
            self.own.children.add(1, Ordering::Relaxed);
        }
        vma.chain.store(address(self.chain), Ordering::Relaxed);
        // ORDERING: Release; pairs with [vma-anon-vma].
        vma.anon_vma.store(address(self.own), Ordering::Release);
    }
}

impl<M: Mmu> Mm<M> {
    /// Gives a VMA an anon_vma, if it has none yet and nothing need be waited for but
    /// `page_table_lock`. `unchanged` says whether the VMA is the one that the caller found.
    ///
    /// # Context
    /// In a read section or with the VMA's lock held; does not sleep. Takes `page_table_lock`,
    /// `mmap_lock` and the root's lock, the latter two by trylock.
    #[cold]
    #[inline(never)]
    pub(crate) fn try_prepare_anon_vma(
        &self,
        vma: &Vma<M>,
        unchanged: impl Fn() -> bool,
    ) -> Result<Prepared, NoMemory> {
        let lock = self.prepare_lock(vma);
        Self::as_one_fault(vma, lock, |tables| {
            let Some(guard) = self.try_read(vma.view().range) else {
                return Ok(Prepared::NotNow);
            };
            let same = core::ptr::eq(lock, self.prepare_lock(vma));
            if !same && !self.system().lacks(NegativeControl::PreparesUndivided) {
                return Ok(Prepared::NotNow);
            }
            if !unchanged() && !self.system().lacks(NegativeControl::PreparesUnchecked) {
                return Ok(Prepared::NotNow);
            }
            guard.held().prepare_locked(vma, tables)
        })
    }

    /// What a VMA gets its anon_vma under: `page_table_lock`; in a divided address space, the lock
    /// for that of the arena where the VMA starts. If the start changes meanwhile, `unchanged` says
    /// so to those without a lock, and those with one see to it that it does not. Those without
    /// `mmap_lock` ask again with it: the address space may have been divided meanwhile (P71).
    fn prepare_lock(&self, vma: &Vma<M>) -> &PtLock<M> {
        if !self.has_several_writers() {
            return &self.page_table_lock;
        }
        let at = vma.view().range.start();
        let part = self.part_of(VirtRange::new(at, VirtAddr(at.0 + 1)));
        part.map_or(&self.page_table_lock, |part| &part.prepare_lock)
    }

    /// Calls `prepare` with `page_table_lock` held, unless the VMA gets an anon_vma before.
    fn as_one_fault(
        vma: &Vma<M>,
        lock: &PtLock<M>,
        prepare: impl FnOnce(Locked<'_, M>) -> Result<Prepared, NoMemory>,
    ) -> Result<Prepared, NoMemory> {
        // ORDERING: Acquire; pairs with [vma-anon-vma].
        let has_one = || vma.anon_vma.load(Ordering::Acquire) != 0;
        while !has_one() {
            lock.wait_free();
            if has_one() {
                break;
            }
            if let Some(tables) = lock.try_lock() {
                return prepare(tables);
            }
        }
        Ok(Prepared::Yes)
    }
}

impl<'h, M: Mmu> Held<'h, M> {
    /// Gives the mapping an anon_vma of its own, if it has none yet.
    #[cold]
    #[inline(never)]
    pub(crate) fn prepare_anon_vma(self, vma: &Vma<M>) -> Result<(), NoMemory> {
        match self.system().config.anon_vma_preparation {
            AnonVmaPreparation::EachFault => self.prepare_unlocked(vma),
            AnonVmaPreparation::OneFault => {
                let lock = self.mm().prepare_lock(vma);
                match Mm::as_one_fault(vma, lock, |tables| self.prepare_locked(vma, tables))? {
                    Prepared::Yes => Ok(()),
                    Prepared::NotNow => self.prepare_unlocked(vma),
                }
            }
        }
    }

    /// As [`Held::prepare_anon_vma`], where it may have one.
    pub(crate) fn prepare_anon_vma_once(self, vma: &Vma<M>) -> Result<(), NoMemory> {
        // ORDERING: Acquire; pairs with [vma-anon-vma].
        if vma.anon_vma.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        self.prepare_anon_vma(vma)
    }

    /// Allocates first.
    fn prepare_unlocked(self, vma: &Vma<M>) -> Result<(), NoMemory> {
        let parts = self.parts(vma)?;
        let mine = {
            let _tree = parts.own.root().lock.write();
            let _tables = self.mm().prepare_lock(vma).lock();
            let mine = vma.anon_vma.load(Ordering::Relaxed) == 0;
            if mine {
                parts.link_locked(vma);
            }
            mine
        };
        if !mine {
            parts.discard(self.system());
        }
        Ok(())
    }

    /// Allocates under `page_table_lock`, which it releases.
    fn prepare_locked(self, vma: &Vma<M>, tables: Locked<'_, M>) -> Result<Prepared, NoMemory> {
        let sys = self.system();
        let has_one = vma.anon_vma.load(Ordering::Relaxed) != 0;
        if has_one && !sys.lacks(NegativeControl::PreparesTwice) {
            return Ok(Prepared::Yes);
        }
        let parts = self.parts(vma)?;
        let Some(tree) = parts.own.root().lock.try_write() else {
            drop(tables);
            parts.discard(sys);
            return Ok(Prepared::NotNow);
        };
        parts.link_locked(vma);
        drop(tables);
        drop(tree);
        Ok(Prepared::Yes)
    }

    fn parts(self, vma: &Vma<M>) -> Result<Parts<'h, M>, NoMemory> {
        let sys = self.mm().system();
        let (own, fresh) = match self.mergeable_anon_vma(vma) {
            Some(neighbours) => (neighbours, false),
            None => (sys.new_anon_vma(None)?, true),
        };
        let chain = sys.new_chain(self.mm(), vma, own).inspect_err(|_| {
            if fresh {
                sys.discard_anon_vma(NonNull::from(own));
            }
        })?;
        Ok(Parts { own, chain, fresh })
    }

    /// The only anon_vma of a neighbour that touches the mapping, so that they can merge some day.
    ///
    /// Linux: find_mergeable_anon_vma.
    fn mergeable_anon_vma(self, vma: &Vma<M>) -> Option<&'h AnonVma<M>> {
        let view = vma.view();
        let range = view.range;
        // Linux: anon_vma_compatible, which ignores protection and userfaultfds.
        let alike = |other: VmaView| {
            let (prot, uffd) = (other.prot, other.uffd);
            let like = VmaView { prot, uffd, ..view };
            other == like.of_range::<M::Paging>(other.range)
        };
        let above = self.at_or_after(range.end()).filter(|vma| {
            let view = vma.view();
            view.range.start() == range.end() && alike(view)
        });
        if let Some(found) = above.and_then(Vma::only_anon_vma) {
            return Some(found);
        }
        let last = VirtAddr(range.start().0.checked_sub(1)?);
        let below = self.at_or_before(last).filter(|vma| {
            let view = vma.view();
            view.range.end() == range.start() && alike(view)
        });
        below.and_then(Vma::only_anon_vma)
    }
}
