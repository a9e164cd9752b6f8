//! The registry of workloads.

use crate::disturb::{self, Disturb};
use crate::options::{Info, OptionError, SIZE_MAX};
use crate::outcome::Outcome;
use crate::page_fault1::{self, PageFault1};
use crate::pft::{self, Pft};
use crate::target::{Plan, Target, TargetError};

/// A workload with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Workload {
    /// First touches by many threads.
    Pft(Pft),
    /// Map, touch, unmap.
    PageFault1(PageFault1),
    /// One faults while the others map and unmap.
    Disturb(Disturb),
}

/// All workloads there are.
#[must_use]
pub fn list() -> &'static [Info] {
    &[pft::INFO, page_fault1::INFO, disturb::INFO]
}

impl Workload {
    /// The workload called `name` with the options `args`, those that follow `--`.
    ///
    /// # Errors
    /// One line that names the option, or the workload, and what would be right.
    pub fn parse(name: &str, args: &[String]) -> Result<Self, OptionError> {
        if name == pft::INFO.name {
            Pft::parse(args).map(Self::Pft)
        } else if name == page_fault1::INFO.name {
            PageFault1::parse(args).map(Self::PageFault1)
        } else if name == disturb::INFO.name {
            Disturb::parse(args).map(Self::Disturb)
        } else {
            let names: Vec<_> = list().iter().map(|info| info.name).collect();
            Err(OptionError::new(format!(
                "no workload `{name}`; there are {}",
                names.join(", ")
            )))
        }
    }

    /// What the registry says about it.
    #[must_use]
    pub fn info(&self) -> &'static Info {
        match self {
            Self::Pft(_) => &pft::INFO,
            Self::PageFault1(_) => &page_fault1::INFO,
            Self::Disturb(_) => &disturb::INFO,
        }
    }

    /// Sets its main size in bytes, as the command line's `--size` does: what `pft` touches in all,
    /// `page-fault1` maps in each round, `disturb` touches in thread 0.
    ///
    /// # Errors
    /// When the size is 0 or more than 128 TiB.
    pub fn set_size(&mut self, bytes: u64) -> Result<(), OptionError> {
        if !(1..=SIZE_MAX).contains(&bytes) {
            let words = format!("the size must be from 1 byte to 128T, but is {bytes} bytes");
            return Err(OptionError::new(words));
        }
        match self {
            Self::Pft(pft) => pft.bytes = bytes,
            Self::PageFault1(test) => test.bytes = bytes,
            Self::Disturb(test) => test.bytes = bytes,
        }
        Ok(())
    }

    /// The number of threads its own options ask for, if they do. [`Workload::run`] refuses a plan
    /// with another.
    #[must_use]
    pub fn threads(&self) -> Option<u32> {
        match self {
            Self::Pft(pft) => pft.threads,
            Self::PageFault1(test) => test.threads,
            Self::Disturb(_) => None,
        }
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables, stacks and the system's own needs come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        match self {
            Self::Pft(pft) => pft.bytes_needed(threads, page_size),
            Self::PageFault1(test) => test.bytes_needed(threads, page_size),
            Self::Disturb(test) => test.bytes_needed(threads, page_size),
        }
    }

    /// Runs it on `target`.
    ///
    /// # Errors
    /// When the plan does not fit the options or the target, or the run fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        match self {
            Self::Pft(pft) => pft.run(target, plan),
            Self::PageFault1(test) => test.run(target, plan),
            Self::Disturb(test) => test.run(target, plan),
        }
    }
}

/// The plan's number of threads, unless it is 0 or the workload's option `option` says another.
pub(crate) fn agreed_threads(
    workload: &str,
    option: &str,
    asked: Option<u32>,
    plan: &Plan,
) -> Result<u32, TargetError> {
    let threads = plan.threads;
    match asked {
        _ if threads == 0 => Err(unsupported(format!("{workload}: needs at least 1 thread"))),
        Some(asked) if asked != threads => Err(unsupported(format!(
            "{workload}: {option} {asked} and --threads {threads} differ; give one of them"
        ))),
        _ => Ok(threads),
    }
}

/// An error of what cannot be done.
pub(crate) fn unsupported(words: String) -> TargetError {
    TargetError::Unsupported(words)
}

#[cfg(test)]
mod tests {
    use super::{Workload, list};
    use crate::contents::Touch;
    use crate::fake::{Fake, plan};
    use crate::pft::{Definition, Pft};

    fn parse(line: &str) -> Result<Workload, String> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let name = words.next().unwrap();
        let args: Vec<_> = words.collect();
        Workload::parse(&name, &args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_posted_command_lines_parse() {
        let Ok(Workload::Pft(pft)) = parse("pft -g2 -r3 -f8") else {
            panic!()
        };
        assert_eq!(
            (pft.bytes, pft.repetitions, pft.threads),
            (2 << 30, 3, Some(8))
        );
        assert_eq!(
            (pft.touch, pft.definition),
            (Touch::Lines(1), Definition::Process)
        );
        let Ok(Workload::Pft(pft)) = parse("pft -b 64K -c 4 --measure=workers") else {
            panic!()
        };
        assert_eq!((pft.bytes, pft.touch), (65_536, Touch::Lines(4)));
        assert_eq!(pft.definition, Definition::Workers);
        assert!(parse("page-fault1 -s 5 -t 2 --len 1M").is_ok());
        assert!(parse("disturb --size 64M --chunk 256K").is_ok());
    }

    #[test]
    fn wrong_options_are_told_in_one_line() {
        for (line, says) in [
            (
                "pfft",
                "no workload `pfft`; there are pft, page-fault1, disturb",
            ),
            ("pft -b 1M -g 1", "pft: -b and -g exclude each other"),
            ("pft -z -c 2", "pft: -c and -z exclude each other"),
            ("pft -g 200000", "pft: -g must be at most 131072"),
            (
                "pft --measure x",
                "pft: --measure must be process or workers, but is `x`",
            ),
            (
                "pft -t",
                "pft: -t is not supported: the title line is always printed; threads are -f",
            ),
            (
                "disturb --chunk 0",
                "disturb: --chunk must be from 1 byte to 128T, but is `0`",
            ),
        ] {
            assert_eq!(parse(line), Err(says.to_owned()));
        }
    }

    #[test]
    fn every_listed_workload_parses_with_its_defaults_and_runs() {
        for info in list() {
            let mut workload = parse(info.name).unwrap();
            assert_eq!(workload.info().name, info.name);
            workload.set_size(1 << 20).unwrap();
            assert!(workload.bytes_needed(1, 4096) >= 1 << 20);
            for &threads in info.threads {
                let outcome = workload.run(&Fake::default(), &plan(threads)).unwrap();
                assert_eq!(outcome.workload, info.name);
                assert!(outcome.pages > 0 && outcome.checks["contents"] > 0);
                assert!(!outcome.params.is_empty());
            }
            assert!(workload.set_size(0).is_err());
        }
    }

    #[test]
    fn threads_asked_for_twice_must_agree() {
        let pft = Workload::Pft(Pft {
            threads: Some(2),
            bytes: 1 << 20,
            ..Pft::default()
        });
        let words = pft.run(&Fake::default(), &plan(1)).unwrap_err().to_string();
        assert_eq!(words, "pft: -f 2 and --threads 1 differ; give one of them");
        assert!(pft.run(&Fake::default(), &plan(2)).is_ok());
        assert!(pft.run(&Fake::default(), &plan(0)).is_err());
    }
}
