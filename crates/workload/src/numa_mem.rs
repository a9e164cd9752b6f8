//! `numa-mem`: threads use memory over and over that may lie on another node.
//!
//! After `perf bench numa mem`, whose letters the options are. The workload of the 2012 posting,
//! numa02, is `-p 1 -t 32 -T 32 -l N -zZ0`: all pages are touched first on CPU 0, so that they all
//! lie on its node, and then each thread fills its own 32 MB again and again.
//!
//! ```text
//! thread 0   map, touch |######## loop 0, loop 1, ... ########|              | check
//! thread 1   wait       |########### loop 0, loop 1, ... #############|      | check
//!                    barrier                                              barrier
//! ```
//!
//! Measured: each thread's loops; the longest runs from the first to begin to the last to end. (The
//! original's ends when the processes have been waited for.)
//!
//! What differs besides:
//! - Memory is filled with words that say who stored them in which loop, not with zeros, so that a
//!   lost store is seen. Each page of a thread's own memory is looked at after the loops; what
//!   several threads store to cannot be checked.
//! - Of `-G` 1 MB is used by default only without `-P` and `-T`: the posting's 25 GiB for each
//!   thread are 800 times 32 MiB, and nothing else. It is a file in memory, made before the start.
//! - `-0` has the first thread touch everything, which runs on CPU 0, instead of moving each thread
//!   there and binding memory to its node; it needs `-p 1`. On *host* nodes are bookkeeping only.
//! - Threads stay on the CPU that they begin on.
//! - A lock (`-L`) is waited for with the clock, not asleep.

mod columns;
mod given;
mod info;
mod walk;

pub use columns::{Columns, ThreadLine};
pub use info::INFO;

use crate::contents::{FRESH_PAGES, WORD, check_fresh, tag};
use crate::outcome::{self, Outcome};
use crate::target::{
    Cache, CommonFile, Feature, Oracle, Plan, Prot, Sharing, Spaces, Stop, Target, TargetError,
    Use, Worker,
};
use crate::workload::{agreed_threads, unsupported};
use minflt_addr::VirtAddr;
use walk::{Data, Pattern, Seen, go};

/// The mailbox slot of where the process' memory lies.
const PROCESS: usize = 0;
/// That of where its threads' memory lies.
const THREADS: usize = 1;
/// That of whether no loop is to begin.
const STOP: usize = 2;
/// The lock's tickets that were given out.
const TICKET: usize = 3;
/// The ticket that has the lock.
const SERVED: usize = 4;
/// How long a thread that waits for the lock looks elsewhere.
const LOOK_NS: u64 = 1000;
/// The loop in which memory is touched first; others are far from reaching it.
const FIRST: u32 = 0x7fff;
const SECONDS: u64 = 5;

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumaMem {
    /// Processes (`-p`), where given.
    pub processes: Option<u32>,
    /// Threads of a process (`-t`), where given.
    pub threads: Option<u32>,
    /// What memory there is.
    pub memory: Memory,
    /// Loops of each thread (`-l`).
    pub loops: Option<u32>,
    /// Nanoseconds after which no loop begins (`-s`).
    pub limit_ns: Option<u64>,
    /// What is done with the words (`-R`, `-W`, `-Z`).
    pub how: Use,
    /// Every other loop goes backwards (`-B`).
    pub backwards: bool,
    /// Pieces at random places (`-r`).
    pub random: bool,
    /// What memory holds at first (`-z`, `-I`).
    pub first: First,
    /// Who touches it first (`-0`).
    pub touched_by: TouchedBy,
    /// A line for each thread (`-d`).
    pub details: bool,
    /// The lines of the quiet mode (`-q`).
    pub quiet: bool,
}

/// Bytes of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// That all processes share (`-G`).
    pub global: u64,
    /// Of each process (`-P`).
    pub process: u64,
    /// Of that, as much is used once more under a lock (`-L`).
    pub locked: u64,
    /// Of each thread (`-T`).
    pub thread: u64,
}

/// What memory holds at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    /// Zeros, stored like anything else.
    Zeros,
    /// Other words.
    Words,
}

/// Who touches memory first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TouchedBy {
    /// Whose it is; of what threads share, the first of them.
    Owner,
    /// The first thread, on CPU 0.
    First,
}

impl Default for NumaMem {
    fn default() -> Self {
        Self {
            processes: None,
            threads: None,
            memory: Memory {
                global: 1 << 20,
                ..Memory::default()
            },
            loops: None,
            limit_ns: Some(SECONDS * 1_000_000_000),
            how: Use::Update,
            backwards: true,
            random: true,
            first: First::Words,
            touched_by: TouchedBy::Owner,
            details: false,
            quiet: false,
        }
    }
}

impl NumaMem {
    /// Threads of all processes, where the options say so.
    #[must_use]
    pub fn tasks(&self) -> Option<u32> {
        match (self.processes, self.threads) {
            (None, None) => None,
            (processes, threads) => {
                Some(processes.unwrap_or(1).saturating_mul(threads.unwrap_or(1)))
            }
        }
    }

    /// Whether threads are processes of their own.
    fn spaces(&self) -> Spaces {
        match self.processes {
            Some(count) if count > 1 => Spaces::Own,
            _ => Spaces::Shared,
        }
    }

    /// Bytes of RAM that `threads` threads need, with pages of `page_size` bytes; page tables and
    /// stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let processes = match self.spaces() {
            Spaces::Shared => 1,
            Spaces::Own => threads,
        };
        let whole = |bytes: u64| bytes.next_multiple_of(page_size);
        let own = whole(self.memory.thread).saturating_add(FRESH_PAGES * page_size);
        whole(self.memory.global)
            .saturating_add(whole(self.memory.process).saturating_mul(u64::from(processes)))
            .saturating_add(own.saturating_mul(u64::from(threads)))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, the target lacks what they want, or it fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let threads = agreed_threads(INFO.name, "-p times -t", self.tasks(), plan)?;
        if let Some(why) = target.lacks(Feature::Files)
            && self.memory.global > 0
        {
            let words = format!("numa-mem: {why}, and -G is a file; leave -G out, and give -T");
            return Err(unsupported(words));
        }
        let file = (self.memory.global > 0).then_some(CommonFile {
            bytes: self.memory.global.next_multiple_of(target.page_size()),
            cache: Cache::Warm,
        });
        let plan = Plan {
            spaces: self.spaces(),
            file,
            ..plan.clone()
        };
        let table_bytes = target.table_bytes();
        let report = target.process(&plan, |w| self.body(w, table_bytes))?;
        let mut outcome = self.labelled(threads);
        let all = 0..report.workers.len();
        outcome.add_windows(report, all);
        let columns = Columns::new(&outcome.workers, self.quiet, self.details);
        outcome.rate("bytes_per_second", columns.bytes, outcome.wall_ns);
        outcome.columns = Some(outcome::Columns::NumaMem(columns));
        Ok(outcome)
    }

    /// An outcome that holds nothing but the name and the options.
    fn labelled(&self, threads: u32) -> Outcome {
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        outcome.number("tasks", threads);
        outcome.number("global_bytes", self.memory.global);
        outcome.number("process_bytes", self.memory.process);
        outcome.number("locked_bytes", self.memory.locked);
        outcome.number("thread_bytes", self.memory.thread);
        outcome.number("loops", self.loops.unwrap_or(0));
        outcome.number("limit_ns", self.limit_ns.unwrap_or(0));
        let word = |is: bool, yes, no| if is { yes } else { no };
        outcome.text(
            "mode",
            word(self.spaces() == Spaces::Own, "processes", "threads"),
        );
        outcome.text("walk", word(self.random, "random", "in order"));
        outcome.text(
            "backwards",
            word(self.backwards, "every other loop", "never"),
        );
        outcome.text("first", word(self.first == First::Zeros, "zeros", "words"));
        let by = word(self.touched_by == TouchedBy::First, "CPU 0", "owner");
        outcome.text("touched_by", by);
        let how = match self.how {
            Use::Load => "load",
            Use::Store => "store",
            Use::Update => "load and store",
        };
        outcome.text("use", how);
        outcome
    }

    fn body<W: Worker>(&self, w: &mut W, table_bytes: u64) -> Result<(), Stop> {
        let mut held = self.set_up(w, table_bytes)?;
        w.barrier();
        w.window_open();
        let looped = self.all_loops(w, &mut held);
        w.window_close();
        // Nobody looks before all have done their loops.
        w.barrier();
        w.ops(looped?);
        let looks = held.seen.check(w)?;
        w.checked(Oracle::Contents, looks);
        check_fresh(w)
    }

    /// Maps memory, touches it first, and learns where what is shared lies.
    fn set_up<W: Worker>(&self, w: &mut W, table_bytes: u64) -> Result<Held, Stop> {
        let (page_words, threads) = (w.page_size() / WORD, u64::from(w.threads()));
        let memory = &self.memory;
        let global = match memory.global {
            0 => VirtAddr(0),
            _ => w.map_common(Prot::ReadWrite, Sharing::Shared)?,
        };
        // No two threads have a page table in common.
        let stride = memory.thread.next_multiple_of(table_bytes);
        let alone = self.spaces() == Spaces::Own;
        let together = self.touched_by == TouchedBy::First;
        let (mut process, mut thread) = (VirtAddr(0), VirtAddr(0));
        if alone || w.index() == 0 {
            process = self.map(w, memory.process)?;
            self.touch(w, process, memory.process, w.index())?;
        }
        if alone || !together {
            thread = self.map(w, memory.thread)?;
            self.touch(w, thread, memory.thread, w.index())?;
        } else if w.index() == 0 {
            thread = self.map(w, stride * threads)?;
            for index in 0..w.threads() {
                let at = VirtAddr(thread.0 + stride * u64::from(index));
                self.touch(w, at, memory.thread, index)?;
            }
        }
        if !alone {
            if w.index() == 0 {
                w.post(PROCESS, process.0);
                w.post(THREADS, thread.0);
            }
            w.barrier();
            process = VirtAddr(w.read(PROCESS));
            if together {
                thread = VirtAddr(w.read(THREADS) + stride * u64::from(w.index()));
            }
        }
        let first = |page| self.first_word(w.index(), page);
        Ok(Held {
            global,
            process,
            thread,
            seen: Seen::new(thread, memory.thread / WORD, page_words, first),
        })
    }

    fn map<W: Worker>(&self, w: &mut W, bytes: u64) -> Result<VirtAddr, Stop> {
        match bytes {
            0 => Ok(VirtAddr(0)),
            _ => w.map(bytes.next_multiple_of(w.page_size()), Prot::ReadWrite),
        }
    }

    /// What page `page` of thread `owner`'s memory holds at first.
    fn first_word(&self, owner: u32, page: u64) -> u64 {
        match self.first {
            First::Zeros => 0,
            First::Words => tag(owner, page, FIRST),
        }
    }

    /// Touches all pages of `owner`'s memory.
    fn touch<W: Worker>(
        &self,
        w: &mut W,
        at: VirtAddr,
        bytes: u64,
        owner: u32,
    ) -> Result<(), Stop> {
        let page_size = w.page_size();
        for page in 0..bytes.div_ceil(page_size) {
            let here = page * page_size;
            let len = (bytes - here).min(page_size);
            let value = self.first_word(owner, page);
            w.use_data(VirtAddr(at.0 + here), len, Use::Store, value)?;
        }
        Ok(())
    }

    /// The loops of one thread, in its window; how many bytes it used.
    fn all_loops<W: Worker>(&self, w: &mut W, held: &mut Held) -> Result<u64, Stop> {
        let start = w.now_ns();
        let mut bytes = 0;
        for number in 0..self.loops.unwrap_or(u32::MAX) {
            if w.read(STOP) != 0 {
                break;
            }
            bytes += self.one_loop(w, held, number)?;
            if self
                .limit_ns
                .is_some_and(|limit| w.now_ns() - start >= limit)
            {
                w.post(STOP, 1);
            }
        }
        Ok(bytes)
    }

    fn one_loop<W: Worker>(&self, w: &mut W, held: &mut Held, number: u32) -> Result<u64, Stop> {
        let memory = &self.memory;
        let pattern = Pattern {
            how: self.how,
            backwards: self.backwards,
            random: self.random,
        };
        let which = (number, u64::from(self.loops.unwrap_or(u32::MAX)));
        let me = (u64::from(w.index()), u64::from(w.threads()));
        let (process, thread) = match self.spaces() {
            Spaces::Shared => ((0, 1), me),
            Spaces::Own => (me, (0, 1)),
        };
        let data = |at, bytes, user| Data {
            at,
            words: bytes / WORD,
            user,
        };
        let global = data(held.global, memory.global, process);
        go(w, &global, &pattern, which, None)?;
        let shared = data(held.process, memory.process, thread);
        go(w, &shared, &pattern, which, None)?;
        let own = data(held.thread, memory.thread, (0, 1));
        go(w, &own, &pattern, which, Some(&mut held.seen))?;
        if memory.locked > 0 {
            let locked = data(held.process, memory.locked, thread);
            let lock = self.spaces() == Spaces::Shared;
            let ticket = if lock { w.claim(TICKET) } else { 0 };
            while lock && w.read(SERVED) != ticket {
                w.compute(LOOK_NS);
            }
            let done = go(w, &locked, &pattern, which, None);
            if lock {
                w.post(SERVED, ticket + 1);
            }
            done?;
        }
        Ok(memory.global + memory.process + memory.locked + memory.thread)
    }
}

/// Memory as one thread sees it.
#[derive(Debug)]
struct Held {
    global: VirtAddr,
    process: VirtAddr,
    thread: VirtAddr,
    seen: Seen,
}

#[cfg(test)]
mod tests;
