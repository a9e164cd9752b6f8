//! What a fault on a cached file costs on real threads, and each page that it maps beside its own.
//!
//! ```text
//! cargo bench -p minflt-host --bench files             20 rounds, verdicts
//! cargo bench -p minflt-host --bench files -- --smoke  small, no verdicts; so does the gate
//! cargo bench -p minflt-host --bench files -- --quick  3 rounds, no verdicts
//! ```
//!
//! A file of memory is mapped again and again, and touched by loads. Every round measures every
//! order of fault-around, one after the other, and real Linux; a figure is the median over the
//! rounds.
//!
//! - *each window*: one load in each 64 KiB. The faults are the same with every order; an order of
//!   4 maps 15 pages more in each. So *one extra page* is the difference to order 0, by 15.
//! - *each page*: a load of every page.
//! - *in no order*: a load of every page, in an order that nobody could foresee.
//! - *each table*: a load of one page of every 512.
//!
//! The last three are what the workloads `file-seq`, `file-rand` and `file-sparse` do. The figure
//! of `adaptive` is over the best fixed order of the same row; that of *each window* has no bound,
//! for who uses one page of 16 looks to it like somebody who reads on.
//!
//! Linux's order is not changed. There the file is mapped in pieces that do not merge: of one page,
//! around which there is nothing to map, and of 16 pages; one load in each. The difference, by 15,
//! is its extra page, if its order is 4 as by default.
//!
//! Rows are unchecked (`Host<X86_64, false>`).

#![expect(clippy::expect_used, reason = "a bench that fails stops")]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "benches share it")]
mod common;
mod linux;

use common::figures::{Bound, Noise, Quartiles};
use common::machine::{CpuTime, M, PAGE, machine};
use common::table::{Judge, Times};
use common::{Args, Much, ends};
use core::error::Error;
use minflt_addr::VirtAddr;
use minflt_mm::config::FaultAround;
use minflt_mm::{Config, FileHandle, MapRequest, MmHandle, Place, Prot, Running, Sharing, System};
use minflt_mm::{Populate, era};
use std::process::ExitCode;

/// Pages of a window of order 4.
pub(crate) const WINDOW: u64 = 16;

/// The rows, in the order of what is measured.
pub(crate) const ROWS: [&str; 5] = [
    "each window: ns a load",
    "each page: ns a load",
    "in no order: ns a load",
    "each table: ns a load",
    "populated without waiting: ns a page",
];

fn main() -> ExitCode {
    ends(run(Args::given().much()))
}

/// A system that maps so many pages around a fault.
fn boot(around: FaultAround, pages: u64) -> Result<Running<M>, Box<dyn Error>> {
    let machine = machine(1, ((pages * PAGE * 5 / 4) as usize).max(16 << 20))?;
    let era = era("fault-around-2014").ok_or("no such era")?;
    let config = Config {
        around,
        ..era.config
    };
    Ok(System::boot(machine, config)?)
}

fn run(much: Much) -> Result<(), Box<dyn Error>> {
    let pages = much.size(1024, 16_384);
    let orders = [
        FaultAround::Order0,
        FaultAround::Order1,
        FaultAround::Order2,
        FaultAround::Order3,
        FaultAround::Order4,
        FaultAround::Order6,
        FaultAround::Order9,
        FaultAround::Adaptive,
    ];
    let mut times = Times::default();
    let systems: Result<Vec<_>, _> = orders.map(|order| boot(order, pages)).into_iter().collect();
    let systems = systems?;
    for _ in 0..much.rounds() {
        for (order, system) in orders.iter().zip(&systems) {
            times.push(&whose(*order), &ROWS, measure(system, pages));
        }
        times.push("linux", &linux::ROWS, linux::measure(pages)?);
    }
    times.print("files", much);
    println!("\nfigure, median [quartiles], bound, verdict");
    let judge = Judge::of(much);
    let (zero, four) = (whose(FaultAround::Order0), whose(FaultAround::Order4));
    let extra = |with: f64, without: f64| (with - without) / (WINDOW - 1) as f64;
    let ours = times.pairs((&four, ROWS[0]), (&zero, ROWS[0]), extra);
    let noise = Noise::of_times(times.of(&zero, ROWS[0]));
    judge.print("one extra page, ns", &ours, Bound::AtMost(40.0), noise);
    let linux = ("linux", linux::ROWS[1]);
    let theirs = times.pairs(linux, ("linux", linux::ROWS[0]), extra);
    judge.print("linux: one extra page, ns", &theirs, Bound::None, noise);
    for order in orders {
        let ratio = times.pairs((&whose(order), ROWS[1]), (&zero, ROWS[1]), |one, zero| {
            one / zero
        });
        let figure = format!("{}: each page / order 0", whose(order));
        judge.print(&figure, &ratio, Bound::None, Noise::of_ratios(&ratio));
    }
    for (at, row) in ROWS[..4].iter().enumerate() {
        let adaptive = whose(FaultAround::Adaptive);
        let fixed = orders.iter().filter(|it| it.order().is_some());
        let median = |order: &&FaultAround| Quartiles::of(times.of(&whose(**order), row)).median;
        let best = fixed.min_by(|one, other| median(one).total_cmp(&median(other)));
        let best = whose(*best.ok_or("no order is fixed")?);
        let ratio = times.pairs((&adaptive, row), (&best, row), |one, best| one / best);
        let name = row.split(':').next().unwrap_or(row);
        let figure = format!("{name}: adaptive / {best}, the best");
        let bound = match at {
            0 => Bound::None,
            _ => Bound::AtMost(1.15),
        };
        let noise = Noise::of_times(times.of(&best, row));
        judge.print(&figure, &ratio, bound, noise);
    }
    Ok(())
}

fn whose(order: FaultAround) -> String {
    format!("order {order}")
}

/// Nanoseconds, one number a row.
fn measure(system: &Running<M>, pages: u64) -> Vec<f64> {
    let _cpu = system.machine().enter(0);
    let mm = system.new_mm().expect("memory");
    let file = system.new_file(pages * PAGE).expect("memory");
    file.allocate(0, pages * PAGE).expect("memory");
    let windows = touch(&mm, &file, pages, (0..pages).step_by(WINDOW as usize));
    let each = touch(&mm, &file, pages, 0..pages);
    // A full period: the file has a power of two of pages.
    let next = |page: &u64| Some((page * 1_664_525 + 1_013_904_223) % pages);
    let scattered = core::iter::successors(Some(1), next).take(pages as usize);
    let scattered = touch(&mm, &file, pages, scattered);
    let tables = touch(&mm, &file, pages, (0..pages).step_by(512));
    let start = CpuTime::start();
    let thread = mm.thread();
    let request = request(pages, Populate::NonBlock);
    let at = thread
        .mmap_file(&request, &file, 0, Sharing::Private)
        .expect("a hole");
    let populated = start.ns() / pages as f64;
    mm.munmap(at, pages * PAGE).expect("mapped");
    drop(thread);
    vec![windows, each, scattered, tables, populated]
}

fn request(pages: u64, populate: Populate) -> MapRequest {
    let mut request = MapRequest::new(Place::Any, pages * PAGE, Prot::READ);
    request.populate = populate;
    request
}

/// Maps the file and loads from each of `touched`; nanoseconds a load.
fn touch(
    mm: &MmHandle<'_, M>,
    file: &FileHandle<'_, M>,
    pages: u64,
    touched: impl Iterator<Item = u64>,
) -> f64 {
    let thread = mm.thread();
    let request = request(pages, Populate::OnTouch);
    let at = thread
        .mmap_file(&request, file, 0, Sharing::Private)
        .expect("a hole");
    let start = CpuTime::start();
    let mut loads = 0u64;
    for page in touched {
        thread
            .load(VirtAddr(at.0 + page * PAGE))
            .expect("within the file");
        loads += 1;
    }
    let ns = start.ns() / loads as f64;
    mm.munmap(at, pages * PAGE).expect("mapped");
    drop(thread);
    ns
}
