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

#[path = "../common/figures.rs"]
#[expect(dead_code, reason = "benches share it")]
mod figures;
mod linux;
#[path = "../common/machine.rs"]
mod machine;
mod ours;
#[path = "../common/table.rs"]
mod table;

use core::error::Error;
use figures::{Bound, Noise};
use minflt_host::Host;
use minflt_mm::ERAS;
use minflt_pgtable::X86_64;
use ours::{Forks, ROWS};
use std::process::ExitCode;
use table::{Judge, Times};

/// The machine measured.
pub(crate) type M = Host<X86_64, false>;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    rounds: usize,
    /// Forks of each kind in a round.
    times: u64,
    /// As the command line spells it.
    flag: &'static str,
}

const FULL: Size = Size {
    rounds: 20,
    times: 50,
    flag: "",
};

const SMOKE: Size = Size {
    rounds: 2,
    times: 2,
    flag: " -- --smoke",
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let after = |flag: &str| args.iter().skip_while(|arg| *arg != flag).nth(1);
    let result = match after(linux::CHILD) {
        Some(times) => linux::child(times.parse().unwrap_or(1)).map_err(Into::into),
        // `cargo bench` says so; `cargo test --benches` says nothing.
        None if has("--bench") && !has("--smoke") => run(FULL, after("--era")),
        None => run(SMOKE, after("--era")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(size: Size, era: Option<&String>) -> Result<(), Box<dyn Error>> {
    let eras = ERAS.iter().map(|era| era.name);
    let eras = eras.filter(|it| era.is_none_or(|era| it == era));
    let forks = eras.map(|era| Forks::new(era, size.times));
    let forks: Vec<Forks> = forks.collect::<Result<_, _>>()?;
    let mut times = Times::default();
    for _ in 0..size.rounds {
        for forks in &forks {
            times.push(forks.era, &ROWS, forks.measure());
        }
        times.push("linux", &linux::ROWS, linux::measure(size.times)?);
    }
    times.print("forks", size.rounds, size.flag);
    println!("\n{}", linux::IN_ADDITION);
    println!("\nfigure, median [quartiles], bound, verdict");
    for forks in &forks {
        print_figures(&times, forks.era, Judge::of(size.flag));
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
