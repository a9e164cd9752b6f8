//! What finding, making and changing a mapping costs on real threads.
//!
//! ```text
//! cargo bench -p minflt-host --bench mappings              20 rounds, verdicts
//! cargo bench -p minflt-host --bench mappings -- --smoke   small, no verdicts; so does `cargo test`
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
mod figures;
mod linux;
mod lookup;
mod machine;

use calls::Calls;
use figures::{Bound, Noise, Quartiles};
use lookup::Lookups;
use minflt_host::Host;
use minflt_mm::ERAS;
use minflt_pgtable::X86_64;
use std::error::Error;
use std::process::ExitCode;

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
        // `cargo bench` says so; `cargo test` says nothing.
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

/// Whose row it is, and the row.
type Row = (String, &'static str);

/// Nanoseconds in each round.
#[derive(Debug, Default)]
struct Times {
    rows: Vec<(Row, Vec<f64>)>,
}

impl Times {
    fn push(&mut self, whose: &str, names: &[&'static str], values: Vec<f64>) {
        for (name, ns) in names.iter().zip(values) {
            let row = (whose.to_owned(), *name);
            match self.rows.iter_mut().find(|(it, _)| *it == row) {
                Some((_, times)) => times.push(ns),
                None => self.rows.push((row, vec![ns])),
            }
        }
    }

    fn of(&self, whose: &str, name: &str) -> &[f64] {
        let found = self
            .rows
            .iter()
            .find(|((it, row), _)| it == whose && *row == name);
        found.map_or(&[], |(_, times)| times)
    }

    fn print(&self, size: Size) {
        let head = "ns";
        println!(
            "{head:64} {:>8} {:>8} {:>8} {:>8}",
            "median", "q1", "q3", "least"
        );
        for ((whose, name), times) in &self.rows {
            let Quartiles { low, median, high } = Quartiles::of(times);
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let name = format!("{whose}: {name}");
            println!("{name:64} {median:8.1} {low:8.1} {high:8.1} {least:8.1}");
        }
        let Size { rounds, flag, .. } = size;
        for ((whose, name), times) in &self.rows {
            let Quartiles { low, median, high } = Quartiles::of(times);
            println!(
                "{{\"bench\":\"mappings\",\"target\":\"host\",\"of\":\"{whose}\",\"row\":\
                 \"{name}\",\"rounds\":{rounds},\"ns\":{{\"median\":{median:.2},\"q1\":{low:.2},\
                 \"q3\":{high:.2}}},\"command\":\
                 \"cargo bench -p minflt-host --bench mappings{flag}\"}}"
            );
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
    println!("{} rounds", size.rounds);
    times.print(size);
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

fn print(figure: &str, values: &[f64], bound: Bound, noise: Noise, size: Size) {
    let Quartiles { low, median, high } = Quartiles::of(values);
    let verdict = if size.flag.is_empty() {
        bound.verdict(Quartiles::of(values), noise)
    } else {
        "not judged"
    };
    println!("{figure:64} {median:7.3} [{low:.3} {high:.3}]  {bound:14} {verdict}");
}

fn print_lookup(times: &Times, mappings: usize, size: Size) {
    let whose = format!("{mappings} mappings");
    for (row, other) in [(0, 4), (1, 5), (2, 4)] {
        let (row, other) = (lookup::ROWS[row], lookup::ROWS[other]);
        let ours = times.of(&whose, row);
        let pairs = ours.iter().zip(times.of(&whose, other));
        let ratios: Vec<f64> = pairs.map(|(ours, other)| ours / other).collect();
        let many = mappings > 100;
        let (ns, ratio) = if many {
            (Bound::None, Bound::AtMost(0.6))
        } else {
            (Bound::AtMost(30.0), Bound::None)
        };
        let noise = Noise::of_ratios(&ratios);
        let figure = format!("{whose}: {row}, ns");
        print(&figure, ours, ns, Noise::of_times(ours), size);
        let figure = format!("{whose}: {row} / BTreeMap");
        print(&figure, &ratios, ratio, noise, size);
    }
}

fn print_calls(times: &Times, era: &str, size: Size) {
    for (row, most) in [(0, 400.0), (2, 500.0)] {
        let row = calls::ROWS[row];
        let ours = times.of(era, row);
        let noise = Noise::of_times(ours);
        print(
            &format!("{era}: {row}, ns"),
            ours,
            Bound::AtMost(most),
            noise,
            size,
        );
        let pairs = ours.iter().zip(times.of("linux", row));
        let ratios: Vec<f64> = pairs.map(|(ours, linux)| ours / linux).collect();
        print(
            &format!("{era}: {row} / linux"),
            &ratios,
            Bound::None,
            noise,
            size,
        );
    }
}
