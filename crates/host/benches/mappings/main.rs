//! What finding, making and changing a mapping costs on real threads.
//!
//! ```text
//! cargo bench -p minflt-host --bench mappings             20 rounds, verdicts
//! cargo bench -p minflt-host --bench mappings -- --smoke  small, no verdicts; so does the gate
//! cargo bench -p minflt-host --bench mappings -- --quick  3 rounds, no verdicts
//! cargo bench -p minflt-host --bench mappings -- --only calls --era spf-2017
//! cargo bench -p minflt-host --bench mappings -- --only lookup
//! ```
//!
//! Every round measures everything once, one after the other, and a figure is the median over the
//! rounds; of a ratio, the median of the ratios within a round. The figures:
//!
//! - *lookup*: from an address to the attributes of its mapping, by the steps of a fault: the tree,
//!   the VMA, its record. The lock is held once for all; a row of its own takes it each time.
//!   Beside it, `BTreeMap::range(..=address).next_back()`, with the end and the protection in the
//!   map. *The next waits*: each address depends on what was found before. Mappings of 1 to 4
//!   pages were made in a random order, addresses are random within them. (The map lies in the
//!   process's heap, the system's memory in large pages where the host has them.)
//! - *calls*: in an address space of 100 other mappings, one CPU, nothing touched. Beside them,
//!   the same by system calls of the host's kernel, in a process of their own.
//!
//! Rows are unchecked (`Host<X86_64, false>`).

#![expect(clippy::expect_used, reason = "a bench that fails stops")]

mod calls;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "benches share it")]
mod common;
mod linux;
mod lookup;

use calls::Calls;
use common::figures::{Bound, Noise};
use common::table::{Judge, Times};
use common::{Args, Much, child, ends, times_of_child};
use core::error::Error;
use lookup::Lookups;
use minflt_mm::ERAS;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::given();
    ends(match times_of_child(&args) {
        Some(times) => linux::child(times).map_err(Into::into),
        None => run(args.much(), args.after("--era"), args.after("--only")),
    })
}

fn run(much: Much, era: Option<&str>, only: Option<&str>) -> Result<(), Box<dyn Error>> {
    let each = much.size(500, 20_000);
    let mappings = much.size([100, 2_000], [100, 100_000]);
    let wanted = |what: &str| only.is_none_or(|only| only == what);
    let lookups = mappings.iter().filter(|_| wanted("lookup"));
    let lookups = lookups.map(|mappings| Lookups::new(*mappings, 1));
    let lookups: Vec<Lookups> = lookups.collect::<Result<_, _>>()?;
    let eras = ERAS.iter().map(|era| era.name);
    let eras = eras.filter(|it| wanted("calls") && era.is_none_or(|era| *it == era));
    let calls = eras.map(|era| Calls::new(era, each));
    let calls: Vec<Calls> = calls.collect::<Result<_, _>>()?;
    let mut times = Times::default();
    for _ in 0..much.rounds() {
        for lookups in &lookups {
            let whose = format!("{} mappings", lookups.mappings);
            times.push(&whose, &lookup::ROWS, lookups.measure());
        }
        for calls in &calls {
            times.push(calls.era, &calls::ROWS, calls.measure());
        }
        if wanted("calls") {
            times.push("linux", &linux::ROWS, child(each, linux::ROWS.len())?);
        }
    }
    times.print("mappings", much);
    println!("\n{}", linux::IN_ADDITION);
    println!("\nfigure, median [quartiles], bound, verdict");
    for lookups in &lookups {
        print_lookup(&times, lookups.mappings, much);
    }
    for calls in &calls {
        print_calls(&times, calls.era, much);
    }
    Ok(())
}

fn print_lookup(times: &Times, mappings: usize, much: Much) {
    let judge = Judge::of(much);
    let whose = format!("{mappings} mappings");
    for (row, other) in [(0, 4), (1, 5), (2, 4)] {
        let (row, other) = (lookup::ROWS[row], lookup::ROWS[other]);
        let ours = times.of(&whose, row);
        let ratios = times.pairs((&whose, row), (&whose, other), |ours, other| ours / other);
        let many = mappings > 100;
        let (ns, ratio) = if many {
            (Bound::None, Bound::AtMost(0.6))
        } else {
            (Bound::AtMost(30.0), Bound::None)
        };
        let noise = Noise::of_ratios(&ratios);
        let figure = format!("{whose}: {row}, ns");
        judge.print(&figure, ours, ns, Noise::of_times(ours));
        let figure = format!("{whose}: {row} / BTreeMap");
        judge.print(&figure, &ratios, ratio, noise);
    }
}

fn print_calls(times: &Times, era: &str, much: Much) {
    let judge = Judge::of(much);
    for (row, most) in [(0, 400.0), (2, 500.0)] {
        let row = calls::ROWS[row];
        let ours = times.of(era, row);
        let noise = Noise::of_times(ours);
        let figure = format!("{era}: {row}, ns");
        judge.print(&figure, ours, Bound::AtMost(most), noise);
        let ratios = times.pairs((era, row), ("linux", row), |ours, linux| ours / linux);
        let figure = format!("{era}: {row} / linux");
        judge.print(&figure, &ratios, Bound::None, noise);
    }
}
