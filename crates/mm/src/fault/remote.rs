//! Pages for a debugger or driver (get_user_pages): does what a fault does, without the access.
//!
//! The page is looked up under `mmap_lock` and the page-table lock. If it is present and usable, a
//! reference is taken before the locks are released; if not, it is faulted in and looked up again.
//!
//! A *forced* access ignores the mapping's protection, and writes only to a page that was first
//! made private to the address space. So a forced write never reaches a page with another user:
//! only *exclusive* proves that there is none (CVE-2016-5195, CVE-2022-2590).
//!
//! A *pin for loads* of a private mapping must see the owner's later stores, so it pins a page of
//! the address space's own: a page shared with a file or with a child, and the zero page, are
//! copied first.
//!
//! For huge pages see [`remote_huge`](super::remote_huge).
//!
//! Linux: mm/gup.c check_vma_flags, follow_page_pte, can_follow_write_pte, gup_must_unshare,
//! faultin_page (v6.12); 84209e87c696.

use super::anon::Own;
use super::stabilise::Stable;
use super::{Fault, FaultOutcome, Kind, Signal, Stop};
use crate::base::attrs::{Prot, VmaFlags};
use crate::base::config::NegativeControl;
use crate::base::error::RemoteError;
use crate::base::event::Event;
use crate::entry::slot::{Lost, Slot};
use crate::memory::frame::PIN;
use crate::memory::rss::Moment;
use crate::memory::rss::Share;
use crate::mm::Mm;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{Access, Grant, Leaf, Mmu, Pte, with_bits};

/// Whether an access is forced on a mapping that does not allow it (`FOLL_FORCE`): a debugger's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Force {
    /// What the mapping does not allow is an error.
    No,
    /// It is done, and a stack grows to it. A write then reaches a page that only this address
    /// space has.
    Yes,
}

/// How a page is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// By a reference, for a moment: the page may become another's.
    Reference,
    /// Pinned: the page stays this address space's own.
    Pin,
}

/// A page that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldPage {
    /// Where its contents are.
    pub(crate) pfn: Pfn,
    /// The frame that has the holder's references: of a huge page the first.
    pub(crate) first: Pfn,
}

impl HeldPage {
    /// A page of one frame.
    pub(crate) const fn small(pfn: Pfn) -> Self {
        Self { pfn, first: pfn }
    }
}

impl<M: Mmu> Mm<M> {
    /// The page at `addr`, faulted in if need be, and held. The shared zero page needs no holding.
    ///
    /// # Context
    /// Holds nothing. Sleeps for `mmap_lock`.
    #[cold]
    pub(crate) fn hold_page(
        &self,
        addr: VirtAddr,
        access: Access,
        force: Force,
        held: Held,
    ) -> Result<HeldPage, RemoteError> {
        // The caller is no thread of this address space, so it has no share in its counts.
        let share = Share::default();
        let mut fault = Fault::new(self, &share, addr, access);
        let page = loop {
            match fault.hold(force, held) {
                Ok(Some(page)) => break Ok(page),
                Ok(None) if self.system().lacks(NegativeControl::ForceTrustsFault) => {
                    fault = Fault::new(self, &share, addr, Access::Read);
                }
                Ok(None) => {}
                Err(Stop::Userfault) => self.await_wake(),
                Err(Stop::Moving(pfn)) => self.system().await_move(pfn),
                Err(Stop::PageIn) => match fault.page_in() {
                    Ok(()) => {}
                    Err(FaultOutcome::Oom) => break Err(RemoteError::NoMemory),
                    Err(_) => break Err(RemoteError::Fault),
                },
                // Linux: mm/memory.c __access_remote_vm, which alone grows stacks.
                Err(Stop::Signal(Signal::MapErr))
                    if force == Force::Yes && self.expand_stack(addr).is_ok() => {}
                Err(Stop::Signal(_)) => break Err(RemoteError::Fault),
                Err(Stop::Oom | Stop::Retry(_)) => break Err(RemoteError::NoMemory),
            }
        };
        self.rss.sync(&share);
        page
    }
}

impl<M: Mmu> Fault<'_, M> {
    /// One lookup; `None` if the page had to be faulted in and must be looked up again.
    fn hold(&self, force: Force, held: Held) -> Result<Option<HeldPage>, Stop> {
        let guard = self.mm.read_for_fault(self.addr);
        let stable = Stable::under(&guard, self.addr)?;
        let allowed = stable.view.prot.has(match self.access {
            Access::Read | Access::Execute => Prot::READ,
            Access::Write => Prot::WRITE,
        });
        // Pages of a shared mapping are never exclusive.
        let shared = stable.view.flags.has(VmaFlags::SHARED);
        let own = self.access == Access::Read || !shared;
        if !allowed && (force == Force::No || !own) {
            return Err(Stop::Signal(Signal::AccErr));
        }
        let huge = stable.view.is_huge();
        let found = match huge {
            true => self.hold_huge_now(&stable, held)?,
            false => self.hold_now(&stable, held)?,
        };
        if found.is_some() {
            return Ok(found);
        }
        let kind = if huge {
            self.bring_huge(&stable, held)?
        } else if allowed && !self.wants_own(&stable, held) {
            self.in_order(&stable)?
        } else {
            self.bring(&stable, held)?
        };
        drop(guard);
        let sys = self.mm.system();
        self.count_mapped(Moment::Hold, kind);
        self.count_mapped(Moment::After, kind);
        if kind != Kind::Spurious {
            sys.count(Event::MinorFaults);
            sys.count(kind.event());
        }
        Ok(None)
    }

    /// Whether a page that is only read has to be the address space's own: it would go on reading
    /// what the owner's next store left behind. What a shared mapping has is never its own, and
    /// stores go there.
    pub(super) fn wants_own(&self, stable: &Stable<'_, M>, held: Held) -> bool {
        let sys = self.mm.system();
        held == Held::Pin
            && self.access == Access::Read
            && !stable.view.flags.has(VmaFlags::SHARED)
            && !sys.lacks(NegativeControl::PinsShared)
            // Its second look is for a load, and takes what it finds.
            && !sys.lacks(NegativeControl::ForceTrustsFault)
    }

    /// The references that a holder takes.
    pub(super) fn references(&self, held: Held) -> u32 {
        match held {
            Held::Reference => 1,
            Held::Pin => {
                self.mm.pins.first();
                PIN
            }
        }
    }

    /// Holds the page, if it is there and will do.
    fn hold_now(&self, stable: &Stable<'_, M>, held: Held) -> Result<Option<HeldPage>, Stop> {
        let sys = self.mm.system();
        let Some(leaf) = stable.tables().leaf(self.addr) else {
            return Ok(None);
        };
        let slot = stable.open_locked(leaf)?;
        let found = slot.value();
        if !found.is_mapped() || !self.will_do(stable, found, held) {
            return Ok(None);
        }
        let page = HeldPage::small(found.pfn());
        if found.is_zero_page() {
            return Ok(Some(page));
        }
        // What is written through the page shall be found in it.
        if slot.decide(found, with_bits(found, self.access)).is_err() {
            return Ok(None);
        }
        if !sys.frames.hold(found.pfn(), self.references(held)) {
            return Err(Stop::Oom);
        }
        Ok(Some(page))
    }

    fn will_do(&self, stable: &Stable<'_, M>, found: Pte<M::Paging>, held: Held) -> bool {
        let exclusive = || {
            let frame = self.mm.system().frames.get(found.pfn());
            !found.is_zero_page() && frame.is_exclusive()
        };
        match self.access {
            Access::Read | Access::Execute => {
                let private = || exclusive() && !self.mm.system().is_of_file(found);
                !self.wants_own(stable, held) || private()
            }
            Access::Write if found.grant() == Grant::Write => true,
            // Where stores are allowed the entry has to say so.
            Access::Write => {
                !stable.view.prot.has(Prot::WRITE) && exclusive() && !found.is_uffd_wp()
            }
        }
    }

    /// Brings the page and makes it the address space's own, granting no more than the mapping
    /// does, and no store.
    #[cold]
    fn bring(&self, stable: &Stable<'_, M>, held: Held) -> Result<Kind, Stop> {
        let leaf = self.leaf(stable)?;
        let grant = stable.view.prot.grant().min(Grant::Read);
        if stable.view.file.is_file() {
            return self.bring_page(stable, leaf, (grant, held));
        }
        let owns = self.access == Access::Write || self.wants_own(stable, held);
        let found = leaf.entry.sample();
        if stable.view.uffd != 0 {
            // Linux: do_anonymous_page, which asks when all is prepared.
            if owns && found.is_none() {
                self.prepare_own(stable)?;
            }
            self.userfault(stable, found)?;
        }
        if !found.is_mapped() && !found.is_none() {
            return self.away(stable, leaf, found);
        }
        match owns {
            false if found.is_none() => self.bring_zeros(stable, leaf, grant),
            true if found.is_none() => self.bring_frame(stable, leaf, grant),
            true if found.is_zero_page() => {
                self.prepare_own(stable)?;
                self.write_zero_page(stable, leaf, found, grant)
            }
            false => Ok(Kind::Spurious),
            true => {
                self.prepare_own(stable)?;
                Ok(match self.own(stable, leaf, found, grant)? {
                    Own::Changed(kind) => kind,
                    Own::Exclusive(slot) => self.unmark(&slot, found),
                })
            }
        }
    }

    /// A store to a userfaultfd-protected page that has no handler: clears the bit, or the next
    /// lookup would find it again, without end.
    fn unmark(&self, slot: &Slot<'_, M>, found: Pte<M::Paging>) -> Kind {
        let marked = self.access == Access::Write && found.is_uffd_wp();
        if marked && slot.decide(found, found.without_uffd_wp()).is_err() {
            return self.lost(Event::CasFlags);
        }
        Kind::Spurious
    }

    /// A page of its own needs an anon_vma; zeros do not.
    pub(super) fn prepare_own(&self, stable: &Stable<'_, M>) -> Result<(), Stop> {
        stable.prepare_anon_vma_once()
    }

    fn bring_zeros(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        grant: Grant,
    ) -> Result<Kind, Stop> {
        let zero = self.mm.system().zero_page;
        let pte = stable.entry_for(zero, grant).zero_page();
        Ok(match stable.open(leaf)?.install(pte) {
            Ok(()) => Kind::AnonRead,
            Err(Lost) => self.lost(Event::CasAnonRead),
        })
    }

    fn bring_frame(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        grant: Grant,
    ) -> Result<Kind, Stop> {
        self.prepare_own(stable)?;
        let pfn = self.fresh_frame(stable)?;
        let slot = self.open_with(stable, leaf, pfn)?;
        match slot.install(stable.entry_for(pfn, grant).dirty()) {
            Ok(()) => {
                self.finish_slot(slot, pfn);
                Ok(Kind::AnonWrite)
            }
            Err(Lost) => {
                drop(slot);
                self.undo_frame(pfn);
                Ok(self.lost(Event::CasAnonWrite))
            }
        }
    }
}
