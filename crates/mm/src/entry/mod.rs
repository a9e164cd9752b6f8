//! Page-table entries: their locks, exchanges and TLB shootdown.

pub(crate) mod allowed;
mod free;
mod linked;
pub(crate) mod mailbox;
pub(crate) mod part;
pub(crate) mod shootdown;
pub(crate) mod slot;
pub(crate) mod table;
pub(crate) mod translation;
pub(crate) mod walk;
pub(crate) mod zap;
