//! Scheduling policies: virtual time, or schedules chosen to find races.
//!
//! # Problem
//! Virtual-time order is one schedule of very many, and nearly always a harmless one.
//!
//! # Idea
//! The engine owns every scheduling point, so the same run can be driven by a chooser that picks
//! the next CPU at random (a random walk), by random priorities with a few changes (PCT), by clocks
//! that run unevenly ([`crate::fuzz`]), or by a list of earlier choices (replay).
//!
//! # Protocol
//! Every scheduling point is a *step*, counted from 1. Left alone, a CPU runs until it blocks, and
//! then the lowest-numbered CPU that can run follows. A [`Schedule`] lists only the steps at which
//! the choice was another one, so it is short, and a replay needs nothing else. Where stores are
//! buffered ([`crate::buffer`]), which are held back and when they reach memory are choices, too.
//!
//! # Why it is correct
//! A run is a function of its tasks and its choices: simulated contexts see no clock, address or
//! random number of the host. Hence equal choices give equal runs.
//!
//! # Cost
//! PCT finds a bug that needs `d` ordering constraints among `n` tasks and `k` steps with
//! probability at least 1 / (n k^(d-1)) a run.
//!
//! PCT: Burckhardt, Kothari, Musuvathi, Nagarakatte, "A randomized scheduler with probabilistic
//! guarantees of finding bugs", ASPLOS 2010.

use crate::fuzz::Fuzz;
use crate::model::Ps;
use crate::rng::Rng;
use crate::schedule::{Choice, Plan, Schedule, To};
use crate::stops::{Stops, Window};

/// How the next CPU to run is chosen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The CPU with the lowest clock, ties by number. Costs count.
    #[default]
    VirtualTime,
    /// Any CPU that can run, drawn at each step from this seed. Costs do not count.
    Random(u64),
    /// The CPU whose task has the highest priority; priorities are drawn from `seed` and fall at
    /// `depth - 1` steps drawn from the first `steps`. Costs do not count.
    Pct {
        /// Where priorities and change points are drawn from.
        seed: u64,
        /// Ordering constraints of the bugs looked for; 1 and up.
        depth: u32,
        /// Steps that a run is expected to take: those of an earlier run will do.
        steps: u64,
    },
    /// As [`Policy::Random`], with fewer switches, but for a task that has just sampled an entry
    /// which it is going to exchange: such a task often stops there for up to `steps` steps, or a
    /// few accesses later, while others go on. Costs do not count.
    Samples {
        /// Where choices are drawn from.
        seed: u64,
        /// Steps that a run is expected to take.
        steps: u64,
    },
    /// The CPU with the lowest clock, where clocks advance by costs that are stretched or shrunk,
    /// to between a half and twice, as drawn from this seed. Nobody sees these clocks.
    Time(u64),
    /// The choices of an earlier run. Costs do not count.
    Replay(Schedule),
}

/// When a store reaches memory, in an explored run. In virtual time it does at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Memory {
    /// At once: sequential consistency.
    #[default]
    Sequential,
    /// Later, in the order of the stores of a CPU, which sees its own before: store buffers, as
    /// x86-64 has them (TSO). A replay holds back what its schedule says, whatever is asked for.
    Buffered,
}

/// Steps in a row after which PCT takes a task's priority away: it is waiting in a loop of its own
/// for somebody who may not run.
const PCT_PATIENCE: u64 = 20_000;

/// A CPU that can run, and what it would run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) cpu: u32,
    pub(crate) task: u32,
}

/// The state of an exploring policy.
#[derive(Debug)]
pub(crate) struct Chooser {
    kind: Kind,
    step: u64,
    made: Vec<Choice>,
    /// What becomes of stores, where they are buffered.
    stores: Option<Stores>,
}

#[derive(Debug)]
enum Kind {
    Random(Rng),
    Pct(Pct),
    Samples(Stops),
    Time(Fuzz),
    Replay(Plan),
}

/// Draws which stores are held back, and for how long.
#[derive(Debug)]
struct Stores {
    rng: Rng,
    /// One in so many stores is held back.
    hold: u64,
    /// At one in so many steps a held store reaches memory.
    drain: u64,
}

impl Stores {
    /// Runs differ in how often and how long they hold stores back.
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7473_6f5f_6275_6666);
        let hold = 1 << rng.below(3);
        let drain = 4 << rng.below(4);
        Self { rng, hold, drain }
    }
}

#[derive(Debug)]
struct Pct {
    rng: Rng,
    /// By task; higher runs first. Grows as tasks appear.
    priorities: Vec<u64>,
    /// Steps at which the running task falls, descending.
    changes: Vec<u64>,
    /// The priority that the next task to fall gets.
    floor: u64,
    in_a_row: u64,
    last: u32,
}

impl Chooser {
    /// The chooser of `policy`; `None` in virtual time.
    pub(crate) fn new(policy: &Policy, memory: Memory) -> Option<Self> {
        let (kind, seed) = match policy {
            Policy::VirtualTime => return None,
            Policy::Random(seed) => (Kind::Random(Rng::new(*seed)), *seed),
            Policy::Pct { seed, depth, steps } => {
                (Kind::Pct(Pct::new(*seed, *depth, *steps)), *seed)
            }
            Policy::Samples { seed, steps } => (Kind::Samples(Stops::new(*seed, *steps)), *seed),
            Policy::Time(seed) => (Kind::Time(Fuzz::new(*seed)), *seed),
            Policy::Replay(schedule) => (Kind::Replay(Plan::new(schedule)), 0),
        };
        let buffered = match policy {
            Policy::Replay(schedule) => schedule.holds_stores(),
            _ => memory == Memory::Buffered,
        };
        Some(Self {
            kind,
            step: 0,
            made: Vec::new(),
            stores: buffered.then(|| Stores::new(seed)),
        })
    }

    /// Whether stores are buffered.
    pub(crate) fn buffers(&self) -> bool {
        self.stores.is_some()
    }

    fn made(&mut self, to: To) {
        let step = self.step;
        self.made.push(Choice { step, to });
    }

    /// Whether the store that is about to be made is held back.
    pub(crate) fn holds(&mut self) -> bool {
        let Some(Stores { rng, hold, .. }) = &mut self.stores else {
            return false;
        };
        let holds = match &mut self.kind {
            Kind::Replay(plan) => plan.take(self.step, |to| to == To::Hold).is_some(),
            _ => rng.below(*hold) == 0,
        };
        if holds {
            self.made(To::Hold);
        }
        holds
    }

    /// A CPU of the mask `holding`, which is not empty, whose oldest store reaches memory now.
    pub(crate) fn drains(&mut self, holding: u64) -> Option<u32> {
        let Stores { rng, drain, .. } = self.stores.as_mut()?;
        let has = |cpu: u32| cpu < 64 && holding >> cpu & 1 == 1;
        let drained = match &mut self.kind {
            Kind::Replay(plan) => {
                let to = plan.take(self.step, |to| matches!(to, To::Drain(cpu) if has(cpu)));
                to.and_then(|to| match to {
                    To::Drain(cpu) => Some(cpu),
                    _ => None,
                })
            }
            _ if rng.below(*drain) == 0 => {
                Some(nth(holding, rng.below(u64::from(holding.count_ones()))))
            }
            _ => None,
        };
        if let Some(cpu) = drained {
            self.made(To::Drain(cpu));
        }
        drained
    }

    /// Whether what CPUs do takes time that [`Chooser::pass`] has to know.
    pub(crate) fn keeps_time(&self) -> bool {
        matches!(self.kind, Kind::Time(_))
    }

    /// What the clock of `cpu` says that only [`Chooser::pass`] moves.
    pub(crate) fn now(&mut self, cpu: u32) -> Ps {
        match &mut self.kind {
            Kind::Time(fuzz) => fuzz.now(cpu),
            _ => 0,
        }
    }

    /// `cpu` works for `time`.
    pub(crate) fn pass(&mut self, cpu: u32, time: Ps) {
        if let Kind::Time(fuzz) = &mut self.kind {
            fuzz.pass(cpu, time);
        }
    }

    /// The CPU that runs lets `cpu` go on, `delay` from now.
    pub(crate) fn wakes(&mut self, cpu: u32, delay: Ps) {
        if let Kind::Time(fuzz) = &mut self.kind {
            fuzz.wakes(cpu, delay);
        }
    }

    /// `task` made an entry name another page, or none.
    pub(crate) fn entry_changed(&mut self, task: u32) {
        if let Kind::Samples(stops) = &mut self.kind {
            stops.changed(task);
        }
    }

    /// What `task` does in the next steps is worth a stop.
    pub(crate) fn opens_window(&mut self, task: u32, window: Window) {
        if let Kind::Samples(stops) = &mut self.kind {
            stops.opens_window(task, window);
        }
    }

    /// Chooses among the CPUs of the mask `ready`, which is not empty. `me` is the CPU that runs,
    /// if it can go on; `task_of` tells what a CPU would run.
    pub(crate) fn choose(
        &mut self,
        me: Option<u32>,
        ready: u64,
        task_of: impl Fn(u32) -> u32,
    ) -> u32 {
        self.step += 1;
        let usual = me.unwrap_or_else(|| ready.trailing_zeros());
        let chosen = match &mut self.kind {
            Kind::Random(rng) => match ready.count_ones() {
                1 => ready.trailing_zeros(),
                n => nth(ready, rng.below(u64::from(n))),
            },
            Kind::Pct(pct) => pct.choose(me, self.step, ready, task_of),
            Kind::Samples(stops) => stops.choose(me, self.step, ready, task_of),
            Kind::Time(fuzz) => fuzz.choose(me, ready),
            Kind::Replay(plan) => match plan.take(self.step, |to| matches!(to, To::Cpu(_))) {
                Some(To::Cpu(cpu)) if cpu < 64 && ready >> cpu & 1 == 1 => cpu,
                _ => usual,
            },
        };
        if chosen != usual {
            self.made(To::Cpu(chosen));
        }
        chosen
    }

    /// Whether task `running`, at the end of a possible time slice, makes way for `waiting`.
    pub(crate) fn slice_ends(&mut self, running: u32, waiting: u32) -> bool {
        self.step += 1;
        let ends = match &mut self.kind {
            Kind::Random(rng) | Kind::Samples(Stops { rng, .. }) => rng.below(4) == 0,
            Kind::Pct(pct) => pct.priority(waiting) > pct.priority(running),
            Kind::Time(fuzz) => fuzz.slice_ends(),
            Kind::Replay(plan) => plan.take(self.step, |to| to == To::NextTask).is_some(),
        };
        if ends {
            self.made(To::NextTask);
        }
        ends
    }

    /// Steps taken.
    pub(crate) fn steps(&self) -> u64 {
        self.step
    }

    /// The choices made.
    pub(crate) fn into_schedule(self) -> Schedule {
        Schedule(self.made)
    }
}

impl Pct {
    fn new(seed: u64, depth: u32, steps: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut changes: Vec<u64> = (1..depth.max(1))
            .map(|_| 1 + rng.below(steps.max(1)))
            .collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        let floor = u64::MAX / 2;
        Self {
            rng,
            priorities: Vec::new(),
            changes,
            floor,
            in_a_row: 0,
            last: 0,
        }
    }

    fn priority(&mut self, task: u32) -> u64 {
        let task = task as usize;
        while self.priorities.len() <= task {
            // Above every floor; equal ones are as good as never drawn.
            self.priorities.push(self.rng.draw() | 1 << 63);
        }
        self.priorities[task]
    }

    fn choose(
        &mut self,
        me: Option<u32>,
        step: u64,
        ready: u64,
        task_of: impl Fn(u32) -> u32,
    ) -> u32 {
        if let Some(cpu) = me {
            let task = task_of(cpu);
            self.in_a_row = if task == self.last {
                self.in_a_row + 1
            } else {
                0
            };
            self.last = task;
            let mut falls = self.in_a_row >= PCT_PATIENCE;
            while self.changes.last().is_some_and(|at| *at <= step) {
                self.changes.pop();
                falls = true;
            }
            if falls {
                self.in_a_row = 0;
                self.floor -= 1;
                let _ = self.priority(task);
                self.priorities[task as usize] = self.floor;
            }
        }
        let mut best: Option<(u64, Candidate)> = None;
        let mut rest = ready;
        while rest != 0 {
            let cpu = rest.trailing_zeros();
            rest &= rest - 1;
            let candidate = Candidate {
                cpu,
                task: task_of(cpu),
            };
            let priority = self.priority(candidate.task);
            if best.is_none_or(|(highest, _)| priority > highest) {
                best = Some((priority, candidate));
            }
        }
        best.map_or(0, |(_, candidate)| candidate.cpu)
    }
}

/// The number of the `n`th bit set in `mask`, which has more than `n`.
pub(crate) fn nth(mut mask: u64, n: u64) -> u32 {
    for _ in 0..n {
        mask &= mask - 1;
    }
    mask.trailing_zeros()
}
