//! The kernel's command line.

use minflt_mm::{ERAS, Era, Overcommit, era};

use crate::arch::serial::say;

/// The era where the command line names none.
const DEFAULT_ERA: &str = "spf-2017";

/// What the command line asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// `era=NAME`: how faults are synchronized.
    pub(crate) era: &'static Era,
    /// `overcommit=N`: how much may be promised, by Linux's number (`vm.overcommit_memory`).
    pub(crate) overcommit: Overcommit,
    /// `canary`: one expectation is wrong, to see that a boot can fail.
    pub(crate) canary: bool,
}

impl Options {
    /// Reads the command line. What is wrong with it is printed, and `None` returned.
    pub(crate) fn parse(command_line: &str) -> Option<Self> {
        let mut name = DEFAULT_ERA;
        let mut canary = false;
        let mut overcommit = Overcommit::Heuristic;
        for word in command_line.split_whitespace() {
            if word == "canary" {
                canary = true;
            } else if let Some(value) = word.strip_prefix("era=") {
                name = value;
            } else if let Some(value) = word.strip_prefix("overcommit=") {
                let number = value.parse().ok();
                let Some(mode) = number.and_then(Overcommit::from_number) else {
                    say!("minflt: overcommit must be 0, 1 or 2, got \"{value}\"");
                    return None;
                };
                overcommit = mode;
            } else {
                say!(
                    "minflt: unknown option \"{word}\"; options are: era=NAME, overcommit=N, canary"
                );
                return None;
            }
        }
        let Some(era) = era(name) else {
            say!("minflt: unknown era \"{name}\"; eras are:");
            for era in ERAS {
                say!("  {:<20} {}", era.name, era.idea);
            }
            return None;
        };
        Some(Self {
            era,
            overcommit,
            canary,
        })
    }
}
