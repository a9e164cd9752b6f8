//! The workloads, written once over [`Target`], and the target of real system calls.
//!
//! - [`Workload`] is a workload with its options, [`list`] the registry the command line shows, and
//!   [`Outcome`] what a run yields.
//! - [`pft`], [`page_fault1`], [`page_fault2`], [`mod@file`], [`disturb`], [`ebizzy`],
//!   [`kernbench`], [`load`], [`mmap`], [`brk1`], [`fork1`], [`numa_mem`], [`mod@hugetlb`],
//!   [`usemem`] and [`commit`] are the workloads.
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

pub mod brk1;
pub mod commit;
pub mod disturb;
pub mod ebizzy;
pub mod file;
pub mod fork1;
pub mod hugetlb;
pub mod kernbench;
pub mod linux;
pub mod load;
pub mod mmap;
pub mod move_pages;
pub mod numa_mem;
pub mod page_fault1;
pub mod page_fault2;
pub mod pft;
pub mod shootdown;
pub mod target;
pub mod usemem;
pub mod will_it_scale;

#[cfg(test)]
#[expect(
    clippy::disallowed_types,
    reason = "its threads are real, and nothing explores them"
)]
mod fake;

pub use brk1::Brk1;
pub use commit::Commit;
pub use contents::{Touch, file_word};
pub use disturb::Disturb;
pub use ebizzy::Ebizzy;
pub use file::File;
pub use fork1::Fork1;
pub use hugetlb::Hugetlb;
pub use kernbench::Kernbench;
pub use linux::Linux;
pub use load::Load;
pub use mmap::Mmap;
pub use move_pages::MovePages;
pub use numa_mem::NumaMem;
pub use options::{Info, Opt, OptionError, Refused};
pub use outcome::{Columns, Outcome, Param};
pub use page_fault1::PageFault1;
pub use page_fault2::PageFault2;
pub use pft::Pft;
pub use shootdown::Shootdown;
pub use size::{SizeError, parse_size};
pub use target::{
    Cache, Clear, CommonFile, Feature, HugePages, Inherited, Oracle, Pages, Plan, Populate,
    ProcessReport, Prot, Sharing, Spaces, Stop, Target, TargetError, Use, Worker, WorkerReport,
};
pub use usemem::Usemem;
pub use workload::{Workload, list};
