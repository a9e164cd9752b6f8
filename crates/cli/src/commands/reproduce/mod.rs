//! `minflt reproduce`: figures measured here, then the postings' tables, then what came out, then
//! the kernel in QEMU.
//!
//! A line is printed for each measured row as soon as it is there, then two for each claim; all
//! tables are on the page. Whatever is done is written as it is done ([`Outputs`]).

mod docs;
pub(crate) mod hash;
mod here;
mod kernel;
mod pictures;
pub(crate) mod proof;
mod steps;
pub(crate) mod tables;
mod validation;
mod verdict;

use crate::args::Reproduce;
use crate::error::{Error, failed, usage};
use crate::experiment::Size;
use crate::machine;
use crate::out::{go_on_without_reader, outln, table_text};
use crate::outputs::{Outputs, Parts, State};
use crate::progress::{Deadline, OFTEN, Progress};
use minflt_report::published::overview;
use minflt_report::{Posting, Report, Section, Table, postings};
use proof::Proof;
use std::collections::BTreeMap;
use tables::Simulated;

/// The postings of which something is measured and simulated.
const REPRODUCED: [&str; 5] = ["2004", "2012", "2014", "2017", "2022"];

/// Runs the command.
pub(crate) fn run(args: &Reproduce) -> Result<(), Error> {
    let all = postings().map_err(|error| failed("published data")(&error))?;
    let chosen = choose(&all, &args.postings)?;
    refuse(args, &chosen)?;
    let options = format!("{} full={}", machine::line(), args.full);
    let outputs = Outputs::open(
        &args.out,
        args.json.as_deref(),
        report(),
        Parts::of(&args.out, &options, args.resume),
    )?;
    go_on_without_reader();
    outln!(
        "minflt {} on {}",
        env!("CARGO_PKG_VERSION"),
        machine::line()
    );
    let mut job = Job {
        args,
        progress: Progress::every(OFTEN, args.quiet, step_count(&chosen)),
        outputs,
        deadline: Deadline::after(args.budget),
        left_out: Vec::new(),
    };
    job.run(&chosen)
}

fn has(chosen: &[Posting], id: &str) -> bool {
    chosen.iter().any(|posting| posting.id == id)
}

fn refuse(args: &Reproduce, chosen: &[Posting]) -> Result<(), Error> {
    if args.full && !has(chosen, "2004") {
        return Err(usage(
            "--full: only the 2004 tables can be simulated at full size; add 2004",
        ));
    }
    if let Some(why) = proof::impossible().filter(|_| args.docs) {
        return Err(usage(format!("--docs: {why}")));
    }
    if args.docs && args.budget.is_some() {
        return Err(usage("--docs: needs all rows; leave --budget out"));
    }
    if args.docs {
        docs::refuse(args.postings.len())?;
    }
    Ok(())
}

fn step_count(chosen: &[Posting]) -> u64 {
    let steps = REPRODUCED.into_iter().zip(tables::STEPS);
    let steps = steps.filter(|(id, _)| has(chosen, id));
    proof::STEPS + steps.map(|(_, steps)| steps).sum::<u64>()
}

struct Job<'a> {
    args: &'a Reproduce,
    progress: Progress,
    outputs: Outputs,
    deadline: Deadline,
    /// What the budget left out.
    left_out: Vec<String>,
}

impl Job<'_> {
    fn run(&mut self, chosen: &[Posting]) -> Result<(), Error> {
        let proof = self.measure(chosen)?;
        let mut figures = tables::Figures::default();
        let here = self.simulate_here(chosen, &proof, &mut figures)?;
        let mut simulated = BTreeMap::new();
        for posting in chosen {
            let Some(done) = self.simulate(posting)? else {
                continue;
            };
            figures.compared.extend(done.figures.compared);
            figures.cells.extend(done.figures.cells);
            simulated.insert(posting.id.clone(), done.tables);
        }
        let judged = self.judge(&figures.compared)?;
        let verdicts = verdict::verdicts(chosen, &figures.cells, &proof);
        self.pictures()?;
        self.outputs.first(Section {
            pictures: verdict::pictures(&verdicts),
            open: true,
            ..section("What came out", "", vec![verdict::table(&verdicts, false)])
        })?;
        let rest = vec![overview(chosen)];
        self.add(
            "What was published, and where each table stands",
            REST,
            rest,
        )?;
        self.progress.end();
        verdict::print(&verdicts);
        let kernel = self.kernel()?;
        let state = match (&kernel, self.left_out.is_empty()) {
            (Some(_), _) => State::PartFailed,
            (None, true) => State::Whole,
            (None, false) => State::OverBudget,
        };
        self.outputs.finish(state)?;
        if self.args.docs {
            let figures = docs::Figures {
                proof: &proof,
                simulated: &simulated,
                judged: &judged,
                here: here.as_ref(),
                verdicts: &verdicts,
            };
            docs::write(&figures)?;
        }
        if !self.left_out.is_empty() {
            outln!(
                "left out, as --budget is over: {}; --resume goes on from there",
                self.left_out.join(", ")
            );
        }
        let more = match self.args.tables {
            true => "",
            false => " (all tables are there; --tables prints them)",
        };
        outln!("page: {}{more}", self.outputs.page().display());
        let hash = hash::check()?;
        outln!("simulated rows hash to {hash:016x}, as committed");
        kernel.map_or(Ok(()), Err)
    }

    /// Adds a section to the page, and prints its tables where that is asked for.
    fn add(&mut self, heading: &str, intro: &str, tables: Vec<Table>) -> Result<(), Error> {
        if self.args.tables {
            self.progress.suspend(|| {
                outln!("\n{heading}\n{}\n", "=".repeat(heading.chars().count()));
                tables
                    .iter()
                    .for_each(|table| outln!("{}", table_text(table)));
            });
        }
        self.outputs.section(section(heading, intro, tables))
    }

    /// Whether `what` is left out, since the budget is over.
    fn is_over(&mut self, what: &str) -> bool {
        let over = self.deadline.is_over();
        if over {
            self.left_out.push(what.to_owned());
        }
        over
    }

    /// The rows measured on this machine's threads.
    fn measure(&mut self, chosen: &[Posting]) -> Result<Proof, Error> {
        let mut proof = Proof::default();
        if let Some(why) = proof::impossible() {
            outln!("measured here: skipped: {why}");
            return Ok(proof);
        }
        for job in proof::jobs(REPRODUCED.map(|id| has(chosen, id))) {
            let name = job.name();
            if !self.outputs.has_part(&name) && self.is_over(&name) {
                continue;
            }
            let part = self.outputs.part(&name, || job.measure(&self.progress))?;
            self.progress.suspend(|| {
                outln!("\n{}", job.title());
                part.lines.iter().for_each(|line| outln!("  {line}"));
            });
            self.outputs.rows(&part.runs)?;
            proof.parts.push(part);
            let tables = proof.tables().into_iter().cloned().collect();
            self.outputs.section(section(HERE, MEASURED, tables))?;
        }
        if !proof.parts.is_empty() {
            self.add(
                HERE,
                MEASURED,
                proof.tables().into_iter().cloned().collect(),
            )?;
        }
        Ok(proof)
    }

    /// This machine, simulated.
    fn simulate_here(
        &mut self,
        chosen: &[Posting],
        proof: &Proof,
        figures: &mut tables::Figures,
    ) -> Result<Option<Table>, Error> {
        if !has(chosen, "2004") || self.is_over("this machine, simulated") {
            return Ok(None);
        }
        let mut runs = Vec::new();
        let table = here::simulate(proof, &mut runs, &mut figures.compared)?;
        self.outputs.rows(&runs)?;
        self.add("This machine, simulated", here::INTRO, vec![table.clone()])?;
        Ok(Some(table))
    }

    /// The tables of a posting.
    fn simulate(&mut self, posting: &Posting) -> Result<Option<Simulated>, Error> {
        let name = format!("simulated-{}", posting.id);
        let what = format!("the simulated tables of {}", posting.id);
        if !self.outputs.has_part(&name) && self.is_over(&what) {
            return Ok(None);
        }
        let size = match self.args.full {
            true => Size::Full,
            false => Size::Scaled,
        };
        let progress = &self.progress;
        let make = || match posting.id.as_str() {
            "2004" => tables::simulate_2004(posting, size, progress),
            "2012" => tables::simulate_2012(posting, progress),
            "2014" => tables::simulate_2014(posting, progress),
            "2017" => tables::simulate_2017(posting, progress),
            "2022" => tables::simulate_2022(posting, progress),
            other => Err(usage(format!("posting {other}: nothing simulates it"))),
        };
        let done = self.outputs.part(&name, make)?;
        self.outputs.rows(&done.runs)?;
        let heading = format!("The {} tables, published beside simulated", posting.id);
        self.add(&heading, &done.intro, done.tables.clone())?;
        Ok(Some(done))
    }

    /// Curves over numbers of CPUs, where time goes on them, and races to step through.
    fn pictures(&mut self) -> Result<(), Error> {
        if !self.is_over("the races") {
            self.outputs.first(steps::races()?)?;
        }
        if !self.is_over("where time goes") {
            self.outputs.first(pictures::time_goes()?)?;
        }
        self.outputs.first(pictures::curves())
    }

    /// All cells, the misses and the bars.
    fn judge(&mut self, compared: &[tables::Compared]) -> Result<[Table; 3], Error> {
        let judged = [tables::verdict, tables::misses, tables::judge].map(|table| table(compared));
        if !compared.is_empty() {
            self.add("How good the predictions are", JUDGED, judged.to_vec())?;
        }
        Ok(judged)
    }
}

fn section(heading: &str, intro: &str, tables: Vec<Table>) -> Section {
    Section {
        heading: heading.into(),
        intro: intro.into(),
        tables,
        ..Section::default()
    }
}

const REST: &str = "Every table of the five postings. A status of `not yet` names the part of the \
                    work that brings it.";

const JUDGED: &str = "The bars were set before anything was fitted; what misses one is printed, and \
                      docs/validation.md says what is known of why.";

const HERE: &str = "Measured here";
const MEASURED: &str = "Two threads on this machine's own processors, each pair of eras in one \
                        program, alternated. The rows of real Linux make the same calls as system \
                        calls of the kernel this ran on.";

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
    if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        return Err(usage(format!(
            "posting {} is named twice; name it once",
            names[at]
        )));
    }
    names.iter().map(one).collect()
}

fn report() -> Report {
    Report {
        title: "Page faults that scale".into(),
        lead: format!(
            "What five Linux postings on page-fault scalability published, and what this program \
             measured and simulated of it.\n\nMade on {}.",
            machine::line()
        ),
        sections: Vec::new(),
        footer: format!("minflt {}: `minflt reproduce`", env!("CARGO_PKG_VERSION")),
    }
}
