//! The 2017 tables: ebizzy and kernbench on two simulated machines, and the load that has none.

use super::{Compared, Simulated, beside, looked, text};
use crate::choice::era_list;
use crate::error::{Error, failed};
use crate::experiment::{
    EBIZZY_RUNS, Ran, ebizzy_spread, era, kernbench, kernbench_figure, load, machine,
};
use crate::parallel;
use crate::progress::Progress;
use crate::targets;
use minflt_report::published::{Kind, Role};
use minflt_report::{Cell, Column, Posting, PublishedTable, Run, Status, Table};
use minflt_sim::MachineFile;
use minflt_workload::{Columns, Outcome};

const INTRO: &str = "ebizzy -mTRp with two threads a CPU, as the original starts them, over 100 seeds of its random \
     numbers; a synthetic build in kernbench's place, of which only the change that the series \
     brings can be compared; and the sentence about a database of 2 TB, of which only the \
     direction can. Only the unpatched average of ebizzy is fitted, one number a machine.";

/// The unpatched and the patched column of every table.
const KERNELS: [&str; 2] = ["4.13", "4.13-spf"];
const ERAS: [&str; 2] = ["linux-4.13", "spf-2017"];

/// Simulates all tables.
pub(in super::super) fn simulate(
    posting: &Posting,
    progress: &Progress,
) -> Result<Simulated, Error> {
    let mut done = Simulated::new(INTRO);
    let of = |workload: &'static str| {
        let tables = posting.tables.iter();
        tables.filter(move |table| table.workload == workload)
    };
    for published in of("ebizzy") {
        ebizzy(published, &mut done, progress)?;
    }
    let builds: Vec<_> = of("kernbench").collect();
    for pair in builds.chunks_exact(2) {
        both_loads(pair[0], pair[1], &mut done, progress)?;
    }
    done.tables.push(populate(&mut done.runs, progress)?);
    Ok(done)
}

/// The names of a table's two columns of figures.
fn columns_of(published: &PublishedTable) -> Vec<&str> {
    let numbers = published
        .columns
        .iter()
        .filter(|column| column.kind == Kind::Number);
    numbers.map(|column| column.name.as_str()).collect()
}

fn ebizzy(
    published: &PublishedTable,
    done: &mut Simulated,
    progress: &Progress,
) -> Result<(), Error> {
    let file = machine(published)?;
    let columns = columns_of(published);
    let mut spreads = Vec::new();
    let from = done.runs.len();
    for column in &columns {
        progress.says(&format!("{}: {column}", published.id));
        let (spread, ran) = ebizzy_spread(&era(published, column)?, &file, EBIZZY_RUNS)?;
        spreads.push(spread);
        done.runs.extend(ran);
        progress.step();
    }
    let mut heads = vec![Column::text("records/s")];
    for kernel in KERNELS {
        heads.push(Column::number(&format!("{kernel} published"), ""));
        heads.push(Column::number("simulated", ""));
        heads.push(Column::number("ratio", ""));
    }
    let mut table = Table::new(&format!("{}: {}", published.id, published.title), heads);
    for row in 0..published.rows.len() {
        let label = published.row_label(row);
        let mut cells = vec![Cell::from(label.as_str())];
        for (column, spread) in columns.iter().zip(&spreads) {
            let printed = published.cell_at(row, column).and_then(|cell| cell.value);
            let status = published.simulated_status(row, column, file.is_fitted());
            let ours = spread.of_row(&label);
            cells.extend(beside(printed, ours, status));
            // How far runs lie apart is printed and not judged: what made them differ is unknown.
            if let (Some(printed), Some(simulated), true) = (printed, ours, label == "Average") {
                done.compared.push(Compared {
                    group: format!("2017 ebizzy on {}", file.name),
                    role: published.role_of(column).unwrap_or(published.role),
                    row: label.clone(),
                    what: "records/s".into(),
                    published: printed,
                    simulated,
                    status,
                });
            }
        }
        table.rows.push(cells);
    }
    table.footnotes.push(format!(
        "simulated on {}, 20 ms of virtual time a run (scale 1/500), {EBIZZY_RUNS} seeds: minflt \
         reproduce 2017",
        file.name
    ));
    let looks = looked(done.runs[from..].iter());
    table.footnotes.push(format!("checks of all runs: {looks}"));
    done.tables.push(table);
    Ok(())
}

/// Half and optimal load of one machine, from the same runs.
fn both_loads(
    half: &PublishedTable,
    optimal: &PublishedTable,
    done: &mut Simulated,
    progress: &Progress,
) -> Result<(), Error> {
    let file = machine(half)?;
    let columns = columns_of(half);
    let eras: Vec<_> = columns
        .iter()
        .map(|column| era(half, column))
        .collect::<Result<_, _>>()?;
    progress.says(&format!("{} and the optimal load", half.id));
    let ran = parallel::map(&eras, |era| kernbench(half, optimal, era, &file))?;
    progress.step();
    let looks = looked(ran.iter().map(|ran| &ran.run));
    let outcomes: Vec<_> = ran.iter().map(|ran| &ran.outcome).collect();
    for (load, published) in [(0, half), (1, optimal)] {
        let table = changes(
            published,
            load,
            &outcomes,
            &file,
            &looks,
            &mut done.compared,
        );
        done.tables.push(table);
    }
    done.runs.extend(ran.into_iter().map(|ran| ran.run));
    Ok(())
}

/// What the series changed, published beside simulated, row by row.
fn changes(
    published: &PublishedTable,
    load: usize,
    outcomes: &[&Outcome],
    file: &MachineFile,
    looks: &str,
    compared: &mut Vec<Compared>,
) -> Table {
    let heads = [
        Column::text("row"),
        Column::number("4.13 published", ""),
        Column::number("4.13-spf published", ""),
        Column::number("change", ""),
        Column::number("4.13 simulated", "").with_status(Status::Predicted),
        Column::number("4.13-spf simulated", "").with_status(Status::Predicted),
        Column::number("change", ""),
    ];
    let mut table = Table::new(&format!("{}: {}", published.id, published.title), heads);
    let columns = columns_of(published);
    let change = |pair: [Option<f64>; 2]| match pair {
        [Some(from), Some(to)] if from != 0.0 => format!("{:+.1}%", (to / from - 1.0) * 100.0),
        _ => "-".to_string(),
    };
    for row in 0..published.rows.len() {
        let label = published.row_label(row);
        let printed = [0, 1].map(|at: usize| {
            let column = columns.get(at)?;
            published.cell_at(row, column)?.value
        });
        let ours = [0, 1].map(|at: usize| match &outcomes.get(at)?.columns {
            Some(Columns::Kernbench(all)) => kernbench_figure(all.loads.get(load)?, &label),
            _ => None,
        });
        if let ([Some(a), Some(b)], [Some(x), Some(y)]) = (printed, ours)
            && x > 0.0
        {
            compared.push(Compared {
                group: format!("2017 kernbench on {}: changes", file.name),
                role: Role::Patched,
                row: published.row_label(row),
                what: published.id.clone(),
                published: b / a,
                simulated: y / x,
                status: Status::Predicted,
            });
        }
        let cells = [
            label,
            text(printed[0]),
            text(printed[1]),
            change(printed),
            text(ours[0]),
            text(ours[1]),
            change(ours),
        ];
        table.rows.push(cells.map(Cell::from).into());
    }
    table.footnotes.push(format!(
        "simulated on {}: a synthetic build of 64 units, so only the changes can be compared: \
         minflt reproduce 2017",
        file.name
    ));
    table.footnotes.push(format!("checks of all runs: {looks}"));
    table
}

/// The load of the 752-CPU machine: faster with the series, says one sentence.
fn populate(runs: &mut Vec<Run>, progress: &Progress) -> Result<Table, Error> {
    let file = targets::machine("--machine", "power8-752")?;
    progress.says("load on power8-752");
    let eras = era_list(&ERAS.join(","))?;
    let ran = parallel::map(&eras, |era| load(era, &file))?;
    progress.step();
    let rate = |ran: &Ran| ran.outcome.faults_per_second();
    let [Some(before), Some(after)] = [0, 1].map(|at: usize| ran.get(at).and_then(rate)) else {
        return Err(failed("load on power8-752")(&"no time passed"));
    };
    let heads = [
        Column::text("a 2 TB database loads"),
        Column::number("4.13", "pages/s").with_status(Status::Uncalibrated),
        Column::number("4.13-spf", "pages/s").with_status(Status::Uncalibrated),
        Column::number("change", ""),
    ];
    let title = "2017: populating one address space on 752 CPUs, direction only";
    let mut table = Table::new(title, heads);
    let published = ["published (text)", "-", "-", "14% faster"];
    table.rows.push(published.map(Cell::from).into());
    let percent = format!("{:+.0}%", (after / before - 1.0) * 100.0);
    let ours = [
        "simulated".to_string(),
        text(Some(before)),
        text(Some(after)),
        percent,
    ];
    table.rows.push(ours.map(Cell::from).into());
    table.footnotes.push(format!(
        "simulated: minflt bench load --on sim --machine power8-752 --threads 752 --era {}",
        ERAS.join(",")
    ));
    let looks = looked(ran.iter().map(|ran| &ran.run));
    table
        .footnotes
        .push(format!("checks of both runs: {looks}"));
    runs.extend(ran.into_iter().map(|ran| ran.run));
    Ok(table)
}
