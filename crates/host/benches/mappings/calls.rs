//! Mapping, unmapping and protecting one page.

use crate::common::machine::{CpuTime, M, PAGE, system};
use minflt_addr::VirtAddr;
use minflt_host::RamError;
use minflt_mm::{MmHandle, Place, Prot, Running};

/// Mappings that are there besides.
const OTHERS: u64 = 100;
/// Mappings with gaps that a hole does not fit in.
const CROWD: u64 = 10_000;
/// Fresh mappings that are split one after the other.
const FRESH: u64 = 256;

/// One era's system.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) era: &'static str,
    system: Running<M>,
    times: u64,
}

/// The rows, in the order of what [`Calls::measure`] returns.
pub(crate) const ROWS: [&str; 5] = [
    "mmap and munmap of a page",
    "the same above 10,000 small gaps",
    "mprotect of a middle page, there or back",
    "mprotect that splits in three",
    "munmap of the three",
];

impl Calls {
    pub(crate) fn new(era: &'static str, times: u64) -> Result<Self, RamError> {
        Ok(Self {
            era,
            system: system(era, 64 << 20)?,
            times,
        })
    }

    /// Nanoseconds a call (or pair of calls), one number a row.
    pub(crate) fn measure(&self) -> Vec<f64> {
        let _cpu = self.system.machine().enter(0);
        let few = self.space(OTHERS);
        let pair = self.pair(&few, PAGE, self.times);
        let middle = self.middle(&few);
        let (split, unmap) = self.splits(&few);
        drop(few);
        let crowded = self.space(CROWD);
        let above = self.pair(&crowded, 4 * PAGE, self.times / 100);
        drop(crowded);
        self.system.drain_deferred();
        vec![pair, above, middle, split, unmap]
    }

    /// An address space with `others` mappings of two pages, two pages between them.
    fn space(&self, others: u64) -> MmHandle<'_, M> {
        let mm = self.system.new_mm().expect("memory");
        // Where a thread of it has been, others have to forget what is unmapped.
        let top = mm.mmap(Place::Any, PAGE, Prot::READ).expect("a hole").0;
        for other in 0..others {
            let at = VirtAddr(top - 4 * PAGE * (other + 1));
            mm.mmap(Place::FixedNoReplace(at), 2 * PAGE, Prot::READ_WRITE)
                .expect("free");
        }
        mm
    }

    fn pair(&self, mm: &MmHandle<'_, M>, len: u64, times: u64) -> f64 {
        let thread = mm.thread();
        let run = |times| {
            for _ in 0..times {
                let at = mm.mmap(Place::Any, len, Prot::READ_WRITE).expect("a hole");
                mm.munmap(at, len).expect("mapped");
            }
        };
        run(times / 10);
        let start = CpuTime::start();
        run(times);
        let ns = start.ns() / times as f64;
        drop(thread);
        ns
    }

    fn middle(&self, mm: &MmHandle<'_, M>) -> f64 {
        let thread = mm.thread();
        let at = mm.mmap(Place::Any, 3 * PAGE, Prot::READ_WRITE);
        let at = at.expect("a hole");
        let middle = VirtAddr(at.0 + PAGE);
        let run = |times| {
            for _ in 0..times {
                mm.mprotect(middle, PAGE, Prot::READ).expect("mapped");
                mm.mprotect(middle, PAGE, Prot::READ_WRITE).expect("mapped");
            }
        };
        run(self.times / 20);
        let start = CpuTime::start();
        run(self.times / 2);
        let ns = start.ns() / self.times as f64;
        mm.munmap(at, 3 * PAGE).expect("mapped");
        drop(thread);
        ns
    }

    /// The first mprotect within each of many mappings, and the end of each.
    fn splits(&self, mm: &MmHandle<'_, M>) -> (f64, f64) {
        let thread = mm.thread();
        let (mut split, mut unmap) = (0.0, 0.0);
        let rounds = (self.times / FRESH).max(1);
        for _ in 0..rounds {
            let map = |_| {
                let at = mm.mmap(Place::Any, 6 * PAGE, Prot::READ_WRITE);
                let at = at.expect("a hole");
                mm.munmap(VirtAddr(at.0 + 4 * PAGE), 2 * PAGE)
                    .expect("mapped");
                at
            };
            let fresh: Vec<VirtAddr> = (0..FRESH).map(map).collect();
            let start = CpuTime::start();
            for at in &fresh {
                mm.mprotect(VirtAddr(at.0 + PAGE), PAGE, Prot::READ)
                    .expect("mapped");
            }
            split += start.ns();
            let start = CpuTime::start();
            for at in &fresh {
                mm.munmap(*at, 4 * PAGE).expect("mapped");
            }
            unmap += start.ns();
        }
        drop(thread);
        let calls = (rounds * FRESH) as f64;
        (split / calls, unmap / calls)
    }
}
