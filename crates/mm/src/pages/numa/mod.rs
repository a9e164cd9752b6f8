//! NUMA balancing: pages migrate to the node that accesses them.
//!
//! # Problem
//! A page is fast for the CPUs of its node, and stays where its first fault put it. Who uses it
//! later the kernel does not see: the hardware notes *that* a page was used, not by which CPU.
//!
//! # Idea
//! Take the right to use a few pages away now and then, and look who faults ([`scan`]). A page
//! whose last two such *hinting faults* came from one node, which is not its own, is moved there
//! ([`hint`](crate::fault)).
//!
//! # Protocol
//! ```text
//! thread on node 0          thread on node 1               page, on node 0
//! timer: scan is due,
//!   wins it by exchange
//! mmap_lock for reading
//!   entry grants nothing                                   hinting entry
//!   CPUs told
//!                           faults: entry restored         last node: 1
//! timer: scans again
//!                           faults: entry restored         last node: 1, twice
//!                           moves the page                 on node 1
//! ```
//! The mapping goes on allowing the access: that tells a hinting entry from what mprotect took
//! away. `Pte` keeps everything else, so that what is lost is the right to store only, which is
//! given back where the page is exclusive.
//!
//! # Why it is correct
//! A hinting entry is a mapped entry that grants nothing, as mprotect makes them; whatever handles
//! those handles it: zap, mremap, fork, mprotect and the ledger know no difference. Of pages that
//! are mapped once only, and that under the lock of their table, so fork's copies are never hinted.
//! A mistake costs a fault or a move for nothing, never contents.
//!
//! Everything kept here is a hint. The next scan's time decides who scans; if a scan takes longer
//! than its period, two scan side by side, and some entries are looked at twice.
//!
//! # Cost
//! Of a scan: the tables' locks, one exchange for each entry changed, one invalidation. Of a
//! hinting fault: a fault, two counts of the address space, and the frame's flags. Where
//! balancing is off: a branch for each timer interrupt, and nothing in a fault.
//!
//! Linux: kernel/sched/fair.c task_tick_numa, task_numa_work; mm/mempolicy.c change_prot_numa,
//! mpol_misplaced; mm/memory.c do_numa_page (v3.8 in form; v6.12 where it says so).

mod rate;
pub(crate) mod scan;

pub(crate) use rate::Rate;
pub(crate) use scan::Balance;

use crate::system::System;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Ordering, PerCpu};

/// How fast pages are looked at and moved. The defaults are Linux's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumaKnobs {
    /// From an address space's first timer interrupt to its first scan, in nanoseconds
    /// (`numa_balancing_scan_delay_ms`).
    pub scan_delay_ns: u64,
    /// The least time between two scans (`numa_balancing_scan_period_min_ms`).
    pub scan_period_min_ns: u64,
    /// The most (`numa_balancing_scan_period_max_ms`).
    pub scan_period_max_ns: u64,
    /// Bytes of pages that one scan makes fault (`numa_balancing_scan_size_mb`).
    pub scan_bytes: u64,
    /// For how long [`Self::rate_bytes`] are allowed (`migrate_interval_millisecs`).
    pub rate_window_ns: u64,
    /// Bytes that may move to one node meanwhile (`ratelimit_pages`).
    pub rate_bytes: u64,
}

const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

impl Default for NumaKnobs {
    fn default() -> Self {
        Self {
            scan_delay_ns: 1000 * MS,
            scan_period_min_ns: 1000 * MS,
            scan_period_max_ns: 60_000 * MS,
            scan_bytes: 256 * MIB,
            rate_window_ns: 100 * MS,
            rate_bytes: 128 * MIB,
        }
    }
}

/// What a system has of balancing.
#[derive(Debug)]
pub(crate) struct Numa<M: Mmu> {
    /// The knobs, each by itself.
    scan_delay_ns: Atomic<u64, M>,
    scan_period_min_ns: Atomic<u64, M>,
    scan_period_max_ns: Atomic<u64, M>,
    scan_bytes: Atomic<u64, M>,
    rate_window_ns: Atomic<u64, M>,
    rate_bytes: Atomic<u64, M>,
    /// How many pages moved to each node lately.
    pub(crate) rates: PerCpu<Rate<M>, M>,
}

impl<M: Mmu> Numa<M> {
    pub(crate) fn new(rates: PerCpu<Rate<M>, M>) -> Self {
        let knobs = NumaKnobs::default();
        Self {
            scan_delay_ns: Atomic::new(knobs.scan_delay_ns),
            scan_period_min_ns: Atomic::new(knobs.scan_period_min_ns),
            scan_period_max_ns: Atomic::new(knobs.scan_period_max_ns),
            scan_bytes: Atomic::new(knobs.scan_bytes),
            rate_window_ns: Atomic::new(knobs.rate_window_ns),
            rate_bytes: Atomic::new(knobs.rate_bytes),
            rates,
        }
    }

    fn knobs(&self) -> NumaKnobs {
        NumaKnobs {
            scan_delay_ns: self.scan_delay_ns.load(Ordering::Relaxed),
            scan_period_min_ns: self.scan_period_min_ns.load(Ordering::Relaxed),
            scan_period_max_ns: self.scan_period_max_ns.load(Ordering::Relaxed),
            scan_bytes: self.scan_bytes.load(Ordering::Relaxed),
            rate_window_ns: self.rate_window_ns.load(Ordering::Relaxed),
            rate_bytes: self.rate_bytes.load(Ordering::Relaxed),
        }
    }
}

impl<M: Mmu> System<M> {
    /// How fast pages are looked at and moved.
    #[must_use]
    pub fn numa_knobs(&self) -> NumaKnobs {
        self.numa.knobs()
    }

    /// Says how fast pages are looked at and moved: a scaled experiment scales this, too. Whoever
    /// is scanning may see some of it only.
    pub fn set_numa_knobs(&self, knobs: NumaKnobs) {
        let numa = &self.numa;
        for (knob, value) in [
            (&numa.scan_delay_ns, knobs.scan_delay_ns),
            (&numa.scan_period_min_ns, knobs.scan_period_min_ns),
            (&numa.scan_period_max_ns, knobs.scan_period_max_ns),
            (&numa.scan_bytes, knobs.scan_bytes),
            (&numa.rate_window_ns, knobs.rate_window_ns),
            (&numa.rate_bytes, knobs.rate_bytes),
        ] {
            knob.store(value, Ordering::Relaxed);
        }
    }
}
