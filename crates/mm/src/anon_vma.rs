//! The reverse map of anonymous memory.
//!
//! Until there is fork, an address space has one, without chains; it exists so that frames name
//! their owner and a VMA's first anonymous fault is a real event.

use minflt_pgtable::Mmu;
use minflt_sync::Atomic;
use minflt_sync::slab::SlabObject;

/// Where the mappings of a set of anonymous pages can be found.
#[derive(Debug)]
pub(crate) struct AnonVma<M: Mmu> {
    /// Distinguishes it from every other of the system. Immutable.
    pub(crate) id: u64,
    /// VMAs whose first anonymous fault gave it to them: a split inherits it uncounted, and munmap
    /// takes nothing off. Guarded by: `page_table_lock`.
    pub(crate) users: Atomic<u64, M>,
}

// SAFETY: the link overwrites the id, which nobody reads through a freed anon_vma.
unsafe impl<M: Mmu> SlabObject for AnonVma<M> {}
