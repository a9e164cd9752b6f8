//! References to files, and unreferenced files until they are closed.
//!
//! # Problem
//! Dropping the last reference to a file writes back dirty pages, and frees all: a wait for a
//! device, and work for each page. The last reference is often a mapping's, dropped under
//! `mmap_lock`; other threads that need the lock would wait for the device, too.
//!
//! # Protocol
//! The step that takes the reference count to 0 makes an [`Unused`], of which there is one for each
//! file. Dropping it closes the file. A thread that holds a lock puts it into [`UnusedFiles`],
//! which is dropped after the lock is released ([`crate::change::writers::Writers`]).
//!
//! # Why it is correct
//! A count of 0 is never raised again, so the file belongs to the owner of its [`Unused`], and can
//! be in one list only. It is closed on a CPU, though the thread that drops the last handle need
//! not be on one ([`minflt_sync::Machine::on_a_cpu`]). Until it is closed it remains in the list of
//! all files, with its pages; reclaim may take clean ones and write dirty ones, as of any file.
//!
//! Linux: fput, which leaves the last reference to `task_work` or a work queue (fs/file_table.c).

use super::{FileAccess, FileHandle, PageCache};
use crate::base::error::NoMemory;
use crate::memory::lifetime::SystemRef;
use crate::system::System;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::{Job, Ordering, lockdep};

/// An unreferenced file. Dropping it closes the file.
///
/// # Invariants
/// The reference count of the file is 0, and this is the only value that names it.
pub(crate) struct Unused<M: Mmu> {
    cache: NonNull<PageCache<M>>,
}

/// A reference to a file. Dropping the last one closes the file.
///
/// # Invariants
/// 1. It counts in the file.
pub(crate) struct FileRef<M: Mmu> {
    cache: NonNull<PageCache<M>>,
}

// SAFETY: a `PageCache` may be shared by threads.
unsafe impl<M: Mmu> Send for FileRef<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for FileRef<M> {}

impl<M: Mmu> FileRef<M> {
    /// The first reference to a new file, which `make` makes with that one counted.
    pub(super) fn create(
        sys: &System<M>,
        make: impl FnOnce(SystemRef<M>) -> PageCache<M>,
    ) -> Result<Self, NoMemory> {
        // SAFETY: 1: for a cache that is allocated below, or given up.
        let cache = make(unsafe { SystemRef::new(sys) });
        let cache = sys.files.caches.alloc(cache, sys).map_err(|_| NoMemory)?;
        // INVARIANT: 1: it starts with one.
        Ok(Self { cache })
    }

    /// # Safety
    /// 1. A reference that the caller has is this one's from now on.
    const unsafe fn new(cache: NonNull<PageCache<M>>) -> Self {
        // INVARIANT: 1: 1 of this function.
        Self { cache }
    }

    /// Where the file is.
    pub(crate) const fn as_ptr(&self) -> NonNull<PageCache<M>> {
        self.cache
    }
}

impl<M: Mmu> Deref for FileRef<M> {
    type Target = PageCache<M>;

    fn deref(&self) -> &PageCache<M> {
        // SAFETY: by the invariant it is not closed.
        unsafe { self.cache.as_ref() }
    }
}

impl<M: Mmu> Drop for FileRef<M> {
    fn drop(&mut self) {
        // SAFETY: 1: by the invariant.
        unsafe { PageCache::put(self.cache) };
    }
}

impl<M: Mmu> PageCache<M> {
    /// The cache at an address that a list, a frame or a record names, which keeps it.
    pub(crate) fn at<'a>(address: u64) -> Option<&'a Self> {
        // SAFETY: lists and records name living caches, and the caller holds what keeps them.
        unsafe { (address as *const Self).as_ref() }
    }

    /// Another reference to a file that is referenced already.
    pub(crate) fn keep(&self) -> FileRef<M> {
        if self.refs.add(1, Ordering::Relaxed) == 0 {
            M::violation(format_args!("reference to a file that is being closed"));
        }
        // SAFETY: 1: counted by the line before.
        unsafe { FileRef::new(NonNull::from(self)) }
    }

    /// A handle of it, unless the last one has gone already.
    pub(crate) fn try_handle(&self) -> Option<FileHandle<'_, M>> {
        let mut found = self.refs.load(Ordering::Relaxed);
        while found != 0 {
            let how = (Ordering::Relaxed, Ordering::Relaxed);
            match self.refs.cas(found, found + 1, how.0, how.1) {
                Ok(_) => {
                    return Some(FileHandle {
                        sys: self.system(),
                        // SAFETY: 1: counted by the exchange.
                        cache: unsafe { FileRef::new(NonNull::from(self)) },
                        access: FileAccess::ReadWrite,
                    });
                }
                Err(now) => found = now,
            }
        }
        None
    }

    /// One less. The last one writes back what is dirty, and drops the pages.
    ///
    /// # Context
    /// Holds nothing. May sleep, and wait for a device.
    ///
    /// # Safety
    /// 1. The caller has a reference to the cache, which is gone when this returns, and perhaps the
    ///    cache with it: hence no `self`.
    pub(crate) unsafe fn put(cache: NonNull<Self>) {
        // SAFETY: 1: the caller's reference goes with this, by 1 of this function.
        drop(unsafe { Self::unused(cache) });
    }

    /// Drops a reference, for callers that hold locks. The last one gets the file, to close it with
    /// no lock held.
    ///
    /// # Safety
    /// 1. As of [`PageCache::put`].
    #[must_use = "dropping it closes the file, which may wait for a device"]
    pub(crate) unsafe fn unused(cache: NonNull<Self>) -> Option<Unused<M>> {
        // ORDERING: Release; pairs with [file-put]. Acquire, by the same step; pairs with
        // [file-put].
        // SAFETY: the caller's reference keeps it until the step, by 1 of this function.
        let last = unsafe { cache.as_ref() }.refs.sub(1, Ordering::AcqRel) == 1;
        // INVARIANT: the step that takes a count to 0 is made once.
        last.then(|| Unused { cache })
    }

    /// Writes back what is dirty, drops the pages, and frees the cache.
    ///
    /// # Context
    /// As [`PageCache::put`].
    ///
    /// # Safety
    /// 1. Nobody refers to the cache, which is closed once.
    unsafe fn close(cache: NonNull<Self>) {
        // SAFETY: 1 of this function: live, until the free below.
        let this = unsafe { cache.as_ref() };
        // No caller is left to report an error to. Linux: the same, at the last iput.
        let _nobody_asks = this.write_all();
        if this.is_huge() {
            this.drop_all_huge();
        } else {
            this.drop_all();
        }
        let sys = this.system();
        sys.unlist_file(this);
        this.index.free(sys);
        if let Some(ops) = this.ops {
            sys.files.on_devices.sub(1, Ordering::Relaxed);
            ops.release();
        }
        // SAFETY: 1, 2: the last reference is gone.
        unsafe { sys.files.caches.free(cache, sys) };
    }
}

impl<M: Mmu> Drop for Unused<M> {
    fn drop(&mut self) {
        // SAFETY: alive: freed by the job below only, by the invariant.
        let cache = unsafe { self.cache.as_ref() };
        if cache.writes_back() {
            // Waits for a device.
            lockdep::holds_nothing::<M>();
        }
        let job = Job {
            call: close::<M>,
            arg: self.cache.as_ptr().cast_const().cast(),
        };
        // SAFETY: 1: the last reference is gone; the cache and its system stay until the system
        // ends, which takes the handler back.
        unsafe { M::on_a_cpu(&cache.system().at, job) };
    }
}

/// # Safety
/// 1. `arg` is an unreferenced cache. 2. It is called once.
unsafe fn close<M: Mmu>(arg: *const ()) {
    let Some(cache) = NonNull::new(arg.cast_mut().cast::<PageCache<M>>()) else {
        return;
    };
    // SAFETY: 1: 1 and 2 of this function.
    unsafe { PageCache::close(cache) };
}

/// Unreferenced files, closed when this is dropped.
pub(crate) struct UnusedFiles<M: Mmu> {
    /// The last that was added, which names the one before.
    last: Cell<Option<NonNull<PageCache<M>>>>,
}

impl<M: Mmu> UnusedFiles<M> {
    pub(crate) const fn new() -> Self {
        Self {
            last: Cell::new(None),
        }
    }

    /// One more.
    pub(crate) fn add(&self, unused: Unused<M>) {
        let unused = ManuallyDrop::new(unused);
        let before = self.last.replace(Some(unused.cache));
        let before = before.map_or(0, |before| before.as_ptr() as u64);
        // SAFETY: alive, by the invariant of `Unused`.
        let cache = unsafe { unused.cache.as_ref() };
        cache.unused.store(before, Ordering::Relaxed);
    }
}

impl<M: Mmu> Drop for UnusedFiles<M> {
    fn drop(&mut self) {
        while let Some(cache) = self.last.take() {
            // SAFETY: alive, by the invariant of `Unused`.
            let before = unsafe { cache.as_ref() }.unused.load(Ordering::Relaxed);
            self.last.set(NonNull::new(before as *mut PageCache<M>));
            // INVARIANT: `add` took the one that there was.
            drop(Unused { cache });
        }
    }
}
