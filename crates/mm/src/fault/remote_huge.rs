//! Huge pages for a debugger or a driver ([`super::remote`]).
//!
//! # Protocol
//! The lookup holds `mmap_lock`, the file's `i_mmap` and the page-table lock. `i_mmap` keeps a page
//! table that is shared with other address spaces, and excludes migration, truncation and discards.
//! A missing page is brought in by a fault, which takes its own locks.
//!
//! # Why it is correct
//! A reference is taken to the first frame of the page before the page-table lock is released, and
//! every unmapper checks the reference count after it removed the PTE: migration gives up, and a
//! discarded or truncated page returns to its pool when the last reference is dropped. Until then
//! its reservation is in use, as by any other user. A pinned page is exclusive or belongs to a
//! file, and neither fork nor a store replaces it ([`crate::pages::hugetlb`]).
//!
//! # Cost
//! As for a small page, plus a lock of the file's mappings for each small page of a transfer.
//!
//! Linux: mm/gup.c follow_huge_pud, gup_must_unshare; mm/hugetlb.c hugetlb_wp (v6.18).

use super::hugetlb::Need;
use super::remote::{Held, HeldPage};
use super::stabilise::Stable;
use super::{Fault, Kind, Signal, Stop};
use crate::base::attrs::Prot;
use crate::pages::file::PageCache;
use minflt_addr::Pfn;
use minflt_pgtable::{Access, Grant, Mmu, Paging, Pte, with_bits};
use minflt_sync::Ordering;

impl<M: Mmu> Fault<'_, M> {
    /// Holds the page, if it is there and will do.
    #[cold]
    pub(super) fn hold_huge_now(
        &self,
        stable: &Stable<'_, M>,
        held: Held,
    ) -> Result<Option<HeldPage>, Stop> {
        let (mm, sys) = (self.mm, self.mm.system());
        let Some(cache) = stable.view.cache::<M>() else {
            return Err(Stop::Signal(Signal::Bus));
        };
        let size = stable.view.huge_size();
        let _tree = cache.i_mmap.read();
        let Ok(leaf) = stable.tables().huge_entry(size, self.addr) else {
            return Ok(None);
        };
        let _held = sys.huge_lock(leaf.table).lock();
        let found = leaf.entry.sample();
        if !found.is_mapped() || !self.huge_will_do(stable, cache, found, held) {
            return Ok(None);
        }
        // What is written through the page shall be found in it.
        let used = with_bits(found, self.access);
        let how = mm.exchange_of_huge();
        if leaf.entry.decide(how, found, used).is_err() {
            return Ok(None);
        }
        let first = found.pfn();
        if !sys.frames.hold(first, self.references(held)) {
            return Err(Stop::Oom);
        }
        let within = self.addr.page(M::Paging::shift()) % (1 << size.order::<M::Paging>());
        let pfn = Pfn(first.0 + within);
        Ok(Some(HeldPage { pfn, first }))
    }

    fn huge_will_do(
        &self,
        stable: &Stable<'_, M>,
        cache: &PageCache<M>,
        found: Pte<M::Paging>,
        held: Held,
    ) -> bool {
        let frame = self.mm.system().huge_frame(found.pfn());
        let own = || {
            let of_file = frame.mapping.load(Ordering::Relaxed) == cache.address();
            !of_file && frame.is_exclusive()
        };
        match self.access {
            Access::Read | Access::Execute => !self.wants_own(stable, held) || own(),
            Access::Write if found.grant() == Grant::Write => true,
            // Where stores are allowed the entry has to say so.
            Access::Write => !stable.view.prot.has(Prot::WRITE) && own(),
        }
    }

    /// Brings the page by a fault.
    #[cold]
    pub(super) fn bring_huge(&self, stable: &Stable<'_, M>, held: Held) -> Result<Kind, Stop> {
        let need = match self.wants_own(stable, held) {
            true => Need::Own,
            false => Need::Access,
        };
        self.huge_for(stable, need)
    }
}
