//! The raw atomics. Only this module knows that a model checker may replace them, and only
//! implementers of [`crate::Machine`] may use what it exports.

pub use core::sync::atomic::compiler_fence;

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Whether a sequentially consistent read-modify-write is a fence for everything around it, and not
/// only for other sequentially consistent operations, which is all that the language promises.
#[cfg(not(loom))]
pub const RMW_IS_FENCE: bool = cfg!(target_arch = "x86_64");

/// The model checker keeps to the language.
#[cfg(loom)]
pub const RMW_IS_FENCE: bool = false;
