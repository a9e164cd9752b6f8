//! Real threads and the simulator as beds of the suite.

use core::cell::RefCell;
use core::marker::PhantomData;
use minflt_conformance::{Bed, Broken, RAM_BYTES, Work};
use minflt_host::HostInstance;
use minflt_mm::Config;
use minflt_pgtable::Mmu;
use minflt_sim::{MachineFile, Outcome, RunOptions, SimInstance, Size, TaskSpec, run};
use std::thread;

/// Threads as CPUs, on the machine `M`.
pub(crate) struct OnHost<M> {
    cpus: u32,
    config: Config,
    machine: PhantomData<fn() -> M>,
}

impl<M> OnHost<M> {
    pub(crate) fn new(cpus: u32, config: Config) -> Self {
        Self {
            cpus,
            config,
            machine: PhantomData,
        }
    }
}

impl<M: Mmu<Instance = HostInstance>> Bed for OnHost<M> {
    type Machine = M;

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn machine(&self) -> HostInstance {
        minflt_tests::world::machine(self.cpus, RAM_BYTES as usize)
    }

    fn run(&self, at: &HostInstance, cpus: u32, work: Work<'_>) -> Result<(), Broken> {
        thread::scope(|scope| {
            let context = |cpu| {
                scope.spawn(move || {
                    let _cpu = at.enter(cpu);
                    work(cpu)
                })
            };
            let contexts: Vec<_> = (0..cpus).map(context).collect();
            let ends = contexts
                .into_iter()
                .map(|it| it.join().unwrap_or(Err(Broken::violation())));
            // All are waited for before the first error is returned.
            ends.collect::<Vec<_>>().into_iter().collect()
        })
    }

    fn alone<R>(&self, at: &HostInstance, work: impl FnOnce() -> R) -> R {
        let _cpu = at.enter(0);
        work()
    }

    fn config(&self) -> Config {
        self.config
    }
}

/// Simulated CPUs in virtual time.
pub(crate) struct OnSim<M> {
    cpus: u32,
    config: Config,
    machine: PhantomData<fn() -> M>,
}

impl<M> OnSim<M> {
    pub(crate) fn new(cpus: u32, config: Config) -> Self {
        Self {
            cpus,
            config,
            machine: PhantomData,
        }
    }
}

impl<M: Mmu<Instance = SimInstance>> Bed for OnSim<M> {
    type Machine = M;

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn machine(&self) -> SimInstance {
        let file = MachineFile::shipped("explorer").expect("shipped");
        let size = Size {
            cpus: self.cpus,
            ram_bytes: RAM_BYTES,
            max_tasks: self.cpus,
        };
        SimInstance::new(&file, size).expect("address space")
    }

    fn run(&self, at: &SimInstance, cpus: u32, work: Work<'_>) -> Result<(), Broken> {
        let ends = RefCell::new(Vec::new());
        let context = |cpu| {
            let ends = &ends;
            TaskSpec::new(cpu, move || {
                let end = work(cpu);
                ends.borrow_mut().push(end);
            })
        };
        let options = RunOptions {
            max_events: 10_000_000,
            ..RunOptions::virtual_time()
        };
        let report = run(at, &options, (0..cpus).map(context).collect());
        let ended: Result<Vec<()>, Broken> = ends.take().into_iter().collect();
        ended?;
        match report.outcome {
            Outcome::Ok => Ok(()),
            _ => Err(Broken::violation()),
        }
    }

    fn alone<R>(&self, _at: &SimInstance, work: impl FnOnce() -> R) -> R {
        work()
    }

    fn config(&self) -> Config {
        self.config
    }
}
