//! Stops between a sample of an entry and what is decided by it.
//!
//! # Problem
//! Between the moment that a fault samples an entry and its exchange lie a few accesses. A bug that
//! needs another task to do a great deal just there, twice, is found by a random walk once in a
//! million schedules (P58).
//!
//! # Idea
//! The code says where it samples. From there on, for a few steps, the task is likely to stop; and
//! it stops for as long as others may need, which nobody knows: a length drawn from all orders of
//! magnitude up to that of a run.
//!
//! # Protocol
//! A sample opens a window of the task. At each of its steps in the window the task stops with a
//! chance of one in [`STOPS`]. A task that is stopped is not chosen until the steps drawn have
//! passed, or nobody else can run. Other steps are a random walk that stays with the task that runs
//! in all but one of [`STAYS`] steps.

use crate::policy::nth;
use crate::rng::Rng;

/// Steps after a sample at which the task may stop.
const WINDOW: u32 = 12;
/// In a window, one in so many steps is a stop.
const STOPS: u64 = 6;
/// One in so many other steps goes to any task.
const STAYS: u64 = 16;

/// The state of the policy.
#[derive(Debug)]
pub(crate) struct Stops {
    pub(crate) rng: Rng,
    /// The longest stop is two to the power of this, less one.
    longest: u64,
    tasks: Vec<Task>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Task {
    /// Steps left of its window.
    window: u32,
    /// The step until which it is stopped.
    until: u64,
}

impl Stops {
    pub(crate) fn new(seed: u64, steps: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            longest: u64::from(steps.max(2).ilog2()) + 1,
            tasks: Vec::new(),
        }
    }

    fn task(&mut self, task: u32) -> &mut Task {
        let task = task as usize;
        if self.tasks.len() <= task {
            self.tasks.resize(task + 1, Task::default());
        }
        &mut self.tasks[task]
    }

    /// `task` is about to sample an entry.
    pub(crate) fn sampled(&mut self, task: u32) {
        self.task(task).window = WINDOW;
    }

    /// As [`crate::policy::Chooser::choose`].
    pub(crate) fn choose(
        &mut self,
        me: Option<u32>,
        step: u64,
        ready: u64,
        task_of: impl Fn(u32) -> u32,
    ) -> u32 {
        if let Some(cpu) = me {
            self.maybe_stop(task_of(cpu), step);
        }
        let mut free = 0;
        let mut rest = ready;
        while rest != 0 {
            let cpu = rest.trailing_zeros();
            rest &= rest - 1;
            if self.task(task_of(cpu)).until <= step {
                free |= 1 << cpu;
            }
        }
        let among = if free == 0 { ready } else { free };
        match me {
            Some(cpu) if among >> cpu & 1 == 1 && self.rng.below(STAYS) != 0 => cpu,
            _ => nth(among, self.rng.below(u64::from(among.count_ones()))),
        }
    }

    fn maybe_stop(&mut self, task: u32, step: u64) {
        if self.task(task).window == 0 {
            return;
        }
        self.task(task).window -= 1;
        if self.rng.below(STOPS) == 0 {
            let magnitude = 1 + self.rng.below(self.longest);
            let length = 1 + self.rng.below(1 << magnitude);
            self.task(task).until = step + length;
        }
    }
}
