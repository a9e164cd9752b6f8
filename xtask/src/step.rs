//! Commands run one after another, timed, with a table at the end.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// One command of a gate.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What `cargo xtask ci NAME` calls it.
    pub(crate) name: &'static str,
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// Variables set for the command.
    pub(crate) env: Vec<(&'static str, String)>,
    /// The folder it runs in.
    pub(crate) dir: PathBuf,
    /// Why it cannot run here; `None` when it can.
    pub(crate) skip: Option<String>,
}

/// How a step ended.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

impl Step {
    /// A step that runs `cargo` with the words of `args` in `dir`.
    pub(crate) fn cargo(name: &'static str, dir: impl Into<PathBuf>, args: &str) -> Self {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let argv = core::iter::once(cargo).chain(args.split_whitespace().map(str::to_owned));
        Self {
            name,
            argv: argv.collect(),
            env: Vec::new(),
            dir: dir.into(),
            skip: None,
        }
    }

    /// The same step with one more variable.
    pub(crate) fn with_env(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.env.push((key, value.into()));
        self
    }

    /// The same step with further arguments, which may hold blanks.
    pub(crate) fn with_args(mut self, args: &[String]) -> Self {
        self.argv.extend_from_slice(args);
        self
    }

    /// The same step, skipped for `reason` unless `possible`.
    pub(crate) fn only_if(mut self, possible: impl FnOnce() -> bool, reason: &str) -> Self {
        if self.skip.is_none() && !possible() {
            self.skip = Some(reason.to_owned());
        }
        self
    }

    /// The command as one would type it.
    fn shown(&self) -> String {
        let env = self
            .env
            .iter()
            .map(|(key, value)| format!("{key}='{value}' "));
        let argv = self.argv.iter().enumerate().map(|(at, arg)| match at {
            0 => program_name(arg),
            _ if arg.contains(['*', ' ']) => format!(" '{arg}'"),
            _ => format!(" {arg}"),
        });
        env.chain(argv).collect()
    }

    fn run(&self) -> Outcome {
        println!("\n=== {}: {}", self.name, self.shown());
        if let Some(reason) = &self.skip {
            println!("skipped: {reason}");
            return Outcome::Skipped(reason.clone());
        }
        let Some((program, args)) = self.argv.split_first() else {
            return Outcome::Failed;
        };
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(&self.dir)
            .envs(self.env.iter().map(|(k, v)| (k, v)));
        match command.status() {
            Ok(status) if status.success() => Outcome::Passed,
            Ok(status) => {
                println!("{}: {status}", self.name);
                Outcome::Failed
            }
            Err(error) => {
                println!("{}: cannot run `{program}`: {error}", self.name);
                Outcome::Failed
            }
        }
    }
}

/// The last part of a program's path: `cargo` of the toolchain that runs us.
fn program_name(path: &str) -> String {
    let name = Path::new(path).file_name();
    name.map_or_else(|| path.to_owned(), |name| name.display().to_string())
}

/// Runs every step, also after one failed, and prints what became of each and how long it took.
pub(crate) fn run_all(steps: &[Step]) -> ExitCode {
    let mut results = Vec::new();
    for step in steps {
        let start = now();
        let outcome = step.run();
        results.push((step.name, outcome, start.elapsed()));
    }
    print!("{}", table(&results));
    if results
        .iter()
        .any(|(_, outcome, _)| *outcome == Outcome::Failed)
    {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a command took is wall time"
)]
fn now() -> Instant {
    Instant::now()
}

fn table(results: &[(&str, Outcome, Duration)]) -> String {
    let mut out = String::from("\nstep              seconds  result\n");
    let mut total = Duration::ZERO;
    for (name, outcome, took) in results {
        total += *took;
        let result = match outcome {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
        };
        out.push_str(&format!(
            "{name:<16} {:>8.1}  {result}\n",
            took.as_secs_f64()
        ));
    }
    out.push_str(&format!("{:<16} {:>8.1}\n", "total", total.as_secs_f64()));
    out
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Step, run_all, table};
    use core::time::Duration;
    use std::process::ExitCode;

    #[test]
    fn the_table_names_each_step_with_its_time() {
        let shown = table(&[
            ("fmt", Outcome::Passed, Duration::from_millis(1500)),
            (
                "loom",
                Outcome::Skipped("no model tests".to_owned()),
                Duration::ZERO,
            ),
            ("clippy", Outcome::Failed, Duration::from_secs(2)),
        ]);
        assert!(shown.contains("fmt                   1.5  ok\n"), "{shown}");
        assert!(shown.contains("skipped: no model tests\n"), "{shown}");
        assert!(
            shown.contains("clippy                2.0  FAILED\n"),
            "{shown}"
        );
        assert!(shown.contains("total                 3.5\n"), "{shown}");
    }

    #[test]
    fn one_failed_step_fails_the_run_and_a_skipped_one_does_not() {
        let bad = Step::cargo("bad", ".", "no-such-command-of-cargo");
        let skipped = bad.clone().only_if(|| false, "not here");
        assert_eq!(run_all(core::slice::from_ref(&bad)), ExitCode::FAILURE);
        assert_eq!(run_all(&[skipped]), ExitCode::SUCCESS);
    }
}
