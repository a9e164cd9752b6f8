//! Swap-in faults.
//!
//! The contents are read with nothing held, by who wants them first; then the fault starts again,
//! and finds the same slot in the entry, or is told to begin anew. What it counted in the slot it
//! keeps until then: so the slot is the same page's ([`crate::memory::swap`]).
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

/// What has to be done with nothing held before a page can come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Away {
    /// The slot is being written.
    Await(u64),
    /// The slot, in which the fault counts, is to be read, to a frame as the policy chooses one for
    /// a page of this number.
    Read {
        slot: u64,
        policy: Policy,
        index: u64,
    },
}

/// A frame with the contents of a slot, in which its owner counts.
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
            // Only now: what was counted before may have been another page's by then.
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

    /// Puts in what was read, if the entry still names the slot that it was read from.
    ///
    /// # Correctness
    /// The page is nobody else's: others that name the slot read it for themselves. It is marked
    /// as stored to, since nothing but the frame has it once the slot is free. The frame says whose
    /// it is, and has its counts, before the entry names it.
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
        let pte = Pte::page(pfn, grant).dirty();
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
