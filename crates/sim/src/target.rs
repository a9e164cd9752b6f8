//! The workloads' target in virtual time: one system on a simulated machine, a new address space
//! for each process.
//!
//! Thread `n` of a process is a task on CPU `n` modulo the CPUs asked for. The last thread to end
//! tears the address space down, as the last thread of a Linux process does, so teardown is serial
//! and inside the process's wall time. Starting and ending threads costs nothing yet.

use crate::instance::{SimInstance, Size};
use crate::machine::Sim;
use crate::machine_file::MachineFile;
use crate::report::{Outcome, RunReport};
use crate::run::{RunOptions, TaskSpec, run};
use core::cell::{Cell, RefCell};
use core::fmt;
use minflt_addr::VirtAddr;
use minflt_mm::{BootError, Config, Event, Mm, MmHandle, Running, System};
use minflt_pgtable::{Altix16K, Paging, PowerRadix, X86_64};
use minflt_process::{Calls, Tally};
use minflt_sync::{Instance, Machine, TaskId};
use minflt_workload::{
    Clear, Oracle, Plan, ProcessReport, Prot, Stop, Target, TargetError, Worker, WorkerReport,
};

const SLOTS: usize = 8;

/// A system on a simulated machine that runs workloads; oracles look at every access.
#[derive(Debug)]
pub struct SimTarget<P: Paging> {
    system: Running<Sim<P>>,
    cpus: u32,
    /// Of all accesses of all runs so far.
    hash: Cell<u64>,
}

/// The target on a machine of whatever page size.
#[derive(Debug)]
pub enum AnySimTarget {
    /// 4 KiB pages, the format of x86-64.
    X86(SimTarget<X86_64>),
    /// 16 KiB pages, the Altix's format.
    Altix(SimTarget<Altix16K>),
    /// 64 KiB pages, the format of POWER.
    Power(SimTarget<PowerRadix>),
}

/// Why a simulated target could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The system does not start on the machine.
    Boot(BootError),
    /// The host cannot hold the machine.
    Host(std::io::Error),
    /// No page-table format has pages of this size.
    PageSize(u64),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(error) => error.fmt(f),
            Self::Host(error) => write!(f, "this host cannot hold the machine's memory: {error}"),
            Self::PageSize(bytes) => {
                write!(
                    f,
                    "pages of {bytes} bytes are not modelled; 4096, 16384 and 65536 are"
                )
            }
        }
    }
}

impl core::error::Error for StartError {}

impl AnySimTarget {
    /// A system with `config` on a machine like `file`, with `ram_bytes` bytes of memory.
    ///
    /// # Errors
    /// When the host cannot hold it, or the system does not start on it.
    pub fn start(file: &MachineFile, config: Config, ram_bytes: u64) -> Result<Self, StartError> {
        let size = Size {
            ram_bytes,
            ..Size::of(file)
        };
        let bytes = file.shape.page_bytes.value as u64;
        if bytes == X86_64::PAGE {
            SimTarget::start(file, config, size).map(Self::X86)
        } else if bytes == Altix16K::PAGE {
            SimTarget::start(file, config, size).map(Self::Altix)
        } else if bytes == PowerRadix::PAGE {
            SimTarget::start(file, config, size).map(Self::Power)
        } else {
            Err(StartError::PageSize(bytes))
        }
    }
}

impl<P: Paging> SimTarget<P> {
    fn start(file: &MachineFile, config: Config, size: Size) -> Result<Self, StartError> {
        let machine = SimInstance::new(file, size).map_err(StartError::Host)?;
        let system = System::boot(machine, config).map_err(StartError::Boot)?;
        Ok(Self {
            system,
            cpus: size.cpus,
            hash: Cell::new(0),
        })
    }

    /// The system.
    #[must_use]
    pub fn system(&self) -> &System<Sim<P>> {
        &self.system
    }

    /// A hash of every access of every process so far.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash.get()
    }
}

/// What the threads of a process share beside its memory. They all run on one thread of the host.
#[derive(Debug)]
struct Shared<'s, P: Paging> {
    system: &'s System<Sim<P>>,
    threads: u32,
    /// Threads that have not ended.
    alive: Cell<u32>,
    /// Threads at the barrier, and how often it opened.
    waiting: Cell<u32>,
    opened: Cell<u64>,
    mailbox: [Cell<u64>; SLOTS],
    ended: RefCell<Vec<Result<Ended, TargetError>>>,
}

/// What a thread hands in at its end.
#[derive(Clone, Copy, Debug)]
struct Ended {
    index: u32,
    report: WorkerReport,
    contents: u64,
}

/// A thread of a process.
#[derive(Debug)]
pub struct SimWorker<'w, P: Paging> {
    shared: &'w Shared<'w, P>,
    calls: Calls<'w, Sim<P>>,
    index: u32,
    report: WorkerReport,
    contents: u64,
    at_open: (u64, u64, u64),
}

impl<P: Paging> Shared<'_, P> {
    fn wait(&self) {
        let round = self.opened.get();
        self.waiting.set(self.waiting.get() + 1);
        self.open_if_complete();
        while self.opened.get() == round {
            Sim::<P>::park();
        }
    }

    fn open_if_complete(&self) {
        if self.waiting.get() == self.alive.get() && self.alive.get() > 0 {
            self.waiting.set(0);
            self.opened.set(self.opened.get() + 1);
            // SAFETY: duty 1 of `Machine`.
            let me = unsafe { &*Sim::<P>::cx() }.task.get();
            (1..=self.threads)
                .map(TaskId)
                .filter(|task| *task != me)
                .for_each(Sim::<P>::unpark);
        }
    }

    /// The thread ends, and nobody waits for it any more; whether it was the last.
    fn leave(&self) -> bool {
        self.alive.set(self.alive.get() - 1);
        self.open_if_complete();
        self.alive.get() == 0
    }
}

impl<P: Paging> Target for SimTarget<P> {
    type Worker<'w> = SimWorker<'w, P>;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn page_size(&self) -> u64 {
        P::PAGE
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn process<F>(&self, plan: &Plan, body: F) -> Result<ProcessReport, TargetError>
    where
        F: for<'w> Fn(&mut Self::Worker<'w>) -> Result<(), Stop> + Sync,
    {
        if plan.cpus > self.cpus {
            return Err(TargetError::Unsupported(format!(
                "{} CPUs are more than the machine's {}",
                plan.cpus, self.cpus
            )));
        }
        if plan.clear == Clear::Beforehand {
            self.system.clear_free_frames();
        }
        let tally = Tally::start(&*self.system);
        let mm = self.system.new_mm();
        let mm = mm.map_err(|_| TargetError::System("no memory for an address space".into()))?;
        let mm = RefCell::new(Some(mm));
        let shared = Shared {
            system: &self.system,
            threads: plan.threads,
            alive: Cell::new(plan.threads),
            waiting: Cell::new(0),
            opened: Cell::new(0),
            mailbox: [const { Cell::new(0) }; SLOTS],
            ended: RefCell::new(Vec::new()),
        };
        let task = |index: u32| {
            let (shared, mm, body) = (&shared, &mm, &body);
            TaskSpec::new(index % plan.cpus.max(1), move || {
                work(shared, mm, index, body)
            })
        };
        let tasks = (0..plan.threads).map(task).collect();
        let ran = run(self.system.machine(), &RunOptions::virtual_time(), tasks);
        self.hash
            .set((self.hash.get() ^ ran.hash).wrapping_mul(0x0000_0100_0000_01b3));
        if ran.outcome != Outcome::Ok {
            // Locks may be held for ever: the address space is left alone.
            let _left = core::mem::ManuallyDrop::new(mm.take());
            return Err(TargetError::Violation(ran.outcome.to_string()));
        }
        self.report(&shared, &ran, tally)
    }
}

impl<P: Paging> SimTarget<P> {
    fn report(
        &self,
        shared: &Shared<'_, P>,
        ran: &RunReport,
        tally: Tally,
    ) -> Result<ProcessReport, TargetError> {
        let mut ended: Vec<_> = shared.ended.take().into_iter().collect::<Result<_, _>>()?;
        ended.sort_unstable_by_key(|ended: &Ended| ended.index);
        let mut report = ProcessReport {
            wall_ns: ran.end_ns,
            user_ns: ran.tasks.iter().map(|task| task.user_ns).sum(),
            system_ns: ran.tasks.iter().map(|task| task.system_ns).sum(),
            workers: ended.iter().map(|ended| ended.report).collect(),
            ..ProcessReport::default()
        };
        let contents = ended.iter().map(|ended| ended.contents).sum();
        tally.finish(&*self.system, contents, &mut report)?;
        report
            .events
            .insert("context-switches".into(), ran.context_switches);
        Ok(report)
    }
}

/// Runs one thread's body.
fn work<'w, P: Paging, F>(
    shared: &'w Shared<'w, P>,
    space: &RefCell<Option<MmHandle<'_, Sim<P>>>>,
    index: u32,
    body: &F,
) where
    F: Fn(&mut SimWorker<'w, P>) -> Result<(), Stop>,
{
    let ended = {
        let mm: *const Mm<Sim<P>> = match &*space.borrow() {
            Some(mm) => core::ptr::from_ref(&**mm),
            None => return,
        };
        // SAFETY: the address space is dropped by the last thread to leave, which this one has not;
        // no borrow of the cell is held while others run.
        let mm = unsafe { &*mm };
        let mut worker = SimWorker {
            shared,
            calls: Calls::new(mm),
            index,
            report: WorkerReport::default(),
            contents: 0,
            at_open: (0, 0, 0),
        };
        let result = body(&mut worker);
        let ended = Ended {
            index,
            report: worker.report,
            contents: worker.contents,
        };
        result
            .map(|()| ended)
            .map_err(|why| TargetError::Stopped { worker: index, why })
    };
    shared.ended.borrow_mut().push(ended);
    if shared.leave() {
        drop(space.take());
    }
}

impl<P: Paging> Worker for SimWorker<'_, P> {
    fn index(&self) -> u32 {
        self.index
    }

    fn threads(&self) -> u32 {
        self.shared.threads
    }

    fn page_size(&self) -> u64 {
        P::PAGE
    }

    fn map(&mut self, len: u64, prot: Prot) -> Result<VirtAddr, Stop> {
        self.calls.map(len, prot)
    }

    fn unmap(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        self.calls.unmap(at, len)
    }

    fn protect(&mut self, at: VirtAddr, len: u64, prot: Prot) -> Result<(), Stop> {
        self.calls.protect(at, len, prot)
    }

    fn discard(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        self.calls.discard(at, len)
    }

    fn store(&mut self, at: VirtAddr, value: u64) -> Result<(), Stop> {
        self.calls.store(at, value)
    }

    fn load(&mut self, at: VirtAddr) -> Result<u64, Stop> {
        self.calls.load(at)
    }

    fn compute(&mut self, ns: u64) {
        Sim::<P>::compute(ns);
    }

    fn barrier(&mut self) {
        self.shared.wait();
    }

    fn post(&mut self, slot: usize, value: u64) {
        self.shared.mailbox[slot].set(value);
    }

    fn read(&mut self, slot: usize) -> u64 {
        self.shared.mailbox[slot].get()
    }

    fn now_ns(&mut self) -> u64 {
        self.shared.system.machine().now_ns()
    }

    fn window_open(&mut self) {
        let times = Sim::<P>::times();
        self.at_open = (times.0, times.1, self.faults());
        self.report.start_ns = self.now_ns();
    }

    fn window_close(&mut self) {
        let times = Sim::<P>::times();
        self.report.end_ns = self.now_ns();
        self.report.user_ns = times.0 - self.at_open.0;
        self.report.system_ns = times.1 - self.at_open.1;
        self.report.faults = self.faults() - self.at_open.2;
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

impl<P: Paging> SimWorker<'_, P> {
    /// Faults of this thread's CPU: of this thread, where it has the CPU to itself.
    fn faults(&self) -> u64 {
        // SAFETY: duty 1 of `Machine`.
        let cpu = unsafe { &*Sim::<P>::cx() }.cpu.get();
        self.shared.system.count_on(cpu, Event::PageFaults)
    }
}
