//! What the fuzz targets run: any bytes go in, and a panic comes out where something is wrong.
//!
//! The targets themselves (`fuzz/fuzz_targets`) are one line each, since they need a nightly
//! compiler; what they call lies here, so that `cargo test` runs the committed corpus
//! (`fuzz/corpus/TARGET`) through it with any compiler.
//!
//! | target | bytes are | checked |
//! |---|---|---|
//! | `steps` | an era, and calls | `mm` and the model agree after each step; the ledger adds up |
//! | `calls` | an era, and calls with any arguments | each answers; a page that none may touch |
//! | `schedules` | a schedule | it is written as it was read; any replays, twice alike |
//! | `machine_files` | a file of `data/machines` | errors name line and key; it is written alike |
//! | `fit_files` | a file of `data/fit` | the same; and laid over a machine |
//! | `lock_files` | a file of `data/locks` | errors name the key |
//! | `experiment_files` | a file of `data/postings` | the same; it can be verified and shown |
//! | `rows` | what `--json` writes | errors name the line; they are written as they were read |
#![forbid(unsafe_code)]

mod calls;
mod schedules;
mod steps;
mod texts;

pub use calls::calls;
pub use schedules::schedules;
pub use steps::steps;
pub use texts::{experiment_files, fit_files, lock_files, machine_files, rows};

/// A fuzz target: its name and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 8] = [
    ("calls", calls),
    ("experiment_files", experiment_files),
    ("fit_files", fit_files),
    ("lock_files", lock_files),
    ("machine_files", machine_files),
    ("rows", rows),
    ("schedules", schedules),
    ("steps", steps),
];

/// The first byte chooses the era, the others are for the target; none if there is no byte.
fn era_of(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    Some((usize::from(*first) % minflt_mm::ERAS.len(), rest))
}
