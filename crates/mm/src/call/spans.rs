//! Which arenas a call needs: those of its range, or all of them where it needs more than that.
//!
//! Limits of the process (`RLIMIT_AS`, `RLIMIT_MEMLOCK`, the number of mappings) are looked at
//! first and counted later. Calls in several arenas at once could each stay within a limit and
//! exceed it together. So near a limit they take all arenas, and what they look at is exact.

use crate::base::attrs::VmaFlags;
use crate::call::mmap::{Lock, MapRequest};
use crate::call::place::Place;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// VMAs that one call adds at most.
const MORE: u64 = 8;

impl<M: Mmu> Mm<M> {
    /// What a call needs that changes mappings in `range`.
    pub(super) fn over(&self, range: VirtRange) -> Over {
        match self.is_near_limit() {
            true => Over::All,
            false => Over::Range(range),
        }
    }

    /// What a call needs that locks what is mapped in `range`.
    pub(super) fn over_locked(&self, range: Option<VirtRange>) -> Over {
        let limited = self.limit_memlock() != u64::MAX;
        match range.filter(|_| !limited) {
            Some(range) => self.over(range),
            None => Over::All,
        }
    }

    /// What an mmap needs of `len` bytes, multiples of 2 to the power of `unit`: the arenas where
    /// it wants to be, or the one of this CPU. Where there is no place, all.
    pub(super) fn over_request(&self, request: &MapRequest, len: u64, unit: u32) -> Over {
        if self.divided().is_none() {
            return Over::All;
        }
        let locks = request.lock == Lock::Yes || self.flags_of_new() != VmaFlags::NONE;
        if locks && self.limit_memlock() != u64::MAX {
            return Over::All;
        }
        let (at, len) = match request.place {
            Place::Any | Place::Hint(VirtAddr(0)) => return self.over_anywhere(),
            Place::Stack => return self.over_room(self.home_of_stacks()),
            Place::Fixed(at) | Place::FixedNoReplace(at) => (at, len),
            // It is rounded up, and a stack's gap behind what is mapped there stays free.
            Place::Hint(at) => {
                let more = self.stack_gap_bytes().saturating_add(1 << unit);
                (at, len.saturating_add(more))
            }
        };
        let most = M::Paging::user_end();
        let start = at.0.min(most - 1);
        let end = start.saturating_add(len.max(1)).min(most);
        self.over(VirtRange::new(VirtAddr(start), VirtAddr(end)))
    }

    /// What an mmap needs that may go anywhere.
    pub(super) fn over_anywhere(&self) -> Over {
        self.over_room(self.home())
    }

    fn over_room(&self, home: Option<VirtRange>) -> Over {
        let home = home.filter(|_| !self.is_near_limit());
        home.map_or(Over::All, Over::Room)
    }

    /// Whether calls in all arenas together might exceed a limit that each of them keeps.
    fn is_near_limit(&self) -> bool {
        if self.divided().is_none() {
            return false;
        }
        let sys = self.system();
        let more = MORE * u64::from(sys.machine_cpus());
        self.limit_as() != u64::MAX || self.is_near_map_count(more)
    }
}
