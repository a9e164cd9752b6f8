//! Waiting and being woken: lines that change, sleepers, time slices, interrupts.

use super::arbitration::Asking;
use super::{Core, Order, Spin, State};
use crate::lines::LineId;
use crate::model::Ps;
use crate::trace::Event;
use crate::why::Cause;
use minflt_sync::{CpuMask, Kind};

impl Core {
    /// A word in `line` was changed by `task`: spinners whose wait may be over look again. `sure`:
    /// the change has been made, so that it is known whose wait is over.
    pub(crate) fn changed(&mut self, task: u32, line: LineId, sure: bool) {
        if self.spinners.is_empty() {
            return;
        }
        if self.is_virtual() {
            self.spinners_ask(line, self.clock_of(task));
            return;
        }
        let head = self.lines.line(line).spinners;
        let mut list = self.spinners.take(head);
        list.retain(|one| {
            let over = !sure || one.looks.is_none_or(|it| self.spinners.watch(it).is_over());
            if over {
                self.tasks[one.task as usize].state = State::Looking;
                self.make_ready(one.cpu, 0);
            }
            !over
        });
        self.lines.line(line).spinners = self.spinners.put(head, list);
    }

    fn list(&mut self, task: u32, spin: Spin) {
        let cpu = self.tasks[task as usize].cpu;
        let one = Asking {
            task,
            cpu,
            die: self.model.places[cpu as usize].die as u16,
            at: 0,
            kind: Kind::Load,
            looks: Some(self.spinners.watched(spin.watch())),
        };
        let head = &mut self.lines.line(spin.line).spinners;
        self.spinners.push(head, one);
    }

    /// `task` has seen the wrong value and waits for its line to change.
    pub(crate) fn spin(&mut self, task: u32, spin: Spin) {
        self.list(task, spin);
        let entry = &mut self.tasks[task as usize];
        entry.state = State::Spinning;
        entry.spin = Some(spin);
        let cpu = entry.cpu;
        self.spins_on(cpu, spin.irqs_on);
    }

    /// The task of `cpu` has nothing to do but to wait, and perhaps to take an interrupt.
    pub(super) fn spins_on(&mut self, cpu: u32, irqs_on: bool) {
        match self.cpus[cpu as usize].interrupt {
            Some(at) if irqs_on => self.make_ready(cpu, at),
            _ => self.not_ready(cpu),
        }
    }

    /// `task`'s CPU was chosen: whether `task` goes on, or spins on because what it looks at was
    /// changed back meanwhile.
    pub(super) fn goes_on(&mut self, task: u32) -> bool {
        let entry = &mut self.tasks[task as usize];
        match entry.state {
            State::Asking => {
                let asks = entry.asks;
                let has_it = asks.is_none_or(|line| self.arbitrate(task, line));
                return has_it && self.carry_on(task);
            }
            State::Granted => {
                entry.state = State::Running;
                return self.carry_on(task);
            }
            State::Running if entry.carried.is_some() => return self.carry_on(task),
            _ => {}
        }
        let (state, cpu) = (entry.state, entry.cpu);
        let Some(spin) = entry.spin else { return true };
        if state == State::Spinning && self.asks_to_look(task, cpu, spin.line) {
            return self.arbitrate(task, spin.line);
        }
        let interrupted = spin.irqs_on && self.cpus[cpu as usize].interrupt.is_some();
        let looks = state == State::Looking;
        if looks && !self.is_virtual() && !interrupted && !spin.is_over() {
            self.spin(task, spin);
            return false;
        }
        let entry = &mut self.tasks[task as usize];
        entry.state = State::Running;
        entry.spin = None;
        if state == State::Spinning {
            let head = &mut self.lines.line(spin.line).spinners;
            self.spinners.remove(head, task);
        }
        self.spun(task, spin);
        self.carries(task, spin);
        self.carry_on(task)
    }

    /// Takes `task`'s wake token; whether there was one.
    pub(crate) fn take_token(&mut self, task: u32) -> bool {
        core::mem::replace(&mut self.tasks[task as usize].token, false)
    }

    /// `task` sleeps.
    pub(crate) fn park(&mut self, task: u32) {
        self.account(task);
        self.record(task, || Event::Sleeps);
        self.sleeps_from_now(task);
        self.tasks[task as usize].state = State::Parked;
        if task < self.bodies {
            self.switches += 1;
            self.sleeps += 1;
        }
        self.recheck(self.tasks[task as usize].cpu);
    }

    /// `task`, which has done nothing, starts `after` the run did; whether it has to wait for that.
    pub(crate) fn start_at(&mut self, task: u32, after: Ps) -> bool {
        let time = self.started + after;
        if !self.is_virtual() || self.clock_of(task) >= time {
            return false;
        }
        self.account(task);
        let entry = &mut self.tasks[task as usize];
        entry.state = State::Queued;
        entry.ready_at = time;
        let cpu = entry.cpu;
        self.waiting[cpu as usize].push_back(task);
        self.recheck(cpu);
        true
    }

    /// The body of `task` has ended.
    pub(crate) fn finish(&mut self, task: u32) {
        self.account(task);
        self.record(task, || Event::Ends);
        self.ended(task);
        self.end = self.end.max(self.clock_of(task));
        self.tasks[task as usize].state = State::Done;
        self.recheck(self.tasks[task as usize].cpu);
    }

    /// At the end of a user-mode stretch: whether `task` made way for another one of its CPU.
    pub(crate) fn slice_ends(&mut self, task: u32) -> bool {
        let at = self.tasks[task as usize].cpu;
        let cpu = &self.cpus[at as usize];
        let Some(waiting) = self.waiting[at as usize].front().copied() else {
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
            self.waiting[at as usize].push_back(task);
            self.recheck(at);
        }
        ends
    }

    /// How much of its time slice is left to `task`.
    pub(crate) fn slice_left(&self, task: u32) -> Ps {
        let at = self.tasks[task as usize].cpu as usize;
        let cpu = &self.cpus[at];
        if self.waiting[at].is_empty() {
            Ps::MAX
        } else if !self.is_virtual() {
            self.model.slice
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
            self.spent(task, Cause::Send);
            let way = self.model.ipi_delay(from, cpu);
            let idles = self.idles(cpu);
            let way = if idles {
                way.max(self.model.idle_exit())
            } else {
                way
            };
            let at = self.clock_of(task) + way;
            let entry = &mut self.cpus[cpu as usize];
            self.interrupted += u32::from(entry.interrupt.is_none());
            let at = entry.interrupt.map_or(at, |earlier| earlier.min(at));
            entry.interrupt = Some(at);
            let takes_now = match entry.current {
                // An idle CPU; one whose next task is not ready yet idles until then.
                None => self.next_ready_at(cpu).is_none_or(|ready_at| at < ready_at),
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
