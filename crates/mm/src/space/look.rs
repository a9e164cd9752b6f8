//! VMA lookups under `mmap_lock`.
//!
//! # Problem
//! VMAs and nodes of the tree are freed by writers. A lookup is sound only while the caller holds
//! `mmap_lock`, and a comment at each caller does not say so to the compiler.
//!
//! # Idea
//! A guard of `mmap_lock`, held for reading or for writing, makes a [`Held`], which cannot outlive
//! it. All lookups are methods of that, and what they find lives no longer. It is a reference to
//! the address space and nothing more.
//!
//! # Protocol
//! [`Mm::held`] makes it of a guard, [`Writers`](crate::change::writers::Writers) of its own.
//! Functions that look at mappings take a [`Held`]. A writer that frees a VMA hands it around as a
//! [`VmaPtr`](super::vma::VmaPtr), which promises less.
//!
//! # Why it is correct
//! Only writers take VMAs and nodes out of the tree, and all free them by the reclamation scheme
//! after that. So a holder of `mmap_lock`, in either mode, finds nothing that another thread frees
//! before it releases the lock. What it frees itself, as a writer, it has unlinked itself.
//!
//! # Cost
//! None; machines that check compare the guard's lock with the address space's.

use crate::base::attrs::VmaView;
use crate::base::config::NegativeControl;
use crate::entry::walk::Tables;
use crate::mm::Mm;
use crate::space::tree::{Beside, End, Found, Hole, Locked, Mapping};
use crate::space::vma::Vma;
use core::cell::Cell;
use core::ops::Deref;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;
use minflt_sync::order::MmapLock;
use minflt_sync::{DowngradedGuard, ReadGuard, RwSem, WriteGuard};

/// An address space whose `mmap_lock` the caller holds, for reading or for writing.
///
/// # Invariants
/// 1. As long as `'h` no other thread removes a VMA or a node from the tree.
pub(crate) struct Held<'h, M: Mmu> {
    mm: &'h Mm<M>,
}

impl<M: Mmu> Clone for Held<'_, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mmu> Copy for Held<'_, M> {}

impl<M: Mmu> Deref for Held<'_, M> {
    type Target = Mm<M>;

    #[inline(always)]
    fn deref(&self) -> &Mm<M> {
        self.mm
    }
}

/// `mmap_lock` of some address space, held as long as this lives.
///
/// # Safety
/// 1. The lock that is named is held, for reading or for writing, until this is dropped.
pub(crate) unsafe trait Guard<M: Mmu> {
    /// The lock that it holds.
    fn guarded(&self) -> &RwSem<MmapLock, M>;
}

// SAFETY: 1: the guard releases the lock when it is dropped.
unsafe impl<M: Mmu> Guard<M> for ReadGuard<'_, MmapLock, M> {
    #[inline(always)]
    fn guarded(&self) -> &RwSem<MmapLock, M> {
        self.lock()
    }
}

// SAFETY: 1: the guard releases the lock when it is dropped.
unsafe impl<M: Mmu> Guard<M> for WriteGuard<'_, MmapLock, M> {
    #[inline(always)]
    fn guarded(&self) -> &RwSem<MmapLock, M> {
        self.lock()
    }
}

// SAFETY: 1: the guard releases the lock, held for reading, when it is dropped.
unsafe impl<M: Mmu> Guard<M> for DowngradedGuard<'_, MmapLock, M> {
    #[inline(always)]
    fn guarded(&self) -> &RwSem<MmapLock, M> {
        self.lock()
    }
}

/// `mmap_lock`, taken for writing, and perhaps downgraded since.
pub(crate) struct Exclusive<'m, M: Mmu> {
    mm: &'m Mm<M>,
    how: Cell<How<'m, M>>,
}

/// How it is held.
#[derive(Default)]
enum How<'m, M: Mmu> {
    Write(WriteGuard<'m, MmapLock, M>),
    /// Nothing may be changed any more.
    Read {
        _guard: DowngradedGuard<'m, MmapLock, M>,
    },
    /// For a moment, and in [`Exclusive::without`].
    #[default]
    Not,
}

impl<'m, M: Mmu> Exclusive<'m, M> {
    /// Takes the lock for writing; sleeps for it.
    pub(crate) fn lock(mm: &'m Mm<M>) -> Self {
        let how = Cell::new(How::Write(mm.mmap_lock.write()));
        Self { mm, how }
    }

    /// Whether VMAs may be changed: it was not downgraded.
    pub(crate) fn writes(&self) -> bool {
        let how = self.how.take();
        let writes = matches!(how, How::Write(_));
        self.how.set(how);
        writes
    }

    /// Lets readers in.
    #[inline]
    pub(crate) fn downgrade(&self) {
        self.how.set(match self.how.take() {
            How::Write(guard) => How::Read {
                _guard: guard.downgrade(),
            },
            how => how,
        });
    }

    /// Lets the lock go while `unlocked` runs: for a control, which breaks the invariant of
    /// [`Held`].
    #[cold]
    pub(crate) fn without(&self, unlocked: impl FnOnce()) {
        drop(self.how.take());
        unlocked();
        self.how.set(How::Write(self.mm.mmap_lock.write()));
    }

    /// Proof that the lock is held.
    #[inline(always)]
    pub(crate) const fn held(&self) -> Held<'_, M> {
        // INVARIANT: 1: a guard is in `how`, but for a control and within these functions.
        Held { mm: self.mm }
    }
}

impl<M: Mmu> Mm<M> {
    /// Proof that `mmap_lock` is held by `guard`.
    #[inline(always)]
    pub(crate) fn held<'h>(&'h self, guard: &'h impl Guard<M>) -> Held<'h, M> {
        if M::CHECKED && !core::ptr::eq(guard.guarded(), &self.mmap_lock) {
            M::violation(format_args!("guard of another address space"));
        }
        // INVARIANT: 1: taking anything out of the tree needs `mmap_lock` for writing, which the
        // guard excludes, or has itself.
        Held { mm: self }
    }
}

impl<'h, M: Mmu> Held<'h, M> {
    /// The same where there is no guard.
    ///
    /// # Safety
    /// 1. As long as `'h` no other thread changes the tree: the address space has no other user, or
    ///    nothing else runs.
    #[inline(always)]
    pub(crate) const unsafe fn without_guard(mm: &'h Mm<M>) -> Self {
        // INVARIANT: 1: 1 of this function.
        Self { mm }
    }

    /// The address space.
    #[inline(always)]
    pub(crate) const fn mm(self) -> &'h Mm<M> {
        self.mm
    }

    /// Its tables: below what is mapped, or where nothing is. Below huge pages the caller holds
    /// `i_mmap` of their file as well ([`Self::each_unshared`] says why).
    #[inline(always)]
    pub(crate) const fn tables(self) -> Tables<'h, M> {
        // SAFETY: 1: tables are freed below VMAs that a writer has removed from the tree, which
        // only the caller does as long as `'h`; after a downgrade others free none below a VMA that
        // the caller finds, and there are no walks below none.
        unsafe { Tables::kept(self.mm) }
    }

    /// The tree.
    #[inline(always)]
    const fn tree(self) -> Locked<'h, M> {
        // SAFETY: 1: by the invariant; a writer of the tree holds the lock for writing.
        unsafe { self.mm.tree.locked() }
    }

    /// The last VMA that starts at or before `addr`.
    #[inline]
    pub(crate) fn at_or_before(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        self.tree().at_or_before(addr)
    }

    /// The first VMA that starts at or after `addr`.
    #[inline]
    pub(crate) fn at_or_after(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        self.tree().at_or_after(addr)
    }

    /// The first VMA that ends after `addr`.
    pub(crate) fn find(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        match self.at_or_before(addr) {
            Some(vma) if vma.view().range.end() > addr => Some(vma),
            _ => self.at_or_after(addr),
        }
    }

    /// The VMA that starts at `start`, and where in the tree it is, for a caller that removes it.
    #[inline]
    pub(crate) fn found(self, start: VirtAddr) -> Option<Found<'h, M>> {
        self.tree().found(start)
    }

    /// The VMAs that touch `range`.
    pub(crate) fn beside(self, range: VirtRange) -> Beside<'h, M> {
        self.tree().beside(range)
    }

    /// Where the VMA before `addr`, which none covers, ends, and where the next one starts.
    pub(crate) fn around(self, addr: VirtAddr) -> (Option<VirtAddr>, Option<VirtAddr>) {
        self.tree().around(addr)
    }

    /// The highest hole of at least `len` bytes from `bottom`, before which no VMA starts, up to
    /// `top`: as much of it as lies there. The caller holds the lock for writing.
    pub(crate) fn highest_hole(self, len: u64, bottom: VirtAddr, top: End) -> Option<Hole<'h, M>> {
        self.tree().highest_hole(len, bottom, top)
    }

    /// Calls `visit` with each VMA, in order.
    pub(crate) fn each(self, mut visit: impl FnMut(&'h Vma<M>)) {
        let mut at = VirtAddr(0);
        while let Some(vma) = self.at_or_after(at) {
            visit(vma);
            at = vma.view().range.end();
        }
    }

    /// Calls `visit` with the parts of `range` whose tables stay while the caller holds
    /// `mmap_lock`, in order: all mappings except hugetlb. Hugetlb tables may be shared, and then
    /// other sharers unshare and free them under `i_mmap`, regardless of `mmap_lock` (P59); a walk
    /// through them holds `i_mmap`, as [`Held::see_huge`] does.
    ///
    /// Linux: hugetlb_walk, which requires the mapping's lock or `i_mmap` (v6.3).
    pub(crate) fn each_unshared(self, range: VirtRange, mut visit: impl FnMut(VirtRange)) {
        let mut at = range.start();
        while at < range.end()
            && let Some(vma) = self.find(at)
        {
            let view = vma.view();
            let part = view.range.intersect(range);
            let stays = !view.is_huge() || self.system().lacks(NegativeControl::AgesShared);
            if stays && !part.is_empty() {
                visit(part);
            }
            at = view.range.end();
        }
    }
}

/// The mappings of an address space, none of which changes while this lives.
#[derive(Debug)]
pub struct Mappings<'m, M: Mmu> {
    mm: &'m Mm<M>,
    held: ReadGuard<'m, MmapLock, M>,
}

impl<M: Mmu> Mappings<'_, M> {
    /// What is mapped at `addr`.
    #[inline]
    #[must_use]
    pub fn at(&self, addr: VirtAddr) -> Option<Mapping> {
        self.mm.held(&self.held).tree().mapping(addr)
    }

    /// The attributes of the mapping that covers `addr`, found as a fault finds them: by its VMA.
    #[inline]
    #[must_use]
    pub fn vma_at(&self, addr: VirtAddr) -> Option<VmaView> {
        let view = self.mm.held(&self.held).at_or_before(addr)?.view();
        view.range.contains(addr).then_some(view)
    }
}

impl<M: Mmu> Mm<M> {
    /// The mappings, held still: `mmap_lock` for reading until dropped.
    ///
    /// # Context
    /// Sleeps for the lock. Its holder calls nothing of this address space that takes it.
    #[inline]
    pub fn mappings(&self) -> Mappings<'_, M> {
        Mappings {
            mm: self,
            held: self.mmap_lock.read(),
        }
    }

    /// What is mapped at `addr`.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    #[inline]
    #[must_use]
    pub fn mapping_at(&self, addr: VirtAddr) -> Option<Mapping> {
        self.mappings().at(addr)
    }

    /// Calls `visit` with each mapping, in order, under `mmap_lock`.
    pub fn for_each_mapping(&self, mut visit: impl FnMut(VirtRange, crate::base::attrs::Prot)) {
        let guard = self.mmap_lock.read();
        self.held(&guard).each(|vma| {
            let view = vma.view();
            visit(view.range, view.prot);
        });
    }

    /// Leaves of the tree of mappings, of at most 18 each: how full they are says how much memory
    /// lookups at random have to go through. Sleeps for `mmap_lock`.
    #[must_use]
    pub fn mapping_leaves(&self) -> usize {
        let guard = self.mmap_lock.read();
        self.held(&guard).tree().leaves()
    }
}
