//! The 2012 blocks: numa02 before and after, and where its time goes; SPECjbb as published.
//!
//! The posting has two kernels. We have four: its baseline without balancing; balancing with the
//! reverse map's lock exclusive, as it was before the patch; with the lock left out where that is
//! safe; and with it shared, as Linux did it instead.

use super::{Compared, Figures, Simulated, looked, text};
use crate::choice::{Named, era_list};
use crate::error::Error;
use crate::experiment::machine;
use crate::experiment::numa::{self, Cell as Ran};
use crate::parallel;
use crate::progress::Progress;
use minflt_mm::config::{AnonRmap, Balancing};
use minflt_report::published::Role;
use minflt_report::{Cell, Column, Posting, PublishedTable, Status, Table};
use minflt_sim::MachineFile;

const INTRO: &str = "numa02 on a model of its machine, 1/32 of the memory in 1/32 of the time. Two numbers are fitted to \
     the times of the last and of the fastest thread before the series; everything else is predicted, \
     all of what comes after it too. The series changed more than the lock: it brought balancing.";

/// The lock that the posting is about.
const LOCK: &str = "anon_vma lock";
const BEFORE: &str = "linux-3.7";
/// Balancing with the lock exclusive, left out, and shared.
const EXCLUSIVE: &str = "numa-balancing-2012";
const SKIPPED: &str = "anon-vma-2012";
const SHARED: &str = "anon-vma-2012 --anon-rmap shared";

/// Simulates the blocks.
pub(in super::super) fn simulate(
    posting: &Posting,
    progress: &Progress,
) -> Result<Simulated, Error> {
    let mut done = Simulated::new(INTRO);
    let ours = |table: &&PublishedTable| table.workload == "numa-mem";
    let Some(first) = posting.tables.iter().find(ours) else {
        return Ok(done);
    };
    let file = machine(first)?;
    let eras = eras()?;
    progress.says("numa02 in four eras");
    let cells = parallel::map(&eras, |era| numa::cell(first, era, &file))?;
    progress.step();
    let runs: Vec<_> = eras.iter().zip(&cells).collect();
    for published in &posting.tables {
        let table = match ours(&published) {
            true => block(published, &file, &runs, &mut done.figures),
            false => only_published(published),
        };
        done.tables.push(table);
    }
    done.tables.push(time_goes(&file, &runs));
    done.runs = cells.into_iter().map(|cell| cell.ran.run).collect();
    Ok(done)
}

fn eras() -> Result<Vec<Named>, Error> {
    let mut eras = era_list(&[BEFORE, EXCLUSIVE, SKIPPED, SKIPPED].join(","))?;
    if let Some(last) = eras.last_mut() {
        last.name = SHARED.into();
        last.config.anon_rmap = AnonRmap::Shared;
    }
    debug_assert!(eras.iter().all(|era| {
        let balances = era.config.balancing == Balancing::On;
        balances == (era.name != BEFORE)
    }));
    Ok(eras)
}

type Runs<'a> = [(&'a Named, &'a Ran)];

/// A published block beside ours, and beside the eras between and after.
fn block(
    published: &PublishedTable,
    file: &MachineFile,
    runs: &Runs<'_>,
    figures: &mut Figures,
) -> Table {
    let own = published.era.as_deref().unwrap_or_default();
    let others: &[&str] = match published.role {
        Role::Patched => &[EXCLUSIVE, SHARED],
        _ => &[],
    };
    let mut heads = vec![
        Column::text("quantity"),
        Column::text("unit"),
        Column::number("published", ""),
        Column::number(own, ""),
        Column::number("ratio", ""),
    ];
    heads.extend(
        others
            .iter()
            .map(|era| Column::number(era, "").with_status(status(published, 0, file.is_fitted()))),
    );
    let title = format!("{}: {}", published.id, published.title);
    let mut table = Table::new(&title, heads);
    let of = |era: &str, row: &str| {
        let found = runs.iter().find(|(named, _)| named.name == era);
        found.and_then(|(_, cell)| cell.figure(row))
    };
    for at in 0..published.rows.len() {
        let row = published.row_label(at);
        let unit = published.cell_at(at, "Unit").map(|it| it.printed.clone());
        let printed = published.cell_at(at, "Value").and_then(|it| it.value);
        let ours = of(own, &row);
        let status = status(published, at, file.is_fitted());
        if let Some(ours) = ours {
            figures.note(published, at, "Value", (ours, status));
        }
        let mut line = vec![Cell::from(row.as_str()), unit.unwrap_or_default().into()];
        line.extend(super::beside(printed, ours, status));
        line.extend(others.iter().map(|era| Cell::from(text(of(era, &row)))));
        table.rows.push(line);
        // What is only another word for one of these is not judged again.
        if JUDGED.contains(&row.as_str())
            && let (Some(published_value), Some(simulated)) = (printed, ours)
        {
            figures.judge(Compared {
                group: format!("2012 numa02 on {}", file.name),
                role: published.role,
                row,
                what: "numa02".into(),
                published: published_value,
                simulated,
                status,
            });
        }
    }
    table.footnotes.push(format!(
        "simulated on {} with 1 MiB for each thread and the times of balancing over {}, times the \
         scale: minflt reproduce 2012",
        file.name,
        numa::SCALE
    ));
    let shown =
        |(named, _): &&(&Named, &Ran)| named.name == own || others.contains(&named.name.as_str());
    let looks = looked(runs.iter().filter(shown).map(|(_, cell)| &cell.ran.run));
    table.footnotes.push(format!("checks of all runs: {looks}"));
    table
}

/// The rows from which the others follow.
const JUDGED: [&str; 4] = [
    "runtime/thread",
    "fastest (min) thread time",
    "elapsed (max) thread time",
    "spread",
];

/// What a figure is: what the options say is counted, of the rest the data of the posting know.
fn status(published: &PublishedTable, row: usize, is_fitted: bool) -> Status {
    match published.row_label(row).starts_with("data processed") {
        true => Status::Counted,
        false => published.simulated_status(row, "Value", is_fitted),
    }
}

/// A table that is not ours to run.
fn only_published(published: &PublishedTable) -> Table {
    let heads = [
        Column::text("instance"),
        Column::number("published", ""),
        Column::number("ours", "").with_status(published.status),
    ];
    let title = format!("{}: {}", published.id, published.title);
    let mut table = Table::new(&title, heads);
    for at in 0..published.rows.len() {
        let printed = published.cell_at(at, "Throughput");
        let printed = printed.map_or(String::new(), |it| it.printed.clone());
        let cells = [published.row_label(at), printed, "-".into()];
        table.rows.push(cells.map(Cell::from).into());
    }
    table.footnotes.push(published.status_note.clone());
    table
}

/// What balancing does in each era, and what the lock takes.
fn time_goes(file: &MachineFile, runs: &Runs<'_>) -> Table {
    let is = match file.is_fitted() {
        true => Status::Predicted,
        false => Status::Uncalibrated,
    };
    let simulated = |name: &str, unit: &str| Column::number(name, unit).with_status(is);
    let heads = [
        Column::text("era"),
        simulated("total", "GB/s"),
        simulated("over linux-3.7", ""),
        simulated("made to fault", "pages"),
        simulated("hinting faults", ""),
        simulated("of them local", ""),
        simulated("moved", "pages"),
        simulated("anon_vma lock", "of the time"),
        simulated("mmap_lock", "of the time"),
        simulated("nodes' memory", "of the time"),
    ];
    let mut table = Table::new("2012: what balancing does, and what the lock takes", heads);
    let speed = |cell: &Ran| cell.figure("GB/sec total");
    let before = runs.first().and_then(|(_, cell)| speed(cell));
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    for (named, cell) in runs {
        let over = match (speed(cell), before) {
            (Some(after), Some(before)) if before > 0.0 => format!("x{:.2}", after / before),
            _ => "-".into(),
        };
        let cells = [
            named.name.clone(),
            text(speed(cell)),
            over,
            cell.count("numa-pte-updates").to_string(),
            cell.count("numa-hint-faults").to_string(),
            cell.count("numa-hint-faults-local").to_string(),
            cell.count("numa-pages-migrated").to_string(),
            percent(cell.lock_share(LOCK)),
            percent(cell.lock_share("mmap_lock")),
            percent(cell.memory_share()),
        ];
        table.rows.push(cells.map(Cell::from).into());
    }
    table.footnotes.push(format!(
        "counts are those of the smaller run: each thread has 256 pages. Shares are of the threads' \
         time in their loops, simulated on {}: minflt reproduce 2012. Published: x3.08 with the series",
        file.name
    ));
    table
}
