//! A mapping: a stable identity and an immutable record of attributes.
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
//! Readers: under `mmap_lock` or the VMA's own lock ([`crate::vma_lock`]), or in a read section of
//! the lifetime's domain with the sequence count sampled before and checked after. Writers:
//! `mmap_lock` for writing, inside a section ([`crate::writers`]): where the ladder speculates the
//! count is odd, where it locks VMAs this one is write-locked. A VMA that was taken out keeps an
//! odd count for ever, or is detached, so nobody holds on to it again.
//!
//! # Why it is correct
//! A record is never written after it is published, and freed by the configured lifetime; the first
//! one with its VMA.

use crate::file::FileKey;
use crate::policy::Policy;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Access, Grant, Mmu, Paging};
use minflt_sync::order::VmaLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Callback, LockedAt, Ordering, RefLock, RwSem, SeqCount, Succession};

/// Access rights of a mapping: a set of loads, stores and instruction fetches.
///
/// Nothing here fetches instructions, so [`Prot::EXEC`] is remembered and shown, and grants loads,
/// as on the hardware that most programs run on.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Prot(u8);

impl Prot {
    /// No access.
    pub const NONE: Self = Self(0);
    /// Loads.
    pub const READ: Self = Self(1 << 0);
    /// Stores. They imply loads, as on the hardware.
    pub const WRITE: Self = Self(1 << 1);
    /// Instruction fetches.
    pub const EXEC: Self = Self(1 << 2);
    /// Loads and stores.
    pub const READ_WRITE: Self = Self::READ.with(Self::WRITE);
    /// Bits that a set takes.
    pub(crate) const BITS: u32 = 3;

    /// With those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The most an entry of the mapping may grant.
    #[must_use]
    #[inline(always)]
    pub const fn grant(self) -> Grant {
        if self.has(Self::WRITE) {
            Grant::Write
        } else if self.0 != 0 {
            Grant::Read
        } else {
            Grant::Nothing
        }
    }

    /// Whether an access is allowed.
    #[must_use]
    pub fn allows(self, access: Access) -> bool {
        self.grant() >= access.needs()
    }

    /// The set as a number of three bits: 1 loads, 2 stores, 4 fetches.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// The set that a number stands for; other bits are left out.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self((bits & ((1 << Self::BITS) - 1)) as u8)
    }
}

/// As `maps` prints it: `rwx`, with a dash for what is not allowed.
impl fmt::Display for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |right, letter| if self.has(right) { letter } else { "-" };
        f.write_str(letter(Self::READ, "r"))?;
        f.write_str(letter(Self::WRITE, "w"))?;
        f.write_str(letter(Self::EXEC, "x"))
    }
}

impl fmt::Debug for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What else a mapping is: a set.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct VmaFlags(u32);

impl VmaFlags {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Its pages are promised, and given back when it goes (`VM_ACCOUNT`).
    pub const ACCOUNT: Self = Self(1 << 0);
    /// Its pages are never promised (`VM_NORESERVE`).
    pub const NORESERVE: Self = Self(1 << 1);
    /// Its pages stay resident (`VM_LOCKED`).
    pub const LOCKED: Self = Self(1 << 2);
    /// They are locked when they are first touched (`VM_LOCKONFAULT`).
    pub const LOCKED_ON_FAULT: Self = Self(1 << 3);
    /// It grows down to accesses below it, as a stack does (`VM_GROWSDOWN`).
    pub const GROWS_DOWN: Self = Self(1 << 4);
    /// A child does not get it (`VM_DONTCOPY`).
    pub const DONT_FORK: Self = Self(1 << 5);
    /// A child gets it empty (`VM_WIPEONFORK`).
    pub const WIPE_ON_FORK: Self = Self(1 << 6);
    /// Left out of a core dump (`VM_DONTDUMP`).
    pub const DONT_DUMP: Self = Self(1 << 7);
    /// Accesses come in order (`VM_SEQ_READ`).
    pub const SEQUENTIAL: Self = Self(1 << 8);
    /// Accesses come in no order (`VM_RAND_READ`).
    pub const RANDOM: Self = Self(1 << 9);
    /// Huge pages are wanted (`VM_HUGEPAGE`).
    pub const HUGE_PAGE: Self = Self(1 << 10);
    /// Huge pages are not wanted (`VM_NOHUGEPAGE`).
    pub const NO_HUGE_PAGE: Self = Self(1 << 11);
    /// A touched hole is somebody else's to fill (`VM_UFFD_MISSING`).
    pub const UFFD_MISSING: Self = Self(1 << 12);
    /// A store to a page marked so is somebody else's to allow (`VM_UFFD_WP`).
    pub const UFFD_WP: Self = Self(1 << 13);

    /// What is stored there is stored to the file (`VM_SHARED`).
    pub const SHARED: Self = Self(1 << 14);
    /// It can never be stored to: a shared mapping of a file that was opened for loads (no
    /// `VM_MAYWRITE`).
    pub const NEVER_WRITTEN: Self = Self(1 << 15);
    /// Its pages are huge, those of a file (`VM_HUGETLB`).
    pub const HUGETLB: Self = Self(1 << 16);
    /// The huge pages that were set aside for it are its own, not a child's
    /// (`HPAGE_RESV_OWNER`).
    pub const HUGE_OWNER: Self = Self(1 << 17);
    /// Its huge pages are of the larger size.
    pub const HUGE_GIANT: Self = Self(1 << 18);

    const NAMES: &[(Self, &str)] = &[
        (Self::ACCOUNT, "account"),
        (Self::NORESERVE, "noreserve"),
        (Self::LOCKED, "locked"),
        (Self::LOCKED_ON_FAULT, "locked-on-fault"),
        (Self::GROWS_DOWN, "grows-down"),
        (Self::DONT_FORK, "dont-fork"),
        (Self::WIPE_ON_FORK, "wipe-on-fork"),
        (Self::DONT_DUMP, "dont-dump"),
        (Self::SEQUENTIAL, "sequential"),
        (Self::RANDOM, "random"),
        (Self::HUGE_PAGE, "huge-page"),
        (Self::NO_HUGE_PAGE, "no-huge-page"),
        (Self::UFFD_MISSING, "uffd-missing"),
        (Self::UFFD_WP, "uffd-wp"),
        (Self::SHARED, "shared"),
        (Self::NEVER_WRITTEN, "never-written"),
        (Self::HUGETLB, "hugetlb"),
        (Self::HUGE_OWNER, "huge-owner"),
        (Self::HUGE_GIANT, "huge-giant"),
    ];

    /// With those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether any of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for VmaFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().filter(|(flag, _)| self.has(*flag));
        f.debug_list().entries(set.map(|(_, name)| name)).finish()
    }
}

/// What a mapping is: immutable once published.
#[derive(Debug)]
pub struct Attrs {
    view: VmaView,
    /// Waits for a grace period once replaced.
    pub(crate) callback: Callback,
}

/// The attributes, by value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmaView {
    /// The addresses mapped.
    pub range: VirtRange,
    /// The number of its first page in what it maps. Of anonymous memory that is the number of the
    /// address it was first mapped at: it stays when pages that exist are moved, so that the
    /// reverse map finds them. Two mappings are one only if their numbers go on.
    ///
    /// Linux: `vm_pgoff`.
    pub pgoff: u64,
    /// What may be done there.
    pub prot: Prot,
    /// What else it is.
    pub flags: VmaFlags,
    /// Where its pages come from.
    pub policy: Policy,
    /// Who is told of its faults: the number of a userfaultfd, 0 for nobody.
    pub uffd: u16,
    /// Which file it maps, if any.
    pub file: FileKey,
}

impl VmaView {
    /// A new mapping of anonymous memory.
    #[must_use]
    pub fn anonymous<P: Paging>(range: VirtRange, prot: Prot, flags: VmaFlags) -> Self {
        Self {
            range,
            pgoff: range.start().page(P::shift()),
            prot,
            flags,
            policy: Policy::DEFAULT,
            uffd: 0,
            file: FileKey::NONE,
        }
    }

    /// The same mapping, of the addresses `range`, which overlap its own or touch it.
    #[must_use]
    pub fn of_range<P: Paging>(self, range: VirtRange) -> Self {
        let (old, new) = (self.range.start().0, range.start().0);
        let moved = new.wrapping_sub(old).cast_signed() >> P::shift();
        Self {
            range,
            pgoff: self.pgoff.wrapping_add_signed(moved),
            ..self
        }
    }

    /// The number of the page at `addr` in what is mapped.
    ///
    /// Linux: linear_page_index.
    #[must_use]
    #[inline(always)]
    pub fn page_index<P: Paging>(&self, addr: VirtAddr) -> u64 {
        self.pgoff + (addr.page(P::shift()) - self.range.start().page(P::shift()))
    }

    /// Whether a VMA's own first record can say it.
    pub(crate) fn is_plain<P: Paging>(&self) -> bool {
        *self == Self::anonymous::<P>(self.range, self.prot, self.flags)
    }
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
    /// the ladder locks VMAs; 0 before and after. Guarded by: `mmap_lock`, write.
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

// SAFETY: the link overwrites the id, which readers use for printing only. A fresh VMA's number,
// owner and count are zero, and are changed by atomic stores only.
unsafe impl<M: Mmu> SlabObject for Vma<M> {
    const KEPT: Range<usize> = offset_of!(Self, lock_seq)..offset_of!(Self, lock);
}
// SAFETY: the link overwrites the start of the range; nobody reads a freed record.
unsafe impl SlabObject for Attrs {}

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
    /// the lifetime's domain.
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

    /// Puts other attributes in; returns the old record, which the caller frees by the lifetime,
    /// unless it lies in the VMA.
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
        // SAFETY: records are published whole and freed by the lifetime the caller's hold keeps
        // off.
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

impl<M: Mmu> fmt::Debug for Vma<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vma {}", self.id)
    }
}
