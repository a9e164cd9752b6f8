//! The 2014 tables: three patterns of loads from a file, by how much a fault maps around itself.
//!
//! Faults are counted, times are simulated. The posting's three real workloads wait for recordings
//! of real programs.

use super::{Compared, Simulated, looked, text};
use crate::error::Error;
use crate::experiment::file::{self, Cell as Ran};
use crate::experiment::machine;
use crate::parallel;
use crate::progress::Progress;
use minflt_report::published::{Kind, Role};
use minflt_report::{Cell, Column, Posting, PublishedTable, Run, Status, Table};
use minflt_sim::MachineFile;

const INTRO: &str = "The posting's three synthetic workloads on a model of its machine. Faults are counted, and \
     multiplied by how much smaller the file is; no cost model is in them. Times are simulated and \
     multiplied likewise. Its three real workloads are not yet reproduced: they need \
     recordings of real programs.";

/// The order that the posting chose.
const CHOSEN: &str = "4";

/// Simulates the three tables.
pub(in super::super) fn simulate(
    posting: &Posting,
    progress: &Progress,
) -> Result<Simulated, Error> {
    let mut done = Simulated::new(INTRO);
    let ours = |table: &&PublishedTable| table.workload.starts_with("file-");
    for published in posting.tables.iter().filter(ours) {
        let file = machine(published)?;
        let grid = Grid::simulate(published, &file, progress)?;
        let table = grid.table(published, &file, &mut done.compared);
        done.tables.push(table);
        done.runs.extend(grid.runs());
    }
    Ok(done)
}

/// All cells of a table.
struct Grid {
    threads: Vec<u32>,
    columns: Vec<String>,
    /// Number of threads by number of threads, column by column.
    cells: Vec<Ran>,
}

impl Grid {
    fn simulate(
        published: &PublishedTable,
        file: &MachineFile,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let mut threads = Vec::new();
        for row in 0..published.rows.len() {
            threads.push(file::threads_of(published, row)?);
        }
        threads.dedup();
        let columns = published.columns.iter();
        let columns = columns.filter(|column| column.kind == Kind::Number);
        let columns: Vec<String> = columns.map(|column| column.name.clone()).collect();
        let mut cells = Vec::new();
        for threads in &threads {
            progress.says(&format!("{} with {threads} threads", published.id));
            let cell = |column: &String| file::cell(published, *threads, column, file);
            cells.extend(parallel::map(&columns, cell)?);
            progress.step();
        }
        Ok(Self {
            threads,
            columns,
            cells,
        })
    }

    fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.cells.iter().map(|cell| cell.ran.run.clone())
    }

    /// The cells of so many threads.
    fn of(&self, threads: u32) -> Option<&[Ran]> {
        let at = self.threads.iter().position(|it| *it == threads)?;
        let wide = self.columns.len();
        self.cells.get(at * wide..(at + 1) * wide)
    }

    fn table(
        &self,
        published: &PublishedTable,
        file: &MachineFile,
        compared: &mut Vec<Compared>,
    ) -> Table {
        let mut heads = vec![Column::text("threads, metric"), Column::text("ours is")];
        for column in &self.columns {
            heads.push(Column::number(column, ""));
            heads.push(Column::number("ours", ""));
        }
        heads.push(Column::number("scale", ""));
        let title = format!("{}: {}", published.id, published.title);
        let mut table = Table::new(&title, heads);
        for row in 0..published.rows.len() {
            let Some(cells) = file::threads_of(published, row)
                .ok()
                .and_then(|threads| self.of(threads))
            else {
                continue;
            };
            let counts = published.row_label(row).ends_with("minor-faults");
            let mut line = vec![Cell::from(published.row_label(row))];
            let status_of = |column: &str| match counts {
                true => Status::Counted,
                false => published.simulated_status(row, column, file.is_fitted()),
            };
            let most = status_of(CHOSEN);
            line.push(Cell::with_status(&most.to_string(), most));
            for (cell, column) in cells.iter().zip(&self.columns) {
                let printed = published.cell_at(row, column).and_then(|it| it.value);
                let ours = match counts {
                    true => cell.faults() as f64,
                    false => cell.seconds(),
                };
                let status = status_of(column);
                if let (false, Some(printed)) = (counts, printed) {
                    compared.push(time(published, row, column, (printed, ours), status));
                }
                line.push(text(printed).into());
                line.push(match status == most {
                    true => text(Some(ours)).into(),
                    false => Cell::with_status(&text(Some(ours)), status),
                });
            }
            line.push(format!("1/{}", cells.first().map_or(1, |it| it.units.scale())).into());
            table.rows.push(line);
            if counts {
                table.rows.push(self.surplus(published, cells));
            }
        }
        self.footnotes(published, file, &mut table);
        table
    }

    /// Under a row of faults: what there must be, and the neighbours skipped.
    fn surplus(&self, published: &PublishedTable, cells: &[Ran]) -> Vec<Cell> {
        let threads = cells.first().map_or(0, |cell| cell.threads);
        let label = format!("expected + skipped, {threads}");
        let mut line = vec![Cell::from(label), "".into()];
        for cell in cells {
            let (expected, skipped) = (cell.expected(published), cell.skipped());
            line.push("".into());
            line.push(format!("{expected} + {skipped}").into());
        }
        line.push("".into());
        line
    }

    fn footnotes(&self, published: &PublishedTable, file: &MachineFile, table: &mut Table) {
        let expected = |cell: &&Ran| cell.is_expected(published);
        let held = self.cells.iter().filter(expected).count();
        let all = self.cells.len();
        table.footnotes.push(format!(
            "{held} of {all} counts are pages over the pages that one fault maps, within 1%, and at \
             most one more for each neighbour that was skipped because another thread had it locked"
        ));
        table.footnotes.push(format!(
            "times of the threads' loops, simulated on {} with a smaller file, times the scale, without \
             start and end of the process: minflt reproduce 2014",
            file.name
        ));
        let looks = looked(self.cells.iter().map(|cell| &cell.ran.run));
        table.footnotes.push(format!("checks of all runs: {looks}"));
    }
}

/// Two times, to be judged. The chosen order is set against the baseline.
fn time(
    published: &PublishedTable,
    row: usize,
    column: &str,
    (printed, ours): (f64, f64),
    status: Status,
) -> Compared {
    let role = published.role_of(column).unwrap_or(published.role);
    let what = match role {
        Role::Unpatched => published.id.clone(),
        _ if column == CHOSEN => published.id.clone(),
        _ => format!("{}, order {column}", published.id),
    };
    Compared {
        group: "2014 times on ivb-ex120, nothing fitted".into(),
        role,
        row: published.row_label(row),
        what,
        published: printed,
        simulated: ours,
        status,
    }
}
