//! `page-fault1`: map, touch every page, unmap, again and again.
//!
//! After test `page_fault1` of will-it-scale, in its form with threads in one process. The original
//! counts pages in samples of a second until it has enough of them; here each thread does a fixed
//! number of rounds, so that every target does the same work.
//!
//! Measured: from the first thread's window to the last's, each around all its rounds, mapping and
//! unmapping included. As each round ends without memory, contents are checked in one more round
//! after the window, which no count includes.

use crate::contents::{FRESH_PAGES, check_fresh, checked_round, round};
use crate::options::{Info, Opt, OptionError, Refused};
use crate::outcome::{self, Outcome};
use crate::target::{Plan, Stop, Target, TargetError, Worker};
use crate::will_it_scale;
use crate::workload::agreed_threads;

/// What the registry says about `page-fault1`.
pub const INFO: Info = Info {
    name: "page-fault1",
    about: "each thread maps 128 MiB, stores a word in every page, unmaps (will-it-scale)",
    threads: &[1],
    options: &[
        Opt {
            name: "--len",
            value: "SIZE",
            default: "128M",
            help: "bytes mapped in each round",
        },
        Opt {
            name: "-s",
            value: "N",
            default: "8",
            help: "rounds of each thread (the original's count samples of a second)",
        },
        will_it_scale::THREADS,
        will_it_scale::WARM_UP,
    ],
    refused: &[Refused {
        name: "-m",
        why: "threads are always bound to CPUs in turn",
    }],
};

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageFault1 {
    /// Bytes mapped in each round (`--len`), rounded up to pages.
    pub bytes: u64,
    /// Rounds of each thread (`-s`).
    pub rounds: u32,
    /// Rounds before those (`--warm-up`).
    pub warm_up: u32,
    /// Threads (`-t`), where given; the plan's number must be the same then.
    pub threads: Option<u32>,
}

impl Default for PageFault1 {
    fn default() -> Self {
        Self {
            bytes: 128 << 20,
            rounds: 8,
            warm_up: 0,
            threads: None,
        }
    }
}

impl PageFault1 {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, not supported, or its value is wrong.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        let default = Self::default();
        Ok(Self {
            bytes: given.size("--len")?.unwrap_or(default.bytes),
            rounds: given.count("-s")?.unwrap_or(default.rounds),
            warm_up: given.count("--warm-up")?.unwrap_or(default.warm_up),
            threads: given.count("-t")?,
        })
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let pages = self.bytes.div_ceil(page_size).max(FRESH_PAGES);
        pages
            .saturating_mul(page_size)
            .saturating_mul(u64::from(threads))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, or the target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let threads = agreed_threads(INFO.name, "-t", self.threads, plan)?;
        let pages = self.bytes.div_ceil(target.page_size());
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        outcome.number("bytes", self.bytes);
        outcome.number("rounds", self.rounds);
        outcome.number("warm_up", self.warm_up);
        let report = target.process(plan, |w| self.body(w, pages))?;
        let all = 0..report.workers.len();
        outcome.add_windows(report, all);
        outcome.pages = pages
            .saturating_mul(u64::from(self.rounds))
            .saturating_mul(u64::from(threads));
        let ops = outcome.workers.iter().map(|worker| worker.ops).sum();
        outcome.rate("pages_per_second", ops, outcome.wall_ns);
        let columns = will_it_scale::Columns::new(&outcome);
        outcome.columns = Some(outcome::Columns::WillItScale(columns));
        Ok(outcome)
    }

    fn body<W: Worker>(&self, w: &mut W, pages: u64) -> Result<(), Stop> {
        let mut rounds = 0..self.warm_up + self.rounds;
        let mut several = |w: &mut W, count: u32| {
            let mut some = rounds.by_ref().take(count as usize);
            some.try_for_each(|repetition| round(w, pages, repetition))
        };
        let warmed = several(w, self.warm_up);
        w.barrier();
        w.window_open();
        let looped = several(w, self.rounds);
        w.window_close();
        // Nobody looks before all have done their rounds.
        w.barrier();
        warmed.and(looped)?;
        w.ops(pages * u64::from(self.rounds));
        checked_round(w, pages, self.rounds)?;
        check_fresh(w)
    }
}

#[cfg(test)]
mod tests {
    use super::PageFault1;
    use crate::fake::{Fake, plan};
    use crate::target::{Stop, TargetError};

    #[test]
    fn operations_are_pages_and_the_extra_round_is_not_counted() {
        let test = PageFault1 {
            bytes: 64 << 10,
            rounds: 3,
            warm_up: 1,
            threads: None,
        };
        let outcome = test.run(&Fake::default(), &plan(2)).unwrap();
        assert_eq!(outcome.pages, 2 * 3 * 16);
        assert_eq!(outcome.faults, 2 * 3 * 16);
        assert_eq!(
            outcome.workers.iter().map(|worker| worker.ops).sum::<u64>(),
            2 * 3 * 16
        );
        assert!(outcome.rates["pages_per_second"] > 0.0);
        // Pages 0 and 15 of each thread, three words each, and the fresh memory.
        assert_eq!(outcome.checks["contents"], 2 * (2 * 3 + 8));
    }

    #[test]
    fn a_lost_store_is_seen() {
        let test = PageFault1 {
            bytes: 64 << 10,
            rounds: 1,
            warm_up: 1,
            threads: None,
        };
        // The third round, which is the checked one, stores its first page as the 33rd.
        let fake = Fake {
            lose_store: Some(32),
            ..Fake::default()
        };
        let error = test.run(&fake, &plan(1)).unwrap_err();
        assert!(
            matches!(
                error,
                TargetError::Stopped {
                    worker: 0,
                    why: Stop::Contents(_, _, 0)
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn needs_all_threads_memory_at_once() {
        assert_eq!(PageFault1::default().bytes_needed(4, 4096), 512 << 20);
    }
}
