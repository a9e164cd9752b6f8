//! `minflt calibrate`: fits a machine's few free numbers to unpatched rows of a posting.
//!
//! # Problem
//! A model that was tuned on what it predicts predicts nothing. So what may be looked at has to be
//! fixed before, and small.
//!
//! # Idea
//! The data of the postings mark the cells that may be looked at, each with the one number of the
//! machine file that it decides and the range in which that is believable. Everything else of the
//! postings is cut away before the search begins ([`goals`]); tests compare with and without it
//! what is looked at, and a fit.
//!
//! # Protocol
//! For each goal in turn, bisection in the logarithm of its number until the simulated figure
//! meets the published one; twice over all goals, since each moves the others a little. A figure
//! that cannot be met within the range leaves the number at the end of the range that comes nearer.
//!
//! # Cost
//! Some ten simulated cells a goal and round.

pub(crate) mod host;

use crate::args::Calibrate;
use crate::error::{Error, failed, usage};
use crate::experiment::figure;
use crate::files::{replace, writable};
use crate::out::{out, outln};
use crate::progress::{Deadline, Progress, left_out};
use crate::words::did_you_mean;
use minflt_report::{Posting, PublishedTable, postings};
use minflt_sim::MachineFile;
use minflt_sim::machine_file::{Fit, Fitted};
use std::fs;
use std::path::Path;

/// Halvings of the range for each goal.
const HALVINGS: u32 = 9;
/// Times that all goals are gone through.
const ROUNDS: u32 = 2;

/// A cell to meet, and the number to meet it with.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Goal {
    /// The table, cut down to this one row.
    table: PublishedTable,
    column: String,
    key: String,
    range: (f64, f64),
    published: f64,
    why: String,
}

/// Runs the command.
pub(crate) fn run(args: &Calibrate) -> Result<(), Error> {
    if args.host {
        writable("--out", args.out.as_deref())?;
        return this_machine(args.out.as_deref());
    }
    let all = postings().map_err(|error| failed("published data")(&error))?;
    let known = machines(&all);
    let chosen = match &args.machines[..] {
        [] => known,
        some => {
            let unknown = some.iter().find(|name| !known.contains(name));
            if let Some(name) = unknown {
                return Err(usage(format!(
                    "no rows are marked for fitting machine `{name}`; machines are {}{}",
                    known.join(", "),
                    did_you_mean(name, known.iter().map(String::as_str))
                )));
            }
            some.to_vec()
        }
    };
    if !Path::new("data/fit").is_dir() {
        return Err(usage(
            "calibrate: run from the repository's root, where data/fit/ is",
        ));
    }
    let steps = chosen.iter().map(|name| steps(&goals(&all, name))).sum();
    let progress = Progress::new(args.quiet, steps);
    let deadline = Deadline::after(args.budget);
    let asked = chosen.len();
    let mut made = 0;
    // Half a fit is none: a machine is begun or left out.
    for name in chosen.into_iter().take_while(|_| !deadline.is_over()) {
        made += 1;
        let fit = fit(&name, &goals(&all, &name), &progress)?;
        for number in &fit.fitted {
            let (key, value, to) = (&number.key, number.value, &number.to);
            let (published, simulated) = (number.published, number.simulated);
            outln!(
                "{name}: {key} = {value}, fitted to {to}: published {published}, simulated \
                 {simulated}"
            );
        }
        let file = format!("data/fit/{name}.toml");
        let cannot = failed(file.clone());
        let text = fit.to_text().map_err(|error| cannot(&error))?;
        fs::write(&file, text).map_err(|error| cannot(&error))?;
    }
    progress.end();
    left_out(asked - made, asked, "machines");
    if made > 0 {
        outln!("rebuild: the fits are compiled into the program");
    }
    Ok(())
}

/// Measures this machine, and prints or writes its file.
fn this_machine(out: Option<&Path>) -> Result<(), Error> {
    writable("--out", out)?;
    let text = host::preset()?.to_text();
    // What was measured may contradict itself, where other programs ran meanwhile.
    let again = "measure again on an idle machine";
    MachineFile::parse(host::NAME, &text)
        .map_err(|error| Error::Failed(format!("--host: {error}; {again}")))?;
    let Some(path) = out else {
        out!("{text}");
        return Ok(());
    };
    let cannot = failed(format!("--out: cannot write {}", path.display()));
    replace(path, text.as_bytes()).map_err(|error| cannot(&error))
}

/// The machines that some row is marked for.
fn machines(all: &[Posting]) -> Vec<String> {
    let tables = all.iter().flat_map(|posting| &posting.tables);
    let marked = tables.filter(|table| !table.fits.is_empty());
    let mut names = Vec::new();
    for name in marked.flat_map(PublishedTable::presets) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// What may be looked at for a machine: the marked rows, each alone in its table.
fn goals(all: &[Posting], machine: &str) -> Vec<Goal> {
    let tables = all.iter().flat_map(|posting| &posting.tables);
    let ours = tables.filter(|table| table.presets().any(|name| name == machine));
    let goal = |table: &PublishedTable, at: usize| {
        let fit = &table.fits[at];
        let row = table.row_labels().position(|label| label == fit.row)?;
        Some(Goal {
            published: table.value(&fit.row, &fit.column)?,
            column: fit.column.clone(),
            key: fit.key.clone(),
            range: (fit.least, fit.most),
            why: fit.why.clone(),
            table: PublishedTable {
                rows: vec![table.rows[row].clone()],
                ..table.clone()
            },
        })
    };
    ours.flat_map(|table| (0..table.fits.len()).filter_map(move |at| goal(table, at)))
        .collect()
}

fn steps(goals: &[Goal]) -> u64 {
    goals.len() as u64 * u64::from(ROUNDS * (HALVINGS + 2) + 1)
}

/// Searches the numbers of one machine.
fn fit(name: &str, goals: &[Goal], progress: &Progress) -> Result<Fit, Error> {
    let machine = MachineFile::unfitted(name);
    let mut machine = machine.map_err(|error| failed("machine")(&error))?;
    for round in 1..=ROUNDS {
        for goal in goals {
            progress.says(&format!("{name}: {}, round {round}", goal.key));
            let value = search(&mut machine, goal, progress)?;
            set(&mut machine, &goal.key, value)?;
        }
    }
    let mut fitted = Vec::new();
    for goal in goals {
        let simulated = simulated(&machine, goal, progress)?;
        let value = machine
            .number_mut(&goal.key)
            .map_or(0.0, |number| number.value);
        fitted.push(Fitted {
            key: goal.key.clone(),
            value,
            to: format!(
                "{}, row {}, {}",
                goal.table.id,
                goal.table.row_label(0),
                goal.column
            ),
            published: goal.published,
            simulated: rounded(simulated),
            why: goal.why.clone(),
        });
    }
    Ok(Fit {
        machine: name.into(),
        fitted,
    })
}

/// The value of the goal's number at which the figure is met, or the end of its range nearer to it.
fn search(machine: &mut MachineFile, goal: &Goal, progress: &Progress) -> Result<f64, Error> {
    let mut at = |value: f64| {
        set(machine, &goal.key, value)?;
        simulated(machine, goal, progress).map(|figure| figure - goal.published)
    };
    let (mut low, mut high) = goal.range;
    let (above_low, above_high) = (at(low)?, at(high)?);
    if above_low.signum() == above_high.signum() {
        let nearer = above_low.abs() <= above_high.abs();
        return Ok(if nearer { low } else { high });
    }
    for _ in 0..HALVINGS {
        let middle = between(&goal.key, low, high);
        if at(middle)?.signum() == above_low.signum() {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(between(&goal.key, low, high))
}

fn simulated(machine: &MachineFile, goal: &Goal, progress: &Progress) -> Result<f64, Error> {
    let figure = figure(&goal.table, 0, &goal.column, machine);
    progress.step();
    figure
}

fn set(machine: &mut MachineFile, key: &str, value: f64) -> Result<(), Error> {
    let name = machine.name.clone();
    match machine.number_mut(key) {
        Some(number) => {
            number.value = value;
            Ok(())
        }
        None => Err(failed(format!("fit of {name}"))(&format!(
            "no number {key}"
        ))),
    }
}

/// The middle of a range in logarithms; a whole number where counts are meant.
fn between(key: &str, low: f64, high: f64) -> f64 {
    let middle = rounded((low * high).sqrt());
    if key.starts_with("shape.") {
        middle.round()
    } else {
        middle
    }
}

/// Three digits: no more is known, and what is written is short.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::{fit, goals, machines, rounded, steps};
    use crate::progress::Progress;
    use minflt_report::published::Kind;
    use minflt_report::{Posting, postings};
    use minflt_sim::machine_file::{FITS, Fit};

    /// The postings as a fit may see them: rows that are not marked are gone.
    fn without_predicted(all: &[Posting]) -> Vec<Posting> {
        let mut all = all.to_vec();
        for table in all.iter_mut().flat_map(|posting| &mut posting.tables) {
            let labels: Vec<String> = table.row_labels().collect();
            let marked = |label: &String| table.fits.iter().any(|fit| fit.row == *label);
            let keep: Vec<bool> = labels.iter().map(marked).collect();
            let mut at = keep.iter();
            table.rows.retain(|_| at.next() == Some(&true));
        }
        all.iter_mut()
            .for_each(|posting| posting.tables.retain(|table| !table.rows.is_empty()));
        all
    }

    #[test]
    fn a_fit_looks_at_marked_rows_only() {
        let all = postings().expect("readable");
        let bare = without_predicted(&all);
        assert!(!machines(&all).is_empty());
        assert_eq!(machines(&all), machines(&bare));
        for name in machines(&all) {
            assert!(!goals(&all, &name).is_empty());
            assert_eq!(goals(&all, &name), goals(&bare, &name));
        }
    }

    /// The whole search, for the machine that takes least; the goals of the others are compared
    /// above.
    #[test]
    fn a_fit_without_the_predicted_rows_is_the_committed_one() {
        let name = "kvm16";
        let bare = without_predicted(&postings().expect("readable"));
        let mut goals = goals(&bare, name);
        for goal in &mut goals {
            // Nor the other kernel's figure in the row.
            for (column, cell) in goal.table.columns.iter().zip(&mut goal.table.rows[0]) {
                if column.kind == Kind::Number && column.name != goal.column {
                    cell.value = None;
                }
            }
        }
        let fit = fit(name, &goals, &Progress::new(true, steps(&goals))).expect("fits");
        let committed = FITS.iter().find(|(fitted, _)| *fitted == name);
        let (_, committed) = committed.expect("committed");
        assert_eq!(fit.to_text().expect("written"), *committed);
    }

    #[test]
    fn every_marked_machine_is_fitted_and_no_other() {
        let all = postings().expect("readable");
        let fitted: Vec<String> = FITS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(fitted, machines(&all));
        for (name, text) in FITS {
            let fit = Fit::parse(name, text).expect("readable");
            let keys = |fit: &Fit| {
                fit.fitted
                    .iter()
                    .map(|it| it.key.clone())
                    .collect::<Vec<_>>()
            };
            let goals: Vec<_> = goals(&all, name).into_iter().map(|goal| goal.key).collect();
            assert_eq!(keys(&fit), goals);
            assert_eq!(
                fit.to_text().expect("written"),
                *text,
                "written by calibrate only"
            );
        }
    }

    #[test]
    fn three_digits() {
        assert_eq!(rounded(1234.5), 1230.0);
        assert_eq!(rounded(0.012_345), 0.0123);
    }
}
