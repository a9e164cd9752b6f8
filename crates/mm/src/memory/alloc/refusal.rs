//! Fault injection for allocations: fails a single one, chosen by number.
//!
//! # Problem
//! Every call must succeed or change nothing if any of its allocations fails; but a system that is
//! really out of memory fails at the first allocation, and at few others.
//!
//! # Idea
//! All memory comes from two functions, [`Frames::alloc_block`] and [`Slab::alloc`], and their
//! variants. In checked runs each of them asks the injector first, and names its caller's source
//! line. A test arms the n-th allocation from now on, makes the call, and reads the line: with n
//! from 1 until none fails, every allocation of the call has failed once.
//!
//! # Cost
//! None in unchecked runs; else a load that bypasses the access hook.
//!
//! [`Frames::alloc_block`]: crate::memory::alloc::Frames::alloc_block
//! [`Slab::alloc`]: minflt_sync::slab::Slab::alloc

use crate::system::System;
use core::panic::Location;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, StaticRef};

/// Which allocations to refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refuse {
    /// None.
    Nothing,
    /// Only the n-th from now on, counted from 1.
    Nth(u64),
    /// The n-th from now on, and all that follow.
    From(u64),
}

/// What is armed, and what came of it.
#[derive(Debug)]
pub(crate) struct Refusals<M: Mmu> {
    /// Allocations up to and with the one to refuse; 0 for none.
    left: Atomic<u64, M>,
    /// 1 where those after it are refused as well.
    lasting: Atomic<u64, M>,
    /// The caller of the first that was refused.
    site: StaticRef<Location<'static>, M>,
}

impl<M: Mmu> Refusals<M> {
    pub(crate) fn new() -> Self {
        Self {
            left: Atomic::new(0),
            lasting: Atomic::new(0),
            site: StaticRef::none(),
        }
    }

    fn arm(&self, what: Refuse) {
        let (left, lasting) = match what {
            Refuse::Nothing => (0, 0),
            Refuse::Nth(n) => (n, 0),
            Refuse::From(n) => (n, 1),
        };
        self.left.poke(left);
        self.lasting.poke(lasting);
        if what != Refuse::Nothing {
            self.site.poke(None);
        }
    }

    /// Whether the allocation at `site` shall fail.
    pub(crate) fn refuses(&self, site: &'static Location<'static>) -> bool {
        let left = self.left.peek();
        if left == 0 {
            return false;
        }
        if left > 1 {
            self.left.poke(left - 1);
            return false;
        }
        if self.site.peek().is_none() {
            self.site.poke(Some(site));
        }
        if self.lasting.peek() == 0 {
            self.left.poke(0);
        }
        true
    }
}

impl<M: Mmu> System<M> {
    /// Makes allocations fail, for tests, where runs are checked; elsewhere nothing happens.
    ///
    /// # Context
    /// Only one thread allocates while this is armed: others are counted as well.
    pub fn refuse_allocations(&self, which: Refuse) {
        self.frames.refusals.arm(which);
    }

    /// The line whose allocation was the first to be refused since the last arming.
    #[must_use]
    pub fn refused_allocation(&self) -> Option<&'static Location<'static>> {
        self.frames.refusals.site.peek()
    }
}
