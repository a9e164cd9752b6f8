//! `minflt reproduce`: figures measured here, then the postings' tables, then the page.

mod docs;
pub(crate) mod hash;
mod here;
pub(crate) mod proof;
pub(crate) mod tables;
mod validation;

use crate::args::Reproduce;
use crate::error::{Error, failed, usage};
use crate::experiment::Size;
use crate::machine;
use crate::out::outln;
use crate::progress::Progress;
use crate::rows::write_json;
use minflt_report::published::overview;
use minflt_report::{Posting, Report, Run, Section, Table, postings};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The postings of which something is measured and simulated.
const REPRODUCED: [&str; 5] = ["2004", "2012", "2014", "2017", "2022"];

/// Everything that was found out.
#[derive(Debug, Default)]
struct Findings {
    sections: Vec<Section>,
    runs: Vec<Run>,
}

impl Findings {
    /// Adds a section and prints it.
    fn add(&mut self, heading: &str, intro: &str, tables: Vec<Table>) {
        outln!("\n{heading}\n{}\n", "=".repeat(heading.chars().count()));
        for table in &tables {
            outln!("{}", table.to_text());
        }
        self.sections.push(Section {
            heading: heading.into(),
            intro: intro.into(),
            tables,
            notes: Vec::new(),
        });
    }
}

/// Runs the command.
pub(crate) fn run(args: &Reproduce) -> Result<(), Error> {
    let all = postings().map_err(|error| failed("published data")(&error))?;
    let chosen = choose(&all, &args.postings)?;
    let has = |id: &str| chosen.iter().any(|posting| posting.id == id);
    if args.full && !has("2004") {
        return Err(usage(
            "--full: only the 2004 tables can be simulated at full size; add 2004",
        ));
    }
    if let Some(why) = proof::impossible().filter(|_| args.docs) {
        return Err(usage(format!("--docs: {why}")));
    }
    let steps = REPRODUCED.into_iter().zip(tables::STEPS);
    let steps: u64 = steps.filter(|(id, _)| has(id)).map(|(_, n)| n).sum();
    let progress = Progress::new(args.quiet, proof::STEPS + steps);
    let mut found = Findings::default();
    outln!(
        "minflt {} on {}",
        env!("CARGO_PKG_VERSION"),
        machine::line()
    );
    let proof = measured(&mut found, &progress, REPRODUCED.map(has))?;
    let mut here = None;
    let mut of_here = Vec::new();
    if has("2004") {
        let table = here::simulate(&proof, &mut found.runs, &mut of_here)?;
        found.add("This machine, simulated", here::INTRO, vec![table.clone()]);
        here = Some(table);
    }
    let size = if args.full { Size::Full } else { Size::Scaled };
    let mut simulated = BTreeMap::new();
    let mut compared = Vec::new();
    for posting in &chosen {
        let done = match posting.id.as_str() {
            "2004" => tables::simulate_2004(posting, size, &progress)?,
            "2012" => tables::simulate_2012(posting, &progress)?,
            "2014" => tables::simulate_2014(posting, &progress)?,
            "2017" => tables::simulate_2017(posting, &progress)?,
            "2022" => tables::simulate_2022(posting, &progress)?,
            _ => continue,
        };
        let heading = format!("The {} tables, published beside simulated", posting.id);
        found.add(&heading, done.intro, done.tables.clone());
        found.runs.extend(done.runs);
        compared.extend(done.compared);
        simulated.insert(posting.id.clone(), done.tables);
    }
    compared.extend(of_here);
    let judged = judged(&mut found, &compared);
    progress.end();
    found.add(
        "What was published, and where each table stands",
        REST,
        vec![overview(&chosen)],
    );
    write_json(args.json.as_deref(), &found.runs)?;
    if args.docs {
        let figures = docs::Figures {
            proof: &proof,
            simulated: &simulated,
            judged: &judged,
            here: here.as_ref(),
        };
        docs::write(&all, &figures)?;
    }
    outln!("page: {}", page(args, found)?.display());
    let hash = hash::check()?;
    outln!("simulated rows hash to {hash:016x}, as committed");
    Ok(())
}

/// The verdict, the misses and the bars.
fn judged(found: &mut Findings, compared: &[tables::Compared]) -> [Table; 3] {
    let judged = [tables::verdict, tables::misses, tables::judge].map(|table| table(compared));
    if !compared.is_empty() {
        found.add("How good the predictions are", JUDGED, judged.to_vec());
    }
    judged
}

const REST: &str = "Every table of the five postings. A status of `not yet` names the part of the \
                    work that brings it.";

const JUDGED: &str = "The bars were set before anything was fitted; what misses one is printed, and \
                      docs/validation.md says what is known of why.";

const MEASURED: &str = "Two threads on this machine's own processors, each pair of eras in one \
                        program, alternated. The rows of real Linux make the same calls as system \
                        calls of the kernel this ran on.";

/// The rows measured on this machine's threads.
fn measured(
    found: &mut Findings,
    progress: &Progress,
    pairs: [bool; 5],
) -> Result<proof::Proof, Error> {
    if let Some(why) = proof::impossible() {
        outln!("\nMeasured here: skipped: {why}");
        return Ok(proof::Proof::default());
    }
    let proof = proof::measure(progress, pairs)?;
    if !proof.tables.is_empty() {
        found.add("Measured here", MEASURED, proof.tables.clone());
        found.runs.extend(proof.runs.iter().cloned());
    }
    Ok(proof)
}

fn choose(all: &[Posting], names: &[String]) -> Result<Vec<Posting>, Error> {
    let one = |name: &String| {
        all.iter()
            .find(|posting| posting.id == *name)
            .cloned()
            .ok_or_else(|| {
                let known: Vec<_> = all.iter().map(|posting| posting.id.as_str()).collect();
                usage(format!(
                    "unknown posting `{name}`; postings are {}",
                    known.join(", ")
                ))
            })
    };
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    names.iter().map(one).collect()
}

fn page(args: &Reproduce, found: Findings) -> Result<PathBuf, Error> {
    let report = Report {
        title: "Page faults that scale".into(),
        lead: format!(
            "What five Linux postings on page-fault scalability published, and what this program \
             measured and simulated of it.\n\nMade on {}.",
            machine::line()
        ),
        sections: found.sections,
        footer: format!("minflt {}: `minflt reproduce`", env!("CARGO_PKG_VERSION")),
    };
    let cannot = failed(format!("--out: cannot write into {}", args.out.display()));
    fs::create_dir_all(&args.out).map_err(|error| cannot(&error))?;
    let path = args.out.join("report.html");
    fs::write(&path, report.to_html()).map_err(|error| cannot(&error))?;
    Ok(path)
}
