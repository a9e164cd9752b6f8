//! Observers: the texts of `/proc`, names of addresses, and oracles.

pub mod describe;
pub(crate) mod oracle;
pub(crate) mod proc;
