//! References to a file: from handles, from links of mappings, and from threads that read a page
//! in. For the drop of the last one see [`super::unused`].

use super::{FileAccess, FileHandle, PageCache};
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::Ordering;

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
}
