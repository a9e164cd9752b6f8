//! The page of the curves: tables, pictures, and the command that makes them.

use super::usl::Usl;
use super::{Chart, Curve, Rates, chart, shared, write};
use crate::args::Curves;
use crate::error::{Error, failed};
use crate::files::writable;
use crate::out::grouped;
use minflt_report::{Cell, Column, Status, Table, replace_generated};
use minflt_sim::MachineFile;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// A new page, where the folder has none.
const PAGE: &str = include_str!("page.md");
const BLOCK: &str = "curves";

/// How far the figures of a machine can be trusted.
pub(super) fn status(_machine: &MachineFile) -> Status {
    Status::Uncalibrated
}

/// A workload's table: a row for each count, a column for each era, and what limits.
pub(super) fn table(chart: &Chart, machine: &MachineFile) -> Table {
    let status = status(machine);
    let eras = chart.curves.iter();
    let number = |curve: &Curve| Column::number(&curve.era, "").with_status(status);
    let mut columns = vec![Column::number("threads", "")];
    columns.extend(eras.map(number));
    if !chart.cap.is_empty() {
        columns.push(Column::number("memory limit", ""));
    }
    let title = format!(
        "{}, {} on {}",
        chart.kind.name, chart.kind.unit, machine.name
    );
    let mut table = Table::new(&title, columns);
    let points = chart.curves.iter().flat_map(|curve| &curve.points);
    let counts: BTreeSet<u32> = points.map(|(threads, _)| *threads).collect();
    for threads in &counts {
        let mut row = vec![Cell::from(threads.to_string())];
        row.extend(chart.curves.iter().map(|curve| {
            let rates = at(&curve.points, *threads);
            Cell::from(rates.map_or(String::new(), range))
        }));
        if !chart.cap.is_empty() {
            let rate = at(&chart.cap, *threads);
            row.push(Cell::from(
                rate.map_or(String::new(), |rate| grouped(*rate)),
            ));
        }
        table.rows.push(row);
    }
    let most = counts.last().copied().unwrap_or(1);
    for curve in &chart.curves {
        table.footnotes.push(note(curve, most));
    }
    table
}

/// The point of a curve at so many threads.
fn at<T>(points: &[(u32, T)], threads: u32) -> Option<&T> {
    let found = points.iter().find(|(at, _)| *at == threads);
    found.map(|(_, point)| point)
}

/// What limits an era, and how its curve bends.
fn note(curve: &Curve, most: u32) -> String {
    let best = curve
        .points
        .iter()
        .max_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
    let peak = best.map_or(0, |(threads, _)| *threads);
    let limit = match curve.limit.is_empty() {
        true => String::new(),
        false => format!("; at {most} limited by {}", curve.limit),
    };
    let mut note = format!("{}: best at {peak}{limit}", curve.era);
    let medians: Vec<_> = curve
        .points
        .iter()
        .map(|(at, rates)| (*at, rates.median))
        .collect();
    if let Some(usl) = Usl::fit(&medians) {
        let peak = usl
            .peak()
            .map_or("none".into(), |peak| format!("{peak:.0}"));
        note += &format!(
            "; scalability law: serial {:.4}, pairs {:.6}, peak {peak}",
            usl.contention, usl.coherence
        );
    }
    note
}

/// The median, and where runs lie apart the least and the most.
pub(super) fn range(rates: &Rates) -> String {
    let [median, least, most] = [rates.median, rates.least, rates.most].map(grouped);
    if least == most {
        median
    } else {
        format!("{median} [{least}, {most}]")
    }
}

/// Writes the pictures and the page into `folder`; `left` runs were left out.
pub(super) fn write_all(
    folder: &Path,
    charts: &[Chart],
    machine: &MachineFile,
    args: &Curves,
    left: usize,
) -> Result<(), Error> {
    let mut body = format!(
        "Simulated, {}: a claim about a cost model. Machine: {} ({}), threads {}; medians of {} \
         runs [least, most] with different random seeds.\n\n```sh\n{}\n\
         ```\n",
        status(machine),
        machine.name,
        machine.title,
        args.threads,
        args.seeds,
        command(args, folder)
    );
    if left > 0 {
        body += &format!("\nThe budget of this run ended first: {left} runs are missing.\n");
    }
    for chart in charts {
        let name = chart.kind.name;
        let picture = folder.join("scaling").join(format!("{name}.svg"));
        write(&picture, &chart::draw(chart, &machine.name)?)?;
        body += &format!(
            "\n### {name}\n\n{}.\n\n![{name} by era](scaling/{name}.svg)\n\n{}",
            first_large(chart.kind.about),
            table(chart, machine).to_markdown()
        );
    }
    body += &format!("\n### Shared lines\n\n{}", shared::table()?.to_markdown());
    write_page(folder, |page| with_block(page, BLOCK, &body))
}

/// Changes the page in a folder.
pub(super) fn write_page(
    folder: &Path,
    change: impl FnOnce(&Path) -> Result<String, Error>,
) -> Result<(), Error> {
    let path = folder.join("scaling.md");
    write(&path, &change(&path)?)
}

/// Makes the folders, and tries whether the page that is there, if one is, has a place for the
/// tables.
pub(super) fn folders(folder: &Path) -> Result<(), Error> {
    let cannot = failed(format!("--out: cannot write into {}", folder.display()));
    fs::create_dir_all(folder.join("scaling")).map_err(|error| cannot(&error))?;
    let path = folder.join("scaling.md");
    writable("--out", Some(&path))?;
    with_block(&path, BLOCK, "").map(drop)
}

/// The page with something else in a block, or a new one.
pub(super) fn with_block(path: &Path, block: &str, body: &str) -> Result<String, Error> {
    let cannot = failed(format!("--out: {}", path.display()));
    let old = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => PAGE.to_owned(),
        old => old.map_err(|error| cannot(&error))?,
    };
    replace_generated(&old, block, body).map_err(|error| cannot(&error))
}

pub(super) fn first_large(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

/// The command that makes the page again.
fn command(args: &Curves, folder: &Path) -> String {
    let mut words = vec!["minflt curves".to_owned()];
    words.extend(args.workloads.iter().cloned());
    words.push(format!("--machine {}", args.machine));
    words.push(format!("--threads {}", args.threads));
    words.extend(args.era.as_ref().map(|era| format!("--era {era}")));
    words.push(format!("--seeds {}", args.seeds));
    words.push(format!("--out {}", folder.display()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::{Chart, Curve, KINDS, Rates};
    use super::{BLOCK, PAGE, grouped, table};
    use minflt_report::replace_generated;
    use minflt_sim::MachineFile;

    #[test]
    fn a_point_that_a_budget_left_out_is_an_empty_cell() {
        let curve = |era: &str, threads: &[u32]| Curve {
            era: era.into(),
            points: threads
                .iter()
                .map(|at| (*at, Rates::of(vec![f64::from(*at)]).expect("one")))
                .collect(),
            limit: String::new(),
        };
        let chart = Chart {
            kind: &KINDS[0],
            curves: vec![curve("a", &[1, 4]), curve("b", &[1, 2]), curve("c", &[])],
            cap: vec![(2, 20.0)],
        };
        let machine = MachineFile::shipped("next1024").expect("shipped");
        let table = table(&chart, &machine);
        let texts = |row: &Vec<minflt_report::Cell>| -> Vec<String> {
            row.iter().map(|cell| cell.text.clone()).collect()
        };
        let rows: Vec<_> = table.rows.iter().map(texts).collect();
        let expected = [
            ["1", "1", "1", "", ""],
            ["2", "", "2", "", "20"],
            ["4", "4", "", "", ""],
        ];
        assert_eq!(rows, expected);
        assert_eq!(table.footnotes[0], "a: best at 4");
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        let texts = [0.4, 999.0, 1000.0, 1234567.8].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,568"]);
    }

    #[test]
    fn a_new_page_has_a_place_for_the_tables() {
        assert!(replace_generated(PAGE, BLOCK, "x").is_ok());
    }
}
