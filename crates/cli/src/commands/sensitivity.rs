//! `minflt sensitivity`: varies each guessed machine parameter, and reports changed conclusions.
//!
//! # Idea
//! A conclusion that flips when one guess is 30% lower or 40% higher is a conclusion about that
//! guess. So each guess of each machine is varied alone, fitted numbers stay as they are, and the
//! cells that a conclusion is drawn from are simulated again.
//!
//! # Cost
//! Twice the guesses times the cells of the machine: some minutes for all three.

use crate::args::Sensitivity;
use crate::choice::era_list;
use crate::error::{Error, failed, usage};
use crate::experiment::{Size, ebizzy, ebizzy_rate, machine, pft};
use crate::out::{out, table_text};
use crate::parallel;
use crate::progress::{Deadline, Progress, left_out};
use crate::words::did_you_mean;
use minflt_report::{Cell, Column, PublishedTable, Table, postings, replace_generated};
use minflt_sim::{MachineFile, Source};
use std::fs;
use std::path::Path;

const DOCS: &str = "docs/validation.md";
/// What a guess is multiplied by.
const FACTORS: [f64; 2] = [0.7, 1.4];

/// What is concluded from simulated cells of one machine.
struct Conclusion {
    machine: &'static str,
    says: &'static str,
    /// Places among the machine's cells: the first is at least so many times the second.
    at_least: (usize, f64, usize),
}

/// Cells of altix32, in this order: unpatched at 4 and 32 threads, patched at 4 and 32.
/// Of the machines of ebizzy: linux-4.13, spf-2017.
const CONCLUSIONS: [Conclusion; 5] = [
    Conclusion {
        machine: "altix32",
        says: "at 32 threads the patches win by at least 2 x",
        at_least: (3, 2.0, 1),
    },
    Conclusion {
        machine: "altix32",
        says: "without the patches 32 threads are slower than 4",
        at_least: (0, 1.0, 1),
    },
    Conclusion {
        machine: "altix32",
        says: "with the patches 32 threads are faster than 4",
        at_least: (3, 1.0, 2),
    },
    Conclusion {
        machine: "kvm16",
        says: "ebizzy gains at least 10% by speculation",
        at_least: (1, 1.1, 0),
    },
    Conclusion {
        machine: "power8-80",
        says: "ebizzy gains at least 10% by speculation",
        at_least: (1, 1.1, 0),
    },
];

/// Runs the command.
pub(crate) fn run(args: &Sensitivity) -> Result<(), Error> {
    let known = ["altix32", "kvm16", "power8-80"];
    let chosen: Vec<&str> = match &args.machines[..] {
        [] => known.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    if let Some(name) = chosen.iter().find(|name| !known.contains(name)) {
        return Err(usage(format!(
            "no conclusion depends on machine `{name}`; machines are {}{}",
            known.join(", "),
            did_you_mean(name, known)
        )));
    }
    if args.docs && !args.machines.is_empty() {
        return Err(usage(
            "--docs: regenerates the rows of all machines; do not name one",
        ));
    }
    if args.docs && !Path::new(DOCS).is_file() {
        return Err(usage(format!(
            "--docs: run from the repository's root, where {DOCS} is"
        )));
    }
    if args.docs && args.budget.is_some() {
        return Err(usage("--docs: needs all rows; leave --budget out"));
    }
    let deadline = Deadline::after(args.budget);
    let all = postings().map_err(|error| failed("published data")(&error))?;
    let tables: Vec<&PublishedTable> = all.iter().flat_map(|posting| &posting.tables).collect();
    let mut table = head();
    let (mut made, mut asked) = (0, 0);
    for name in chosen {
        let counts = vary(name, &tables, (deadline, args.quiet), &mut table)?;
        made += counts.0;
        asked += counts.1;
    }
    out!("{}", table_text(&table));
    left_out(asked - made, asked, "variants");
    if args.docs {
        let cannot = failed(format!("--docs: {DOCS}"));
        let text = fs::read_to_string(DOCS).map_err(|error| cannot(&error))?;
        let text = replace_generated(&text, "sensitivity", &table.to_markdown());
        let text = text.map_err(|error| cannot(&error))?;
        fs::write(DOCS, text).map_err(|error| cannot(&error))?;
    }
    Ok(())
}

fn head() -> Table {
    let columns = [
        Column::text("machine"),
        Column::text("conclusion"),
        Column::number("factor as simulated", ""),
        Column::number("least and most", ""),
        Column::number("guesses varied", ""),
        Column::text("flips with"),
    ];
    Table::new("Each guess at x 0.7 and x 1.4", columns)
}

/// One guess of a machine at another value; the first is the file as it is.
struct Variant {
    what: String,
    file: MachineFile,
}

fn variants(file: &MachineFile) -> Vec<Variant> {
    let mut all = vec![Variant {
        what: "as it is".into(),
        file: file.clone(),
    }];
    for (table, key, number) in file.numbers() {
        if number.src != Source::Guess || table == "shape" {
            continue;
        }
        for factor in FACTORS {
            let key = format!("{table}.{key}");
            let mut file = file.clone();
            if let Some(number) = file.number_mut(&key) {
                number.value *= factor;
            }
            all.push(Variant {
                what: format!("{key} x {factor}"),
                file,
            });
        }
    }
    all
}

/// How many variants of a machine were simulated, and how many it has.
fn vary(
    name: &str,
    tables: &[&PublishedTable],
    (deadline, quiet): (Deadline, bool),
    out: &mut Table,
) -> Result<(usize, usize), Error> {
    let of_machine = |it: &&&PublishedTable| it.preset.as_deref() == Some(name);
    let ours: Vec<&PublishedTable> = tables.iter().filter(of_machine).copied().collect();
    let file = machine(ours.first().ok_or_else(|| failed(name)(&"has no table"))?)?;
    let variants = variants(&file);
    let asked = variants.len();
    let progress = Progress::new(quiet, asked as u64);
    progress.says(name);
    let cells = parallel::map(&variants, |variant| {
        if deadline.is_over() {
            return Ok(None);
        }
        let cells = if name == "altix32" {
            pft_cells(&ours, &variant.file)
        } else {
            ebizzy_cells(&ours, &variant.file)
        };
        progress.step();
        cells.map(Some)
    })?;
    progress.end();
    let made = variants.into_iter().zip(cells);
    let (variants, cells): (Vec<_>, Vec<_>) = made
        .filter_map(|(variant, cells)| Some((variant, cells?)))
        .unzip();
    // The file as it is comes first: without it there is nothing to compare with.
    if !variants.is_empty() {
        for conclusion in CONCLUSIONS.iter().filter(|it| it.machine == name) {
            out.rows.push(judged(conclusion, &variants, &cells));
        }
    }
    Ok((variants.len(), asked))
}

fn judged(conclusion: &Conclusion, variants: &[Variant], cells: &[Vec<f64>]) -> Vec<Cell> {
    let (high, times, low) = conclusion.at_least;
    let factors: Vec<f64> = cells.iter().map(|cells| cells[high] / cells[low]).collect();
    let holds = factors[0] >= times;
    let flips: Vec<String> = variants
        .iter()
        .zip(&factors)
        .filter(|(_, factor)| (**factor >= times) != holds)
        .map(|(variant, factor)| format!("{} ({factor:.2})", variant.what))
        .collect();
    let least = factors.iter().copied().fold(f64::INFINITY, f64::min);
    let most = factors.iter().copied().fold(0.0, f64::max);
    let row = [
        conclusion.machine.to_string(),
        format!("{}{}", if holds { "" } else { "NOT: " }, conclusion.says),
        format!("{:.2}", factors[0]),
        format!("{least:.2} to {most:.2}"),
        ((variants.len() - 1) / FACTORS.len()).to_string(),
        if flips.is_empty() {
            "none".into()
        } else {
            flips.join(", ")
        },
    ];
    row.map(Cell::from).into()
}

/// Unpatched at 4 and 32 threads, patched at 4 and 32.
fn pft_cells(tables: &[&PublishedTable], file: &MachineFile) -> Result<Vec<f64>, Error> {
    let mut cells = Vec::new();
    for table in tables {
        for label in ["4", "32"] {
            let row = table.row_labels().position(|row| row == label);
            let row = row.ok_or_else(|| failed(&table.id)(&format!("no row {label}")))?;
            let outcome = pft(table, row, file, Size::Scaled)?.outcome;
            cells.push(outcome.faults_per_second().unwrap_or(0.0));
        }
    }
    Ok(cells)
}

/// Averages of linux-4.13 and spf-2017.
fn ebizzy_cells(tables: &[&PublishedTable], file: &MachineFile) -> Result<Vec<f64>, Error> {
    let table = tables.iter().find(|table| table.workload == "ebizzy");
    let table = table.ok_or_else(|| failed(&file.name)(&"has no table of ebizzy"))?;
    let eras = era_list("linux-4.13,spf-2017")?;
    let rate = |era| Ok(ebizzy_rate(&ebizzy(table, era, file)?).unwrap_or(0.0));
    eras.iter().map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::{CONCLUSIONS, Variant, judged, variants};
    use minflt_sim::{MachineFile, Source};

    #[test]
    fn each_guess_is_varied_both_ways_and_nothing_else() {
        let file = MachineFile::shipped("altix32").expect("readable");
        let guesses = file
            .numbers()
            .filter(|(table, _, it)| it.src == Source::Guess && *table != "shape")
            .count();
        let all = variants(&file);
        assert_eq!(all.len(), 1 + 2 * guesses);
        let differ = |it: &Variant| {
            let pairs = it.file.numbers().zip(file.numbers());
            pairs.filter(|(a, b)| a.2 != b.2).count()
        };
        assert!(all[1..].iter().all(|it| differ(it) <= 1));
    }

    #[test]
    fn a_flip_is_named() {
        let file = MachineFile::shipped("altix32").expect("readable");
        let variants = &variants(&file)[..3];
        let cells = vec![
            vec![1.0, 1.0, 1.0, 3.0],
            vec![1.0, 2.0, 1.0, 3.0],
            vec![1.0; 4],
        ];
        let row = judged(&CONCLUSIONS[0], variants, &cells);
        assert_eq!(row[2].text, "3.00");
        assert!(row[5].text.contains(&variants[1].what) && row[5].text.contains(&variants[2].what));
    }
}
