//! What an embedder could put together from others' crates or write by hand instead, beside the
//! library: mappings, first touches, protection, forks, and what a mapping takes.
//!
//! ```text
//! cargo bench                             20 rounds (in this directory)
//! cargo bench -- --smoke                  small; so does the gate
//! cargo bench -- --quick                  3 rounds
//! cargo bench -- --only linux-6.15        sides with this in their name
//! cargo bench -- --row "fork, child's store"      one row
//! cargo bench -- --fill prefetch-next     peers prefetch the next frame when they fill one
//! ```
//!
//! All sides are called by one generic loop ([`rows`]) on the same machine, one after the other in
//! each row of each round; a ratio is of neighbours in time. What each side does and leaves out
//! ([`notes`]) is printed below.

#![expect(clippy::expect_used, reason = "a bench that fails stops")]

mod arceos;
mod by_hand;
#[path = "../../../crates/host/benches/common/mod.rs"]
#[expect(dead_code, reason = "the library's own benches share it")]
mod common;
mod frames;
mod notes;
mod offset;
mod ours;
mod rows;
mod side;

use arceos::ArceOs;
use by_hand::ByHand;
use common::figures::{Bound, Noise};
use common::table::{Judge, Times};
use common::{Args, ends};
use core::error::Error;
use frames::Fill;
use minflt_host::RamError;
use ours::Ours;
use rows::{Often, ROWS, Row, bytes_a_mapping, measure};
use side::{PAGES, Side};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::process::ExitCode;
use std::rc::Rc;

/// Counts the peers' bytes.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that the program has allocated.
fn heap_bytes() -> u64 {
    let stats = HEAP.stats();
    (stats.bytes_allocated - stats.bytes_deallocated) as u64
}

const ERAS: [&str; 3] = ["linux-4.13", "spf-2017", "linux-6.15"];

fn main() -> ExitCode {
    ends(run(&Args::given()))
}

/// A side, behind what is asked of it.
struct Measured {
    name: String,
    ns: Box<dyn Fn(Row, Often) -> f64>,
    bytes_a_mapping: Box<dyn Fn() -> f64>,
}

impl Measured {
    fn new<S: Side + 'static>(side: S) -> Self {
        let side = Rc::new(side);
        let again = Rc::clone(&side);
        Self {
            name: side.name(),
            ns: Box::new(move |row, often| measure(&*side, row, often)),
            bytes_a_mapping: Box::new(move || bytes_a_mapping(&*again)),
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let much = args.much();
    let often = Often {
        calls: much.size(200, 20_000),
        pages: much.size(128, PAGES),
        forks: much.size(2, 20),
    };
    let (fill, flag) = match args.after("--fill") {
        None => (Fill::Alone, ""),
        Some("prefetch-next") => (Fill::PrefetchNext, " -- --fill prefetch-next"),
        Some(other) => return Err(format!("--fill {other}: expected prefetch-next").into()),
    };
    let peers = [
        ArceOs::new(fill).map(Measured::new),
        ByHand::new(fill).map(Measured::new),
    ];
    let eras = ERAS.map(|era| Ours::new(era).map(Measured::new));
    let wanted = |it: &Measured| {
        args.after("--only")
            .is_none_or(|part| it.name.contains(part))
    };
    let all = |sides: Vec<Result<_, _>>| -> Result<Vec<Measured>, _> {
        let sides: Result<Vec<_>, RamError> = sides.into_iter().collect();
        sides.map(|it| it.into_iter().filter(wanted).collect())
    };
    let (peers, ours) = (all(peers.into())?, all(eras.into())?);
    let one = args.after("--row");
    let rows = ROWS
        .into_iter()
        .filter(|(name, _)| one.is_none_or(|it| it == *name));
    if peers.len() + ours.len() == 0 || rows.clone().count() == 0 {
        return Err("no side is called that, or no row".into());
    }
    let mut times = Times::default();
    for _ in 0..much.rounds() {
        for (name, row) in rows.clone() {
            for side in peers.iter().chain(&ours) {
                times.push(&side.name, &[name], vec![(side.ns)(row, often)]);
            }
        }
    }
    let command = format!("cargo bench --manifest-path peers/Cargo.toml{flag}");
    times.print_of("beside", &command, much);
    for peer in &peers {
        println!(
            "\nminflt : {}, median of neighbouring rounds [quartiles]",
            peer.name
        );
        for ours in &ours {
            for (row, _) in rows.clone() {
                let ratios = times.pairs((&ours.name, row), (&peer.name, row), |a, b| a / b);
                let figure = format!("{}: {row}", ours.name);
                Judge::of(much).print(&figure, &ratios, Bound::None, Noise::of_ratios(&ratios));
            }
        }
    }
    println!("\nbytes a mapping, of 10,000 that are not touched");
    for side in peers.iter().chain(&ours) {
        println!("{:64} {:9.0}", side.name, (side.bytes_a_mapping)());
    }
    notes::print(fill);
    Ok(())
}
