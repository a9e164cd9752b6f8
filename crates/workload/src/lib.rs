//! The workloads, written once over [`Target`], and the target of real system calls.

pub mod target;

pub use target::{
    Clear, Oracle, Plan, ProcessReport, Prot, Stop, Target, TargetError, Worker, WorkerReport,
};
