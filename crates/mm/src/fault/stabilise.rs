//! *Stabilise*: find the VMA and make sure of it, as a rung of the ladder does.
//!
//! | rung | proves | may |
//! |---|---|---|
//! | mmap | VMA and tables stay as they are until dropped | sleep, grow tables, prepare anon |
//! | speculative | VMA and tables stay *memory*; [`open`] finds out if they changed | nothing |
//!
//! [`open`]: super::slot

use super::{Signal, Stop, Why};
use crate::config::Rung;
use crate::lifetime::Grace;
use crate::mm::Mm;
use crate::vma::{Vma, VmaView};
use minflt_addr::VirtAddr;
use minflt_pgtable::{Access, Mmu};
use minflt_sync::order::MmapLock;
use minflt_sync::{ReadGuard, Seq};

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
    /// A read section, and the count that must not have changed.
    Speculative { seq: Seq, _section: Grace<'m, M> },
}

/// What a hold allows to do before the slot is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Can {
    /// Put tables in, make an anon_vma.
    Grow,
    /// Nothing that munmap could miss.
    Look,
}

impl<'m, M: Mmu> Stable<'m, M> {
    #[inline(always)]
    pub(super) fn stabilise(mm: &'m Mm<M>, rung: Rung, addr: VirtAddr) -> Result<Self, Stop> {
        match rung {
            Rung::Mmap => Self::under_mmap_lock(mm, addr),
            Rung::Speculative => Self::speculatively(mm, addr),
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
            Hold::Speculative { .. } => Can::Look,
        }
    }
}
