//! The workloads' target of real threads: one system, a new address space for each process.
//!
//! A worker is a thread and a CPU; where each worker is a process, it has an address space of its
//! own, made and torn down on its CPU, inside the measured time. A forked child runs on its
//! parent's CPU while the parent waits, and its time and faults are the parent's.
//!
//! All processor time is reported as system time: user accesses go through the software MMU, and
//! telling the two apart would take two clock reads a fault.

use crate::worker::HostWorker;
use crate::worker::shared::Shared;
use crate::worker::thread::{Usage, pin, thread_cpu_ns, usage};
use crate::{Host, HostInstance, HostOptions, Prefault, RamError};
use core::fmt;
use core::mem::ManuallyDrop;
use core::panic::AssertUnwindSafe;
use minflt_mm::{BootError, Config, Mm, Running, Swap, System};
use minflt_pgtable::{Facts, X86_64};
use minflt_process::{Common, Tally, exit, fault_around_bytes, no_huge_pages, table_bytes};
use minflt_sync::Instance;
use minflt_workload::{
    Clear, Feature, Plan, ProcessReport, Spaces, Stop, Target, TargetError, WorkerReport,
};
use std::panic::catch_unwind;

/// A system on real threads that runs workloads; oracles look at every access where `CHECKED`.
#[derive(Debug)]
pub struct HostTarget<const CHECKED: bool> {
    system: Running<Host<X86_64, CHECKED>>,
    cpus: u32,
}

/// Why the target could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The memory cannot be had.
    Ram(RamError),
    /// The system does not start on it.
    Boot(BootError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ram(error) => error.fmt(f),
            Self::Boot(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for StartError {}

impl<const CHECKED: bool> HostTarget<CHECKED> {
    /// A system of `cpus` CPUs and `ram_bytes` bytes of RAM, all of it had from the host now.
    ///
    /// # Errors
    /// When the host has not enough memory, or the configuration is refused.
    pub fn start(config: Config, cpus: u32, ram_bytes: usize) -> Result<Self, StartError> {
        Self::start_on(config, cpus, ram_bytes, 1)
    }

    /// The same, with CPUs and RAM counted as those of `nodes` memory nodes, or of as many as there
    /// are CPUs.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_on(
        config: Config,
        cpus: u32,
        ram_bytes: usize,
        nodes: u32,
    ) -> Result<Self, StartError> {
        Self::start_with_swap(config, cpus, ram_bytes, nodes, 0)
    }

    /// The same, with a swap device of `swap_bytes` bytes, which is memory of the host beside that
    /// RAM.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with_swap(
        config: Config,
        cpus: u32,
        ram_bytes: usize,
        nodes: u32,
        swap_bytes: usize,
    ) -> Result<Self, StartError> {
        let options = HostOptions {
            cpus,
            ram_bytes: ram_bytes.saturating_add(swap_bytes),
            prefault: Prefault::Now,
        };
        let machine = HostInstance::new(&options).map_err(StartError::Ram)?;
        let machine = machine.with_nodes(nodes.clamp(1, cpus));
        let swap = Swap::of_bytes(swap_bytes as u64);
        let system = System::boot_with_swap(machine, config, swap).map_err(StartError::Boot)?;
        Ok(Self { system, cpus })
    }

    /// The system.
    #[must_use]
    pub fn system(&self) -> &System<Host<X86_64, CHECKED>> {
        &self.system
    }

    fn machine(&self) -> &HostInstance {
        self.system.machine()
    }

    fn failure(&self, otherwise: &str) -> TargetError {
        match self.machine().failed() {
            Some(text) => TargetError::Violation(text),
            None => TargetError::System(otherwise.to_string()),
        }
    }

    /// Runs one worker's body, in `mm` or in an address space of its own.
    fn work<F>(
        &self,
        shared: &Shared<'_, CHECKED>,
        mm: Option<&Mm<Host<X86_64, CHECKED>>>,
        index: u32,
        body: &F,
    ) -> Result<Ended, TargetError>
    where
        F: for<'w> Fn(&mut HostWorker<'w, CHECKED>) -> Result<(), Stop>,
    {
        pin(index);
        let _cpu = self.machine().enter(index);
        let inside = |mm: &Mm<Host<X86_64, CHECKED>>| {
            let mut worker = HostWorker::new(shared, mm, index);
            let result = body(&mut worker);
            let ended = (worker.report, worker.contents);
            result
                .map(|()| ended)
                .map_err(|why| TargetError::Stopped { worker: index, why })
        };
        let run = || match mm {
            Some(mm) => inside(mm),
            None => {
                let own = ManuallyDrop::new(shared.common.own_space()?);
                let ended = inside(&own);
                exit(ManuallyDrop::into_inner(own));
                ended
            }
        };
        let ended = catch_unwind(AssertUnwindSafe(run));
        shared.leave();
        match ended {
            Ok(ended) => ended.map(|(report, contents)| Ended {
                report,
                contents,
                usage: usage(),
            }),
            Err(_) => Err(self.failure("a thread panicked")),
        }
    }
}

/// What a worker hands in at its end.
#[derive(Clone, Copy, Debug)]
struct Ended {
    report: WorkerReport,
    contents: u64,
    usage: Usage,
}

impl<const CHECKED: bool> Target for HostTarget<CHECKED> {
    type Worker<'w> = HostWorker<'w, CHECKED>;

    fn name(&self) -> &'static str {
        "host"
    }

    fn page_size(&self) -> u64 {
        X86_64::PAGE
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::Files | Feature::ColdFiles | Feature::WholePages => None,
            Feature::HugePages => no_huge_pages(&*self.system),
            Feature::Nodes => (self.machine().nodes() < 2)
                .then_some("the machine has one memory node; two threads or more give it two"),
        }
    }

    fn huge_page_size(&self) -> Option<u64> {
        self.system.huge_page_bytes()
    }

    fn table_bytes(&self) -> u64 {
        table_bytes::<X86_64>()
    }

    fn fault_around_bytes(&self) -> Option<u64> {
        fault_around_bytes(&*self.system)
    }

    fn process<F>(&self, plan: &Plan, body: F) -> Result<ProcessReport, TargetError>
    where
        F: for<'w> Fn(&mut Self::Worker<'w>) -> Result<(), Stop> + Sync,
    {
        if plan.threads > self.cpus {
            return Err(TargetError::Unsupported(format!(
                "{} threads need as many CPUs, and this host system has {}: on host a thread is a \
                 CPU",
                plan.threads, self.cpus
            )));
        }
        if plan.cpus != plan.threads {
            return Err(TargetError::Unsupported(format!(
                "--cpus {} with {} threads: on host each thread is one CPU; use the same number, or omit --cpus",
                plan.cpus, plan.threads
            )));
        }
        if plan.clear == Clear::Beforehand {
            self.system.clear_free_frames();
        }
        // Left alone after a failure, with all address spaces: locks may be held for ever.
        let mut common = {
            let _cpu = self.machine().enter(0);
            ManuallyDrop::new(Common::new(&*self.system, plan)?)
        };
        let tally = Tally::start(&*self.system);
        let started = self.machine().now_ns();
        let main_cpu = thread_cpu_ns();
        let mm = match plan.spaces {
            Spaces::Own => None,
            Spaces::Shared => {
                let _cpu = self.machine().enter(0);
                Some(ManuallyDrop::new(common.shared_space()?))
            }
        };
        let shared = Shared::new(&self.system, plan.threads, &common);
        let ended: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..plan.threads)
                .map(|index| {
                    let (shared, body) = (&shared, &body);
                    let mm = mm.as_ref().map(|mm| &***mm);
                    scope.spawn(move || self.work(shared, mm, index, body))
                })
                .collect();
            let panicked = |_| Err(self.failure("a thread panicked"));
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(panicked))
                .collect()
        });
        if let Some(text) = self.machine().failed() {
            drop(ended);
            return Err(TargetError::Violation(text));
        }
        let _cpu = self.machine().enter(0);
        if let Some(mm) = mm {
            exit(ManuallyDrop::into_inner(mm));
        }
        let mut report = ProcessReport {
            wall_ns: self.machine().now_ns() - started,
            system_ns: thread_cpu_ns() - main_cpu,
            ..ProcessReport::default()
        };
        drop(ManuallyDrop::into_inner(common));
        let mut contents = 0;
        for ended in ended {
            let ended = ended?;
            report.system_ns += ended.usage.cpu_ns;
            report.sleeps += ended.usage.sleeps;
            report.preemptions += ended.usage.preemptions;
            report.workers.push(ended.report);
            contents += ended.contents;
        }
        tally.finish(&*self.system, contents, &mut report)?;
        Ok(report)
    }
}
