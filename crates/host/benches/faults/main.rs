//! What a first-touch write fault costs on real threads, and how it scales.
//!
//! ```text
//! cargo bench -p minflt-host --bench faults              20 rounds, verdicts
//! cargo bench -p minflt-host --bench faults -- --smoke   small, no verdicts; so does the gate
//! cargo bench -p minflt-host --bench faults -- --era spf-2017
//! ```
//!
//! Every round measures every cell once, beginning each time with another era, and a figure is the
//! median over the rounds of a ratio *within* a round, of cells measured one after the other: what
//! disturbs the machine for longer than that disturbs both sides. The figures:
//!
//! - *without the clear*: nanoseconds a fault, one thread, frames cleared beforehand;
//! - *with the clear*: the same with the clear in the fault, over the bare clear of a cold page;
//! - *scaling*: faults a second of two threads over those of one, in one address space and disjoint
//!   ranges without the clear, over the same quotient of a bare loop.
//!
//! The *bare clear* is `ptr::write_bytes` over a region larger than the caches, page by page,
//! taking turns with the faults. (The machine has a better one, measured beside it.) The *bare
//! loop* is the same loop of faults with each thread in a system of its own: the same
//! instructions and the same memory traffic, and no line that both threads know, so its
//! quotient is what this machine gives two such threads at best. (Two processors of a virtual
//! machine may be one core's, and share its units, its caches and its way to memory. A simpler
//! loop without a system, [`bare`], does not notice that; its quotient is printed, too.) Rows
//! are unchecked (`Host<X86_64, false>`); contents and the ledger are checked outside the timed
//! part.

#![expect(
    clippy::disallowed_types,
    clippy::expect_used,
    reason = "threads that start together need a word beside the system, and a bench that fails stops"
)]

mod bare;
mod cells;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "benches share it")]
mod common;

use cells::{Cell, Machines};
use common::figures::{Bound, Noise, Quartiles, mix};
use common::{Args, Much, ends};
use minflt_host::RamError;
use minflt_mm::{ERAS, Era};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::given();
    let era = args.after("--era");
    let wanted = |it: &&Era| era.is_none_or(|era| it.name == era);
    let eras: Vec<&Era> = ERAS.iter().filter(wanted).collect();
    if let (Some(era), []) = (era, &*eras) {
        let names: Vec<&str> = ERAS.iter().map(|it| it.name).collect();
        eprintln!("unknown era `{era}`; eras are {}", names.join(", "));
        return ExitCode::from(2);
    }
    ends(run(&eras, args.much()).map_err(Into::into))
}

fn run(eras: &[&Era], much: Much) -> Result<(), RamError> {
    // Of each thread. 128 MiB: four times the largest cache of the hosts that we know.
    let pages = much.size(1 << 10, 32 << 10);
    let machines = Machines::start(eras, pages)?;
    let cells = Cell::all(eras);
    let in_era = cells.len() / eras.len();
    let mut times = Times::default();
    let mut hash = 0u64;
    for round in 0..much.rounds() {
        for step in 0..cells.len() {
            let at = (round * in_era + step) % cells.len();
            let (ns, result) = machines.measure(cells[at]);
            let (rows, threads) = cells[at].rows();
            for (row, ns) in rows.iter().zip(ns) {
                times.push(cells[at].era, row, threads, ns);
            }
            // The order of cells differs from round to round, the sum does not.
            hash = hash.wrapping_add(mix(result ^ at as u64));
        }
    }
    machines.check();
    println!(
        "{} rounds, {} pages a thread, result hash {hash:016x}",
        much.rounds(),
        pages
    );
    times.print(much, pages, hash);
    for era in eras {
        print_figures(&times, era.name, much);
    }
    Ok(())
}

/// What was measured: for each row, nanoseconds a page in each round.
#[derive(Debug, Default)]
struct Times {
    rows: Vec<(Row, Vec<f64>)>,
}

/// An era, what was measured, and threads.
type Row = (&'static str, &'static str, u32);

impl Times {
    fn push(&mut self, era: &'static str, name: &'static str, threads: u32, ns: f64) {
        let row = (era, name, threads);
        match self.rows.iter_mut().find(|(it, _)| *it == row) {
            Some((_, times)) => times.push(ns),
            None => self.rows.push((row, vec![ns])),
        }
    }

    fn of(&self, row: Row) -> &[f64] {
        let found = self.rows.iter().find(|(it, _)| *it == row);
        found.map_or(&[], |(_, times)| times)
    }

    /// Round by round, one over the other.
    fn ratios(&self, over: Row, under: Row) -> Vec<f64> {
        quotients(self.of(over), self.of(under))
    }

    fn print(&self, much: Much, pages: u64, hash: u64) {
        let (rounds, flag) = (much.rounds(), much.flag());
        let head = "ns a page";
        println!(
            "{head:56} {:>8} {:>8} {:>8} {:>8}",
            "median", "q1", "q3", "least"
        );
        for ((era, name, threads), times) in &self.rows {
            let Quartiles { low, median, high } = Quartiles::of(times);
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let name = format!("{era}: {name}, threads: {threads}");
            println!("{name:56} {median:8.1} {low:8.1} {high:8.1} {least:8.1}");
        }
        for ((era, name, threads), times) in &self.rows {
            let Quartiles { low, median, high } = Quartiles::of(times);
            println!(
                "{{\"bench\":\"faults\",\"target\":\"host\",\"era\":\"{era}\",\"row\":\"{name}\",\
                 \"threads\":{threads},\"pages\":{pages},\"rounds\":{rounds},\"ns_per_page\":\
                 {{\"median\":{median:.2},\"q1\":{low:.2},\"q3\":{high:.2}}},\"result_hash\":\
                 \"{hash:016x}\",\"command\":\"cargo bench -p minflt-host --bench faults{flag}\"}}"
            );
        }
    }
}

/// One by one.
fn quotients(over: &[f64], under: &[f64]) -> Vec<f64> {
    let pairs = over.iter().zip(under);
    pairs.map(|(over, under)| over / under).collect()
}

fn print_figures(times: &Times, era: &'static str, much: Much) {
    println!("\n{era}: figure, median [quartiles], bound, verdict");
    let print = |figure: &str, values: &[f64], bound: Bound, noise: Noise| {
        let q = Quartiles::of(values);
        let judged = much == Much::Full;
        let verdict = if judged {
            bound.verdict(q, noise)
        } else {
            "not judged"
        };
        let Quartiles { low, median, high } = q;
        println!("{figure:40} {median:7.3} [{low:.3} {high:.3}]  {bound:14} {verdict}");
    };
    let fault = |threads| (era, "fault without the clear", threads);
    let touch = |threads| (era, "loop without a system", threads);
    let apart = (era, "fault in systems of their own", 2);
    let (clear, with) = ((era, "bare clear", 1), (era, "fault with the clear", 1));

    let alone = Noise::of_times(times.of(touch(1)));
    let quick = times.of(fault(1));
    print(
        "fault without the clear, ns",
        quick,
        Bound::AtMost(150.0),
        alone,
    );
    let clears = times.ratios(with, clear);
    let noise = Noise::of_ratios(&clears);
    print(
        "fault with the clear / bare clear",
        &clears,
        Bound::AtMost(1.25),
        noise,
    );

    let own = times.ratios(with, (era, "machine's clear, alone", 1));
    print(
        "fault with the clear / machine's clear",
        &own,
        Bound::None,
        Noise::Quiet,
    );

    let gain = times.ratios(fault(1), fault(2));
    let bare = times.ratios(fault(1), apart);
    let simple = times.ratios(touch(1), touch(2));
    let least = match era {
        "spf-2017" => Bound::AtLeast(0.9),
        "atomic-pte-2004" => Bound::AtLeast(0.65),
        _ => Bound::None,
    };
    print("two threads / one", &gain, Bound::None, Noise::Quiet);
    print(
        "bare loop, two threads / one",
        &bare,
        Bound::None,
        Noise::Quiet,
    );
    let scaling = quotients(&gain, &bare);
    print(
        "scaling over the bare loop's",
        &scaling,
        least,
        Noise::of_gain(&bare),
    );
    print(
        "no system, two threads / one",
        &simple,
        Bound::None,
        Noise::Quiet,
    );
    let scaling = quotients(&gain, &simple);
    print("scaling over that", &scaling, Bound::None, Noise::Quiet);
}
