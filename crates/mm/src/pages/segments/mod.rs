//! System V shared memory segments: in-memory files with an identifier and an attach count.
//!
//! # Problem
//! A segment outlives the process that created it. A removed segment exists as long as it is mapped
//! anywhere, and is freed with its last mapping, whichever call unmaps that.
//!
//! # Idea
//! A segment is an in-memory file plus a row in a table, which has a reference to the file. Every
//! mapping of a file has a link ([`crate::pages::file::links`]), from the creation of its VMA until
//! it maps no more pages; the link of a segment's mapping is counted as an attachment. So splits,
//! forks and moves count as Linux's `open` and `close` of a VMA do, and the calls need no code for
//! it.
//!
//! # Protocol
//! - The table, keys and removal flags: under the lock, of class `ShmLock`.
//! - An attach count is raised from 0 under the lock: by shmat, which holds a count of its own
//!   until its mapping has one. From above 0 it is raised without the lock, by a call that makes
//!   one mapping out of another.
//! - It is lowered under the lock. The thread that lowers it to 0 and finds the segment removed, or
//!   that removes a segment with count 0, takes the segment out of the table, and frees it after it
//!   releases the lock.
//!
//! A hugetlb segment reserves all its pages at creation, in its file, and no mapping reserves any;
//! the reservation is freed with the file ([`crate::pages::hugetlb`]). Its mappings are like others
//! of hugetlb files: each has a lock of its own, created and freed with its link, whatever is
//! counted as attached (P53).
//!
//! # Why it is correct
//! A thread that finds the count 0 under the lock has the segment to itself: the count rises from 0
//! under the lock only, and no mapping is left to make another one from. A page cache names its
//! segment while it is mapped, that is while the attach count is above 0.
//!
//! # Cost
//! The table is a list: a key or a number is found by a walk, at most [`ShmLimits::segments`] long.
//! Unmapping takes the lock, which all segments share. Other files pay one load.
//!
//! Linux: ipc/shm.c, ipc/util.c (v6.18).

mod table;

pub use table::ShmLimits;
pub(crate) use table::{Segments, Table};

use crate::memory::commit::Reserve;
use crate::mm::Mm;
use crate::pages::file::{FileHandle, PageCache};
use crate::system::System;
use core::ptr::NonNull;
use minflt_pgtable::{Mmu, SpaceId};
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Ordering};

/// What address spaces agree on to find a segment (`key_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmKey(pub u32);

impl ShmKey {
    /// No key: the segment is found by its number only (`IPC_PRIVATE`).
    pub const PRIVATE: Self = Self(0);
}

/// A segment's number: not negative in Linux's `int`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmId(pub u32);

/// What a segment is (`struct shmid_ds`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmStatus {
    /// Its key; [`ShmKey::PRIVATE`] once it was removed.
    pub key: ShmKey,
    /// Its size in bytes, as it was asked for (`shm_segsz`).
    pub bytes: u64,
    /// The rights it was made with: nine bits.
    pub mode: u16,
    /// Whether it is freed at the last detach (`SHM_DEST`).
    pub removed: bool,
    /// VMAs that map it, of all address spaces (`shm_nattch`).
    pub attached: u64,
    /// The address space that created it, which may no longer exist. Linux reports the process
    /// (`shm_cpid`).
    pub creator: SpaceId,
    /// The address space that last attached or detached (`shm_lpid`): of a fork the child, where
    /// Linux reports the parent.
    pub last: Option<SpaceId>,
}

/// What the pages of a segment are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShmPages {
    /// The format's.
    Small,
    /// Huge ones (`SHM_HUGETLB`): as many as its bytes lie in, reserved when it is made.
    Huge,
    /// Huge ones of so many bytes, as a power of two (`SHM_HUGE_SHIFT`).
    HugeOf(u32),
}

/// A segment to be made.
pub(crate) struct NewSegment {
    pub(crate) key: ShmKey,
    pub(crate) bytes: u64,
    pub(crate) mode: u16,
    pub(crate) reserve: Reserve,
    pub(crate) pages: ShmPages,
    pub(crate) creator: SpaceId,
}

/// A file in memory that has a number.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Segment<M: Mmu> {
    /// Its pages; it has a reference. Immutable, as all that is not said to be guarded.
    cache: NonNull<PageCache<M>>,
    id: ShmId,
    mode: u16,
    /// Bytes asked for.
    bytes: u64,
    /// Pages promised for it.
    promised: u64,
    creator: SpaceId,
    /// Guarded by: the table's lock.
    key: Atomic<u32, M>,
    /// 1 if it is freed with its last mapping. Guarded by: the table's lock.
    removed: Atomic<u32, M>,
    /// Links of mappings, and calls of shmat. See above.
    attached: Atomic<u64, M>,
    /// The address space that last attached or detached, 0 for none. No lock: it is for printing.
    last: Atomic<u64, M>,
    /// The next in the table. Guarded by: its lock.
    next: Atomic<u64, M>,
}

impl<M: Mmu> SlabObject for Segment<M> {}

/// A segment that is counted as attached until this is dropped, and so stays.
pub(crate) struct Held<'s, M: Mmu> {
    /// Its file.
    pub(crate) file: FileHandle<'s, M>,
    /// None for a control. No reference: dropping this may free it.
    counted: Option<NonNull<Segment<M>>>,
}

impl<M: Mmu> Segment<M> {
    /// The segment at an address that the table or a cache names.
    fn at<'a>(address: u64) -> Option<&'a Self> {
        // SAFETY: an entry of the table is valid while the table is locked; that of a cache, while
        // a mapping exists.
        unsafe { (address as *const Self).as_ref() }
    }

    fn address(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    fn cache(&self) -> &PageCache<M> {
        // SAFETY: it has a reference.
        unsafe { self.cache.as_ref() }
    }

    pub(crate) const fn id(&self) -> ShmId {
        self.id
    }

    /// Bytes asked for.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the mode lacks any of the permissions `wanted`. Each of the two has three bits for
    /// the owner, the group and others; every caller is the owner here, and none is privileged.
    ///
    /// Linux: ipcperms.
    pub(crate) const fn denies(&self, wanted: u16) -> bool {
        let wanted = wanted >> 6 | wanted >> 3 | wanted;
        wanted & !(self.mode >> 6) & 0o7 != 0
    }

    /// What it is. The table is locked.
    pub(crate) fn status(&self, _table: &Table<'_, M>) -> ShmStatus {
        let last = SpaceId(self.last.load(Ordering::Relaxed));
        ShmStatus {
            key: ShmKey(self.key.load(Ordering::Relaxed)),
            bytes: self.bytes,
            mode: self.mode,
            removed: self.removed.load(Ordering::Relaxed) != 0,
            attached: self.attached.load(Ordering::Relaxed),
            creator: self.creator,
            last: (last != SpaceId::default()).then_some(last),
        }
    }

    /// One less has it; the last one frees it if it was removed.
    ///
    /// # Safety
    /// 1. The caller is counted in `attached`, and no more when this returns.
    unsafe fn detach(segment: NonNull<Self>, sys: &System<M>) {
        let table = sys.segments();
        // SAFETY: the caller is counted until the next line, by 1; then the table keeps it.
        let this = unsafe { segment.as_ref() };
        this.attached.sub(1, Ordering::Relaxed);
        // SAFETY: 1: it is in the table until then, and the caller has no use for it.
        unsafe { table.let_go(segment) };
    }

    /// Frees the segment and its reference to the file.
    ///
    /// # Safety
    /// 1. The caller took it out of the table, and its attach count is 0.
    unsafe fn free(segment: NonNull<Self>, sys: &System<M>) {
        // SAFETY: out of the table, by 1, and freed below.
        let this = unsafe { segment.as_ref() };
        let (cache, promised) = (this.cache, this.promised);
        this.cache().segment.store(0, Ordering::Relaxed);
        sys.uncharge(promised);
        // SAFETY: 1, 2: made by `Table::make`; by 1 nothing names it any more.
        unsafe { sys.shm.slab.free(segment, sys) };
        // SAFETY: 1: the segment's.
        unsafe { PageCache::put(cache) };
    }

    /// Pages promised, and how many have it. For oracles.
    pub(crate) fn peek(&self) -> (u64, u64) {
        (self.promised, self.attached.peek())
    }
}

impl<M: Mmu> Table<'_, M> {
    /// Removes the segment with a number: now, or at the last detach. Whether there was one.
    ///
    /// # Context
    /// Sleeps for locks of the file's pages, where the segment is freed.
    ///
    /// Linux: do_shm_rmid.
    pub(crate) fn remove(self, id: ShmId) -> bool {
        let Some(segment) = self.numbered(id) else {
            return false;
        };
        segment.key.store(ShmKey::PRIVATE.0, Ordering::Relaxed);
        segment.removed.store(1, Ordering::Relaxed);
        let segment = NonNull::from(segment);
        // SAFETY: 1: found in it just now, and not looked at again.
        unsafe { self.let_go(segment) };
        true
    }

    /// Unlocks the table; frees `segment` if it was removed and its attach count is 0.
    ///
    /// # Safety
    /// 1. The segment is in this table; the caller does not use it afterwards.
    unsafe fn let_go(self, segment: NonNull<Segment<M>>) {
        let sys = self.sys;
        // SAFETY: 1 of this function: the table is locked, so it is not freed.
        let this = unsafe { segment.as_ref() };
        let removed = this.removed.load(Ordering::Relaxed) != 0;
        if !removed || this.attached.load(Ordering::Relaxed) > 0 {
            return;
        }
        self.take_out(this);
        drop(self);
        // SAFETY: 1: taken out just now, and attached nowhere.
        unsafe { Segment::free(segment, sys) };
    }
}

impl<M: Mmu> Drop for Held<'_, M> {
    fn drop(&mut self) {
        if let Some(segment) = self.counted {
            // SAFETY: 1: counted by `Table::hold`.
            unsafe { Segment::detach(segment, self.file.sys) };
        }
    }
}

impl<M: Mmu> PageCache<M> {
    /// Whether its mappings are counted as attachments, so that unmapping must update the count.
    pub(crate) fn counts_mappings(&self) -> bool {
        self.segment.load(Ordering::Relaxed) != 0
    }

    /// The segment that it is the memory of. The caller has it mapped.
    fn segment(&self) -> Option<&Segment<M>> {
        Segment::at(self.segment.load(Ordering::Relaxed))
    }

    /// A mapping of it has a link from now on. Linux: shm_open.
    pub(super) fn mapped_by(&self, mm: &Mm<M>) {
        if let Some(segment) = self.segment() {
            segment.attached.add(1, Ordering::Relaxed);
            segment.last.store(mm.space.0, Ordering::Relaxed);
        }
    }

    /// A mapping of it has none any more. Linux: shm_close.
    ///
    /// # Context
    /// Sleeps for the table of segments. As [`PageCache::put`], of which it may be the cause.
    pub(super) fn unmapped_by(&self, mm: &Mm<M>) {
        if let Some(segment) = self.segment() {
            segment.last.store(mm.space.0, Ordering::Relaxed);
            // SAFETY: 1: counted by `mapped_by`.
            unsafe { Segment::detach(NonNull::from(segment), self.system()) };
        }
    }

    /// The segment that it is the memory of. For oracles, while nothing runs.
    pub(crate) fn segment_peek(&self) -> Option<&Segment<M>> {
        Segment::at(self.segment.peek())
    }
}
