//! The spinning lock: one word, test and test-and-set.
//!
//! # Problem
//! Short critical sections need a lock that costs one exchange when uncontended and fits into a
//! frame's descriptor.
//!
//! # Idea
//! A word is 0 (free) or 1 (taken). A waiter sleeps on the *line* until it reads 0
//! ([`Machine::take`]), then tries again. Unfair on purpose: with more threads than CPUs a
//! queue hands the lock to threads that are not running.
//!
//! # Protocol
//! Take: exchange 0 for 1. Release: store 0.
//!
//! # Why it is correct
//! Only one exchange finds 0. The section's accesses stay inside by acquire and release.
//!
//! # Cost
//! One read-modify-write and one store; under contention one line transfer per waiter and release.

use crate::atomic::Atomic;
use crate::lockdep::{self, Class, How};
use crate::machine::Machine;
use crate::plain::Plain;
use crate::prim::Ordering;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::panic::Location;

/// Data of type `T` under a spinning lock of class `C`.
pub struct SpinLock<T, C, M: Machine> {
    word: Atomic<u32, M>,
    data: Plain<T, M>,
    class: PhantomData<fn() -> C>,
}

/// The right to the data until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct SpinGuard<'a, T, C: Class, M: Machine> {
    lock: &'a SpinLock<T, C, M>,
    /// A guard belongs to the context that took the lock.
    not_send: PhantomData<*mut ()>,
}

impl<T, C: Class, M: Machine> SpinLock<T, C, M> {
    /// A free lock over `value`.
    pub fn new(value: T) -> Self {
        Self {
            word: Atomic::new(0),
            data: Plain::new(value),
            class: PhantomData,
        }
    }

    /// Takes the lock, spinning as long as it takes.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> SpinGuard<'_, T, C, M> {
        lockdep::acquire::<C, M>(self.id(), How::Wait, Location::caller());
        self.take()
    }

    #[inline(always)]
    fn take(&self) -> SpinGuard<'_, T, C, M> {
        // ORDERING: Acquire; pairs with [spin-release].
        self.word.take(0, 1, Ordering::Acquire);
        SpinGuard {
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Takes the lock while one other of its class is held, which precedes it in an order within
    /// the class.
    #[inline]
    #[track_caller]
    pub fn lock_second(&self) -> SpinGuard<'_, T, C, M> {
        lockdep::acquire::<C, M>(self.id(), How::Second, Location::caller());
        self.take()
    }

    /// Takes the lock if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T, C, M>> {
        // ORDERING: Acquire; pairs with [spin-release].
        self.word
            .cas(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        lockdep::acquire::<C, M>(self.id(), How::Tried, Location::caller());
        Some(SpinGuard {
            lock: self,
            not_send: PhantomData,
        })
    }

    /// Waits until the lock looks free, without taking it.
    #[inline]
    pub fn wait_free(&self) {
        self.word.wait_until(u32::MAX, 0);
    }

    /// Whether it is held, without the access hook: for oracles.
    pub fn is_locked(&self) -> bool {
        self.word.peek() != 0
    }

    /// The data, without the access hook: for oracles at quiescence, when nobody holds the lock.
    /// It is taken all the same, by an exchange that no machine sees.
    pub fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        if !self.word.peek_take() {
            M::violation(format_args!("an oracle looks at what a held lock guards"));
        }
        // SAFETY: 1: the exchange found the lock free, so nobody writes until it is given back.
        let result = look(unsafe { self.data.peek() });
        self.word.peek_release();
        result
    }

    fn id(&self) -> *const () {
        core::ptr::from_ref(&self.word).cast()
    }
}

impl<T, C: Class, M: Machine> Deref for SpinGuard<'_, T, C, M> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: 1: the guard holds the lock, and borrows of it are shared.
        unsafe { self.lock.data.get() }
    }
}

impl<T, C: Class, M: Machine> DerefMut for SpinGuard<'_, T, C, M> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: 1: the guard holds the lock, and this borrow of it is exclusive.
        unsafe { self.lock.data.get_mut() }
    }
}

impl<T, C: Class, M: Machine> Drop for SpinGuard<'_, T, C, M> {
    #[inline]
    fn drop(&mut self) {
        lockdep::release::<C, M>(self.lock.id());
        // ORDERING: Release; pairs with [spin-release].
        self.lock.word.store(0, Ordering::Release);
    }
}

impl<T, C: Class, M: Machine> fmt::Debug for SpinLock<T, C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}({})",
            C::RANK,
            if self.is_locked() { "held" } else { "free" }
        )
    }
}

impl<T, C: Class, M: Machine> fmt::Debug for SpinGuard<'_, T, C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} held", C::RANK)
    }
}
