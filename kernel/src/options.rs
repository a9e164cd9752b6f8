//! The kernel's command line.

use minflt_mm::{ERAS, Era, Overcommit, era};
use minflt_sync::Machine;

use crate::arch::serial::say;
use crate::machine::Kernel;

/// The era where the command line names none.
const DEFAULT_ERA: &str = "spf-2017";

/// All options.
const OPTIONS: &str = "era=NAME, overcommit=N, canary, conformance, control=deaf, minflt.check=1";

/// What the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// The boot smoke: programs, and how each must end.
    Smoke {
        /// `overcommit=N`: how much may be promised, by Linux's number (`vm.overcommit_memory`).
        overcommit: Overcommit,
        /// `canary`: one expectation is wrong, to see that a boot can fail.
        canary: bool,
    },
    /// `conformance`: whether the kernel keeps the promises of a machine.
    Conformance {
        /// `control=NAME`: one of them is broken, to see that this is found.
        control: Option<Control>,
    },
}

/// A promise that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// `deaf`: a CPU acknowledges flushes that others ask for, and does not flush.
    Deaf,
}

/// What the command line asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// `era=NAME`: how faults are synchronized.
    pub(crate) era: &'static Era,
    /// What runs.
    pub(crate) run: Run,
}

impl Options {
    /// Reads the command line. What is wrong with it is printed, and `None` returned.
    pub(crate) fn parse(command_line: &str) -> Option<Self> {
        let mut name = DEFAULT_ERA;
        let mut canary = false;
        let mut overcommit = None;
        let mut conformance = false;
        let mut control = None;
        for word in command_line.split_whitespace() {
            if word == "canary" {
                canary = true;
            } else if word == "conformance" {
                conformance = true;
            } else if word == "control=deaf" {
                control = Some(Control::Deaf);
            } else if word == "minflt.check=1" {
                if !Kernel::CHECKED {
                    say!(
                        "minflt: built without lock checks; minflt.check=1 needs --features checks"
                    );
                    return None;
                }
            } else if let Some(value) = word.strip_prefix("era=") {
                name = value;
            } else if let Some(value) = word.strip_prefix("overcommit=") {
                let number = value.parse().ok();
                overcommit = number.and_then(Overcommit::from_number);
                if overcommit.is_none() {
                    say!("minflt: overcommit must be 0, 1 or 2, got \"{value}\"");
                    return None;
                }
            } else {
                say!("minflt: unknown option \"{word}\"; options are: {OPTIONS}");
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
        let run = if conformance {
            if canary || overcommit.is_some() {
                say!("minflt: canary and overcommit are for the smoke, not for conformance");
                return None;
            }
            Run::Conformance { control }
        } else {
            if control.is_some() {
                say!("minflt: control is for conformance");
                return None;
            }
            let overcommit = overcommit.unwrap_or(Overcommit::Heuristic);
            Run::Smoke { overcommit, canary }
        };
        Some(Self { era, run })
    }
}
