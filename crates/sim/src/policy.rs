//! Who runs next: by virtual time, or chosen to find races.
//!
//! # Problem
//! Virtual-time order is one schedule of very many, and nearly always a harmless one.
//!
//! # Idea
//! The engine owns every scheduling point, so the same run can be driven by a chooser that picks
//! the next CPU at random (a random walk), by random priorities with a few changes (PCT), or by a
//! list of earlier choices (replay).
//!
//! # Protocol
//! Every scheduling point is a *step*, counted from 1. Left alone, a CPU runs until it blocks, and
//! then the lowest-numbered CPU that can run follows. A [`Schedule`] lists only the steps at which
//! the choice was another one, so it is short, and a replay needs nothing else.
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

use crate::rng::Rng;
use core::fmt;
use core::str::FromStr;

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
    /// The choices of an earlier run. Costs do not count.
    Replay(Schedule),
}

/// What was chosen at one step, where it was not what would have happened anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The step, counted from 1.
    pub step: u64,
    /// What was chosen.
    pub to: To,
}

/// What a choice can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// This CPU runs next.
    Cpu(u32),
    /// The CPU that runs takes the next task of its queue.
    NextTask,
}

/// The choices of a run; written as `12:1 40:0 55:next`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule(pub Vec<Choice>);

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, choice) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            match choice.to {
                To::Cpu(cpu) => write!(f, "{space}{}:{cpu}", choice.step)?,
                To::NextTask => write!(f, "{space}{}:next", choice.step)?,
            }
        }
        Ok(())
    }
}

/// A schedule that cannot be read: the part that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleError(String);

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is no choice; choices read STEP:CPU or STEP:next, steps rising",
            self.0
        )
    }
}

impl core::error::Error for ScheduleError {}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let mut choices: Vec<Choice> = Vec::new();
        for part in text.split_whitespace() {
            let bad = || ScheduleError(part.to_owned());
            let (step, to) = part.split_once(':').ok_or_else(bad)?;
            let step: u64 = step.parse().map_err(|_| bad())?;
            let to = match to {
                "next" => To::NextTask,
                cpu => To::Cpu(cpu.parse().map_err(|_| bad())?),
            };
            if choices.last().is_some_and(|last| last.step >= step) {
                return Err(bad());
            }
            choices.push(Choice { step, to });
        }
        Ok(Self(choices))
    }
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
}

#[derive(Debug)]
enum Kind {
    Random(Rng),
    Pct(Pct),
    Replay { choices: Vec<Choice>, at: usize },
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
    pub(crate) fn new(policy: &Policy) -> Option<Self> {
        let kind = match policy {
            Policy::VirtualTime => return None,
            Policy::Random(seed) => Kind::Random(Rng::new(*seed)),
            Policy::Pct { seed, depth, steps } => Kind::Pct(Pct::new(*seed, *depth, *steps)),
            Policy::Replay(schedule) => Kind::Replay {
                choices: schedule.0.clone(),
                at: 0,
            },
        };
        Some(Self {
            kind,
            step: 0,
            made: Vec::new(),
        })
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
            Kind::Replay { choices, at } => match planned(choices, at, self.step) {
                Some(To::Cpu(cpu)) if cpu < 64 && ready >> cpu & 1 == 1 => cpu,
                _ => usual,
            },
        };
        if chosen != usual {
            self.made.push(Choice {
                step: self.step,
                to: To::Cpu(chosen),
            });
        }
        chosen
    }

    /// Whether task `running`, at the end of a possible time slice, makes way for `waiting`.
    pub(crate) fn slice_ends(&mut self, running: u32, waiting: u32) -> bool {
        self.step += 1;
        let ends = match &mut self.kind {
            Kind::Random(rng) => rng.below(4) == 0,
            Kind::Pct(pct) => pct.priority(waiting) > pct.priority(running),
            Kind::Replay { choices, at } => planned(choices, at, self.step) == Some(To::NextTask),
        };
        if ends {
            self.made.push(Choice {
                step: self.step,
                to: To::NextTask,
            });
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
fn nth(mut mask: u64, n: u64) -> u32 {
    for _ in 0..n {
        mask &= mask - 1;
    }
    mask.trailing_zeros()
}

fn planned(choices: &[Choice], at: &mut usize, step: u64) -> Option<To> {
    while choices.get(*at).is_some_and(|choice| choice.step < step) {
        *at += 1;
    }
    choices
        .get(*at)
        .filter(|choice| choice.step == step)
        .map(|choice| choice.to)
}

#[cfg(test)]
mod tests {
    use super::{Choice, Schedule, To};

    #[test]
    fn a_schedule_reads_as_it_is_written() {
        let choice = |step, to| Choice { step, to };
        let schedule = Schedule(vec![
            choice(3, To::Cpu(1)),
            choice(9, To::NextTask),
            choice(10, To::Cpu(0)),
        ]);
        assert_eq!(schedule.to_string(), "3:1 9:next 10:0");
        assert_eq!("3:1 9:next 10:0".parse(), Ok(schedule));
        assert!("9:1 3:0".parse::<Schedule>().is_err());
        assert!("9".parse::<Schedule>().is_err());
    }
}
