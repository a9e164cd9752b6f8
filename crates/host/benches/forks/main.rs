//! What a fork costs on real threads, and the stores after it.
//!
//! ```text
//! cargo bench -p minflt-host --bench forks              20 rounds, verdicts
//! cargo bench -p minflt-host --bench forks -- --smoke   small, no verdicts; so does the gate
//! cargo bench -p minflt-host --bench forks -- --era spf-2017
//! ```
//!
//! One address space with one mapping of 1,000 touched pages, one CPU. Every round measures every
//! era once, and the host's kernel, in a process of its own; a figure is the median over the
//! rounds. The figures:
//!
//! - *fork and exit*: of a child that does nothing;
//! - *a store that copies, without the copy*: the parent stores to each page while the child lives;
//!   less a copy of as many pages in a region of the process that no system lies in;
//! - *a store to a page that is shared no more*: the same after the child's end.
//!
//! Rows are unchecked (`Host<X86_64, false>`); the ledger is checked outside the timed part.

#![expect(clippy::expect_used, reason = "a bench that fails stops")]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "benches share it")]
mod common;
mod linux;
mod ours;

use common::figures::{Bound, Noise};
use common::table::{Judge, Times};
use common::{Args, Much, child, ends, times_of_child};
use core::error::Error;
use minflt_mm::ERAS;
use ours::{Forks, ROWS};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::given();
    ends(match times_of_child(&args) {
        Some(times) => linux::child(times).map_err(Into::into),
        None => run(args.much(), args.after("--era")),
    })
}

fn run(much: Much, era: Option<&str>) -> Result<(), Box<dyn Error>> {
    let each = much.size(2, 50);
    let eras = ERAS.iter().map(|era| era.name);
    let eras = eras.filter(|it| era.is_none_or(|era| *it == era));
    let forks = eras.map(|era| Forks::new(era, each));
    let forks: Vec<Forks> = forks.collect::<Result<_, _>>()?;
    let mut times = Times::default();
    for _ in 0..much.rounds() {
        for forks in &forks {
            times.push(forks.era, &ROWS, forks.measure());
        }
        times.push("linux", &linux::ROWS, child(each, linux::ROWS.len())?);
    }
    times.print("forks", much);
    println!("\n{}", linux::IN_ADDITION);
    println!("\nfigure, median [quartiles], bound, verdict");
    for forks in &forks {
        print_figures(&times, forks.era, Judge::of(much));
    }
    Ok(())
}

fn print_figures(times: &Times, era: &str, judge: Judge) {
    let row = |row: usize| (era, ROWS[row]);
    let minus = |one: f64, other: f64| one - other;
    let over = |one: f64, other: f64| one / other;
    let print = |figure: &str, values: &[f64], bound: Bound| {
        let noise = Noise::of_times(values);
        judge.print(&format!("{era}: {figure}"), values, bound, noise);
    };
    let whole = times.of(era, ROWS[2]);
    print("fork and exit, ns", whole, Bound::AtMost(60_000.0));
    let without = times.pairs(row(3), row(4), minus);
    let figure = "a store that copies, without the copy, ns";
    print(figure, &without, Bound::AtMost(200.0));
    let reuse = times.of(era, ROWS[5]);
    print("a store to a page shared no more, ns", reuse, Bound::None);
    for at in [2, 3, 5] {
        let ratio = times.pairs(row(at), ("linux", ROWS[at]), over);
        let figure = format!("{} / linux", ROWS[at]);
        print(&figure, &ratio, Bound::None);
    }
}
