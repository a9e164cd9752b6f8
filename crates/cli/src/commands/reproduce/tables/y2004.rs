//! The 2004 tables: pft on a simulated Altix.

use super::{Compared, Simulated, beside, looked, runs_of};
use crate::error::Error;
use crate::experiment::{Ran, Size, era, machine, pft, pft_figure, pft_scale};
use crate::parallel;
use crate::progress::Progress;
use minflt_report::{Column, Posting, PublishedTable, Table};

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
        let ran = rows(published, size, progress)?;
        let table = table(published, &ran, size, &mut done.compared)?;
        done.tables.push(table);
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

fn table(
    published: &PublishedTable,
    ran: &[Ran],
    size: Size,
    compared: &mut Vec<Compared>,
) -> Result<Table, Error> {
    let file = machine(published)?;
    let era = era(published, COLUMNS[0])?;
    let mut columns = vec![Column::number("threads", "")];
    for column in COLUMNS {
        columns.push(Column::number(&format!("published {column}"), ""));
        columns.push(Column::number(&format!("simulated {column}"), ""));
        columns.push(Column::number("ratio", ""));
    }
    columns.push(Column::text("checks"));
    let mut table = Table::new(&format!("{}: {}", published.id, published.title), columns);
    for (row, ran) in ran.iter().enumerate() {
        let mut cells = vec![published.row_label(row).into()];
        for column in COLUMNS {
            let printed = published.cell_at(row, column).and_then(|cell| cell.value);
            let ours = pft_figure(&ran.outcome, column);
            let status = published.simulated_status(row, column, file.is_fitted());
            cells.extend(beside(printed, ours, status));
            if let (Some(published_figure), Some(simulated)) = (printed, ours) {
                compared.push(Compared {
                    group: format!("2004 on {}", file.name),
                    role: published.role,
                    row: published.row_label(row),
                    what: column.into(),
                    published: published_figure,
                    simulated,
                    status,
                });
            }
        }
        cells.push(looked([&ran.run].into_iter()).into());
        table.rows.push(cells);
    }
    let (_, scale) = pft_scale(size);
    let full = match size {
        Size::Scaled => "",
        Size::Full => " --full",
    };
    table.footnotes.push(format!(
        "simulated: {} on {}, scale 1/{scale}: minflt reproduce 2004{full}",
        era.name, file.name
    ));
    Ok(table)
}
