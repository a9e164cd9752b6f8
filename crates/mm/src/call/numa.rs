//! NUMA balancing work of a timer interrupt.

use crate::base::config::Balancing;
use crate::call::thread::Thread;
use minflt_pgtable::{Mmu, Paging};

impl<M: Mmu> Thread<'_, M> {
    /// Called by a timer interrupt before it returns to user mode: scans a part of the address
    /// space when that is due and no other thread scans. Does nothing where balancing is off.
    ///
    /// # Context
    /// From user mode; holds nothing. Sleeps for `mmap_lock`, which it takes for reading.
    pub fn tick(&self, now_ns: u64) {
        let (mm, sys) = (self.mm(), self.mm().system());
        if sys.config.balancing == Balancing::Off {
            return;
        }
        M::enter_kernel();
        let knobs = sys.numa_knobs();
        if mm.balance.wins(&knobs, now_ns) && self.share.policy().is_default() {
            let pages = mm.scan(knobs.scan_bytes / M::Paging::page());
            M::note(format_args!("scan: {pages} entries made to fault"));
            sys.run_deferred();
        }
        M::leave_kernel();
    }
}
