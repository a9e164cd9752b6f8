//! Tests that span crates: differential, litmus, boot. The tests stand in `tests/`.
