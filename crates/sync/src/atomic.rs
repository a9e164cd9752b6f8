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

    /// Exchanges 0 for 1 without the access hook, for oracles; whether it was 0.
    pub(crate) fn peek_take(&self) -> bool {
        let (free, taken) = (W::ZERO, W::narrow(1));
        // ORDERING: Acquire; pairs with [spin-release].
        W::cas(&self.raw, free, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Stores the 0 again that [`Self::peek_take`] found.
    pub(crate) fn peek_release(&self) {
        // ORDERING: Release; pairs with [spin-release].
        W::store(&self.raw, W::ZERO, Ordering::Release);
    }

    /// Stores without the access hook: for code that only observes the system.
    #[inline(always)]
    pub fn poke(&self, value: W) {
        M::poke(&self.raw, value);
    }
}

/// A word that names something static, or nothing: for code that only observes the system.
pub struct StaticRef<T: 'static, M> {
    /// Its address, 0 for none.
    word: Atomic<u64, M>,
    named: PhantomData<&'static T>,
}

impl<T: Sync, M: Machine> StaticRef<T, M> {
    /// Names nothing.
    #[must_use]
    pub fn none() -> Self {
        Self {
            word: Atomic::new(0),
            named: PhantomData,
        }
    }

    /// What it names.
    pub fn peek(&self) -> Option<&'static T> {
        // SAFETY: only `poke` writes the word: null, or a reference that is good for ever.
        unsafe { (self.word.peek() as *const T).as_ref() }
    }

    /// It names this from now on.
    pub fn poke(&self, named: Option<&'static T>) {
        self.word
            .poke(named.map_or(0, |named| core::ptr::from_ref(named) as u64));
    }
}

impl<T, M: Machine> fmt::Debug for StaticRef<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.word.fmt(f)
    }
}

impl<W: Word, M: Machine> fmt::Debug for Atomic<W, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peek().fmt(f)
    }
}
