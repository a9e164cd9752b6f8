//! Files: their page cache and their mappings.
//!
//! # Problem
//! All mappings of a file share its pages. A fault must find a page without a contended lock;
//! truncation must unmap a page from every address space, while faults would map it again.
//!
//! # Idea
//! A [`PageCache`] holds what is cached of a file: an index from page numbers to frames
//! ([`index`]), the reverse map to the mappings ([`links`]), the size. A cached frame names its
//! cache and its page number. Code that relies on that locks the frame (the *folio lock*) and
//! rechecks.
//!
//! # Protocol
//! - Find: look the frame up, take a reference unless the count is 0, look the slot up again
//!   ([`pages`]).
//! - Map: lock the frame, recheck its cache and number, check the size; then install the PTE, and
//!   only then unlock.
//! - Truncate: set the size first; then unmap the PTEs, by the reverse map; then remove the frames,
//!   each locked, and if it was mapped again unmap it, too; then unmap the private copies once more
//!   ([`truncate`]).
//! - Store through a shared mapping: the frame is marked dirty before the PTE allows stores. Write
//!   back: write-protect the PTEs, flush TLBs, clear the dirty mark, write the page
//!   ([`writeback`]).
//!
//! # Why it is correct
//! A fault that locked a frame before truncation did, and saw the old size, has installed its PTE
//! when truncation gets the lock, which then sees that the frame is mapped. A fault that locks it
//! later sees the new size, or that the frame is no longer the cache's. A page is found by its
//! number only where slot and frame agree while a reference is held, so a frame that was freed and
//! reused is never taken for the page. A writable PTE names a page that is marked dirty; a store
//! after the mark was cleared takes a fault, which sets it again.
//!
//! # Cost
//! A fault on a cached page: the index's walk, two exchanges for the lock, one for the reference,
//! one for the map count. Faults on different pages share no line that they write.
//!
//! Linux: `struct address_space`; mm/filemap.c, mm/truncate.c, mm/shmem.c.

mod bytes;
mod handle;
mod index;
pub(crate) mod links;
mod ops;
mod pages;
mod part;
mod read;
mod reclaim;
mod refs;
mod truncate;
mod unused;
mod words;
mod writeback;

pub(crate) use bytes::Part;
pub use handle::FileHandle;
pub(crate) use index::{CacheNode, InOrder};
pub(crate) use links::{huge_lock_of, own_pages_of};
pub use ops::FileOps;
pub(crate) use pages::{Looked, Sought};
pub(crate) use part::FilePart;
pub(crate) use read::NotRead;
pub(crate) use truncate::clear_bytes;
pub(crate) use unused::{FileRef, Unused, UnusedFiles};

use crate::base::attrs::VmaView;
use crate::base::error::NoMemory;
use crate::base::file::FileKey;
use crate::base::huge_size::HugeSize;
use crate::memory::lifetime::SystemRef;
use crate::pages::interval::Spans;
use crate::pages::reserved::reserve::Reservations;
use crate::system::System;
use core::fmt;
use index::Index;
use links::FileLink;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::order::{FileLock, FilesLock, HugeMapLock, HugeReserveLock, IMmapLock};
use minflt_sync::slab::{Magazine, Pages, SlabObject};
use minflt_sync::{Atomic, Ordering, PerCpu, RwSem, Slab, SpinLock, WaitTable};

/// Bytes that a file may have: what a page number of 4 KiB pages fits in, with room to add.
pub(crate) const LARGEST: u64 = 1 << 62;

/// Whether what is stored to a mapping of a file is stored to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// No: the first store to a page makes a copy (`MAP_PRIVATE`).
    Private,
    /// Yes (`MAP_SHARED`).
    Shared,
}

/// What a handle of a file may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileAccess {
    /// Loads (`O_RDONLY`): a shared mapping of it can never be stored to.
    Read,
    /// Loads and stores (`O_RDWR`).
    ReadWrite,
}

/// The cached pages of a file, and its mappings.
#[repr(C, align(64))]
pub(crate) struct PageCache<M: Mmu> {
    system: SystemRef<M>,
    /// Where pages come from and go to; `None` for a file that is memory only.
    ops: Option<&'static dyn FileOps<M>>,
    /// Distinguishes it from every other file of the system, and names it in `maps`. Immutable.
    pub(crate) id: u64,
    index: Index<M>,
    /// Bytes. Written by: `resize`, write.
    size: Atomic<u64, M>,
    /// The page behind the last one that was read in, and how many are read ahead of it. A hint.
    read: read::Ahead<M>,
    /// References: handles, links of mappings, and page reads in progress.
    refs: Atomic<u64, M>,
    /// Neighbours among all files. Guarded by: the list's lock, in [`Files`].
    next: Atomic<u64, M>,
    prev: Atomic<u64, M>,
    /// Held to change the size or to remove pages. Linux: `i_rwsem`.
    pub(crate) resize: RwSem<FileLock, M>,
    /// Guards `links`.
    pub(crate) i_mmap: RwSem<IMmapLock, M>,
    pub(crate) spans: Spans<M>,
    /// Hugetlb: held by faults while they use a page table, where that is the choice.
    pub(crate) map_lock: RwSem<HugeMapLock, M>,
    /// Held by mmap of huge pages until they are reserved. Linux: hugetlbfs's `i_rwsem`.
    pub(crate) reserving: RwSem<HugeReserveLock, M>,
    /// Huge pages that are reserved or were used.
    pub(crate) reserved: Reservations<M>,
    /// No huge page from this number on lies behind the end: allocation may make such, faults do
    /// not. Written under: `resize`; read by oracles.
    pub(crate) made_to: Atomic<u64, M>,
    /// How large its pages are, where they are huge. Immutable.
    pub(crate) huge: Option<HugeSize>,
    /// The segment whose memory it is, 0 for none. Set before it is published.
    pub(crate) segment: Atomic<u64, M>,
    /// Link to the next unreferenced file, 0 for none. Guarded by: the list's owner
    /// ([`UnusedFiles`]).
    unused: Atomic<u64, M>,
}

/// What a system keeps of files.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Files<M: Mmu> {
    pub(crate) caches: Slab<PageCache<M>, M>,
    pub(crate) nodes: Slab<CacheNode<M>, M>,
    pub(crate) links: Slab<FileLink<M>, M>,
    /// The address of the first of all files, 0 for none.
    first: SpinLock<u64, FilesLock, M>,
    /// How many of them are on devices: their clean pages can be reclaimed.
    on_devices: Atomic<u64, M>,
    /// Where threads sleep that wait for pages.
    pub(crate) waits: WaitTable<M>,
}

impl<M: Mmu> Files<M> {
    /// No files; the slabs' magazines.
    pub(crate) fn new([caches, nodes, links]: [PerCpu<Magazine<M>, M>; 3]) -> Self {
        Self {
            caches: Slab::new(8, caches, Pages::Leave),
            nodes: Slab::new(9, nodes, Pages::Leave),
            links: Slab::new(10, links, Pages::Leave),
            first: SpinLock::new(0),
            on_devices: Atomic::new(0),
            waits: WaitTable::new(),
        }
    }
}

impl<M: Mmu> Files<M> {
    /// How many files are on devices.
    pub(crate) fn on_devices(&self) -> u64 {
        self.on_devices.load(Ordering::Relaxed)
    }
}

impl<M: Mmu> SlabObject for PageCache<M> {}

impl<M: Mmu> System<M> {
    /// A file; a hugetlb file, if a page size is given.
    pub(crate) fn make_file(
        &self,
        ops: Option<&'static dyn FileOps<M>>,
        bytes: u64,
        huge: Option<HugeSize>,
    ) -> Result<FileHandle<'_, M>, NoMemory> {
        if bytes > LARGEST {
            return Err(NoMemory);
        }
        let locks = self.config.sleeping_locks;
        let cache = FileRef::create(self, |system| PageCache {
            system,
            ops,
            id: self.new_id(),
            index: Index::new(),
            size: Atomic::new(bytes),
            read: read::Ahead::new(),
            refs: Atomic::new(1),
            next: Atomic::new(0),
            prev: Atomic::new(0),
            resize: RwSem::new(locks.of_mutex()),
            i_mmap: RwSem::new(locks.of_mutex()),
            spans: Spans::new(),
            map_lock: RwSem::new(locks.of_semaphore()),
            reserving: RwSem::new(locks.of_mutex()),
            reserved: Reservations::new(),
            made_to: Atomic::new(0),
            huge,
            segment: Atomic::new(0),
            unused: Atomic::new(0),
        })?;
        self.list_file(&cache);
        if ops.is_some() {
            self.files.on_devices.add(1, Ordering::Relaxed);
        }
        Ok(FileHandle {
            sys: self,
            cache,
            access: FileAccess::ReadWrite,
        })
    }

    /// Puts a file in front of all files.
    fn list_file(&self, new: &PageCache<M>) {
        let mut first = self.files.first.lock();
        new.next.store(*first, Ordering::Relaxed);
        if let Some(second) = PageCache::<M>::at(*first) {
            second.prev.store(new.address(), Ordering::Relaxed);
        }
        *first = new.address();
    }

    fn unlist_file(&self, cache: &PageCache<M>) {
        let mut first = self.files.first.lock();
        let next = cache.next.load(Ordering::Relaxed);
        let prev = cache.prev.load(Ordering::Relaxed);
        match PageCache::<M>::at(prev) {
            Some(prev) => prev.next.store(next, Ordering::Relaxed),
            None => *first = next,
        }
        if let Some(next) = PageCache::<M>::at(next) {
            next.prev.store(prev, Ordering::Relaxed);
        }
    }

    /// Calls `visit` with each file. For oracles, while nothing runs.
    pub(crate) fn each_file(&self, mut visit: impl FnMut(&PageCache<M>)) {
        let mut at = self.files.first.peek(|first| *first);
        while let Some(cache) = PageCache::<M>::at(at) {
            at = cache.next.peek();
            visit(cache);
        }
    }
}

impl<M: Mmu> PageCache<M> {
    pub(crate) fn system(&self) -> &System<M> {
        self.system.get()
    }

    pub(crate) fn address(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    /// The name that mappings know it by.
    pub(crate) fn key(&self) -> FileKey {
        FileKey::of(self.address())
    }

    /// How many nodes its index has. For oracles, while nothing runs.
    pub(crate) fn nodes(&self) -> u64 {
        self.index.nodes()
    }

    /// The frame of a page. For oracles, while nothing runs.
    pub(crate) fn peek(&self, index: u64) -> Option<Pfn> {
        self.index.peek(index)
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        // ORDERING: Acquire; pairs with [file-size].
        self.size.load(Ordering::Acquire)
    }

    /// The same, for oracles.
    pub(crate) fn size_peek(&self) -> u64 {
        self.size.peek()
    }

    /// Pages that have bytes of the file.
    pub(crate) fn pages(&self) -> u64 {
        pages_of::<M>(self.size())
    }

    /// It has that many bytes from now on. Under `resize` for writing.
    pub(crate) fn set_size(&self, bytes: u64) {
        // ORDERING: Release; pairs with [file-size].
        self.size.store(bytes, Ordering::Release);
    }

    /// Extends the file to at least that many bytes; concurrent calls may extend it, too.
    pub(crate) fn grow_to(&self, bytes: u64) {
        let mut size = self.size.load(Ordering::Relaxed);
        while size < bytes {
            // ORDERING: Release; pairs with [file-size].
            match self
                .size
                .cas(size, bytes, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(found) => size = found,
            }
        }
    }

    /// The slot of huge page `index`.
    ///
    /// # Errors
    /// No memory for the nodes above it.
    pub(crate) fn slot_of_huge(&self, index: u64) -> Result<&Atomic<u64, M>, NoMemory> {
        self.index.slot_for(self.system(), index)
    }

    /// Calls `visit` with the number of each page from `first` to `last` that is cached.
    pub(crate) fn each_cached(&self, first: u64, last: u64, mut visit: impl FnMut(u64)) {
        self.index.each(first, last, |index, _| visit(index));
    }

    /// Whether its pages have to be written somewhere.
    pub(crate) const fn writes_back(&self) -> bool {
        self.ops.is_some()
    }

    /// Whether fault-around may map its pages.
    pub(crate) fn maps_around(&self) -> bool {
        self.ops.is_none_or(FileOps::maps_around)
    }
}

impl<M: Mmu> PageCache<M> {
    /// Start offsets of its fields, ascending: for names.
    pub(crate) fn fields() -> [(usize, &'static str); 11] {
        use core::mem::offset_of;
        let mut fields = [
            (0, "file"),
            (offset_of!(Self, index), "index"),
            (offset_of!(Self, size), "size"),
            (offset_of!(Self, refs), "refs"),
            (offset_of!(Self, resize), "resize"),
            (offset_of!(Self, i_mmap), "i_mmap"),
            (offset_of!(Self, map_lock), "map_lock"),
            (offset_of!(Self, reserving), "reserving"),
            (offset_of!(Self, reserved), "reserved"),
            (offset_of!(Self, made_to), "made_to"),
            (offset_of!(Self, segment), "segment"),
        ];
        fields.sort_unstable();
        fields
    }
}

/// Pages that `bytes` bytes lie in.
pub(crate) fn pages_of<M: Mmu>(bytes: u64) -> u64 {
    bytes.div_ceil(M::Paging::page())
}

impl VmaView {
    /// The cache of the file that it maps. Whoever holds the mapping holds the file.
    #[inline(always)]
    pub(crate) fn cache<'a, M: Mmu>(&self) -> Option<&'a PageCache<M>> {
        PageCache::at(self.file.address())
    }
}

impl<M: Mmu> fmt::Debug for PageCache<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageCache {}", self.id)
    }
}

/// The frame that a slot of the index names.
const fn named(slot: u64) -> Pfn {
    Pfn(slot)
}
