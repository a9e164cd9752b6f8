//! A thread of the child, as a body sees it.

use super::area::Area;
use super::child::Job;
use super::sys::{clock, memory};
use super::window::Window;
use crate::target::{Oracle, Prot, Stop, Worker};
use minflt_addr::VirtAddr;
use std::sync::Barrier;

/// One thread of a process on real Linux.
///
/// # Contract
/// The addresses are real, and no method can check them. A body
/// 1. passes only addresses inside mappings that [`Worker::map`] returned in this process and that
///    nobody unmapped, or addresses at which nothing is mapped at all (the access raises a signal);
/// 2. passes multiples of 8 to [`Worker::store`] and [`Worker::load`];
/// 3. never passes the address of anything that Rust code refers to.
///
/// A body that breaks this damages the forked child, never the process that started it.
#[derive(Debug)]
pub struct LinuxWorker<'w> {
    area: &'w Area,
    barrier: &'w Barrier,
    index: u32,
    threads: u32,
    page_size: u64,
    opened: Option<Opened>,
    window: Window,
}

/// What the kernel said of this thread when its window opened.
#[derive(Clone, Copy, Debug)]
struct Opened {
    usage: clock::Usage,
    cpu_ns: u64,
}

impl<'w> LinuxWorker<'w> {
    pub(super) fn new(job: &Job<'w>, index: u32, barrier: &'w Barrier) -> Self {
        Self {
            area: job.area,
            barrier,
            index,
            threads: job.threads,
            page_size: job.page_size,
            opened: None,
            window: Window::default(),
        }
    }

    /// Leaves the report for the parent.
    pub(super) fn publish(&self) {
        self.area.publish(self.index, &self.window);
    }
}

impl Worker for LinuxWorker<'_> {
    fn index(&self) -> u32 {
        self.index
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn page_size(&self) -> u64 {
        self.page_size
    }

    fn map(&mut self, len: u64, prot: Prot) -> Result<VirtAddr, Stop> {
        memory::map(len, prot).map(VirtAddr).map_err(Stop::Errno)
    }

    fn unmap(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        memory::unmap(at.0, len).map_err(Stop::Errno)
    }

    fn protect(&mut self, at: VirtAddr, len: u64, prot: Prot) -> Result<(), Stop> {
        memory::protect(at.0, len, prot).map_err(Stop::Errno)
    }

    fn discard(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        memory::discard(at.0, len).map_err(Stop::Errno)
    }

    #[inline]
    fn store(&mut self, at: VirtAddr, value: u64) -> Result<(), Stop> {
        memory::store(at.0, value);
        Ok(())
    }

    #[inline]
    fn load(&mut self, at: VirtAddr) -> Result<u64, Stop> {
        Ok(memory::load(at.0))
    }

    /// Reads the clock until the time is over; time in which the thread was off its CPU counts.
    fn compute(&mut self, ns: u64) {
        let start = clock::monotonic_ns();
        while clock::monotonic_ns() - start < ns {}
    }

    fn barrier(&mut self) {
        self.barrier.wait();
    }

    fn post(&mut self, slot: usize, value: u64) {
        self.area.post(slot, value);
    }

    fn read(&mut self, slot: usize) -> u64 {
        self.area.read(slot)
    }

    fn now_ns(&mut self) -> u64 {
        clock::monotonic_ns()
    }

    fn window_open(&mut self) {
        let usage = clock::thread_usage();
        let cpu_ns = clock::thread_cpu_ns();
        self.opened = Some(Opened { usage, cpu_ns });
        self.window.report.start_ns = clock::monotonic_ns();
    }

    fn window_close(&mut self) {
        let end_ns = clock::monotonic_ns();
        let cpu_ns = clock::thread_cpu_ns();
        let usage = clock::thread_usage();
        let Some(opened) = self.opened.take() else {
            return;
        };
        let spent = usage.since(&opened.usage);
        self.window.cpu_ns = cpu_ns.saturating_sub(opened.cpu_ns);
        self.window.report.end_ns = end_ns;
        self.window.report.user_ns = spent.user_ns;
        self.window.report.system_ns = spent.system_ns;
        self.window.report.faults = spent.minor_faults + spent.major_faults;
    }

    fn ops(&mut self, n: u64) {
        self.window.report.ops += n;
    }

    fn checked(&mut self, oracle: Oracle, n: u64) {
        match oracle {
            Oracle::Contents => self.area.add_contents(n),
        }
    }
}
