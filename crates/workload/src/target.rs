//! What a workload needs of a machine.
//!
//! A workload is written once, generic over [`Target`], and runs on real threads over the software
//! MMU (*host*), in virtual time (*sim*) and over real system calls (*linux*).

use core::fmt;
use minflt_addr::VirtAddr;
use std::collections::BTreeMap;

/// A machine that can run processes made of threads.
pub trait Target {
    /// One thread of a process, as its body sees it.
    type Worker<'w>: Worker;

    /// The target's name as the command line spells it: `host`, `sim` or `linux`.
    fn name(&self) -> &'static str;

    /// Bytes per page.
    fn page_size(&self) -> u64;

    /// CPUs that threads can run on.
    fn cpus(&self) -> u32;

    /// Starts one process of `plan.threads` threads, runs `body` in each, waits for all, and tears
    /// the process down.
    ///
    /// The body must not carry results out through captured state: on *linux* it runs in a forked
    /// child. Results leave by the [`Worker`]'s methods.
    ///
    /// # Errors
    /// When the process cannot be started, or a body returns an error.
    fn process<F>(&self, plan: &Plan, body: F) -> Result<ProcessReport, TargetError>
    where
        F: for<'w> Fn(&mut Self::Worker<'w>) -> Result<(), Stop> + Sync;
}

/// How a process is to be started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Threads in the process.
    pub threads: u32,
    /// CPUs they run on.
    pub cpus: u32,
    /// Who clears the pages, and when.
    pub clear: Clear,
}

/// When fresh pages are cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clear {
    /// Inside the fault, as usual.
    InFault,
    /// Before the process starts, so that the clear is not part of any measured time. A target that
    /// cannot do so (*linux*) refuses the plan.
    Beforehand,
}

/// Access rights of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prot {
    /// No access.
    None,
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// One thread of a process. All addresses are in the process's own address space.
pub trait Worker {
    /// The thread's number, from 0.
    fn index(&self) -> u32;

    /// Threads in the process.
    fn threads(&self) -> u32;

    /// Bytes per page.
    fn page_size(&self) -> u64;

    /// Maps `len` bytes of private anonymous memory where the system likes.
    ///
    /// # Errors
    /// The system's error number.
    fn map(&mut self, len: u64, prot: Prot) -> Result<VirtAddr, Stop>;

    /// Unmaps `[at, at + len)`.
    ///
    /// # Errors
    /// The system's error number.
    fn unmap(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop>;

    /// Changes the protection of `[at, at + len)`.
    ///
    /// # Errors
    /// The system's error number.
    fn protect(&mut self, at: VirtAddr, len: u64, prot: Prot) -> Result<(), Stop>;

    /// Throws the pages of `[at, at + len)` away (`MADV_DONTNEED`).
    ///
    /// # Errors
    /// The system's error number.
    fn discard(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop>;

    /// Stores a 64-bit word, faulting the page in where need be. `at` is a multiple of 8.
    ///
    /// # Errors
    /// A signal that the access raised. (On *linux* a signal ends the process instead.)
    fn store(&mut self, at: VirtAddr, value: u64) -> Result<(), Stop>;

    /// Loads a 64-bit word, faulting the page in where need be. `at` is a multiple of 8.
    ///
    /// # Errors
    /// A signal that the access raised. (On *linux* a signal ends the process instead.)
    fn load(&mut self, at: VirtAddr) -> Result<u64, Stop>;

    /// Does `ns` nanoseconds of user computation that touches no shared memory.
    fn compute(&mut self, ns: u64);

    /// Waits until every thread of the process has come here.
    fn barrier(&mut self);

    /// Sets slot `slot` (0..8) of the process's mailbox, which all its threads see.
    fn post(&mut self, slot: usize, value: u64);

    /// Reads slot `slot` (0..8) of the process's mailbox; 0 before anybody posted.
    fn read(&mut self, slot: usize) -> u64;

    /// Wall time in nanoseconds since some fixed moment; virtual time on *sim*.
    fn now_ns(&mut self) -> u64;

    /// Opens this thread's measured window: wall, user and system time and faults count from here.
    fn window_open(&mut self);

    /// Closes the window.
    fn window_close(&mut self);

    /// Adds `n` operations of the workload's own kind to this thread's report.
    fn ops(&mut self, n: u64);

    /// Adds `n` looks of oracle `oracle` to the report's `checks`.
    fn checked(&mut self, oracle: Oracle, n: u64);
}

/// An oracle a workload itself can consult.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oracle {
    /// A load returned the last store.
    Contents,
}

/// Why a body stopped early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// A call failed with this Linux error number.
    Errno(i32),
    /// An access raised this signal (SIGSEGV 11, SIGBUS 7).
    Signal(i32),
    /// A load returned something else than the last store: `(address, expected, found)`.
    Contents(VirtAddr, u64, u64),
}

/// What a process did.
#[derive(Clone, Debug, Default)]
pub struct ProcessReport {
    /// From before its first thread starts until it is torn down, nanoseconds.
    pub wall_ns: u64,
    /// User time of all threads, start and teardown included, nanoseconds.
    pub user_ns: u64,
    /// System time of all threads, start and teardown included, nanoseconds.
    pub system_ns: u64,
    /// Page faults the target counted.
    pub faults: u64,
    /// One report a thread.
    pub workers: Vec<WorkerReport>,
    /// Events by name, as the target counts them.
    pub events: BTreeMap<String, u64>,
    /// How often each oracle looked.
    pub checks: BTreeMap<String, u64>,
}

/// What one thread did within its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerReport {
    /// When the window opened, on [`Worker::now_ns`]'s clock.
    pub start_ns: u64,
    /// When the window closed.
    pub end_ns: u64,
    /// User time within the window, nanoseconds.
    pub user_ns: u64,
    /// System time within the window, nanoseconds.
    pub system_ns: u64,
    /// Page faults within the window.
    pub faults: u64,
    /// Operations the body reported.
    pub ops: u64,
}

/// Why a process could not run to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetError {
    /// The plan asks for what this target cannot do: what, and what would be right.
    Unsupported(String),
    /// A thread stopped early.
    Stopped {
        /// Which thread.
        worker: u32,
        /// Why.
        why: Stop,
    },
    /// An oracle spoke: its words, and how to replay the run.
    Violation(String),
    /// The machine it runs on failed us (no memory, no thread): its words.
    System(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => write!(f, "a call failed with errno {errno}"),
            Self::Signal(signal) => write!(f, "an access raised signal {signal}"),
            Self::Contents(at, expected, found) => {
                write!(
                    f,
                    "memory at {at} holds {found:#x}, last stored was {expected:#x}"
                )
            }
        }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => write!(f, "{what}"),
            Self::Stopped { worker, why } => write!(f, "thread {worker}: {why}"),
            Self::Violation(what) => write!(f, "violation: {what}"),
            Self::System(what) => write!(f, "{what}"),
        }
    }
}

impl core::error::Error for TargetError {}
