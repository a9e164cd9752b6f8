//! The worker interface for workload bodies, and the workers' shared state outside memory.

use crate::data;
use crate::machine::Sim;
use crate::model::Ps;
use crate::why::Window;
use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use minflt_addr::VirtAddr;
use minflt_mm::{Mm, System};
use minflt_pgtable::Paging;
use minflt_process::{Calls, Common, Files, Timer, exit};
use minflt_sync::{Instance, Machine, TaskId};
use minflt_workload::{
    Oracle, Populate, Prot, Sharing, Stop, TargetError, Use, Worker, WorkerReport,
};

const SLOTS: usize = 8;

/// What the workers share beside memory. They all run on one thread of the host.
#[derive(Debug)]
pub(crate) struct Shared<'s, P: Paging> {
    system: &'s System<Sim<P>>,
    workers: u32,
    /// What all workers have in common.
    pub(crate) common: &'s Common<'s, Sim<P>>,
    /// What ending a worker or a child costs, beside its memory.
    pub(crate) exit: Ps,
    /// Workers that have not ended.
    alive: Cell<u32>,
    /// Workers at the barrier, and how often it opened.
    waiting: Cell<u32>,
    opened: Cell<u64>,
    mailbox: [Cell<u64>; SLOTS],
    /// Children forked.
    pub(crate) forks: Cell<u64>,
    pub(crate) ended: RefCell<Vec<Result<Ended, TargetError>>>,
}

/// What a worker hands in at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) index: u32,
    pub(crate) report: WorkerReport,
    pub(crate) contents: u64,
}

/// A worker: a task of the process, or a task that is a process of its own.
#[derive(Debug)]
pub struct SimWorker<'w, P: Paging> {
    shared: &'w Shared<'w, P>,
    calls: Calls<'w, Sim<P>>,
    files: Files<'w, Sim<P>>,
    index: u32,
    report: WorkerReport,
    contents: u64,
    at_open: (u64, u64, u64),
    /// Page faults of children that have ended.
    of_children: u64,
    timer: Timer,
}

impl<'s, P: Paging> Shared<'s, P> {
    pub(crate) fn new(
        system: &'s System<Sim<P>>,
        workers: u32,
        common: &'s Common<'s, Sim<P>>,
        exit: Ps,
    ) -> Self {
        Self {
            system,
            workers,
            common,
            exit,
            alive: Cell::new(workers),
            waiting: Cell::new(0),
            opened: Cell::new(0),
            mailbox: [const { Cell::new(0) }; SLOTS],
            forks: Cell::new(0),
            ended: RefCell::new(Vec::new()),
        }
    }

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
            (1..=self.workers)
                .map(TaskId)
                .filter(|task| *task != me)
                .for_each(Sim::<P>::unpark);
        }
    }

    /// The worker ends, and nobody waits for it any more; whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.alive.set(self.alive.get() - 1);
        self.open_if_complete();
        self.alive.get() == 0
    }
}

impl<'w, P: Paging> SimWorker<'w, P> {
    pub(crate) fn new(shared: &'w Shared<'w, P>, mm: &'w Mm<Sim<P>>, index: u32) -> Self {
        Self {
            shared,
            calls: Calls::new(mm),
            files: Files::new(shared.system, shared.common),
            index,
            report: WorkerReport::default(),
            contents: 0,
            at_open: (0, 0, 0),
            of_children: 0,
            timer: Timer::new(shared.system, shared.system.machine().now_ns()),
        }
    }

    /// What it hands in.
    pub(crate) const fn ended(&self) -> Ended {
        Ended {
            index: self.index,
            report: self.report,
            contents: self.contents,
        }
    }

    /// The end of a stretch in user mode: the timer may interrupt.
    #[inline]
    fn timer(&mut self) {
        if self.timer.runs() {
            let now_ns = self.shared.system.machine().now_ns();
            self.timer.look(&self.calls, now_ns);
        }
    }

    /// Page faults of this worker and of its children.
    const fn faults(&self) -> u64 {
        self.calls.faults() + self.of_children
    }
}

impl<P: Paging> Worker for SimWorker<'_, P> {
    type Child<'c> = SimWorker<'c, P>;

    fn index(&self) -> u32 {
        self.index
    }

    fn threads(&self) -> u32 {
        self.shared.workers
    }

    fn page_size(&self) -> u64 {
        P::page()
    }

    fn map(&mut self, len: u64, prot: Prot) -> Result<VirtAddr, Stop> {
        self.calls.map(len, prot)
    }

    fn map_file(&mut self, len: u64, prot: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        self.files.map_own(self.calls.mm(), len, prot, sharing)
    }

    fn map_common(&mut self, prot: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        self.files.map_common(self.calls.mm(), prot, sharing)
    }

    fn map_huge(&mut self, len: u64, populate: Populate) -> Result<VirtAddr, Stop> {
        self.calls.map_huge(len, populate)
    }

    fn map_huge_common(&mut self, access: Prot) -> Result<VirtAddr, Stop> {
        self.files.map_huge_common(self.calls.mm(), access)
    }

    fn inherited(&mut self) -> Result<VirtAddr, Stop> {
        self.shared.common.inherited()
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

    fn move_page(&mut self, at: VirtAddr, node: u32) -> Result<bool, Stop> {
        self.calls.move_page(at, node)
    }

    fn brk(&mut self, at: Option<VirtAddr>) -> VirtAddr {
        self.calls.brk(at)
    }

    /// The child runs in the same task, while the caller waits.
    fn fork<F>(&mut self, child: F) -> Result<(), Stop>
    where
        F: for<'c> FnOnce(&mut Self::Child<'c>) -> Result<(), Stop>,
    {
        // Left alone if the child panics: locks may be held for ever.
        let mm = ManuallyDrop::new(self.calls.fork()?);
        Sim::<P>::starts_process();
        self.shared.forks.set(self.shared.forks.get() + 1);
        let mut worker = SimWorker::new(self.shared, &mm, self.index);
        worker.report.ops = self.report.ops;
        worker.contents = self.contents;
        let done = child(&mut worker);
        self.report.ops = worker.report.ops;
        self.contents = worker.contents;
        self.of_children += worker.faults();
        drop(worker);
        Sim::<P>::kernel_works(self.shared.exit);
        exit(ManuallyDrop::into_inner(mm));
        done
    }

    fn store(&mut self, at: VirtAddr, value: u64) -> Result<(), Stop> {
        self.calls.store(at, value)?;
        self.timer();
        Ok(())
    }

    fn load(&mut self, at: VirtAddr) -> Result<u64, Stop> {
        let found = self.calls.load(at)?;
        self.timer();
        Ok(found)
    }

    /// The stretch's first word is loaded or stored to, and all of it is paid for.
    fn use_data(&mut self, at: VirtAddr, bytes: u64, how: Use, value: u64) -> Result<u64, Stop> {
        let first = match how {
            Use::Load | Use::Update => self.calls.load(at)?,
            Use::Store => 0,
        };
        if how != Use::Load {
            self.calls.store(at, value)?;
        }
        data::used(self.shared.system.machine(), P::shift(), bytes, how);
        self.timer();
        Ok(first)
    }

    fn compute(&mut self, ns: u64) {
        Sim::<P>::compute(ns);
        self.timer();
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

    fn claim(&mut self, slot: usize) -> u64 {
        let slot = &self.shared.mailbox[slot];
        slot.replace(slot.get() + 1)
    }

    fn now_ns(&mut self) -> u64 {
        self.shared.system.machine().now_ns()
    }

    fn window_open(&mut self) {
        let times = Sim::<P>::times();
        self.at_open = (times.0, times.1, self.faults());
        self.report.start_ns = self.now_ns();
        Sim::<P>::window(Window::Opens);
    }

    fn window_close(&mut self) {
        let times = Sim::<P>::times();
        self.report.end_ns = self.now_ns();
        Sim::<P>::window(Window::Closes);
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
