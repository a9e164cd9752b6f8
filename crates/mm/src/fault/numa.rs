//! NUMA hinting faults: the mapping allows the access, but the PTE is `PROT_NONE`, so that the next
//! access reports its node ([`crate::pages::numa`]).
//!
//! # Problem
//! Three kinds of PTEs name a page and permit no access: mprotect installed one, and the access is
//! an error; a fault that replaces a page installed one temporarily ([`Slot::replace`]); or a NUMA
//! scan installed one, and the access is a hint. A fault must distinguish them.
//!
//! # Idea
//! Exclude the other two. If the mapping allows the access, and a lock keeps it so, the PTE is not
//! mprotect's: mprotect restores permissions before it releases the VMA. Under the page-table lock
//! no replacement is in progress, since it lasts only while its thread holds that lock, in every
//! protocol. Under both locks the PTE must be a scan's.
//!
//! # Protocol
//! ```text
//! mmap_lock or the VMA lock held; a speculative fault falls back to one of them
//!   the mapping allows the access?      no: a signal
//!   page-table lock
//!     the PTE is as sampled?            no: another thread was faster, the access is retried
//!     restore the mapping's permissions; record the node
//!     the page should migrate? trylock it
//!   migrate, under mmap_lock or the VMA lock alone
//! ```
//!
//! # Why it is correct
//! Write permission is restored only if the page is exclusive and no userfaultfd handler protects
//! it; otherwise the next store takes a fault, as after fork. Adding permissions needs no TLB
//! flush: a translation cached before the scan maps the same page.
//!
//! The PTE is restored before the page migrates, so a page whose migration fails is where it was.
//! Migration may therefore fail at any point, and does so rather than wait: the page lock is only
//! tried, since its holder may be waiting for a lock that this fault holds.
//!
//! # The reverse map's lock
//! Migration must find every PTE that maps the page. Where the choice is `skipped` and the page is
//! exclusive, this PTE is the only one as long as the fault's lock is held: [`Owner::known`] has
//! the argument. The migration then takes no anon_vma lock and walks nothing. The 2012 posting
//! skipped the lock for every page that a fault migrated, even for pages with other mappings.
//!
//! # Cost
//! Compared with a fault that sets bits: two counters of the address space, which all its CPUs
//! write, and one update of the frame's flags, or two if the node differs from the last one.
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
            // Only under the page-table lock is the PTE's kind known, and a speculative fault may
            // not wait for that lock.
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
        // One that swap-out put back knew no mapping.
        let exec = stable.view.prot.exec::<M::Paging>();
        with_bits(found.with_grant(grant).with_exec(exec), access)
    }

    /// Records that a CPU of `node` uses the page; returns the page, locked, if it should migrate
    /// there. The caller holds the page-table lock of the PTE that names it.
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

    /// Migrates the page to the node. The caller still holds the lock under which the PTE was
    /// found.
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
