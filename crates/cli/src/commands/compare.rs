//! `minflt compare`: two files of rows, a verdict a row.

use crate::args::Compare;
use crate::error::{Error, failed, usage};
use crate::out::{out, outln, table_text};
use crate::rows::saved;
use minflt_report::compare::{Change, Compared, LEAST_ROUNDS, compare, to_benchmarks};
use minflt_report::run::read_rows;
use minflt_report::{Cell, Column, Run, Table};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Runs the command.
pub(crate) fn run(args: &Compare) -> Result<(), Error> {
    let part = args.fail_over.as_deref().map(percent).transpose()?;
    let first = read(&args.first)?;
    let Some(second) = &args.second else {
        if !args.benchstat {
            return Err(usage("compare: give a second file, or --benchstat"));
        }
        out!("{}", to_benchmarks(&first));
        return Ok(());
    };
    if args.benchstat {
        return Err(usage(
            "--benchstat: writes the rows of one file; give one, and call it twice",
        ));
    }
    let second = read(second)?;
    let other = other_machine(&first, &second);
    if let Some(why) = other.as_ref().filter(|_| !args.across) {
        return Err(usage(format!("{why}; --across compares them all the same")));
    }
    let rows = compare(&first, &second);
    let mut table = table(&rows);
    table.footnotes.extend(other);
    out!("{}", table_text(&table));
    match part {
        None => Ok(()),
        Some(part) => judge(&rows, part),
    }
}

/// Fails where a row is worse by more than `part`, or is missing in the second file.
fn judge(rows: &[Compared], part: f64) -> Result<(), Error> {
    let worse = rows.iter().filter(|row| row.is_worse_by(part)).count();
    let gone = |row: &&Compared| row.change == Change::Missing && row.rounds[1].is_empty();
    let gone = rows.iter().filter(gone).count();
    let few = rows
        .iter()
        .filter(|row| row.change == Change::TooFew)
        .count();
    let percent = part * 100.0;
    if worse + gone > 0 {
        return Err(Error::Failed(format!(
            "{worse} of {} rows are worse by more than {percent}%; {gone} are missing in the second \
             file",
            rows.len()
        )));
    }
    if few > 0 {
        return Err(Error::Failed(format!(
            "{few} of {} rows have too few rounds to tell; run `bench` with --rounds {LEAST_ROUNDS} \
             or more",
            rows.len()
        )));
    }
    outln!("no row is worse by more than {percent}%");
    Ok(())
}

/// `5%` as 0.05.
fn percent(word: &str) -> Result<f64, Error> {
    let number = word.strip_suffix('%').and_then(|it| it.parse::<f64>().ok());
    let number = number.filter(|it| *it > 0.0 && *it < 100.0);
    number.map(|it| it / 100.0).ok_or_else(|| {
        usage(format!(
            "--fail-over: invalid share `{word}`: expected a percentage between 0% and 100%, such as \
             5%"
        ))
    })
}

/// The rows of a file, or of what `--save` kept under a name.
fn read(name: &str) -> Result<Vec<Run>, Error> {
    let kept = saved(name);
    let path = match Path::new(name).exists() || !kept.exists() {
        true => Path::new(name),
        false => &kept,
    };
    let file = File::open(path).map_err(|error| {
        let kept = kept.display();
        usage(format!(
            "{name}: {error}; neither this file nor {kept} can be read"
        ))
    })?;
    let runs = read_rows(BufReader::new(file)).map_err(|error| {
        let is_row = "; a line is a row as `bench --json` writes it";
        failed(path.display())(&format!("{error}{is_row}"))
    })?;
    if runs.is_empty() {
        return Err(usage(format!("{}: no rows to compare", path.display())));
    }
    Ok(runs)
}

/// Whether measured rows come from two machines.
fn other_machine(first: &[Run], second: &[Run]) -> Option<String> {
    let of = |runs: &[Run]| {
        let measured = runs
            .iter()
            .find(|run| !run.simulated && run.target != "linux");
        measured.map(|run| run.machine.clone())
    };
    let (first, second) = (of(first)?, of(second)?);
    (first != second).then(|| format!("measured on two machines: {first}, and {second}"))
}

fn table(rows: &[Compared]) -> Table {
    let columns = [
        Column::text("row"),
        Column::text("rate"),
        Column::number("first", ""),
        Column::number("second", ""),
        Column::number("ratio", ""),
        Column::text("95% interval"),
        Column::text("verdict"),
        Column::text("settings"),
    ];
    let mut table = Table::new("", columns);
    for row in rows {
        let key = &row.key;
        let names = [&key.workload, &key.target, &key.machine, &key.era];
        let names: Vec<_> = names
            .into_iter()
            .filter(|it| !it.is_empty())
            .cloned()
            .collect();
        let shown = |value: Option<f64>| match value {
            Some(value) if value < 100.0 => format!("{value:.3}"),
            Some(value) => format!("{value:.0}"),
            None => "-".to_owned(),
        };
        let [first, second] = row.medians().map(shown);
        let ratio = row
            .ratio
            .map_or("-".into(), |it| format!("{:.3}", it.ratio));
        let interval = row.ratio.and_then(|it| it.interval);
        let cells = [
            format!("{} x{}", names.join(" "), key.threads),
            key.rate.replace("_per_second", "/s"),
            first,
            second,
            ratio,
            interval.map_or("-".into(), |(low, high)| format!("{low:.3} to {high:.3}")),
            match (row.change, &row.rounds) {
                (Change::Missing, [a, _]) if a.is_empty() => "only in the second".into(),
                (Change::Missing, _) => "only in the first".into(),
                (Change::TooFew, [a, b]) => format!(
                    "too few rounds: {} and {}, {LEAST_ROUNDS} each are needed",
                    a.len(),
                    b.len()
                ),
                (change, _) => change.word().into(),
            },
            key.settings.clone(),
        ];
        table.rows.push(cells.map(Cell::from).into());
    }
    table.footnotes.push(
        "ratio: the second by the first, median of all quotients of their rounds; interval of the \
         Mann-Whitney test; simulated rows are exact"
            .into(),
    );
    table
}
