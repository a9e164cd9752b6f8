//! The reservation of one private hugetlb mapping.
//!
//! A private mapping reserves as many pages as it has addresses when it is made. Which of them it
//! has used stands in a map ([`super::reserve`]) that its parts keep together when it is split:
//! what is *absent* is still reserved. A child has none: it takes what nobody reserved, or gets a
//! signal.
//!
//! Linux: `struct resv_map` of a private mapping, hugetlb_vm_op_close, `HPAGE_RESV_OWNER`.

use super::reserve::Reservations;
use crate::base::error::NoMemory;
use crate::memory::counted::{Counted, InSlab};
use crate::system::System;
use minflt_pgtable::Mmu;
use minflt_sync::Atomic;
use minflt_sync::slab::Slab;

/// Which of its reserved pages a private mapping has used. Each of the mappings that it was split
/// into has a reference.
pub(crate) type OwnPages<M> = Counted<Used<M>, M>;

/// The pages.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Used<M: Mmu> {
    /// How many of the references the ledger has come to.
    seen: Atomic<u64, M>,
    pub(crate) used: Reservations<M>,
}

impl<M: Mmu> InSlab<M> for Used<M> {
    fn slab(sys: &System<M>) -> &Slab<OwnPages<M>, M> {
        &sys.huge.owns
    }

    fn last_put(&self, sys: &System<M>) {
        self.used.remove_all(sys);
    }
}

impl<M: Mmu> OwnPages<M> {
    /// None used. The address.
    pub(crate) fn none_used(sys: &System<M>) -> Result<u64, NoMemory> {
        let new = Used {
            seen: Atomic::new(0),
            used: Reservations::new(),
        };
        Self::create(sys, new).ok_or(NoMemory)
    }

    /// The ledger came to one of the mappings: whether that was the last. While nothing runs.
    pub(crate) fn is_last_look(&self) -> bool {
        let seen = self.seen.peek() + 1;
        let last = seen == self.peek_refs();
        self.seen.poke(if last { 0 } else { seen });
        last
    }
}
