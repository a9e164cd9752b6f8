//! A mapping: a stable identity and an immutable record of attributes.
//!
//! # Problem
//! A speculative fault reads a VMA's range, flags and protection while mprotect, split or munmap
//! may be changing them, and must get a consistent set or notice.
//!
//! # Idea
//! What changes together is one immutable record; the identity points to it. A writer makes a new
//! record and publishes it by one store; a reader reads one pointer.
//!
//! # Protocol
//! Readers: under `mmap_lock` or the VMA's own lock ([`crate::vma_lock`]), or in a read section of
//! the lifetime's domain with the sequence count sampled before and checked after. Writers:
//! `mmap_lock` for writing, inside a section ([`crate::writers`]): where the ladder speculates the
//! count is odd, where it locks VMAs this one is write-locked. A VMA that was taken out keeps an
//! odd count for ever, or is detached, so nobody holds on to it again.
//!
//! # Why it is correct
//! A record is never written after it is published, and freed by the configured lifetime.

use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::NonNull;
use minflt_addr::VirtRange;
use minflt_pgtable::{Access, Grant, Mmu};
use minflt_sync::order::VmaLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Callback, LockedAt, Ordering, RefLock, RwSem, SeqCount};

/// Access rights of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prot {
    /// No access.
    None,
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl Prot {
    /// The most an entry of the mapping may grant.
    #[must_use]
    pub const fn grant(self) -> Grant {
        match self {
            Self::None => Grant::Nothing,
            Self::Read => Grant::Read,
            Self::ReadWrite => Grant::Write,
        }
    }

    /// Whether an access is allowed.
    #[must_use]
    pub fn allows(self, access: Access) -> bool {
        self.grant() >= access.needs()
    }
}

/// What a mapping is: immutable once published.
#[derive(Debug)]
pub struct Attrs {
    range: VirtRange,
    prot: Prot,
    /// Waits for a grace period once replaced.
    pub(crate) callback: Callback,
}

/// The attributes, by value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmaView {
    /// The addresses mapped.
    pub range: VirtRange,
    /// What may be done there.
    pub prot: Prot,
}

/// A mapping's identity. What faults only read stands in its first line, the lock that they write
/// behind it; no two VMAs share a line.
#[repr(C, align(64))]
pub struct Vma<M: Mmu> {
    /// Distinguishes it from every other VMA of the system, dead or alive.
    pub(crate) id: u64,
    /// Odd while the VMA is being changed, and for ever once it was taken out.
    pub(crate) seq: SeqCount<M>,
    pub(crate) attrs: Atomic<u64, M>,
    /// The id of its anon_vma, 0 before the first anonymous fault. Set once, under
    /// `page_table_lock`.
    pub(crate) anon_vma: Atomic<u64, M>,
    /// Waits for a grace period once taken out.
    pub(crate) callback: Callback,
    /// Write-locked while this is [`crate::Mm`]'s. Guarded by: `mmap_lock`, write.
    pub(crate) lock_seq: LockedAt<M>,
    /// The [`SpaceId`](minflt_pgtable::SpaceId) of the address space whose tree it is in, where
    /// the ladder locks VMAs; 0 before and after. Guarded by: `mmap_lock`, write.
    pub(crate) mm: Atomic<u64, M>,
    /// The lock, where it is a count.
    pub(crate) refcnt: RefLock<VmaLock, M>,
    /// The lock, where it is a semaphore.
    pub(crate) lock: RwSem<VmaLock, M>,
}

/// Nothing is added to a VMA that there is no room for.
pub(crate) const VMA_BYTES: usize = 128;

// SAFETY: the link overwrites the id, which readers use for printing only. A fresh VMA's number,
// owner and count are zero, and are changed by atomic stores only.
unsafe impl<M: Mmu> SlabObject for Vma<M> {
    const KEPT: Range<usize> = offset_of!(Self, lock_seq)..offset_of!(Self, lock);
}
// SAFETY: the link overwrites the start of the range; nobody reads a freed record.
unsafe impl SlabObject for Attrs {}

impl Attrs {
    pub(crate) const fn new(view: VmaView) -> Self {
        Self {
            range: view.range,
            prot: view.prot,
            callback: Callback::new(),
        }
    }
}

impl<M: Mmu> Vma<M> {
    pub(crate) fn new(id: u64, attrs: NonNull<Attrs>, anon_vma: u64) -> Self {
        const { assert!(size_of::<Self>() <= VMA_BYTES) };
        Self {
            id,
            seq: SeqCount::new(),
            attrs: Atomic::new(attrs.as_ptr() as u64),
            anon_vma: Atomic::new(anon_vma),
            callback: Callback::new(),
            // These three are not copied: see `SlabObject::KEPT`.
            lock_seq: LockedAt::new(),
            mm: Atomic::new(0),
            refcnt: RefLock::new(),
            lock: RwSem::new(),
        }
    }

    /// The attributes now. The caller holds `mmap_lock` or the VMA's lock, or a read section of
    /// the lifetime's domain.
    #[inline]
    pub fn view(&self) -> VmaView {
        // ORDERING: Acquire; pairs with [vma-attrs].
        let attrs = self.attrs.load(Ordering::Acquire) as *const Attrs;
        M::before(
            attrs.cast(),
            size_of::<Attrs>(),
            minflt_sync::Kind::PlainRead,
        );
        // SAFETY: records are published whole and freed by the lifetime the caller's hold keeps
        // off.
        let attrs = unsafe { &*attrs };
        VmaView {
            range: attrs.range,
            prot: attrs.prot,
        }
    }

    /// Puts other attributes in; returns the old record, which the caller frees by the lifetime.
    pub(crate) fn publish(&self, attrs: NonNull<Attrs>) -> Option<NonNull<Attrs>> {
        let old = self.attrs.load(Ordering::Relaxed);
        // ORDERING: Release; pairs with [vma-attrs].
        self.attrs.store(attrs.as_ptr() as u64, Ordering::Release);
        NonNull::new(old as *mut Attrs)
    }

    /// The record now, for freeing it with the VMA.
    pub(crate) fn attrs_ptr(&self) -> Option<NonNull<Attrs>> {
        NonNull::new(self.attrs.peek() as *mut Attrs)
    }

    /// The attributes without the door, for oracles.
    pub(crate) fn peek(&self) -> VmaView {
        // SAFETY: oracles look while nobody changes the VMA.
        let attrs = unsafe { &*(self.attrs.peek() as *const Attrs) };
        VmaView {
            range: attrs.range,
            prot: attrs.prot,
        }
    }
}

impl<M: Mmu> fmt::Debug for Vma<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vma {}", self.id)
    }
}
