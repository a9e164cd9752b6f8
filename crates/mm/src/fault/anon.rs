//! Anonymous faults: what the PTE holds, and how the fault resolves it.
//!
//! ```text
//! found            load                    store
//! none             the zero page           a zeroed frame, writable and dirty
//! zero page        -                       a zeroed frame in its place, with a TLB flush
//! read-only page   -                       writable if it is exclusive or has no other user,
//!                                          else a copy in its place, with a TLB flush
//! PROT_NONE page   a hinting fault ([`numa`]), for both
//! else             accessed bit            accessed and dirty bit
//! ```
//! The PTE is read once. The fault compares with, and builds from, that one value.
//!
//! [`numa`]: super::numa

use super::stabilise::Stable;
use super::{Fault, Kind, Stop};
use crate::base::config::NegativeControl;
use crate::base::event::Event;
use crate::entry::slot::{Lost, Slot};
use crate::entry::table;
use crate::memory::frame::{Exclusive, Use};
use crate::memory::rss::Moment;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Access, Grant, Leaf, Mmu, Paging, Pte, with_bits};
use minflt_sync::{Ordering, Phase};

/// How a page was made the address space's own.
pub(super) enum Own<'s, M: Mmu> {
    /// It is exclusive, for as long as this slot is open.
    Exclusive(Slot<'s, M>),
    /// The entry was changed, or was changed by another before.
    Changed(Kind),
}

impl<M: Mmu> Fault<'_, M> {
    #[inline(always)]
    pub(super) fn anon(&self, stable: &Stable<'_, M>) -> Result<Kind, Stop> {
        // A userfaultfd mapping is prepared once the PTE's value is known.
        if stable.view.uffd == 0 {
            self.prepare_anon(stable)?;
        }
        let leaf = self.leaf(stable)?;
        let found = leaf.entry.sample();
        if stable.view.uffd != 0 {
            self.watched(stable, found)?;
        }
        table::is_table(self.mm.system(), leaf.table);
        if found.is_mapped() && !found.is_present() {
            return self.hint(stable, leaf, found);
        }
        match self.access {
            Access::Read if found.is_none() => self.read_nothing(stable, leaf),
            Access::Write if found.is_none() => self.write_nothing(stable, leaf),
            Access::Write if found.is_present() && found.is_zero_page() => {
                self.write_zero_page(stable, leaf, found, Grant::Write)
            }
            Access::Write if found.is_present() && found.grant() < Grant::Write => {
                self.write_protected(stable, leaf, found)
            }
            _ => self.set_flags(stable, leaf, found),
        }
    }

    /// Asks the userfaultfd handler, and prepares the fault if the handler need not act. Linux:
    /// do_anonymous_page asks when all is prepared, do_wp_page before.
    #[cold]
    fn watched(&self, stable: &Stable<'_, M>, found: Pte<M::Paging>) -> Result<(), Stop> {
        if found.is_none() {
            self.prepare_anon(stable)?;
            return self.userfault(stable, found);
        }
        self.userfault(stable, found)?;
        self.prepare_anon(stable)
    }

    /// Linux: do_anonymous_page, a load.
    #[inline(never)]
    fn read_nothing(&self, stable: &Stable<'_, M>, leaf: Leaf<'_, M>) -> Result<Kind, Stop> {
        let zero = self.mm.system().zero_page;
        let pte = stable.entry_for(zero, Grant::Read).zero_page();
        Ok(match stable.open(leaf)?.install(pte) {
            Ok(()) => Kind::AnonRead,
            Err(Lost) => self.lost(Event::CasAnonRead),
        })
    }

    /// Linux: do_anonymous_page, a store.
    #[inline(always)]
    fn write_nothing(&self, stable: &Stable<'_, M>, leaf: Leaf<'_, M>) -> Result<Kind, Stop> {
        let pfn = self.fresh_frame(stable)?;
        let slot = self.open_with(stable, leaf, pfn)?;
        let pte = stable.entry_for(pfn, Grant::Write).dirty();
        match slot.install(pte) {
            Ok(()) => {
                M::note(format_args!("fault {} installs frame {pfn}", self.addr));
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

    /// Linux: do_wp_page on the zero page.
    #[inline(never)]
    pub(super) fn write_zero_page(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        found: Pte<M::Paging>,
        grant: Grant,
    ) -> Result<Kind, Stop> {
        let pfn = self.fresh_frame(stable)?;
        let slot = stable
            .open_locked(leaf)
            .inspect_err(|_| self.undo_frame(pfn))?;
        let pte = self.watched_as(found, stable.entry_for(pfn, grant).dirty());
        match slot.replace(found, pte, self.page()) {
            Ok(()) => {
                self.finish_slot(slot, pfn);
                Ok(Kind::ZeroPageCow)
            }
            Err(Lost) => {
                drop(slot);
                self.undo_frame(pfn);
                Ok(self.lost(Event::CasAnonWrite))
            }
        }
    }

    /// A store to a read-only page although the mapping allows stores: fork write-protected it, or
    /// mprotect did and was reverted.
    ///
    /// # Correctness
    /// The PTE is reread, the page's exclusive flag is tested, and the PTE is exchanged, all in one
    /// critical section of the page-table lock, whatever the protocol (P58). While the PTE names
    /// the page under that lock, the page does not migrate, and only fork makes an exclusive page
    /// shared; fork excludes this fault or is noticed by it. A test before the lock proves nothing:
    /// the page may have migrated away and back, so that the PTE is equal bit by bit, and meanwhile
    /// the new frame is marked *exclusive* until the migrating thread has copied the old frame's
    /// flag.
    ///
    /// Whether a page that is no longer exclusive has another user is decided by its *reference
    /// count*: the map count drops before the TLB flush of the other address space, the reference
    /// after it (P46). Any other reference holder keeps the contents that it saw.
    ///
    /// Linux: do_wp_page, wp_can_reuse_anon_folio.
    #[inline(never)]
    pub(super) fn write_protected(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        found: Pte<M::Paging>,
    ) -> Result<Kind, Stop> {
        let sys = self.mm.system();
        if sys.lacks(NegativeControl::ExclusiveBeforeLock)
            && sys.frames.get(found.pfn()).is_exclusive()
        {
            return Ok(self.reuse(&stable.open(leaf)?, found));
        }
        match self.own(stable, leaf, found, Grant::Write)? {
            Own::Exclusive(slot) => Ok(self.reuse(&slot, found)),
            Own::Changed(kind) => Ok(kind),
        }
    }

    /// Makes the page that the entry names the address space's own: it is, or it becomes exclusive,
    /// or it is copied; a copy grants `grant`.
    #[inline(always)]
    pub(super) fn own<'s>(
        &self,
        stable: &'s Stable<'_, M>,
        leaf: Leaf<'s, M>,
        found: Pte<M::Paging>,
        grant: Grant,
    ) -> Result<Own<'s, M>, Stop> {
        let sys = self.mm.system();
        let slot = stable.open_locked(leaf)?;
        if !slot.holds(found) {
            return Ok(Own::Changed(self.lost(Event::CasReuse)));
        }
        let frame = sys.frames.get(found.pfn());
        if frame.is_exclusive() {
            return Ok(Own::Exclusive(slot));
        }
        // ORDERING: Acquire; pairs with [frame-put].
        let mut users = frame.refs.load(Ordering::Acquire);
        if sys.lacks(NegativeControl::ReuseByMapCount) {
            users = frame.maps.load(Ordering::Acquire);
        }
        if users == 1 && frame.used_as() == Use::Anon {
            let own = stable.vma.anon_vma.load(Ordering::Relaxed);
            frame.mapping.store(own, Ordering::Relaxed);
            frame.set_exclusive(Exclusive::Yes);
            return Ok(Own::Exclusive(slot));
        }
        // Ours while we copy.
        frame.refs.add(1, Ordering::Relaxed);
        drop(slot);
        let kind = self.copy(stable, leaf, found, grant);
        // And the mapping's, if it has another page now.
        let done_with = if kind == Ok(Kind::Cow) { 2 } else { 1 };
        sys.frames.put_many(found.pfn(), done_with);
        kind.map(Own::Changed)
    }

    /// A copy in place of a page that the caller refers to; the mapping's reference is the caller's
    /// to put back, too. Linux: wp_page_copy.
    #[inline(never)]
    fn copy(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        found: Pte<M::Paging>,
        grant: Grant,
    ) -> Result<Kind, Stop> {
        let (sys, from) = (self.mm.system(), found.pfn());
        let (pfn, _) = self.private_frame(stable)?;
        match sys.frames.get(from).used_as() {
            // Others may store to it, by other mappings.
            Use::File => M::copy_in_use(&sys.at, pfn, from),
            _ => {
                sys.frames.copy(&sys.at, pfn, from);
                self.filled.set(true);
            }
        }
        self.flush_before_install(pfn);
        let slot = stable
            .open_locked(leaf)
            .inspect_err(|_| self.undo_frame(pfn))?;
        let pte = self.watched_as(found, stable.entry_for(pfn, grant).dirty());
        if slot.replace(found, pte, self.page()).is_err() {
            drop(slot);
            self.undo_frame(pfn);
            return Ok(self.lost(Event::CasCow));
        }
        M::note(format_args!("fault {} copies {from} to {pfn}", self.addr));
        // ORDERING: AcqRel; no pair: the count is compared with itself only.
        if sys.frames.get(from).maps.sub(1, Ordering::AcqRel) == 0 {
            M::violation(format_args!("map count underflow of frame {from}"));
        }
        drop(slot);
        self.count_late(pfn);
        Ok(Kind::Cow)
    }

    /// The entry for a page in place of another, which a handler's mark was on: a store was allowed
    /// before it came here, a pin for loads changes nothing for the handler.
    fn watched_as(&self, found: Pte<M::Paging>, new: Pte<M::Paging>) -> Pte<M::Paging> {
        match self.access == Access::Read && found.is_uffd_wp() {
            true => new.uffd_wp(),
            false => new,
        }
    }

    /// Linux: wp_page_reuse. The posting's V16 did this by exchange too.
    ///
    /// A userfaultfd write-protect bit that is still set has no handler, or the fault would wait.
    /// It is cleared, so that the next handler does not see the page as protected.
    #[inline(always)]
    fn reuse(&self, slot: &Slot<'_, M>, found: Pte<M::Paging>) -> Kind {
        let allowed = found.with_grant(Grant::Write).without_uffd_wp();
        let pte = with_bits(allowed, Access::Write);
        match slot.decide(found, pte) {
            Ok(()) => Kind::Reuse,
            Err(Lost) => self.lost(Event::CasReuse),
        }
    }

    /// The entry allows the access: set what is missing; the access is tried again either way.
    #[inline(never)]
    pub(super) fn set_flags(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        found: Pte<M::Paging>,
    ) -> Result<Kind, Stop> {
        if !found.is_mapped() {
            return self.away(stable, leaf, found);
        }
        let pte = with_bits(found, self.access);
        if pte != found {
            match stable.open(leaf)?.change(found, pte) {
                Ok(()) => {}
                Err(Lost) => return Ok(self.lost(Event::CasFlags)),
            }
        }
        Ok(Kind::Spurious)
    }

    /// Opens the slot, or gives the frame back.
    #[inline(always)]
    pub(super) fn open_with<'s>(
        &self,
        stable: &'s Stable<'_, M>,
        leaf: Leaf<'s, M>,
        pfn: Pfn,
    ) -> Result<Slot<'s, M>, Stop> {
        let slot = stable.open(leaf).inspect_err(|_| self.undo_frame(pfn))?;
        Ok(slot)
    }

    /// The frame is mapped: let the slot go. The frame itself is no longer ours.
    #[inline(always)]
    pub(super) fn finish_slot(&self, slot: Slot<'_, M>, pfn: Pfn) {
        M::phase(Phase::Finish);
        self.count_pages(Moment::Slot, 1);
        drop(slot);
        self.count_late(pfn);
    }

    /// As posted in 2004: the map count comes after the exchange.
    #[inline(always)]
    fn count_late(&self, pfn: Pfn) {
        self.flush_after_install(pfn);
        let sys = self.mm.system();
        if sys.counts_late() {
            sys.frames.get(pfn).maps.add(1, Ordering::AcqRel);
            sys.frames.put(pfn);
        }
    }

    /// The page of the fault.
    fn page(&self) -> VirtRange {
        let start = self.addr.align_down(M::Paging::shift());
        VirtRange::new(start, VirtAddr(start.0 + M::Paging::page()))
    }

    /// Somebody was faster; the access is tried again.
    #[cold]
    pub(super) fn lost(&self, event: Event) -> Kind {
        self.mm.system().count(event);
        M::note(format_args!("fault {} lost: {event}", self.addr));
        Kind::Spurious
    }
}
