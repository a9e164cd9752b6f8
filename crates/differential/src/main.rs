//! `minflt-differential`: random steps on the model, on Linux and on `mm`.
#![forbid(unsafe_code)]

mod options;

use minflt_differential::compare::disagreement;
use minflt_differential::generate::Choice;
use minflt_differential::ours::{self, Ours};
use minflt_differential::run::{Cases, Plan, Ran, run};
use minflt_differential::step::read_steps;
use minflt_differential::{Linux, Subject, table};
use minflt_mm::ERAS;
use options::{Options, USAGE, Who};
use std::process::ExitCode;
use std::time::SystemTime;

fn main() -> ExitCode {
    let args = std::env::args().skip(1);
    let options = match Options::read(args) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("minflt-differential: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match work(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("minflt-differential: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all agree.
fn work(options: &Options) -> Result<bool, String> {
    let mut subjects = subjects(options)?;
    let choice = match options.who {
        Who::Linux => Choice::ALL,
        Who::All | Who::Mm => ours::CHOICE,
    };
    if let Some(file) = &options.replay {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let steps = read_steps(&text).map_err(|error| format!("{file}: {error}"))?;
        let mut agree = true;
        for subject in &mut subjects {
            match disagreement(subject.as_mut(), &steps, &choice) {
                Some(found) => {
                    agree = false;
                    print!("{found}");
                }
                None => println!("{}: agrees", subject.name()),
            }
        }
        return Ok(agree);
    }
    let plan = Plan {
        steps: options.steps,
        seed: options.seed,
        choice,
        cases: options.cases,
    };
    let started = SystemTime::now();
    let ran = run(&plan, &mut subjects, |_| {});
    let seconds = started.elapsed().map_or(0, |time| time.as_secs());
    println!("{ran}");
    let names: Vec<String> = subjects.iter().map(|subject| subject.name()).collect();
    println!("seed {}, {seconds} s: {}", options.seed, names.join(", "));
    print!("{}", ran.histogram.results_table());
    if options.docs && ran.found.is_none() {
        return write_docs(options, &ran, &names);
    }
    Ok(ran.found.is_none())
}

fn subjects(options: &Options) -> Result<Vec<Box<dyn Subject>>, String> {
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    if options.who != Who::Mm {
        match linux(options)? {
            Ok(linux) => subjects.push(Box::new(linux)),
            Err(why) if options.docs => return Err(format!("no Linux to compare with: {why}")),
            Err(why) => println!("Linux: skipped: {why}"),
        }
    }
    if options.who != Who::Linux {
        for era in ERAS {
            subjects.push(Box::new(Ours::start(era)?));
        }
    }
    Ok(subjects)
}

/// Linux, with huge pages where they can be had; the reason is printed where they cannot.
fn linux(options: &Options) -> Result<Result<Linux, String>, String> {
    if options.cases == Cases::Small {
        return Ok(Linux::start());
    }
    match Linux::start_with_huge_pages() {
        Ok(linux) => Ok(Ok(linux)),
        Err(why) if options.docs => Err(format!("no huge pages to compare with: {why}")),
        Err(why) => {
            println!("Linux: huge pages left out: {why}");
            Ok(Linux::start())
        }
    }
}

fn write_docs(options: &Options, ran: &Ran, names: &[String]) -> Result<bool, String> {
    let file = "docs/linux-compat.md";
    let command = format!(
        "cargo run --release -p minflt-differential -- --steps {} --seed {}",
        options.steps, options.seed
    );
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let text = table::fill(&text, ran, &command, names)?;
    std::fs::write(file, text).map_err(|error| format!("{file}: {error}"))?;
    let rare = table::rare(&ran.histogram);
    for row in &rare {
        println!("too rare: {row}");
    }
    Ok(rare.is_empty())
}
