//! `disturb`: one thread faults while the others map, touch and unmap.
//!
//! Thread 0 touches a region for the first time; every other thread, the *disturbers*, loops
//! { map 512 KiB, touch every page, unmap } in the same address space until thread 0 is done. With
//! one thread the same code runs without a disturber, for the rate to compare with.
//!
//! What a disturber maps lies right beside thread 0's region and is of its kind, so the two become
//! one mapping: each of its calls changes the very mapping that thread 0 faults in, and its faults
//! share whatever that mapping's lock is. With a page of no access on either side of the region
//! (`--apart`) mappings stay apart, as those of ebizzy's `-p` do, and what is left is what calls
//! cost faults in other mappings.
//!
//! ```text
//! thread 0   map region       |######## touch ########| done, check
//! thread 1   one round        |## rounds ## ... ## rounds #|  check
//!                          barrier                 done seen
//! ```
//!
//! With `--disturbers` fewer threads disturb, none or one for example, and the others each touch an
//! equal part of the region: then the question is what threads that fault in one mapping lose by a
//! mapper beside them. Disturbers stop when thread 0 is done with its part.
//!
//! Measured: the window of thread 0, or of all threads that touch. A disturber's rounds are counted
//! over its own window, and a round counts only once it is complete.

use crate::contents::{FRESH_PAGES, Region, Touch, check_fresh, checked_round, round};
use crate::options::{Info, Opt, OptionError};
use crate::outcome::Outcome;
use crate::target::{Plan, Prot, Stop, Target, TargetError, Worker};
use crate::workload::{agreed_threads, unsupported};
use minflt_addr::VirtAddr;

/// The mailbox slot that is set once thread 0 is done.
const DONE: usize = 0;
/// The mailbox slot with the start of the region.
const START: usize = 1;

/// What the registry says about `disturb`.
pub const INFO: Info = Info {
    name: "disturb",
    about: "one thread touches fresh memory while the others map, touch and unmap (1: undisturbed)",
    threads: &[1, 2],
    options: &[
        Opt {
            name: "--size",
            value: "SIZE",
            default: "256M",
            help: "bytes that thread 0 touches, or all that do not disturb",
        },
        Opt {
            name: "--chunk",
            value: "SIZE",
            default: "512K",
            help: "bytes that each other thread maps, touches and unmaps per round",
        },
        Opt {
            name: "--disturbers",
            value: "N",
            default: "all but thread 0",
            help: "threads that map, touch and unmap; the others share the region",
        },
        Opt {
            name: "--apart",
            value: "",
            default: "off",
            help: "guard pages around thread 0's region, so that no other thread's mapping \
                   merges with it",
        },
    ],
    refused: &[],
};

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disturb {
    /// Bytes that thread 0 touches, or all that do not disturb (`--size`), rounded up to a page for
    /// each of them.
    pub bytes: u64,
    /// Bytes of a disturber's round (`--chunk`), rounded up to pages.
    pub chunk_bytes: u64,
    /// How many threads disturb (`--disturbers`); all but thread 0 if nothing is said.
    pub disturbers: Option<u32>,
    /// Whether thread 0's region never merges with other mappings (`--apart`).
    pub apart: bool,
}

impl Default for Disturb {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            chunk_bytes: 512 << 10,
            disturbers: None,
            apart: false,
        }
    }
}

impl Disturb {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, or its value is wrong.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        let default = Self::default();
        Ok(Self {
            bytes: given.size("--size")?.unwrap_or(default.bytes),
            chunk_bytes: given.size("--chunk")?.unwrap_or(default.chunk_bytes),
            disturbers: given.count_from(0, "--disturbers")?,
            apart: given.has("--apart"),
        })
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let chunk = self.chunk_bytes.div_ceil(page_size);
        let threads = threads.max(1);
        let disturbers = self.disturbers.unwrap_or(threads - 1).min(threads - 1);
        let share = self.share(threads - disturbers, page_size) + FRESH_PAGES;
        share
            .saturating_mul(u64::from(threads - disturbers))
            .saturating_add(chunk.saturating_mul(u64::from(disturbers)))
            .saturating_mul(page_size)
    }

    /// Pages that each of `touching` threads touches.
    fn share(&self, touching: u32, page_size: u64) -> u64 {
        let pages = self.bytes.div_ceil(page_size);
        pages.div_ceil(u64::from(touching))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan has no threads, or the target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let threads = agreed_threads(INFO.name, "", None, plan)?;
        let disturbers = self.disturbers.unwrap_or(threads - 1);
        if disturbers >= threads {
            return Err(unsupported(format!(
                "disturb: --disturbers {disturbers} leaves none of {threads} threads that touches; \
                 give at most {}",
                threads - 1
            )));
        }
        let touching = threads - disturbers;
        let share = self.share(touching, target.page_size());
        let pages = share * u64::from(touching);
        let chunk = self.chunk_bytes.div_ceil(target.page_size());
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        outcome.number("bytes", self.bytes);
        outcome.number("chunk_bytes", self.chunk_bytes);
        outcome.number("disturbers", disturbers);
        if self.apart {
            outcome.text("mappings", "apart");
        }
        let report = target.process(plan, |w| match w.index() {
            0 => lead(w, pages, share, self.apart),
            other if other < touching => follow(w, share),
            _ => disturb(w, chunk),
        })?;
        let touching = touching as usize;
        outcome.add_windows(report, 0..touching);
        outcome.pages = pages;
        outcome.rate("pages_per_second", pages, outcome.wall_ns);
        let disturbers = outcome.workers.get(touching..).unwrap_or_default();
        let rounds = disturbers.iter().map(|worker| worker.ops).sum();
        let ns = disturbers
            .iter()
            .map(|worker| worker.end_ns.saturating_sub(worker.start_ns))
            .max();
        outcome.rate("rounds_per_second", rounds, ns.unwrap_or(0));
        Ok(outcome)
    }
}

/// Thread 0, which maps the region. Whatever happens to it, it comes to the barrier and posts that
/// it is done.
fn lead<W: Worker>(w: &mut W, pages: u64, share: u64, apart: bool) -> Result<(), Stop> {
    let mapped = match apart {
        true => map_apart(w, pages),
        false => w.map(pages * w.page_size(), Prot::ReadWrite),
    };
    if let Ok(at) = mapped {
        w.post(START, at.0);
    }
    w.barrier();
    let touched = mapped.and_then(|at| touch(w, at, share));
    w.post(DONE, 1);
    touched?.check(w)?;
    check_fresh(w)
}

/// Another thread that touches, if thread 0 could map.
fn follow<W: Worker>(w: &mut W, share: u64) -> Result<(), Stop> {
    w.barrier();
    let start = w.read(START);
    if start == 0 {
        return Ok(());
    }
    let own = u64::from(w.index()) * share * w.page_size();
    touch(w, VirtAddr(start + own), share)?.check(w)?;
    check_fresh(w)
}

/// Touches a thread's part of the region, which is what is measured.
fn touch<W: Worker>(w: &mut W, at: VirtAddr, pages: u64) -> Result<Region, Stop> {
    let region = Region {
        at,
        pages,
        touch: Touch::Lines(1),
        repetition: 0,
    };
    w.window_open();
    let filled = region.fill(w);
    w.window_close();
    filled?;
    w.ops(pages);
    Ok(region)
}

/// Maps `pages` between two pages that nobody may use.
fn map_apart<W: Worker>(w: &mut W, pages: u64) -> Result<VirtAddr, Stop> {
    let page = w.page_size();
    let below = w.map((pages + 2) * page, Prot::None)?;
    let at = VirtAddr(below.0 + page);
    w.protect(at, pages * page, Prot::ReadWrite)?;
    Ok(at)
}

/// A disturber. The round before the barrier sees to it that its code, stack and page tables are
/// there when thread 0's window opens.
fn disturb<W: Worker>(w: &mut W, chunk: u64) -> Result<(), Stop> {
    let mut rounds = 0;
    let first = round(w, chunk, rounds);
    w.barrier();
    first?;
    w.window_open();
    while w.read(DONE) == 0 {
        rounds = rounds.wrapping_add(1);
        round(w, chunk, rounds)?;
        w.ops(1);
    }
    w.window_close();
    checked_round(w, chunk, rounds.wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::{Disturb, FRESH_PAGES};
    use crate::fake::{Fake, plan};
    use crate::outcome::Param;
    use crate::target::{Stop, TargetError};

    const SMALL: Disturb = Disturb {
        bytes: 1 << 20,
        chunk_bytes: 64 << 10,
        disturbers: None,
        apart: false,
    };

    #[test]
    fn alone_it_counts_the_region_only() {
        let outcome = SMALL.run(&Fake::default(), &plan(1)).unwrap();
        assert_eq!((outcome.pages, outcome.faults), (256, 256));
        assert_eq!(outcome.workers.len(), 1);
        assert!(outcome.rates.contains_key("pages_per_second"));
        assert!(!outcome.rates.contains_key("rounds_per_second"));
    }

    #[test]
    fn disturbed_it_still_counts_thread_0_only() {
        let outcome = SMALL.run(&Fake::default(), &plan(2)).unwrap();
        assert_eq!((outcome.pages, outcome.faults), (256, 256));
        assert_eq!(outcome.workers[0].ops, 256);
        assert_eq!(outcome.workers[1].faults, outcome.workers[1].ops * 16);
    }

    #[test]
    fn threads_that_do_not_disturb_share_the_region() {
        let one_of_four = Disturb {
            disturbers: Some(1),
            ..SMALL
        };
        let outcome = one_of_four.run(&Fake::default(), &plan(4)).unwrap();
        // 256 pages on three threads are 86 for each.
        assert_eq!((outcome.pages, outcome.faults), (258, 258));
        let ops: Vec<u64> = outcome.workers.iter().map(|worker| worker.ops).collect();
        assert_eq!(ops[..3], [86, 86, 86]);
        assert_eq!(
            one_of_four.bytes_needed(4, 4096) >> 12,
            3 * (86 + FRESH_PAGES) + 16
        );
    }

    #[test]
    fn somebody_must_touch() {
        let all = Disturb {
            disturbers: Some(2),
            ..SMALL
        };
        let error = all.run(&Fake::default(), &plan(2)).unwrap_err();
        assert!(error.to_string().contains("give at most 1"), "{error}");
    }

    #[test]
    fn apart_the_region_lies_between_pages_of_no_access() {
        let apart = Disturb {
            apart: true,
            ..SMALL
        };
        let outcome = apart.run(&Fake::default(), &plan(2)).unwrap();
        assert_eq!((outcome.pages, outcome.faults), (256, 256));
        assert_eq!(outcome.params["mappings"], Param::Text("apart".into()));
        let options = ["--apart".to_owned()];
        assert_eq!(Disturb::parse(&options).map(|test| test.apart), Ok(true));
    }

    #[test]
    fn a_thread_0_that_cannot_map_does_not_leave_the_disturber_running() {
        let huge = Disturb {
            bytes: 1 << 46,
            ..SMALL
        };
        let error = huge.run(&Fake::default(), &plan(2)).unwrap_err();
        assert_eq!(
            error,
            TargetError::Stopped {
                worker: 0,
                why: Stop::Errno(12)
            }
        );
    }
}
