//! One contended lock on two machines: measured, simulated, and a ticket lock by arithmetic.

use crate::error::{Error, failed};
use crate::targets;
use minflt_report::{Cell, Column, Status, Table};
use minflt_sim::locks::{Contest, Curves, Lock, contest, curves, ticket_rate};

/// How far a simulated figure may be from the measured one.
const BAR: f64 = 0.3;

/// Every measured point beside ours, and our own locks on the same machines.
pub(crate) fn table() -> Result<Table, Error> {
    let columns = [
        Column::text("machine"),
        Column::number("threads", ""),
        Column::text("lock"),
        Column::number("measured", "k/s"),
        Column::number("simulated", "k/s").with_status(Status::Fitted),
        Column::number("ratio", ""),
        Column::number("Markov", "k/s"),
    ];
    let mut table = Table::new("One lock, held for 1000 cycles", columns);
    let mut ratios = Vec::new();
    for curves in curves().map_err(|error| failed("published lock curves")(&error))? {
        for (at, threads) in curves.threads.iter().enumerate() {
            for lock in Lock::ALL {
                let (row, ratio) = row(&curves, at, *threads, lock)?;
                table.rows.push(row);
                ratios.extend(ratio);
            }
        }
        table
            .footnotes
            .push(format!("measured on {}: {}", curves.machine, curves.source));
    }
    table.footnotes.push(summary(&ratios));
    Ok(table)
}

fn row(
    curves: &Curves,
    at: usize,
    threads: u32,
    lock: Lock,
) -> Result<(Vec<Cell>, Option<f64>), Error> {
    let file = targets::machine("data/locks", &curves.machine)?;
    let what = Contest {
        threads,
        section_cycles: curves.section_cycles,
    };
    let simulated = contest(&file, lock, what).map_err(|error| failed(lock.name())(&error))?;
    let measured = curves
        .measured
        .get(lock.name())
        .and_then(|figures| figures.get(at));
    let ratio = measured.map(|measured| simulated / measured);
    let thousands = |rate: f64| format!("{:.0}", rate / 1000.0);
    let cells = [
        curves.machine.clone(),
        threads.to_string(),
        lock.name().to_string(),
        measured.map_or("-".into(), |rate| thousands(*rate)),
        thousands(simulated),
        ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
        match lock {
            Lock::Ticket => thousands(ticket_rate(&file, what)),
            _ => "-".into(),
        },
    ];
    let mut cells: Vec<_> = cells.iter().map(|text| Cell::from(text.as_str())).collect();
    if measured.is_none() {
        cells[4].status = Some(Status::Predicted);
    }
    Ok((cells, ratio))
}

fn summary(ratios: &[f64]) -> String {
    let within = |ratio: &&f64| (1.0 - BAR..=1.0 + BAR).contains(*ratio);
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln().abs()).sum();
    format!(
        "{} of {} measured points are met within {:.0}%; the geometric mean of what they are off \
         by is {:.0}%.",
        ratios.iter().filter(within).count(),
        ratios.len(),
        BAR * 100.0,
        ((logs / ratios.len().max(1) as f64).exp() - 1.0) * 100.0
    )
}
