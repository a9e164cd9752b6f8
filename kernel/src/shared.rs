//! Variables that several CPUs reach, in statics.
//!
//! The library's atomics and locks cannot be made in a constant, and its locks need a task; these
//! do without both.

#![expect(
    clippy::disallowed_types,
    reason = "statics need words that a constant can make, which those of `minflt_sync` are not"
)]

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;

use minflt_sync::Ordering;
use minflt_sync::prim::AtomicU32;

use crate::machine;

/// A word of a static.
pub(crate) type StaticWord = AtomicU32;

/// The states of a [`Once`].
const EMPTY: u32 = 0;
const BEING_SET: u32 = 1;
const SET: u32 = 2;

/// A value that is set once, mostly before other CPUs run, and only read afterwards.
///
/// # Invariants
/// The value is there from the state `SET` on, which is the last one.
pub(crate) struct Once<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: (1) one caller writes the value, before any other can read it, and sharing it is sharing
// a `T`, which may come from another CPU.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Not set yet.
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Sets the value.
    ///
    /// # Panics
    /// If it was set before.
    pub(crate) fn set(&self, value: T) -> &T {
        let old = self.state.swap(BEING_SET, Ordering::Relaxed);
        assert_eq!(old, EMPTY, "a variable of the kernel is set twice");
        // SAFETY: (1) the exchange above happens once, and nobody reads before the store below.
        let slot = unsafe { &mut *self.value.get() };
        let value = slot.write(value);
        // INVARIANT: the value was written by the line above.
        // ORDERING: Release; pairs with [kernel-once].
        self.state.store(SET, Ordering::Release);
        value
    }

    /// The value, if it was set.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&T> {
        // ORDERING: Acquire; pairs with [kernel-once].
        if self.state.load(Ordering::Acquire) != SET {
            return None;
        }
        // SAFETY: (1) set, and from then on only read.
        let slot = unsafe { &*self.value.get() };
        // SAFETY: (1) by the type invariant it was written.
        Some(unsafe { slot.assume_init_ref() })
    }
}

impl<T: fmt::Debug> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A lock that guards no memory and needs no task: it keeps apart what CPUs do to a device.
#[derive(Debug)]
pub(crate) struct Flag(AtomicU32);

impl Flag {
    /// A free one.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes it if it is free. The caller has interrupts off.
    pub(crate) fn try_take(&self) -> bool {
        // ORDERING: Acquire; pairs with [kernel-flag].
        self.0.swap(1, Ordering::Acquire) == 0
    }

    /// Takes it, when it is free. The caller has interrupts off.
    pub(crate) fn take(&self) {
        while !self.try_take() {
            while self.0.load(Ordering::Relaxed) != 0 {
                machine::pause();
            }
        }
    }

    /// Gives it back.
    pub(crate) fn release(&self) {
        // ORDERING: Release; pairs with [kernel-flag].
        self.0.store(0, Ordering::Release);
    }
}
