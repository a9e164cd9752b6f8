//! How many pages are resident: four ways to count, with their errors.
//!
//! | choice | error of a reader |
//! |---|---|
//! | under-lock | none |
//! | atomic | none |
//! | sloppy | unbounded: each lost update is permanent; shown as 0 when below 0 |
//! | per-thread | less than [`BATCH`] for each running thread; none once they have ended |
//!
//! No decision may depend on the number; the sloppy form was posted in 2004 on that condition.

use crate::config::{Broken, Config, Rss};
use core::cell::Cell;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Ordering};

/// Events after which a thread adds its share to the whole.
pub const BATCH: u32 = 64;

/// The address space's number: a signed count in a wrapping word.
#[derive(Debug)]
pub(crate) struct Resident<M: Mmu> {
    pages: Atomic<u64, M>,
}

/// A thread's share that is not yet in the whole.
#[derive(Debug, Default)]
pub(crate) struct Share {
    pages: Cell<i64>,
    events: Cell<u32>,
}

impl<M: Mmu> Resident<M> {
    pub(crate) fn new() -> Self {
        Self {
            pages: Atomic::new(0),
        }
    }

    /// Counts `change` pages. Where the choice is *under the lock*, the caller holds it.
    #[inline]
    pub(crate) fn add(&self, config: &Config, share: Option<&Share>, change: i64) {
        match (config.rss, share) {
            (Rss::UnderLock | Rss::Sloppy, _) => {
                let pages = self.pages.load(Ordering::Relaxed);
                self.pages
                    .store(pages.wrapping_add_signed(change), Ordering::Relaxed);
            }
            (Rss::PerThread, Some(share)) => {
                share.pages.set(share.pages.get() + change);
                share.events.set(share.events.get() + 1);
                if share.events.get() >= BATCH {
                    self.sync(share);
                }
            }
            (Rss::Atomic | Rss::PerThread, _) => {
                self.pages.add(change as u64, Ordering::Relaxed);
            }
        }
    }

    /// Adds a thread's share to the whole.
    pub(crate) fn sync(&self, share: &Share) {
        share.events.set(0);
        let pages = share.pages.replace(0);
        if pages != 0 {
            self.pages.add(pages as u64, Ordering::Relaxed);
        }
    }

    /// The number as it is, without the door: for oracles.
    pub(crate) fn raw(&self) -> i64 {
        self.pages.peek() as i64
    }

    /// What a reader is shown. In the sloppy form a count below 0 is also set to 0, as posted.
    pub(crate) fn shown(&self, config: &Config) -> i64 {
        let pages = self.pages.load(Ordering::Relaxed) as i64;
        if pages >= 0 || config.lacks(Broken::RawRss) {
            return pages;
        }
        if config.rss == Rss::Sloppy {
            self.pages.store(0, Ordering::Relaxed);
        }
        0
    }
}
