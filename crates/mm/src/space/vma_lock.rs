//! The VMA lock: a fault locks one VMA, and never waits for faults on others.
//!
//! # Problem
//! Every fault of an address space read-locks `mmap_lock`: one cache line for all faults, and a
//! wait for every call that changes any VMA. Speculation ([`crate::fault`]) holds no lock, and pays
//! with checks at the end of each fault and with failed attempts.
//!
//! # Idea
//! A fault needs only *its* VMA to stay unchanged. So the lock is in the VMA; the VMA is found
//! without a lock, its lock is only ever tried, and on any conflict the fault falls back to
//! `mmap_lock`.
//!
//! # Protocol
//! A fault, in a read section of the reclamation scheme's domain: look the VMA up, trylock it for
//! reading; then check that it still belongs to this address space and covers the address. Then the
//! section ends, and the lock alone keeps VMA, attributes and tables. A fault never waits for
//! `mmap_lock` with a VMA lock held: it releases the lock, and restarts.
//!
//! A writer holds `mmap_lock` for writing, and write-locks each VMA before it changes or removes it
//! ([`crate::change::writers`]): waits until its faults have left, then gives it the number of the
//! address space. All write locks end together, by advancing that number, before `mmap_lock` is
//! released. A removed VMA is *detached* before that.
//!
//! ```text
//! CPU 0: fault                     CPU 1: munmap
//!                                  mmap_lock, write
//! finds V
//! tries V's lock: inside
//!                                  waits for V's readers
//! installs a page, leaves
//!                                  V.lock_seq = mm.lock_seq
//!                                  V out of the tree; zaps that page; frees tables
//! finds V (in the old tree)        V detached
//! tries: locked, or detached       mm.lock_seq += 1
//! waits for mmap_lock
//! ```
//!
//! | | semaphore ([`VmaLockBy::Rwsem`]) | count ([`VmaLockBy::Count`]) |
//! |---|---|---|
//! | primitive | [`RwSem::try_read_unless`](minflt_sync::RwSem) | [`minflt_sync::RefLock`] |
//! | detached | `mm` is 0 | the count is 0 |
//! | the VMA's memory | stays this VMA until a grace period | may be another VMA at any time |
//! | checks for an anon_vma | at entry | when it has to make one |
//!
//! # Why it is correct
//! The primitives argue for one lock. Beyond that: a VMA is published write-locked, and attached
//! only when it is complete, so no fault uses a half-initialised one (33313a747e81). Under the
//! count, the VMA that a fault found may have been reused: once it is locked, its address space is
//! checked, by a number that is never reused, and then its range; until then only its lock, number
//! and owner are read, which outlive the object
//! ([`SlabObject::KEPT`](minflt_sync::slab::SlabObject)). Nothing of a VMA is accessed after its
//! lock is released: the count's last exchange returns the task to wake, and a semaphore is
//! released inside a read section. Tables below a VMA are freed under its write lock, so a reader
//! may walk and link them. A thread waits for a VMA lock under `mmap_lock`, never the other way
//! round.
//!
//! # Cost
//! A fault: two exchanges on the VMA's line, shared with faults on the same VMA only. Many CPUs in
//! one VMA lose exchanges to each other and repeat them, where `mmap_lock` is taken by an addition
//! that cannot fail: there this lock is the slower one. A writer: one check for each VMA and call,
//! and the wait for faults in progress. Fallback orders without VMA locks pay for the room in the
//! VMA and for a branch in each writer.
//!
//! Linux: mm/mmap_lock.c and include/linux/mmap_lock.h: lock_vma_under_rcu, vma_start_read,
//! vma_start_write, vma_mark_attached, vma_mark_detached (v6.4, v6.15).

use crate::base::attrs::{Prot, VmaView};
use crate::base::config::{NegativeControl, VmaLockBy};
use crate::base::error::NoMemory;
use crate::base::event::Event;
use crate::entry::walk::Tables;
use crate::memory::lifetime::Grace;
use crate::mm::Mm;
use crate::space::own_lock::{self, OwnGuard};
use crate::space::vma::{Attrs, Vma};
use crate::system::System;
use core::marker::PhantomData;
use core::ptr::NonNull;
use minflt_addr::VirtAddr;
use minflt_pgtable::Mmu;
use minflt_sync::order::VmaLock;
use minflt_sync::{Atomic, Newcomers, Ordering, ReadGuard, RefGuard, Refused};

/// A VMA's lock, held for reading.
#[must_use = "the lock is released when the guard is dropped"]
enum VmaGuard<'v, M: Mmu> {
    Rwsem { _guard: Semaphore<'v, M> },
    Count { _guard: RefGuard<'v, VmaLock, M> },
    Own { _guard: OwnGuard<'v, M> },
}

/// The form of Linux 6.4, held for reading.
struct Semaphore<'v, M: Mmu> {
    sys: &'v System<M>,
    guard: Option<ReadGuard<'v, VmaLock, M>>,
}

/// A VMA that was found in a read section of the lifetime's domain.
///
/// # Invariants
/// 1. It is memory of a VMA as long as `'s`: one that is kept whole, or under `type-stable` one
///    that may be freed and be another by now.
pub(crate) struct SeenVma<'s, M: Mmu> {
    at: NonNull<Vma<M>>,
    section: PhantomData<&'s Vma<M>>,
}

/// A VMA whose lock a fault has, until this is dropped.
#[must_use = "the lock is released when this is dropped"]
pub(crate) struct LockedVma<'v, M: Mmu> {
    mm: &'v Mm<M>,
    vma: &'v Vma<M>,
    guard: VmaGuard<'v, M>,
}

impl<M: Mmu> LockedVma<'_, M> {
    /// The VMA, as long as this is borrowed.
    #[inline(always)]
    pub(crate) const fn vma(&self) -> &Vma<M> {
        self.vma
    }

    /// The tables below it: but for those of huge pages, which others may share, and free under
    /// `i_mmap` of their file (P59).
    #[inline(always)]
    pub(crate) const fn tables(&self) -> Tables<'_, M> {
        // SAFETY: 1: who frees tables below a VMA has it write-locked.
        unsafe { Tables::kept(self.mm) }
    }

    /// Whether it is locked by a semaphore.
    #[inline(always)]
    pub(crate) const fn by_semaphore(&self) -> bool {
        matches!(self.guard, VmaGuard::Rwsem { .. })
    }
}

impl<M: Mmu> Mm<M> {
    /// The last VMA that starts at or before `addr`, as a read section finds it.
    #[inline(always)]
    pub(crate) fn seen_at_or_before<'s>(
        &'s self,
        _section: &'s Grace<'_, M>,
        addr: VirtAddr,
    ) -> Option<SeenVma<'s, M>> {
        // SAFETY: 1: in the section, as long as `'s`. Where that keeps nothing (`immediate`) the
        // table of illegal mixes has refused lock modes that get here.
        let at = unsafe { self.tree_at(addr)?.section() }.at_or_before(addr)?;
        let section = PhantomData;
        // INVARIANT: 1: VMAs that are found in a section are freed, or their slab's page is, after
        // it.
        Some(SeenVma { at, section })
    }
}

impl<M: Mmu> Mm<M> {
    /// The tables that a walk in a read section comes to.
    #[inline(always)]
    pub(crate) const fn seen_tables<'s>(&'s self, _section: &'s Grace<'_, M>) -> Tables<'s, M> {
        // SAFETY: 1: begun before the walk, and lasts as long as `'s`.
        unsafe { Tables::kept(self) }
    }
}

impl<'s, M: Mmu> SeenVma<'s, M> {
    /// The VMA, where it is kept whole: lock modes that sample go with no other lifetime. Or for a
    /// control, which looks too early, and where nothing runs at the same time as it does.
    #[inline(always)]
    pub(crate) const fn whole(&self) -> &'s Vma<M> {
        // SAFETY: by the invariant; the table of illegal mixes refuses sampling of VMAs that are
        // not kept whole.
        unsafe { self.at.as_ref() }
    }

    /// Locks the VMA for a fault in `mm`, without waiting. It may be any VMA by now, or none, so
    /// only fields are looked at that outlive it ([`minflt_sync::SlabObject::KEPT`]); what it
    /// covers is for the caller to ask, once inside.
    ///
    /// # Context
    /// The read section may end once this has returned.
    #[inline(always)]
    pub(crate) fn try_read_lock<'v>(
        self,
        by: VmaLockBy,
        mm: &'v Mm<M>,
    ) -> Result<LockedVma<'v, M>, Refused> {
        let vma = self.at.as_ptr();
        // SAFETY: by the invariant memory of a VMA; kept, and atomic.
        let lock_seq = unsafe { &(*vma).lock_seq };
        // SAFETY: as above.
        let owner = unsafe { &(*vma).mm };
        let guard = match by {
            VmaLockBy::Rwsem => {
                // SAFETY: by the invariant, as this lock goes with lifetimes that keep VMAs whole.
                let lock = unsafe { &(*vma).lock };
                let guard = lock.try_read_unless(lock_seq, &mm.lock_seq);
                let _guard = Semaphore {
                    sys: mm.system(),
                    guard: Some(guard.ok_or(Refused::Locked)?),
                };
                VmaGuard::Rwsem { _guard }
            }
            VmaLockBy::Count => {
                // SAFETY: as for the number of its lock.
                let refcnt = unsafe { &(*vma).refcnt };
                let _guard = refcnt.try_read(lock_seq, &mm.lock_seq)?;
                VmaGuard::Count { _guard }
            }
            VmaLockBy::Own => {
                // SAFETY: by the invariant, as this lock goes with lifetimes that keep VMAs whole.
                let _guard = OwnGuard::enter(unsafe { &*vma }, mm)?;
                VmaGuard::Own { _guard }
            }
        };
        is_of(owner, mm)?;
        // SAFETY: locked, and of a tree: a writer that takes it out waits for the lock first, and
        // then frees it.
        let vma = unsafe { &*vma };
        Ok(LockedVma { mm, vma, guard })
    }
}

impl<M: Mmu> Vma<M> {
    /// Write-locks the VMA until [`LockSeq::end_all`](minflt_sync::LockSeq::end_all).
    ///
    /// # Context
    /// Under `mmap_lock` for writing. Sleeps until faults have left the VMA.
    pub(crate) fn write_lock(&self, by: VmaLockBy, mm: &Mm<M>) {
        match by {
            VmaLockBy::Rwsem => self.lock.write_until_end(&self.lock_seq, &mm.lock_seq),
            VmaLockBy::Count => {
                let sys = mm.system();
                let newcomers = if sys.lacks(NegativeControl::WriterLetsReadersIn) {
                    Newcomers::LetIn
                } else {
                    Newcomers::Refused
                };
                let slept = self
                    .refcnt
                    .write_until_end(&self.lock_seq, &mm.lock_seq, newcomers);
                sys.count_n(Event::VmaLockWaits, slept);
            }
            VmaLockBy::Own => own_lock::shut(self, mm),
        }
    }

    /// Makes an unpublished VMA one of `mm`'s, write-locked.
    fn attach(&self, by: VmaLockBy, mm: &Mm<M>) {
        match by {
            _ if mm.system().lacks(NegativeControl::PublishEarly) => {}
            VmaLockBy::Rwsem | VmaLockBy::Count => self.lock_seq.lock(&mm.lock_seq),
            VmaLockBy::Own => own_lock::shut(self, mm),
        }
        self.mm.store(mm.space.0, Ordering::Relaxed);
        if by == VmaLockBy::Count {
            self.refcnt.attach();
        }
    }

    /// Detaches a VMA that was removed from its tree, so that no fault locks it again. The caller
    /// has it write-locked, or is the last user of the address space.
    ///
    /// # Context
    /// May sleep, until faults of other address spaces have noticed that it is not theirs.
    pub(crate) fn detach(&self, by: VmaLockBy, mm: &Mm<M>) {
        self.mm.store(0, Ordering::Relaxed);
        if by == VmaLockBy::Count && self.refcnt.is_attached() {
            let slept = self.refcnt.detach();
            mm.system().count_n(Event::VmaLockWaits, slept);
        }
    }
}

/// Whether a locked VMA still belongs to `mm`, by its owner word.
#[inline(always)]
fn is_of<M: Mmu>(owner: &Atomic<u64, M>, mm: &Mm<M>) -> Result<(), Refused> {
    let trusting = mm.system().lacks(NegativeControl::NoOwnerRecheck);
    match owner.load(Ordering::Relaxed) {
        _ if trusting => Ok(()),
        owner if owner == mm.space.0 => Ok(()),
        0 => Err(Refused::Detached),
        _ => Err(Refused::Locked),
    }
}

impl<M: Mmu> Semaphore<'_, M> {
    /// Apart, or no guard of a VMA's lock would stay in a register.
    #[inline(never)]
    fn end(&mut self) {
        let section = self.sys.grace_read();
        drop(self.guard.take());
        drop(section);
    }
}

impl<M: Mmu> Drop for Semaphore<'_, M> {
    /// A semaphore is read once more after its release, to wake its waiter, which may have woken by
    /// itself and removed the VMA: a read section keeps it. Linux: vma_end_read (v6.4). The count
    /// needs none.
    #[inline(always)]
    fn drop(&mut self) {
        self.end();
    }
}

/// Puts a new VMA, which is whole, into `mm`'s tree, by `put`; write-locked, where the fallback
/// order locks VMAs.
///
/// # Context
/// Under `mmap_lock` for writing.
///
/// # Errors
/// When there is no memory: then the VMA is in no tree, detached, and the caller's to free.
pub(crate) fn insert<M: Mmu>(
    mm: &Mm<M>,
    new: NonNull<Vma<M>>,
    put: impl FnOnce(&Vma<M>) -> Result<(), NoMemory>,
) -> Result<(), NoMemory> {
    let sys = mm.system();
    // SAFETY: the caller's own until it is in the tree, and kept by `mmap_lock` from then on.
    let vma = unsafe { new.as_ref() };
    let early = sys.lacks(NegativeControl::PublishEarly);
    if early {
        publish_half(mm, vma)?;
    }
    let by = sys.config.fallback_order.vma_lock();
    if let Some(by) = by {
        vma.attach(by, mm);
    }
    let inserted = put(vma);
    match (&inserted, by) {
        (Ok(()), _) => mm.count_vmas(1),
        (Err(NoMemory), Some(by)) => vma.detach(by, mm),
        (Err(NoMemory), None) => {}
    }
    if early && let Some(half) = vma.publish_first() {
        // SAFETY: 1: unlinked by the line before.
        unsafe { sys.retire_attrs(half) };
    }
    inserted
}

/// Ends the write locks on all VMAs of an address space.
pub(crate) fn end_all<M: Mmu>(mm: &Mm<M>) {
    match mm.system().config.fallback_order.vma_lock() {
        None => {}
        Some(VmaLockBy::Rwsem | VmaLockBy::Count) => mm.lock_seq.end_all(),
        Some(VmaLockBy::Own) => own_lock::reopen(mm),
    }
}

/// Puts a record in place of the first that does not yet say what may be done there.
fn publish_half<M: Mmu>(mm: &Mm<M>, vma: &Vma<M>) -> Result<(), NoMemory> {
    let view = VmaView {
        prot: Prot::NONE,
        ..vma.view()
    };
    let sys = mm.system();
    let half = sys.attrs.alloc(Attrs::new(view), sys); // For a control.
    vma.publish(half.map_err(|_| NoMemory)?);
    Ok(())
}
