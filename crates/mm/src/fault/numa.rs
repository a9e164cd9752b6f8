//! NUMA hinting faults: the mapping allows the access, but the PTE is `PROT_NONE`, so that the next
//! access reports its node ([`crate::pages::numa`]).
//!
//! # Problem
//! Three kinds of entries name a page and grant nothing. mprotect made one, and the access is an
//! error. A fault that replaces a page made one for a moment ([`Slot::replace`]). A scan made one,
//! and the access is a hint. A fault must not take one for another.
//!
//! # Idea
//! Ask what each of them excludes. Of a mapping that allows the access, held so that it stays so,
//! mprotect's are out: it raises what grants nothing before it lets go of the mapping. Under the
//! lock of the table replacements are out: they last as long as their maker has that lock, in every
//! protocol. What is left under both is a scan's.
//!
//! # Protocol
//! ```text
//! hold: mmap_lock or the VMA's lock; a speculative fault falls back to one
//!   the mapping allows the access?      no: a signal
//!   table's lock
//!     the entry is as sampled?          no: somebody was faster, the access is tried again
//!     grants what the mapping does; the node is noted
//!     the page is to move? it is locked, if nobody else has it locked
//!   migrate, under the hold alone
//! ```
//!
//! # Why it is correct
//! The right to store comes back only where the page is exclusive and no handler watches its
//! stores. Else the next store finds out what it has to do, as after fork. Raising what an entry
//! grants needs no invalidation: whoever still has the translation of before the scan, had the same
//! page.
//!
//! The entry is restored before the page moves, and a page that does not move for whatever reason
//! is where it was. So moving may give up at any time, and does so rather than wait: the lock of
//! the page is tried, since its holder may be waiting for what this fault holds.
//!
//! # The reverse map's lock
//! To move a page is to find all entries that name it. Where the choice is `skipped` and the page
//! is exclusive, its one place is this one, for as long as the hold: [`Owner::known`] has the
//! argument. It takes no lock and walks nothing. As posted in 2012 the lock was skipped for every
//! page that a fault moved, whoever else maps it.
//!
//! # Cost
//! More than a fault that sets bits: two counts of the address space, which all its CPUs write, and
//! a change of the frame's flags, with a second one where the node is another than last time.
//!
//! Linux: mm/memory.c do_numa_page, numa_migrate_prep (v3.8, which restores the entry first);
//! mm/migrate.c migrate_misplaced_page; can_change_pte_writable.
//!
//! [`Slot::replace`]: super::slot::Slot::replace

use super::stabilise::{Can, Stable};
use super::{Fault, Kind, Stop, Why};
use crate::base::config::{AnonRmap, Balancing, NegativeControl};
use crate::base::event::Event;
use crate::entry::slot::Lost;
use crate::memory::frame::Use;
use crate::pages::page::Locked;
use crate::pages::rmap::owner::Owner;
use minflt_addr::Pfn;
use minflt_pgtable::{Access, Grant, Leaf, Mmu, Pte, with_bits};
use minflt_sync::{Instance, Ordering};

impl<M: Mmu> Fault<'_, M> {
    /// A fault that found an entry which names a page and grants nothing, where the mapping allows
    /// the access.
    #[cold]
    #[inline(never)]
    pub(super) fn hint(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        found: Pte<M::Paging>,
    ) -> Result<Kind, Stop> {
        if stable.can() == Can::Look {
            // Only the lock tells what it is, and to wait for it needs a hold that stays.
            return Err(Why::NotSupported.into());
        }
        let slot = stable.open_locked(leaf)?;
        let sys = self.mm.system();
        if !slot.holds(found) && !sys.lacks(NegativeControl::HintPutsBack) {
            drop(slot);
            return Ok(self.lost(Event::CasFlags));
        }
        let restored = self.restored(stable, found);
        let expected = match sys.lacks(NegativeControl::HintPutsBack) {
            true => slot.value(),
            false => found,
        };
        if let Err(Lost) = slot.decide(expected, restored) {
            drop(slot);
            return Ok(self.lost(Event::CasFlags));
        }
        if sys.config.balancing == Balancing::Off {
            // One that was to go to a slot, and came back.
            return Ok(Kind::Spurious);
        }
        let anon = !found.is_zero_page() && sys.frames.get(found.pfn()).used_as() == Use::Anon;
        if !anon {
            return Ok(Kind::Spurious);
        }
        let node = sys.frames.home(&sys.at);
        let page = self.note_node(found.pfn(), node);
        drop(slot);
        if let Some(page) = page {
            self.follow(stable, page, node);
        }
        Ok(Kind::NumaHint)
    }

    /// The entry with what the mapping grants. The caller holds the lock of its table.
    fn restored(&self, stable: &Stable<'_, M>, found: Pte<M::Paging>) -> Pte<M::Paging> {
        let frames = &self.mm.system().frames;
        let stores = !found.is_zero_page()
            && !found.is_uffd_wp()
            && frames.get(found.pfn()).used_as() == Use::Anon
            && frames.get(found.pfn()).is_exclusive();
        let most = if stores { Grant::Write } else { Grant::Read };
        let grant = stable.view.prot.grant().min(most);
        let stored = self.access == Access::Write && grant == Grant::Write;
        let access = if stored { Access::Write } else { Access::Read };
        with_bits(found.with_grant(grant), access)
    }

    /// Notes that the page is used by a CPU of `node`; the page, locked, if it is to move there.
    /// The caller holds the lock of the table whose entry names it.
    fn note_node(&self, pfn: Pfn, node: u32) -> Option<Locked<'_, M>> {
        let sys = self.mm.system();
        let here = sys.frames.node_of(pfn) == node;
        self.mm.balance.hinted();
        if here {
            sys.count(Event::NumaHintFaultsLocal);
            self.mm.balance.hinted_here();
        }
        let again = sys.frames.get(pfn).used_from(node);
        if here || !again || !sys.numa.may_move_to(node, sys.at.now_ns()) {
            return None;
        }
        sys.try_lock_mapped(pfn)
    }

    /// Moves the page to the node. The caller still has the hold that the entry was found under.
    fn follow(&self, stable: &Stable<'_, M>, page: Locked<'_, M>, node: u32) {
        let sys = self.mm.system();
        let known = self.known(stable, &page);
        if sys.migrate(page, node, known).is_ok() {
            sys.count(Event::NumaPagesMigrated);
        }
    }

    /// The page's one place, where that is known and walks may be skipped.
    fn known<'s>(&self, stable: &'s Stable<'_, M>, page: &Locked<'_, M>) -> Option<Owner<'s, M>> {
        let skips = self.mm.system().config.anon_rmap == AnonRmap::Skipped;
        let frame = page.frame();
        // Not mapped any more, it was taken out meanwhile.
        let here = frame.is_exclusive() && frame.maps.load(Ordering::Relaxed) == 1;
        (skips && here).then(|| Owner::known(stable.tables(), self.addr))
    }
}
