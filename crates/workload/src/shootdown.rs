//! `shootdown`: one thread unmaps pages that it touched, while the others compute or sleep.
//!
//! What an munmap costs more beside threads that compute is what making their CPUs forget
//! translations takes: an interrupt to each, and waiting for their answers. A sleeper's CPU need
//! not be told where it has left the address space's CPU mask.
//!
//! ```text
//! thread 0            |# map, touch, unmap # map, touch, unmap ... #| done
//! thread 1, computes  |# load its page, compute, load, ...       ##|
//! thread 1, sleeps    |                                             |
//!                  barrier                                       barrier
//! ```
//!
//! Measured: thread 0's window.

use crate::options::{Info, Opt, OptionError};
use crate::outcome::Outcome;
use crate::target::{Oracle, Plan, Prot, Stop, Target, TargetError, Worker};
use crate::workload::agreed_threads;
use minflt_addr::VirtAddr;

/// The mailbox slot that is set once thread 0 is done.
const DONE: usize = 0;
/// What the others compute between two looks, nanoseconds.
const STRETCH_NS: u64 = 500;

/// What the registry says about `shootdown`.
pub const INFO: Info = Info {
    name: "shootdown",
    about: "one thread maps, touches and unmaps pages while the others compute or sleep (1: alone)",
    threads: &[1, 2],
    options: &[
        Opt {
            name: "--others",
            value: "spin|sleep",
            default: "spin",
            help: "activity of the other threads",
        },
        Opt {
            name: "--size",
            value: "SIZE",
            default: "4K",
            help: "bytes that thread 0 maps in a round",
        },
        Opt {
            name: "--rounds",
            value: "N",
            default: "2000",
            help: "rounds of thread 0",
        },
    ],
    refused: &[],
};

/// What the others do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// They load and compute.
    Spin,
    /// They sleep.
    Sleep,
}

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shootdown {
    /// What the others do (`--others`).
    pub others: Others,
    /// Bytes that thread 0 maps in a round (`--size`), rounded up to pages.
    pub bytes: u64,
    /// How often it does (`--rounds`).
    pub rounds: u32,
}

impl Default for Shootdown {
    fn default() -> Self {
        Self {
            others: Others::Spin,
            bytes: 4096,
            rounds: 2000,
        }
    }
}

impl Shootdown {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, or its value is wrong.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        let default = Self::default();
        let words = [("spin", Others::Spin), ("sleep", Others::Sleep)];
        Ok(Self {
            others: given.one_of("--others", &words)?.unwrap_or(default.others),
            bytes: given.size("--size")?.unwrap_or(default.bytes),
            rounds: given.count("--rounds")?.unwrap_or(default.rounds),
        })
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let pages = self.bytes.div_ceil(page_size);
        pages
            .saturating_add(threads.into())
            .saturating_mul(page_size)
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan has no threads, or the target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        agreed_threads(INFO.name, "", None, plan)?;
        let page = target.page_size();
        let pages = self.bytes.div_ceil(page);
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        let others = match self.others {
            Others::Spin => "spin",
            Others::Sleep => "sleep",
        };
        outcome.text("others", others);
        outcome.number("bytes", self.bytes);
        outcome.number("rounds", self.rounds);
        let report = target.process(plan, |w| match w.index() {
            0 => unmap(w, pages, page, self.rounds),
            _ => stand_by(w, page, self.others),
        })?;
        outcome.add_windows(report, 0..1);
        outcome.pages = pages * u64::from(self.rounds);
        outcome.rate("rounds_per_second", self.rounds.into(), outcome.wall_ns);
        Ok(outcome)
    }
}

/// Thread 0. Whatever happens to it, it comes to the barriers and posts that it is done.
fn unmap<W: Worker>(w: &mut W, pages: u64, page: u64, rounds: u32) -> Result<(), Stop> {
    w.barrier();
    w.window_open();
    let done = (1..=rounds).try_for_each(|round| {
        let at = w.map(pages * page, Prot::ReadWrite)?;
        for n in 0..pages {
            let word = VirtAddr(at.0 + n * page);
            let found = w.load(word)?;
            if found != 0 {
                return Err(Stop::Contents(word, 0, found));
            }
            w.store(word, round.into())?;
        }
        w.unmap(at, pages * page)?;
        w.ops(1);
        Ok(())
    });
    w.window_close();
    w.checked(Oracle::Contents, pages * u64::from(rounds));
    w.post(DONE, 1);
    w.barrier();
    done
}

/// Another thread. It has run in the address space before it sleeps.
fn stand_by<W: Worker>(w: &mut W, page: u64, others: Others) -> Result<(), Stop> {
    let ready = w.map(page, Prot::ReadWrite);
    let stored = ready.and_then(|at| w.store(at, 1).map(|()| at));
    w.barrier();
    let mut stayed = Ok(());
    if let (Ok(at), Others::Spin) = (stored, others) {
        while stayed.is_ok() && w.read(DONE) == 0 {
            w.compute(STRETCH_NS);
            stayed = match w.load(at) {
                Ok(1) => Ok(()),
                Ok(found) => Err(Stop::Contents(at, 1, found)),
                Err(stop) => Err(stop),
            };
        }
    }
    w.barrier();
    stored.and(stayed)
}

#[cfg(test)]
mod tests {
    use super::{Others, Shootdown};

    #[test]
    fn options_are_read_and_wrong_ones_named() {
        let parse = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(ToString::to_string).collect();
            Shootdown::parse(&words)
        };
        let test = parse(&["--others", "sleep", "--size", "8K"]).expect("right");
        assert_eq!(
            (test.others, test.bytes, test.rounds),
            (Others::Sleep, 8192, 2000)
        );
        let error = parse(&["--others", "halt"]).expect_err("wrong");
        assert!(error.to_string().contains("halt"), "{error}");
        assert_eq!(test.bytes_needed(2, 4096), 4 * 4096);
    }
}
