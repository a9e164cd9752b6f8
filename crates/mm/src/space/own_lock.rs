//! The VMA lock supplied by an embedder ([`VmaLockOps`](crate::base::vma_lock_ops::VmaLockOps)).
//!
//! Its words are those that the other forms have: of the count, of the VMA's number and of the
//! address space's.

use crate::base::vma_lock_ops::{VmaLockOps, Word, Words};
use crate::mm::Mm;
use crate::space::vma::Vma;
use core::panic::Location;
use minflt_pgtable::Mmu;
use minflt_sync::lockdep::{self, How};
use minflt_sync::order::VmaLock;
use minflt_sync::{Atomic, Ordering, Refused, TaskId};

/// The lock, held by a fault.
pub(crate) struct OwnGuard<'v, M: Mmu> {
    vma: &'v Vma<M>,
    mm: &'v Mm<M>,
}

/// What a mode gets to see.
struct Seen<'v, M: Mmu> {
    vma: Option<&'v Vma<M>>,
    mm: &'v Mm<M>,
}

impl<'v, M: Mmu> OwnGuard<'v, M> {
    /// Lets a fault in, or not.
    #[inline(never)]
    #[track_caller]
    pub(crate) fn enter(vma: &'v Vma<M>, mm: &'v Mm<M>) -> Result<Self, Refused> {
        let mode = mode(mm).ok_or(Refused::Locked)?;
        if !mode.try_enter(&Seen { vma: Some(vma), mm }) {
            return Err(Refused::Locked);
        }
        lockdep::acquire::<VmaLock, M>(id(vma), How::Tried, Location::caller());
        Ok(Self { vma, mm })
    }
}

impl<M: Mmu> Drop for OwnGuard<'_, M> {
    /// In a read section: a mode may look at its words once more after it let the fault out.
    #[inline(never)]
    fn drop(&mut self) {
        let (vma, mm) = (self.vma, self.mm);
        lockdep::release::<VmaLock, M>(id(vma));
        let section = mm.system().grace_read();
        if let Some(mode) = mode(mm) {
            mode.leave(&Seen { vma: Some(vma), mm });
        }
        drop(section);
    }
}

/// Shuts a VMA for faults, until [`reopen`].
///
/// # Context
/// Under `mmap_lock` for writing, or of a VMA that nobody else has. May sleep.
#[track_caller]
pub(super) fn shut<M: Mmu>(vma: &Vma<M>, mm: &Mm<M>) {
    if let Some(mode) = mode(mm) {
        lockdep::acquire::<VmaLock, M>(id(vma), How::Wait, Location::caller());
        mode.shut(&Seen { vma: Some(vma), mm });
        lockdep::release::<VmaLock, M>(id(vma));
    }
}

/// Lets faults into all VMAs that were shut.
pub(super) fn reopen<M: Mmu>(mm: &Mm<M>) {
    if let Some(mode) = mode(mm) {
        mode.reopen(&Seen { vma: None, mm });
    }
}

fn mode<M: Mmu>(mm: &Mm<M>) -> Option<&'static dyn VmaLockOps> {
    mm.system().config.own_lock.map(|own| own.0)
}

fn id<M: Mmu>(vma: &Vma<M>) -> *const () {
    core::ptr::from_ref(vma).cast()
}

impl<M: Mmu> Seen<'_, M> {
    /// The word. A mode that asks for one of a mapping where there is none gets the address
    /// space's, and is told where runs are checked.
    fn word(&self, word: Word) -> &Atomic<u64, M> {
        match (word, self.vma) {
            (Word::Users, Some(vma)) => vma.refcnt.word(),
            (Word::Mark, Some(vma)) => vma.lock_seq.word(),
            (Word::Space, _) => self.mm.lock_seq.word(),
            (Word::Users | Word::Mark, None) => {
                if M::CHECKED {
                    M::violation(format_args!(
                        "reopen on per-VMA word {word:?} without a VMA"
                    ));
                }
                self.mm.lock_seq.word()
            }
        }
    }
}

impl<M: Mmu> Words for Seen<'_, M> {
    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    fn store(&self, word: Word, value: u64, order: Ordering) {
        self.word(word).store(value, order);
    }

    fn add(&self, word: Word, value: u64, order: Ordering) -> u64 {
        self.word(word).add(value, order)
    }

    fn cas(
        &self,
        word: Word,
        old: u64,
        new: u64,
        ok: Ordering,
        fail: Ordering,
    ) -> Result<u64, u64> {
        self.word(word).cas(old, new, ok, fail)
    }

    fn task(&self) -> u32 {
        minflt_sync::this_task::<M>().0
    }

    fn sleep(&self) {
        M::park();
    }

    fn wake(&self, task: u32) {
        M::unpark(TaskId(task));
    }
}
