//! The raw atomics. Only this module knows that a model checker may replace them, and only
//! implementers of [`crate::Machine`] may use what it exports.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
