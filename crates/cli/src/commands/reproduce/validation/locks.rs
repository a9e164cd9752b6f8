//! One contended lock on published machines: measured, simulated, and a ticket lock by arithmetic.

use crate::error::{Error, failed};
use crate::targets;
use minflt_report::{Cell, Column, Status, Table};
use minflt_sim::locks::{Curves, Lock, contest, curves, ticket_rate};

/// How far a simulated figure may be from the measured one.
const BAR: f64 = 0.3;

/// What a lock gives with so many threads, acquisitions per second.
struct Point {
    machine: String,
    threads: u32,
    lock: Lock,
    measured: Option<f64>,
    simulated: f64,
    /// What a simulated figure is where one was measured.
    status: Status,
    /// By arithmetic, of a ticket lock.
    markov: Option<f64>,
}

/// Both tables: one line for each lock and machine, and every point.
pub(crate) fn tables() -> Result<[Table; 2], Error> {
    let mut points = Vec::new();
    let mut sources = Vec::new();
    for curves in curves().map_err(|error| failed("published lock curves")(&error))? {
        for (at, threads) in curves.threads.iter().enumerate() {
            for lock in curves.locks() {
                points.push(point(&curves, at, *threads, lock)?);
            }
        }
        let fitted = match curves.held_out {
            true => ", to which no number is fitted",
            false => "",
        };
        let Curves {
            machine, source, ..
        } = curves;
        sources.push(format!("measured on {machine}{fitted}: {source}"));
    }
    let (mut short, mut full) = (by_lock(&points), every(&points));
    short.footnotes.extend(sources.clone());
    full.footnotes.extend(sources);
    Ok([short, full])
}

fn point(curves: &Curves, at: usize, threads: u32, lock: Lock) -> Result<Point, Error> {
    let file = targets::machine("data/locks", &curves.machine)?;
    let what = curves.contest(threads);
    let simulated = contest(&file, lock, what).map_err(|error| failed(lock.name())(&error))?;
    let measured = curves.measured.get(lock.name());
    Ok(Point {
        machine: curves.machine.clone(),
        threads,
        lock,
        measured: measured.and_then(|figures| figures.get(at)).copied(),
        simulated,
        status: match curves.post_hoc {
            true => Status::PostHoc,
            false => Status::Uncalibrated,
        },
        markov: (lock == Lock::Ticket).then(|| ticket_rate(&file, what)),
    })
}

impl Point {
    fn ratio(&self) -> Option<f64> {
        Some(self.simulated / self.measured?)
    }
}

fn thousands(rate: Option<f64>) -> String {
    rate.map_or("-".into(), |rate| format!("{:.0}", rate / 1000.0))
}

/// The geometric mean of what ratios are off by, in percent.
fn off_by(ratios: &[f64]) -> String {
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln().abs()).sum();
    let mean = (logs / ratios.len().max(1) as f64).exp();
    format!("{:.0}%", (mean - 1.0) * 100.0)
}

fn within(ratios: &[f64]) -> usize {
    let near = |ratio: &&f64| (1.0 - BAR..=1.0 + BAR).contains(*ratio);
    ratios.iter().filter(near).count()
}

/// A line for each lock that was measured on a machine.
fn by_lock(points: &[Point]) -> Table {
    let columns = [
        Column::text("machine"),
        Column::text("lock"),
        Column::number("points", ""),
        Column::number("off by (geometric mean)", "").with_status(Status::PostHoc),
        Column::number("worst ratio", ""),
        Column::number("at threads", ""),
        Column::number("within 30%", ""),
    ];
    let mut table = Table::new("One lock, held for 1000 cycles, and one line", columns);
    let mut seen: Vec<(&str, Lock)> = Vec::new();
    for point in points.iter().filter(|it| it.measured.is_some()) {
        if seen.contains(&(&point.machine, point.lock)) {
            continue;
        }
        seen.push((&point.machine, point.lock));
        let same = |it: &&Point| it.machine == point.machine && it.lock == point.lock;
        let ours = points.iter().filter(same);
        let ours: Vec<(u32, f64)> = ours
            .filter_map(|it| Some((it.threads, it.ratio()?)))
            .collect();
        let ratios: Vec<f64> = ours.iter().map(|(_, ratio)| *ratio).collect();
        let far = |ratio: f64| ratio.ln().abs();
        let worst = ours.iter().max_by(|a, b| far(a.1).total_cmp(&far(b.1)));
        let (threads, ratio) = worst.copied().unwrap_or((0, 1.0));
        let row = [
            point.machine.clone(),
            point.lock.name().to_owned(),
            ratios.len().to_string(),
            off_by(&ratios),
            format!("{ratio:.2}"),
            threads.to_string(),
            within(&ratios).to_string(),
        ];
        let mut row = row.map(Cell::from);
        row[3].status = Some(point.status);
        table.rows.push(row.into());
    }
    let mut machines: Vec<&str> = points.iter().map(|it| it.machine.as_str()).collect();
    machines.dedup();
    for machine in machines {
        let ours = points.iter().filter(|it| it.machine == machine);
        let ratios: Vec<f64> = ours.filter_map(Point::ratio).collect();
        table.footnotes.push(format!(
            "{machine}: {} of {} measured points are met within {:.0}%; the geometric mean of what \
             they are off by is {}",
            within(&ratios),
            ratios.len(),
            BAR * 100.0,
            off_by(&ratios)
        ));
    }
    table.footnotes.push(
        "How often the nearest goes first, and how long a last cache is busy, were chosen by hand \
         with the curves of ivb-ep40 and hsw-ex96 in sight; for wsm-ex8 two rules were, and no \
         number; for skx448, whose threads do nothing inside and nothing between, none was"
            .into(),
    );
    table
}

/// Every point, and our own locks on the same machines.
fn every(points: &[Point]) -> Table {
    let columns = [
        Column::text("machine"),
        Column::number("threads", ""),
        Column::text("lock"),
        Column::number("measured", "k/s"),
        Column::number("simulated", "k/s").with_status(Status::PostHoc),
        Column::number("ratio", ""),
        Column::number("Markov", "k/s"),
    ];
    let mut table = Table::new(
        "One lock, held for 1000 cycles, and one line: every point",
        columns,
    );
    for point in points {
        let simulated = thousands(Some(point.simulated));
        table.rows.push(vec![
            point.machine.as_str().into(),
            point.threads.to_string().into(),
            point.lock.name().into(),
            thousands(point.measured).into(),
            Cell::with_status(
                &simulated,
                match point.measured {
                    Some(_) => point.status,
                    None => Status::Predicted,
                },
            ),
            point
                .ratio()
                .map_or("-".into(), |ratio| format!("{ratio:.2}"))
                .into(),
            thousands(point.markov).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{Point, by_lock};
    use minflt_report::Status;
    use minflt_sim::locks::Lock;

    #[test]
    fn a_line_holds_the_mean_and_the_worst_of_a_lock() {
        let point = |threads, lock, measured, simulated| Point {
            machine: "m".into(),
            threads,
            lock,
            measured,
            simulated,
            status: Status::PostHoc,
            markov: None,
        };
        let points = [
            point(1, Lock::Ticket, Some(100.0), 200.0),
            point(2, Lock::Ticket, Some(100.0), 50.0),
            point(4, Lock::Ticket, Some(100.0), 25.0),
            point(4, Lock::Mcs, Some(100.0), 110.0),
            point(4, Lock::Spin, None, 1.0),
        ];
        let table = by_lock(&points);
        let rows: Vec<String> = table
            .rows
            .iter()
            .map(|row| {
                row.iter()
                    .map(|it| it.text.as_str())
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        assert_eq!(rows, ["m ticket 3 152% 0.25 4 0", "m mcs 1 10% 1.10 4 1"]);
        assert!(
            table.footnotes[0].starts_with("m: 1 of 4 measured"),
            "{table:?}"
        );
    }
}
