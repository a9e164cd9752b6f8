//! Swap-in faults.
//!
//! The faulting thread reads the contents with no lock held; then the fault restarts, and finds the
//! same swap entry, or a changed one and starts over. Until then the thread keeps its count on the
//! slot, so the slot still holds the same page ([`crate::memory::swap`]).
//!
//! Linux: mm/memory.c do_swap_page (v6.12), pte_same at its end.

use super::stabilise::{Can, Stable};
use super::{Fault, FaultOutcome, Kind, Signal, Stop, Why};
use crate::base::attrs::Prot;
use crate::base::event::Event;
use crate::base::policy::Policy;
use crate::entry::slot::Lost;
use crate::memory::rss::Moment;
use crate::memory::swap::Sought;
use crate::system::System;
use minflt_addr::Pfn;
use minflt_pgtable::{Access, Grant, Leaf, Mmu, Pte};
use minflt_sync::Ordering;

/// What must be done with no lock held before a page can be swapped in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Away {
    /// The slot is being written.
    Await(u64),
    /// The slot, on which the fault has a count, must be read, to a frame that the memory policy
    /// chooses for this page index.
    Read {
        slot: u64,
        policy: Policy,
        index: u64,
    },
}

/// A frame with the contents of a slot, and a count on that slot.
pub(super) struct Brought<'s, M: Mmu> {
    sys: &'s System<M>,
    slot: u64,
    /// `None` once the frame is mapped.
    pfn: Option<Pfn>,
}

impl<M: Mmu> Drop for Brought<'_, M> {
    fn drop(&mut self) {
        if let Some(pfn) = self.pfn {
            self.sys.frames.put(pfn);
        }
        self.sys.swap.put(self.slot);
    }
}

impl<M: Mmu> Fault<'_, M> {
    /// A fault on an entry, `found`, that names `slot`.
    #[cold]
    #[inline(never)]
    pub(super) fn swap_in(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        found: Pte<M::Paging>,
        slot: u64,
    ) -> Result<Kind, Stop> {
        if stable.can() == Can::Look {
            return Err(Why::NotSupported.into());
        }
        if let Some(brought) = self.brought.take().filter(|brought| brought.slot == slot) {
            return self.map_brought(stable, leaf, found, brought);
        }
        let swap = &self.mm.system().swap;
        let away = match swap.seek(slot) {
            Sought::Gone => return Ok(self.lost(Event::CasAnonRead)),
            Sought::Writing => Away::Await(slot),
            // The PTE is rechecked after counting: before, the slot may have been reused for
            // another page.
            Sought::Counted if leaf.entry.load() == found => Away::Read {
                slot,
                policy: self.policy(stable),
                index: stable.view.page_index::<M::Paging>(self.addr),
            },
            Sought::Counted => {
                swap.put(slot);
                return Ok(self.lost(Event::CasAnonRead));
            }
        };
        self.away.set(Some(away));
        Err(Stop::PageIn)
    }

    /// Does what [`Away`] says.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device.
    pub(super) fn fetch(&self, away: Away) -> Result<(), FaultOutcome> {
        let sys = self.mm.system();
        let (slot, policy, index) = match away {
            Away::Await(slot) => {
                sys.await_slot(slot);
                return Ok(());
            }
            Away::Read {
                slot,
                policy,
                index,
            } => (slot, policy, index),
        };
        let mut brought = Brought {
            sys,
            slot,
            pfn: None,
        };
        let pfn = self.alloc_by(policy, index).ok_or(FaultOutcome::Oom)?;
        // Nobody's yet: the mapping that it is for may go meanwhile.
        let frame = sys.frames.get(pfn);
        frame.mapping.store(0, Ordering::Relaxed);
        frame.maps.store(0, Ordering::Relaxed);
        brought.pfn = Some(pfn);
        if sys.read_slot(slot, pfn).is_err() {
            sys.count(Event::Signals);
            return Err(FaultOutcome::Signal(Signal::Bus));
        }
        self.brought.set(Some(brought));
        Ok(())
    }

    /// Maps the page that was read, if the PTE still names the slot that it was read from.
    ///
    /// # Correctness
    /// The page is exclusive: other sharers of the slot read their own copies. It is mapped dirty,
    /// since the frame is the only copy once the slot is free. The frame's owner and counts are set
    /// before the PTE names it.
    fn map_brought(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        found: Pte<M::Paging>,
        mut brought: Brought<'_, M>,
    ) -> Result<Kind, Stop> {
        let Some(pfn) = brought.pfn else {
            return Ok(Kind::Spurious);
        };
        let sys = self.mm.system();
        self.prepare_own(stable)?;
        let frame = sys.frames.get(pfn);
        self.make_private(stable, frame);
        self.flush_before_install(pfn);
        if sys.counts_late() {
            // That is about pages made by a fault.
            frame.maps.store(1, Ordering::Relaxed);
            frame.refs.store(1, Ordering::Relaxed);
        }
        let unmapped = || {
            frame.maps.store(0, Ordering::Relaxed);
            frame.mapping.store(0, Ordering::Relaxed);
        };
        let slot = stable.open_locked(leaf).inspect_err(|_| unmapped())?;
        let watched = found.is_uffd_wp();
        let stores = self.access == Access::Write && stable.view.prot.has(Prot::WRITE);
        let grant = match stable.view.prot.grant() {
            Grant::Write if !stores || watched => Grant::Read,
            grant => grant,
        };
        let pte = stable.entry_for(pfn, grant).dirty();
        let pte = if watched { pte.uffd_wp() } else { pte };
        match slot.decide(found, pte) {
            Ok(()) => {
                M::note(format_args!("fault {} maps frame {pfn}", self.addr));
                brought.pfn = None;
                self.count_pages(Moment::Slot, 1);
                drop(slot);
                // The entry's.
                sys.swap.put(brought.slot);
                Ok(Kind::SwapIn)
            }
            Err(Lost) => {
                drop(slot);
                unmapped();
                Ok(self.lost(Event::CasAnonRead))
            }
        }
    }
}
