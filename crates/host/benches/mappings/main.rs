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
#[path = "../common/figures.rs"]
#[expect(dead_code, reason = "benches share it")]
mod figures;
mod linux;
mod lookup;
#[path = "../common/machine.rs"]
#[expect(dead_code, reason = "benches share it")]
mod machine;
#[path = "../common/table.rs"]
mod table;

use calls::Calls;
use core::error::Error;
use figures::{Bound, Noise};
use lookup::Lookups;
use minflt_host::Host;
use minflt_mm::ERAS;
use minflt_pgtable::X86_64;
use std::process::ExitCode;
use table::{Judge, Times};

/// The machine measured.
pub(crate) type M = Host<X86_64, false>;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    rounds: usize,
    /// Calls of each kind in a round.
    times: u64,
    /// Mappings to look up among.
    mappings: [usize; 2],
    /// As the command line spells it.
    flag: &'static str,
}

const FULL: Size = Size {
    rounds: 20,
    times: 20_000,
    mappings: [100, 100_000],
    flag: "",
};

const QUICK: Size = Size {
    rounds: 3,
    flag: " -- --quick",
    ..FULL
};

const SMOKE: Size = Size {
    rounds: 2,
    times: 500,
    mappings: [100, 2_000],
    flag: " -- --smoke",
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let after = |flag: &str| args.iter().skip_while(|arg| *arg != flag).nth(1);
    let result = match after(linux::CHILD) {
        Some(times) => linux::child(times.parse().unwrap_or(1)).map_err(Into::into),
        // `cargo bench` says so; `cargo test --benches` says nothing.
        None if has("--quick") => run(QUICK, after("--era"), after("--only")),
        None if has("--bench") && !has("--smoke") => run(FULL, after("--era"), after("--only")),
        None => run(SMOKE, after("--era"), after("--only")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(size: Size, era: Option<&String>, only: Option<&String>) -> Result<(), Box<dyn Error>> {
    let wanted = |what: &str| only.is_none_or(|only| only == what);
    let lookups = size.mappings.iter().filter(|_| wanted("lookup"));
    let lookups = lookups.map(|mappings| Lookups::new(*mappings, 1));
    let lookups: Vec<Lookups> = lookups.collect::<Result<_, _>>()?;
    let eras = ERAS.iter().map(|era| era.name);
    let eras = eras.filter(|it| wanted("calls") && era.is_none_or(|era| it == era));
    let calls = eras.map(|era| Calls::new(era, size.times));
    let calls: Vec<Calls> = calls.collect::<Result<_, _>>()?;
    let mut times = Times::default();
    for _ in 0..size.rounds {
        for lookups in &lookups {
            let whose = format!("{} mappings", lookups.mappings);
            times.push(&whose, &lookup::ROWS, lookups.measure());
        }
        for calls in &calls {
            times.push(calls.era, &calls::ROWS, calls.measure());
        }
        if wanted("calls") {
            times.push("linux", &linux::ROWS, linux::measure(size.times)?);
        }
    }
    times.print("mappings", size.rounds, size.flag);
    println!("\n{}", linux::IN_ADDITION);
    println!("\nfigure, median [quartiles], bound, verdict");
    for lookups in &lookups {
        print_lookup(&times, lookups.mappings, size);
    }
    for calls in &calls {
        print_calls(&times, calls.era, size);
    }
    Ok(())
}

fn print_lookup(times: &Times, mappings: usize, size: Size) {
    let judge = Judge::of(size.flag);
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

fn print_calls(times: &Times, era: &str, size: Size) {
    let judge = Judge::of(size.flag);
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
