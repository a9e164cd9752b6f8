//! Prints where simulated time went: tables of lines, locks and phases, and the bottleneck.

use minflt_report::{Cell, Column, Run, Table};
use minflt_sim::why::{Activity, Cause, Limit, LineRow, LockRow, PhaseRow, Why};
use minflt_workload::Outcome;
use serde_json::{Value, json};

/// Lines that are shown.
const TOP: usize = 10;

/// The bottleneck, in a few words.
pub(crate) fn limit(why: &Why) -> String {
    words(&why.limit())
}

fn words(limit: &Limit) -> String {
    match limit {
        Limit::Line(name, 1) => name.clone(),
        Limit::Line(name, lines) => format!("{name} ({lines} lines)"),
        Limit::Memory => "memory bandwidth".into(),
        Limit::Own(cause) => format!("nothing shared ({})", cause.name()),
    }
}

/// The bottleneck, whether by line transfers or lock waits, and the next one.
pub(crate) fn limit_in_full(why: &Why) -> String {
    let limit = why.limit();
    let Limit::Line(name, _) = &limit else {
        return words(&limit);
    };
    let line = why.lines.iter().find(|line| line.name == *name);
    let how = match line {
        Some(line) if line.spun + line.slept > line.queued + line.moved => "lock waits",
        _ => "line transfers",
    };
    let share = line.map_or(0, LineRow::time);
    format!(
        "{} ({how}: {} of the time); next: {}",
        words(&limit),
        percent(share, why.time()),
        words(&why.limit_beside(name))
    )
}

/// The names of the most expensive words.
pub(crate) fn names(why: &Why) -> String {
    let names: Vec<_> = why
        .lines
        .iter()
        .take(TOP)
        .map(|row| row.name.as_str())
        .collect();
    names.join(", ")
}

/// The operations that a run is divided by: its faults, or the workload's own where it has none.
pub(crate) fn operations(outcome: &Outcome) -> (&'static str, u64) {
    let faults: u64 = outcome.workers.iter().map(|worker| worker.faults).sum();
    let ops: u64 = outcome.workers.iter().map(|worker| worker.ops).sum();
    if faults >= ops && faults > 0 {
        ("fault", faults)
    } else {
        ("operation", ops.max(1))
    }
}

/// The rate that a run is known by: the workload's own, or faults per second.
pub(crate) fn rate(run: &Run) -> (String, f64) {
    let own = run.rates.iter().next();
    match own {
        Some((name, rate)) => (name.replace("_per_second", "/s"), *rate),
        None => ("faults/s".into(), run.faults_per_second.unwrap_or_default()),
    }
}

/// The same run with its limiting line free.
pub(crate) fn gone(name: &str, run: &Run, without: &Run, then: &Why) -> String {
    let ((unit, before), (_, after)) = (rate(run), rate(without));
    let next = match then.limit() {
        Limit::Line(same, _) if same == name => format!(
            "the lock itself limits, not its line; the next bottleneck is {}",
            words(&then.limit_beside(name))
        ),
        other => format!("the next bottleneck is {}", words(&other)),
    };
    format!(
        "with the line of {name} free: {after:.0} {unit} instead of {before:.0} (x{:.2}); {next}\n",
        after / before.max(f64::MIN_POSITIVE)
    )
}

/// The full report of one run.
pub(crate) fn text(why: &Why, title: &str, run: &Run, outcome: &Outcome) -> String {
    let ops = operations(outcome);
    let (unit, rate) = rate(run);
    let mut text = format!("{title}: {rate:.0} {unit}, limited by {}\n\n", limit(why));
    text += &lines(why, ops).to_text();
    text.push('\n');
    text += &locks(why, ops).to_text();
    text.push('\n');
    text += &phases(why, ops).to_text();
    let all: u64 = [&why.before, &why.within, &why.after]
        .into_iter()
        .flatten()
        .map(PhaseRow::time)
        .sum();
    let outside = |rows: &[PhaseRow]| {
        let time: u64 = rows.iter().map(PhaseRow::time).sum();
        let most = rows
            .first()
            .map_or_else(String::new, |row| format!(", most of it {}", row.activity));
        format!("{}{most}", percent(time, all))
    };
    text += &format!(
        "outside the measured windows: before {}; after {}; one thread alone at the end: {} of \
         the run\n",
        outside(&why.before),
        outside(&why.after),
        percent(why.alone, why.length)
    );
    let most: Vec<_> = why
        .shared
        .iter()
        .take(4)
        .map(|row| format!("{} {}", row.name, per(row.writes, ops.1)))
        .collect();
    text += &format!(
        "lines that several CPUs touch: {} writes per {}, to {} lines: {}\n",
        per(why.shared_writes, ops.1),
        ops.0,
        per(why.shared_written, ops.1),
        most.join(", ")
    );
    text
}

fn percent(part: u64, all: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / all.max(1) as f64)
}

fn per(count: u64, ops: u64) -> String {
    format!("{:.2}", count as f64 / ops.max(1) as f64)
}

fn row(cells: impl IntoIterator<Item = String>) -> Vec<Cell> {
    cells.into_iter().map(Cell::from).collect()
}

fn lines(why: &Why, ops: (&str, u64)) -> Table {
    let columns = [
        Column::text("line, by its costliest word"),
        Column::number("lines", ""),
        Column::number("writers", ""),
        Column::number("waiters", ""),
        Column::number("moves", &format!("per {}", ops.0)),
        Column::number("queued", ""),
        Column::number("moving", ""),
        Column::number("spun", ""),
        Column::number("slept", ""),
        Column::number("of the time", ""),
        Column::number("moving", "of the run"),
    ];
    let mut table = Table::new("Time by line", columns);
    let all = why.time();
    let show = |line: &LineRow| {
        row([
            line.name.clone(),
            line.lines.to_string(),
            line.writers.to_string(),
            line.waiters.to_string(),
            per(line.moves, ops.1),
            percent(line.queued, all),
            percent(line.moved, all),
            percent(line.spun, all),
            percent(line.slept, all),
            percent(line.time(), all),
            percent(line.busiest, why.length),
        ])
    };
    table.rows = why.lines.iter().take(TOP).map(show).collect();
    if let Some(first) = why.lines.first()
        && first.fields.len() > 1
    {
        let of = first.time();
        let others = first.fields.iter().take(5);
        let words: Vec<_> = others
            .map(|(name, time)| format!("{name} {}", percent(*time, of)))
            .collect();
        table
            .footnotes
            .push(format!("in the first: {}", words.join(", ")));
    }
    table
        .footnotes
        .push("shares are of all threads' time within the windows; waiters are CPUs".into());
    table
}

fn locks(why: &Why, ops: (&str, u64)) -> Table {
    let columns = [
        Column::text("lock"),
        Column::number("moves", &format!("per {}", ops.0)),
        Column::number("queued and moving", ""),
        Column::number("spun", ""),
        Column::number("slept", ""),
        Column::number("of the time", ""),
    ];
    let mut table = Table::new("Time by lock", columns);
    let all = why.time();
    let show = |lock: &LockRow| {
        row([
            lock.lock.to_owned(),
            per(lock.moves, ops.1),
            percent(lock.moving, all),
            percent(lock.spun, all),
            percent(lock.slept, all),
            percent(lock.time(), all),
        ])
    };
    table.rows = why.locks.iter().map(show).collect();
    table
}

fn phases(why: &Why, ops: (&str, u64)) -> Table {
    let columns = [
        Column::text("phase"),
        Column::number("time", &format!("ns per {}", ops.0)),
        Column::number("of the time", ""),
        Column::number("of it waiting", ""),
        Column::text("most of it"),
    ];
    let mut table = Table::new("Time by phase", columns);
    let all = why.time();
    let show = |phase: &PhaseRow| {
        let mut causes = Cause::ALL.map(|cause| (phase.by_cause[cause as usize], cause));
        causes.sort_by_key(|(time, cause)| (core::cmp::Reverse(*time), *cause));
        let most: Vec<_> = causes
            .iter()
            .take(2)
            .filter(|(time, _)| *time * 20 > phase.time())
            .map(|(time, cause)| format!("{} {}", cause.name(), percent(*time, phase.time())))
            .collect();
        row([
            phase.activity.to_string(),
            format!("{:.0}", phase.time() as f64 / 1000.0 / ops.1.max(1) as f64),
            percent(phase.time(), all),
            percent(phase.waited(), phase.time()),
            most.join(", "),
        ])
    };
    table.rows = why.within.iter().map(show).collect();
    table
}

/// The summary that goes into a run's record.
pub(crate) fn json(why: &Why, outcome: &Outcome) -> Value {
    let (unit, ops) = operations(outcome);
    let lines = why.lines.iter().take(TOP).map(|line| {
        json!({
            "line": line.name, "lines": line.lines, "writers": line.writers,
            "waiters": line.waiters, "moves": line.moves, "queued_ps": line.queued,
            "moved_ps": line.moved, "spun_ps": line.spun, "slept_ps": line.slept,
        })
    });
    let phases = why.within.iter().map(|phase| {
        json!({
            "phase": phase.activity.to_string(), "time_ps": phase.time(),
            "waited_ps": phase.waited(),
        })
    });
    json!({
        "limit": limit(why), "time_ps": why.time(), "per": unit, "operations": ops,
        "shared_writes": why.shared_writes, "shared_lines_written": why.shared_written,
        "lines": lines.collect::<Vec<_>>(), "phases": phases.collect::<Vec<_>>(),
    })
}

/// The words of an activity, from the outermost in.
pub(crate) fn frames(activity: Activity) -> Vec<String> {
    let text = activity.to_string();
    text.split(": ").map(str::to_owned).collect()
}
