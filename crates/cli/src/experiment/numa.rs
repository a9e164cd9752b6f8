//! numa02, the benchmark of 2012: threads whose memory lies on the first node.
//!
//! Memory is smaller than it was, by [`SCALE`], and loops are as many, so that a run takes that
//! much less time; the times of balancing are that much shorter, and what it looks at or moves at
//! a time is that much less. So pages move as often as they would, for each loop, and times are
//! multiplied by the scale. What is not scaled: what a fault, a move and an interrupt cost, which
//! is right, as there are fewer pages; and the timer's 4 ms, so that scans are at least that far
//! apart.
//!
//! Without balancing nothing changes from loop to loop, and [`ALIKE`] loops stand for all.

use super::{Ran, lacking};
use crate::choice::Named;
use crate::error::{Error, usage};
use crate::rows::{Place, record};
use crate::targets;
use minflt_mm::NumaKnobs;
use minflt_mm::config::Balancing;
use minflt_report::PublishedTable;
use minflt_sim::why::{Cause, Why};
use minflt_sim::{Asked, MachineFile};
use minflt_workload::numa_mem::Columns;
use minflt_workload::{self as workload, Plan, Workload};

/// How much smaller memory and times are.
pub(crate) const SCALE: u64 = 32;
/// What one thread of the posting had, bytes, and how often it went over it.
const THREAD_BYTES: u64 = 32 << 20;
const LOOPS: u64 = 800;
/// Loops where each is like the others.
const ALIKE: u64 = 25;

/// A run of numa02.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) ran: Ran,
    /// Where its time went.
    why: Option<Why>,
    columns: Columns,
    /// How much more the published run took.
    scale: u64,
}

/// Simulates numa02 in an era.
pub(crate) fn cell(
    published: &PublishedTable,
    named: &Named,
    file: &MachineFile,
) -> Result<Cell, Error> {
    let threads = super::param(published, "threads")?;
    let loops = match named.config.balancing {
        Balancing::Off => ALIKE,
        Balancing::On => LOOPS,
    };
    let scale = SCALE * LOOPS / loops;
    let (bytes, count) = (
        format!("{}K", (THREAD_BYTES / SCALE) >> 10),
        loops.to_string(),
    );
    let options = ["-T", &bytes, "-l", &count, "-zZ0"].map(str::to_owned);
    let test = Workload::parse("numa-mem", &options).map_err(|e| usage(e.to_string()))?;
    let target = targets::sim(named, file, (file.shape.ram_mib.value as u64) << 20)?;
    target.set_numa_knobs(scaled(first_knobs()));
    target.account(Some(Asked::default()));
    let plan = Plan::new(threads, threads);
    let outcome = targets::on(&target, &test, &plan)?;
    let place = Place {
        target: "sim",
        machine: &file.name,
        era: &named.name,
        threads: plan.threads,
        cpus: plan.cpus,
        scale,
    };
    let run = record(&place, &outcome);
    let Some(workload::Columns::NumaMem(columns)) = outcome.columns.clone() else {
        return Err(lacking(published, "is of another workload"));
    };
    Ok(Cell {
        ran: Ran { outcome, run },
        why: target.take_why(),
        columns,
        scale,
    })
}

/// The knobs of Linux 3.8, the first that balances (kernel/sched/fair.c): scans begin a tenth of a
/// second apart, today a second.
fn first_knobs() -> NumaKnobs {
    NumaKnobs {
        scan_period_min_ns: 100_000_000,
        scan_period_max_ns: 5_000_000_000,
        ..NumaKnobs::default()
    }
}

/// The knobs of balancing for a run that is smaller by the scale.
const fn scaled(knobs: NumaKnobs) -> NumaKnobs {
    NumaKnobs {
        scan_delay_ns: knobs.scan_delay_ns / SCALE,
        scan_period_min_ns: knobs.scan_period_min_ns / SCALE,
        scan_period_max_ns: knobs.scan_period_max_ns / SCALE,
        scan_bytes: knobs.scan_bytes / SCALE,
        rate_window_ns: knobs.rate_window_ns / SCALE,
        rate_bytes: knobs.rate_bytes / SCALE,
    }
}

impl Cell {
    /// The figure that a row of the posting's blocks gives, at the published size.
    pub(crate) fn figure(&self, row: &str) -> Option<f64> {
        let (it, scale) = (&self.columns, self.scale as f64);
        Some(match row {
            "runtime/thread" => it.avg_s * scale,
            "fastest (min) thread time" => it.min_s * scale,
            "elapsed (max) thread time" => it.max_s * scale,
            // As the posting prints it: plus or minus.
            "spread" => -it.spread_percent(),
            "data processed, per thread" => it.thread_gb() * scale,
            "data processed, total" => it.total_gb() * scale,
            "nsecs/byte/thread" => it.ns_per_byte(),
            "GB/sec/thread" => it.thread_gb_per_s(),
            "GB/sec total" => it.total_gb_per_s(),
            _ => return None,
        })
    }

    /// How often something happened, at the simulated size.
    pub(crate) fn count(&self, event: &str) -> u64 {
        self.ran.outcome.events.get(event).copied().unwrap_or(0)
    }

    /// Which part of the threads' time went to a lock: its line's moves, spinning and sleeping.
    pub(crate) fn lock_share(&self, lock: &str) -> f64 {
        let of = |why: &Why| {
            let rows = why.locks.iter().filter(|row| row.lock == lock);
            rows.map(|row| row.time()).sum()
        };
        self.share(of)
    }

    /// Which part of it went to waiting for a node's memory.
    pub(crate) fn memory_share(&self) -> f64 {
        let at = Cause::Node as usize;
        self.share(|why| why.within.iter().map(|row| row.by_cause[at]).sum())
    }

    fn share(&self, of: impl Fn(&Why) -> u64) -> f64 {
        let share = |why: &Why| of(why) as f64 / why.time().max(1) as f64;
        self.why.as_ref().map_or(0.0, share)
    }
}

/// The figure in row number `row`, for a fit.
pub(crate) fn figure(
    published: &PublishedTable,
    row: usize,
    column: &str,
    file: &MachineFile,
) -> Result<f64, Error> {
    let cell = cell(published, &super::era(published, column)?, file)?;
    let label = published.row_label(row);
    let none = || lacking(published, &format!("has no row {label}"));
    cell.figure(&label).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::{ALIKE, LOOPS, SCALE, THREAD_BYTES};
    use minflt_report::postings;

    #[test]
    fn loops_and_memory_are_those_of_the_posting() {
        let all = postings().expect("readable");
        let tables = all.iter().flat_map(|posting| &posting.tables);
        let ours: Vec<_> = tables.filter(|it| it.workload == "numa-mem").collect();
        assert_eq!(ours.len(), 2);
        let gb = format!("{:.3}", (LOOPS * THREAD_BYTES) as f64 / 1e9);
        for table in ours {
            let row = |label: &str| table.value(label, "Value");
            let printed = row("data processed, per thread").expect("a row");
            assert_eq!(format!("{printed:.3}"), gb);
        }
        assert_eq!((THREAD_BYTES % SCALE, LOOPS % ALIKE), (0, 0));
    }
}
