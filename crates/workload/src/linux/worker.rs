//! The worker interface for workload bodies.

use super::area::Area;
use super::child::{self, FAILED, Job};
use super::sys::process::{self, Exit};
use super::sys::{clock, memory};
use super::window::Window;
use crate::target::{Oracle, Pages, Populate, Prot, Sharing, Stop, Worker};
use minflt_addr::VirtAddr;
use std::os::fd::OwnedFd;

/// The longest stretch of computing that the kernel is not asked about.
const STRETCH_NS: u64 = 50_000;

/// One worker on real Linux: a thread, or a process.
///
/// # Contract
/// The addresses are real, and no method can check them. A body
/// 1. passes only addresses inside mappings that the worker's methods returned in this process and
///    that nobody unmapped, or addresses at which nothing is mapped at all (the access raises a
///    signal);
/// 2. passes multiples of 8 to [`Worker::store`] and [`Worker::load`];
/// 3. never passes the address of anything that Rust code refers to;
/// 4. moves the break up from where it found it and back, nowhere else, and counts the memory
///    between as a mapping; it allocates nothing meanwhile.
///
/// A body that breaks this damages the forked child, never the process that started it.
#[derive(Debug)]
pub struct LinuxWorker<'w> {
    area: &'w Area,
    index: u32,
    threads: u32,
    page_size: u64,
    /// Its file and the length of it.
    file: Option<(u64, OwnedFd)>,
    /// The file of all workers and the length of it.
    common: Option<(u64, &'w OwnedFd)>,
    /// That of huge pages.
    huge: Option<(u64, &'w OwnedFd)>,
    /// Where the memory is that it found mapped.
    inherited: Option<VirtAddr>,
    /// What its forked children took so far.
    children: clock::Usage,
    opened: Option<Opened>,
    window: Window,
}

/// What the kernel said of this worker and its children when its window opened.
#[derive(Clone, Copy, Debug)]
struct Opened {
    usage: clock::Usage,
    cpu_ns: u64,
}

impl<'w> LinuxWorker<'w> {
    pub(super) fn new(job: &Job<'w>, inherited: Option<VirtAddr>, index: u32) -> Self {
        Self {
            area: job.area,
            index,
            threads: job.threads,
            page_size: job.page_size,
            file: None,
            common: job.file,
            huge: job.huge,
            inherited,
            children: clock::Usage::default(),
            opened: None,
            window: Window::default(),
        }
    }

    /// Leaves the report for the parent.
    pub(super) fn publish(&self) {
        self.area.publish(self.index, &self.window);
    }

    /// What a forked child does, and its exit code.
    fn run_child(&mut self, body: impl FnOnce(&mut Self) -> Result<(), Stop>) -> i32 {
        process::die_with_parent();
        let before = self.window.report.ops;
        match child::outcome(|| body(self)) {
            Ok(()) => {
                let ops = self.window.report.ops - before;
                self.area.add_child_ops(self.index, ops);
                0
            }
            Err(failure) => {
                let _first = self.area.fail(self.index, &failure);
                FAILED
            }
        }
    }

    fn usage(&self) -> clock::Usage {
        clock::thread_usage().and(&self.children)
    }

    fn cpu_ns(&self) -> u64 {
        clock::thread_cpu_ns() + self.children.user_ns + self.children.system_ns
    }
}

impl<'w> Worker for LinuxWorker<'w> {
    type Child<'c> = LinuxWorker<'c>;

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

    fn map_file(&mut self, len: u64, prot: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        let file = match self.file.take() {
            Some((has, file)) if has == len => file,
            _ => memory::file(len).map_err(Stop::Errno)?,
        };
        let mapped = memory::map_file(&file, len, prot, sharing);
        self.file = Some((len, file));
        mapped.map(VirtAddr).map_err(Stop::Errno)
    }

    fn map_common(&mut self, prot: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        let (len, file) = self.common.ok_or(Stop::Errno(libc::ENODEV))?;
        let mapped = memory::map_file(file, len, prot, sharing);
        mapped.map(VirtAddr).map_err(Stop::Errno)
    }

    fn map_huge(&mut self, len: u64, populate: Populate) -> Result<VirtAddr, Stop> {
        let mapped = memory::map_private(len, Pages::Huge, populate);
        mapped.map(VirtAddr).map_err(Stop::Errno)
    }

    fn map_huge_common(&mut self, prot: Prot) -> Result<VirtAddr, Stop> {
        let (len, file) = self.huge.ok_or(Stop::Errno(libc::ENODEV))?;
        let mapped = memory::map_file(file, len, prot, Sharing::Shared);
        mapped.map(VirtAddr).map_err(Stop::Errno)
    }

    fn inherited(&mut self) -> Result<VirtAddr, Stop> {
        self.inherited.ok_or(Stop::Errno(libc::ENODEV))
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

    fn move_page(&mut self, at: VirtAddr, node: u32) -> Result<bool, Stop> {
        memory::move_page(at.0, node).map_err(Stop::Errno)
    }

    fn brk(&mut self, at: Option<VirtAddr>) -> VirtAddr {
        VirtAddr(memory::brk(at.map_or(0, |at| at.0)))
    }

    fn fork<F>(&mut self, child: F) -> Result<(), Stop>
    where
        F: for<'c> FnOnce(&mut Self::Child<'c>) -> Result<(), Stop>,
    {
        let run = || self.run_child(|worker| child(worker));
        let pid = process::fork(run).map_err(Stop::Errno)?;
        let ended = process::wait(pid).map_err(Stop::Errno)?;
        self.children = self.children.and(&ended.usage);
        match ended.exit {
            Exit::Code(0) => Ok(()),
            // The child has said why in the area.
            Exit::Code(_) => process::exit(FAILED),
            Exit::Signal(signal) => Err(Stop::Signal(signal)),
        }
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

    /// Reads the clock until the time is over. Time in which the worker was off its CPU does not
    /// count: after each stretch the kernel is asked how much it was on.
    fn compute(&mut self, ns: u64) {
        let start = clock::thread_cpu_ns();
        let mut spent = 0;
        while spent < ns {
            let until = clock::monotonic_ns() + (ns - spent).min(STRETCH_NS);
            while clock::monotonic_ns() < until {}
            spent = clock::thread_cpu_ns() - start;
        }
    }

    fn barrier(&mut self) {
        self.area.meet(self.threads);
    }

    fn post(&mut self, slot: usize, value: u64) {
        self.area.post(slot, value);
    }

    fn read(&mut self, slot: usize) -> u64 {
        self.area.read(slot)
    }

    fn claim(&mut self, slot: usize) -> u64 {
        self.area.claim(slot)
    }

    fn now_ns(&mut self) -> u64 {
        clock::monotonic_ns()
    }

    fn window_open(&mut self) {
        let usage = self.usage();
        let cpu_ns = self.cpu_ns();
        self.opened = Some(Opened { usage, cpu_ns });
        self.window.report.start_ns = clock::monotonic_ns();
    }

    fn window_close(&mut self) {
        let end_ns = clock::monotonic_ns();
        let cpu_ns = self.cpu_ns();
        let usage = self.usage();
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
