//! The machine of real threads: a CPU is a thread, RAM is one region of memory, and the MMU is a
//! software translation buffer for each CPU.
//!
//! A [`HostInstance`] is one machine. A thread becomes one of its CPUs by [`HostInstance::enter`]
//! and stays it until the guard is dropped; code generic over `M: Machine` then runs on it with
//! `M` = [`Host`]. Any number of instances live in a process at once.
//!
//! Before it enters a CPU a thread has a *boot context*: it may build a system and take locks, but
//! it is no CPU, and reaching for what belongs to a CPU panics. It never has to wait; if it must,
//! it panics too.

#![expect(
    clippy::disallowed_types,
    reason = "a machine is made of the raw atomics, and runs its own locks"
)]

mod bare;
mod context;
mod file;
mod instance;
mod interrupts;
mod jobs;
mod machine;
mod park;
mod probe;
mod ram;
mod target;
mod watchdog;
mod worker;

#[cfg(test)]
mod tests;

pub use bare::{Door, HostBare, HostWith};
pub use file::HostFile;
pub use instance::{CpuGuard, HostInstance, HostOptions};
pub use machine::Host;
pub use probe::Probe;
pub use ram::{Prefault, RamError};
pub use target::{HostTarget, StartError};
pub use watchdog::Unanswered;
pub use worker::HostWorker;
