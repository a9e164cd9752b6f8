//! *Stabilise*: find the VMA and make sure of it, as a rung of the ladder does.
//!
//! | rung | proves | may |
//! |---|---|---|
//! | mmap | VMA and tables stay as they are until dropped | sleep, grow tables, prepare anon |
//! | VMA lock | the same, for this VMA and the tables below it | grow tables |
//! | speculative | VMA and tables stay *memory*; [`open`] finds out if they changed | nothing |
//!
//! [`open`]: super::slot

use super::{Signal, Stop, Why};
use crate::config::{Broken, Rung, VmaLockBy};
use crate::event::Event;
use crate::lifetime::Grace;
use crate::mm::Mm;
use crate::vma::{Vma, VmaFlags, VmaView};
use crate::vma_lock::VmaGuard;
use minflt_addr::VirtAddr;
use minflt_pgtable::{Access, Mmu};
use minflt_sync::order::MmapLock;
use minflt_sync::{Ordering, ReadGuard, Refused, Seq};

/// What a rung proved, as long as this lives.
pub(super) struct Stable<'m, M: Mmu> {
    pub(super) mm: &'m Mm<M>,
    pub(super) vma: &'m Vma<M>,
    /// The attributes, read once.
    pub(super) view: VmaView,
    pub(super) hold: Hold<'m, M>,
}

/// How it is held.
pub(super) enum Hold<'m, M: Mmu> {
    /// `mmap_lock` for reading.
    Mmap { _guard: ReadGuard<'m, MmapLock, M> },
    /// The VMA's lock for reading.
    Vma { _guard: VmaGuard<'m, M> },
    /// A read section, and the count that must not have changed.
    Speculative { seq: Seq, _section: Grace<'m, M> },
}

/// What controls look at before they have the VMA's lock, and not after.
#[derive(Default)]
struct Early {
    here: Option<bool>,
    anon: Option<bool>,
}

impl Early {
    #[cold]
    fn look<M: Mmu>(vma: &Vma<M>, addr: VirtAddr, broken: Broken) -> Self {
        match broken {
            Broken::NoRangeRecheck => Self {
                here: Some(vma.view().range.contains(addr)),
                anon: None,
            },
            Broken::AnonVmaBeforeLock => Self {
                here: None,
                anon: Some(vma.anon_vma.load(Ordering::Relaxed) != 0),
            },
            _ => Self::default(),
        }
    }
}

/// What a hold allows to do before the slot is open.
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

/// Mappings whose faults are left to the locks. Linux: handle_speculative_fault (v8 to v11).
const NOT_SPECULATED: VmaFlags = VmaFlags::GROWS_DOWN
    .with(VmaFlags::UFFD_MISSING)
    .with(VmaFlags::UFFD_WP)
    .with(VmaFlags::HUGETLB);

impl<'m, M: Mmu> Stable<'m, M> {
    #[inline(always)]
    pub(super) fn stabilise(mm: &'m Mm<M>, rung: Rung, addr: VirtAddr) -> Result<Self, Stop> {
        match rung {
            Rung::Mmap => Self::under_mmap_lock(mm, addr),
            Rung::Speculative => Self::speculatively(mm, addr),
            Rung::VmaLock => Self::under_vma_lock(mm, addr),
        }
    }

    #[inline(always)]
    fn under_mmap_lock(mm: &'m Mm<M>, addr: VirtAddr) -> Result<Self, Stop> {
        let guard = mm.mmap_lock.read();
        // SAFETY: 1: under `mmap_lock`, for as long as the guard.
        let vma = unsafe { mm.tree.at_or_before(addr) };
        let vma = vma.ok_or(Stop::Signal(Signal::MapErr))?;
        let view = vma.view();
        if !view.range.contains(addr) {
            return Err(Stop::Signal(Signal::MapErr));
        }
        Ok(Self {
            mm,
            vma,
            view,
            hold: Hold::Mmap { _guard: guard },
        })
    }

    /// Linux: the entry checks of handle_speculative_fault (v6 to v11 of the series). An address
    /// that no VMA covers falls back, because only the lock can say so for certain.
    #[inline(always)]
    fn speculatively(mm: &'m Mm<M>, addr: VirtAddr) -> Result<Self, Stop> {
        let section = mm.system().grace_read();
        // SAFETY: 1: within the read section.
        let vma = unsafe { mm.tree.at_or_before(addr) }.ok_or(Why::VmaChanged)?;
        let seq = vma.seq.begin().ok_or(Why::VmaChanged)?;
        let view = vma.view();
        if !view.range.contains(addr) {
            return Err(Why::VmaChanged.into());
        }
        if view.flags.has(NOT_SPECULATED) {
            return Err(Why::NotSupported.into());
        }
        Ok(Self {
            mm,
            vma,
            view,
            hold: Hold::Speculative {
                seq,
                _section: section,
            },
        })
    }

    /// Linux: lock_vma_under_rcu (v6.4 and v6.15). A VMA that was taken out meanwhile is looked up
    /// again: the tree no longer has it. Whatever else is in the way is left to `mmap_lock`.
    #[inline(always)]
    fn under_vma_lock(mm: &'m Mm<M>, addr: VirtAddr) -> Result<Self, Stop> {
        let sys = mm.system();
        let by = sys.config.ladder.vma_lock().ok_or(Why::VmaLocked)?;
        let section = sys.grace_read();
        let (vma, guard, early) = loop {
            // SAFETY: 1: within the read section, and then under the VMA's lock.
            let vma = unsafe { mm.tree.at_or_before(addr) }.ok_or(Why::VmaLocked)?;
            let early = sys
                .config
                .broken
                .map(|broken| Early::look(vma, addr, broken));
            match vma.try_read_lock(by, mm) {
                Ok(guard) => break (vma, guard, early),
                Err(Refused::Detached) => sys.count(Event::VmaLockMiss),
                Err(Refused::Locked) => return Err(Why::VmaLocked.into()),
            }
        };
        drop(section);
        // Only now: under the lock, and of a VMA that is this address space's.
        let view = vma.view();
        let Early { here, anon } = early.unwrap_or_default();
        let here = here.unwrap_or_else(|| view.range.contains(addr));
        // ORDERING: Acquire; pairs with [vma-anon-vma].
        let now = || by == VmaLockBy::Count || vma.anon_vma.load(Ordering::Acquire) != 0;
        let anon = anon.unwrap_or_else(now);
        // A file's page needs an anon_vma only to be copied.
        if !(here && (anon || view.file.is_file())) {
            return Err(Why::VmaLocked.into());
        }
        Ok(Self {
            mm,
            vma,
            view,
            hold: Hold::Vma { _guard: guard },
        })
    }

    /// Whether the mapping allows the access. A speculative refusal counts only if nothing changed
    /// since the attributes were read.
    #[inline(always)]
    pub(super) fn check_access(&self, access: Access) -> Result<(), Stop> {
        if self.view.prot.allows(access) {
            return Ok(());
        }
        match self.hold {
            Hold::Speculative { seq, .. } if self.vma.seq.changed(seq) => {
                Err(Why::VmaChanged.into())
            }
            _ => Err(Stop::Signal(Signal::AccErr)),
        }
    }

    #[inline(always)]
    pub(super) const fn can(&self) -> Can {
        match self.hold {
            Hold::Mmap { .. } => Can::Grow,
            Hold::Vma { .. } => Can::GrowTables,
            Hold::Speculative { .. } => Can::Look,
        }
    }
}
