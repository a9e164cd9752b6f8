//! `load`: threads fill one address space while another maps and protects in it.
//!
//! After the sentence of the 2017 posting that has no table: an in-memory database of 2 TB on 752
//! CPUs was loaded 14% faster. All that is known of that load is that many threads fill one address
//! space; the thread that maps meanwhile is our reading of why it would gain.
//!
//! ```text
//! thread 0        map region   |######## touch its part ########|        check
//! thread 1                     |######## touch its part ###########|     check
//! last thread                  | map, store, protect, unmap ... all done | check
//!                           barrier
//! ```
//!
//! With one thread there is no other. Measured: the loaders' windows; calls are counted over the
//! last thread's own, and a round of them counts only once it is complete.

use crate::contents::{FRESH_PAGES, Region, Touch, check_fresh, checked_round};
use crate::options::{Info, Opt, OptionError};
use crate::outcome::{self, Outcome, per_second, seconds};
use crate::target::{Plan, Prot, Stop, Target, TargetError, Worker};
use crate::workload::agreed_threads;
use core::fmt;
use minflt_addr::VirtAddr;

/// The mailbox slot that holds the region's address.
const REGION: usize = 0;
/// The mailbox slot that counts the loaders that are done.
const DONE: usize = 1;
/// Calls in a round of the thread that maps.
const CALLS: u64 = 3;

/// The title of the columns.
pub const HEADER: &str = "      GB Loaders   Populate      Calls    calls/s   fault/wsec";

/// What the registry says about `load`.
pub const INFO: Info = Info {
    name: "load",
    about: "threads populate one address space while the last maps and protects (1: undisturbed)",
    threads: &[2],
    options: &[
        Opt {
            name: "--size",
            value: "SIZE",
            default: "256M",
            help: "total bytes populated, divided equally between the threads",
        },
        Opt {
            name: "--chunk",
            value: "SIZE",
            default: "512K",
            help: "bytes that the last thread maps, protects and unmaps per round",
        },
    ],
    refused: &[],
};

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    /// Bytes populated in all (`--size`), rounded up to pages for each loader.
    pub bytes: u64,
    /// Bytes of a round of the thread that maps (`--chunk`), rounded up to pages.
    pub chunk_bytes: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            chunk_bytes: 512 << 10,
        }
    }
}

impl Load {
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
        })
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let loaders = u64::from(loaders(threads));
        let chunk = self.chunk_bytes.div_ceil(page_size).max(FRESH_PAGES);
        self.share(threads, page_size)
            .saturating_add(FRESH_PAGES)
            .saturating_mul(loaders)
            .saturating_add(chunk)
            .saturating_mul(page_size)
    }

    /// Pages of each loader.
    fn share(&self, threads: u32, page_size: u64) -> u64 {
        let loaders = u64::from(loaders(threads));
        self.bytes.div_ceil(page_size).div_ceil(loaders)
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan has no threads, or the target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let threads = agreed_threads(INFO.name, "", None, plan)?;
        let loaders = loaders(threads);
        let share = self.share(threads, target.page_size());
        let chunk = self.chunk_bytes.div_ceil(target.page_size());
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        outcome.number("bytes", self.bytes);
        outcome.number("chunk_bytes", self.chunk_bytes);
        outcome.number("loaders", loaders);
        let report = target.process(plan, |w| {
            if w.index() < loaders {
                populate(w, share, loaders)
            } else {
                rearrange(w, chunk, loaders)
            }
        })?;
        outcome.add_windows(report, 0..loaders as usize);
        outcome.pages = share * u64::from(loaders);
        outcome.rate("pages_per_second", outcome.pages, outcome.wall_ns);
        let last = outcome.workers.get(loaders as usize).copied();
        let calls = last.map(|last| (last.ops, last.end_ns.saturating_sub(last.start_ns)));
        if let Some((calls, ns)) = calls {
            outcome.rate("calls_per_second", calls, ns);
        }
        let columns = Columns {
            gb: (outcome.pages * target.page_size()) as f64 / (1_u64 << 30) as f64,
            loaders,
            populate_s: seconds(outcome.wall_ns),
            calls: calls.map_or(0, |(calls, _)| calls),
            calls_per_s: calls.and_then(|(calls, ns)| per_second(calls, ns)),
            faults_per_s: outcome.faults_per_second(),
        };
        outcome.columns = Some(outcome::Columns::Load(columns));
        Ok(outcome)
    }
}

/// How many of so many threads load.
fn loaders(threads: u32) -> u32 {
    threads.saturating_sub(1).max(1)
}

/// A loader. Whatever happens to it, it comes to the barrier and says that it is done.
fn populate<W: Worker>(w: &mut W, share: u64, loaders: u32) -> Result<(), Stop> {
    let len = share * w.page_size();
    let mut mapped = Ok(());
    if w.index() == 0 {
        match w.map(len * u64::from(loaders), Prot::ReadWrite) {
            Ok(at) => w.post(REGION, at.0),
            Err(stop) => mapped = Err(stop),
        }
    }
    w.barrier();
    let base = w.read(REGION);
    if base == 0 {
        // Thread 0 could not map, and says so.
        w.claim(DONE);
        return mapped;
    }
    let region = Region {
        at: VirtAddr(base + len * u64::from(w.index())),
        pages: share,
        touch: Touch::Lines(1),
        repetition: 0,
    };
    w.window_open();
    let filled = region.fill(w);
    w.window_close();
    w.claim(DONE);
    filled?;
    w.ops(share);
    region.check(w)?;
    check_fresh(w)
}

/// The last thread.
fn rearrange<W: Worker>(w: &mut W, chunk: u64, loaders: u32) -> Result<(), Stop> {
    let len = chunk * w.page_size();
    w.barrier();
    w.window_open();
    while w.read(DONE) < u64::from(loaders) {
        let at = w.map(len, Prot::ReadWrite)?;
        w.store(at, 1)?;
        w.protect(at, len, Prot::Read)?;
        w.unmap(at, len)?;
        w.ops(CALLS);
    }
    w.window_close();
    checked_round(w, chunk, 0)
}

/// A row under [`HEADER`].
#[derive(Clone, PartialEq, Debug)]
pub struct Columns {
    /// GiB populated.
    pub gb: f64,
    /// Threads that populate.
    pub loaders: u32,
    /// Time to populate, seconds.
    pub populate_s: f64,
    /// Calls of the last thread meanwhile.
    pub calls: u64,
    /// Its calls per second, where there is such a thread.
    pub calls_per_s: Option<f64>,
    /// Calculated faults per second of wall time, where any passed.
    pub faults_per_s: Option<f64>,
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
        write!(
            f,
            "{:>8.3} {:>7} {:>9.6}s {:>10} {:>10} {:>12}",
            self.gb,
            self.loaders,
            self.populate_s,
            self.calls,
            rate(self.calls_per_s),
            rate(self.faults_per_s)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER, Load};
    use crate::fake::{Fake, plan};
    use crate::outcome::Columns;
    use crate::target::{Stop, TargetError};

    const SMALL: Load = Load {
        bytes: 1 << 20,
        chunk_bytes: 64 << 10,
    };

    fn columns(outcome: &crate::Outcome) -> &super::Columns {
        match &outcome.columns {
            Some(Columns::Load(columns)) => columns,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn alone_one_thread_loads_and_nobody_calls() {
        let outcome = SMALL.run(&Fake::default(), &plan(1)).unwrap();
        assert_eq!((outcome.pages, outcome.faults), (256, 256));
        let columns = columns(&outcome);
        assert_eq!((columns.loaders, columns.calls), (1, 0));
        let row = columns.to_string();
        assert!(row.starts_with("   0.001       1 "), "{row}");
        assert_eq!(row.len(), HEADER.len(), "{HEADER}\n{row}");
    }

    #[test]
    fn the_last_thread_does_not_load() {
        let outcome = SMALL.run(&Fake::default(), &plan(4)).unwrap();
        // 256 pages by 3 loaders: 86 each.
        assert_eq!((outcome.pages, outcome.faults), (258, 258));
        assert_eq!(outcome.workers[0].ops, 86);
        let calls = outcome.workers[3].ops;
        assert_eq!(calls % 3, 0);
        assert_eq!(columns(&outcome).calls, calls);
        assert!(outcome.rates.contains_key("pages_per_second"));
    }

    #[test]
    fn a_thread_0_that_cannot_map_does_not_leave_the_last_running() {
        let huge = Load {
            bytes: 1 << 46,
            ..SMALL
        };
        let error = huge.run(&Fake::default(), &plan(3)).unwrap_err();
        let why = Stop::Errno(12);
        assert_eq!(error, TargetError::Stopped { worker: 0, why });
    }

    #[test]
    fn a_lost_store_is_seen() {
        let fake = Fake {
            lose_store: Some(0),
            ..Fake::default()
        };
        assert!(SMALL.run(&fake, &plan(1)).is_err());
    }
}
