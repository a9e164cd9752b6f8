//! The proof row of 2014: loads from a file that is in the page cache, one page a fault and
//! sixteen.

use super::rounds::{Figure, rule};
use super::{
    Load, MEASURED, Measured, Part, RAM, REPRODUCED, ROUNDS, Rate, Side, alternate, gains,
    noise_note,
};
use crate::choice::era_list;
use crate::error::{Error, usage};
use crate::machine;
use crate::progress::Progress;
use crate::rows::checks;
use crate::targets;
use minflt_report::{Cell, Column, Run, Table};
use minflt_workload::Workload;

/// Its posting's place in what `measure` is asked for.
pub(super) const POSTING: usize = 2;

pub(super) const TITLE: &str = "Loads from a file in the page cache (2014)";
const ERAS: &str = "linux-3.14,fault-around-2014";
/// One such run each.
pub(super) const COMMANDS: [&str; 3] = [
    "minflt bench file-seq --on host,linux --threads 1,2 --era linux-3.14,fault-around-2014 -- \
     --size 256M",
    "minflt bench file-sparse --on host,linux --threads 1 --era linux-3.14,fault-around-2014 -- \
     --size 256M --stride 64K",
    "minflt bench file-sparse --on host,linux --threads 1 --era linux-3.14,fault-around-2014 -- \
     --size 256M",
];

/// What is measured of each side: the workload, its options, and the threads.
const CELLS: [(&str, &[&str], u32); 4] = [
    ("file-seq", &SIZE, 1),
    ("file-seq", &SIZE, 2),
    // A window of order 4.
    ("file-sparse", &["--size", "256M", "--stride", "64K"], 1),
    ("file-sparse", &SIZE, 1),
];
const SIZE: [&str; 2] = ["--size", "256M"];

/// A cell's workload.
fn workload(name: &str, options: &[&str]) -> Result<Workload, Error> {
    let options: Vec<String> = options.iter().map(|it| (*it).to_owned()).collect();
    Workload::parse(name, &options).map_err(|error| usage(error.to_string()))
}

/// Measures it.
pub(super) fn measure(progress: &Progress) -> Result<Part, Error> {
    let first = workload(CELLS[0].0, CELLS[0].1)?;
    let mut sides = Vec::new();
    for named in era_list(ERAS)? {
        let target = targets::host(&named, &first, 2, RAM, 0)?;
        sides.push(Side::Host(named, target));
    }
    sides.push(Side::linux()?);
    let what: Result<Vec<Load>, Error> = CELLS
        .iter()
        .map(|(name, options, threads)| Ok((workload(name, options)?, *threads)))
        .collect();
    let all = alternate(progress, TITLE, &sides, &what?, ns_per_page)?;
    let rate = Rate {
        unit: "ns per page",
        less: true,
        at: 0,
        of: &ns_per_page,
    };
    let (lines, gains) = gains("file-seq", &sides, &all, &[rate]);
    let table = table(&sides, &all);
    let rounds = all.into_iter().flat_map(|it| it.cells).flatten();
    Ok(Part {
        posting: REPRODUCED[POSTING].into(),
        table,
        runs: rounds.map(|round| round.run).collect(),
        lines,
        gains,
    })
}

/// Nanoseconds that a thread took for each page it loaded from.
fn ns_per_page(run: &Run) -> f64 {
    let rate = run.rates.get("pages_per_second").copied();
    rate.map_or(0.0, |rate| 1e9 * f64::from(run.threads) / rate)
}

/// The cost of each extra page that fault-around mapped, sparse rounds of `after` against
/// those of `before`.
fn page_more<'a>(
    before: impl Iterator<Item = &'a Run>,
    after: impl Iterator<Item = &'a Run>,
) -> Option<Figure> {
    let pages = |run: &Run| {
        let around = run.events.get("fault-around-mapped").copied()?;
        (run.faults > 0 && around > 0).then(|| around as f64 / run.faults as f64)
    };
    let more = |(before, after): (&Run, &Run)| {
        Some((ns_per_page(after) - ns_per_page(before)) / pages(after)?)
    };
    let all: Option<Vec<f64>> = before.zip(after).map(more).collect();
    all.filter(|all| !all.is_empty()).map(Figure::of)
}

fn table(sides: &[Side], all: &[Measured]) -> Table {
    let number = |name: &str| Column::number(name, "").with_status(MEASURED);
    let columns = [
        Column::text("era"),
        number("sequential: faults per page"),
        number("ns per page"),
        number("2 threads, ns per page"),
        number("adjacent windows: ns per load"),
        number("one extra page, ns"),
        number("one window per table: ns per load"),
        number("one extra page, one window per table, ns"),
        Column::text("checks"),
    ];
    let mut table = Table::new(TITLE, columns);
    for (side, measured) in sides.iter().zip(all) {
        let ns = |at: usize| measured.figure(at, ns_per_page).shown(0);
        let pages = |run: &Run| {
            run.rates
                .get("pages_per_second")
                .map(|rate| rate * run.seconds)
        };
        let faults = |run: &Run| pages(run).map_or(0.0, |pages| run.faults as f64 / pages);
        let more = |at: usize| {
            let more = page_more(all.first()?.runs(at), measured.runs(at))?;
            Some(more.shown(1))
        };
        let more = |at| more(at).unwrap_or_else(|| "-".into());
        let numbers = [
            format!("{:.4}", measured.figure(0, faults).median),
            ns(0),
            ns(1),
            ns(2),
            more(2),
            ns(3),
            more(3),
        ];
        let mut row = vec![Cell::from(side.named().name.as_str())];
        row.extend(numbers.iter().map(|text| measured.cell(text)));
        row.push(measured.runs(3).last().map_or(String::new(), checks).into());
        table.rows.push(row);
    }
    table
        .footnotes
        .push(format!("measured on {}", machine::line()));
    table.footnotes.push(format!(
        "{}; one extra page: the cost of each page that fault-around maps in addition, unused: with \
         adjacent windows of 16 pages, and with one window per page table",
        rule(ROUNDS)
    ));
    table.footnotes.extend(noise_note(sides, all));
    table.footnotes.push(linux_maps(all));
    table
        .footnotes
        .push(format!("one such run each: {}", COMMANDS.join("; ")));
    table
}

/// What is known of the kernel's own setting, which is left as it is.
fn linux_maps(all: &[Measured]) -> String {
    let last = all.last().and_then(|linux| linux.runs(0).last());
    let bytes = last.and_then(|run| run.params.get("fault_around_bytes"));
    let bytes = bytes.map_or("unknown".into(), |bytes| match bytes.as_u64() {
        Some(bytes) => bytes.to_string(),
        None => "unknown to this user".into(),
    });
    format!(
        "our rows run on a software MMU in user space; Linux's include the processor's trap and \
         everything else a real kernel does, on a file in memory; its fault_around_bytes: {bytes}"
    )
}

#[cfg(test)]
mod tests {
    use super::page_more;
    use minflt_report::Run;
    use minflt_report::run::Timing;

    #[test]
    fn what_a_page_more_takes_is_the_difference_over_the_pages() {
        let run = |ns_per_page: f64, around: u64| {
            let timing = Timing {
                faults: 100,
                ..Timing::default()
            };
            let mut run = Run::simulated("file-sparse", timing);
            run.rates
                .insert("pages_per_second".into(), 1e9 / ns_per_page);
            if around > 0 {
                run.events.insert("fault-around-mapped".into(), around);
            }
            run
        };
        let before = [run(500.0, 0), run(700.0, 0), run(500.0, 0)];
        let after = [run(800.0, 1500), run(850.0, 1500), run(950.0, 1500)];
        let more = page_more(before.iter(), after.iter()).expect("pages were mapped");
        assert!((more.median - 20.0).abs() < 1e-6, "{more:?}");
        assert_eq!(page_more(after.iter(), before.iter()), None);
        assert_eq!(page_more([].iter(), [].iter()), None);
    }
}
