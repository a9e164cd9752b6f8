//! Random calls and accesses on the model, on the machine's own Linux and on `mm`, with the same
//! results, the same mappings and the same contents after each step.
//!
//! A [`Step`] is a line of text; a case is a list of them. [`generate`] draws cases from a seed,
//! a [`Subject`] runs them, [`compare`] says where one differs from the model and looks for the
//! shortest case that still does. [`extremes`] makes calls of `mm` whose arguments mean nothing.

pub mod bytes;
pub mod compare;
pub mod extremes;
pub mod files;
pub mod generate;
pub mod histogram;
pub mod history;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux;
pub mod model;
pub mod ours;
pub mod random;
pub mod record;
pub mod run;
pub mod step;
pub mod table;
pub mod window;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use linux::Linux;
pub use record::{Outcome, Record, Subject};
pub use step::{Call, Step};
