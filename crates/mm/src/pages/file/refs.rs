//! References to a file: from handles, from links of mappings, and from threads that read a page
//! in. Those of handles are [`FileRef`](super::FileRef)s; for the last see [`super::unused`].

use super::PageCache;
use minflt_pgtable::Mmu;
use minflt_sync::Ordering;

impl<M: Mmu> PageCache<M> {
    /// One more refers to it: a link, which gives it up by [`Self::unused`].
    pub(crate) fn hold(&self) {
        self.refs.add(1, Ordering::Relaxed);
    }

    /// How many refer to it. For oracles, while nothing runs.
    pub(crate) fn refs_raw(&self) -> u64 {
        self.refs.peek()
    }
}
