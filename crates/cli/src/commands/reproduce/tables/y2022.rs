//! The 2022 tables: processes that fault on a file of huge pages and fork, on the two machines that
//! may be the posting's.

use super::{Compared, Figures, Simulated, looked, text};
use crate::error::Error;
use crate::experiment::hugetlb::{self, Cell as Ran};
use crate::parallel;
use crate::progress::Progress;
use crate::targets;
use minflt_report::published::Role;
use minflt_report::{Cell, Column, Posting, PublishedTable, Status, Table};
use minflt_sim::MachineFile;

const INTRO: &str = "The posting's three workloads on the two machines that its words fit: a file of 2 GiB in place \
     of 250 GB, of which no tables are shared, loops of 200 ms, 16 MiB for each process of usemem. Five numbers of each machine are \
     fitted to rows of the unmodified kernel: usemem, a fault alone, a fork alone and 24 at once, and forks beside faults. What the \
     posting calls reverted is the era before, with faults that hold nothing.";

const COLUMNS: [&str; 3] = ["min", "max", "avg"];

/// What faults hold on the file before, and on a mapping after.
const BEFORE: &str = "i_mmap lock, held by faults";
const AFTER: &str = "hugetlb VMA lock";
/// What fork waits for.
const I_MMAP: &str = "i_mmap lock";

/// The bars.
const SWING: f64 = 10.0;
const NEAR: f64 = 0.05;

/// One machine's cells of one table, by row; rows of one run share it.
struct Cells {
    machine: MachineFile,
    by_row: Vec<Ran>,
}

/// Simulates all tables.
pub(in super::super) fn simulate(
    posting: &Posting,
    progress: &Progress,
) -> Result<Simulated, Error> {
    let mut done = Simulated::new(INTRO);
    let mut jobs = Vec::new();
    for (at, published) in posting.tables.iter().enumerate() {
        for name in published.presets() {
            let machine = targets::machine("--machine", name)?;
            let rows = distinct(published).into_iter();
            jobs.extend(rows.map(|row| (at, row, machine.clone())));
        }
    }
    let ran = parallel::map(&jobs, |(at, row, machine)| {
        let published = &posting.tables[*at];
        let label = published.row_label(*row);
        progress.says(&format!("{}, {label}, on {}", published.id, machine.name));
        let ran = hugetlb::cell(published, *row, machine);
        progress.step();
        ran
    })?;
    let mut all: Vec<Vec<Cells>> = Vec::new();
    for (at, published) in posting.tables.iter().enumerate() {
        let found = jobs.iter().zip(&ran).filter(|((of, ..), _)| *of == at);
        let mut machines: Vec<Cells> = Vec::new();
        for ((_, _, machine), ran) in found {
            match machines
                .iter_mut()
                .find(|it| it.machine.name == machine.name)
            {
                Some(cells) => cells.by_row.push(ran.clone()),
                None => machines.push(Cells {
                    machine: machine.clone(),
                    by_row: vec![ran.clone()],
                }),
            }
        }
        let table = table(published, &machines, &mut done.figures)?;
        done.tables.push(table);
        all.push(machines);
    }
    done.tables.push(bars(posting, &all));
    done.tables.push(together(posting, &all));
    done.runs = ran.into_iter().map(|cell| cell.ran.run).collect();
    Ok(done)
}

/// Rows that are runs of their own: the two of both programs are one.
fn distinct(published: &PublishedTable) -> Vec<usize> {
    let instances = |row: usize| {
        let cell = published.row_param(row, "instances");
        cell.map(|cell| cell.printed.clone())
    };
    let mut rows: Vec<usize> = (0..published.rows.len()).collect();
    rows.dedup_by_key(|row| instances(*row));
    rows
}

/// How many cells are simulated.
pub(in super::super) const STEPS: u64 = 36;

impl Cells {
    /// The run of row number `row`.
    fn of(&self, published: &PublishedTable, row: usize) -> Option<&Ran> {
        let runs = distinct(published);
        let at = runs.iter().rposition(|first| *first <= row)?;
        self.by_row.get(at)
    }

    fn figure(&self, published: &PublishedTable, row: usize, column: &str) -> Option<f64> {
        let label = published.row_label(row);
        self.of(published, row)?.figure(&label, column)
    }
}

/// A published table beside ours on each machine.
fn table(
    published: &PublishedTable,
    machines: &[Cells],
    figures: &mut Figures,
) -> Result<Table, Error> {
    let mut heads = vec![Column::text("instances"), Column::text("unit")];
    heads.extend(COLUMNS.map(|name| Column::number(&format!("published {name}"), "")));
    for cells in machines {
        let name = &cells.machine.name;
        heads.push(Column::text(&format!("{name} is")));
        heads.extend(COLUMNS.map(|column| Column::number(&format!("{name} {column}"), "")));
        heads.push(Column::number("ratio of avg", ""));
    }
    let mut table = Table::new(&format!("{}: {}", published.id, published.title), heads);
    for row in 0..published.rows.len() {
        let label = published.row_label(row);
        let unit = published.unit(row, "avg").unwrap_or_default();
        let mut line = vec![Cell::from(label.as_str()), unit.into()];
        let printed = |column: &str| published.cell_at(row, column).and_then(|it| it.value);
        line.extend(COLUMNS.map(|column| Cell::from(text(printed(column)))));
        for cells in machines {
            let status = published.simulated_status(row, "avg", cells.machine.is_fitted());
            line.push(Cell::from(status.to_string()));
            let figure = |column: &str| cells.figure(published, row, column);
            line.extend(COLUMNS.map(|column| Cell::from(text(figure(column)))));
            let ratio = printed("avg").zip(figure("avg")).map(|(a, b)| b / a);
            line.push(
                ratio
                    .map_or("-".into(), |ratio| format!("{ratio:.2}"))
                    .into(),
            );
            for column in COLUMNS {
                if let Some(ours) = figure(column) {
                    figures.note(published, row, column, (ours, status));
                }
                let both = printed(column).zip(figure(column));
                // One instance has one figure.
                if let Some(both) = both.filter(|_| column == "avg" || is_many(published, row)) {
                    figures.judge(judged(published, row, cells, column, both));
                }
            }
        }
        table.rows.push(line);
    }
    table.footnotes.push(format!(
        "simulated with {} of the size: minflt reproduce 2022",
        match hugetlb::scale(published)? {
            1 => "all".to_owned(),
            scale => format!("1/{scale}"),
        }
    ));
    let runs = machines.iter().flat_map(|cells| &cells.by_row);
    let looks = looked(runs.map(|cell| &cell.ran.run));
    table.footnotes.push(format!("checks of all runs: {looks}"));
    Ok(table)
}

/// Whether a row is of several instances, which have a least and a most.
fn is_many(published: &PublishedTable, row: usize) -> bool {
    let instances = published.row_param(row, "instances");
    instances.and_then(|cell| cell.value) > Some(1.0)
}

/// A figure, to be judged; kernels are compared by workload and row. What an average was fitted to
/// decides the least and the most as well.
fn judged(
    published: &PublishedTable,
    row: usize,
    cells: &Cells,
    column: &str,
    (theirs, ours): (f64, f64),
) -> Compared {
    let machine = &cells.machine;
    let status = published.simulated_status(row, "avg", machine.is_fitted());
    let (group, what) = match column {
        "avg" => ("", published.workload.clone()),
        _ => (", min and max", format!("{}, {column}", published.workload)),
    };
    let status = match (column, status) {
        ("min" | "max", Status::Fitted) => Status::Pinned,
        _ => status,
    };
    Compared {
        group: format!("2022 on {}{group}", machine.name),
        role: published.role,
        row: published.row_label(row),
        what,
        published: theirs,
        simulated: ours,
        status,
    }
}

/// One workload's three kernels on one machine.
struct Kernels<'a> {
    posting: &'a Posting,
    all: &'a [Vec<Cells>],
    machine: &'a str,
}

impl Kernels<'_> {
    fn cells(&self, workload: &str, role: Role) -> Option<(&PublishedTable, &Cells)> {
        let tables = self.posting.tables.iter().zip(self.all);
        let mut found = tables.filter(|(it, _)| it.workload == workload && it.role == role);
        let (published, machines) = found.next()?;
        let cells = machines.iter().find(|it| it.machine.name == self.machine)?;
        Some((published, cells))
    }

    /// The average of a row in a kernel.
    fn average(&self, role: Role, workload: &str, label: &str) -> Option<f64> {
        let (published, cells) = self.cells(workload, role)?;
        let row = published.row_labels().position(|row| row == label)?;
        cells.figure(published, row, "avg")
    }

    /// The same in the kernels before, reverted and after.
    fn averages(&self, workload: &str, label: &str) -> Option<[f64; 3]> {
        let of = |role| self.average(role, workload, label);
        Some([
            of(Role::Unpatched)?,
            of(Role::Reverted)?,
            of(Role::Patched)?,
        ])
    }

    /// Which part of the combined runs' time went to a lock.
    fn share(&self, role: Role, lock: &str) -> Option<f64> {
        let (published, cells) = self.cells("hugetlb-both", role)?;
        Some(cells.of(published, 0)?.lock_share(lock))
    }
}

/// The bars that were set before, and where the time of the combined runs goes.
fn bars(posting: &Posting, all: &[Vec<Cells>]) -> Table {
    let heads = ["machine", "bar", "found", "held"].map(Column::text);
    let mut table = Table::new("2022: the bars, and what the locks take", heads);
    let machines = all.first().into_iter().flatten();
    for machine in machines.map(|cells| cells.machine.name.as_str()) {
        let kernels = Kernels {
            posting,
            all,
            machine,
        };
        for (bar, found, held) in verdicts(&kernels) {
            let held = if held { "yes" } else { "**no**" };
            let row = [machine.to_owned(), bar.to_owned(), found, held.to_owned()];
            table.rows.push(row.map(Cell::from).into());
        }
    }
    table.footnotes.push(
        "shares are of the instances' time in their loops; published: faults x30.6, forks x0.34, \
         usemem within 1%"
            .into(),
    );
    table
}

fn verdicts(kernels: &Kernels<'_>) -> Vec<(&'static str, String, bool)> {
    let mut found = Vec::new();
    if let Some([before, reverted, after]) = kernels.averages("hugetlb-both", "24, faults") {
        found.push((
            "combined: faults without a lock > with the series > before",
            format!("{reverted:.0} > {after:.0} > {before:.0}"),
            reverted > after && after > before,
        ));
        let times = after / before;
        let bar = "combined: the series makes at least 10 x the faults";
        found.push((bar, format!("x{times:.1}"), times >= SWING));
    }
    if let Some([before, reverted, after]) = kernels.averages("hugetlb-both", "24, forks") {
        found.push((
            "combined: forks before > with the series > without a lock",
            format!("{before:.0} > {after:.0} > {reverted:.0}"),
            before > after && after > reverted,
        ));
    }
    if let Some(all) = kernels.averages("usemem", "48") {
        let apart = all
            .iter()
            .map(|it| (it / all[0] - 1.0).abs())
            .fold(0.0, f64::max);
        let bar = "usemem: the three kernels within 5% of each other";
        found.push((bar, format!("{:.1}%", apart * 100.0), apart <= NEAR));
    }
    let share = |role, lock| kernels.share(role, lock).unwrap_or(0.0);
    let (before, after) = (share(Role::Unpatched, BEFORE), share(Role::Patched, BEFORE));
    found.push((
        "combined: the lock that faults held takes less",
        format!(
            "{:.1}% before, {:.1}% with the series; i_mmap lock {:.1}%, {:.1}%; {AFTER} {:.1}%",
            before * 100.0,
            after * 100.0,
            share(Role::Unpatched, I_MMAP) * 100.0,
            share(Role::Patched, I_MMAP) * 100.0,
            share(Role::Patched, AFTER) * 100.0
        ),
        before > after,
    ));
    found
}

/// What 24 of both programs make together, as parts of what 24 of each make alone: if one lock is
/// all that they wait for, which part of the time each has it.
fn together(posting: &Posting, all: &[Vec<Cells>]) -> Table {
    let machines: Vec<_> = all.first().into_iter().flatten().collect();
    let whose = machines.iter().map(|cells| cells.machine.name.as_str());
    let mut columns = vec![Column::text("kernel")];
    for name in ["published"].into_iter().chain(whose) {
        let column = |what: &str| Column::number(&format!("{name} {what}"), "");
        columns.extend(["faults", "forks", "both"].map(column));
    }
    let title = "2022: rates together as parts of the rates alone, 24 instances";
    let mut table = Table::new(title, columns);
    for (kernel, role) in [
        ("i_mmap lock for the whole fault", Role::Unpatched),
        ("i_mmap locking reverted", Role::Reverted),
        ("VMA lock, this series", Role::Patched),
    ] {
        let mut line = vec![Cell::from(kernel)];
        line.extend(parts(|workload, label| {
            printed(posting, role, workload, label)
        }));
        for cells in &machines {
            let machine = cells.machine.name.as_str();
            let kernels = Kernels {
                posting,
                all,
                machine,
            };
            line.extend(parts(|workload, label| {
                kernels.average(role, workload, label)
            }));
        }
        table.rows.push(line);
    }
    table
}

/// The parts of faults and of forks, and both added.
fn parts(average: impl Fn(&str, &str) -> Option<f64>) -> [Cell; 3] {
    let part = |label, alone| Some(average("hugetlb-both", label)? / average(alone, "24")?);
    let (faults, forks) = (
        part("24, faults", "hugetlb-fault"),
        part("24, forks", "hugetlb-fork"),
    );
    let both = faults.zip(forks).map(|(faults, forks)| faults + forks);
    let shown = |part: Option<f64>| part.map_or("-".into(), |part| format!("{part:.2}"));
    [faults, forks, both].map(|part| Cell::from(shown(part)))
}

/// The published average of a row of a workload under a kernel.
fn printed(posting: &Posting, role: Role, workload: &str, label: &str) -> Option<f64> {
    let is = |it: &&PublishedTable| it.workload == workload && it.role == role;
    posting.tables.iter().find(is)?.value(label, "avg")
}

#[cfg(test)]
mod tests {
    use super::{STEPS, distinct, parts, printed};
    use minflt_report::postings;
    use minflt_report::published::Role;

    /// The posting's own figures: one lock is nearly all that the programs wait for.
    #[test]
    fn rates_together_add_up_to_one_lock() {
        let all = postings().expect("readable");
        let posting = all.iter().find(|it| it.id == "2022").expect("there");
        let both = |role| {
            let cells = parts(|workload, label| printed(posting, role, workload, label));
            cells.map(|cell| cell.text)
        };
        assert_eq!(both(Role::Unpatched), ["0.03", "0.77", "0.80"]);
        assert_eq!(both(Role::Reverted), ["0.87", "0.10", "0.98"]);
        assert_eq!(both(Role::Patched), ["0.72", "0.23", "0.95"]);
        assert_eq!(parts(|_, _| None).map(|cell| cell.text), ["-"; 3]);
    }

    #[test]
    fn a_row_of_each_program_is_one_run() {
        let all = postings().expect("readable");
        let tables = &all.iter().find(|it| it.id == "2022").expect("there").tables;
        let rows = |id: &str| {
            let table = tables.iter().find(|it| it.id == id).expect("there");
            distinct(table)
        };
        assert_eq!(rows("2022/combined-revert"), [0]);
        assert_eq!(rows("2022/fork-revert"), [0, 1]);
        let cells = |table: &minflt_report::PublishedTable| {
            (distinct(table).len() * table.presets().count()) as u64
        };
        assert_eq!(tables.iter().map(cells).sum::<u64>(), STEPS);
    }
}
