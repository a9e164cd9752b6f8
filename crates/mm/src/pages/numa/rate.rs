//! Rate limit of NUMA migration per node, so that migrations do not consume the bandwidth that they
//! are meant to save.
//!
//! Linux: mm/migrate.c numamigrate_update_ratelimit (v3.8 to v4.19).

use super::Numa;
use core::fmt;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Atomic, Ordering};

/// What moved to one node lately.
pub(crate) struct Rate<M: Mmu> {
    /// The window's number, and the pages of it: 32 bits each. Two that begin a window at the same
    /// time both move their page, and one is counted.
    window: Atomic<u64, M>,
}

impl<M: Mmu> Rate<M> {
    pub(crate) fn new() -> Self {
        Self {
            window: Atomic::new(0),
        }
    }
}

impl<M: Mmu> Numa<M> {
    /// Whether one more page may move to `node` now; counts it.
    pub(crate) fn may_move_to(&self, node: u32, now_ns: u64) -> bool {
        let knobs = self.knobs();
        let pages = knobs.rate_bytes / M::Paging::page();
        // Never 0, which is what a node starts with.
        let number = (now_ns / knobs.rate_window_ns.max(1)).wrapping_add(1) & 0xffff_ffff;
        let window = &self.rates.get(node).window;
        let found = window.load(Ordering::Relaxed);
        if found >> 32 != number {
            // Whoever loses this was as early as the winner.
            let _counted = window.cas(
                found,
                number << 32 | 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            return pages > 0;
        }
        let fits = found & 0xffff_ffff < pages.min(0xffff_ffff);
        if fits {
            window.add(1, Ordering::Relaxed);
        }
        fits
    }
}

impl<M: Mmu> fmt::Debug for Rate<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rate {:?}", self.window)
    }
}
