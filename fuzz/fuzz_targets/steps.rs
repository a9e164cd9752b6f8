//! Any bytes are steps; `mm` and the model must agree about them, in every era.
//!
//! ```text
//! cargo install cargo-fuzz
//! cargo +nightly fuzz run steps -- -max_len=512
//! cargo +nightly fuzz run steps crates/differential/tests/corpus   # what `cargo test` runs, too
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use minflt_differential::compare::disagreement;
use minflt_differential::ours::{CHOICE, Ours};
use minflt_differential::{Subject, bytes};
use minflt_mm::ERAS;
use std::cell::RefCell;

thread_local! {
    /// One system for each era, used for all inputs: each case has its own address space.
    static SYSTEMS: RefCell<Vec<Ours>> =
        RefCell::new(ERAS.iter().filter_map(|era| Ours::start(era).ok()).collect());
}

fuzz_target!(|data: &[u8]| {
    let steps = bytes::steps(data, &CHOICE);
    SYSTEMS.with_borrow_mut(|systems| {
        for system in systems {
            let system: &mut dyn Subject = system;
            if let Some(found) = disagreement(system, &steps, &CHOICE) {
                panic!("{found}");
            }
        }
    });
});
