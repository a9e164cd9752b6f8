//! Waking a sleeper: when it runs again, and where.
//!
//! In virtual time a task that is woken goes back to its CPU if that idles; else to a CPU that
//! does, of the same last cache: one whose core idles if there is one. If none idles it queues
//! behind the task that has its CPU. Explored schedules have no need for it: who runs when is what
//! they choose.
//!
//! An idle CPU is woken by an interrupt, and switches to the task: so an interrupt for something
//! else takes it as long as a wake-up, but for the switch. One that is being woken already takes
//! interrupts as soon as one that runs: it counts as awake.
//!
//! A task that is queued or preempted stays where it is, as nobody balances the load of CPUs here.
//!
//! Linux: kernel/sched/fair.c, select_idle_sibling with select_idle_core and select_idle_cpu
//! (v4.13), without its limit on how far it looks.

use super::{Core, State};
use crate::model::Distance;
use crate::trace::Event;

impl Core {
    /// `task` leaves a wake token for `other`.
    pub(crate) fn unpark(&mut self, task: u32, other: u32) {
        let now = self.clock_of(task);
        self.record(task, || Event::Wakes(other + 1));
        let entry = &mut self.tasks[other as usize];
        entry.token = true;
        if entry.state == State::Parked {
            entry.state = State::Queued;
            entry.ready_at = now + self.model.wake;
            let (from, due) = (entry.cpu, entry.ready_at);
            let at = if other < self.bodies && self.is_virtual() {
                self.place(from)
            } else {
                from
            };
            self.tasks[other as usize].cpu = at;
            self.waiting[at as usize].push_back(other);
            if self.cpus[at as usize].current.is_none() {
                self.make_ready(at, due);
            }
        }
    }

    /// The CPU for a task that is woken and ran on CPU `from` last.
    fn place(&self, from: u32) -> u32 {
        if self.idles(from) {
            return from;
        }
        // From the next CPU on, so that not all look at the same ones first.
        let die = self.model.within(from, Distance::Die);
        let end = die.end.min(self.cpus.len() as u32);
        let may = |cpu: &u32| self.allowed[*cpu as usize] && self.idles(*cpu);
        let idle = || (from..end).chain(die.start..from).filter(may);
        let core_idles = |cpu: &u32| self.model.siblings(*cpu).all(|other| self.idles(other));
        let core = idle().find(core_idles);
        core.or_else(|| idle().next()).unwrap_or(from)
    }

    /// Whether `cpu` has no task: at most an interrupt to take.
    pub(super) fn idles(&self, cpu: u32) -> bool {
        let at = cpu as usize;
        let runs = self.cpus[at].current.is_some_and(|task| task < self.bodies);
        !runs && self.waiting[at].is_empty()
    }
}
