//! Who refers to a file: handles, links of mappings, and those who read a page in.
//!
//! The last one closes it, on a CPU; whoever that is need not be one.

use super::{FileAccess, FileHandle, PageCache};
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::{Job, Ordering};

impl<M: Mmu> PageCache<M> {
    /// One more who refers to it.
    pub(crate) fn hold(&self) {
        self.refs.add(1, Ordering::Relaxed);
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
                        cache: NonNull::from(self),
                        access: FileAccess::ReadWrite,
                    });
                }
                Err(now) => found = now,
            }
        }
        None
    }

    /// How many refer to it. For oracles, while nothing runs.
    pub(crate) fn refs_raw(&self) -> u64 {
        self.refs.peek()
    }

    /// One less. The last one writes back what is dirty, and drops the pages; on a CPU, which the
    /// caller need not be.
    ///
    /// # Context
    /// Holds no spinning lock, and of the sleeping ones none behind `mmap_lock` and the VMA's. May
    /// sleep, and wait for a device.
    pub(crate) fn put(&self) {
        // ORDERING: Release; pairs with [file-put].
        if self.refs.sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // ORDERING: Acquire, by the same step; pairs with [file-put].
        let job = Job {
            call: close::<M>,
            arg: core::ptr::from_ref(self).cast(),
        };
        // SAFETY: 1: the last reference is gone; the cache and its system stay until the system
        // ends, which takes the handler back.
        unsafe { M::on_a_cpu(&self.system().at, job) };
    }

    /// Writes back what is dirty, drops the pages, and frees the cache, to which nobody refers.
    fn close(&self) {
        // Whoever can be told of an error has gone. Linux: the same, at the last iput.
        let _nobody_asks = self.write_all();
        if self.is_huge() {
            self.drop_all_huge();
        } else {
            self.drop_all();
        }
        let sys = self.system();
        sys.unlist_file(self);
        self.index.free(sys);
        if let Some(ops) = self.ops {
            sys.files.on_devices.sub(1, Ordering::Relaxed);
            ops.release();
        }
        // SAFETY: 1, 2: the last reference is gone.
        unsafe { sys.files.caches.free(NonNull::from(self), sys) };
    }
}

/// # Safety
/// 1. `arg` is a cache to which nobody refers. 2. It is called once.
unsafe fn close<M: Mmu>(arg: *const ()) {
    // SAFETY: 1, 2 of this function.
    unsafe { &*arg.cast::<PageCache<M>>() }.close();
}
