//! A policy that stops threads between sampling an entry and using the sample.
//!
//! # Problem
//! Between the moment that a fault samples an entry and its exchange lie a few accesses. A bug that
//! needs another task to do a great deal just there, twice, is found by a random walk once in a
//! million schedules (P58).
//!
//! # Idea
//! The code says where it samples. From there on, for a few steps, the task is likely to stop. It
//! stops until others have made some entries name other pages, which is what its sample may not
//! survive; or for as many steps as others may need, which nobody knows: a length drawn from all
//! orders of magnitude up to that of a run.
//!
//! # Protocol
//! A sample opens a window of the task, and so does each entry of a walk, a shorter one; a run
//! stops in windows of one kind. At each of its steps in the window the task stops with a chance of
//! one in [`STOPS`]. A task that is stopped is not chosen until the changes or the steps drawn have
//! passed, or nobody else can run: then it goes on for a step, in which it answers an interrupt
//! that another waits for, and stays stopped. Other steps are a random walk that stays with the
//! task that runs in all but one of [`STAYS`] steps.

use crate::policy::nth;
use crate::rng::Rng;

/// A part of a task that is worth stops, by the steps it has at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Window {
    /// An entry was read that leads to a table.
    InWalk = 2,
    /// A leaf entry was read, by which the task decides.
    AfterSample = 12,
}

/// In a window, one in so many steps is a stop.
const STOPS: u64 = 4;
/// The most changes of entries that a task stops for.
const CHANGES: u64 = 6;
/// One in so many other steps goes to any task.
const STAYS: u64 = 16;

/// The state of the policy.
#[derive(Debug)]
pub(crate) struct Stops {
    pub(crate) rng: Rng,
    /// The longest stop is two to the power of this, less one.
    longest: u64,
    /// The windows that this run stops in: of both kinds there would be too many.
    kind: Window,
    tasks: Vec<Task>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Task {
    /// Steps left of its window.
    window: u32,
    /// The step until which it is stopped.
    until: u64,
    /// Changes of entries until which it is stopped.
    changes: u64,
    /// The step until which it waits for them: others may wait for it.
    latest: u64,
}

impl Stops {
    pub(crate) fn new(seed: u64, steps: u64) -> Self {
        let mut rng = Rng::new(seed);
        let kind = match rng.below(2) {
            0 => Window::InWalk,
            _ => Window::AfterSample,
        };
        Self {
            rng,
            kind,
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

    /// `task` is about to read what it uses in its next steps.
    pub(crate) fn opens_window(&mut self, task: u32, window: Window) {
        if window == self.kind {
            self.task(task).window = window as u32;
        }
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
            let task = self.task(task_of(cpu));
            if task.until <= step && (task.changes == 0 || task.latest <= step) {
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
        if self.rng.below(STOPS) != 0 {
            return;
        }
        if self.rng.below(2) == 0 {
            let latest = step + (1 << self.longest);
            let changes = 1 + self.rng.below(CHANGES);
            let task = self.task(task);
            (task.changes, task.latest) = (changes, latest);
            return;
        }
        let magnitude = 1 + self.rng.below(self.longest);
        let length = 1 + self.rng.below(1 << magnitude);
        self.task(task).until = step + length;
    }

    /// `task` made an entry name another page, or none.
    pub(crate) fn changed(&mut self, task: u32) {
        for (other, stopped) in self.tasks.iter_mut().enumerate() {
            if other != task as usize {
                stopped.changes = stopped.changes.saturating_sub(1);
            }
        }
    }
}
