//! What the targets of our own machines share: a thread's calls in the words of the workloads, and
//! what a system counted while a process ran.
#![forbid(unsafe_code)]

mod common;
mod file;

pub use common::{Common, no_huge_pages};
pub use file::{Files, Made, fault_around_bytes, table_bytes};

use minflt_addr::VirtAddr;
use minflt_mm::config::Balancing;
use minflt_mm::{
    Advice, Check, Errno, Event, Mm, MmHandle, MovePageError, Place, Signal, System, Thread,
};
use minflt_pgtable::Mmu;
use minflt_sync::Phase;
use minflt_workload::{Populate, ProcessReport, Prot, Stop, TargetError};

/// A thread of a process, as the workloads speak to it.
#[derive(Debug)]
pub struct Calls<'m, M: Mmu> {
    thread: Thread<'m, M>,
}

impl<'m, M: Mmu> Calls<'m, M> {
    /// The calling context becomes a thread of `mm`.
    pub fn new(mm: &'m Mm<M>) -> Self {
        Self {
            thread: mm.thread(),
        }
    }

    /// Its address space.
    #[must_use]
    pub fn mm(&self) -> &'m Mm<M> {
        self.thread.mm()
    }

    /// Page faults of the thread.
    #[must_use]
    pub const fn faults(&self) -> u64 {
        self.thread.faults()
    }

    /// See [`minflt_workload::Worker::map`].
    ///
    /// # Errors
    /// Linux's error number.
    pub fn map(&self, len: u64, prot: Prot) -> Result<VirtAddr, Stop> {
        M::phase(Phase::Call("mmap"));
        self.mm().mmap(Place::Any, len, own(prot)).map_err(errno)
    }

    /// See [`minflt_workload::Worker::map_huge`].
    ///
    /// # Errors
    /// Linux's error number.
    pub fn map_huge(&self, len: u64, populate: Populate) -> Result<VirtAddr, Stop> {
        M::phase(Phase::Call("mmap"));
        let request = common::request(len, populate);
        let mapped = self.mm().mmap_huge(&request, minflt_mm::Sharing::Private);
        mapped.map_err(errno)
    }

    /// See [`minflt_workload::Worker::unmap`].
    ///
    /// # Errors
    /// Linux's error number.
    pub fn unmap(&self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        M::phase(Phase::Call("munmap"));
        self.mm().munmap(at, len).map_err(errno)
    }

    /// See [`minflt_workload::Worker::protect`].
    ///
    /// # Errors
    /// Linux's error number.
    pub fn protect(&self, at: VirtAddr, len: u64, prot: Prot) -> Result<(), Stop> {
        M::phase(Phase::Call("mprotect"));
        self.mm().mprotect(at, len, own(prot)).map_err(errno)
    }

    /// See [`minflt_workload::Worker::discard`].
    ///
    /// # Errors
    /// Linux's error number.
    pub fn discard(&self, at: VirtAddr, len: u64) -> Result<(), Stop> {
        M::phase(Phase::Call("madvise"));
        self.mm().madvise(at, len, Advice::DontNeed).map_err(errno)
    }

    /// See [`minflt_workload::Worker::move_page`].
    ///
    /// # Errors
    /// What the call returned, but for a page that is busy or being moved.
    pub fn move_page(&self, at: VirtAddr, node: u32) -> Result<bool, Stop> {
        M::phase(Phase::Call("move_pages"));
        match self.mm().move_page(at, node) {
            Ok(()) => Ok(true),
            Err(MovePageError::Busy) => Ok(false),
            Err(why) => Err(errno(why)),
        }
    }

    /// See [`minflt_workload::Worker::brk`].
    #[must_use]
    pub fn brk(&self, at: Option<VirtAddr>) -> VirtAddr {
        M::phase(Phase::Call("brk"));
        self.mm().brk(at)
    }

    /// The address space of a forked child.
    ///
    /// # Errors
    /// Linux's error number.
    pub fn fork(&self) -> Result<MmHandle<'m, M>, Stop> {
        M::phase(Phase::Call("fork"));
        self.mm().fork().map_err(errno)
    }

    /// See [`minflt_workload::Worker::store`].
    ///
    /// # Errors
    /// The signal the access raises.
    #[inline]
    pub fn store(&self, at: VirtAddr, value: u64) -> Result<(), Stop> {
        self.thread.store(at, value).map_err(signal)
    }

    /// See [`minflt_workload::Worker::load`].
    ///
    /// # Errors
    /// The signal the access raises.
    #[inline]
    pub fn load(&self, at: VirtAddr) -> Result<u64, Stop> {
        self.thread.load(at).map_err(signal)
    }
}

/// When a thread's timer interrupts it. Only where pages follow their threads; nothing else here
/// waits for a timer.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    next_ns: u64,
}

impl Timer {
    /// From one interrupt to the next: Linux's with 250 a second.
    const PERIOD_NS: u64 = 4_000_000;

    /// The timer of a thread of `system` that begins at `now_ns`.
    #[must_use]
    pub fn new<M: Mmu>(system: &System<M>, now_ns: u64) -> Self {
        let next_ns = match system.config().balancing {
            Balancing::Off => u64::MAX,
            Balancing::On => now_ns.saturating_add(Self::PERIOD_NS),
        };
        Self { next_ns }
    }

    /// Whether it ever interrupts.
    #[inline]
    #[must_use]
    pub const fn runs(&self) -> bool {
        self.next_ns < u64::MAX
    }

    /// Interrupts the thread of `calls` if that is due; interrupts that were missed are one.
    pub fn look<M: Mmu>(&mut self, calls: &Calls<'_, M>, now_ns: u64) {
        if now_ns >= self.next_ns {
            self.next_ns = now_ns.saturating_add(Self::PERIOD_NS);
            calls.thread.tick(now_ns);
        }
    }
}

/// The last thread of a process is gone: its address space is torn down, in the kernel's time.
pub fn exit<M: Mmu>(mm: MmHandle<'_, M>) {
    M::phase(Phase::Call("exit"));
    M::enter_kernel();
    drop(mm);
    M::leave_kernel();
}

const fn own(prot: Prot) -> minflt_mm::Prot {
    match prot {
        Prot::None => minflt_mm::Prot::NONE,
        Prot::Read => minflt_mm::Prot::READ,
        Prot::ReadWrite => minflt_mm::Prot::READ_WRITE,
    }
}

fn errno(error: impl Into<Errno>) -> Stop {
    Stop::Errno(error.into().0)
}

/// SIGSEGV; SIGBUS behind the end of a file, for a misaligned access, and where Linux would have
/// killed a process for memory.
const fn signal(signal: Signal) -> Stop {
    match signal {
        Signal::MapErr | Signal::AccErr => Stop::Signal(11),
        Signal::Bus | Signal::Misaligned | Signal::OutOfMemory => Stop::Signal(7),
    }
}

/// What a system had counted when a process started.
#[derive(Debug)]
pub struct Tally {
    events: Vec<u64>,
    checks: Vec<u64>,
}

impl Tally {
    /// The counts now.
    #[must_use]
    pub fn start<M: Mmu>(system: &System<M>) -> Self {
        Self {
            events: Event::ALL
                .iter()
                .map(|event| system.count_of(*event))
                .collect(),
            checks: Check::ALL
                .iter()
                .map(|check| system.looks_of(*check))
                .collect(),
        }
    }

    /// Checks the ledger of a system without processes, and adds to `report` what was counted since
    /// the start and `contents` looks of the workload itself.
    ///
    /// # Errors
    /// What does not add up.
    pub fn finish<M: Mmu>(
        self,
        system: &System<M>,
        contents: u64,
        report: &mut ProcessReport,
    ) -> Result<(), TargetError> {
        let unbalanced = |error| TargetError::Violation(format!("ledger: {error}"));
        system.check_ledger(&[]).map_err(unbalanced)?;
        for (event, before) in Event::ALL.iter().zip(self.events) {
            let count = system.count_of(*event) - before;
            if count > 0 {
                report.events.insert(event.name().to_owned(), count);
            }
            if *event == Event::PageFaults {
                report.faults = count;
            }
        }
        for (check, before) in Check::ALL.iter().zip(self.checks) {
            let looks = system.looks_of(*check) - before;
            if looks > 0 {
                report.checks.insert(check.name().to_owned(), looks);
            }
        }
        report.checks.insert("contents".to_owned(), contents);
        Ok(())
    }
}
