//! Entries: the lock over them, every exchange, and making CPUs forget them.

pub(crate) mod shootdown;
pub(crate) mod slot;
pub(crate) mod table;
pub(crate) mod translation;
pub(crate) mod walk;
pub(crate) mod zap;
