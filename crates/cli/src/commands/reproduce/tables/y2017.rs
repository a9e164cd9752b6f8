//! The 2017 tables: ebizzy and kernbench on two simulated machines, and the load that has none.

use super::{Compared, Figures, HELD_OUT, Simulated, beside, looked, text};
use crate::choice::era_list;
use crate::error::{Error, failed};
use crate::experiment::{
    Ran, ebizzy, ebizzy_ns, ebizzy_rate, era, kernbench, kernbench_figure, load, machine,
};
use crate::parallel;
use crate::progress::Progress;
use crate::targets;
use minflt_report::published::Kind;
use minflt_report::{Cell, Column, Posting, PublishedTable, Run, Status, Table};
use minflt_sim::MachineFile;
use minflt_workload::{Columns, Outcome, Param};

const INTRO: &str = "ebizzy with the generator that the covers' counts of faults speak for, so that a record of -R is one \
     page, and with two threads a CPU, as the original starts them; the same and -mTt for the other versions of the \
     series that the author posted, to which nothing is fitted; a synthetic build in kernbench's place, of which changes \
     and shares can be compared; and the sentence about a database of 2 TB, of which only the direction can. Only the \
     unpatched average of ebizzy is fitted, one number a machine.";

/// The unpatched and the patched column of every table.
const KERNELS: [&str; 2] = ["4.13", "4.13-spf"];
const ERAS: [&str; 2] = ["linux-4.13", "spf-2017"];

/// Cells of ebizzy that are runs of their own, the loads of two machines, and the database.
pub(in super::super) const STEPS: u64 = 2 * (2 + 5) + 2 + 1;

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
    ebizzies(posting, &mut done, progress)?;
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

/// The tables of ebizzy, those that are held out last.
fn ebizzy_tables(posting: &Posting) -> impl Iterator<Item = &PublishedTable> {
    let is = |table: &&PublishedTable| table.workload == "ebizzy";
    let posted = posting.tables.iter().filter(is);
    posted.chain(posting.held_out.iter().filter(is))
}

/// Whether two tables' cells are one run: the same program on the same machine.
fn same_run(a: &PublishedTable, b: &PublishedTable) -> bool {
    a.params == b.params && a.preset == b.preset
}

/// The tables whose cells are runs of their own.
fn distinct(posting: &Posting) -> Vec<&PublishedTable> {
    let mut tables: Vec<&PublishedTable> = Vec::new();
    for table in ebizzy_tables(posting) {
        if !tables.iter().any(|known| same_run(known, table)) {
            tables.push(table);
        }
    }
    tables
}

fn ebizzies(posting: &Posting, done: &mut Simulated, progress: &Progress) -> Result<(), Error> {
    let distinct = distinct(posting);
    let mut jobs = Vec::new();
    for (at, published) in distinct.iter().enumerate() {
        let columns = columns_of(published).into_iter();
        jobs.extend(columns.map(|column| (at, column)));
    }
    let ran = parallel::map(&jobs, |(at, column)| {
        let published = distinct[*at];
        progress.says(&format!("{}: {column}", published.id));
        let ran = ebizzy(published, &era(published, column)?, &machine(published)?);
        progress.step();
        ran
    })?;
    for published in ebizzy_tables(posting) {
        let of = |at: usize| same_run(distinct[at], published);
        let ours = jobs.iter().zip(&ran).filter(|((at, _), _)| of(*at));
        let ours: Vec<&Ran> = ours.map(|(_, ran)| ran).collect();
        let held_out = posting.held_out.iter().any(|it| it.id == published.id);
        beside_ours(published, held_out, &ours, done)?;
    }
    done.runs.extend(ran.into_iter().map(|ran| ran.run));
    Ok(())
}

/// A table of ebizzy beside ours, a run for each of its columns. Of the posting's tables only the
/// average has one; of the others every row is one.
fn beside_ours(
    published: &PublishedTable,
    held_out: bool,
    ran: &[&Ran],
    done: &mut Simulated,
) -> Result<(), Error> {
    let file = machine(published)?;
    let columns = columns_of(published);
    let mut heads = vec![Column::text("records/s")];
    let kernels = match held_out {
        true => ["base", "series"],
        false => KERNELS,
    };
    for kernel in kernels {
        heads.push(Column::number(&format!("{kernel} published"), ""));
        heads.push(Column::number("simulated", ""));
        heads.push(Column::number("ratio", ""));
    }
    let mut table = Table::new(&format!("{}: {}", published.id, published.title), heads);
    for row in 0..published.rows.len() {
        let label = published.row_label(row);
        let mut cells = vec![Cell::from(label.as_str())];
        for (column, ran) in columns.iter().zip(ran) {
            let printed = published.cell_at(row, column).and_then(|cell| cell.value);
            let status = published.simulated_status(row, column, file.is_fitted());
            let averages = held_out || label == "Average";
            let ours = ebizzy_rate(ran).filter(|_| averages);
            match averages {
                true => cells.extend(beside(printed, ours, status)),
                false => cells.extend([text(printed).into(), "-".into(), "-".into()]),
            }
            if let (Some(printed), Some(simulated)) = (printed, ours) {
                done.figures
                    .note(published, row, column, (simulated, status));
                done.figures.judge(Compared {
                    group: match held_out {
                        true => format!("2017 {HELD_OUT}"),
                        false => format!("2017 ebizzy on {}", file.name),
                    },
                    role: published.role_of(column).unwrap_or(published.role),
                    row: label.clone(),
                    what: match held_out {
                        true => published.id.clone(),
                        false => "records/s".into(),
                    },
                    published: printed,
                    simulated,
                    status,
                });
            }
        }
        table.rows.push(cells);
    }
    let cpus = ran.first().map_or(file.cpus(), |ran| ran.run.cpus);
    let ms = ebizzy_ns(cpus) / 1_000_000;
    let on = match cpus.cmp(&file.cpus()) {
        core::cmp::Ordering::Less => format!("the first {cpus} CPUs of {}", file.name),
        core::cmp::Ordering::Equal => file.name.clone(),
        core::cmp::Ordering::Greater => format!("{} extended to {cpus} CPUs", file.name),
    };
    table.footnotes.push(format!(
        "simulated on {on}, {ms} ms of virtual time where the original ran for 10 s; nothing that is \
         drawn matters, so one run: minflt reproduce 2017"
    ));
    table.footnotes.extend(published.notes.iter().cloned());
    let looks = looked(ran.iter().map(|ran| &ran.run));
    table.footnotes.push(format!("checks of the runs: {looks}"));
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
        let table = changes(published, load, &outcomes, &file, &looks, &mut done.figures);
        done.tables.push(table);
    }
    done.runs.extend(ran.into_iter().map(|ran| ran.run));
    Ok(())
}

/// A figure of a build that says something where another program is built, with all rows averaged
/// over the same runs.
struct Share {
    name: &'static str,
    /// What of the processors' time: a row, and what its value over that time is multiplied by.
    of: (&'static str, f64),
}

const SHARES: [Share; 3] = [
    Share {
        name: "System time, percent of User + System",
        of: ("System Time", 100.0),
    },
    Share {
        name: "Context switches per CPU second",
        of: ("Context Switches", 1.0),
    },
    Share {
        name: "Voluntary switches per CPU second",
        of: ("Sleeps", 1.0),
    },
];

impl Share {
    fn of(&self, row: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let cpu = row("User Time")? + row("System Time")?;
        let (name, times) = self.of;
        (cpu > 0.0).then_some(row(name)? / cpu * times)
    }
}

/// What the series changed, published beside simulated, row by row, and what can miss.
fn changes(
    published: &PublishedTable,
    load: usize,
    outcomes: &[&Outcome],
    file: &MachineFile,
    looks: &str,
    figures: &mut Figures,
) -> Table {
    let columns = columns_of(published);
    let statuses = |label: &str| {
        let row = published.row_labels().position(|it| it == label);
        let row = row.unwrap_or(published.rows.len());
        [0, 1].map(|at: usize| {
            let column = columns.get(at).copied().unwrap_or_default();
            published.simulated_status(row, column, file.is_fitted())
        })
    };
    let [before, after] = statuses(&published.row_label(0));
    let heads = [
        Column::text("row"),
        Column::number("4.13 published", ""),
        Column::number("4.13-spf published", ""),
        Column::number("change", ""),
        Column::number("4.13 simulated", "").with_status(before),
        Column::number("4.13-spf simulated", "").with_status(after),
        Column::number("change", ""),
    ];
    let mut table = Table::new(&format!("{}: {}", published.id, published.title), heads);
    let figure = |at: usize, row: &str| match &outcomes.get(at)?.columns {
        Some(Columns::Kernbench(all)) => kernbench_figure(all.loads.get(load)?, row),
        _ => None,
    };
    for row in 0..published.rows.len() {
        let label = published.row_label(row);
        let printed = [0, 1].map(|at: usize| {
            let column = columns.get(at)?;
            published.cell_at(row, column)?.value
        });
        let ours = [0, 1].map(|at: usize| figure(at, &label));
        let cells = both_kernels(&label, printed, ours, statuses(&label));
        table.rows.push(cells);
    }
    for share in SHARES {
        let printed = [0, 1].map(|at: usize| {
            let column = columns.get(at)?;
            share.of(|row| published.value(row, column))
        });
        let ours = [0, 1].map(|at: usize| share.of(|row| figure(at, row)));
        let statuses = statuses(share.of.0);
        for ((at, column), status) in columns.iter().enumerate().zip(statuses) {
            if let (Some(published_value), Some(simulated)) = (printed[at], ours[at]) {
                figures.judge(Compared {
                    group: format!("2017 kernbench on {}", file.name),
                    role: published.role_of(column).unwrap_or(published.role),
                    row: share.name.to_owned(),
                    what: published.id.clone(),
                    published: published_value,
                    simulated,
                    status,
                });
            }
        }
        table
            .rows
            .push(both_kernels(share.name, printed, ours, statuses));
    }
    let units = match outcomes.first().and_then(|it| it.params.get("units")) {
        Some(Param::Number(units)) => *units,
        _ => 0,
    };
    table.footnotes.push(format!(
        "simulated on {}: a synthetic build of {units} units, so changes and the last three rows can be \
         compared, and these are judged (that nothing changes would always pass): minflt reproduce 2017",
        file.name
    ));
    table.footnotes.push(format!("checks of all runs: {looks}"));
    table
}

/// A row of both kernels, published and simulated, and what changes between them.
fn both_kernels(
    label: &str,
    printed: [Option<f64>; 2],
    ours: [Option<f64>; 2],
    statuses: [Status; 2],
) -> Vec<Cell> {
    let change = |pair: [Option<f64>; 2]| match pair {
        [Some(from), Some(to)] if from != 0.0 => format!("{:+.1}%", (to / from - 1.0) * 100.0),
        _ => "-".to_string(),
    };
    let mut cells = vec![Cell::from(label)];
    cells.extend([text(printed[0]), text(printed[1]), change(printed)].map(Cell::from));
    let with_status = |at: usize| Cell::with_status(&text(ours[at]), statuses[at]);
    cells.extend([with_status(0), with_status(1), Cell::from(change(ours))]);
    cells
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

#[cfg(test)]
mod tests {
    use super::{SHARES, STEPS, distinct, ebizzy_tables};
    use minflt_report::postings;

    #[test]
    fn tables_of_one_program_on_one_machine_share_their_runs() {
        let all = postings().expect("readable");
        let posting = all.iter().find(|it| it.id == "2017").expect("there");
        assert_eq!(ebizzy_tables(posting).count(), 2 + 7);
        let ids: Vec<&str> = distinct(posting).iter().map(|it| it.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "2017/ebizzy-x86",
                "2017/ebizzy-power8",
                "2017/held-out-power8-1024",
                "2017/held-out-whole-x86",
                "2017/held-out-whole-power8",
                "2017/held-out-whole-x86-24",
                "2017/held-out-whole-power8-1024",
            ]
        );
        assert_eq!(2 * ids.len() as u64 + 2 + 1, STEPS);
    }

    /// 202.982 of 1083.11 + 202.982, and 46789 over the same.
    #[test]
    fn shares_of_a_published_build() {
        let all = postings().expect("readable");
        let mut tables = all.iter().flat_map(|it| &it.tables);
        let half = tables.find(|it| it.id == "2017/kernbench-x86-half");
        let half = half.expect("there");
        let share = |at: usize| SHARES[at].of(|row| half.value(row, "4.13.0-rc3"));
        let rounded = |share: Option<f64>| format!("{:.2}", share.expect("has one"));
        assert_eq!(
            [0, 1, 2].map(share).map(rounded),
            ["15.78", "36.38", "65.21"]
        );
    }
}
