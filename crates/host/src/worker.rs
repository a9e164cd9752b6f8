//! The worker interface for workload bodies.

use crate::Host;
use core::mem::ManuallyDrop;
use minflt_addr::VirtAddr;
use minflt_mm::{Event, Mm};
use minflt_pgtable::{Facts, Mmu, X86_64};
use minflt_process::{Calls, Files, Timer, exit};
use minflt_sync::Instance;
use minflt_workload::{Oracle, Populate, Prot, Sharing, Stop, Worker, WorkerReport};
use shared::Shared;
use thread::thread_cpu_ns;

pub(crate) mod shared;
pub(crate) mod thread;

/// The longest stretch of computing that the kernel is not asked about.
const STRETCH_NS: u64 = 50_000;
/// Accesses after which the clock is asked whether the timer is due: some microseconds.
const ACCESSES: u32 = 256;

/// A worker: a thread, on a CPU of its own, of the process or of a process of its own.
#[derive(Debug)]
pub struct HostWorker<'w, const CHECKED: bool> {
    shared: &'w Shared<'w, CHECKED>,
    calls: Calls<'w, Host<X86_64, CHECKED>>,
    files: Files<'w, Host<X86_64, CHECKED>>,
    index: u32,
    pub(crate) report: WorkerReport,
    /// Looks of the oracle for contents.
    pub(crate) contents: u64,
    cpu_at_open: u64,
    faults_at_open: u64,
    timer: Timer,
    /// Accesses until the clock is asked whether the timer is due.
    unasked: u32,
}

impl<'w, const CHECKED: bool> HostWorker<'w, CHECKED> {
    pub(crate) fn new(
        shared: &'w Shared<'w, CHECKED>,
        mm: &'w Mm<Host<X86_64, CHECKED>>,
        index: u32,
    ) -> Self {
        Self {
            shared,
            calls: Calls::new(mm),
            files: Files::new(shared.system, shared.common),
            index,
            report: WorkerReport::default(),
            contents: 0,
            cpu_at_open: 0,
            faults_at_open: 0,
            timer: Timer::new(shared.system, shared.system.machine().now_ns()),
            unasked: ACCESSES,
        }
    }

    /// The timer may interrupt, where there is one: the clock is asked after some accesses only.
    #[inline]
    fn timer(&mut self) {
        if self.timer.runs() {
            self.unasked -= 1;
            if self.unasked == 0 {
                self.unasked = ACCESSES;
                let now_ns = self.shared.system.machine().now_ns();
                self.timer.look(&self.calls, now_ns);
            }
        }
    }

    fn faults(&self) -> u64 {
        self.shared.system.count_on(self.index, Event::PageFaults)
    }
}

impl<const CHECKED: bool> Worker for HostWorker<'_, CHECKED> {
    type Child<'c> = HostWorker<'c, CHECKED>;

    fn index(&self) -> u32 {
        self.index
    }

    fn threads(&self) -> u32 {
        self.shared.workers
    }

    fn page_size(&self) -> u64 {
        X86_64::PAGE
    }

    fn map(&mut self, len: u64, access: Prot) -> Result<VirtAddr, Stop> {
        self.calls.map(len, access)
    }

    fn map_file(&mut self, len: u64, access: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        self.files.map_own(self.calls.mm(), len, access, sharing)
    }

    fn map_common(&mut self, access: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        self.files.map_common(self.calls.mm(), access, sharing)
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

    fn protect(&mut self, at: VirtAddr, len: u64, access: Prot) -> Result<(), Stop> {
        self.calls.protect(at, len, access)
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

    /// The child runs on the same CPU, while the caller waits.
    fn fork<F>(&mut self, child: F) -> Result<(), Stop>
    where
        F: for<'c> FnOnce(&mut Self::Child<'c>) -> Result<(), Stop>,
    {
        // Left alone if the child panics: locks may be held for ever.
        let mm = ManuallyDrop::new(self.calls.fork()?);
        let mut worker = HostWorker::new(self.shared, &mm, self.index);
        worker.report.ops = self.report.ops;
        worker.contents = self.contents;
        let done = child(&mut worker);
        self.report.ops = worker.report.ops;
        self.contents = worker.contents;
        drop(worker);
        exit(ManuallyDrop::into_inner(mm));
        done
    }

    #[inline]
    fn store(&mut self, at: VirtAddr, value: u64) -> Result<(), Stop> {
        self.calls.store(at, value)?;
        self.timer();
        Ok(())
    }

    #[inline]
    fn load(&mut self, at: VirtAddr) -> Result<u64, Stop> {
        let found = self.calls.load(at)?;
        self.timer();
        Ok(found)
    }

    /// Reads the clock until the time is over. Time in which the thread was off its processor does
    /// not count: after each stretch the kernel is asked how much it was on.
    fn compute(&mut self, ns: u64) {
        let start = thread_cpu_ns();
        let mut spent = 0;
        while spent < ns {
            let until = self.now_ns() + (ns - spent).min(STRETCH_NS);
            while self.now_ns() < until {
                Host::<X86_64, CHECKED>::user_point(self.shared.system.machine());
            }
            spent = thread_cpu_ns() - start;
        }
    }

    fn barrier(&mut self) {
        self.shared.wait();
    }

    fn post(&mut self, slot: usize, value: u64) {
        self.shared.post(slot, value);
    }

    fn read(&mut self, slot: usize) -> u64 {
        self.shared.read(slot)
    }

    fn claim(&mut self, slot: usize) -> u64 {
        self.shared.claim(slot)
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
