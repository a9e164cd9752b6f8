//! *Open* and *commit*: the locked PTE of a fault, and the operations on it.
//!
//! Under `mmap_lock` or the VMA lock no writer frees page tables or changes the VMA: the locked PTE
//! needs the page-table lock only, or nothing. The rest concerns faults that hold neither.
//!
//! # Problem
//! A speculative fault holds no lock that excludes munmap and mprotect, and must commit only if
//! neither has run.
//!
//! # Idea
//! Take the page-table lock, which every zap of the table takes, *then* check whether the VMA
//! changed. From then on a zap must wait for the fault and will find its PTE.
//!
//! # Protocol (speculative)
//! ```text
//! interrupts off
//!   sequence changed?       -> fall back
//!   table entry changed?    -> fall back
//!   trylock, taken?         -> fall back: the holder may be waiting for this CPU to
//!                              acknowledge, which it cannot with interrupts off
//!   sequence changed?       -> fall back
//! interrupts on, lock held
//! ```
//!
//! # Why it is correct
//! munmap makes the count odd before it zaps under the lock. If we see an even, unchanged count
//! with the lock held, the zap of this table is still to come, and will unmap the page that the
//! fault installs. A sequence check followed by a bare exchange has no such point in time, which is
//! why that combination is refused.
//!
//! # Cost
//! Two loads of the VMA's line and one of the table entry's, in addition to the lock.
//!
//! Linux: pte_map_lock and pte_spinlock of the speculative series (v6 to v11).

use crate::base::config::{NegativeControl, Protocol};
use crate::base::why::Why;
use crate::entry::shootdown;
use crate::mm::Mm;
use minflt_addr::{Pfn, VirtRange};
use minflt_pgtable::{Exchange, Grant, Leaf, Mmu, PtLock, Pte};
use minflt_sync::order::PageTableLock;
use minflt_sync::{Phase, Seq, SeqCount, SpinGuard};

/// The right to change one entry.
pub(crate) struct Slot<'s, M: Mmu> {
    mm: &'s Mm<M>,
    leaf: Leaf<'s, M>,
    lock: Option<SpinGuard<'s, (), PageTableLock, M>>,
}

/// How the thread that opens a slot holds the VMA, and with it the tables.
pub(crate) enum Hold<'s, M: Mmu> {
    /// Nobody changes the VMA or frees a table below it.
    Kept,
    /// Somebody may, and has, if this count is not what it was.
    Sampled(&'s SeqCount<M>, Seq),
}

/// Another thread changed the entry first; holds its current value.
pub(crate) struct Lost;

impl<M: Mmu> Clone for Hold<'_, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mmu> Copy for Hold<'_, M> {}

impl<M: Mmu> Hold<'_, M> {
    /// That what was sampled still holds.
    ///
    /// # Errors
    /// A writer came.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Why> {
        match self {
            Self::Sampled(count, seq) if count.changed(*seq) => Err(Why::VmaChanged),
            _ => Ok(()),
        }
    }
}

impl<'s, M: Mmu> Slot<'s, M> {
    /// Opens the PTE of `leaf`, as the protocol requires.
    ///
    /// # Errors
    /// For a speculative fault: the sampled state changed, or the page-table lock is taken.
    #[inline(always)]
    pub(crate) fn open(mm: &'s Mm<M>, leaf: Leaf<'s, M>, hold: Hold<'s, M>) -> Result<Self, Why> {
        match mm.system().config.protocol {
            Protocol::CompareExchange => Self::open_by(mm, leaf, hold, None),
            Protocol::MmLock | Protocol::TableLock => Self::open_locked(mm, leaf, hold),
        }
    }

    /// Opens the slot of `leaf` under the lock that a zap takes, whatever the protocol.
    ///
    /// # Errors
    /// As [`Self::open`].
    #[inline(always)]
    pub(crate) fn open_locked(
        mm: &'s Mm<M>,
        leaf: Leaf<'s, M>,
        hold: Hold<'s, M>,
    ) -> Result<Self, Why> {
        Self::open_by(mm, leaf, hold, Some(mm.table_lock(leaf.table)))
    }

    #[inline(always)]
    fn open_by(
        mm: &'s Mm<M>,
        leaf: Leaf<'s, M>,
        hold: Hold<'s, M>,
        lock: Option<&'s PtLock<M>>,
    ) -> Result<Self, Why> {
        M::phase(Phase::Open);
        let lock = match hold {
            Hold::Kept => lock.map(PtLock::lock),
            Hold::Sampled(..) => {
                let irq = M::irq_save();
                let lock = Self::try_lock_and_check(mm, leaf, hold, lock);
                M::irq_restore(irq);
                lock?
            }
        };
        M::phase(Phase::Commit);
        Ok(Slot { mm, leaf, lock })
    }

    #[inline(always)]
    fn try_lock_and_check(
        mm: &'s Mm<M>,
        leaf: Leaf<'s, M>,
        hold: Hold<'s, M>,
        lock: Option<&'s PtLock<M>>,
    ) -> Result<Option<SpinGuard<'s, (), PageTableLock, M>>, Why> {
        let sys = mm.system();
        let trusting = sys.lacks(NegativeControl::NoRevalidate);
        if !trusting {
            hold.check()?;
            if leaf.parent.load() != leaf.parent_value {
                return Err(Why::PmdChanged);
            }
        }
        let guard = match lock {
            None => None,
            Some(lock) if sys.lacks(NegativeControl::SpinForTableLock) => loop {
                if let Some(guard) = lock.try_lock() {
                    break Some(guard);
                }
                lock.wait_free();
            },
            Some(lock) => Some(lock.try_lock().ok_or(Why::PteLock)?),
        };
        if !trusting {
            hold.check()?;
        }
        Ok(guard)
    }
}

impl<M: Mmu> Slot<'_, M> {
    /// Fills an empty entry.
    #[inline(always)]
    pub(crate) fn install(&self, new: Pte<M::Paging>) -> Result<(), Lost> {
        if self.lock.is_none() {
            let how = self.mm.exchange();
            return self.leaf.entry.cas(how, Pte::none(), new).map_err(|_| Lost);
        }
        if !self.leaf.entry.load().is_none() {
            return Err(Lost);
        }
        self.leaf.entry.store(new);
        Ok(())
    }

    /// The table that the entry is in.
    pub(crate) const fn table(&self) -> Pfn {
        self.leaf.table
    }

    /// The entry's value, on which the fault decides.
    pub(crate) fn value(&self) -> Pte<M::Paging> {
        self.leaf.entry.sample()
    }

    /// Whether the entry still has the sampled value: decisions after this are based on the current
    /// value.
    pub(crate) fn holds(&self, sampled: Pte<M::Paging>) -> bool {
        self.leaf.entry.sample() == sampled
    }

    /// Changes the entry from the value sampled, by a decision that rests on other words, too:
    /// what its frame says, what was read from a device. An entry that came to name another page
    /// and this one again, after it was sampled, is a violation where that is checked.
    pub(crate) fn decide(&self, old: Pte<M::Paging>, new: Pte<M::Paging>) -> Result<(), Lost> {
        let done = self.leaf.entry.decide(self.how(), old, new);
        done.map_err(|_| Lost)
    }

    /// Changes bits of a present entry from the value sampled, by what the value itself says; it
    /// does not matter how often it has changed in between.
    pub(crate) fn change(&self, old: Pte<M::Paging>, new: Pte<M::Paging>) -> Result<(), Lost> {
        self.leaf.entry.cas(self.how(), old, new).map_err(|_| Lost)
    }

    /// Makes a present entry name another frame. The slot was opened by [`Slot::open_locked`].
    ///
    /// # Races
    /// If the new frame were reachable before the TLB flush of the old one, one CPU could store to
    /// the new frame while another still loads from the old one. So the PTE is first made
    /// `PROT_NONE`, TLBs are flushed, and only then does it name the new frame. Under the lock in
    /// every protocol (the 2004 postings kept it for every copy): two faults that replace the same
    /// page by exchanges alone could each take the other's `PROT_NONE` for their own. A fault that
    /// finds the `PROT_NONE` PTE waits for the lock.
    ///
    /// Linux: ptep_clear_flush in do_wp_page, before the copy is installed.
    pub(crate) fn replace(
        &self,
        old: Pte<M::Paging>,
        new: Pte<M::Paging>,
        page: VirtRange,
    ) -> Result<(), Lost> {
        let (sys, mm) = (self.mm.system(), self.mm);
        if sys.lacks(NegativeControl::ReplaceBeforeFlush) {
            self.change(old, new)?;
            shootdown::flush(sys, mm, page);
            return Ok(());
        }
        let gone = old.with_grant(Grant::Nothing);
        self.change(old, gone)?;
        shootdown::flush(sys, mm, page);
        self.leaf.entry.store(new);
        Ok(())
    }

    fn how(&self) -> Exchange<'_, M> {
        match self.lock {
            Some(_) => self.mm.exchange_under_lock(),
            None => self.mm.exchange(),
        }
    }
}
