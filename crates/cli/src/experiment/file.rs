//! The synthetic tables of 2014: threads that load from a file in the page cache.
//!
//! The file is smaller than the published one, the more threads the smaller, so that all threads
//! together map about as many pages in each cell, and each thread takes [`FAULTS`] faults at least,
//! as far as [`MOST`] pages allow. Faults and times are multiplied by how much smaller it is.
//!
//! A time is that of the process from its start to its end, as `perf stat` has it. Starting the
//! threads is not multiplied; their loops and the end of the process are, for both take a time for
//! each page and table that is mapped.
//!
//! Threads are spread over sockets and cores as a scheduler does with an idle machine, and the file
//! lies on all nodes in turn: of the unpatched random column 8 threads, two a socket, take as long
//! as one, which they could not if three of four sockets had a longer way to the file.
//!
//! A simulated page holds one word. Reading all words of a page in order costs what the machine
//! file says of reading, and no more than a node's memory gives is read at a time. Words at random
//! are an amount of computing: each is one that no cache holds.
//!
//! The loads of `file-sparse` are farther apart than those of the posting, one table in eight or
//! four, so that each thread's mapping is of a GiB and has a table of tables of its own, as the
//! posting's have sixteen.

use super::{Ran, era, lacking, simulate_with, whole};
use crate::choice::Named;
use crate::error::{Error, failed};
use minflt_mm::config::FaultAround;
use minflt_report::PublishedTable;
use minflt_sim::{MachineFile, Placing};
use minflt_workload::{Plan, parse_size};

/// Pages that all threads of a cell map together, at the most.
const MAPPED: u64 = 1 << 18;
/// The same where threads would take fewer than [`FAULTS`] faults otherwise.
const MOST: u64 = 1 << 19;
/// Faults of a thread, at the least.
const FAULTS: u64 = 64;
/// Pages of a file, and tables of a file that is read sparsely, that need not be more.
const PAGES: u64 = 1 << 16;
const TABLES: u64 = 1 << 7;
/// Bytes of a simulated file that is read sparsely: what one table of tables maps.
const SPARSE: u64 = 1 << 30;
/// Entries of a table, and words of a page, of the machine that was published.
const ENTRIES: u64 = 512;
const WORDS: u64 = 512;
const PAGE: u64 = 4096;

/// What is counted of a cell: pages, or tables with one page each that is loaded from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Units {
    /// As published.
    pub(crate) full: u64,
    /// As simulated.
    pub(crate) scaled: u64,
}

impl Units {
    /// Of a table's cell with so many threads, in which a fault maps `1 << order` pages.
    pub(crate) fn of(published: &PublishedTable, threads: u32, order: u32) -> Result<Self, Error> {
        let size = published.params.get("size").and_then(|size| size.as_str());
        let size = size.and_then(|size| parse_size(size).ok());
        let size = size.ok_or_else(|| lacking(published, "has no size"))?;
        // Of a unit: bytes, pages that it maps, units that a fault is for.
        let (bytes, maps, fault, enough) = match published.workload.as_str() {
            "file-sparse" => (ENTRIES * PAGE, 1 << order, 1, TABLES),
            _ => (PAGE, 1, 1 << order, PAGES),
        };
        let full = size / bytes;
        // The greatest power of two that fits, so that windows of all orders do.
        let within = |pages: u64| {
            let units = pages / (maps * u64::from(threads));
            1 << units.max(2).ilog2()
        };
        let scaled: u64 = within(MAPPED).min(enough);
        let scaled = scaled.max((FAULTS * fault).min(within(MOST)));
        Ok(Self {
            full,
            scaled: full.min(scaled),
        })
    }

    /// How much smaller a cell is than the published one.
    pub(crate) const fn scale(&self) -> u64 {
        self.full / self.scaled
    }
}

/// A cell that was simulated.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) ran: Ran,
    pub(crate) units: Units,
    pub(crate) threads: u32,
    /// Log2 of the pages that a fault maps.
    pub(crate) order: u32,
}

/// The number of threads of row number `row`.
pub(crate) fn threads_of(published: &PublishedTable, row: usize) -> Result<u32, Error> {
    let threads = published.row_param(row, "threads");
    let threads = threads.and_then(|cell| cell.value);
    let threads = threads.ok_or_else(|| lacking(published, "has a row without threads"))?;
    Ok(threads as u32)
}

/// The era of a column, with the order that the column is about.
fn era_of(published: &PublishedTable, column: &str) -> Result<(Named, u32), Error> {
    let mut named = era(published, column)?;
    let order = published
        .column(column)
        .and_then(|column| column.params.get("fault_around_order")?.as_u64())
        .and_then(|order| u32::try_from(order).ok())
        .ok_or_else(|| lacking(published, "has a column without an order"))?;
    named.config.around = FaultAround::parse(&order.to_string())
        .ok_or_else(|| lacking(published, "has a column with an order there is not"))?;
    Ok((named, order))
}

/// The options of a cell's run: the file, and what is loaded of it.
fn options(published: &PublishedTable, units: Units, file: &MachineFile) -> Vec<String> {
    let miss = file.ns.dram_local.value;
    let (bytes, loads) = match published.workload.as_str() {
        "file-seq" => (units.scaled * PAGE, vec!["--every-word".to_owned()]),
        "file-rand" => {
            let ns = (WORDS as f64 * miss) as u64;
            (
                units.scaled * PAGE,
                vec!["--page-ns".into(), ns.to_string()],
            )
        }
        _ => {
            let stride = (SPARSE / units.scaled).to_string();
            let ns = (miss as u64).to_string();
            (
                SPARSE,
                vec!["--stride".into(), stride, "--page-ns".into(), ns],
            )
        }
    };
    let mut all = vec!["--size".to_owned(), bytes.to_string()];
    all.extend(loads);
    all.extend(["--measure".to_owned(), "process".to_owned()]);
    all
}

/// Simulates the cell of `threads` threads in `column`.
pub(crate) fn cell(
    published: &PublishedTable,
    threads: u32,
    column: &str,
    file: &MachineFile,
) -> Result<Cell, Error> {
    let (named, order) = era_of(published, column)?;
    let units = Units::of(published, threads, order)?;
    let options = options(published, units, file);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let target = whole(&named, file)?;
    target.place(Placing::Spread);
    target.interleave();
    let ran = simulate_with(
        &target,
        file,
        &named,
        &published.workload,
        &options,
        &Plan::new(threads, threads),
        units.scale(),
    )?;
    Ok(Cell {
        ran,
        units,
        threads,
        order,
    })
}

impl Cell {
    /// Faults at the published size.
    pub(crate) fn faults(&self) -> u64 {
        self.ran.outcome.faults * self.units.scale()
    }

    /// Pages over the pages that a fault maps, at the published size: what faults there must be.
    pub(crate) fn expected(&self, published: &PublishedTable) -> u64 {
        let faults = match published.workload.as_str() {
            "file-sparse" => self.units.full,
            _ => self.units.full >> self.order,
        };
        faults * u64::from(self.threads)
    }

    /// Neighbours that no fault could map at once, at the published size.
    pub(crate) fn skipped(&self) -> u64 {
        let skipped = self.ran.outcome.events.get(SKIPPED).copied();
        skipped.unwrap_or(0) * self.units.scale()
    }

    /// Whether the faults are those that there must be, but for one in a hundred, and at most one
    /// more for each neighbour skipped.
    pub(crate) fn is_expected(&self, published: &PublishedTable) -> bool {
        let (faults, expected) = (self.faults(), self.expected(published));
        let most = expected + self.skipped();
        faults + expected / 100 >= expected && faults <= most + expected / 100
    }

    /// Seconds of the process at the published size.
    pub(crate) fn seconds(&self) -> f64 {
        let outcome = &self.ran.outcome;
        let opened = outcome.workers.iter().map(|worker| worker.start_ns).min();
        seconds(outcome.wall_ns, opened.unwrap_or(0), self.units.scale())
    }
}

/// Seconds at the published size of a process that took `wall_ns` and whose threads began their
/// loops at `opened`: the loops and the end are `scale` times as long, the start is not.
fn seconds(wall_ns: u64, opened: u64, scale: u64) -> f64 {
    let rest = wall_ns.saturating_sub(opened);
    (opened as f64 + rest as f64 * scale as f64) / 1e9
}

/// The event that counts them.
const SKIPPED: &str = "fault-around-skipped";

/// The figure in row number `row` of `column`, for a fit.
pub(crate) fn figure(
    published: &PublishedTable,
    row: usize,
    column: &str,
    file: &MachineFile,
) -> Result<f64, Error> {
    let threads = threads_of(published, row)?;
    let cell = cell(published, threads, column, file)?;
    let label = published.row_label(row);
    if label.ends_with("minor-faults") {
        Ok(cell.faults() as f64)
    } else if label.ends_with("time") {
        Ok(cell.seconds())
    } else {
        Err(failed(published.id.clone())(&format!("no row {label}")))
    }
}

#[cfg(test)]
mod tests {
    use super::{FAULTS, MOST, Units, seconds};
    use minflt_report::postings;

    #[test]
    fn cells_are_small_and_of_whole_windows_and_of_enough_faults() {
        let all = postings().expect("readable");
        let tables = all.iter().flat_map(|posting| &posting.tables);
        let tables: Vec<_> = tables
            .filter(|table| table.workload.starts_with("file-"))
            .collect();
        assert_eq!(tables.len(), 3);
        for table in tables {
            for threads in [1, 8, 32, 60, 120] {
                for order in [0, 1, 3, 4, 5, 7, 9] {
                    let units = Units::of(table, threads, order).expect("has a size");
                    assert!(units.scaled > 1 && units.scaled.is_power_of_two());
                    assert_eq!(units.full % units.scaled, 0);
                    let (faults, pages) = match table.workload.as_str() {
                        "file-sparse" => (units.scaled, units.scaled << order),
                        _ => (units.scaled >> order, units.scaled),
                    };
                    let mapped = pages * u64::from(threads);
                    assert!(mapped <= MOST, "{threads} {order}");
                    // Or as many as there is room for.
                    let more = 2 * mapped > MOST;
                    assert!(faults >= FAULTS || more, "{threads} {order}");
                }
            }
        }
    }

    #[test]
    fn only_the_start_of_a_process_is_as_long_as_published() {
        assert_eq!(seconds(5_000, 2_000, 1), 5e-6);
        assert_eq!(seconds(5_000, 2_000, 100), 302e-6);
    }
}
