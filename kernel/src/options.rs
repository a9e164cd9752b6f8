//! The kernel's command line.

use minflt_mm::{ERAS, Era, Overcommit, era};
use minflt_sync::Machine;

use crate::arch::serial::say;
use crate::machine::Kernel;
use crate::words::Words;

/// The era where the command line names none.
const DEFAULT_ERA: &str = "spf-2017";

/// All options.
const OPTIONS: &str = "era=NAME, overcommit=N, swap=MIB, hugepages=N, nopcid, canary, conformance, \
     control=deaf|hasty|late|kept, console=attended, minflt.check=1, rdinit=PATH [-- ARGUMENTS]";

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

/// Process-context identifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pcids {
    /// Where there are any.
    #[default]
    Used,
    /// `nopcid`: none, as on Linux.
    Unused,
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
    /// `kept`: a CPU keeps the links of its own root to tables that are freed.
    Kept,
}

impl Control {
    fn named(name: &str) -> Option<Self> {
        match name {
            "deaf" => Some(Self::Deaf),
            "hasty" => Some(Self::Hasty),
            "late" => Some(Self::Late),
            "kept" => Some(Self::Kept),
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
    /// `hugepages=N`: how many huge pages are set aside.
    pub(crate) huge_pages: u64,
    /// `control=NAME`: a promise is broken, to see that this is found.
    pub(crate) control: Option<Control>,
    /// Whether translations of several address spaces are kept.
    pub(crate) pcids: Pcids,
    /// `console=attended`: the console has input.
    pub(crate) attended: bool,
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

/// The words of a command line, as they were read.
#[derive(Clone, Copy, Debug, Default)]
struct Given<'a> {
    path: Option<&'a str>,
    era: Option<&'a str>,
    canary: bool,
    conformance: bool,
    overcommit: Option<Overcommit>,
    swap: u64,
    huge_pages: u64,
    control: Option<Control>,
    pcids: Pcids,
    attended: bool,
}

impl<'a> Given<'a> {
    /// Reads one word; false if something is wrong with it, which was printed.
    fn read(&mut self, word: &'a str) -> bool {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("canary", None) => self.canary = true,
            ("minflt.check", Some("1")) if Kernel::CHECKED => {}
            ("minflt.check", Some("1")) => {
                say!("minflt: built without lock checks; minflt.check=1 needs --features checks");
                return false;
            }
            ("nopcid", None) => self.pcids = Pcids::Unused,
            ("console", Some("attended")) => self.attended = true,
            ("conformance", None) => self.conformance = true,
            ("era", Some(_)) => self.era = value,
            ("rdinit", Some(_)) => self.path = value,
            ("control", Some(value)) => {
                self.control = Control::named(value);
                if self.control.is_none() {
                    say!("minflt: control must be deaf, hasty, late or kept, got \"{value}\"");
                    return false;
                }
            }
            ("swap", Some(value)) => {
                let Ok(mib) = value.parse::<u32>() else {
                    say!("minflt: swap must be a number of MiB, got \"{value}\"");
                    return false;
                };
                self.swap = u64::from(mib);
            }
            ("hugepages", Some(value)) => {
                let Ok(pages) = value.parse::<u32>() else {
                    say!("minflt: hugepages must be a number, got \"{value}\"");
                    return false;
                };
                self.huge_pages = u64::from(pages);
            }
            ("overcommit", Some(value)) => {
                let number = value.parse().ok();
                self.overcommit = number.and_then(Overcommit::from_number);
                if self.overcommit.is_none() {
                    say!("minflt: overcommit must be 0, 1 or 2, got \"{value}\"");
                    return false;
                }
            }
            _ => {
                say!("minflt: unknown option \"{word}\"; options are: {OPTIONS}");
                return false;
            }
        }
        true
    }

    /// What runs, if the words go together.
    fn run(&self, arguments: Option<&'a str>) -> Result<Run<'a>, &'static str> {
        let memory = self.overcommit.is_some() || self.swap != 0 || self.huge_pages != 0;
        if self.conformance && self.path.is_some() {
            return Err("conformance and rdinit exclude each other");
        }
        if self.canary && (self.conformance || self.path.is_some()) || self.conformance && memory {
            return Err(
                "canary is for the smoke; overcommit, swap and hugepages are not for conformance",
            );
        }
        if self.control.is_some() && !self.conformance && self.path.is_none() {
            return Err("control is for conformance, and for programs");
        }
        match self.path {
            Some(path) => Ok(Run::Program {
                path,
                arguments: arguments.unwrap_or(""),
            }),
            None if arguments.is_some() => {
                Err("arguments after -- are for a program; name it by rdinit=PATH")
            }
            None if self.conformance => Ok(Run::Conformance),
            None => Ok(Run::Smoke {
                canary: self.canary,
            }),
        }
    }
}

impl<'a> Options<'a> {
    /// Reads the command line. What is wrong with it is printed, and `None` returned.
    pub(crate) fn parse(command_line: &'a str) -> Option<Self> {
        let (own, arguments) = split(command_line);
        let mut given = Given::default();
        if !Words::of(own).all(|word| given.read(word)) {
            return None;
        }
        let name = given.era.unwrap_or(DEFAULT_ERA);
        let Some(era) = era(name) else {
            say!("minflt: unknown era \"{name}\"; eras are:");
            for era in ERAS {
                say!("  {:<20} {}", era.name, era.idea);
            }
            return None;
        };
        match given.run(arguments) {
            Ok(run) => Some(Self {
                era,
                overcommit: given.overcommit.unwrap_or(Overcommit::Heuristic),
                swap: given.swap,
                huge_pages: given.huge_pages,
                control: given.control,
                pcids: given.pcids,
                attended: given.attended,
                run,
            }),
            Err(why) => {
                say!("minflt: {why}");
                None
            }
        }
    }
}
