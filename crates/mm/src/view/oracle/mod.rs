//! Oracles: invariants checked while the system runs and at quiescence.
//!
//! Each look is counted, so that a result can say how often it was checked.

mod chains;
mod huge;
mod ledger;
mod slots;
mod unbalanced;

pub use unbalanced::{Ledger, Unbalanced};
