//! Whether a model fails when an ordering is weaker: for each one of `crates/sync` in turn.
//!
//! # Idea
//! A copy of the crate, in which each ordering under an ORDERING comment with a pair asks the
//! environment whether it is to be weaker, is built once. A run with nothing weakened says which
//! test executes which ordering; then those tests run once for each change.
//!
//! # What it cannot say
//! An ordering that a model notices is needed by that model. One that none notices may be needed
//! by what no model shows: a survivor has a reason in `docs/memory-model.md`, or the command fails.

mod copy;
mod page;
mod sites;

use copy::{Copy, Verdict};
use page::{PAGE, Page};
use sites::{Operation, Site};
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// A change that no model notices.
#[derive(Clone, Copy, Debug)]
struct Survivor<'a> {
    site: &'a Site,
    to: &'static str,
}

/// Weakens the orderings of `files`, paths below `crates/sync/src`, or of all; prints a table.
pub(crate) fn run(root: &Path, target: &Path, files: &[String], preemptions: u32) -> ExitCode {
    match weaken(root, target, files, preemptions) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weaken: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every survivor has its reason.
fn weaken(root: &Path, target: &Path, files: &[String], preemptions: u32) -> io::Result<bool> {
    let page = Page::parse(&std::fs::read_to_string(root.join(PAGE))?);
    let copy = Copy::make(root, target, preemptions)?;
    let known = |file: &String| copy.sites.iter().any(|site| site.file == *file);
    if let Some(unknown) = files.iter().find(|file| !known(file)) {
        return Err(io::Error::other(format!(
            "crates/sync/src/{unknown} has no ordering that names a pair"
        )));
    }
    let chosen = |site: &Site| files.is_empty() || files.contains(&site.file);
    let mut survivors = Vec::new();
    let mut changes = 0;
    println!(
        "{:<24} {:<34} {:<20} noticed by",
        "ordering", "pair", "change"
    );
    for (number, site) in copy.sites.iter().enumerate().filter(|(_, it)| chosen(it)) {
        for chain in site.weaker() {
            for to in chain {
                let verdict = match site.operation {
                    Operation::CompilerFence => Verdict::NotReached,
                    _ => copy.verdict(number, to, preemptions)?,
                };
                changes += 1;
                print_row(site, to, &verdict);
                if let Verdict::Noticed { .. } = verdict {
                    // What is weaker still fails, too.
                    break;
                }
                survivors.push(Survivor { site, to });
            }
        }
    }
    let mut tried: Vec<String> = copy
        .sites
        .iter()
        .filter(|it| chosen(it))
        .map(|it| it.file.clone())
        .collect();
    tried.dedup();
    println!(
        "weaken: {changes} changes of {} orderings, {} noticed by no model",
        copy.sites.iter().filter(|it| chosen(it)).count(),
        survivors.len()
    );
    let findings = page.findings(&survivors, &tried);
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.is_empty())
}

fn print_row(site: &Site, to: &str, verdict: &Verdict) {
    let place = format!("{}:{}", site.file, site.line);
    let pairs: Vec<String> = site.pairs.iter().map(|pair| format!("[{pair}]")).collect();
    let noticed = match verdict {
        Verdict::Noticed { model, tests } => match tests.split_first() {
            Some((first, [])) => format!("{model}: {first}"),
            Some((first, rest)) => format!("{model}: {first} and {} more", rest.len()),
            None => format!("{model}, which was aborted"),
        },
        Verdict::Survived => "SURVIVED".to_owned(),
        Verdict::TimedOut { model } => format!("SURVIVED: {model} ran into its limit"),
        Verdict::NotReached => "SURVIVED: no model executes it".to_owned(),
    };
    println!(
        "{place:<24} {:<34} {:<20} {noticed}",
        pairs.join(", "),
        page::change(&site.order, to)
    );
}
