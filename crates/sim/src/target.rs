//! The workloads' target in virtual time: one system on a simulated machine, a new address space
//! for each process.
//!
//! Worker `n` is a task on CPU `n` modulo the CPUs asked for, or on the `n`th CPU of another order
//! ([`Placing`]). The last thread to end tears the
//! address space down, as the last thread of a Linux process does, so teardown is serial and inside
//! the process's wall time. Where each worker is a process, it makes and tears down its own.
//! A forked child runs in its parent's task while the parent waits; a fork counts as one sleep,
//! that of the waiting parent, beside those that the scheduler counts.
//!
//! Worker 0 starts the others one after the other, each for `spawn`, before its own work; each ends
//! with `exit`. Both are the kernel's time, inside the process's wall time.

use crate::chosen::{Chosen, Held};
use crate::instance::{SimInstance, Size};
use crate::machine::Sim;
use crate::machine_file::MachineFile;
use crate::report::{Outcome, RunReport};
use crate::run::{RunOptions, TaskSpec, run};
use crate::why::{Name, Why, WhyOptions, Windows};
use crate::worker::{Ended, Shared, SimWorker};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::mem::ManuallyDrop;
use minflt_mm::describe::Field;
use minflt_mm::{BootError, Config, Mm, MmHandle, NumaKnobs, Running, Swap, System};
use minflt_pgtable::{About, FORMATS, Paging};
use minflt_process::{Common, Tally, exit, fault_around_bytes, no_huge_pages, table_bytes};
use minflt_sync::Instance;
use minflt_workload::{Clear, Feature, Plan, ProcessReport, Spaces, Stop, Target, TargetError};

/// The machine that workloads run on: with page tables of any format that has wide entries.
pub type Simulated = Sim<Chosen<u64>>;

/// A system on a simulated machine that runs workloads; oracles look at every access.
#[derive(Debug)]
pub struct SimTarget {
    system: Running<Simulated>,
    /// Let go after the system.
    _format: Held,
    cpus: u32,
    most_workers: u32,
    /// Of all accesses of all runs so far.
    hash: Cell<u64>,
    placing: Cell<Placing>,
    seed: Cell<u64>,
    asked: RefCell<Option<Asked>>,
    why: RefCell<Option<Why>>,
}

/// Which CPUs the workers of a process run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placing {
    /// The first ones, whatever they share.
    #[default]
    First,
    /// As a scheduler spreads threads over an idle machine: a core of each die in turn, and second
    /// threads of cores last.
    Spread,
}

/// What is to be accounted of the processes that a target runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// The line that is to be free ([`WhyOptions::free`]).
    pub free: Option<String>,
    /// Samples to keep at most.
    pub samples: usize,
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
    /// The thread simulates a machine of another format.
    Other(&'static About),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(error) => error.fmt(f),
            Self::Host(error) => {
                write!(f, "cannot allocate the simulated machine's memory: {error}")
            }
            Self::PageSize(bytes) => {
                write!(
                    f,
                    "unsupported page size {bytes}: expected 4096, 16384 or 65536"
                )
            }
            Self::Other(about) => write!(
                f,
                "this thread already simulates a machine of page-table format {}",
                about.id
            ),
        }
    }
}

impl core::error::Error for StartError {}

impl SimTarget {
    /// A system with `config` on a machine like `file`, with `ram_bytes` bytes of memory.
    ///
    /// # Errors
    /// When the host cannot hold it, or the system does not start on it.
    pub fn start(file: &MachineFile, config: Config, ram_bytes: u64) -> Result<Self, StartError> {
        let size = Size {
            ram_bytes,
            ..Size::of(file)
        };
        Self::start_sized(file, config, size)
    }

    /// A system with `config` on a machine like `file` of another size.
    ///
    /// # Errors
    /// As [`SimTarget::start`].
    pub fn start_sized(file: &MachineFile, config: Config, size: Size) -> Result<Self, StartError> {
        Self::start_with_swap(file, config, size, 0)
    }

    /// The same, with a swap device of `swap_bytes` bytes, which is memory of the machine beside
    /// that of `size`, some of it on each node. The page tables are of the first format with pages
    /// of the machine's size.
    ///
    /// # Errors
    /// As [`SimTarget::start`].
    pub fn start_with_swap(
        file: &MachineFile,
        config: Config,
        size: Size,
        swap_bytes: u64,
    ) -> Result<Self, StartError> {
        let bytes = file.shape.page_bytes.value as u64;
        let fits = |about: &&About| about.word_bits == 64 && 1 << about.page_shift == bytes;
        let format = FORMATS.iter().find(fits);
        let format = format.ok_or(StartError::PageSize(bytes))?;
        let size = Size {
            ram_bytes: size.ram_bytes.saturating_add(swap_bytes),
            ..size
        };
        // SAFETY: 1: the target, which owns both, cannot leave the thread, and lends the system.
        let held = unsafe { Chosen::<u64>::hold(format) }.map_err(StartError::Other)?;
        let machine = SimInstance::new(file, size).map_err(StartError::Host)?;
        machine.set_timed();
        let swap = Swap::of_bytes(swap_bytes);
        let system = System::boot_with_swap(machine, config, swap).map_err(StartError::Boot)?;
        Ok(Self {
            system,
            _format: held,
            cpus: size.cpus,
            most_workers: size.max_tasks,
            hash: Cell::new(0),
            placing: Cell::new(Placing::First),
            seed: Cell::new(0),
            asked: RefCell::new(None),
            why: RefCell::new(None),
        })
    }

    /// The system.
    #[must_use]
    pub fn system(&self) -> &System<Simulated> {
        &self.system
    }

    /// From now on processes are accounted as `asked`, or not at all.
    pub fn account(&self, asked: Option<Asked>) {
        self.asked.replace(asked);
    }

    /// From now on workers run on these CPUs.
    pub fn place(&self, placing: Placing) {
        self.placing.set(placing);
    }

    /// From now on chance is drawn from this seed ([`RunOptions::seed`]).
    pub fn seed(&self, seed: u64) {
        self.seed.set(seed);
    }

    /// From now on what user mode uses of memory lies on all nodes in turn, page by page, wherever
    /// the allocator had the frames from.
    pub fn interleave(&self) {
        self.system.machine().interleaved.set(true);
    }

    /// See [`System::set_numa_knobs`].
    pub fn set_numa_knobs(&self, knobs: NumaKnobs) {
        self.system().set_numa_knobs(knobs);
    }

    /// Where the time of the last process went, if it was accounted.
    #[must_use]
    pub fn take_why(&self) -> Option<Why> {
        self.why.take()
    }

    /// A hash of every access of every process so far.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// The CPU of each worker of a plan, in turn.
    fn cpus_of(&self, plan: &Plan) -> Vec<u32> {
        let mut cpus = match self.placing.get() {
            Placing::First => (0..plan.cpus.max(1)).collect(),
            Placing::Spread => self.system.machine().model.spread(),
        };
        cpus.truncate(plan.cpus.max(1) as usize);
        cpus
    }
}

impl Target for SimTarget {
    type Worker<'w> = SimWorker<'w, Chosen<u64>>;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn page_size(&self) -> u64 {
        Chosen::<u64>::page()
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::Files | Feature::ColdFiles => None,
            Feature::WholePages => Some("a simulated page holds one word"),
            Feature::HugePages => no_huge_pages(self.system()),
            Feature::Nodes => {
                let nodes = self.system.machine().nodes();
                (nodes < 2).then_some(
                    "the machine has one memory node; choose a --machine with two or more",
                )
            }
        }
    }

    fn huge_page_size(&self) -> Option<u64> {
        self.system().huge_page_bytes()
    }

    fn table_bytes(&self) -> u64 {
        table_bytes::<Chosen<u64>>()
    }

    fn fault_around_bytes(&self) -> Option<u64> {
        fault_around_bytes(self.system())
    }

    fn process<F>(&self, plan: &Plan, body: F) -> Result<ProcessReport, TargetError>
    where
        F: for<'w> Fn(&mut Self::Worker<'w>) -> Result<(), Stop> + Sync,
    {
        if plan.cpus > self.cpus {
            return Err(TargetError::Unsupported(format!(
                "{} CPUs exceed the machine's {}",
                plan.cpus, self.cpus
            )));
        }
        if plan.threads > self.most_workers {
            return Err(TargetError::Unsupported(format!(
                "{} threads or processes: a simulated machine of {} CPUs takes at most {}",
                plan.threads, self.cpus, self.most_workers
            )));
        }
        let system = self.system();
        if plan.clear == Clear::Beforehand {
            system.clear_free_frames();
        }
        // Made outside the run, so that no cache holds anything of it, and left alone after a
        // failure.
        let mut common = ManuallyDrop::new(Common::new(&*self.system, plan)?);
        let tally = Tally::start(&*self.system);
        let mm = RefCell::new(match plan.spaces {
            Spaces::Own => None,
            Spaces::Shared => Some(common.shared_space()?),
        });
        let model = &self.system.machine().model;
        let shared = Shared::new(&self.system, plan.threads, &common, model.exit);
        let cpus = self.cpus_of(plan);
        let task = |index: u32| {
            let (shared, mm, body) = (&shared, &mm, &body);
            let work = move || {
                self.start_worker(plan, index);
                match plan.spaces {
                    Spaces::Own => work_alone(shared, index, body),
                    Spaces::Shared => work_together(shared, mm, index, body),
                }
            };
            TaskSpec::new(cpus[index as usize % cpus.len()], work)
        };
        let tasks = (0..plan.threads).map(task).collect();
        let names = |offset| name(&self.system, offset);
        let asked = self.asked.borrow();
        let why = asked.as_ref().map(|asked| WhyOptions {
            names: &names,
            windows: Windows::Opened,
            free: asked.free.as_deref(),
            samples: asked.samples,
        });
        let options = RunOptions {
            why,
            seed: self.seed.get(),
            ..RunOptions::virtual_time()
        };
        let mut ran = run(self.system.machine(), &options, tasks);
        self.why.replace(ran.why.take());
        self.hash
            .set((self.hash.get() ^ ran.hash).wrapping_mul(0x0000_0100_0000_01b3));
        if ran.outcome != Outcome::Ok {
            // Locks may be held for ever: the address space is left alone.
            let _left = ManuallyDrop::new(mm.take());
            return Err(TargetError::Violation(ran.outcome.to_string()));
        }
        let (ended, forks) = (shared.ended.take(), shared.forks.get());
        drop(ManuallyDrop::into_inner(common));
        self.report(ended, forks, &ran, tally)
    }
}

impl SimTarget {
    /// The caller becomes worker `index`.
    fn start_worker(&self, plan: &Plan, index: u32) {
        let spawn = self.system.machine().model.spawn;
        if index == 0 {
            Simulated::kernel_works(spawn * u64::from(plan.threads.saturating_sub(1)));
        } else {
            Simulated::starts_at(spawn * u64::from(index) / 1000);
        }
    }

    fn report(
        &self,
        ended: Vec<Result<Ended, TargetError>>,
        forks: u64,
        ran: &RunReport,
        tally: Tally,
    ) -> Result<ProcessReport, TargetError> {
        let mut ended: Vec<_> = ended.into_iter().collect::<Result<_, _>>()?;
        ended.sort_unstable_by_key(|ended: &Ended| ended.index);
        let mut report = ProcessReport {
            wall_ns: ran.end_ns,
            user_ns: ran.tasks.iter().map(|task| task.user_ns).sum(),
            system_ns: ran.tasks.iter().map(|task| task.system_ns).sum(),
            sleeps: ran.sleeps + forks,
            preemptions: ran.context_switches - ran.sleeps,
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

/// The name of what lies at an offset of a system's memory.
pub(crate) fn name<P: Paging>(system: &System<Sim<P>>, offset: u64) -> Name {
    let place = system.describe(offset);
    Name {
        object: place.object,
        field: match place.field {
            Field::Named(name) => name,
            Field::Entry(_) | Field::Byte(_) => "",
        },
        number: place.number,
        lock: place.lock(),
    }
}

/// Runs the body of one of the threads of a process.
fn work_together<P: Paging, F>(
    shared: &Shared<'_, P>,
    space: &RefCell<Option<MmHandle<'_, Sim<P>>>>,
    index: u32,
    body: &F,
) where
    F: for<'w> Fn(&mut SimWorker<'w, P>) -> Result<(), Stop>,
{
    let ended = {
        let mm: *const Mm<Sim<P>> = match &*space.borrow() {
            Some(mm) => core::ptr::from_ref(&**mm),
            None => return,
        };
        // SAFETY: the address space is dropped by the last thread to leave, which this one has not;
        // no borrow of the cell is held while others run.
        run_body(shared, unsafe { &*mm }, index, body)
    };
    shared.ended.borrow_mut().push(ended);
    if shared.leave()
        && let Some(mm) = space.take()
    {
        exit(mm);
    }
}

/// Runs the body of a process of one thread.
fn work_alone<P: Paging, F>(shared: &Shared<'_, P>, index: u32, body: &F)
where
    F: for<'w> Fn(&mut SimWorker<'w, P>) -> Result<(), Stop>,
{
    let ended = shared.common.own_space().and_then(|mm| {
        // Left alone if the body panics: locks may be held for ever.
        let mm = ManuallyDrop::new(mm);
        let ended = run_body(shared, &mm, index, body);
        exit(ManuallyDrop::into_inner(mm));
        ended
    });
    shared.ended.borrow_mut().push(ended);
    shared.leave();
}

fn run_body<P: Paging, F>(
    shared: &Shared<'_, P>,
    mm: &Mm<Sim<P>>,
    index: u32,
    body: &F,
) -> Result<Ended, TargetError>
where
    F: for<'w> Fn(&mut SimWorker<'w, P>) -> Result<(), Stop>,
{
    let mut worker = SimWorker::new(shared, mm, index);
    let result = body(&mut worker);
    Simulated::kernel_works(shared.exit);
    result
        .map(|()| worker.ended())
        .map_err(|why| TargetError::Stopped { worker: index, why })
}
