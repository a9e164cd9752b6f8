//! The curves that the docs hold, as figures again: half an hour of simulation is not made anew for
//! each page.

use minflt_report::picture::{Curves, Series};

/// What `minflt curves --out docs` wrote last.
const DOCS: &str = include_str!("../../../../../docs/scaling.md");

/// The command that made them.
pub(crate) fn command() -> &'static str {
    let mut lines = DOCS.lines();
    lines
        .find(|line| line.starts_with("minflt curves "))
        .unwrap_or_default()
}

/// The curves, a chart for each workload.
pub(crate) fn charts() -> Vec<Curves> {
    let mut charts = Vec::new();
    let mut lines = DOCS.lines();
    while let Some(line) = lines.next() {
        // `**pft, faults/s on next1024**`, then a table.
        let title = line.strip_prefix("**").and_then(|it| it.strip_suffix("**"));
        let Some((workload, unit)) = title.and_then(|title| title.split_once(", ")) else {
            continue;
        };
        let rows: Vec<Vec<&str>> = lines
            .by_ref()
            .skip_while(|line| line.is_empty())
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        charts.extend(chart(workload, unit, &rows));
    }
    charts
}

/// A table of a row for each count and a column for each era.
fn chart(workload: &str, unit: &str, rows: &[Vec<&str>]) -> Option<Curves> {
    let [heads, _, figures @ ..] = rows else {
        return None;
    };
    let number = |row: &Vec<&str>, at: usize| -> Option<f64> {
        let median = row.get(at)?.split(' ').next()?;
        median.replace(',', "").parse().ok().filter(|it| *it > 0.0)
    };
    let counts: Option<Vec<f64>> = figures.iter().map(|row| number(row, 0)).collect();
    let series = heads.iter().enumerate().skip(1).map(|(at, head)| Series {
        name: head.split(" [").next().unwrap_or(head).to_owned(),
        rates: figures.iter().map(|row| number(row, at)).collect(),
    });
    Some(Curves {
        title: workload.to_owned(),
        unit: unit.to_owned(),
        counts: counts?,
        series: series.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::{charts, command};
    use crate::args::{Args, Command};
    use clap::Parser;

    #[test]
    fn all_curves_of_the_docs_are_read() {
        let charts = charts();
        let names: Vec<_> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(names, ["pft", "page-fault1", "ebizzy", "mmap1"]);
        for chart in &charts {
            assert_eq!(chart.counts.last(), Some(&1024.0), "{}", chart.title);
            let eras = ["linux-2.6.10", "linux-4.13", "spf-2017", "linux-6.15"];
            for era in eras {
                let found = chart.series.iter().find(|series| series.name == era);
                let rates = &found.expect(era).rates;
                assert_eq!(rates.len(), chart.counts.len());
                assert!(rates.iter().all(Option::is_some), "{} {era}", chart.title);
            }
        }
        let args = Args::try_parse_from(command().split_whitespace()).expect("a command");
        assert!(matches!(args.command, Command::Curves(_)));
    }
}
