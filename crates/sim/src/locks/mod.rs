//! Benchmark of one contended lock on a simulated machine, against published measurements.
//!
//! # Problem
//! Whether the line directory behaves like hardware is asked first where nothing else plays a part:
//! some threads, one lock, a section of a fixed length. Such curves were published for five
//! textbook locks, for a word that all threads add to, and for a lock that all take for reading.
//!
//! # Idea
//! The same locks are written over the machine's seam (`textbook.rs`) and run on the machine's
//! file; our own locks run beside them. Threads fill the cores of one socket after the other, and
//! then the second threads of the cores.
//!
//! # Cost
//! Some milliseconds of virtual time a point.

mod markov;
mod measured;
mod textbook;

pub use markov::ticket_rate;
pub use measured::{Curves, MeasuredError, curves};

use crate::instance::{SimInstance, Size};
use crate::machine::Sim;
use crate::machine_file::MachineFile;
use crate::model::Model;
use crate::report::Outcome;
use crate::rng::Rng;
use crate::run::{RunOptions, TaskSpec, run};
use core::cell::Cell;
use core::fmt;
use minflt_pgtable::X86_64;
use minflt_sync::{Instance, Ordering, RwSem, SpinLock, Succession, order};
use std::io;
use textbook::{Clh, Mcs, Readers, Tas, Ticket, Ttas, Word};

/// The machine that the locks run on.
type M = Sim<X86_64, false>;

/// A lock to contend for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Test and set.
    Tas,
    /// Test, and test and set.
    Ttas,
    /// Ticket.
    Ticket,
    /// Mellor-Crummey and Scott's queue.
    Mcs,
    /// Craig's, and Landin and Hagersten's queue.
    Clh,
    /// No lock: threads add to one word.
    Add,
    /// Readers of a lock of glibc's: one adds, and leaves by compare and exchange.
    Readers,
    /// Ours: `sync::SpinLock`.
    Spin,
    /// Ours: `sync::RwSem`, for writing.
    Write,
    /// Ours: `sync::RwSem`, for reading: the sections overlap.
    Read,
}

impl Lock {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Tas,
        Self::Ttas,
        Self::Ticket,
        Self::Mcs,
        Self::Clh,
        Self::Add,
        Self::Readers,
        Self::Spin,
        Self::Write,
        Self::Read,
    ];

    /// Its name, as the data files have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tas => "tas",
            Self::Ttas => "ttas",
            Self::Ticket => "ticket",
            Self::Mcs => "mcs",
            Self::Clh => "clh",
            Self::Add => "fetch-add",
            Self::Readers => "rwlock read",
            Self::Spin => "SpinLock",
            Self::Write => "RwSem write",
            Self::Read => "RwSem read",
        }
    }

    /// Whether several may be inside at once.
    const fn lets_several_in(self) -> bool {
        matches!(self, Self::Add | Self::Readers | Self::Read)
    }
}

/// What threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contest {
    /// Threads, each on a CPU of its own.
    pub threads: u32,
    /// Cycles that the lock is held.
    pub section_cycles: u64,
    /// Cycles from a release to the next acquisition of a thread.
    pub between_cycles: u64,
}

/// Why a contest could not be held.
#[derive(Debug)]
pub enum ContestError {
    /// The machine has fewer CPUs.
    Threads {
        /// CPUs that it has.
        cpus: u32,
        /// Threads asked for.
        threads: u32,
    },
    /// The host cannot hold the machine.
    Host(io::Error),
    /// A lock did not exclude, or the run did not end.
    Run(Outcome),
}

impl fmt::Display for ContestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads { cpus, threads } => {
                write!(f, "{threads} threads on a machine of {cpus} CPUs")
            }
            Self::Host(error) => write!(f, "cannot allocate the simulated machine: {error}"),
            Self::Run(outcome) => outcome.fmt(f),
        }
    }
}

impl core::error::Error for ContestError {}

/// Virtual time before counting starts, and for which it lasts, in nanoseconds.
const WARM_NS: u64 = 200_000;
const COUNTED_NS: u64 = 1_000_000;
/// Between two attempts of a test-and-set: a few instructions.
const PAUSE_CYCLES: u64 = 10;

/// What all threads of a contest share beside the lock.
struct Ring {
    section_ns: u64,
    between_ns: u64,
    /// Of writers: who is inside.
    inside: Cell<u32>,
    overlapped: Cell<bool>,
    done: Cell<u64>,
}

/// Locks, runs the critical section, and unlocks.
type Section<'a> = dyn Fn(u32, &dyn Fn()) + 'a;

/// How often a second `lock` is taken on a machine like `file`.
///
/// # Errors
/// More threads than CPUs, no memory of the host, or a lock that does not exclude.
pub fn contest(file: &MachineFile, lock: Lock, what: Contest) -> Result<f64, ContestError> {
    let (cpus, threads) = (file.cpus(), what.threads);
    if threads > cpus {
        return Err(ContestError::Threads { cpus, threads });
    }
    let size = Size {
        ram_bytes: 1 << 20,
        max_tasks: threads,
        cpus,
    };
    let at = SimInstance::new(file, size).map_err(ContestError::Host)?;
    let ns = |cycles: u64| cycles * 1000 / file.shape.clock_mhz.value as u64;
    let ring = Ring {
        section_ns: ns(what.section_cycles),
        between_ns: ns(what.between_cycles),
        inside: Cell::new(0),
        overlapped: Cell::new(false),
        done: Cell::new(0),
    };
    let arena = Arena {
        at: &at,
        used: Cell::new(0),
    };
    let outcome = match lock {
        Lock::Spin | Lock::Write | Lock::Read => ours(lock, &ring, &arena, threads),
        _ => textbook(lock, &ring, &arena, threads, ns(PAUSE_CYCLES)),
    };
    if outcome != Outcome::Ok {
        return Err(ContestError::Run(outcome));
    }
    if ring.overlapped.get() && !lock.lets_several_in() {
        let text = format!("{} let two in at once", lock.name());
        return Err(ContestError::Run(Outcome::Violation(text)));
    }
    Ok(ring.done.get() as f64 * 1e9 / COUNTED_NS as f64)
}

/// A contest for one of the textbook's locks, or for a word.
fn textbook(lock: Lock, ring: &Ring, arena: &Arena<'_>, threads: u32, pause_ns: u64) -> Outcome {
    let at = arena.at;
    match lock {
        Lock::Tas => {
            let lock = Tas::new(arena, pause_ns);
            ring.hold(at, threads, &|_, section| {
                lock.lock();
                section();
                lock.unlock();
            })
        }
        Lock::Ttas => {
            let lock = Ttas::new(arena);
            ring.hold(at, threads, &|_, section| {
                lock.lock();
                section();
                lock.unlock();
            })
        }
        Lock::Ticket => {
            let lock = Ticket::new(arena);
            ring.hold(at, threads, &|_, section| {
                let ticket = lock.lock();
                section();
                lock.unlock(ticket);
            })
        }
        Lock::Mcs => {
            let lock = Mcs::new(arena, threads);
            ring.hold(at, threads, &|me, section| {
                lock.lock(me);
                section();
                lock.unlock(me);
            })
        }
        Lock::Add => {
            let word = arena.place(Word::new(0));
            ring.hold(at, threads, &|_, section| {
                word.add(1, Ordering::Relaxed);
                section();
            })
        }
        Lock::Readers => {
            let lock = Readers::new(arena);
            ring.hold(at, threads, &|_, section| {
                lock.lock();
                section();
                lock.unlock();
            })
        }
        _ => {
            let lock = Clh::new(arena, threads);
            ring.hold(at, threads, &|me, section| {
                lock.lock(me);
                section();
                lock.unlock(me);
            })
        }
    }
}

/// A contest for one of ours.
fn ours(lock: Lock, ring: &Ring, arena: &Arena<'_>, threads: u32) -> Outcome {
    let at = arena.at;
    match lock {
        Lock::Spin => {
            let lock = arena.place(SpinLock::<(), order::WaitLock, M>::new(()));
            ring.hold(at, threads, &|_, section| {
                let _held = lock.lock();
                section();
            })
        }
        Lock::Write => {
            let lock = arena.place(RwSem::<order::WaitLock, M>::new(Succession::HandOff));
            ring.hold(at, threads, &|_, section| {
                let _held = lock.write();
                section();
            })
        }
        _ => {
            let lock = arena.place(RwSem::<order::WaitLock, M>::new(Succession::HandOff));
            ring.hold(at, threads, &|_, section| {
                let _held = lock.read();
                section();
            })
        }
    }
}

impl Ring {
    fn hold(&self, at: &SimInstance, threads: u32, section: &Section<'_>) -> Outcome {
        let task = |me: u32| {
            let cpu = seat(&at.model, me);
            TaskSpec::new(cpu, move || self.fight(at, me, section))
        };
        let tasks = (0..threads).map(task).collect();
        run(at, &RunOptions::virtual_time(), tasks).outcome
    }

    fn fight(&self, at: &SimInstance, me: u32, section: &Section<'_>) {
        // Threads come in no particular order; a fair lock keeps the one they came in.
        M::compute(Rng::new(u64::from(me)).below(WARM_NS / 2));
        loop {
            section(me, &|| {
                if self.inside.replace(me + 1) != 0 {
                    self.overlapped.set(true);
                }
                M::compute(self.section_ns);
                self.inside.set(0);
            });
            let now = at.now_ns();
            if now >= WARM_NS + COUNTED_NS {
                return;
            }
            if now >= WARM_NS {
                self.done.set(self.done.get() + 1);
            }
            M::compute(self.between_ns);
        }
    }
}

/// The CPU of thread `me`: first one of each core, socket by socket, then the cores' others.
fn seat(model: &Model, me: u32) -> u32 {
    let per_core = model.within(0, crate::model::Distance::Core).len() as u32;
    let cores = model.places.len() as u32 / per_core;
    me % cores * per_core + me / cores
}

/// Places things on lines of their own in a machine's memory.
pub(super) struct Arena<'a> {
    at: &'a SimInstance,
    used: Cell<usize>,
}

impl<'a> Arena<'a> {
    /// Places `value` on lines of its own.
    pub(super) fn place<T>(&self, value: T) -> &'a T {
        let from = self.used.get().next_multiple_of(256);
        let ram = self.at.ram();
        assert!(from + size_of::<T>() <= ram.bytes, "a contest is small");
        self.used.set(from + size_of::<T>());
        // SAFETY: within the memory, as just checked.
        let slot = unsafe { ram.base.add(from) }.cast::<T>();
        // SAFETY: aligned to 256, fresh, and nobody else's.
        unsafe { slot.write(value) };
        // SAFETY: just written; shared from now on, and the memory lives as long as the machine.
        unsafe { &*slot }
    }
}

#[cfg(test)]
mod tests;
