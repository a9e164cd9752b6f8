//! The synthetic tables of 2014: threads that load from a file in the page cache.
//!
//! The file is smaller than the published one, the more threads the smaller, so that all threads
//! together map about as many pages in each cell; faults and times are multiplied by how much
//! smaller it is. Times are those of the threads' loops. What the posting's include beside them,
//! above all the end of the process, is left out.
//!
//! Threads are spread over sockets and cores as a scheduler does with an idle machine.
//!
//! A simulated page holds one word, so what the loops take for the words of a page is an amount of
//! computing: word after word each is one that the nearest cache holds, for the lines come before
//! they are asked for; at random each is one that no cache holds. Both are numbers of the machine
//! file, and nothing is fitted to what the posting's loops took.

use super::{Ran, era, lacking, simulate_placed, threads_on};
use crate::choice::Named;
use crate::error::{Error, failed};
use minflt_mm::config::FaultAround;
use minflt_report::PublishedTable;
use minflt_sim::{MachineFile, Placing};
use minflt_workload::parse_size;

/// Pages that all threads of a cell map together, at the most.
const MAPPED: u64 = 1 << 18;
/// Pages of a file, and tables of a file that is read sparsely, at the most.
const PAGES: u64 = 1 << 16;
const TABLES: u64 = 1 << 7;
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
    /// Bytes of each.
    bytes: u64,
}

impl Units {
    /// Of a table's cells with so many threads.
    pub(crate) fn of(published: &PublishedTable, threads: u32) -> Result<Self, Error> {
        let size = published.params.get("size").and_then(|size| size.as_str());
        let size = size.and_then(|size| parse_size(size).ok());
        let size = size.ok_or_else(|| lacking(published, "has no size"))?;
        let (bytes, each, most) = match published.workload.as_str() {
            "file-sparse" => (ENTRIES * PAGE, ENTRIES, TABLES),
            _ => (PAGE, 1, PAGES),
        };
        let full = size / bytes;
        let room = MAPPED / (each * u64::from(threads)).max(1);
        // The greatest power of two that fits, so that windows of all orders do.
        let scaled = 1 << room.max(1).ilog2();
        Ok(Self {
            full,
            scaled: full.min(most).min(scaled),
            bytes,
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

/// What the loop of a table takes for a page beside the one load that is simulated, nanoseconds.
fn page_ns(published: &PublishedTable, file: &MachineFile) -> u64 {
    let words = WORDS as f64;
    let ns = match published.workload.as_str() {
        "file-seq" => words * file.ns.hit.value,
        "file-rand" => words * file.ns.dram_local.value,
        _ => file.ns.dram_local.value,
    };
    ns as u64
}

/// Simulates the cell of `threads` threads in `column`.
pub(crate) fn cell(
    published: &PublishedTable,
    threads: u32,
    column: &str,
    file: &MachineFile,
) -> Result<Cell, Error> {
    let units = Units::of(published, threads)?;
    let (named, order) = era_of(published, column)?;
    let bytes = (units.scaled * units.bytes).to_string();
    let ns = page_ns(published, file).to_string();
    let ran = simulate_placed(
        Placing::Spread,
        file,
        &named,
        &published.workload,
        &["--size", &bytes, "--page-ns", &ns],
        &threads_on(threads, threads),
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

    /// Seconds of the threads' loops at the published size.
    pub(crate) fn seconds(&self) -> f64 {
        self.ran.outcome.wall_ns as f64 * self.units.scale() as f64 / 1e9
    }
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
    use super::{MAPPED, Units};
    use minflt_report::postings;

    #[test]
    fn cells_are_small_and_of_whole_windows() {
        let all = postings().expect("readable");
        let tables = all.iter().flat_map(|posting| &posting.tables);
        let tables: Vec<_> = tables
            .filter(|table| table.workload.starts_with("file-"))
            .collect();
        assert_eq!(tables.len(), 3);
        for table in tables {
            for threads in [1, 8, 32, 60, 120] {
                let units = Units::of(table, threads).expect("has a size");
                assert!(units.scaled > 1 && units.scaled.is_power_of_two());
                assert_eq!(units.full % units.scaled, 0);
                let pages = units.scaled * units.bytes / super::PAGE;
                assert!(pages * u64::from(threads) <= MAPPED);
                assert!(table.workload == "file-sparse" || pages >= 2048);
            }
        }
    }
}
