//! What an embedder could put together from others' crates instead, beside the library: mappings,
//! first touches, protection, and what a mapping takes.
//!
//! ```text
//! cargo bench                             20 rounds (in this directory)
//! cargo bench -- --smoke                  small; so does the gate
//! cargo bench -- --quick                  3 rounds
//! cargo bench -- --era linux-6.15         one era
//! ```
//!
//! Both sides are called by one generic loop ([`rows`]) on the same machine, round by round; a
//! ratio is of neighbours in time. What each side does and the other does not is printed below.

#![expect(clippy::expect_used, reason = "a bench that fails stops")]

mod arceos;
#[path = "../../../crates/host/benches/common/mod.rs"]
#[expect(dead_code, reason = "the library's own benches share it")]
mod common;
mod ours;
mod rows;
mod side;

use arceos::ArceOs;
use common::figures::{Bound, Noise};
use common::table::{Judge, Times};
use common::{Args, ends};
use core::error::Error;
use ours::Ours;
use rows::{ROWS, bytes_a_mapping, measure};
use side::{PAGES, Side};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::process::ExitCode;

/// Counts the peer's bytes.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ERAS: [&str; 3] = ["linux-4.13", "spf-2017", "linux-6.15"];

fn main() -> ExitCode {
    ends(run(&Args::given()))
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let much = args.much();
    let (each, pages) = (much.size(200, 20_000), much.size(128, PAGES));
    let eras = ERAS
        .into_iter()
        .filter(|era| args.after("--era").is_none_or(|it| it == *era));
    let ours = eras.map(Ours::new).collect::<Result<Vec<_>, _>>()?;
    let peer = ArceOs::new();
    let mut times = Times::default();
    for _ in 0..much.rounds() {
        times.push(&peer.name(), &ROWS, measure(&peer, each, pages));
        for ours in &ours {
            times.push(&ours.name(), &ROWS, measure(ours, each, pages));
        }
    }
    let command = "cargo bench --manifest-path peers/Cargo.toml";
    times.print_of("beside", command, much);
    println!("\nminflt : peer, median of neighbouring rounds [quartiles]");
    for ours in &ours {
        for row in ROWS {
            let (one, other) = (ours.name(), peer.name());
            let ratios = times.pairs((&one, row), (&other, row), |ours, peer| ours / peer);
            let figure = format!("{}: {row}", ours.name());
            Judge::of(much).print(&figure, &ratios, Bound::None, Noise::of_ratios(&ratios));
        }
    }
    println!("\nbytes a mapping, of 10,000 that do not touch");
    println!("{:64} {:9.0}", peer.name(), bytes_a_mapping(&peer));
    for ours in &ours {
        println!("{:64} {:9.0}", ours.name(), bytes_a_mapping(ours));
    }
    println!("\n{}\n\n{}", ours::IN_ADDITION, arceos::NOTES);
    Ok(())
}
