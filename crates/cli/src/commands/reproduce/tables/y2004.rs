//! The 2004 tables: pft on a simulated Altix.

use super::{Compared, Figures, Simulated, beside, looked, runs_of};
use crate::error::Error;
use crate::experiment::{Ran, Size, era, machine, pft, pft_figure, pft_scale};
use crate::parallel;
use crate::progress::Progress;
use minflt_report::{Column, Posting, PublishedTable, Table};
use minflt_sim::MachineFile;

const INTRO: &str = "The posting's benchmark on a model of its machine, by the 2004 program's definition: mapping \
     and teardown are inside the wall time. Simulated figures are claims about a cost model: the \
     cells marked `fitted` are what its free numbers were fitted to, on unpatched rows only; all \
     others are predictions. Where a shape is wrong, the model is wrong.";

/// The columns compared.
const COLUMNS: [&str; 2] = ["fault/wsec", "flt/cpu/s"];

/// Simulates every row of both tables.
pub(in super::super) fn simulate(
    posting: &Posting,
    size: Size,
    progress: &Progress,
) -> Result<Simulated, Error> {
    let mut done = Simulated::new(INTRO);
    for published in &posting.tables {
        let file = machine(published)?;
        let ran = rows(published, size, progress)?;
        let rows: Vec<_> = ran.iter().enumerate().collect();
        let mut table = beside_ours(published, &rows, file.is_fitted());
        table.footnotes.push(source(published, &file, size)?);
        done.tables.push(table);
        compare(published, &file, &rows, &mut done.figures);
        done.runs.extend(runs_of(&ran));
    }
    Ok(done)
}

fn rows(published: &PublishedTable, size: Size, progress: &Progress) -> Result<Vec<Ran>, Error> {
    let file = machine(published)?;
    let rows: Vec<usize> = (0..published.rows.len()).collect();
    parallel::map(&rows, |row| {
        let (id, label) = (&published.id, published.row_label(*row));
        progress.says(&format!("{id} with {label} threads on {}", file.name));
        let ran = pft(published, *row, &file, size);
        progress.step();
        ran
    })
}

/// A published figure and ours, of each row and column that are compared.
fn figures(published: &PublishedTable, row: usize, ran: &Ran) -> [(Option<f64>, Option<f64>); 2] {
    COLUMNS.map(|column| {
        let printed = published.cell_at(row, column).and_then(|cell| cell.value);
        (printed, pft_figure(&ran.outcome, column))
    })
}

/// A published table's rows beside runs of theirs; `fitted` if on a machine that was fitted, with
/// memory as scarce.
pub(crate) fn beside_ours(
    published: &PublishedTable,
    rows: &[(usize, &Ran)],
    fitted: bool,
) -> Table {
    let mut columns = vec![Column::number("threads", "")];
    for column in COLUMNS {
        columns.push(Column::number(&format!("published {column}"), ""));
        columns.push(Column::number(&format!("simulated {column}"), ""));
        columns.push(Column::number("ratio", ""));
    }
    columns.push(Column::text("checks"));
    let mut table = Table::new(&format!("{}: {}", published.id, published.title), columns);
    for (row, ran) in rows {
        let mut cells = vec![published.row_label(*row).into()];
        for (column, (printed, ours)) in COLUMNS.iter().zip(figures(published, *row, ran)) {
            let status = published.simulated_status(*row, column, fitted);
            cells.extend(beside(printed, ours, status));
        }
        cells.push(looked([&ran.run].into_iter()).into());
        table.rows.push(cells);
    }
    table
}

fn compare(
    published: &PublishedTable,
    file: &MachineFile,
    rows: &[(usize, &Ran)],
    found: &mut Figures,
) {
    for (row, ran) in rows {
        for (column, of) in COLUMNS.iter().zip(figures(published, *row, ran)) {
            let (Some(printed), Some(simulated)) = of else {
                continue;
            };
            let status = published.simulated_status(*row, column, file.is_fitted());
            found.note(published, *row, column, (simulated, status));
            found.judge(Compared {
                group: format!("2004 on {}", file.name),
                role: published.role,
                row: published.row_label(*row),
                what: (*column).into(),
                published: printed,
                simulated,
                status,
            });
        }
    }
}

/// What was simulated, and how to do it again.
fn source(published: &PublishedTable, file: &MachineFile, size: Size) -> Result<String, Error> {
    let era = era(published, COLUMNS[0])?;
    let (_, scale) = pft_scale(size);
    let full = match size {
        Size::Scaled => "",
        Size::Full => " --full",
    };
    Ok(format!(
        "simulated: {} on {}, scale 1/{scale}: minflt reproduce 2004{full}",
        era.name, file.name
    ))
}
