//! What the benches share: the frame of a run, systems and clocks, and figures with their verdicts.

pub(crate) mod figures;
pub(crate) mod machine;
pub(crate) mod table;

use core::error::Error;
use std::io;
use std::process::{Command, ExitCode};

/// The option that makes a bench the child with real system calls.
const CHILD: &str = "--linux-child";

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Much {
    /// With verdicts.
    Full,
    /// Few rounds of the full size.
    Quick,
    /// A small size: what `cargo test --benches` runs, which says nothing.
    Smoke,
}

impl Much {
    /// As the command line spells it.
    pub(crate) const fn flag(self) -> &'static str {
        match self {
            Self::Full => "",
            Self::Quick => " -- --quick",
            Self::Smoke => " -- --smoke",
        }
    }

    /// Rounds.
    pub(crate) const fn rounds(self) -> usize {
        match self {
            Self::Full => 20,
            Self::Quick => 3,
            Self::Smoke => 2,
        }
    }

    /// Of the small size and the full one.
    pub(crate) fn size<T>(self, smoke: T, full: T) -> T {
        if self == Self::Smoke { smoke } else { full }
    }
}

/// What the command line says.
#[derive(Debug)]
pub(crate) struct Args(Vec<String>);

impl Args {
    pub(crate) fn given() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    fn has(&self, flag: &str) -> bool {
        self.0.iter().any(|arg| arg == flag)
    }

    /// What follows `flag`.
    pub(crate) fn after(&self, flag: &str) -> Option<&str> {
        let after = self.0.iter().skip_while(|arg| *arg != flag).nth(1);
        after.map(String::as_str)
    }

    /// `cargo bench` says that it is one; `cargo test --benches` says nothing.
    pub(crate) fn much(&self) -> Much {
        match self.has("--bench") && !self.has("--smoke") {
            _ if self.has("--quick") => Much::Quick,
            true => Much::Full,
            false => Much::Smoke,
        }
    }
}

/// The end of a bench.
pub(crate) fn ends(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts this program anew, as the child with real system calls, and returns its nanoseconds, one
/// number a row.
pub(crate) fn child(times: u64, rows: usize) -> io::Result<Vec<f64>> {
    let output = Command::new(std::env::current_exe()?)
        .args([CHILD, &times.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let values: Vec<f64> = text.lines().filter_map(|it| it.parse().ok()).collect();
    if !output.status.success() || values.len() != rows {
        return Err(io::Error::other("the child with real system calls failed"));
    }
    Ok(values)
}

/// How many times the child does each call, if this program is the child.
pub(crate) fn times_of_child(args: &Args) -> Option<u64> {
    let times = args.after(CHILD)?;
    Some(times.parse().unwrap_or(1))
}
