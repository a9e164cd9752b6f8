//! Dispatch on one CPU: the task at the head of its run queue, or an interrupt handler on its
//! idle task.

use super::{Core, State};
use crate::model::Ps;

impl Core {
    /// Gives `cpu` something to run.
    pub(super) fn dispatch(&mut self, cpu: u32) -> Option<u32> {
        let at = cpu as usize;
        if let Some(task) = self.cpus[at].current {
            return self.goes_on(task).then_some(task);
        }
        let idles = self.waiting[at].is_empty() || self.interrupt_comes_first(cpu);
        if idles && self.cpus[at].interrupt.is_none() {
            self.not_ready(cpu);
            return None;
        }
        let idle = self.bodies + cpu;
        let next = if idles {
            None
        } else {
            self.waiting[at].pop_front()
        };
        let task = next.unwrap_or(idle);
        let (switch, slice) = (self.model.switch, self.model.slice);
        let (cpu, entry) = (&mut self.cpus[at], &mut self.tasks[task as usize]);
        if task != idle {
            cpu.clock = cpu.clock.max(entry.ready_at);
        }
        entry.mark = cpu.clock;
        entry.state = State::Running;
        // An interrupt is taken on whatever ran before.
        if task != idle {
            if cpu.last != task && cpu.last != u32::MAX {
                cpu.clock += switch;
            }
            cpu.last = task;
        }
        cpu.slice_end = cpu.clock + slice;
        cpu.current = Some(task);
        self.runs_from_now(task);
        Some(task)
    }

    /// `cpu` has no task any more: what can it do next?
    pub(super) fn recheck(&mut self, cpu: u32) {
        let entry = &mut self.cpus[cpu as usize];
        entry.current = None;
        let interrupt = entry.interrupt;
        let first = [self.next_ready_at(cpu), interrupt]
            .into_iter()
            .flatten()
            .min();
        match first {
            Some(due) => self.make_ready(cpu, due),
            None => self.not_ready(cpu),
        }
    }

    /// Whether `cpu`, which runs nothing, has an interrupt to take before the task that waits for
    /// it is ready: such a CPU idles. In explored runs there is no such time.
    fn interrupt_comes_first(&self, cpu: u32) -> bool {
        let entry = &self.cpus[cpu as usize];
        let ready_at = self.next_ready_at(cpu).unwrap_or(Ps::MAX);
        let comes = |at| at <= entry.clock && entry.clock < ready_at;
        self.is_virtual() && entry.interrupt.is_some_and(comes)
    }

    /// When the task at the head of `cpu`'s queue is ready.
    pub(super) fn next_ready_at(&self, cpu: u32) -> Option<Ps> {
        let front = self.waiting[cpu as usize].front()?;
        Some(self.tasks[*front as usize].ready_at)
    }
}
