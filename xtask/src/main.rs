//! The gate of this repository.
fn main() {}
