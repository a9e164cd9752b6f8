//! Page aging: counts and clears accessed bits.

use crate::base::config::NegativeControl;
use crate::entry::zap::Zap;
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use minflt_addr::VirtRange;
use minflt_pgtable::Mmu;

impl<M: Mmu> Mm<M> {
    /// Clears the accessed bits of the pages in `range`; returns how many were set. Huge pages are
    /// skipped: they are not reclaimed, so their age is not needed.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    pub fn age(&self, range: VirtRange) -> u64 {
        as_call(self.system(), || self.age_range(range))
    }

    fn age_range(&self, range: VirtRange) -> u64 {
        let guard = self.read(Over::Range(range));
        let held = guard.held();
        let mut zap = Zap::begin(held.tables(), range);
        let mut young = 0;
        if self.system().lacks(NegativeControl::AgeHoles) {
            young = zap.age(range);
        } else {
            // Elsewhere munmap may be freeing tables.
            guard
                .held()
                .each_unshared(range, |part| young += zap.age(part));
        }
        zap.finish();
        young
    }
}
