//! Waiting and being woken: lines that change, sleepers, time slices, interrupts.

use super::{Core, Order, Spin, State};
use crate::lines::{LineId, NOBODY};
use crate::model::Ps;
use crate::trace::Event;
use minflt_sync::CpuMask;

impl Core {
    /// A word in `line` was changed by `task`: whoever spins on the line looks again.
    pub(crate) fn changed(&mut self, task: u32, line: LineId) {
        if self.spinners == 0 {
            return;
        }
        let (now, serve) = (self.clock_of(task), self.model.serve);
        let mut next = core::mem::replace(&mut self.lines.line(line).spinners, NOBODY);
        // The list begins with the last to come, who is served last.
        let mut before = self.listed(next);
        while next != NOBODY {
            let spinner = &mut self.tasks[next as usize - 1];
            next = spinner.next_spinner;
            spinner.next_spinner = NOBODY;
            spinner.spin = None;
            spinner.state = State::Running;
            self.spinners -= 1;
            let cpu = spinner.cpu;
            before -= 1;
            self.make_ready(cpu, now + before * serve);
        }
    }

    /// How many tasks are in the list of spinners that begins with `first`.
    fn listed(&self, first: u32) -> u64 {
        let mut next = first;
        let mut count = 0;
        while next != NOBODY {
            next = self.tasks[next as usize - 1].next_spinner;
            count += 1;
        }
        count
    }

    /// `task` has seen the wrong value and waits for its line to change.
    pub(crate) fn spin(&mut self, task: u32, spin: Spin) {
        let cpu = self.tasks[task as usize].cpu;
        let head = &mut self.lines.line(spin.line).spinners;
        let entry = &mut self.tasks[task as usize];
        entry.next_spinner = core::mem::replace(head, task + 1);
        entry.state = State::Spinning;
        entry.spin = Some(spin);
        self.spinners += 1;
        match self.cpus[cpu as usize].interrupt {
            Some(at) if spin.irqs_on => self.make_ready(cpu, at),
            _ => self.not_ready(cpu),
        }
    }

    /// An interrupt gets `task` out of its wait.
    pub(super) fn stop_spinning(&mut self, task: u32) {
        let entry = &mut self.tasks[task as usize];
        let (next, me) = (
            core::mem::replace(&mut entry.next_spinner, NOBODY),
            task + 1,
        );
        entry.state = State::Running;
        let Some(spin) = entry.spin.take() else {
            return;
        };
        self.spinners -= 1;
        let head = &mut self.lines.line(spin.line).spinners;
        if *head == me {
            *head = next;
            return;
        }
        let mut at = *head;
        while at != NOBODY {
            let before = &mut self.tasks[at as usize - 1];
            if before.next_spinner == me {
                before.next_spinner = next;
            }
            at = before.next_spinner;
        }
    }

    /// Takes `task`'s wake token; whether there was one.
    pub(crate) fn take_token(&mut self, task: u32) -> bool {
        core::mem::replace(&mut self.tasks[task as usize].token, false)
    }

    /// `task` sleeps.
    pub(crate) fn park(&mut self, task: u32) {
        self.account(task);
        self.record(task, || Event::Sleeps);
        self.tasks[task as usize].state = State::Parked;
        if task < self.bodies {
            self.switches += 1;
        }
        self.recheck(self.tasks[task as usize].cpu);
    }

    /// `task` leaves a wake token for `other`.
    pub(crate) fn unpark(&mut self, task: u32, other: u32) {
        let now = self.clock_of(task);
        self.record(task, || Event::Wakes(other + 1));
        let entry = &mut self.tasks[other as usize];
        entry.token = true;
        if entry.state == State::Parked {
            entry.state = State::Queued;
            entry.ready_at = now + self.model.wake;
            let (at, due) = (entry.cpu, entry.ready_at);
            let cpu = &mut self.cpus[at as usize];
            cpu.queue.push_back(other);
            if cpu.current.is_none() {
                self.make_ready(at, due);
            }
        }
    }

    /// The body of `task` has ended.
    pub(crate) fn finish(&mut self, task: u32) {
        self.account(task);
        self.record(task, || Event::Ends);
        self.end = self.end.max(self.clock_of(task));
        self.tasks[task as usize].state = State::Done;
        self.live -= 1;
        self.recheck(self.tasks[task as usize].cpu);
    }

    /// At the end of a user-mode stretch: whether `task` made way for another one of its CPU.
    pub(crate) fn slice_ends(&mut self, task: u32) -> bool {
        let at = self.tasks[task as usize].cpu;
        let cpu = &self.cpus[at as usize];
        let Some(waiting) = cpu.queue.front().copied() else {
            return false;
        };
        let ends = match &mut self.order {
            Order::Virtual(_) => {
                cpu.clock >= cpu.slice_end && self.tasks[waiting as usize].ready_at <= cpu.clock
            }
            Order::Explored { chooser, .. } => chooser.slice_ends(task, waiting),
        };
        if ends {
            self.account(task);
            self.switches += 1;
            let clock = self.cpus[at as usize].clock;
            let entry = &mut self.tasks[task as usize];
            entry.state = State::Queued;
            entry.ready_at = clock;
            self.cpus[at as usize].queue.push_back(task);
            self.recheck(at);
        }
        ends
    }

    /// How much of its time slice is left to `task`.
    pub(crate) fn slice_left(&self, task: u32) -> Ps {
        let cpu = &self.cpus[self.tasks[task as usize].cpu as usize];
        if cpu.queue.is_empty() {
            Ps::MAX
        } else {
            cpu.slice_end.saturating_sub(cpu.clock)
        }
    }

    /// `task` interrupts the CPUs of `to`.
    pub(crate) fn send_interrupt(&mut self, task: u32, to: &CpuMask) {
        let from = self.tasks[task as usize].cpu;
        self.record(task, || Event::SendsInterrupt(to.iter().collect()));
        let cpus = self.cpus.len() as u32;
        for cpu in to.iter().take_while(|cpu| *cpu < cpus) {
            self.pass(task, self.model.ipi_send);
            let at = self.clock_of(task) + self.model.ipi_delay(from, cpu);
            let entry = &mut self.cpus[cpu as usize];
            let at = entry.interrupt.map_or(at, |earlier| earlier.min(at));
            entry.interrupt = Some(at);
            let takes_now = match entry.current {
                None => entry.queue.is_empty(),
                Some(current) => self.tasks[current as usize]
                    .spin
                    .is_some_and(|spin| spin.irqs_on),
            };
            if takes_now {
                self.make_ready(cpu, at);
            }
        }
    }
}
