//! Huge pages: memory that is mapped by one entry of a higher table, from pools set aside for it.
//!
//! [`pool`] has the pages, and counts which of them are promised; [`resize`] says how many there
//! are; [`reserve`] remembers for a file
//! or a mapping which of its pages that promise is for.
//!
//! Linux: mm/hugetlb.c.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "faults on huge pages come next and use it")
)]
pub(crate) mod pool;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "faults on huge pages come next and use it")
)]
pub(crate) mod reserve;
mod resize;

#[cfg(test)]
mod tests;

use minflt_pgtable::Mmu;
use minflt_sync::slab::Magazine;
use minflt_sync::{PerCpu, Slab};
use reserve::Region;

/// What the system has for huge pages, beside their pools.
#[derive(Debug)]
pub(crate) struct Hugetlb<M: Mmu> {
    /// Of all maps of reservations.
    pub(crate) regions: Slab<Region<M>, M>,
}

impl<M: Mmu> Hugetlb<M> {
    /// Nothing; the slabs' magazines.
    pub(crate) fn new([regions]: [PerCpu<Magazine<M>, M>; 1]) -> Self {
        Self {
            regions: Slab::new(12, regions),
        }
    }
}
