//! What faults on huge pages cost on real threads, and the tables that sharing saves.
//!
//! ```text
//! cargo bench -p minflt-host --bench huge              20 rounds, verdicts
//! cargo bench -p minflt-host --bench huge -- --smoke   small, no verdicts; so does the gate
//! ```
//!
//! A file of huge pages that has all its pages is mapped again and again, and one word of each page
//! is stored to: faults that clear nothing. Of a mapping that covers all that a table of huge pages
//! can map, a second address space shares the table, and faults on nothing. Every round measures
//! every era that has huge pages once; a figure is the median over the rounds.
//!
//! The tables are those that the ledger finds, of address spaces that map the same GiB and of as
//! many that map a page less, which share none.
//!
//! Rows are unchecked (`Host<X86_64, false>`); the ledger is checked outside the timed part.

#![expect(clippy::expect_used, reason = "a bench that fails stops")]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "benches share it")]
mod common;

use common::figures::{Bound, Noise};
use common::machine::{CpuTime, M, PAGE, machine};
use common::table::{Judge, Times};
use common::{Args, Much, ends};
use core::error::Error;
use minflt_addr::VirtAddr;
use minflt_mm::{
    Era, FileHandle, MapRequest, MmHandle, Place, Prot, Reserve, Running, Sharing, System,
    eras_of_huge_pages,
};
use std::process::ExitCode;

const HUGE: u64 = 2 << 20;
/// What one table of huge pages maps, and where one begins.
const INTERVAL: u64 = 1 << 30;
const BASE: u64 = 1 << 40;
/// Pages that the file has, and that are touched.
const PAGES: u64 = 32;
/// Address spaces whose tables are counted.
const SPACES: u64 = 8;

const ROWS: [&str; 2] = [
    "store to a page that the file has: ns a fault",
    "load through a shared table: ns a load",
];

fn main() -> ExitCode {
    ends(run(Args::given().much()))
}

fn boot(era: &Era) -> Result<Running<M>, Box<dyn Error>> {
    let machine = machine(1, (PAGES * HUGE + (16 << 20)) as usize)?;
    let system: Running<M> = System::boot(machine, era.config)?;
    let cpu = system.machine().enter(0);
    let pool = system.resize_huge_pool(PAGES);
    if pool < PAGES {
        return Err(format!("{pool} huge pages of {PAGES} were to be had").into());
    }
    drop(cpu);
    Ok(system)
}

fn run(much: Much) -> Result<(), Box<dyn Error>> {
    let each = much.size(2, 100);
    let eras: Vec<&Era> = eras_of_huge_pages().collect();
    let systems: Result<Vec<_>, _> = eras.iter().map(|era| boot(era)).collect();
    let systems = systems?;
    let mut times = Times::default();
    for _ in 0..much.rounds() {
        for (era, system) in eras.iter().zip(&systems) {
            times.push(era.name, &ROWS, measure(system, each));
        }
    }
    times.print("huge", much);
    println!("\ntables of {SPACES} address spaces that map {PAGES} huge pages of one file");
    for (era, system) in eras.iter().zip(&systems) {
        let (shared, own) = (tables(system, INTERVAL), tables(system, INTERVAL - HUGE));
        let kib = |tables: u64| tables * PAGE / 1024;
        println!(
            "{}: {} KiB where the table of huge pages is shared, {} KiB where it is not; {} KiB \
             saved",
            era.name,
            kib(shared),
            kib(own),
            kib(own - shared)
        );
    }
    println!("\nfigure, median [quartiles], bound, verdict");
    let judge = Judge::of(much);
    for era in eras {
        let faults = times.of(era.name, ROWS[0]);
        let noise = Noise::of_times(times.of(era.name, ROWS[1]));
        let figure = format!("{}: a huge fault without the clear, ns", era.name);
        judge.print(&figure, faults, Bound::AtMost(400.0), noise);
    }
    Ok(())
}

/// A file that has [`PAGES`] pages and could have as many as a table maps.
fn file(system: &Running<M>) -> FileHandle<'_, M> {
    let file = system.new_huge_file(INTERVAL).expect("memory");
    file.allocate(0, PAGES * HUGE).expect("a pool");
    file
}

fn map(mm: &MmHandle<'_, M>, file: &FileHandle<'_, M>, bytes: u64) {
    let request = MapRequest {
        reserve: Reserve::NoReserve,
        ..MapRequest::new(Place::Fixed(VirtAddr(BASE)), bytes, Prot::READ_WRITE)
    };
    let thread = mm.thread();
    let mapped = thread.mmap_file(&request, file, 0, Sharing::Shared);
    mapped.expect("a hole");
}

const fn page(number: u64) -> VirtAddr {
    VirtAddr(BASE + number * HUGE)
}

/// Nanoseconds, one number a row.
fn measure(system: &Running<M>, times: u64) -> Vec<f64> {
    let _cpu = system.machine().enter(0);
    let file = file(system);
    let mm = system.new_mm().expect("memory");
    let (mut stores, mut loads) = (0.0, 0.0);
    for _ in 0..times {
        // A page less than a table maps: it is not shared.
        map(&mm, &file, INTERVAL - HUGE);
        let thread = mm.thread();
        let start = CpuTime::start();
        for number in 0..PAGES {
            thread.store(page(number), number).expect("mapped");
        }
        stores += start.ns();
        drop(thread);
        mm.munmap(VirtAddr(BASE), INTERVAL - HUGE).expect("mapped");
    }
    map(&mm, &file, INTERVAL);
    let thread = mm.thread();
    (0..PAGES).for_each(|number| thread.store(page(number), number).expect("mapped"));
    drop(thread);
    for _ in 0..times {
        let other = system.new_mm().expect("memory");
        map(&other, &file, INTERVAL);
        let thread = other.thread();
        // The first one shares the table.
        let _shares = thread.load(page(0)).expect("mapped");
        let start = CpuTime::start();
        for number in 1..PAGES {
            let value = thread.load(page(number)).expect("mapped");
            assert_eq!(value, number, "a word that was stored");
        }
        loads += start.ns();
    }
    system.check_ledger(&[&mm]).expect("it adds up");
    vec![
        stores / (times * PAGES) as f64,
        loads / (times * (PAGES - 1)) as f64,
    ]
}

/// Tables of all address spaces that map `bytes` of one file.
fn tables(system: &Running<M>, bytes: u64) -> u64 {
    let _cpu = system.machine().enter(0);
    let file = file(system);
    let spaces: Vec<_> = (0..SPACES)
        .map(|_| system.new_mm().expect("memory"))
        .collect();
    for mm in &spaces {
        map(mm, &file, bytes);
        let thread = mm.thread();
        (0..PAGES).for_each(|number| thread.store(page(number), number).expect("mapped"));
    }
    let all: Vec<_> = spaces.iter().map(|mm| &**mm).collect();
    system.check_ledger(&all).expect("it adds up").tables
}
