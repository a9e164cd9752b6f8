//! What a first-touch write fault costs on real threads, and how it scales.
//!
//! ```text
//! cargo bench -p minflt-host --bench faults              20 rounds, verdicts
//! cargo bench -p minflt-host --bench faults -- --smoke   small, no verdicts; so does `cargo test`
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
//! The *bare clear* is `ptr::write_bytes` over a region larger than the caches, page by page. The
//! *bare loop* is the same loop of faults with each thread in a system of its own: the same
//! instructions and the same memory traffic, and no line that both threads know, so its quotient is
//! what this machine gives two such threads at best. (Two processors of a virtual machine may be one
//! core's, and share its units, its caches and its way to memory. A simpler loop without a system,
//! [`bare`], does not notice that; its quotient is printed, too.)
//! Rows are unchecked (`Host<X86_64, false>`); contents and the ledger are checked outside the timed
//! part.

mod bare;
mod cells;
mod figures;

use cells::{Cell, Machines, What};
use figures::{Bound, Noise, Quartiles};
use minflt_host::RamError;
use minflt_mm::{ERAS, Era};
use std::process::ExitCode;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Alternated rounds.
    rounds: usize,
    /// Pages that each thread touches in a cell.
    pages: u64,
    /// As the command line spells it.
    flag: &'static str,
}

/// 128 MiB a thread: four times the largest cache of the hosts that we know.
const FULL: Size = Size {
    rounds: 20,
    pages: 32 << 10,
    flag: "",
};

const SMOKE: Size = Size {
    rounds: 2,
    pages: 1 << 10,
    flag: " -- --smoke",
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    // `cargo bench` says so; `cargo test` says nothing.
    let full = has("--bench") && !has("--smoke");
    let era = args.iter().skip_while(|arg| *arg != "--era").nth(1);
    let wanted = |it: &&Era| era.is_none_or(|era| it.name == era);
    let eras: Vec<&Era> = ERAS.iter().filter(wanted).collect();
    match run(&eras, if full { FULL } else { SMOKE }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(eras: &[&Era], size: Size) -> Result<(), RamError> {
    let machines = Machines::start(eras, size.pages)?;
    let cells = Cell::all(eras);
    let in_era = cells.len() / eras.len();
    let mut times = vec![Vec::new(); cells.len()];
    let mut hash = 0u64;
    for round in 0..size.rounds {
        for step in 0..cells.len() {
            let at = (round * in_era + step) % cells.len();
            let (ns, result) = machines.measure(cells[at]);
            times[at].push(ns);
            // The order of cells differs from round to round, the sum does not.
            hash = hash.wrapping_add(figures::mix(result ^ at as u64));
        }
    }
    machines.check();
    let table = Table {
        eras,
        size,
        cells,
        times,
        hash,
    };
    table.print_rows();
    table.print_figures();
    Ok(())
}

/// What was measured: for each cell, nanoseconds a page in each round.
struct Table<'a> {
    eras: &'a [&'a Era],
    size: Size,
    cells: Vec<Cell>,
    times: Vec<Vec<f64>>,
    hash: u64,
}

impl Table<'_> {
    fn times(&self, era: &Era, what: What) -> &[f64] {
        let is_it = |it: &Cell| it.era == era.name && it.what == what;
        let at = self.cells.iter().position(is_it);
        at.map_or(&[], |at| &self.times[at])
    }

    /// Round by round, one over the other.
    fn ratios(&self, era: &Era, over: What, under: What) -> Vec<f64> {
        let pairs = self.times(era, over).iter().zip(self.times(era, under));
        pairs.map(|(over, under)| over / under).collect()
    }

    fn print_rows(&self) {
        let Size {
            rounds,
            pages,
            flag,
        } = self.size;
        let hash = self.hash;
        println!("{rounds} rounds, {pages} pages a thread, result hash {hash:016x}");
        println!(
            "{:54} {:>8} {:>8} {:>8} {:>8}",
            "ns a page", "median", "q1", "q3", "least"
        );
        let rows = || self.cells.iter().zip(&self.times);
        for (cell, times) in rows() {
            let Quartiles { low, median, high } = Quartiles::of(times);
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            println!("{cell:54} {median:8.1} {low:8.1} {high:8.1} {least:8.1}");
        }
        for (cell, times) in rows() {
            let Quartiles { low, median, high } = Quartiles::of(times);
            let (era, (row, threads)) = (cell.era, cell.row());
            println!(
                "{{\"bench\":\"faults\",\"target\":\"host\",\"era\":\"{era}\",\"row\":\"{row}\",\
                 \"threads\":{threads},\"pages\":{pages},\"rounds\":{rounds},\"ns_per_page\":\
                 {{\"median\":{median:.2},\"q1\":{low:.2},\"q3\":{high:.2}}},\"result_hash\":\
                 \"{hash:016x}\",\"command\":\"cargo bench -p minflt-host --bench faults{flag}\"}}"
            );
        }
    }

    fn print_figures(&self) {
        println!("\nfigures: median [quartiles], bound, verdict");
        for at in self.eras {
            let print = |figure: &str, values: &[f64], bound: Bound, noise: Noise| {
                let q = Quartiles::of(values);
                let judged = self.size.flag.is_empty();
                let verdict = if judged {
                    bound.verdict(q, noise)
                } else {
                    "not judged"
                };
                let Quartiles { low, median, high } = q;
                let name = format!("{}: {figure}", at.name);
                println!("{name:54} {median:7.3} [{low:.3} {high:.3}]  {bound:14} {verdict}");
            };
            let gain = self.ratios(at, What::Fault(1), What::Fault(2));
            let bare = self.ratios(at, What::Fault(1), What::Apart);
            let touch = self.ratios(at, What::Touch(1), What::Touch(2));
            let over = |bare: &[f64]| -> Vec<f64> {
                gain.iter().zip(bare).map(|(it, bare)| it / bare).collect()
            };
            let least = match at.name {
                "spf-2017" => Bound::AtLeast(0.9),
                "atomic-pte-2004" => Bound::AtLeast(0.65),
                _ => Bound::None,
            };
            let quick = self.times(at, What::Fault(1));
            let alone = Noise::of_times(self.times(at, What::Touch(1)));
            print(
                "fault without the clear, ns",
                quick,
                Bound::AtMost(150.0),
                alone,
            );
            let clear = self.ratios(at, What::FaultAndClear, What::Clear);
            let clears = Noise::of_times(self.times(at, What::Clear));
            print(
                "fault with the clear / bare clear",
                &clear,
                Bound::AtMost(1.25),
                clears,
            );
            print("two threads / one", &gain, Bound::None, Noise::Quiet);
            print(
                "bare loop, two threads / one",
                &bare,
                Bound::None,
                Noise::Quiet,
            );
            let noise = Noise::of_gain(&bare);
            print("scaling over the bare loop's", &over(&bare), least, noise);
            print(
                "no system, two threads / one",
                &touch,
                Bound::None,
                Noise::Quiet,
            );
            print(
                "scaling over that",
                &over(&touch),
                Bound::None,
                Noise::Quiet,
            );
        }
    }
}
