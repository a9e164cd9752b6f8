//! `reproduce --docs`: the tables that the docs hold are written here, never by hand.

use super::proof::Proof;
use super::proof::{OWN_RATIO, RATE};
use super::validation::fits;
use crate::commands::lists::{choice_table, era_table, format_table, refused_table};
use crate::commands::machines::{machine_table, shipped};
use crate::error::{Error, failed, usage};
use minflt_report::{Cell, Column, Posting, Status, Table, replace_generated};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const VALIDATION: &str = "docs/validation.md";

/// What runs found out.
pub(super) struct Figures<'a> {
    pub(super) proof: &'a Proof,
    /// By posting.
    pub(super) simulated: &'a BTreeMap<String, Vec<Table>>,
    /// How simulated figures stand to published ones: the verdict, the misses, the bars.
    pub(super) judged: &'a [Table; 3],
    pub(super) here: Option<&'a Table>,
}

/// Fills every generated block of the docs.
pub(super) fn write(all: &[Posting], figures: &Figures<'_>) -> Result<(), Error> {
    if !Path::new("docs/eras.md").exists() {
        return Err(usage(
            "--docs: run from the repository's root, where docs/ is",
        ));
    }
    let [lameter, moved, around, apart, merging, ebizzy, huge] = &figures.proof.tables[..] else {
        return Err(usage(
            "--docs: needs the rows of all postings; do not name one",
        ));
    };
    for (file, name, text) in parts_of_the_code()? {
        fill(file, name, &text)?;
    }
    fill("docs/postings/2004.md", "measured", &lameter.to_markdown())?;
    fill("docs/postings/2012.md", "measured", &moved.to_markdown())?;
    fill("docs/postings/2014.md", "measured", &around.to_markdown())?;
    let measured = [apart, merging, ebizzy].map(Table::to_markdown).join("\n");
    fill("docs/postings/2017.md", "measured", &measured)?;
    fill("docs/postings/2022.md", "measured", &huge.to_markdown())?;
    for (id, tables) in figures.simulated {
        let tables: Vec<_> = tables.iter().map(Table::to_markdown).collect();
        let file = format!("docs/postings/{id}.md");
        fill(&file, "published", &tables.join("\n"))?;
    }
    for (name, table) in ["verdict", "misses", "predictions"]
        .iter()
        .zip(figures.judged)
    {
        fill(VALIDATION, name, &table.to_markdown())?;
    }
    if let Some(here) = figures.here {
        fill(VALIDATION, "host", &here.to_markdown())?;
    }
    fill(
        "README.md",
        "postings",
        &overview(all, figures).to_markdown(),
    )
}

/// The parts that come from the code and its data alone: file, block and text.
pub(super) fn parts_of_the_code() -> Result<Vec<(&'static str, &'static str, String)>, Error> {
    let [locks, every_lock] = super::validation::locks::tables()?;
    let tables = [
        ("docs/eras.md", "eras", era_table()),
        ("docs/eras.md", "choices", choice_table()),
        ("docs/eras.md", "refused", refused_table()),
        ("docs/formats.md", "formats", format_table()),
        ("docs/machines.md", "machines", machine_table(&shipped()?)),
        (VALIDATION, "locks", locks),
        ("docs/locks.md", "every-lock", every_lock),
        (VALIDATION, "fits", fits::table()?),
    ];
    let tables = tables.map(|(file, name, table)| (file, name, table.to_markdown()));
    let fitted = fits::sentence()?;
    let said = ["README.md", "docs/machines.md"].map(|file| (file, "fitted", fitted.clone()));
    Ok(tables.into_iter().chain(said).collect())
}

fn fill(file: &str, block: &str, body: &str) -> Result<(), Error> {
    let cannot = failed(format!("--docs: {file}"));
    let text = fs::read_to_string(file).map_err(|error| cannot(&error))?;
    let text = replace_generated(&text, block, body).map_err(|error| cannot(&error))?;
    fs::write(file, text).map_err(|error| cannot(&error))
}

/// The README's one table over the postings.
fn overview(all: &[Posting], figures: &Figures<'_>) -> Table {
    let measured = |at: usize| {
        let table = figures.proof.tables.get(at);
        table.map_or(String::new(), measured_pair)
    };
    let columns = [
        "posting",
        "technique",
        "command",
        "published",
        "measured on 2 real CPUs",
        "simulated",
        "tests",
    ];
    let mut table = Table::new("The five postings", columns.map(Column::text));
    for posting in all {
        let row = match posting.id.as_str() {
            "2004" => [
                "[2004](docs/postings/2004.md)".to_string(),
                "[compare-and-exchange of entries](crates/mm/src/entry/slot.rs)".into(),
                "`minflt reproduce 2004`".into(),
                "32 threads: 104,012 -> 382,879 faults/s".into(),
                measured(0),
                simulated_2004(figures),
                "P1, P5 to P8, P46, P57".into(),
            ],
            "2012" => [
                "[2012](docs/postings/2012.md)".to_string(),
                "[a reverse map walked without its lock](crates/mm/src/pages/rmap/mod.rs)".into(),
                "`minflt reproduce 2012`".into(),
                "numa02, 32 threads: 14.503 -> 44.595 GB/s".into(),
                measured(1),
                simulated_2012(figures),
                "P2 to P4, P6, P10 to P18".into(),
            ],
            "2014" => [
                "[2014](docs/postings/2014.md)".to_string(),
                "[fault-around](crates/mm/src/fault/around.rs)".into(),
                "`minflt reproduce 2014`".into(),
                "16 GiB sequential, order 4: 4,195,437 -> 262,251 faults".into(),
                measured_2014(figures),
                simulated_2014(figures),
                "P20 to P26, P42, P44".into(),
            ],
            "2017" => [
                "[2017](docs/postings/2017.md)".to_string(),
                "[speculative faults](crates/mm/src/entry/slot.rs)".into(),
                "`minflt reproduce 2017`".into(),
                "ebizzy, 16 CPUs: 11,456 -> 45,804 records/s".into(),
                [3, 4].map(measured).join("; "),
                simulated_2017(figures),
                "P9, P27 to P41, P43, P45".into(),
            ],
            "2022" => [
                "[2022](docs/postings/2022.md)".to_string(),
                "[a lock per mapping of huge pages](crates/mm/src/pages/reserved/lock.rs)".into(),
                "`minflt reproduce 2022`".into(),
                "24 with 24 forking: 2,144 -> 65,597 faults/s".into(),
                measured(6),
                simulated_2022(figures),
                "P47 to P56".into(),
            ],
            _ => continue,
        };
        table
            .rows
            .push(row.iter().map(|text| Cell::from(text.as_str())).collect());
    }
    table
}

fn text_at(table: Option<&Table>, row: usize, column: usize) -> String {
    let cell = table.and_then(|table| table.rows.get(row)?.get(column));
    cell.map_or("?".into(), |cell| cell.text.clone())
}

fn simulated_2004(figures: &Figures<'_>) -> String {
    let tables = figures.simulated.get("2004");
    // The row of 32 threads, the simulated faults per second.
    let [before, after] = [0, 1].map(|at| text_at(tables.and_then(|all| all.get(at)), 5, 2));
    format!("altix32, 32 threads: {before} -> {after} faults/s")
}

fn simulated_2012(figures: &Figures<'_>) -> String {
    let table = figures.simulated.get("2012").and_then(|all| all.last());
    let rows = table.map_or(0, |table| table.rows.len());
    let side = |row: usize| {
        let [era, speed] = [0, 1].map(|at| text_at(table, row, at));
        format!("{era} {speed}")
    };
    let sides: Vec<_> = (0..rows.min(3)).map(side).collect();
    format!("x86-4n32, GB/s: {}", sides.join(", "))
}

fn measured_2014(figures: &Figures<'_>) -> String {
    let Some(table) = figures.proof.tables.get(2) else {
        return String::new();
    };
    let rows = 0..table.rows.len();
    let side = |row: usize| {
        let era = text_at(Some(table), row, 0);
        let cell = table.rows.get(row).and_then(|row| row.get(2));
        match cell.and_then(|cell| cell.status) {
            Some(Status::TooNoisy) => format!("{era} too noisy"),
            _ => format!("{era} {}", short(&text_at(Some(table), row, 2))),
        }
    };
    let sides: Vec<_> = rows.map(side).collect();
    format!("ns per page, sequential: {}", sides.join(", "))
}

fn simulated_2014(figures: &Figures<'_>) -> String {
    let tables = figures.simulated.get("2014");
    // The rows of one thread, in order; the baseline and order 4.
    let cell = |row: usize, at: usize| text_at(tables.and_then(|all| all.first()), row, at);
    let [before, after] = [3, 9].map(|at| cell(0, at));
    format!("counted, 1 thread sequential: {before} -> {after} faults")
}

fn simulated_2017(figures: &Figures<'_>) -> String {
    let tables = figures.simulated.get("2017");
    // The row of averages, the simulated records per second of both kernels.
    let [before, after] = [2, 5].map(|at| text_at(tables.and_then(|all| all.first()), 0, at));
    format!("kvm16: {before} -> {after} records/s")
}

fn simulated_2022(figures: &Figures<'_>) -> String {
    let tables = figures.simulated.get("2022");
    // Both programs, before and with the series: the row of faults, the average on icx-vm48.
    let [before, after] = [9, 11].map(|at| text_at(tables.and_then(|all| all.get(at)), 1, 8));
    format!("icx-vm48: {before} -> {after} faults/s")
}

/// A measured pair: the rates of all sides at the same number of threads, and then what each gains
/// over itself alone.
fn measured_pair(table: &Table) -> String {
    let name = |at: usize| table.columns.get(at).map_or("", |column| &column.name);
    let row = |row: &Vec<Cell>, at: usize| {
        let era = row.first().map_or("", |cell| &cell.text);
        let cell = row.get(at);
        let figure = match cell.map(|cell| cell.status) {
            Some(Some(Status::TooNoisy)) => "too noisy".to_owned(),
            _ => short(cell.map_or("", |cell| &cell.text)),
        };
        format!("{era} {figure}")
    };
    let rows = |at: usize| {
        let all: Vec<_> = table.rows.iter().map(|it| row(it, at)).collect();
        format!("{}: {}", name(at), all.join(", "))
    };
    format!("{}; {}", rows(RATE), rows(OWN_RATIO))
}

/// A figure without its interval, large ones in thousands or millions.
fn short(figure: &str) -> String {
    let median = figure.split(' ').next().unwrap_or_default();
    match median.parse::<f64>() {
        Ok(rate) if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        Ok(rate) if rate >= 1e4 => format!("{:.1} k", rate / 1e3),
        _ => median.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::parts_of_the_code;
    use crate::commands::reproduce::REPRODUCED;
    use minflt_report::{PublishedTable, Status, postings, replace_generated};
    use std::fs;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    fn unchanged(file: &str, block: &str, body: &str) {
        let text = fs::read_to_string(format!("{ROOT}/{file}")).expect("there");
        let again = replace_generated(&text, block, body).expect("the block is there");
        assert!(
            again == text,
            "{file}: block {block} is not what the code says; run `cargo run \
                 --release -- reproduce --docs` and commit"
        );
    }

    #[test]
    fn the_docs_tables_are_what_the_code_says() {
        for (file, name, text) in parts_of_the_code().expect("readable") {
            unchanged(file, name, &text);
        }
    }

    #[test]
    fn every_published_row_of_simulated_postings_stands_beside_ours() {
        let all = postings().expect("readable");
        for posting in all.iter().filter(|it| REPRODUCED.contains(&it.id.as_str())) {
            let file = format!("{ROOT}/docs/postings/{}.md", posting.id);
            let text = fs::read_to_string(file).expect("there");
            let not_yet = |table: &&PublishedTable| table.status == Status::NotYet;
            let tables = posting.tables.iter().chain(&posting.held_out);
            for table in tables.filter(|table| !not_yet(table)) {
                let title = format!("{}: {}", table.id, table.title);
                let body = text
                    .split(&title)
                    .nth(1)
                    .unwrap_or_else(|| panic!("no {title}"));
                // Behind the title, until the next one.
                let body = body.split_once("**\n").map_or("", |(_, body)| body);
                let body = body.split("\n**").next().unwrap_or_default();
                for label in table.row_labels() {
                    let row = format!("| {label} ");
                    let rows = body.lines();
                    let found = rows.filter(|line| line.starts_with(&row)).count();
                    assert_eq!(found, 1, "{title}: {label}");
                }
            }
        }
    }

    #[test]
    fn measured_blocks_name_their_machine_and_command() {
        for id in REPRODUCED {
            let file = format!("docs/postings/{id}.md");
            let text = fs::read_to_string(format!("{ROOT}/{file}")).expect("there");
            let block = text
                .split("<!-- generated: measured -->")
                .nth(1)
                .expect("a block");
            let block = block
                .split("<!-- end generated: measured -->")
                .next()
                .expect("its end");
            assert!(
                block.contains("measured on ") && block.contains("minflt bench "),
                "{file}"
            );
        }
    }
}
