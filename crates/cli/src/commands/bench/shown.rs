//! What is printed of runs: one row each, or the median of some rounds.

use crate::commands::beside::Beside;
use crate::experiment::Ran;
use crate::out::outln;
use crate::rows::checks;
use minflt_report::{Cell, Column, Run, Status, Table};
use minflt_workload::{Columns, Outcome, pft};

/// The rate by which rounds are ordered: the workload's first, or that of faults.
fn rate(run: &Run) -> f64 {
    let own = run.rates.values().next().copied();
    own.or(run.faults_per_second).unwrap_or(0.0)
}

/// The round in the middle.
pub(super) fn median(rounds: &[Ran]) -> Option<Ran> {
    let mut order: Vec<&Ran> = rounds.iter().collect();
    order.sort_by(|a, b| rate(&a.run).total_cmp(&rate(&b.run)));
    order.get(order.len() / 2).map(|ran| (*ran).clone())
}

/// How far the rounds of a row lie apart.
pub(super) fn spread(rounds: &[Ran]) -> Option<String> {
    let rates = || rounds.iter().map(|ran| rate(&ran.run));
    let (least, most) = (
        rates().min_by(f64::total_cmp)?,
        rates().max_by(f64::total_cmp)?,
    );
    let run = &rounds.first()?.run;
    let name = run
        .rates
        .keys()
        .next()
        .map_or("faults_per_second", String::as_str);
    Some(format!(
        "{} {} x{}: {} rounds, {name} {least:.0} to {most:.0}",
        run.target,
        run.era,
        run.threads,
        rounds.len()
    ))
}

/// A row a run.
pub(super) fn table(done: &[Ran]) -> Table {
    let columns = [
        Column::text("on"),
        Column::text("era"),
        Column::number("threads", ""),
        Column::number("wall", "s"),
        Column::number("cpu", "s"),
        Column::number("faults", ""),
        Column::number("faults/s", ""),
        Column::text("other rates"),
        Column::text("checks"),
    ];
    let title = done
        .first()
        .map_or(String::new(), |ran| ran.run.workload.clone());
    let mut table = Table::new(&title, columns);
    for Ran { run, .. } in done {
        let status = if run.simulated {
            Status::Uncalibrated
        } else {
            Status::Measured
        };
        let rates: Vec<_> = run
            .rates
            .iter()
            .map(|(name, rate)| format!("{name} {rate:.0}"))
            .collect();
        let cells = [
            run.era.clone(),
            run.threads.to_string(),
            format!("{:.6}", run.seconds),
            format!("{:.6}", run.cpu_seconds),
            run.faults.to_string(),
            run.faults_per_second
                .map_or("-".into(), |rate| format!("{rate:.0}")),
            rates.join(", "),
            checks(run),
        ];
        let on = [Cell::with_status(&run.target, status)];
        let rest = cells.iter().map(|text| Cell::from(text.as_str()));
        table.rows.push(on.into_iter().chain(rest).collect());
    }
    if done.iter().any(|ran| ran.run.simulated) {
        table
            .footnotes
            .push("sim rows are simulated: a claim about a cost model".into());
    }
    table
}

/// What the original program prints, where it prints anything: rows under their title, each with
/// the published one that it is a run of; or lines under the run's name.
pub(super) fn originals(done: &[Ran], beside: Option<&Beside>) {
    let columns = |outcome: &'_ Outcome| outcome.columns.as_ref().and_then(Columns::header);
    if let Some(header) = done.iter().find_map(|ran| columns(&ran.outcome)) {
        outln!("\n{header}   (true decimals{})", caution(header));
    }
    for ran in done {
        let Ran { outcome, run } = ran;
        match &outcome.columns {
            Some(row) if row.header().is_some() => {
                outln!("{row}   {} {}", run.target, run.era);
                if let Some(published) = beside.and_then(|beside| beside.printed(ran)) {
                    outln!("{published}");
                }
            }
            Some(lines) => outln!(
                "\n{} {}, {} threads or jobs:\n{lines}",
                run.target,
                run.era,
                run.threads
            ),
            None => {}
        }
    }
}

/// What the original prints that is not as it says.
fn caution(header: &str) -> &'static str {
    if header == pft::HEADER {
        "; the original's Wall is not"
    } else {
        ""
    }
}
