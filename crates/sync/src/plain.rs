//! Plain data whose accesses call the machine's access hook.
//!
//! Lines that a lock protects move between CPUs as well, and it is there that races are seen; so
//! access to plain shared data is announced to the machine like any other.

use crate::machine::{Kind, Machine};
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;

/// Data that some lock guards.
pub struct Plain<T, M> {
    value: UnsafeCell<T>,
    machine: PhantomData<fn() -> M>,
}

// SAFETY: access needs `get` or `get_mut`, whose callers hold the lock that guards the data.
unsafe impl<T: Send, M> Sync for Plain<T, M> {}

impl<T, M: Machine> Plain<T, M> {
    /// Data that starts as `value`.
    pub const fn new(value: T) -> Self {
        Self {
            value: UnsafeCell::new(value),
            machine: PhantomData,
        }
    }

    /// Reads.
    ///
    /// # Safety
    /// 1. The caller holds the lock that guards the data, at least for reading, as long as the
    ///    reference lives.
    #[inline(always)]
    pub unsafe fn get(&self) -> &T {
        M::before(self.value.get().cast(), size_of::<T>(), Kind::PlainRead);
        // SAFETY: 1 of this function: no writer while the reference lives.
        unsafe { &*self.value.get() }
    }

    /// Writes.
    ///
    /// # Safety
    /// 1. The caller holds the lock that guards the data for writing as long as the reference
    ///    lives, and no other reference to it is alive.
    #[inline(always)]
    #[expect(
        clippy::mut_from_ref,
        reason = "exclusion comes from the lock the caller holds"
    )]
    pub unsafe fn get_mut(&self) -> &mut T {
        M::before(self.value.get().cast(), size_of::<T>(), Kind::PlainWrite);
        // SAFETY: 1 of this function: nobody else looks while the reference lives.
        unsafe { &mut *self.value.get() }
    }

    /// The data, without the access hook: for oracles at quiescence.
    ///
    /// # Safety
    /// 1. Nobody writes the data while the reference lives.
    pub unsafe fn peek(&self) -> &T {
        // SAFETY: 1 of this function.
        unsafe { &*self.value.get() }
    }
}

impl<T, M> fmt::Debug for Plain<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(..)")
    }
}
