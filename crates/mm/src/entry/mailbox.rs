//! The requests to flush that other CPUs have for one: for [`super::shootdown`].

use crate::mm::Mm;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;
use minflt_sync::order::ShootdownLock;
use minflt_sync::{Atomic, CpuMask, SpinLock};

/// Ranges that are kept; of more, all is flushed.
const RANGES: usize = 4;

/// One CPU's side of shootdowns.
#[derive(Debug)]
pub(crate) struct Mailbox<M: Mmu> {
    pub(super) posted: SpinLock<Posted<M>, ShootdownLock, M>,
    /// Targets that have not yet answered this CPU's own request.
    pub(super) pending: Atomic<u64, M>,
}

/// Guarded by: the lock around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posted<M: Mmu> {
    pub(super) ranges: [Range<M>; RANGES],
    pub(super) len: usize,
    pub(super) everything: Everything,
    pub(super) from: CpuMask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Everything {
    No,
    Yes,
}

/// A range to flush, and its address space, which stays alive until the initiator has all
/// acknowledgements.
#[derive(Debug)]
pub(super) struct Range<M: Mmu> {
    pub(super) mm: *const Mm<M>,
    pub(super) range: VirtRange,
}

// SAFETY: an address space is made to be shared by CPUs; the block that dereferences the pointer
// says why it is still there.
unsafe impl<M: Mmu> Send for Range<M> {}

impl<M: Mmu> Copy for Range<M> {}

impl<M: Mmu> Clone for Range<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mmu> Posted<M> {
    pub(super) const fn empty() -> Self {
        let nothing = Range {
            mm: core::ptr::null(),
            range: VirtRange::new(VirtAddr(0), VirtAddr(0)),
        };
        Self {
            ranges: [nothing; RANGES],
            len: 0,
            everything: Everything::No,
            from: CpuMask::empty(),
        }
    }
}

impl<M: Mmu> Mailbox<M> {
    pub(crate) fn new() -> Self {
        Self {
            posted: SpinLock::new(Posted::empty()),
            pending: Atomic::new(0),
        }
    }
}
