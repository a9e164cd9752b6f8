//! `reproduce --docs`: the tables that the docs hold are written here, never by hand.

use super::proof::Proof;
use super::validation::fits;
use super::verdict::{self, Verdict};
use crate::commands::kernels;
use crate::commands::lists::{choice_table, era_table, format_table, refused_table};
use crate::commands::machines::{machine_table, shipped};
use crate::error::{Error, failed, usage};
use minflt_report::{Table, replace_generated};
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
    pub(super) verdicts: &'a [Verdict],
}

const ALL: &str = "--docs: needs the rows of all postings; do not name one";

/// Refuses, before the run, what cannot be written after it: there is nowhere to, or rows will be
/// missing.
pub(super) fn refuse(named: usize) -> Result<(), Error> {
    if named > 0 {
        return Err(usage(ALL));
    }
    if !Path::new("docs/eras.md").exists() {
        return Err(usage(
            "--docs: run from the repository's root, where docs/ is",
        ));
    }
    Ok(())
}

/// Fills every generated block of the docs.
pub(super) fn write(figures: &Figures<'_>) -> Result<(), Error> {
    let [lameter, moved, around, apart, merging, ebizzy, huge] = figures.proof.tables()[..] else {
        return Err(usage(ALL));
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
        &verdict::table(figures.verdicts, true).to_markdown(),
    )
}

/// The parts that come from the code and its data alone: file, block and text.
pub(super) fn parts_of_the_code() -> Result<Vec<(&'static str, &'static str, String)>, Error> {
    let [locks, every_lock] = super::validation::locks::tables()?;
    let tables = [
        ("docs/eras.md", "eras", era_table()),
        ("docs/eras.md", "choices", choice_table()),
        ("docs/eras.md", "refused", refused_table()),
        ("docs/eras.md", "kernels", kernels::table()),
        ("docs/formats.md", "formats", format_table()),
        ("docs/machines.md", "machines", machine_table(&shipped()?)),
        (VALIDATION, "locks", locks),
        ("docs/locks.md", "every-lock", every_lock),
        (VALIDATION, "fits", fits::table()?),
    ];
    let tables = tables.map(|(file, name, table)| (file, name, table.to_markdown()));
    let fitted = fits::sentence()?;
    let said = ["docs/status.md", "docs/machines.md"].map(|file| (file, "fitted", fitted.clone()));
    Ok(tables.into_iter().chain(said).collect())
}

fn fill(file: &str, block: &str, body: &str) -> Result<(), Error> {
    let cannot = failed(format!("--docs: {file}"));
    let text = fs::read_to_string(file).map_err(|error| cannot(&error))?;
    let text = replace_generated(&text, block, body).map_err(|error| cannot(&error))?;
    fs::write(file, text).map_err(|error| cannot(&error))
}

#[cfg(test)]
mod tests {
    use super::parts_of_the_code;
    use crate::commands::reproduce::REPRODUCED;
    use minflt_report::{PublishedTable, Status, postings, replace_generated};
    use std::fs;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    /// With `MINFLT_DOCS` set the block is written instead.
    fn unchanged(file: &str, block: &str, body: &str) {
        let path = format!("{ROOT}/{file}");
        let text = fs::read_to_string(&path).expect("there");
        let again = replace_generated(&text, block, body).expect("the block is there");
        if std::env::var_os("MINFLT_DOCS").is_some() {
            return fs::write(path, again).expect("written");
        }
        assert!(
            again == text,
            "{file}: block {block} is not what the code says; run this test with \
                 MINFLT_DOCS=1 and commit"
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
