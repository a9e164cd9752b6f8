//! `commit`: threads commit and discard parts of one large reservation.
//!
//! Go, the JVM and jemalloc reserve tens of gigabytes in one mapping that nobody may touch, and
//! give parts of it to threads: they make a part accessible, use it, throw its pages away and take
//! the access back. All threads change one mapping, so a lock of an address space, or of a mapping,
//! serves them one after the other, however far their parts lie from each other.
//!
//! ```text
//! reservation  | share of thread 0 | share of thread 1 | ...           |
//!                [part]->             [part]->
//! round:         protect read-write, store to each page, discard, protect none
//! ```
//! A thread goes through its share part by part, from the start again behind the last one. An
//! operation is a round.
//!
//! Checked after the window: a part that was discarded reads 0, and keeps what is stored.

use crate::contents::{check_fresh, expect, tag};
use crate::options::{Info, Opt, OptionError};
use crate::outcome::Outcome;
use crate::target::{Oracle, Plan, Prot, Spaces, Stop, Target, TargetError, Worker};
use crate::will_it_scale::{self, NOT_BOUND, Tasks};
use crate::workload::unsupported;
use minflt_addr::VirtAddr;

/// The mailbox slot with the start of the reservation.
const START: usize = 0;

/// What the registry says about `commit`.
pub const INFO: Info = Info {
    name: "commit",
    about: "threads commit, fill and discard parts of one reservation, as heaps of runtimes do",
    threads: &[1],
    options: &[
        Opt {
            name: "--len",
            value: "SIZE",
            default: "64K",
            help: "bytes of a part",
        },
        Opt {
            name: "--share",
            value: "SIZE",
            default: "64M",
            help: "bytes in which each thread has its parts",
        },
        Opt {
            name: "--reservation",
            value: "SIZE",
            default: "64G",
            help: "bytes reserved in all",
        },
        will_it_scale::rounds("200"),
        will_it_scale::THREADS,
        will_it_scale::WARM_UP,
    ],
    refused: &[NOT_BOUND],
};

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Bytes of a part (`--len`), rounded up to pages.
    pub bytes: u64,
    /// Bytes in which a thread has its parts (`--share`).
    pub share: u64,
    /// Bytes of the mapping that all have parts of (`--reservation`).
    pub reservation: u64,
    /// Rounds, and who does them: threads.
    pub tasks: Tasks,
}

impl Default for Commit {
    fn default() -> Self {
        Self {
            bytes: 64 << 10,
            share: 64 << 20,
            reservation: 64 << 30,
            tasks: Tasks {
                rounds: 200,
                warm_up: 0,
                count: None,
                spaces: Spaces::Shared,
            },
        }
    }
}

impl Commit {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, not supported, or its value is wrong.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let default = Self::default();
        let given = INFO.given(args)?;
        Ok(Self {
            bytes: given.size("--len")?.unwrap_or(default.bytes),
            share: given.size("--share")?.unwrap_or(default.share),
            reservation: given.size("--reservation")?.unwrap_or(default.reservation),
            tasks: Tasks::given(&given, default.tasks)?,
        })
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let part = self.bytes.div_ceil(page_size).saturating_mul(page_size);
        part.saturating_mul(threads.into())
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, or the target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let page = target.page_size();
        let sizes = Sizes {
            part: self.bytes.next_multiple_of(page),
            share: self.share.next_multiple_of(page),
            all: self.reservation.next_multiple_of(page),
        };
        let shares = sizes.share.saturating_mul(plan.threads.into());
        if sizes.part > sizes.share {
            return Err(unsupported(format!(
                "commit: a part of {} bytes is more than a thread's share of {} bytes",
                sizes.part, sizes.share
            )));
        }
        if shares > sizes.all {
            return Err(unsupported(format!(
                "commit: shares of {} threads are {shares} bytes, more than the {} bytes reserved",
                plan.threads, sizes.all
            )));
        }
        let body = |w: &mut T::Worker<'_>| self.body(w, sizes);
        let rate = "commits_per_second";
        let mut outcome = self.tasks.run(&INFO, rate, target, plan, body)?;
        outcome.pages = sizes.part / page * u64::from(plan.threads) * u64::from(self.tasks.rounds);
        outcome.number("bytes", self.bytes);
        outcome.number("share", self.share);
        outcome.number("reservation", self.reservation);
        Ok(outcome)
    }

    fn body<W: Worker>(&self, w: &mut W, sizes: Sizes) -> Result<(), Stop> {
        if w.index() == 0 {
            let at = w.map(sizes.all, Prot::None);
            w.post(START, at.as_ref().map_or(0, |at| at.0));
            w.barrier();
            at?;
        } else {
            w.barrier();
        }
        // Where there is none, thread 0 says why.
        let start = match w.read(START) {
            0 => return Ok(()),
            start => start + u64::from(w.index()) * sizes.share,
        };
        let mut parts = (0..sizes.share / sizes.part).cycle();
        let mut next = || VirtAddr(start + parts.next().unwrap_or(0) * sizes.part);
        let mut repetition = 0;
        self.tasks.measure(w, 1, |w| {
            repetition += 1;
            let at = next();
            sizes.commit(w, at, repetition)?;
            sizes.uncommit(w, at)
        })?;
        let at = next();
        let tagged = sizes.commit(w, at, 0)?;
        expect(w, at, tagged)?;
        sizes.uncommit(w, at)?;
        w.protect(at, sizes.part, Prot::Read)?;
        expect(w, at, 0)?;
        w.checked(Oracle::Contents, 2);
        check_fresh(w)
    }
}

/// Sizes in bytes, whole pages.
#[derive(Clone, Copy)]
struct Sizes {
    part: u64,
    share: u64,
    all: u64,
}

impl Sizes {
    /// Makes a part accessible and stores to each of its pages; what was stored in the first.
    fn commit<W: Worker>(self, w: &mut W, at: VirtAddr, repetition: u32) -> Result<u64, Stop> {
        w.protect(at, self.part, Prot::ReadWrite)?;
        let page_size = w.page_size();
        let worker = w.index();
        for page in 0..self.part / page_size {
            let value = tag(worker, page, repetition);
            w.store(VirtAddr(at.0 + page * page_size), value)?;
        }
        Ok(tag(worker, 0, repetition))
    }

    /// Throws the pages away, and takes the access back.
    fn uncommit<W: Worker>(self, w: &mut W, at: VirtAddr) -> Result<(), Stop> {
        w.discard(at, self.part)?;
        w.protect(at, self.part, Prot::None)
    }
}

#[cfg(test)]
mod tests {
    use super::Commit;
    use crate::fake::{Fake, plan};

    fn small() -> Commit {
        let mut test = Commit {
            bytes: 16 << 10,
            share: 64 << 10,
            reservation: 1 << 20,
            ..Commit::default()
        };
        test.tasks.rounds = 5;
        test
    }

    #[test]
    fn a_round_is_an_operation_and_touches_each_page_of_a_part() {
        let outcome = small().run(&Fake::default(), &plan(3)).unwrap();
        assert!(outcome.workers.iter().all(|worker| worker.ops == 5));
        assert_eq!((outcome.pages, outcome.faults), (3 * 5 * 4, 3 * 5 * 4));
        assert!(outcome.rates["commits_per_second"] > 0.0);
        assert!(outcome.checks["contents"] >= 2 * 3);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let run = |test: &Commit, threads| {
            let error = test.run(&Fake::default(), &plan(threads)).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            run(&small(), 17),
            "commit: shares of 17 threads are 1114112 bytes, more than the 1048576 bytes reserved"
        );
        let large = Commit {
            bytes: 128 << 10,
            ..small()
        };
        assert_eq!(
            run(&large, 1),
            "commit: a part of 131072 bytes is more than a thread's share of 65536 bytes"
        );
    }
}
