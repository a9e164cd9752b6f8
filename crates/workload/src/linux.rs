//! The target of real system calls: the kernel of the machine we run on, as the peer to measure
//! against.
//!
//! A process is a forked child, so that its address space, its accounting and its teardown are its
//! own. The parent reads the clock before the fork and after `wait4`, and takes user time, system
//! time, faults and context switches from what `wait4` says of the child. Results of the workers
//! come back in a page area shared by all (`area`).
//!
//! ```text
//! parent   clock  fork ........................................ wait4  clock, usage of the child
//! child           no huge pages, threads: pin, body, publish,   exit
//! ```
//!
//! Where each worker is a process ([`Spaces::Own`]), the child starts no threads but forks the
//! workers and waits for them; what `wait4` says of it includes them. A worker's own forked
//! children are accounted in the same way, to the worker's window too.
//!
//! ```text
//! child           no huge pages, fork, fork, ... wait4 of each  exit
//! worker                    pin, body, publish,  exit
//! ```
//!
//! - **Transparent huge pages are off** for the child (`PR_SET_THP_DISABLE`): where they are on, a
//!   first touch may map 2 MiB, and the run would count something else than page faults.
//! - **Threads after fork.** POSIX promises little to the child of a process with threads; glibc
//!   lets it allocate and start threads in practice. The child prints nothing, and takes no lock
//!   that another thread of the parent may have held. For that, the first process wraps the panic
//!   hook of the program: it keeps silent in children, whose panics come back as errors.
//! - **The parent's memory** is copied on write: a parent with much of it pays for its page tables
//!   in the fork, which is inside [`ProcessReport::wall_ns`]. So does a worker that forks: beside
//!   its workload's memory it has what this program had mapped.
//! - **brk** is the system call itself, past the C library, whose heap ends at the same place. A
//!   body allocates nothing, so the two do not meet as long as it puts the break back.
//! - **CPU time of a window** is exact in its sum (`CLOCK_THREAD_CPUTIME_ID`). How it falls into
//!   user and system time is sampled by the timer tick on many kernels: a window of 100 ms or more
//!   goes by its own samples, a shorter one by those of the whole process.
//! - **Files**: a worker's own is in memory (`memfd`), and so is the one that all workers have in
//!   common where its pages are to be in the page cache; else that one is in the temporary
//!   directory, written out and dropped from the cache (`POSIX_FADV_DONTNEED`). How many bytes a
//!   fault maps around itself is the kernel's setting, which is left as it is.
//! - **Huge pages of hugetlbfs** are taken from the pool of the kernel's own size of them
//!   (`Hugepagesize` of `/proc/meminfo`), which is left as it is: a plan that needs more than are
//!   free and promised to nobody is refused with the command that makes more. The file that all
//!   workers have in common is a `memfd` of such pages.
//! - **What workers inherit** the child maps before it starts its threads or forks its workers.
//! - **A worker that stops early** ends all of them at once, so none waits at a barrier for it.
//!
//! Events: `page-faults` (minor and major), `minor-faults`, `major-faults`, `context-switches`, of
//! the whole child; `threads-pinned` says how many workers could be bound to their CPU. Oracles:
//! `contents` only.

#[expect(
    clippy::disallowed_types,
    reason = "no machine of ours runs here, so there is no door"
)]
mod area;
mod child;
mod file;
mod huge;
#[expect(
    unsafe_code,
    reason = "the system calls, and user memory by its address"
)]
#[expect(
    clippy::disallowed_types,
    reason = "no machine of ours runs here, so there is no door"
)]
mod sys;
mod window;
mod worker;

pub use worker::LinuxWorker;

use crate::target::{Clear, Feature, Plan, ProcessReport, Spaces, Stop, Target, TargetError};
use area::{Area, Failure};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use sys::process::{Ended, Exit};

/// The kernel of the machine we run on.
#[derive(Clone, Debug)]
pub struct Linux {
    /// The CPUs we may run on; empty where the kernel does not say.
    allowed: Vec<usize>,
    cpus: u32,
    page_size: u64,
}

impl Linux {
    /// The machine we run on. Its CPUs are those that this thread may run on.
    #[must_use]
    pub fn new() -> Self {
        let allowed = sys::process::allowed_cpus();
        let count = match allowed.len() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            some => some,
        };
        Self {
            allowed,
            cpus: u32::try_from(count).unwrap_or(u32::MAX),
            page_size: sys::memory::page_size(),
        }
    }

    /// Why so many huge pages cannot be had, and what to do about it; `None` where they can.
    #[must_use]
    pub fn too_few_huge_pages(&self, count: u64) -> Option<String> {
        huge::are_enough(count).err()
    }

    fn refuse(&self, plan: &Plan) -> Result<(), TargetError> {
        let words = if plan.clear == Clear::Beforehand {
            "the linux target zeroes each page inside its fault; \
             use --clear-beforehand on host or sim only"
                .to_owned()
        } else if plan.threads == 0 {
            "linux: at least 1 thread or process is needed".to_owned()
        } else if plan.cpus == 0 || plan.cpus > self.cpus {
            format!(
                "linux: {} CPUs asked for, but this machine lets us run on {}; give --cpus 1 to {}",
                plan.cpus, self.cpus, self.cpus
            )
        } else {
            return plan.huge.map_or(Ok(()), |wanted| {
                huge::are_enough(wanted.count).map_err(TargetError::Unsupported)
            });
        };
        Err(TargetError::Unsupported(words))
    }

    /// The plan's file and its length.
    fn common_file(&self, plan: &Plan) -> Result<Option<(u64, OwnedFd)>, TargetError> {
        let Some(wanted) = &plan.file else {
            return Ok(None);
        };
        let file = file::make(wanted, self.page_size)
            .map_err(|errno| failed("make the common file", errno))?;
        let len = wanted.bytes.next_multiple_of(self.page_size);
        Ok(Some((len, file)))
    }
}

/// The plan's file of huge pages and its length.
fn huge_file(plan: &Plan) -> Result<Option<(u64, OwnedFd)>, TargetError> {
    let Some(len) = plan.huge.and_then(|huge| huge.file_bytes) else {
        return Ok(None);
    };
    let file = sys::memory::huge_file(len)
        .map_err(|errno| failed("make the file of huge pages (memfd_create)", errno))?;
    Ok(Some((len, file)))
}

impl Default for Linux {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the kernel shows more than one memory node.
fn has_two_nodes() -> bool {
    std::path::Path::new("/sys/devices/system/node/node1").exists()
}

impl Target for Linux {
    type Worker<'w> = LinuxWorker<'w>;

    fn name(&self) -> &'static str {
        "linux"
    }

    fn page_size(&self) -> u64 {
        self.page_size
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::Files | Feature::ColdFiles | Feature::WholePages => None,
            Feature::Nodes => (!has_two_nodes())
                .then_some("this machine has one memory node, and the workload needs two"),
            Feature::HugePages => {
                (huge::page_size().is_none()).then_some("this kernel has no huge pages (hugetlbfs)")
            }
        }
    }

    fn huge_page_size(&self) -> Option<u64> {
        huge::page_size()
    }

    fn fault_around_bytes(&self) -> Option<u64> {
        file::around_bytes()
    }

    fn process<F>(&self, plan: &Plan, body: F) -> Result<ProcessReport, TargetError>
    where
        F: for<'w> Fn(&mut Self::Worker<'w>) -> Result<(), Stop> + Sync,
    {
        self.refuse(plan)?;
        let area = Area::new(plan.threads)
            .map_err(|errno| failed("map the results' area (mmap)", errno))?;
        let (file, huge) = (self.common_file(plan)?, huge_file(plan)?);
        let pins = self.allowed.get(..plan.cpus as usize).unwrap_or_default();
        let job = child::Job {
            area: &area,
            threads: plan.threads,
            page_size: self.page_size,
            file: file.as_ref().map(|(bytes, file)| (*bytes, file)),
            huge: huge.as_ref().map(|(bytes, file)| (*bytes, file)),
            inherits: plan.inherited,
            pins,
        };
        child::silence_panics();
        let start_ns = sys::clock::monotonic_ns();
        let run = || match plan.spaces {
            Spaces::Shared => child::threads(&job, &body),
            Spaces::Own => child::processes(&job, &body),
        };
        let pid =
            sys::process::fork(run).map_err(|errno| failed("start a process (fork)", errno))?;
        let ended = sys::process::wait(pid)
            .map_err(|errno| failed("wait for the process (wait4)", errno))?;
        let wall_ns = sys::clock::monotonic_ns() - start_ns;
        succeeded(&area, &ended.exit)?;
        Ok(report(&area, plan.threads, wall_ns, &ended))
    }
}

fn failed(what: &str, errno: i32) -> TargetError {
    TargetError::System(format!("linux: cannot {what}: {}", sys::error_words(errno)))
}

/// Nothing went wrong in the child.
fn succeeded(area: &Area, exit: &Exit) -> Result<(), TargetError> {
    if let Exit::Signal(signal) = exit {
        let name = sys::process::signal_name(*signal);
        return Err(TargetError::System(format!(
            "linux: the process was killed by {name} (signal {signal})"
        )));
    }
    match (area.failure(), exit) {
        (Some((worker, Failure::Stop(why))), _) => Err(TargetError::Stopped { worker, why }),
        (Some((worker, Failure::Panic(words))), _) => Err(TargetError::System(format!(
            "linux: thread {worker} panicked: {words}"
        ))),
        (Some((worker, Failure::Thread(errno))), _) => {
            Err(failed(&format!("start thread {worker}"), errno))
        }
        (Some((worker, Failure::Process(errno))), _) => {
            Err(failed(&format!("start process {worker} (fork)"), errno))
        }
        (Some((worker, Failure::Killed(signal))), _) => {
            let name = sys::process::signal_name(signal);
            Err(TargetError::System(format!(
                "linux: process {worker} was killed by {name} (signal {signal})"
            )))
        }
        (Some((_, Failure::HugePages(errno))), _) => {
            Err(failed("switch huge pages off (PR_SET_THP_DISABLE)", errno))
        }
        (None, Exit::Code(0)) => Ok(()),
        (None, other) => Err(TargetError::System(format!(
            "linux: unexpected process status: {other:?}"
        ))),
    }
}

fn report(area: &Area, threads: u32, wall_ns: u64, ended: &Ended) -> ProcessReport {
    let usage = &ended.usage;
    let faults = usage.minor_faults + usage.major_faults;
    let events = [
        ("page-faults", faults),
        ("minor-faults", usage.minor_faults),
        ("major-faults", usage.major_faults),
        ("context-switches", usage.sleeps + usage.preemptions),
        ("threads-pinned", area.pinned()),
    ];
    ProcessReport {
        wall_ns,
        user_ns: usage.user_ns,
        system_ns: usage.system_ns,
        faults,
        sleeps: usage.sleeps,
        preemptions: usage.preemptions,
        workers: (0..threads)
            .map(|index| area.window(index).split(usage))
            .collect(),
        events: events.map(|(name, count)| (name.to_owned(), count)).into(),
        checks: BTreeMap::from([("contents".to_owned(), area.contents())]),
    }
}

#[cfg(test)]
mod tests;
