//! The workloads, written once over [`Target`], and the target of real system calls.
//!
//! - [`Workload`] is a workload with its options, [`list`] the registry the command line shows, and
//!   [`Outcome`] what a run yields.
//! - [`pft`], [`page_fault1`] and [`disturb`] are the workloads.
//! - [`linux`] runs them on the kernel of the machine we are on.
//!
//! Each workload states which part of a run it measures; contents are checked outside that part
//! unless it says otherwise.
#![deny(unsafe_code)]

mod contents;
mod options;
mod outcome;
mod size;
mod workload;

pub mod disturb;
pub mod linux;
pub mod page_fault1;
pub mod pft;
pub mod target;

#[cfg(test)]
#[expect(
    clippy::disallowed_types,
    reason = "its threads are real, and nothing explores them"
)]
mod fake;

pub use contents::Touch;
pub use disturb::Disturb;
pub use linux::Linux;
pub use options::{Info, Opt, OptionError, Refused};
pub use outcome::{Outcome, Param};
pub use page_fault1::PageFault1;
pub use pft::Pft;
pub use size::{SizeError, parse_size};
pub use target::{
    Clear, Feature, Oracle, Plan, ProcessReport, Prot, Spaces, Stop, Target, TargetError, Worker,
    WorkerReport,
};
pub use workload::{Workload, list};
