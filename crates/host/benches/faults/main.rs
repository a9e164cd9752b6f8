//! What a first-touch write fault costs on real threads, and how it scales.
//!
//! ```text
//! cargo bench -p minflt-host --bench faults            20 rounds, verdicts
//! cargo bench -p minflt-host --bench faults -- --smoke small, no verdicts; so does `cargo test`
//! ```
//!
//! Every round measures every cell once, beginning each time with another one, and a figure is the
//! median over the rounds of a ratio *within* a round: what disturbs the machine for longer than a
//! round disturbs both sides. The figures:
//!
//! - *without the clear*: nanoseconds a fault, one thread, frames cleared beforehand;
//! - *with the clear*: the same with the clear in the fault, over the bare clear of a cold page;
//! - *scaling*: faults a second of two threads over those of one, in one address space and disjoint
//!   ranges without the clear, over the same quotient of a bare loop.
//!
//! The *bare clear* is `ptr::write_bytes` over a region larger than the caches, page by page. The
//! *bare loop* ([`bare`]) does per page what a fault cannot avoid, on memory of its own thread: it
//! shares no line with anybody, so its quotient is what this machine gives to two threads at best.
//! Rows are unchecked (`Host<X86_64, false>`); contents and the ledger are checked outside the timed
//! part.

mod bare;
mod cells;
mod figures;

use cells::{Cell, Machines};
use figures::{Bound, Noise, Quartiles};
use minflt_host::RamError;
use std::process::ExitCode;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
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
    // `cargo bench` says so; `cargo test` says nothing.
    let full = args.iter().any(|arg| arg == "--bench") && !args.iter().any(|arg| arg == "--smoke");
    match run(if full { FULL } else { SMOKE }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(size: Size) -> Result<(), RamError> {
    let machines = Machines::start(size.pages)?;
    let cells = machines.cells();
    let mut times = vec![Vec::new(); cells.len()];
    let mut hash = figures::HASH_START;
    for round in 0..size.rounds {
        for step in 0..cells.len() {
            let at = (round + step) % cells.len();
            let (ns, result) = machines.measure(&cells[at]);
            times[at].push(ns);
            // The order of cells differs from round to round, the sum does not.
            hash = hash.wrapping_add(figures::mix(result ^ at as u64));
        }
    }
    machines.check();
    let table = Table { size, cells, times };
    table.print_rows(hash);
    table.print_figures();
    Ok(())
}

/// What was measured: for each cell, nanoseconds a page in each round.
struct Table {
    size: Size,
    cells: Vec<Cell>,
    times: Vec<Vec<f64>>,
}

impl Table {
    fn times(&self, cell: &Cell) -> &[f64] {
        let at = self.cells.iter().position(|it| it == cell);
        at.map_or(&[], |at| &self.times[at])
    }

    /// Round by round, `over / under`.
    fn ratios(&self, over: &Cell, under: &Cell) -> Vec<f64> {
        let pairs = self.times(over).iter().zip(self.times(under));
        pairs.map(|(over, under)| over / under).collect()
    }

    /// Round by round, how many times the work two threads do in the time of one.
    fn gains(&self, one: &Cell, two: &Cell) -> Vec<f64> {
        self.ratios(one, two)
    }

    fn command(&self) -> String {
        format!(
            "cargo bench -p minflt-host --bench faults{}",
            self.size.flag
        )
    }

    fn print_rows(&self, hash: u64) {
        let Size { rounds, pages, .. } = self.size;
        println!("{rounds} rounds, {pages} pages a thread, result hash {hash:016x}");
        println!("{:44} {:>9} {:>9} {:>9}", "ns a page", "median", "q1", "q3");
        for (cell, times) in self.cells.iter().zip(&self.times) {
            let q = Quartiles::of(times);
            println!(
                "{:44} {:9.1} {:9.1} {:9.1}",
                cell.to_string(),
                q.median,
                q.low,
                q.high
            );
        }
        for (cell, times) in self.cells.iter().zip(&self.times) {
            let q = Quartiles::of(times);
            println!(
                "{{\"bench\":\"faults\",\"target\":\"host\",{},\"pages\":{pages},\
                 \"rounds\":{rounds},\"ns_per_page\":{{\"median\":{:.2},\"q1\":{:.2},\
                 \"q3\":{:.2}}},\"result_hash\":\"{hash:016x}\",\"command\":\"{}\"}}",
                cell.json(),
                q.median,
                q.low,
                q.high,
                self.command()
            );
        }
    }

    fn print_figures(&self) {
        if std::env::var_os("RAW").is_some() {
            for (cell, times) in self.cells.iter().zip(&self.times) {
                let t: Vec<String> = times.iter().map(|t| format!("{t:.0}")).collect();
                println!("RAW {cell:44} {}", t.join(" "));
            }
        }
        let judged = self.size.flag.is_empty();
        let print = |name: &str, values: &[f64], bound: Bound, noise: Noise| {
            let q = Quartiles::of(values);
            let verdict = if judged {
                bound.verdict(q, noise)
            } else {
                "not judged"
            };
            println!(
                "{name:52} {:8.3} [{:.3} {:.3}]  {bound:14} {verdict}",
                q.median, q.low, q.high
            );
        };
        println!("\nfigures: median [quartiles], bound, verdict");
        let bare_gain = self.gains(&Cell::Bare(1), &Cell::Bare(2));
        let alone = Noise::of_times(self.times(&Cell::Bare(1)));
        let together = Noise::of_gain(&bare_gain);
        for (at, era) in minflt_mm::ERAS.iter().enumerate() {
            let quick = Cell::Fault(at, 1);
            let name = format!("{}, fault without the clear, ns", era.name);
            print(&name, self.times(&quick), Bound::AtMost(150.0), alone);
            let name = format!("{}, fault with the clear / bare clear", era.name);
            let ratios = self.ratios(&Cell::FaultAndClear(at), &Cell::Clear);
            let clears = Noise::of_times(self.times(&Cell::Clear));
            print(&name, &ratios, Bound::AtMost(1.25), clears);
        }
        print(
            "bare loop, 2 threads / 1",
            &bare_gain,
            Bound::None,
            together,
        );
        for (at, era) in minflt_mm::ERAS.iter().enumerate() {
            let gain = self.gains(&Cell::Fault(at, 1), &Cell::Fault(at, 2));
            let pairs = gain.iter().zip(&bare_gain);
            let ratios: Vec<f64> = pairs.map(|(gain, bare)| gain / bare).collect();
            let bound = match era.name {
                "spf-2017" => Bound::AtLeast(0.9),
                "atomic-pte-2004" => Bound::AtLeast(0.65),
                _ => Bound::None,
            };
            let name = format!("{}, 2 threads / 1, over the bare loop's", era.name);
            print(&name, &ratios, bound, together);
        }
    }
}
