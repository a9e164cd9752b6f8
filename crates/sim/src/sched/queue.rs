//! The queue of CPUs that wait for a line in transit.
//!
//! # Problem
//! The throughput of a contended line depends on which CPU gets it next: in request order the line
//! crosses the machine each time, nearest-first it stays where it is. Real machines are between the
//! two.
//!
//! # Idea (and `arbitration.rs`)
//! A CPU that requests a line in transit joins its queue. A die's requests meet at its last-level
//! cache, which accepts one at a time, and serves a reader by itself while it has a copy; between
//! the requests accepted by the dies, the machine's arbitration decides. Waiters whose core got the
//! line after their request are served by the same transfer, as a core merges its requests for a
//! line.
//!
//! # Protocol
//! ```text
//! Running  -> Asking -> Granted -> Running    an access
//! Spinning -> Looking -> Running              a spinner's look at a changed line
//!          -> Spinning                        which ends no wait
//! ```
//! A spinner is `Spinning` on its line's list (`spinners.rs`) and while it asks to look.
//! One of a queue, its *head*, is in the heap at the time when somebody can be served, and
//! arbitrates then. A grant is outstanding until the access is committed; meanwhile nobody
//! arbitrates. A look that ends no wait is charged here, and its task is not resumed for it.
//!
//! # Why it is correct
//! A task that is granted does nothing before its access, so the grant ends. While a queue has
//! members and no grant is outstanding, a member is in the heap. Distant CPUs go first often
//! enough, by age or by chance, so none starves; random numbers come from the run's seed.
//!
//! # Cost
//! A pass over the dies that wait, a grant.

use super::arbitration::{Asking, Queue};
use super::spinners::WatchId;
use super::{Core, Order, State};
use crate::lines::{Accessed, LineId};
use crate::model::Ps;
use core::cmp::Reverse;
use core::ops::RangeInclusive;
use minflt_sync::Kind;

impl Core {
    /// Whether `task` has to wait before it accesses `lines`. An access to several lines does not
    /// queue: it starts when each is free.
    pub(crate) fn must_wait(
        &mut self,
        task: u32,
        lines: RangeInclusive<LineId>,
        kind: Kind,
    ) -> bool {
        let (now, cpu) = (self.clock_of(task), self.tasks[task as usize].cpu);
        self.is_virtual()
            && lines.start() == lines.end()
            && !self.is_free(*lines.start())
            && self
                .lines
                .must_wait(&self.model, *lines.start(), cpu, kind, now)
    }

    /// `task` waits for `line`.
    pub(crate) fn ask(&mut self, task: u32, line: LineId, kind: Kind) {
        let (at, entry) = (self.clock_of(task), &mut self.tasks[task as usize]);
        entry.state = State::Asking;
        entry.asks = Some(line);
        let cpu = entry.cpu;
        let one = Asking {
            task,
            cpu,
            die: self.model.places[cpu as usize].die as u16,
            at,
            kind,
            looks: None,
        };
        let (place, opened) = self.open(line);
        let shares = || self.lines.die_shares(&self.model, line, cpu);
        self.queues[place].join(one, shares);
        if let Some(busy) = opened {
            self.make_ready(cpu, busy.max(at));
        }
    }

    /// The queue of a line; where there was none yet, also until when the line moves.
    fn open(&mut self, line: LineId) -> (usize, Option<Ps>) {
        let found = self.lines.line(line);
        if found.queue != 0 {
            return (found.queue as usize - 1, None);
        }
        let place = self.free_queues.pop().unwrap_or_else(|| {
            self.queues.push(Queue::default());
            self.queues.len() as u32 - 1
        });
        found.queue = place + 1;
        (place as usize, Some(found.busy))
    }

    /// All spinners on `line` recheck it, from `now` on, the latest first.
    pub(super) fn spinners_ask(&mut self, line: LineId, now: Ps) {
        let head = self.lines.line(line).spinners;
        let mut list = self.spinners.take(head);
        let Some(first) = list.last().map(|one| one.cpu) else {
            return;
        };
        let (place, opened) = self.open(line);
        let (queue, lines) = (&mut self.queues[place], &self.lines);
        for mut one in list.drain(..).rev() {
            one.at = now;
            queue.join(one, || lines.die_shares(&self.model, line, one.cpu));
        }
        self.lines.line(line).spinners = self.spinners.put(head, list);
        if let Some(busy) = opened {
            self.make_ready(first, busy.max(now));
        }
    }

    /// Whether `task` of `cpu`, which spins on `line`, waits there to look at it again.
    pub(super) fn asks_to_look(&mut self, task: u32, cpu: u32, line: LineId) -> bool {
        let queue = self.lines.line(line).queue as usize;
        let die = self.model.places[cpu as usize].die;
        queue != 0 && self.queues[queue - 1].has(die, task)
    }

    /// `task`, which asks for `line`, was chosen to run: whether it has the line and goes on.
    pub(super) fn arbitrate(&mut self, task: u32, line: LineId) -> bool {
        let cpu = self.tasks[task as usize].cpu;
        let place = self.lines.line(line).queue as usize - 1;
        if self.queues[place].granted.is_some() {
            return false;
        }
        let mut now = self.cpus[cpu as usize].clock;
        let mut until = self.nobody_before();
        loop {
            let (queue, found) = (&mut self.queues[place], self.lines.line(line));
            let chosen = match queue.choose(&self.model, found, &mut self.random, &mut now, until) {
                Ok(chosen) => chosen,
                Err(None) => {
                    self.close(line);
                    return false;
                }
                Err(Some(time)) => {
                    self.head_at(place, time);
                    return false;
                }
            };
            if let Some(watch) = chosen.looks {
                self.look(chosen, watch, line, now);
                until = self.nobody_before();
                continue;
            }
            self.queues[place].granted = Some(now);
            self.tasks[chosen.task as usize].state = State::Granted;
            if chosen.task != task || now > self.cpus[cpu as usize].clock {
                self.make_ready(chosen.cpu, now);
                return false;
            }
            self.tasks[task as usize].state = State::Running;
            return true;
        }
    }

    /// Nobody else runs before that time.
    fn nobody_before(&self) -> Ps {
        match &self.order {
            Order::Virtual(heap) => heap.peek().map_or(Ps::MAX, |Reverse((due, _))| *due),
            Order::Explored { .. } => 0,
        }
    }

    fn head_at(&mut self, place: usize, time: Ps) {
        if let Some(cpu) = self.queues[place].head() {
            self.make_ready(cpu, time);
        }
    }

    fn close(&mut self, line: LineId) {
        let queue = core::mem::take(&mut self.lines.line(line).queue);
        self.queues[queue as usize - 1].close();
        self.free_queues.push(queue - 1);
    }

    /// A spinner looks at its line at time `now`.
    fn look(&mut self, one: Asking, watch: WatchId, line: LineId, now: Ps) {
        let shares = self.lines.die_shares(&self.model, line, one.cpu);
        let done = self.lines.look(&self.model, line, one.cpu, shares, now);
        self.came(one.cpu, done);
        let mut end = done.end;
        if self.is_free(line) {
            end = now + self.model.hit;
            self.lines.line(line).is_free_at(now);
        }
        self.events += 1;
        let cpu = &mut self.cpus[one.cpu as usize];
        cpu.clock = cpu.clock.max(end);
        let watch = self.spinners.watch(watch);
        if watch.is_over() || watch.irqs_on && cpu.interrupt.is_some_and(|at| at <= end) {
            self.tasks[one.task as usize].state = State::Looking;
            self.make_ready(one.cpu, end);
        } else {
            self.looked_in_vain(one, line, end);
        }
    }

    /// Where one spinner looked in vain at time `now`, the others of its die do so as well, without
    /// an event each: those for whom nothing has changed. Who still waits there would have come in
    /// the middle of them.
    fn looked_in_vain(&mut self, one: Asking, line: LineId, now: Ps) {
        let found = self.lines.line(line);
        let (list, watches) = self.spinners.list(&mut found.spinners);
        let from = list.len();
        list.push(one);
        if found.owned_by().is_none() {
            let (any, cpus) = (self.interrupted > 0, &self.cpus);
            let interrupted =
                |cpu: u32| any && cpus[cpu as usize].interrupt.is_some_and(|at| at <= now);
            let vain = |one: &Asking| {
                let Some(it) = one.looks.map(|it| it.of(watches)) else {
                    return false;
                };
                !(it.is_over() || it.irqs_on && interrupted(one.cpu))
            };
            let queue = &mut self.queues[found.queue as usize - 1];
            queue.look_in_vain(u32::from(one.die), self.model.serve, vain, list);
            let others = &list[from + 1..];
            self.events += others.len() as u64;
            self.lines.share_too(line, others.iter().map(|one| one.cpu));
        }
        if self.interrupted > 0 {
            let head = self.lines.line(line).spinners;
            let list = self.spinners.take(head);
            for one in &list[from..] {
                let irqs_on = one.looks.is_some_and(|it| self.spinners.watch(it).irqs_on);
                self.spins_on(one.cpu, irqs_on);
            }
            self.lines.line(line).spinners = self.spinners.put(head, list);
        }
    }

    /// CPU `cpu` has touched a line: what those who wait for it see of that.
    #[inline]
    pub(super) fn came(&mut self, cpu: u32, done: Accessed) {
        if done.queue != 0 {
            self.queues[done.queue as usize - 1].sees(&self.model, cpu, done.came);
        }
    }

    /// `task` has touched the line it asked for: the next one's turn.
    pub(super) fn touched(&mut self, task: u32) {
        let Some(line) = self.tasks[task as usize].asks.take() else {
            return;
        };
        let place = self.lines.line(line).queue as usize - 1;
        let granted = self.queues[place].granted.take();
        if self.queues[place].is_empty() {
            self.close(line);
        } else {
            self.head_at(place, granted.unwrap_or(0));
        }
    }
}
