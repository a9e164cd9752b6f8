//! The lock modes of a fault, one function each: takes the lock, runs the phases of the fault, and
//! releases the lock. The phases do not test which mode it is.
//!
//! The guard stays with the function that took it. A guard passed by value is copied in pieces of
//! other sizes than it was stored in, and the processor stalls until those stores reach its cache.

use super::stabilise::{Early, Stable, lock_vma};
use super::{Fault, Kind, Stop};
use crate::base::config::{LockMode, Prefetch};
use crate::base::event::Event;
use crate::base::why::Why;
use crate::memory::rss::Moment;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Phase, Refused};

impl<M: Mmu> Fault<'_, M> {
    /// Tries one mode.
    #[inline(always)]
    pub(super) fn attempt(&self, mode: LockMode) -> Result<Kind, Stop> {
        match mode {
            LockMode::Mmap => self.under_mmap_lock(),
            LockMode::VmaLock => self.under_vma_lock(),
            LockMode::Speculative => self.speculatively(),
        }
    }

    /// Under `mmap_lock`, for reading: sleeps for it, and needs no other mode behind it.
    #[inline(never)]
    fn under_mmap_lock(&self) -> Result<Kind, Stop> {
        M::phase(Phase::Stabilise);
        let guard = self.mm.read_for_fault(self.addr);
        let stable = Stable::under(&guard, self.addr)?;
        let kind = self.finish_held(self.in_order(&stable))?;
        drop(guard);
        Ok(self.finish(kind))
    }

    /// Under the VMA's lock.
    #[inline(never)]
    fn under_vma_lock(&self) -> Result<Kind, Stop> {
        M::phase(Phase::Stabilise);
        let mut early = Early::default();
        let section = self.mm.system().grace_read();
        let locked = loop {
            match lock_vma(&section, self.mm, self.addr, &mut early) {
                Ok(locked) => break locked,
                // Taken out meanwhile: the tree no longer has it.
                Err(Refused::Detached) => self.mm.system().count(Event::VmaLockMiss),
                Err(Refused::Locked) => return Err(Why::VmaLocked.into()),
            }
        };
        drop(section);
        let stable = Stable::locked(&locked, &early, self.addr)?;
        let kind = self.finish_held(self.in_order(&stable))?;
        drop(locked);
        Ok(self.finish(kind))
    }

    /// Under nothing but a read section, with a count that must not change until the slot is open.
    #[inline(never)]
    fn speculatively(&self) -> Result<Kind, Stop> {
        M::phase(Phase::Stabilise);
        let section = self.mm.system().grace_read();
        let stable = Stable::sampled(&section, self.mm, self.addr)?;
        let kind = self.finish_held(self.in_order(&stable))?;
        drop(section);
        Ok(self.finish(kind))
    }

    /// Resolves the fault with the lock held, by kind of mapping. Each function called here reads:
    /// prepare; open; commit; finish.
    #[inline(always)]
    pub(super) fn in_order(&self, stable: &Stable<'_, M>) -> Result<Kind, Stop> {
        stable.check_access(self.tried)?;
        M::phase(Phase::Prepare);
        match stable.view.file.is_file() {
            false => self.anon(stable),
            true if stable.view.is_huge() => self.huge(stable),
            true => self.file(stable),
        }
    }

    /// What is left to do before the lock is released.
    #[inline(always)]
    fn finish_held(&self, kind: Result<Kind, Stop>) -> Result<Kind, Stop> {
        M::phase(Phase::Finish);
        if let Ok(kind) = kind {
            self.count_mapped(Moment::Hold, kind);
        }
        kind
    }

    /// What is left to do after all locks are released.
    #[inline(always)]
    fn finish(&self, kind: Kind) -> Kind {
        self.count_mapped(Moment::After, kind);
        if kind.takes_a_frame() {
            self.look_ahead();
        }
        kind
    }

    /// Prefetches what a later fault will need. Done after all locks are released: a locked
    /// instruction waits for earlier prefetches to be translated, and before the next one come
    /// kernel exit, the access and kernel entry.
    #[inline(always)]
    fn look_ahead(&self) {
        let sys = self.mm.system();
        if sys.config.prefetch == Prefetch::Frame {
            // What is filled is asked for when the frame before it is.
            let offset = self.addr.page_offset(M::Paging::shift());
            let offset = (!self.filled.get()).then_some(offset);
            sys.frames.prefetch_coming(&sys.at, offset);
        }
    }

    /// A page that the fault mapped is counted, if this is the moment for it.
    #[inline(always)]
    pub(super) fn count_mapped(&self, moment: Moment, kind: Kind) {
        if kind.maps_a_frame() {
            self.count_pages(moment, 1);
        }
    }

    /// More pages are resident, and counted if this is the moment for it.
    #[inline(always)]
    pub(super) fn count_pages(&self, moment: Moment, pages: i64) {
        self.mm.count_at(moment, self.share, pages);
    }
}
