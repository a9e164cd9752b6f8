//! What moving a page costs on real threads, to another frame or to a swap device, and what finding
//! out that it should move does.
//!
//! ```text
//! cargo bench -p minflt-host --bench moves              20 rounds
//! cargo bench -p minflt-host --bench moves -- --smoke   small; so does the gate
//! ```
//!
//! One thread, one mapping, two memory nodes that are bookkeeping only. The eras differ in how a
//! walk of the reverse map holds its lock: exclusive (`numa-balancing-2012`), skipped where a page
//! has one place (`anon-vma-2012`), shared (`linux-6.15` with balancing). The rows, a page each:
//!
//! - *moved by a call*: `move_page`, two walks, an invalidation, a copy;
//! - *scanned*: a timer's scan takes the right to use it away;
//! - *hinting fault*: the next access, of a page that is where it is used;
//! - *hinting fault that moves*: the second such access from another node;
//! - *swapped out*: one of a call for all, to a device that is memory: a walk, an invalidation, a
//!   copy;
//! - *swapped in*: the next access.
//!
//! Processor time; the ledger is checked outside the timed part.

#![expect(clippy::expect_used, reason = "a bench that fails stops")]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "benches share it")]
mod common;

use common::machine::{CpuTime, M, PAGE, machine};
use common::table::Times;
use common::{Args, Much, ends};
use core::error::Error;
use minflt_addr::VirtAddr;
use minflt_mm::config::Balancing;
use minflt_mm::{
    Advice, Config, Event, MmHandle, NumaKnobs, Place, Prot, Running, Swap, System, era,
};
use std::process::ExitCode;

const ERAS: [&str; 3] = ["numa-balancing-2012", "anon-vma-2012", "linux-6.15"];
const ROWS: [&str; 6] = [
    "moved by a call",
    "scanned",
    "hinting fault",
    "hinting fault that moves",
    "swapped out",
    "swapped in",
];
const BASE: u64 = 1 << 30;

fn main() -> ExitCode {
    ends(run(Args::given().much()))
}

fn run(much: Much) -> Result<(), Box<dyn Error>> {
    let pages = much.size(64, 4096);
    let systems: Result<Vec<_>, _> = ERAS.iter().map(|name| boot(name, pages)).collect();
    let systems = systems?;
    let mut times = Times::default();
    for _ in 0..much.rounds() {
        for (name, sys) in ERAS.iter().zip(&systems) {
            times.push(name, &ROWS, measure(sys, pages));
        }
    }
    times.print("moves", much);
    Ok(())
}

fn boot(name: &str, pages: u64) -> Result<Running<M>, Box<dyn Error>> {
    let machine = machine(2, (pages * PAGE * 4) as usize + (16 << 20))?;
    let config = Config {
        balancing: Balancing::On,
        ..era(name).ok_or("no such era")?.config
    };
    let swap = Swap::Memory { pages };
    let sys = System::boot_with_swap(machine.with_nodes(2), config, swap)?;
    sys.set_numa_knobs(NumaKnobs {
        scan_delay_ns: 0,
        scan_period_min_ns: 1,
        scan_period_max_ns: 1,
        scan_bytes: pages * PAGE,
        rate_bytes: u64::MAX,
        ..NumaKnobs::default()
    });
    Ok(sys)
}

const fn page(n: u64) -> VirtAddr {
    VirtAddr(BASE + n * PAGE)
}

/// The pages of one address space, and a clock that its timer goes by.
struct Pages<'m> {
    mm: &'m MmHandle<'m, M>,
    thread: minflt_mm::Thread<'m, M>,
    pages: u64,
    now_ns: u64,
}

impl Pages<'_> {
    /// Nanoseconds a page that `each` takes.
    fn time(&self, mut each: impl FnMut(VirtAddr)) -> f64 {
        let start = CpuTime::start();
        (0..self.pages).for_each(|n| each(page(n)));
        start.ns() / self.pages as f64
    }

    fn move_all(&self, node: u32) -> f64 {
        self.time(|at| self.mm.move_page(at, node).expect("nobody else has it"))
    }

    fn swap_all_out(&self) -> f64 {
        let start = CpuTime::start();
        let out = self.mm.madvise(page(0), self.pages * PAGE, Advice::PageOut);
        assert_eq!(out, Ok(()));
        start.ns() / self.pages as f64
    }

    fn load_all(&self) -> f64 {
        self.time(|at| assert!(self.thread.load(at).is_ok()))
    }

    /// Nanoseconds a page that a scan of all takes.
    fn scan(&mut self) -> f64 {
        let sys = self.mm.system();
        let before = sys.count_of(Event::NumaPteUpdates);
        let start = CpuTime::start();
        // One to begin with, one that goes by what the last found.
        while sys.count_of(Event::NumaPteUpdates) < before + self.pages {
            self.now_ns += 1 << 40;
            self.thread.tick(self.now_ns);
        }
        start.ns() / self.pages as f64
    }
}

fn measure(sys: &Running<M>, pages: u64) -> Vec<f64> {
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let place = Place::Fixed(page(0));
    let mapped = mm.mmap(place, pages * PAGE, Prot::READ_WRITE);
    assert_eq!(mapped, Ok(page(0)));
    let mut all = Pages {
        mm: &mm,
        thread: mm.thread(),
        pages,
        now_ns: 0,
    };
    for n in 0..pages {
        assert_eq!(all.thread.store(page(n), n), Ok(()));
    }
    let moved = (all.move_all(1) + all.move_all(0)) / 2.0;
    let scanned = all.scan();
    let stays = all.load_all();
    let before = sys.count_of(Event::NumaPagesMigrated);
    let _back = all.move_all(1);
    // The first from here says so, the second moves.
    let _scan = all.scan();
    let _first = all.load_all();
    let _scan = all.scan();
    let moves = all.load_all();
    let found = sys.count_of(Event::NumaPagesMigrated) - before;
    assert!(found >= pages * 9 / 10, "{found} of {pages} moved");
    for n in 0..pages {
        assert_eq!(all.thread.load(page(n)), Ok(n), "moved, and still there");
    }
    let out = all.swap_all_out();
    assert_eq!(sys.swap_used(), pages, "nobody else has them");
    let back = all.load_all();
    assert_eq!(sys.swap_used(), 0);
    drop(all);
    sys.check_ledger(&[&mm]).expect("adds up");
    vec![moved, scanned, stays, moves, out, back]
}
