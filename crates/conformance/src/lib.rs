//! Examines whether a machine keeps what `sync`, `pgtable` and `mm` rely on.
//!
//! Whoever embeds the library writes a [`Machine`] and an [`Mmu`]: some thirty functions, of which
//! a wrong one shows as a lost store weeks later. This suite runs on any machine, needs no heap and
//! no operating system, and names the promise that is broken.
//!
//! # Problem
//! A promise like "interrupts are taken while a context waits" cannot be seen in one function, and
//! who breaks it hangs, or loses a page once in a million.
//!
//! # Idea
//! Each promise is a [`Check`]: a few contexts on a few CPUs that provoke it, and a bounded wait
//! for what must come. The embedder says only how a machine is had and how contexts run on it: a
//! [`Bed`]. Three levels stand on each other: words and contexts, frames, translations. Where a
//! level is broken, those above are skipped: their failures would say nothing new.
//!
//! # Why it is correct
//! Contexts share nothing but words in the machine's memory, reached through the machine. A check
//! that waits for another context looks a bounded number of times, and then says what did not
//! come, so that a machine fails and does not hang; but one that never comes back from its own
//! [`Machine::park`] or [`Machine::wait_until`] does hang, which is why the name of a check is
//! reported before it runs.
//!
//! # Cost
//! 0.4 s on real threads (`cargo test -p minflt-tests --test conformance passed_through`).

#![no_std]

mod board;
mod contexts;
mod frames;
mod interrupts;
mod waits;
mod whole;
mod words;

pub use board::RAM_BYTES;

use core::fmt;
use minflt_addr::VirtAddr;
use minflt_mm::{Config, Signal, Thread};
use minflt_pgtable::Mmu;
use minflt_sync::Machine;

/// What a [`Bed`] is to run: called with the number of the CPU.
pub type Work<'w> = &'w (dyn Fn(u32) -> Result<(), Broken> + Sync);

/// The machine under examination: how one is had, and how contexts run on it.
pub trait Bed: Sync + 'static {
    /// Its type.
    type Machine: Mmu;

    /// How many CPUs it has: 1 and up. Checks that need more are skipped.
    fn cpus(&self) -> u32;

    /// A machine of that many CPUs in its first state: its memory zeroed, at least
    /// [`RAM_BYTES`] of it, no handler of interrupts set. What the one before was is over.
    fn machine(&self) -> <Self::Machine as Machine>::Instance;

    /// Runs `work` as a context on each of the CPUs below `cpus`, at once, with interrupts on, and
    /// returns when all have come back: the first error, if there is one. A violation is one, too.
    ///
    /// # Errors
    /// What `work` returned; [`Broken::violation`] if an oracle ended the run.
    fn run(
        &self,
        at: &<Self::Machine as Machine>::Instance,
        cpus: u32,
        work: Work<'_>,
    ) -> Result<(), Broken>;

    /// Calls `work` in the context that calls, as CPU 0, while nothing else runs.
    fn alone<R>(&self, at: &<Self::Machine as Machine>::Instance, work: impl FnOnce() -> R) -> R;

    /// What the systems of the upper level are made with: an era that the machine's format carries.
    fn config(&self) -> Config;

    /// A load of the user by `thread`. With an MMU in hardware: the load itself, and the fault if
    /// it takes one.
    ///
    /// # Errors
    /// The signal that it raises.
    fn load(&self, thread: &Thread<'_, Self::Machine>, at: VirtAddr) -> Result<u64, Signal> {
        thread.load(at)
    }

    /// A store of the user by `thread`.
    ///
    /// # Errors
    /// As [`Bed::load`].
    fn store(
        &self,
        thread: &Thread<'_, Self::Machine>,
        at: VirtAddr,
        value: u64,
    ) -> Result<(), Signal> {
        thread.store(at, value)
    }
}

/// What was found in place of what was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// What was seen, in words.
    pub what: &'static str,
    /// The value found.
    pub found: u64,
    /// The value that keeps the promise, or its bound.
    pub wanted: u64,
}

impl Broken {
    /// An oracle ended the run; what it said was printed where the machine prints.
    #[must_use]
    pub const fn violation() -> Self {
        Self {
            what: "an oracle of the machine ended the run",
            found: 1,
            wanted: 0,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, found, wanted) = (self.what, self.found, self.wanted);
        write!(f, "{what}: {found:#x}, where {wanted:#x} keeps the promise")
    }
}

/// `Ok` if `found` is `wanted`.
pub(crate) fn same(what: &'static str, found: u64, wanted: u64) -> Result<(), Broken> {
    ensure(what, found, wanted, found == wanted)
}

/// `Ok` if `holds`.
pub(crate) fn ensure(
    what: &'static str,
    found: u64,
    wanted: u64,
    holds: bool,
) -> Result<(), Broken> {
    if holds {
        return Ok(());
    }
    Err(Broken {
        what,
        found,
        wanted,
    })
}

/// What a check stands on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// [`Machine`]: words, contexts, waits, interrupts.
    Machine,
    /// [`Mmu`]: frames and what is in them.
    Frames,
    /// A whole system: translations, and who forgets them when.
    System,
}

/// One promise, and how it is examined.
#[derive(Debug)]
pub struct Check<B: Bed> {
    /// A short name.
    pub name: &'static str,
    /// What is promised.
    pub promise: &'static str,
    /// How many CPUs it needs.
    pub cpus: u32,
    run: fn(&B) -> Result<(), Broken>,
}

impl<B: Bed> Check<B> {
    const fn new(
        cpus: u32,
        name: &'static str,
        promise: &'static str,
        run: fn(&B) -> Result<(), Broken>,
    ) -> Self {
        Self {
            name,
            promise,
            cpus,
            run,
        }
    }

    /// Examines the one promise; the bed has the CPUs that it needs.
    ///
    /// # Errors
    /// What was found where it is broken.
    pub fn run(&self, bed: &B) -> Result<(), Broken> {
        (self.run)(bed)
    }

    /// All of them, in the order in which they stand on each other.
    pub fn all() -> impl Iterator<Item = (Level, &'static Self)> {
        let levels: [(Level, &[Self]); 6] = [
            (Level::Machine, const { &words::checks() }),
            (Level::Machine, const { &contexts::checks() }),
            (Level::Machine, const { &waits::checks() }),
            (Level::Machine, const { &interrupts::checks() }),
            (Level::Frames, const { &frames::checks() }),
            (Level::System, const { &whole::checks() }),
        ];
        let of_level =
            |(level, checks): (Level, &'static [Self])| checks.iter().map(move |it| (level, it));
        levels.into_iter().flat_map(of_level)
    }
}

/// How a check ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The promise was kept.
    Kept,
    /// It was not.
    Broken(Broken),
    /// It was not looked at, for this reason.
    Skipped(&'static str),
}

/// What [`examine`] reports.
#[derive(Debug)]
pub enum Progress<'c, B: Bed> {
    /// The check is about to run.
    Begins(&'c Check<B>),
    /// It has run, or was skipped.
    Ended(&'c Check<B>, Outcome),
}

/// Runs all checks on `bed`; returns whether no promise was broken.
pub fn examine<B: Bed>(bed: &B, mut report: impl FnMut(Progress<'_, B>)) -> bool {
    let mut broken = None;
    for (level, check) in Check::<B>::all() {
        let outcome = if check.cpus > bed.cpus() {
            Outcome::Skipped("needs more CPUs")
        } else if broken.is_some_and(|lowest| lowest < level) {
            Outcome::Skipped("a level below is broken")
        } else {
            report(Progress::Begins(check));
            match check.run(bed) {
                Ok(()) => Outcome::Kept,
                Err(found) => Outcome::Broken(found),
            }
        };
        if matches!(outcome, Outcome::Broken(_)) {
            broken = broken.or(Some(level));
        }
        report(Progress::Ended(check, outcome));
    }
    broken.is_none()
}
