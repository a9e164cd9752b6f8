//! Atomic words whose accesses call the machine's access hook.

use crate::machine::Machine;
use crate::prim::Ordering;
use crate::word::{Rmw, Word};
use core::fmt;
use core::marker::PhantomData;

/// A shared word of width `W` on machine `M`.
pub struct Atomic<W: Word, M> {
    raw: W::Prim,
    machine: PhantomData<fn() -> M>,
}

impl<W: Word, M: Machine> Atomic<W, M> {
    /// A word that holds `value`.
    #[inline(always)]
    pub fn new(value: W) -> Self {
        Self {
            raw: W::prim(value),
            machine: PhantomData,
        }
    }

    /// Loads.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> W {
        M::load(&self.raw, order)
    }

    /// Stores.
    #[inline(always)]
    pub fn store(&self, value: W, order: Ordering) {
        M::store(&self.raw, value, order);
    }

    /// Exchanges; returns the old value.
    #[inline(always)]
    pub fn swap(&self, value: W, order: Ordering) -> W {
        M::rmw(&self.raw, Rmw::Swap, value, order)
    }

    /// Adds, wrapping; returns the old value.
    #[inline(always)]
    pub fn add(&self, value: W, order: Ordering) -> W {
        M::rmw(&self.raw, Rmw::Add, value, order)
    }

    /// Adds, wrapping, to a word of this CPU's own area; see [`Machine::add_local`].
    #[inline(always)]
    pub fn add_local(&self, value: W, order: Ordering) {
        M::add_local(&self.raw, value, order);
    }

    /// Subtracts, wrapping; returns the old value.
    #[inline(always)]
    pub fn sub(&self, value: W, order: Ordering) -> W {
        M::rmw(&self.raw, Rmw::Sub, value, order)
    }

    /// Sets bits; returns the old value.
    #[inline(always)]
    pub fn or(&self, value: W, order: Ordering) -> W {
        M::rmw(&self.raw, Rmw::Or, value, order)
    }

    /// Keeps bits; returns the old value.
    #[inline(always)]
    pub fn and(&self, value: W, order: Ordering) -> W {
        M::rmw(&self.raw, Rmw::And, value, order)
    }

    /// Compares and exchanges; never fails spuriously.
    ///
    /// # Errors
    /// The value found, when it was not `old`.
    #[inline(always)]
    pub fn cas(&self, old: W, new: W, ok: Ordering, fail: Ordering) -> Result<W, W> {
        M::cas(&self.raw, old, new, ok, fail)
    }

    /// Waits until `value & mask == eq`; may return early.
    #[inline(always)]
    pub fn wait_until(&self, mask: W, eq: W) {
        M::wait_until(&self.raw, mask, eq);
    }

    /// Exchanges `free` for `taken`, and waits while the value is something else.
    #[inline(always)]
    pub fn take(&self, free: W, taken: W, ok: Ordering) {
        M::take(&self.raw, free, taken, ok);
    }

    /// The value, without the access hook: for oracles and printing at quiescence.
    #[inline(always)]
    pub fn peek(&self) -> W {
        M::peek(&self.raw)
    }

    /// Stores without the access hook: for code that only observes the system.
    #[inline(always)]
    pub fn poke(&self, value: W) {
        M::poke(&self.raw, value);
    }
}

impl<W: Word, M: Machine> fmt::Debug for Atomic<W, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peek().fmt(f)
    }
}
