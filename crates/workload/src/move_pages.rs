//! `move-pages`: one thread faults while the others move pages of the same mapping.
//!
//! Thread 0 touches its part of one mapping, page by page, discards it, and touches it again; every
//! other thread, a *mover*, has stored to a part of its own and moves its pages from memory node to
//! memory node until thread 0 is done. All pages belong to one anon_vma, whose lock a move takes.
//! With one thread the same code runs without a mover, for the rate to compare with.
//!
//! ```text
//! thread 0   map all              |######## touch, discard, touch ########| done, check
//! thread 1       store to its part |## moves ## ... ## moves ############|  check
//!                              barrier                            done seen
//! ```
//!
//! Measured: thread 0's window. A mover's pages are counted over its own window.

use crate::contents::WORD;
use crate::options::{Info, Opt, OptionError};
use crate::outcome::Outcome;
use crate::target::{Feature, Oracle, Plan, Prot, Stop, Target, TargetError, Worker};
use crate::workload::{agreed_threads, unsupported};
use minflt_addr::VirtAddr;

/// The mailbox slot that is set once thread 0 is done, and the one that says where the mapping is.
const DONE: usize = 0;
const PLACE: usize = 1;
/// Nodes that a mover's pages go to in turn.
const NODES: u64 = 2;

/// What the registry says about `move-pages`.
pub const INFO: Info = Info {
    name: "move-pages",
    about: "one thread faults while the others migrate pages of its mapping (1: alone)",
    threads: &[1, 2],
    options: &[
        Opt {
            name: "--size",
            value: "SIZE",
            default: "16M",
            help: "bytes that thread 0 touches in a round",
        },
        Opt {
            name: "--rounds",
            value: "N",
            default: "8",
            help: "rounds of thread 0",
        },
        Opt {
            name: "--moved",
            value: "SIZE",
            default: "1M",
            help: "bytes that each other thread migrates back and forth",
        },
    ],
    refused: &[],
};

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovePages {
    /// Bytes that thread 0 touches in a round (`--size`), rounded up to pages.
    pub bytes: u64,
    /// How often it does (`--rounds`).
    pub rounds: u32,
    /// Bytes that a mover moves (`--moved`), rounded up to pages.
    pub moved_bytes: u64,
}

impl Default for MovePages {
    fn default() -> Self {
        Self {
            bytes: 16 << 20,
            rounds: 8,
            moved_bytes: 1 << 20,
        }
    }
}

/// The parts of the mapping.
#[derive(Clone, Copy)]
struct Parts {
    /// Pages of thread 0.
    faulted: u64,
    /// Pages of each mover.
    moved: u64,
    page: u64,
}

impl Parts {
    const fn bytes(self, movers: u64) -> u64 {
        (self.faulted + movers * self.moved) * self.page
    }

    /// Page `n` of mover `mover`, which counts from 0.
    const fn of_mover(self, base: VirtAddr, mover: u64, n: u64) -> VirtAddr {
        VirtAddr(base.0 + (self.faulted + mover * self.moved + n) * self.page)
    }
}

impl MovePages {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, or its value is wrong.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        let default = Self::default();
        Ok(Self {
            bytes: given.size("--size")?.unwrap_or(default.bytes),
            rounds: given.count("--rounds")?.unwrap_or(default.rounds),
            moved_bytes: given.size("--moved")?.unwrap_or(default.moved_bytes),
        })
    }

    const fn parts(&self, page: u64) -> Parts {
        Parts {
            faulted: self.bytes.div_ceil(page),
            moved: self.moved_bytes.div_ceil(page),
            page,
        }
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables and stacks come on top. A node has to have room for all that is moved there.
    #[must_use]
    pub const fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let parts = self.parts(page_size);
        NODES * parts.bytes(threads.saturating_sub(1) as u64)
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan has no threads, pages have nowhere to go, or the target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let threads = agreed_threads(INFO.name, "", None, plan)?;
        if let Some(why) = target.lacks(Feature::Nodes) {
            return Err(unsupported(format!("{}: {why}", INFO.name)));
        }
        let parts = self.parts(target.page_size());
        let movers = u64::from(threads) - 1;
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        outcome.number("bytes", self.bytes);
        outcome.number("rounds", self.rounds);
        outcome.number("moved_bytes", self.moved_bytes);
        outcome.number("movers", movers);
        let report = target.process(plan, |w| match w.index() {
            0 => fault(w, parts, movers, self.rounds.into()),
            index => migrate(w, parts, u64::from(index) - 1),
        })?;
        outcome.add_windows(report, 0..1);
        outcome.pages = parts.faulted * u64::from(self.rounds);
        outcome.rate("pages_per_second", outcome.pages, outcome.wall_ns);
        let movers = outcome.workers.get(1..).unwrap_or_default();
        let moved = movers.iter().map(|worker| worker.ops).sum();
        let ns = movers
            .iter()
            .map(|worker| worker.end_ns.saturating_sub(worker.start_ns))
            .max();
        outcome.rate("moves_per_second", moved, ns.unwrap_or(0));
        Ok(outcome)
    }
}

/// Thread 0. Whatever happens to it, it comes to the barriers and posts that it is done.
fn fault<W: Worker>(w: &mut W, parts: Parts, movers: u64, rounds: u64) -> Result<(), Stop> {
    let mapped = w.map(parts.bytes(movers), Prot::ReadWrite);
    // The first touch makes the anon_vma that all of it has.
    let ready = mapped.and_then(|at| w.store(at, 1).map(|()| at));
    w.post(PLACE, ready.map_or(0, |at| at.0));
    w.barrier();
    w.barrier();
    w.window_open();
    let touched = ready.and_then(|at| touch(w, at, parts, rounds));
    w.window_close();
    w.post(DONE, 1);
    touched
}

fn touch<W: Worker>(w: &mut W, at: VirtAddr, parts: Parts, rounds: u64) -> Result<(), Stop> {
    for round in 1..=rounds {
        w.discard(at, parts.faulted * parts.page)?;
        for n in 0..parts.faulted {
            w.store(VirtAddr(at.0 + n * parts.page), round * parts.faulted + n)?;
        }
    }
    w.ops(parts.faulted * rounds);
    for n in 0..parts.faulted {
        expect(
            w,
            VirtAddr(at.0 + n * parts.page),
            rounds * parts.faulted + n,
        )?;
    }
    w.checked(Oracle::Contents, parts.faulted);
    Ok(())
}

/// A mover. What it stored is there after every page has moved for the last time.
fn migrate<W: Worker>(w: &mut W, parts: Parts, mover: u64) -> Result<(), Stop> {
    w.barrier();
    let base = VirtAddr(w.read(PLACE));
    let stored = match base.0 {
        0 => Ok(()),
        _ => (0..parts.moved).try_for_each(|n| w.store(parts.of_mover(base, mover, n), n + 1)),
    };
    w.barrier();
    stored?;
    w.window_open();
    let mut node = 0;
    while w.read(DONE) == 0 && base.0 != 0 {
        node = (node + 1) % NODES as u32;
        for n in 0..parts.moved {
            if w.move_page(parts.of_mover(base, mover, n), node)? {
                w.ops(1);
            }
        }
    }
    w.window_close();
    if base.0 != 0 {
        for n in 0..parts.moved {
            expect(w, parts.of_mover(base, mover, n), n + 1)?;
        }
        w.checked(Oracle::Contents, parts.moved);
    }
    Ok(())
}

fn expect<W: Worker>(w: &mut W, at: VirtAddr, stored: u64) -> Result<(), Stop> {
    const { assert!(WORD == 8) };
    match w.load(at)? {
        found if found == stored => Ok(()),
        found => Err(Stop::Contents(at, stored, found)),
    }
}

#[cfg(test)]
mod tests {
    use super::MovePages;
    use crate::fake::{Fake, plan};

    const SMALL: MovePages = MovePages {
        bytes: 64 << 10,
        rounds: 2,
        moved_bytes: 16 << 10,
    };

    #[test]
    fn alone_it_counts_what_it_touches() {
        let outcome = SMALL.run(&Fake::default(), &plan(1)).unwrap();
        assert_eq!(outcome.pages, 32);
        assert!(!outcome.rates.contains_key("moves_per_second"));
    }

    #[test]
    fn movers_count_what_they_move() {
        let outcome = SMALL.run(&Fake::default(), &plan(3)).unwrap();
        assert_eq!((outcome.pages, outcome.workers[0].ops), (32, 32));
        assert_eq!(outcome.checks["contents"], 16 + 2 * 4);
    }

    #[test]
    fn a_target_without_nodes_is_refused() {
        let fake = Fake {
            bare: true,
            ..Fake::default()
        };
        let words = SMALL.run(&fake, &plan(2)).unwrap_err().to_string();
        assert_eq!(words, "move-pages: the fake is bare");
    }
}
