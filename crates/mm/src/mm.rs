//! An address space.

use crate::arenas::Division;
use crate::base::config::AddressSpace;
use crate::call::brk::Heap;
use crate::call::pin::Pins;
use crate::memory::lifetime::SystemRef;
use crate::memory::locks::Locks;
use crate::memory::rss::{Resident, Slot};
use crate::memory::sizes::Sizes;
use crate::pages::numa::Balance;
use crate::pages::userfault::Userfaults;
use crate::space::tree::Tree;
use crate::system::System;
use core::fmt;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging, PtLock, SpaceId};
use minflt_sync::order::MmapLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Apart, Atomic, LockSeq, Ordering, RwSem, SharedCpuMask};

/// An address space: its VMAs, its tables, and what ties them together.
///
/// What every fault reads stands before `written` and changes with mappings only; what faults
/// write, as their era has it, stands together behind, so that one move of one line serves the
/// lock, the count and the release. A speculative fault writes none of it.
///
/// Linux: `struct mm_struct`.
#[repr(C)]
pub struct Mm<M: Mmu> {
    pub(crate) system: SystemRef<M>,
    /// Names it to translation buffers. Immutable.
    pub(crate) space: SpaceId,
    /// The root table. Immutable.
    pub(crate) root: Pfn,
    pub(crate) tree: Tree<M>,
    /// Handles. The last one to go tears it down.
    pub(crate) users: Atomic<u64, M>,
    /// What VMAs that are write-locked now have in their own. Guarded by: `mmap_lock`, write.
    pub(crate) lock_seq: LockSeq<M>,
    /// CPUs that may buffer translations.
    pub(crate) cpus: SharedCpuMask<M>,
    /// Where CPUs count its resident pages. Immutable.
    pub(crate) rss_slot: Slot,
    pub(crate) heap: Heap<M>,
    pub(crate) pins: Pins<M>,
    pub(crate) uffd: Userfaults<M>,
    /// Bytes that a stack may grow to (`RLIMIT_STACK`).
    pub(crate) limit_stack: Atomic<u64, M>,
    pub(crate) sizes: Sizes<M>,
    pub(crate) locks: Locks<M>,
    pub(crate) written: Apart,
    /// Guards the tree and the VMAs' attributes.
    pub(crate) mmap_lock: RwSem<MmapLock, M>,
    pub(crate) rss: Resident<M>,
    /// Guards tables' being put in; all entries, where there is one lock for all.
    pub(crate) page_table_lock: PtLock<M>,
    /// Zaps and protects whose invalidation is not yet done.
    pub(crate) flushes_pending: Atomic<u64, M>,
    pub(crate) hinted: Apart,
    /// When and where balancing goes on, and what came of it.
    pub(crate) balance: Balance<M>,
    /// Where the stack began at exec, 0 where nobody said so. Only shown.
    pub(crate) start_stack: Atomic<u64, M>,
    /// What it is divided by, where that is the choice. Immutable.
    pub(crate) arenas: Division<M>,
    /// Whether calls that hold different arenas change it at the same time. Set once, before the
    /// division.
    pub(crate) several_writers: Atomic<u32, M>,
}

impl<M: Mmu> SlabObject for Mm<M> {}

impl<M: Mmu> Mm<M> {
    /// The system it belongs to.
    #[inline(always)]
    pub fn system(&self) -> &System<M> {
        self.system.get()
    }

    /// The frame of its root table, for machines whose hardware walks it.
    #[must_use]
    pub const fn root_table(&self) -> Pfn {
        self.root
    }

    /// Its name in translation buffers.
    #[must_use]
    pub const fn space(&self) -> SpaceId {
        self.space
    }

    /// Whether calls that hold different arenas change it at the same time, or are about to.
    #[inline(always)]
    pub(crate) fn has_several_writers(&self) -> bool {
        let divides = self.system().config.address_space != AddressSpace::Whole;
        divides && self.several_writers.load(Ordering::Relaxed) != 0
    }

    /// The addresses that can be mapped: all of user space but its first 64 KiB.
    #[must_use]
    pub fn user_range() -> VirtRange {
        VirtRange::new(
            VirtAddr(1 << 16),
            VirtAddr(M::Paging::user_end() - M::Paging::page()),
        )
    }
}

impl<M: Mmu> fmt::Debug for Mm<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mm {}", self.space.0)
    }
}
