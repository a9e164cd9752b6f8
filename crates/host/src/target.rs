//! The workloads' target of real threads: one system, a new address space for each process.
//!
//! All processor time is reported as system time: user accesses go through the software MMU, and
//! telling the two apart would take two clock reads a fault.

use crate::{Host, HostInstance, HostOptions, Prefault, RamError};
use core::fmt;
use core::panic::AssertUnwindSafe;
use minflt_addr::VirtAddr;
use minflt_mm::{BootError, Config, Event, Mm, Running, System};
use minflt_pgtable::{Mmu, Paging, X86_64};
use minflt_process::{Calls, Tally};
use minflt_sync::prim::{AtomicU64, Ordering};
use minflt_sync::{Instance, Machine};
use minflt_workload::{
    Clear, Oracle, Plan, ProcessReport, Prot, Stop, Target, TargetError, Worker, WorkerReport,
};
use std::panic::catch_unwind;

const SLOTS: usize = 8;
const NANOS: u64 = 1_000_000_000;

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

/// What the threads of a process share beside its memory.
#[derive(Debug)]
struct Shared<'s, const CHECKED: bool> {
    system: &'s System<Host<X86_64, CHECKED>>,
    threads: u32,
    mailbox: [AtomicU64; SLOTS],
    /// Threads that may still come to the barrier, in the low half; those that have, in the high.
    barrier: AtomicU64,
    /// Times the barrier opened.
    opened: AtomicU64,
}

/// A thread of a process.
#[derive(Debug)]
pub struct HostWorker<'w, const CHECKED: bool> {
    shared: &'w Shared<'w, CHECKED>,
    calls: Calls<'w, Host<X86_64, CHECKED>>,
    index: u32,
    report: WorkerReport,
    contents: u64,
    cpu_at_open: u64,
    faults_at_open: u64,
}

const ARRIVED: u64 = 1 << 32;

impl<const CHECKED: bool> HostTarget<CHECKED> {
    /// A system of `cpus` CPUs and `ram_bytes` bytes of RAM, all of it had from the host now.
    ///
    /// # Errors
    /// When the host has not enough memory, or the configuration is refused.
    pub fn start(config: Config, cpus: u32, ram_bytes: usize) -> Result<Self, StartError> {
        let options = HostOptions {
            cpus,
            ram_bytes,
            prefault: Prefault::Now,
        };
        let machine = HostInstance::new(&options).map_err(StartError::Ram)?;
        let system = System::boot(machine, config).map_err(StartError::Boot)?;
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

    /// Runs one thread's body.
    fn work<'w, F>(
        &'w self,
        shared: &'w Shared<'w, CHECKED>,
        mm: &'w Mm<Host<X86_64, CHECKED>>,
        index: u32,
        body: &F,
    ) -> Result<Ended, TargetError>
    where
        F: Fn(&mut HostWorker<'w, CHECKED>) -> Result<(), Stop>,
    {
        pin(index);
        let _cpu = self.machine().enter(index);
        let run = || {
            let mut worker = HostWorker::new(shared, mm, index);
            let result = body(&mut worker);
            shared.leave();
            result.map(|()| Ended {
                report: worker.report,
                contents: worker.contents,
                cpu_ns: thread_cpu_ns(),
            })
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(ended)) => Ok(ended),
            Ok(Err(why)) => Err(TargetError::Stopped { worker: index, why }),
            Err(_) => {
                shared.leave();
                Err(self.failure("a thread panicked"))
            }
        }
    }
}

/// What a thread hands in at its end.
#[derive(Clone, Copy, Debug)]
struct Ended {
    report: WorkerReport,
    contents: u64,
    cpu_ns: u64,
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
                "--cpus {} with {} threads: on host a thread is a CPU; give as many, or none",
                plan.cpus, plan.threads
            )));
        }
        if plan.clear == Clear::Beforehand {
            self.system.clear_free_frames();
        }
        let tally = Tally::start(&*self.system);
        let started = self.machine().now_ns();
        let main_cpu = thread_cpu_ns();
        let mm = {
            let _cpu = self.machine().enter(0);
            self.system
                .new_mm()
                .map_err(|_| TargetError::System("no memory".into()))?
        };
        let shared = Shared::new(&self.system, plan.threads);
        let ended: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..plan.threads)
                .map(|index| {
                    let (shared, mm, body) = (&shared, &*mm, &body);
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
        drop(mm);
        let mut report = ProcessReport {
            wall_ns: self.machine().now_ns() - started,
            system_ns: thread_cpu_ns() - main_cpu,
            ..ProcessReport::default()
        };
        let mut contents = 0;
        for ended in ended {
            let ended = ended?;
            report.system_ns += ended.cpu_ns;
            report.workers.push(ended.report);
            contents += ended.contents;
        }
        tally.finish(&*self.system, contents, &mut report)?;
        Ok(report)
    }
}

impl<'s, const CHECKED: bool> Shared<'s, CHECKED> {
    fn new(system: &'s System<Host<X86_64, CHECKED>>, threads: u32) -> Self {
        Self {
            system,
            threads,
            mailbox: [const { AtomicU64::new(0) }; SLOTS],
            barrier: AtomicU64::new(u64::from(threads)),
            opened: AtomicU64::new(0),
        }
    }

    /// Waits for all threads that have not ended; acknowledges interrupts meanwhile.
    fn wait(&self) {
        // ORDERING: Acquire here and below; pairs with [host-barrier].
        let round = self.opened.load(Ordering::Acquire);
        let now = self.barrier.fetch_add(ARRIVED, Ordering::AcqRel) + ARRIVED;
        if !self.open_if_complete(now) {
            while self.opened.load(Ordering::Acquire) == round {
                Host::<X86_64, CHECKED>::wait_until::<u64>(&self.opened, u64::MAX, round + 1);
            }
        }
    }

    /// The thread ends, and nobody has to wait for it any more.
    fn leave(&self) {
        let now = self.barrier.fetch_sub(1, Ordering::AcqRel) - 1;
        if now != 0 {
            self.open_if_complete(now);
        }
    }

    fn open_if_complete(&self, now: u64) -> bool {
        let complete = now >> 32 == now & (ARRIVED - 1);
        if complete {
            // Everybody alive waits here, so nobody changes the word between the two lines.
            // ORDERING: Release, AcqRel; pairs with [host-barrier].
            self.barrier.store(now & (ARRIVED - 1), Ordering::Release);
            self.opened.fetch_add(1, Ordering::AcqRel);
        }
        complete
    }
}

impl<'w, const CHECKED: bool> HostWorker<'w, CHECKED> {
    fn new(shared: &'w Shared<'w, CHECKED>, mm: &'w Mm<Host<X86_64, CHECKED>>, index: u32) -> Self {
        Self {
            shared,
            calls: Calls::new(mm),
            index,
            report: WorkerReport::default(),
            contents: 0,
            cpu_at_open: 0,
            faults_at_open: 0,
        }
    }

    fn faults(&self) -> u64 {
        self.shared.system.count_on(self.index, Event::PageFaults)
    }
}

impl<const CHECKED: bool> Worker for HostWorker<'_, CHECKED> {
    fn index(&self) -> u32 {
        self.index
    }

    fn threads(&self) -> u32 {
        self.shared.threads
    }

    fn page_size(&self) -> u64 {
        X86_64::PAGE
    }

    fn map(&mut self, len: u64, access: Prot) -> Result<VirtAddr, Stop> {
        self.calls.map(len, access)
    }

    fn unmap(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        self.calls.unmap(at, len)
    }

    fn protect(&mut self, at: VirtAddr, len: u64, access: Prot) -> Result<(), Stop> {
        self.calls.protect(at, len, access)
    }

    fn discard(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        self.calls.discard(at, len)
    }

    #[inline]
    fn store(&mut self, at: VirtAddr, value: u64) -> Result<(), Stop> {
        self.calls.store(at, value)
    }

    #[inline]
    fn load(&mut self, at: VirtAddr) -> Result<u64, Stop> {
        self.calls.load(at)
    }

    fn compute(&mut self, ns: u64) {
        let until = self.now_ns() + ns;
        while self.now_ns() < until {
            Host::<X86_64, CHECKED>::user_point(self.shared.system.machine());
        }
    }

    fn barrier(&mut self) {
        self.shared.wait();
    }

    fn post(&mut self, slot: usize, value: u64) {
        // ORDERING: Release; pairs with [host-mailbox].
        self.shared.mailbox[slot].store(value, Ordering::Release);
    }

    fn read(&mut self, slot: usize) -> u64 {
        // ORDERING: Acquire; pairs with [host-mailbox].
        self.shared.mailbox[slot].load(Ordering::Acquire)
    }

    fn now_ns(&mut self) -> u64 {
        self.shared.system.machine().now_ns()
    }

    fn window_open(&mut self) {
        self.faults_at_open = self.faults();
        self.cpu_at_open = thread_cpu_ns();
        self.report.start_ns = self.now_ns();
    }

    fn window_close(&mut self) {
        self.report.end_ns = self.now_ns();
        self.report.system_ns = thread_cpu_ns() - self.cpu_at_open;
        self.report.faults = self.faults() - self.faults_at_open;
    }

    fn ops(&mut self, n: u64) {
        self.report.ops += n;
    }

    fn checked(&mut self, oracle: Oracle, n: u64) {
        match oracle {
            Oracle::Contents => self.contents += n,
        }
    }
}

/// Processor time of the calling thread.
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one `timespec`, which lives here.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.unsigned_abs() * NANOS + time.tv_nsec.unsigned_abs()
}

/// Keeps the calling thread on one processor, where the system allows; a wish, not a need.
fn pin(index: u32) {
    let count = std::thread::available_parallelism().map_or(1, |n| n.get());
    // SAFETY: a set of processors is plain bits, and zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the number is below the set's size.
    unsafe { libc::CPU_SET(index as usize % count.min(1024), &mut set) };
    // SAFETY: reads one set, which lives here; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}
