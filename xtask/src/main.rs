//! The project's chores: `cargo xtask tidy | ci | soak | loom | weaken | fuzz | ...`.
#![forbid(unsafe_code)]

mod ci;
mod commits;
mod fuzz;
mod step;
mod tidy;
mod weaken;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy             check the rules of the tree that no compiler checks
  ci [STEP...]     run the gate, or the named steps, and print the time of each
  commits [BASE]   check the subjects of the commits since BASE [default: since the rule began]
  loom             run the model tests of the locks
  weaken [FILE...] weaken each ordering of crates/sync/src, or of the FILEs there, in turn, and
                   report which model fails
  bare             build the library crates for x86_64-unknown-none
  deny             check licences, duplicates and sources of the dependencies of all lock files
  deny --advisories   check their known vulnerabilities; fetches the database from GitHub
  fuzz [TARGET...] [--seconds N]
                   run the fuzz targets, a few seconds each from the committed corpus, or N
                   seconds each with findings kept in fuzz/found (needs a nightly)
  miri             test sync, pgtable and mm on small machines under Miri (needs a nightly)
  soak [ARG...]    search schedules for hours; ARGs go to `minflt check`
  steps            list the steps of `ci`
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let root = workspace_root();
    match (command.as_str(), rest) {
        ("tidy", []) => tidy::run(&root),
        ("commits", []) => commits::run(&root, None),
        ("commits", [base]) => commits::run(&root, Some(base)),
        ("ci", []) => step::run_all(&ci::gate(&root)),
        ("ci", names) => named_steps(&ci::gate(&root), names),
        ("loom" | "bare", []) => named_steps(&ci::gate(&root), core::slice::from_ref(command)),
        ("weaken", files) => weaken::run(
            &root,
            &ci::target_dir(&root),
            files,
            ci::LOOM_PREEMPTIONS_CI,
        ),
        ("deny", []) => step::run_all(&ci::deny(&root)),
        ("deny", [option]) if option == "--advisories" => step::run_all(&ci::advisories(&root)),
        ("fuzz", args) => fuzz::run(&root, args),
        ("miri", []) => step::run_all(&ci::miri(&root)),
        ("soak", extra) => step::run_all(&ci::soak(&root, extra)),
        ("steps", []) => {
            for step in ci::gate(&root) {
                println!("{}", step.name);
            }
            ExitCode::SUCCESS
        }
        ("help" | "--help" | "-h", []) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("xtask: unknown command or arguments: `{}`", args.join(" "));
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs the steps of `gate` whose names are given, in the order of the gate.
fn named_steps(gate: &[step::Step], names: &[String]) -> ExitCode {
    if let Some(unknown) = names
        .iter()
        .find(|name| gate.iter().all(|step| step.name != **name))
    {
        eprintln!("xtask: no step is called `{unknown}`; `cargo xtask steps` lists them");
        return ExitCode::from(2);
    }
    let chosen: Vec<step::Step> = gate
        .iter()
        .filter(|step| names.iter().any(|name| *name == step.name))
        .cloned()
        .collect();
    step::run_all(&chosen)
}

/// The folder above this crate's.
fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
