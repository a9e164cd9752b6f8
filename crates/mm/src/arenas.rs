//! The arenas of an address space: the records, for [`crate::space::arenas`].

use crate::entry::part::Part;
use crate::memory::arenas::{FAN, Geometry};
use crate::memory::sizes::Counts;
use crate::space::tree::Tree;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::order::{ArenasLock, MmapLock};
use minflt_sync::slab::SlabObject;
use minflt_sync::{Apart, Atomic, RwSem};

/// What an address space has once for each arena.
#[repr(C)]
pub(crate) struct Arena<M: Mmu> {
    pub(crate) tree: Tree<M>,
    pub(crate) written: Apart,
    /// Guards the tree and the attributes of VMAs that are recorded there.
    pub(crate) mmap_lock: RwSem<MmapLock, M>,
    /// What its CPU has mapped, here or elsewhere.
    pub(crate) counts: Counts<M>,
    pub(crate) part: Part<M>,
}

/// The arenas of an address space: a directory of two levels.
#[repr(C)]
pub(crate) struct Arenas<M: Mmu> {
    /// Whether there are any. Written once, under the outer lock and the `mmap_lock` of the
    /// undivided one.
    pub(crate) divided: Atomic<u32, M>,
    /// Whether CPUs that walk are in the masks of their arenas. Written once, before that.
    pub(crate) linking: Atomic<u32, M>,
    /// How many there are. Written under the outer lock.
    pub(crate) made: Atomic<u64, M>,
    /// Immutable.
    pub(crate) geometry: Geometry,
    /// Shelves, 0 for none. Written under the outer lock.
    pub(crate) shelves: [Atomic<u64, M>; FAN],
    pub(crate) written: Apart,
    /// Held by those that hold several arenas; for writing, by those that make one.
    pub(crate) outer: RwSem<ArenasLock, M>,
    /// [`Thread`](crate::Thread)s there are.
    pub(crate) threads: Atomic<u64, M>,
}

/// The arenas of an address space, if it may be divided.
#[derive(Clone, Copy)]
pub(crate) struct Division<M: Mmu>(pub(crate) Option<NonNull<Arenas<M>>>);

// SAFETY: what it names is shared by the threads of an address space: atomics, and trees that their
// locks guard.
unsafe impl<M: Mmu> Send for Division<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for Division<M> {}

/// Arenas side by side, 0 for none. Written under the outer lock.
#[repr(C)]
pub(crate) struct Shelf<M: Mmu> {
    pub(crate) arenas: [Atomic<u64, M>; FAN],
}

impl<M: Mmu> SlabObject for Arena<M> {}
impl<M: Mmu> SlabObject for Arenas<M> {}
impl<M: Mmu> SlabObject for Shelf<M> {}

impl<M: Mmu> Arena<M> {
    /// Start offsets of its fields, ascending: for names.
    pub(crate) const fn fields() -> [(usize, &'static str); 5] {
        [
            (0, "tree"),
            (offset_of!(Self, mmap_lock), "mmap_lock"),
            (offset_of!(Self, counts), "counts"),
            (offset_of!(Self, part), "flushes_pending"),
            (offset_of!(Self, part) + Part::<M>::MASK, "cpu mask"),
        ]
    }
}

impl<M: Mmu> Arenas<M> {
    /// Start offsets of its fields, ascending: for names.
    pub(crate) const fn fields() -> [(usize, &'static str); 3] {
        [
            (0, "shelves"),
            (offset_of!(Self, outer), "outer lock"),
            (offset_of!(Self, threads), "threads"),
        ]
    }
}
