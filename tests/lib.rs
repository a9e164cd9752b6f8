//! Tests that span crates: differential, litmus, boot. The tests stand in `tests/`; here is what
//! they share.

pub mod disk;
pub mod moving;
pub mod world;
