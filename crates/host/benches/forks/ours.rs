//! Forks, exits and the faults after them, in one era.

use crate::common::machine::{CpuTime, M, PAGE, machine, system};
use minflt_addr::{Pfn, VirtAddr};
use minflt_host::{HostInstance, RamError};
use minflt_mm::{Event, Place, Prot, Running, Thread};
use minflt_pgtable::Mmu;

/// Touched pages of the address space that forks.
pub(crate) const PAGES: u64 = 1000;

/// The rows, in the order of what [`Forks::measure`] returns.
pub(crate) const ROWS: [&str; 6] = [
    "fork",
    "exit of the child",
    "fork and exit",
    "store that copies",
    "bare copy of a page",
    "store to a page that is shared no more",
];

/// One era's system, and a region of the process that no system lies in.
#[derive(Debug)]
pub(crate) struct Forks {
    pub(crate) era: &'static str,
    system: Running<M>,
    bare: HostInstance,
    times: u64,
}

impl Forks {
    pub(crate) fn new(era: &'static str, times: u64) -> Result<Self, RamError> {
        Ok(Self {
            era,
            system: system(era, 64 << 20)?,
            bare: machine(1, (2 * PAGES * PAGE) as usize)?,
            times,
        })
    }

    /// Nanoseconds a fork, an exit, both, a page, a page, a page.
    pub(crate) fn measure(&self) -> Vec<f64> {
        let _cpu = self.system.machine().enter(0);
        let mm = self.system.new_mm().expect("memory");
        let base = mm.mmap(Place::Any, PAGES * PAGE, Prot::READ_WRITE);
        let base = base.expect("a hole").0;
        let thread = mm.thread();
        touch(&thread, base, 1);
        let mut ns = [0.0; 6];
        for _ in 0..self.times {
            let start = CpuTime::start();
            let child = mm.fork().expect("memory");
            let between = CpuTime::start();
            drop(child);
            ns[0] += between.since(start);
            ns[1] += between.ns();
        }
        ns[2] = ns[0] + ns[1];
        for time in 0..self.times {
            let child = mm.fork().expect("memory");
            let copies = self.system.count_of(Event::Cow);
            let start = CpuTime::start();
            touch(&thread, base, time);
            ns[3] += start.ns();
            let copies = self.system.count_of(Event::Cow) - copies;
            assert_eq!(copies, PAGES, "each store copies");
            let start = CpuTime::start();
            for page in 0..PAGES {
                <M as Mmu>::copy(&self.bare, Pfn(PAGES + page), Pfn(page));
            }
            ns[4] += start.ns();
            drop(child);
            drop(mm.fork().expect("memory"));
            let reused = self.system.count_of(Event::Reuse);
            let start = CpuTime::start();
            touch(&thread, base, time + 1);
            ns[5] += start.ns();
            let reused = self.system.count_of(Event::Reuse) - reused;
            assert_eq!(reused, PAGES, "no store copies");
        }
        drop(thread);
        drop(mm);
        let ledger = self.system.check_ledger(&[]);
        ledger.unwrap_or_else(|error| panic!("{error}"));
        let times = self.times as f64;
        let per = |(at, ns): (usize, f64)| ns / times / if at < 3 { 1.0 } else { PAGES as f64 };
        ns.into_iter().enumerate().map(per).collect()
    }
}

#[inline(never)]
fn touch(thread: &Thread<'_, M>, base: u64, value: u64) {
    for page in 0..PAGES {
        thread
            .store(VirtAddr(base + page * PAGE), value)
            .expect("mapped");
    }
}
