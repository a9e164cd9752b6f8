//! Shared by all floors: choices, errors, events and common names.

pub(crate) mod attrs;
pub(crate) mod bytes;
pub(crate) mod check;
pub mod config;
pub(crate) mod controls;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod file;
pub(crate) mod huge_size;
pub(crate) mod policy;
pub(crate) mod vma_lock_ops;
pub(crate) mod why;
