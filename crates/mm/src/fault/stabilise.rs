//! *Stabilise*: finds the VMA and keeps it stable, by one lock mode.
//!
//! | lock mode | proves | permits |
//! |---|---|---|
//! | mmap | VMA and tables do not change until it is released | sleep, link tables, prepare anon |
//! | VMA lock | the same, for this VMA and the tables below it | link tables |
//! | speculative | VMA and tables stay *memory*; [`open`] detects changes | nothing |
//!
//! [`open`]: super::slot

use super::{Signal, Stop, Why};
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::entry::slot::{Hold, Slot};
use crate::entry::walk::Tables;
use crate::memory::lifetime::Grace;
use crate::mm::Mm;
use crate::pages::rmap::prepare::Prepared;
use crate::space::arenas::lock::Reading;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use crate::space::vma_lock::LockedVma;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{Access, Grant, Leaf, Mmu, Pte};
use minflt_sync::{Ordering, Refused, Seq};

/// What a lock mode proved, valid as long as the guard that it borrows from. The guard stays with
/// the function that took it ([`super::modes`] says why).
pub(super) struct Stable<'h, M: Mmu> {
    /// The tables below the VMA.
    tables: Tables<'h, M>,
    pub(super) vma: &'h Vma<M>,
    /// The attributes, read once.
    pub(super) view: VmaView,
    by: By<'h, M>,
}

/// Under what.
enum By<'h, M: Mmu> {
    /// `mmap_lock` for reading.
    MmapLock(Held<'h, M>),
    /// The VMA's lock for reading.
    VmaLock,
    /// A read section, and the sequence count sampled in it.
    Sample(Seq),
}

/// What negative controls check before they take the VMA lock, and not after.
#[derive(Default)]
pub(super) struct Early {
    here: Option<bool>,
    anon: Option<bool>,
}

impl Early {
    #[cold]
    fn look<M: Mmu>(vma: &Vma<M>, addr: VirtAddr, broken: NegativeControl) -> Self {
        match broken {
            NegativeControl::NoRangeRecheck => Self {
                here: Some(vma.view().range.contains(addr)),
                anon: None,
            },
            NegativeControl::AnonVmaBeforeLock => Self {
                here: None,
                anon: Some(vma.anon_vma.load(Ordering::Relaxed) != 0),
            },
            _ => Self::default(),
        }
    }
}

/// What the lock held permits before the PTE is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Can {
    /// Put tables in, make an anon_vma.
    Grow,
    /// Put tables in. An anon_vma is looked for among the neighbours, which this VMA's lock does
    /// not keep.
    GrowTables,
    /// Nothing that munmap could miss.
    Look,
}

/// Mappings that are never faulted speculatively. Linux: handle_speculative_fault (v8 to v11).
const NOT_SPECULATED: VmaFlags = VmaFlags::GROWS_DOWN
    .with(VmaFlags::UFFD_MISSING)
    .with(VmaFlags::UFFD_WP)
    .with(VmaFlags::HUGETLB);

impl<'h, M: Mmu> Stable<'h, M> {
    /// What `mmap_lock` proves of the VMA at `addr`.
    #[inline(always)]
    pub(super) fn under(guard: &'h Reading<'_, M>, addr: VirtAddr) -> Result<Self, Stop> {
        let held = guard.held();
        let vma = held.at_or_before(addr);
        let vma = vma.ok_or(Stop::Signal(Signal::MapErr))?;
        let view = vma.view();
        if !view.range.contains(addr) {
            return Err(Stop::Signal(Signal::MapErr));
        }
        Ok(Self {
            tables: held.tables(),
            vma,
            view,
            by: By::MmapLock(held),
        })
    }

    /// What the VMA at `addr` is, found and sampled within a read section. An address that no VMA
    /// covers falls back, because only the lock can say so for certain.
    ///
    /// Linux: the entry checks of handle_speculative_fault (v6 to v11 of the series).
    #[inline(always)]
    pub(super) fn sampled(
        section: &'h Grace<'_, M>,
        mm: &'h Mm<M>,
        addr: VirtAddr,
    ) -> Result<Self, Why> {
        let seen = mm.seen_at_or_before(section, addr);
        let vma = seen.ok_or(Why::VmaChanged)?.whole();
        let seq = vma.seq.begin().ok_or(Why::VmaChanged)?;
        let view = vma.view();
        if !view.range.contains(addr) {
            return Err(Why::VmaChanged);
        }
        if view.flags.has(NOT_SPECULATED) {
            return Err(Why::NotSupported);
        }
        Ok(Self {
            tables: mm.seen_tables(section),
            vma,
            view,
            by: By::Sample(seq),
        })
    }

    /// What the lock of the VMA proves.
    #[inline(always)]
    pub(super) fn locked(
        locked: &'h LockedVma<'_, M>,
        early: &Early,
        addr: VirtAddr,
    ) -> Result<Self, Why> {
        // Only now: under the lock, and of a VMA that is this address space's.
        let vma = locked.vma();
        let view = vma.view();
        let here = early.here.unwrap_or_else(|| view.range.contains(addr));
        // ORDERING: Acquire; pairs with [vma-anon-vma].
        let counted = !locked.by_semaphore();
        let now = || counted || vma.anon_vma.load(Ordering::Acquire) != 0;
        let anon = early.anon.unwrap_or_else(now);
        // A file's page needs an anon_vma only to be copied.
        if !(here && (anon || view.file.is_file())) {
            return Err(Why::VmaLocked);
        }
        Ok(Self {
            tables: locked.tables(),
            vma,
            view,
            by: By::VmaLock,
        })
    }

    /// Whether the mapping allows the access. A speculative refusal counts only if nothing changed
    /// since the attributes were read.
    #[inline(always)]
    pub(super) fn check_access(&self, access: Access) -> Result<(), Stop> {
        if self.view.prot.allows::<M::Paging>(access) {
            return Ok(());
        }
        self.hold().check()?;
        Err(Stop::Signal(Signal::AccErr))
    }

    /// An entry of the mapping for frame `pfn`: instructions are fetched from it if the mapping
    /// says so, and nothing is loaded if it says no more.
    #[inline(always)]
    pub(super) fn entry_for(&self, pfn: Pfn, grant: Grant) -> Pte<M::Paging> {
        Pte::page(pfn, grant).with_exec(self.view.prot.exec::<M::Paging>())
    }

    /// What may be done before the slot is open.
    #[inline(always)]
    pub(super) const fn can(&self) -> Can {
        match self.by {
            By::MmapLock(_) => Can::Grow,
            By::VmaLock => Can::GrowTables,
            By::Sample(_) => Can::Look,
        }
    }

    /// The tables, which what it is under keeps.
    #[inline(always)]
    pub(super) const fn tables(&self) -> Tables<'_, M> {
        self.tables
    }

    /// The VMA has an anon_vma after this. Its own lock does not suffice to give it one.
    ///
    /// # Errors
    /// When there is no memory.
    #[inline(always)]
    pub(super) fn prepare_anon_vma(&self) -> Result<(), Stop> {
        match self.by {
            By::MmapLock(held) => held.prepare_anon_vma(self.vma).map_err(|_| Stop::Oom),
            By::VmaLock | By::Sample(_) => Err(Why::NeedsMmapLock.into()),
        }
    }

    /// Without `mmap_lock` held: whether the VMA has an anon_vma after this, if no other lock need
    /// be waited for.
    ///
    /// # Errors
    /// When there is no memory.
    #[cold]
    pub(super) fn try_prepare_anon_vma(&self) -> Result<bool, Stop> {
        if let By::MmapLock(_) = self.by {
            return Ok(false);
        }
        let unchanged = || self.hold().check().is_ok();
        let prepared = self.tables.mm().try_prepare_anon_vma(self.vma, unchanged);
        let prepared = prepared.map_err(|NoMemory| Stop::Oom)?;
        Ok(prepared == Prepared::Yes)
    }

    /// The same where it may have one.
    pub(super) fn prepare_anon_vma_once(&self) -> Result<(), Stop> {
        // ORDERING: Acquire; pairs with [vma-anon-vma].
        match self.vma.anon_vma.load(Ordering::Acquire) {
            0 => self.prepare_anon_vma(),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    pub(super) fn hold(&self) -> Hold<'_, M> {
        match self.by {
            By::MmapLock(_) | By::VmaLock => Hold::Kept,
            By::Sample(seq) => Hold::Sampled(&self.vma.seq, seq),
        }
    }

    /// Opens the slot of `leaf`.
    #[inline(always)]
    pub(super) fn open<'s>(&'s self, leaf: Leaf<'s, M>) -> Result<Slot<'s, M>, Why> {
        Slot::open(self.tables.mm(), leaf, self.hold())
    }

    /// Opens the slot of `leaf` under the lock that a zap takes, whatever the protocol.
    #[inline(always)]
    pub(super) fn open_locked<'s>(&'s self, leaf: Leaf<'s, M>) -> Result<Slot<'s, M>, Why> {
        Slot::open_locked(self.tables.mm(), leaf, self.hold())
    }
}

/// The VMA at `addr`, read-locked. On any conflict the fault falls back to `mmap_lock`, except
/// that a VMA which was removed meanwhile is looked up again.
///
/// Linux: lock_vma_under_rcu (v6.4 and v6.15).
#[inline(always)]
pub(super) fn lock_vma<'h, M: Mmu>(
    section: &Grace<'_, M>,
    mm: &'h Mm<M>,
    addr: VirtAddr,
    early: &mut Early,
) -> Result<LockedVma<'h, M>, Refused> {
    let sys = mm.system();
    let by = sys
        .config
        .fallback_order
        .vma_lock()
        .ok_or(Refused::Locked)?;
    let seen = mm.seen_at_or_before(section, addr);
    let seen = seen.ok_or(Refused::Locked)?;
    if let Some(broken) = sys.switched_off() {
        *early = Early::look(seen.whole(), addr, broken);
    }
    seen.try_read_lock(by, mm)
}
