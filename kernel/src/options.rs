//! The kernel's command line.

use minflt_mm::{ERAS, Era, Overcommit, era};

use crate::arch::serial::say;
use crate::words::Words;

/// The era where the command line names none.
const DEFAULT_ERA: &str = "spf-2017";

/// All options.
const OPTIONS: &str = "era=NAME, overcommit=N, swap=MIB, canary, conformance, control=deaf|hasty|late, \
     rdinit=PATH [-- ARGUMENTS]";

/// What the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run<'a> {
    /// The boot smoke: programs, and how each must end.
    Smoke {
        /// `canary`: one expectation is wrong, to see that a boot can fail.
        canary: bool,
    },
    /// `conformance`: whether the kernel keeps the promises of a machine.
    Conformance,
    /// `rdinit=PATH`: a program of the initial RAM disk.
    Program {
        /// Where it is.
        path: &'a str,
        /// What follows `--`: its arguments.
        arguments: &'a str,
    },
}

/// A promise that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// `deaf`: a CPU acknowledges flushes that others ask for, and does not flush.
    Deaf,
    /// `hasty`: a CPU does not wait for the acknowledgements of others, and interrupts are late as
    /// in `late`: else the moment in which that matters would be too short to be met.
    Hasty,
    /// `late`: a CPU serves what another one asks for some time after it was interrupted. No
    /// promise is broken, and nothing may be found.
    Late,
}

impl Control {
    fn named(name: &str) -> Option<Self> {
        match name {
            "deaf" => Some(Self::Deaf),
            "hasty" => Some(Self::Hasty),
            "late" => Some(Self::Late),
            _ => None,
        }
    }
}

/// What the command line asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    /// `era=NAME`: how faults are synchronized.
    pub(crate) era: &'static Era,
    /// `overcommit=N`: how much may be promised, by Linux's number (`vm.overcommit_memory`).
    pub(crate) overcommit: Overcommit,
    /// `swap=MIB`: MiB of memory that pages which are not used go to.
    pub(crate) swap: u64,
    /// `control=NAME`: a promise is broken, to see that this is found.
    pub(crate) control: Option<Control>,
    /// What runs.
    pub(crate) run: Run<'a>,
}

/// Whether a command line names a program to run.
pub(crate) fn has_program(command_line: &str) -> bool {
    let (own, _) = split(command_line);
    Words::of(own).any(|word| word.starts_with("rdinit="))
}

/// What is before the word `--`, and what is behind it.
fn split(command_line: &str) -> (&str, Option<&str>) {
    let mut words = Words::of(command_line);
    while let Some(word) = words.next() {
        if word == "--" {
            let rest = words.rest();
            let own = command_line.len() - rest.len() - word.len();
            return (&command_line[..own], Some(rest));
        }
    }
    (command_line, None)
}

impl<'a> Options<'a> {
    /// Reads the command line. What is wrong with it is printed, and `None` returned.
    pub(crate) fn parse(command_line: &'a str) -> Option<Self> {
        let (own, arguments) = split(command_line);
        let mut path = None;
        let mut name = DEFAULT_ERA;
        let mut canary = false;
        let mut overcommit = None;
        let mut conformance = false;
        let mut control = None;
        let mut swap = 0;
        for word in Words::of(own) {
            if word == "canary" {
                canary = true;
            } else if word == "conformance" {
                conformance = true;
            } else if let Some(value) = word.strip_prefix("control=") {
                control = Control::named(value);
                if control.is_none() {
                    say!("minflt: control must be deaf, hasty or late, got \"{value}\"");
                    return None;
                }
            } else if let Some(value) = word.strip_prefix("swap=") {
                let Ok(mib) = value.parse::<u32>() else {
                    say!("minflt: swap must be a number of MiB, got \"{value}\"");
                    return None;
                };
                swap = u64::from(mib);
            } else if let Some(value) = word.strip_prefix("era=") {
                name = value;
            } else if let Some(value) = word.strip_prefix("rdinit=") {
                path = Some(value);
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
        let smoke_only = canary || (conformance && (overcommit.is_some() || swap != 0));
        let run = match (conformance, path) {
            (true, Some(_)) => {
                say!("minflt: conformance and rdinit exclude each other");
                return None;
            }
            (true, None) | (false, Some(_)) if smoke_only => {
                say!(
                    "minflt: canary is for the smoke, overcommit and swap are not for conformance"
                );
                return None;
            }
            (false, None) if control.is_some() => {
                say!("minflt: control is for conformance, and for programs");
                return None;
            }
            (_, None) if arguments.is_some() => {
                say!("minflt: arguments after -- are for a program; name it by rdinit=PATH");
                return None;
            }
            (true, None) => Run::Conformance,
            (false, None) => Run::Smoke { canary },
            (false, Some(path)) => Run::Program {
                path,
                arguments: arguments.unwrap_or(""),
            },
        };
        Some(Self {
            era,
            swap,
            control,
            overcommit: overcommit.unwrap_or(Overcommit::Heuristic),
            run,
        })
    }
}
