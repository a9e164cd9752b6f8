//! The `minflt` program.
fn main() {}
