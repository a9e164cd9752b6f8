//! Plain data whose accesses call the machine's access hook.
//!
//! Lines that a lock protects move between CPUs as well, and it is there that races are seen; so
//! access to plain shared data is announced to the machine like any other.

use crate::atomic::Atomic;
use crate::machine::{Kind, Machine};
use crate::word::Word;
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

/// A word that some lock guards, though no type says which. Its accesses are announced as those to
/// plain data. Without the lock they are a mistake that checking machines find; what is read then
/// is some value that was there.
pub struct PlainWord<W: Word, M> {
    word: Atomic<W, M>,
}

impl<W: Word, M: Machine> PlainWord<W, M> {
    /// Reads.
    #[inline(always)]
    pub fn get(&self) -> W {
        self.announce(Kind::PlainRead);
        self.word.peek()
    }

    /// Writes what `change` makes of it.
    #[inline(always)]
    pub fn update(&self, change: impl FnOnce(W) -> W) {
        self.announce(Kind::PlainWrite);
        self.word.poke(change(self.word.peek()));
    }

    /// The word, without the access hook: for oracles at quiescence.
    pub fn peek(&self) -> W {
        self.word.peek()
    }

    #[inline(always)]
    fn announce(&self, kind: Kind) {
        M::before(core::ptr::from_ref(self).cast(), size_of::<W>(), kind);
    }
}

impl<W: Word, M: Machine> fmt::Debug for PlainWord<W, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.word.fmt(f)
    }
}

/// Data that belongs to the holder of this, but lies in shared memory: accesses are announced.
pub struct Own<T, M> {
    value: T,
    machine: PhantomData<fn() -> M>,
}

impl<T, M: Machine> Own<T, M> {
    /// Data that starts as `value`.
    pub const fn new(value: T) -> Self {
        Self {
            value,
            machine: PhantomData,
        }
    }

    /// Reads.
    pub fn get(&self) -> &T {
        M::before(
            core::ptr::from_ref(self).cast(),
            size_of::<T>(),
            Kind::PlainRead,
        );
        &self.value
    }

    /// Writes.
    pub fn get_mut(&mut self) -> &mut T {
        M::before(
            core::ptr::from_ref(self).cast(),
            size_of::<T>(),
            Kind::PlainWrite,
        );
        &mut self.value
    }

    /// The data, without the access hook: for oracles, and after [`Self::get`].
    pub const fn peek(&self) -> &T {
        &self.value
    }

    /// The same, for who has announced it or writes nothing.
    pub const fn peek_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug, M> fmt::Debug for Own<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
