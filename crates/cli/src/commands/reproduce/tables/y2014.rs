//! The 2014 tables: three patterns of loads from a file, by how much a fault maps around itself.
//!
//! Faults are counted, times are simulated. The posting's three real workloads wait for recordings
//! of real programs.

use super::{Compared, Figures, Simulated, looked, text};
use crate::error::Error;
use crate::experiment::file::{self, Cell as Ran};
use crate::experiment::machine;
use crate::parallel;
use crate::progress::Progress;
use minflt_report::published::{Kind, Role};
use minflt_report::{Cell, Column, Posting, PublishedTable, Run, Status, Table};
use minflt_sim::MachineFile;

const INTRO: &str = "The posting's three synthetic workloads on a model of its machine. Faults are counted, and \
     multiplied by how much smaller the file is; no cost model is in them. Times are simulated, of \
     the whole process, and multiplied likewise. Its three real workloads are not yet reproduced: \
     they need recordings of real programs.";

/// The order that the posting chose, and the one before it.
const CHOSEN: &str = "4";
const BEFORE: &str = "3";
const BASELINE: &str = "Baseline";

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
        let table = grid.table(published, &file, &mut done.figures);
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
        figures: &mut Figures,
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
                figures.note(published, row, column, (ours, status));
                if let (false, Some(printed)) = (counts, printed) {
                    figures.judge(time(published, row, column, (printed, ours), status));
                }
                line.push(text(printed).into());
                line.push(match status == most {
                    true => text(Some(ours)).into(),
                    false => Cell::with_status(&text(Some(ours)), status),
                });
            }
            line.push(scale(cells).into());
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
            "times of the process, simulated on {} with a smaller file: its start, and its \
             loops and its end times the scale: minflt reproduce 2014",
            file.name
        ));
        let rows = 0..published.rows.len();
        let contradicted: Vec<String> = rows
            .filter(|row| contradicts_itself(published, *row))
            .map(|row| published.row_label(row))
            .collect();
        if !contradicted.is_empty() {
            table.footnotes.push(format!(
                "no winner is asked for in {}: by the posting's own row order {BEFORE} saves \
                 more than half of the faults and no time, so what order {CHOSEN} gains over the \
                 baseline is not due to faults",
                contradicted.join("; ")
            ));
        }
        let looks = looked(self.cells.iter().map(|cell| &cell.ran.run));
        table.footnotes.push(format!("checks of all runs: {looks}"));
    }
}

/// How much smaller the cells of a row are, from the first to the last if they differ.
fn scale(cells: &[Ran]) -> String {
    let mut scales: Vec<u64> = cells.iter().map(|cell| cell.units.scale()).collect();
    scales.sort_unstable();
    scales.dedup();
    match scales[..] {
        [one] => format!("1/{one}"),
        [least, .., most] => format!("1/{least} to 1/{most}"),
        [] => String::new(),
    }
}

/// Whether the posting's own row of times says that fewer faults do not make it faster, though the
/// chosen order is: where the order before saves more than half of the faults and no time.
fn contradicts_itself(published: &PublishedTable, row: usize) -> bool {
    let label = published.row_label(row);
    let Some(threads) = label.strip_suffix("time") else {
        return false;
    };
    let faults = format!("{threads}minor-faults");
    let of = |row: &str, column: &str| published.value(row, column);
    let faults = (of(&faults, BASELINE), of(&faults, BEFORE));
    let times = (of(&label, BASELINE), of(&label, BEFORE));
    match (faults, times) {
        ((Some(all), Some(few)), (Some(base), Some(time))) => few < all / 2.0 && time >= base,
        _ => false,
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
        _ if column == CHOSEN && !contradicts_itself(published, row) => published.id.clone(),
        _ => format!("{}, order {column}", published.id),
    };
    Compared {
        group: "2014 times on ivb-ex120, one number fitted".into(),
        role,
        row: published.row_label(row),
        what,
        published: printed,
        simulated: ours,
        status,
    }
}

#[cfg(test)]
mod tests {
    use super::contradicts_itself;
    use minflt_report::postings;

    #[test]
    fn two_rows_of_the_posting_contradict_themselves() {
        let all = postings().expect("readable");
        let tables = all.iter().flat_map(|posting| &posting.tables);
        let tables = tables.filter(|table| table.workload.starts_with("file-"));
        let found: Vec<String> = tables
            .flat_map(|table| {
                let rows = 0..table.rows.len();
                let rows = rows.filter(|row| contradicts_itself(table, *row));
                rows.map(|row| format!("{}: {}", table.id, table.row_label(row)))
            })
            .collect();
        assert_eq!(found, ["2014/random: 1, time", "2014/random: 32, time"]);
    }
}
