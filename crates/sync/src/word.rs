//! The two widths of shared words: 32 and 64 bits.

use crate::prim::{AtomicU32, AtomicU64, Ordering};
use core::fmt::Debug;

/// A read-modify-write that always succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rmw {
    /// Wrapping addition.
    Add,
    /// Wrapping subtraction.
    Sub,
    /// Bitwise or.
    Or,
    /// Bitwise and.
    And,
    /// Exchange.
    Swap,
}

/// An integer that a shared word can hold: `u32` or `u64`.
pub trait Word: Copy + Eq + Debug + Send + Sync + sealed::Sealed + 'static {
    /// The raw atomic of this width.
    type Prim: Debug + Send + Sync;
    /// Zero.
    const ZERO: Self;

    /// A raw atomic that holds `value`.
    fn prim(value: Self) -> Self::Prim;
    /// The core operation of the raw atomic.
    fn load(p: &Self::Prim, order: Ordering) -> Self;
    /// The core operation of the raw atomic.
    fn store(p: &Self::Prim, value: Self, order: Ordering);
    /// The core operation of the raw atomic; returns the old value.
    fn rmw(p: &Self::Prim, op: Rmw, value: Self, order: Ordering) -> Self;
    /// The core operation of the raw atomic, never failing spuriously.
    ///
    /// # Errors
    /// The value found, when it was not `old`.
    fn cas(
        p: &Self::Prim,
        old: Self,
        new: Self,
        ok: Ordering,
        fail: Ordering,
    ) -> Result<Self, Self>;
    /// Widens to 64 bits.
    fn wide(self) -> u64;
    /// Narrows from 64 bits; high bits that do not fit are cut off.
    fn narrow(wide: u64) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

macro_rules! word {
    ($int:ty, $prim:ty) => {
        impl Word for $int {
            type Prim = $prim;
            const ZERO: Self = 0;

            #[inline(always)]
            fn prim(value: Self) -> $prim {
                <$prim>::new(value)
            }
            #[inline(always)]
            fn load(p: &$prim, order: Ordering) -> Self {
                p.load(order)
            }
            #[inline(always)]
            fn store(p: &$prim, value: Self, order: Ordering) {
                p.store(value, order);
            }
            #[inline(always)]
            fn rmw(p: &$prim, op: Rmw, value: Self, order: Ordering) -> Self {
                match op {
                    Rmw::Add => p.fetch_add(value, order),
                    Rmw::Sub => p.fetch_sub(value, order),
                    Rmw::Or => p.fetch_or(value, order),
                    Rmw::And => p.fetch_and(value, order),
                    Rmw::Swap => p.swap(value, order),
                }
            }
            #[inline(always)]
            fn cas(
                p: &$prim,
                old: Self,
                new: Self,
                ok: Ordering,
                fail: Ordering,
            ) -> Result<Self, Self> {
                p.compare_exchange(old, new, ok, fail)
            }
            #[inline(always)]
            fn wide(self) -> u64 {
                u64::from(self)
            }
            #[inline(always)]
            fn narrow(wide: u64) -> Self {
                wide as $int
            }
        }
    };
}

word!(u32, AtomicU32);
word!(u64, AtomicU64);
