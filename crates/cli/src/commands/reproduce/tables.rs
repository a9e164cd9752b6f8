//! The 2004 tables: pft on a simulated Altix, published beside simulated.

use crate::choice::era_list;
use crate::error::{Error, failed, usage};
use crate::progress::Progress;
use crate::rows::{Place, record};
use crate::targets;
use minflt_report::{Cell, Column, Posting, PublishedTable, Run, Status, Table};
use minflt_workload::{Clear, Outcome, Plan, Spaces, Workload};

/// Cells simulated: six thread counts with and without the patches.
pub(crate) const CELLS: u64 = 12;

/// Bytes touched in a cell, unless all is asked for.
const SCALED: u64 = 256 << 20;
const FULL: u64 = 32 << 30;
/// Bytes touched in a published cell: 32 GiB ten times.
const PUBLISHED: u64 = 10 * (32 << 30);

/// What the page says of them.
pub(super) const INTRO: &str = "The posting's benchmark on a model of its machine, by the 2004 program's definition: mapping \
     and teardown are inside the wall time (starting threads costs nothing in the model yet). Simulated figures are claims about a cost \
     model. Nothing has been fitted yet (`uncalibrated`): costs come from outside sources, from \
     unpatched rows, or are guesses, as the machine file says number by number. The shape is the \
     point, and where it is wrong the model is wrong.";

/// Simulates every row of both tables.
pub(super) fn simulate_2004(
    all: &[Posting],
    full: bool,
    progress: &Progress,
    runs: &mut Vec<Run>,
) -> Result<Vec<Table>, Error> {
    let tables = all.iter().filter(|posting| posting.id == "2004");
    let tables = tables.flat_map(|posting| &posting.tables);
    tables
        .map(|table| simulate(table, full, progress, runs))
        .collect()
}

fn simulate(
    published: &PublishedTable,
    full: bool,
    progress: &Progress,
    runs: &mut Vec<Run>,
) -> Result<Table, Error> {
    let lacking = failed(format!("published table {}", published.id));
    let era = published
        .era
        .as_deref()
        .ok_or_else(|| lacking(&"names no era"))?;
    let machine = published
        .preset
        .as_deref()
        .ok_or_else(|| lacking(&"names no machine"))?;
    let file = targets::machine("--machine", machine)?;
    let named = era_list(era)?.remove(0);
    let bytes = if full { FULL } else { SCALED };
    let scale = PUBLISHED / bytes;
    let mut table = head(published, &named.name, machine, scale);
    for row in 0..published.rows.len() {
        let threads = published
            .row_param(row, "threads")
            .and_then(|cell| cell.value);
        let threads = threads.ok_or_else(|| lacking(&"has a row without threads"))? as u32;
        progress.says(&format!(
            "{} with {threads} threads on {machine}",
            named.name
        ));
        let options = ["-b".to_string(), bytes.to_string()];
        let workload = Workload::parse("pft", &options).map_err(|e| usage(e.to_string()))?;
        let ram = (file.shape.ram_mib.value as u64) << 20;
        let target = targets::sim(&named, &file, ram)?;
        let plan = Plan {
            threads,
            cpus: threads,
            clear: Clear::InFault,
            spaces: Spaces::Shared,
        };
        let outcome = targets::on_sim(&target, &workload, &plan)?;
        let place = Place {
            target: "sim",
            machine,
            era,
            threads,
            cpus: threads,
            scale,
        };
        let run = record(&place, &outcome);
        table.rows.push(cells(published, row, &outcome, &run));
        runs.push(run);
        progress.step();
    }
    Ok(table)
}

fn head(published: &PublishedTable, era: &str, machine: &str, scale: u64) -> Table {
    let columns = [
        Column::number("threads", ""),
        Column::number("published fault/wsec", ""),
        Column::number("simulated fault/wsec", "").with_status(Status::Uncalibrated),
        Column::number("ratio", ""),
        Column::number("published flt/cpu/s", ""),
        Column::number("simulated flt/cpu/s", "").with_status(Status::Uncalibrated),
        Column::number("ratio", ""),
        Column::text("checks"),
    ];
    let mut table = Table::new(&format!("{}: {}", published.id, published.title), columns);
    table.footnotes.push(format!(
        "simulated: {era} on {machine}, scale 1/{scale}: minflt reproduce 2004{}",
        if scale == PUBLISHED / FULL {
            " --full"
        } else {
            ""
        }
    ));
    table
}

fn cells(published: &PublishedTable, row: usize, outcome: &Outcome, run: &Run) -> Vec<Cell> {
    let value = |column: &str| published.cell_at(row, column).and_then(|cell| cell.value);
    let text = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.0}"));
    let ratio = |ours: Option<f64>, theirs: Option<f64>| match (ours, theirs) {
        (Some(ours), Some(theirs)) => format!("{:.2}", ours / theirs),
        _ => "-".to_string(),
    };
    let (wall, cpu) = (value("fault/wsec"), value("flt/cpu/s"));
    let (our_wall, our_cpu) = (outcome.faults_per_second(), outcome.faults_per_cpu_second());
    [
        run.threads.to_string(),
        text(wall),
        text(our_wall),
        ratio(our_wall, wall),
        text(cpu),
        text(our_cpu),
        ratio(our_cpu, cpu),
        crate::rows::checks(run),
    ]
    .iter()
    .map(|text| Cell::from(text.as_str()))
    .collect()
}
