//! A VMA: a stable identity and an immutable attribute record.
//!
//! # Problem
//! A speculative fault reads a VMA's range, flags and protection while mprotect, split or munmap
//! may be changing them, and must get a consistent set or notice.
//!
//! # Idea
//! What changes together is one immutable record; the identity points to it. A writer makes a new
//! record and publishes it by one store; a reader reads one pointer. A VMA's first record lies in
//! it and stands for the pointer 0, so that a mapping that never changes costs one allocation, and
//! a lookup fetches identity and record at the same time.
//!
//! # Protocol
//! Readers: under `mmap_lock` or the VMA's own lock ([`crate::space::vma_lock`]), or in a read
//! section of the reclamation scheme's domain with the sequence count sampled before and checked
//! after. Writers: `mmap_lock` for writing, inside a section ([`crate::change::writers`]): where
//! the fallback order speculates the count is odd, where it locks VMAs this one is write-locked. A
//! removed VMA keeps an odd count, or is detached, so that no fault can lock it again.
//!
//! # Why it is correct
//! A record is never written after it is published, and is freed by the configured reclamation
//! scheme; the first one is freed with its VMA.

use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::config::Reclamation;
use crate::memory::lifetime::Reclaimed;
use crate::system::System;
use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;
use minflt_sync::order::VmaLock;
use minflt_sync::slab::{Kept, SlabObject};
use minflt_sync::{
    Atomic, Callback, LockedAt, Ordering, RefLock, RwSem, SeqCount, Slab, Succession,
};

/// What a mapping is: immutable once published.
#[derive(Debug)]
pub struct Attrs {
    view: VmaView,
    /// Waits for a grace period once replaced.
    pub(crate) callback: Callback,
}

/// The first record of a VMA, which lies in it: what is not said is as of new anonymous memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    range: VirtRange,
    prot: Prot,
    flags: VmaFlags,
}

impl First {
    /// The end of no mapping's range. The record of one that maps a file lies elsewhere always, so
    /// its place here says something else: the start of the range is the address of the link to
    /// the file.
    const IS_LINK: VirtAddr = VirtAddr(u64::MAX);
}

/// A mapping's identity. What faults only read stands in its first line, the lock that they write
/// behind it; no two VMAs share a line.
#[repr(C, align(64))]
pub struct Vma<M: Mmu> {
    /// Distinguishes it from every other VMA of the system, dead or alive.
    pub(crate) id: u64,
    /// Odd while the VMA is being changed, and for ever once it was taken out.
    pub(crate) seq: SeqCount<M>,
    /// The record, 0 for the first one.
    pub(crate) attrs: Atomic<u64, M>,
    /// The address of its own anon_vma, 0 before the first anonymous fault. Set once: before the
    /// VMA is published (split, fork), or by a fault under `mmap_lock` for reading, the root's lock
    /// and `page_table_lock`. 0 again when the VMA is taken out.
    pub(crate) anon_vma: Atomic<u64, M>,
    /// The first record. Immutable.
    pub(crate) first: First,
    /// Write-locked while this is [`crate::Mm`]'s. Guarded by: `mmap_lock`, write.
    pub(crate) lock_seq: LockedAt<M>,
    /// The [`SpaceId`](minflt_pgtable::SpaceId) of the address space whose tree it is in, where
    /// the fallback order locks VMAs; 0 before and after. Guarded by: `mmap_lock`, write.
    pub(crate) mm: Atomic<u64, M>,
    /// The lock, where it is a count.
    pub(crate) refcnt: RefLock<VmaLock, M>,
    /// The lock, where it is a semaphore.
    pub(crate) lock: RwSem<VmaLock, M>,
    /// The newest of its links to anon_vmas, 0 for none. Guarded by: `mmap_lock` for writing, or
    /// for reading with `page_table_lock`.
    pub(crate) chain: Atomic<u64, M>,
    /// Waits for a grace period once taken out.
    pub(crate) callback: Callback,
}

/// Nothing is added to a VMA that there is no room for.
pub(crate) const VMA_BYTES: usize = 128;

impl<M: Mmu> SlabObject for Vma<M> {
    // SAFETY: 1: the fields `lock_seq`, `mm` and `refcnt`. 2: a number, an owner and a count, all
    // zero in a fresh slot, and changed by atomic stores only.
    const KEPT: Kept = unsafe { Kept::new(offset_of!(Self, lock_seq), offset_of!(Self, lock)) };
}
impl SlabObject for Attrs {}

impl Attrs {
    pub(crate) const fn new(view: VmaView) -> Self {
        // One line.
        const { assert!(size_of::<Self>() <= 64) };
        Self {
            view,
            callback: Callback::new(),
        }
    }
}

impl<M: Mmu> Vma<M> {
    /// A VMA whose first record says the range, protection and flags of `view`, with its link to a
    /// file; what else `view` says, a record in its place has to ([`VmaView::is_plain`]).
    pub(crate) fn new(id: u64, view: VmaView, link: u64, succession: Succession) -> Self {
        const { assert!(size_of::<Self>() <= VMA_BYTES) };
        // A fault sees that a VMA is write-locked without the line that readers write.
        const { assert!(offset_of!(Self, lock_seq) < 64 && offset_of!(Self, mm) >= 64) };
        Self {
            id,
            seq: SeqCount::new(),
            attrs: Atomic::new(0),
            anon_vma: Atomic::new(0),
            first: First {
                range: match link {
                    0 => view.range,
                    link => VirtRange::new(VirtAddr(link), First::IS_LINK),
                },
                prot: view.prot,
                flags: view.flags,
            },
            chain: Atomic::new(0),
            callback: Callback::new(),
            // These three are not copied: see `SlabObject::KEPT`.
            lock_seq: LockedAt::new(),
            mm: Atomic::new(0),
            refcnt: RefLock::new(),
            lock: RwSem::new(succession),
        }
    }

    /// The address of its link to the file that it maps, 0 for anonymous memory. Immutable.
    pub(crate) fn link(&self) -> u64 {
        let range = self.first.range;
        if range.end() == First::IS_LINK {
            range.start().0
        } else {
            0
        }
    }

    /// The attributes now. The caller holds `mmap_lock` or the VMA's lock, or a read section of
    /// the reclamation scheme's domain.
    #[inline]
    pub fn view(&self) -> VmaView {
        // ORDERING: Acquire; pairs with [vma-attrs].
        let attrs = self.attrs.load(Ordering::Acquire);
        let (at, len) = match attrs {
            0 => ((&raw const self.first).cast(), size_of::<First>()),
            attrs => (attrs as *const u8, size_of::<VmaView>()),
        };
        M::before(at, len, minflt_sync::Kind::PlainRead);
        self.record(attrs)
    }

    /// Puts other attributes in; returns the old record, which the caller frees by the reclamation
    /// scheme, unless it lies in the VMA.
    pub(crate) fn publish(&self, attrs: NonNull<Attrs>) -> Option<NonNull<Attrs>> {
        let old = self.attrs.load(Ordering::Relaxed);
        // ORDERING: Release; pairs with [vma-attrs].
        self.attrs.store(attrs.as_ptr() as u64, Ordering::Release);
        NonNull::new(old as *mut Attrs)
    }

    /// Puts the first record back in; returns the one that was in its place.
    pub(crate) fn publish_first(&self) -> Option<NonNull<Attrs>> {
        let old = self.attrs.load(Ordering::Relaxed);
        // ORDERING: Release; pairs with [vma-attrs].
        self.attrs.store(0, Ordering::Release);
        NonNull::new(old as *mut Attrs)
    }

    /// What the record that the pointer stands for says.
    #[inline(always)]
    fn record(&self, attrs: u64) -> VmaView {
        if attrs == 0 {
            let First { range, prot, flags } = self.first;
            return VmaView::anonymous::<M::Paging>(range, prot, flags);
        }
        // SAFETY: records are published whole, and freed by the reclamation scheme, which the
        // caller's lock or read section delays.
        let attrs = unsafe { &*(attrs as *const Attrs) };
        attrs.view
    }

    /// The record now, for freeing it with the VMA; none where it lies in the VMA.
    pub(crate) fn attrs_ptr(&self) -> Option<NonNull<Attrs>> {
        NonNull::new(self.attrs.peek() as *mut Attrs)
    }

    /// The attributes without the door, for oracles.
    pub(crate) fn peek(&self) -> VmaView {
        self.record(self.attrs.peek())
    }
}

/// A VMA that may be freed before the function returns that was given this: a parameter that is a
/// reference promises more, that the VMA stays until then.
pub(crate) struct VmaPtr<'v, M: Mmu> {
    at: NonNull<Vma<M>>,
    kept: PhantomData<&'v Vma<M>>,
}

impl<M: Mmu> Clone for VmaPtr<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mmu> Copy for VmaPtr<'_, M> {}

impl<'v, M: Mmu> From<&'v Vma<M>> for VmaPtr<'v, M> {
    fn from(vma: &'v Vma<M>) -> Self {
        Self {
            at: NonNull::from(vma),
            kept: PhantomData,
        }
    }
}

impl<'v, M: Mmu> VmaPtr<'v, M> {
    /// # Safety
    /// 1. The VMA is live as long as `'v`, or until the caller frees it.
    pub(crate) const unsafe fn new(at: NonNull<Vma<M>>) -> Self {
        let kept = PhantomData;
        Self { at, kept }
    }

    /// The VMA, as long as it was not freed.
    pub(crate) const fn get(self) -> &'v Vma<M> {
        // SAFETY: made of a reference as good as this one, or 1 of `new`.
        unsafe { self.at.as_ref() }
    }

    /// Where it is, for who frees it.
    pub(crate) const fn as_ptr(self) -> NonNull<Vma<M>> {
        self.at
    }
}

// SAFETY: 1: the field of that name.
unsafe impl<M: Mmu> Reclaimed<M> for Attrs {
    const CALLBACK: usize = offset_of!(Self, callback);

    fn slab(sys: &System<M>) -> &Slab<Self, M> {
        &sys.attrs
    }
}

// SAFETY: 1: the field of that name.
unsafe impl<M: Mmu> Reclaimed<M> for Vma<M> {
    const CALLBACK: usize = offset_of!(Self, callback);

    fn slab(sys: &System<M>) -> &Slab<Self, M> {
        &sys.vmas
    }

    /// Its last record goes with it.
    fn dying(&self, sys: &System<M>) {
        if let Some(attrs) = self.attrs_ptr() {
            // SAFETY: 1, 2: published to this VMA only, which nobody has any more.
            unsafe { sys.attrs.free(attrs, sys) };
        }
    }
}

impl<M: Mmu> System<M> {
    /// Frees an unlinked record by the configured lifetime.
    ///
    /// # Safety
    /// 1. The record is unlinked, and retired once.
    pub(crate) unsafe fn retire_attrs(&self, attrs: NonNull<Attrs>) {
        // SAFETY: 1, 2: unlinked and retired once, by 1; records come from this slab.
        unsafe { self.retire_object(attrs) };
    }

    /// Frees an unlinked VMA with its record by the configured lifetime. Under `type-stable` at
    /// once: a lookup that still finds it finds it detached, or another VMA, and asks. Its record
    /// is read under its lock only, and could go too; it waits with all other records.
    ///
    /// # Safety
    /// 1. The VMA is unlinked and detached, and retired once.
    pub(crate) unsafe fn retire_vma(&self, vma: NonNull<Vma<M>>) {
        if self.config.reclamation != Reclamation::TypeStable {
            // SAFETY: 1, 2: unlinked and retired once, by 1; VMAs come from this slab.
            return unsafe { self.retire_object(vma) };
        }
        // SAFETY: 1 of this function: live, until the free below.
        let found = unsafe { vma.as_ref() };
        if M::CHECKED && found.refcnt.is_attached() {
            M::violation(format_args!("VMA freed while attached: {found:?}"));
        }
        if let Some(attrs) = found.attrs_ptr() {
            // SAFETY: 1: the VMA's last record, unlinked with it.
            unsafe { self.retire_attrs(attrs) };
        }
        // SAFETY: 1, 2: 1 of this function; late readers look at what is kept only.
        unsafe { self.vmas.free(vma, self) };
    }
}

impl<M: Mmu> fmt::Debug for Vma<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vma {}", self.id)
    }
}
