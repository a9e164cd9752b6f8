//! A per-CPU event counter.

use crate::prim::{AtomicU64, Ordering};

/// A number that one CPU adds to and anybody reads.
///
/// It only observes the system, so it does not call the access hook: counting costs no
/// simulated time and adds no scheduling point.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`; only the CPU the counter belongs to may call this.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// Makes it `n`; only the CPU it belongs to may call this.
    #[inline(always)]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The number now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}
