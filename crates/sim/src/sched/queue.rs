//! Waiting for a line that moves, and who gets it next.
//!
//! # Problem
//! What a contended line yields depends on who gets it next: served in the order of asking it
//! crosses the machine each time, served to the nearest first it stays where it is. Real machines
//! stand between the two.
//!
//! # Idea
//! Whoever wants a line that is moving joins its queue. A die's requests meet at its last cache,
//! which takes up one at a time, and serves a reader by itself while it has a copy; between those
//! taken up by the dies, the machine's arbitration decides. Waiters whose core got the line after they had
//! asked are served by the same visit, as a core merges its requests for a line.
//!
//! # Protocol
//! ```text
//! Running  -> Asking -> Granted -> Running    an access
//! Spinning -> Asking -> Looking -> Running    a spinner's look at a changed line,
//!                    -> Spinning              which ends no wait
//! ```
//! One of a queue, its *head*, is in the heap at the time when somebody can be served, and
//! arbitrates then. A grant is outstanding until the access is committed; meanwhile nobody
//! arbitrates. A look that ends no wait is charged here, and its task is not resumed for it.
//!
//! # Why it is correct
//! A task that is granted does nothing before its access, so the grant ends. While a queue has
//! members and no grant is outstanding, a member is in the heap. What is not near goes first often
//! enough, by age or by chance, so nobody starves; random numbers come from a fixed seed.
//!
//! # Cost
//! A pass over the dies that wait, a grant.

use super::{Core, Order, State};
use crate::lines::{Ask, LineId, NOBODY};
use crate::machine_file::Arbitration;
use crate::model::{Distance, Ps};
use crate::rng::Rng;
use core::cmp::Reverse;
use core::ops::RangeInclusive;
use minflt_sync::Kind;

/// Those who wait for one line.
#[derive(Debug, Default)]
pub(super) struct Queue {
    dies: Vec<Die>,
    /// A reader that was just served: the others of its core have the line with it.
    read: Option<u32>,
    /// When one of them was given the line that has not yet touched it.
    granted: Option<Ps>,
}

/// Those of one die, in the order of asking; at least one.
#[derive(Debug)]
struct Die {
    die: u32,
    /// When its last cache can serve one more.
    free: Ps,
    /// Whether the first of them was taken up by the cache, which then takes no other.
    taken_up: bool,
    asking: Vec<Asking>,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    task: u32,
    cpu: u32,
    at: Ps,
    kind: Kind,
}

impl Core {
    /// Whether `task` has to wait before it touches `lines`. Several lines at once are not queued
    /// for: who touches them starts when each is free.
    pub(crate) fn must_wait(
        &mut self,
        task: u32,
        lines: RangeInclusive<LineId>,
        kind: Kind,
    ) -> bool {
        let (now, cpu) = (self.clock_of(task), self.tasks[task as usize].cpu);
        self.is_virtual()
            && lines.start() == lines.end()
            && self.lines.must_wait(&self.model, *lines.start(), cpu, kind, now)
    }

    /// `task` waits for `line`.
    pub(crate) fn ask(&mut self, task: u32, line: LineId, kind: Kind) {
        let (at, cpu) = (self.clock_of(task), self.tasks[task as usize].cpu);
        self.join(line, Asking { task, cpu, at, kind });
    }

    fn join(&mut self, line: LineId, asking: Asking) {
        let entry = &mut self.tasks[asking.task as usize];
        entry.state = State::Asking;
        entry.asks = Some(line);
        let die = self.model.places[asking.cpu as usize].die;
        let found = self.lines.line(line);
        let first = found.queue == 0;
        if first {
            let place = self.free_queues.pop().unwrap_or_else(|| {
                self.queues.push(Queue::default());
                self.queues.len() as u32 - 1
            });
            found.queue = place + 1;
        }
        let (place, busy) = (found.queue as usize - 1, found.busy);
        let queue = &mut self.queues[place];
        let at = queue.dies.iter().position(|one| one.die == die);
        let at = at.unwrap_or_else(|| {
            queue.dies.push(Die {
                die,
                free: 0,
                taken_up: false,
                asking: Vec::new(),
            });
            queue.dies.len() - 1
        });
        queue.dies[at].asking.push(asking);
        if first {
            self.make_ready(asking.cpu, busy.max(asking.at));
        }
    }

    /// All who spin on `line` look at it again, from `now` on.
    pub(super) fn spinners_ask(&mut self, line: LineId, now: Ps) {
        let mut next = core::mem::replace(&mut self.lines.line(line).spinners, NOBODY);
        while next != NOBODY {
            let task = next - 1;
            let entry = &mut self.tasks[task as usize];
            next = core::mem::replace(&mut entry.next_spinner, NOBODY);
            let (cpu, kind) = (entry.cpu, Kind::Load);
            self.spinners -= 1;
            self.join(line, Asking { task, cpu, at: now, kind });
        }
    }

    /// `task`, which asks, was chosen to run: whether it has its line and goes on.
    pub(super) fn arbitrate(&mut self, task: u32) -> bool {
        let entry = &self.tasks[task as usize];
        let (Some(line), cpu) = (entry.asks, entry.cpu) else {
            return true;
        };
        let place = self.lines.line(line).queue as usize - 1;
        if self.queues[place].granted.is_some() {
            return false;
        }
        let mut now = self.cpus[cpu as usize].clock;
        loop {
            let chosen = match self.choose(line, place, now) {
                Ok(chosen) => chosen,
                Err(None) => {
                    self.close(line);
                    return false;
                }
                Err(Some(time)) if self.is_next_at(time) => {
                    now = time;
                    continue;
                }
                Err(Some(time)) => {
                    self.head_at(place, time);
                    return false;
                }
            };
            if self.tasks[chosen.task as usize].spin.is_some() {
                self.look(chosen, line, now);
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

    /// Whether nobody runs before `time`.
    fn is_next_at(&self, time: Ps) -> bool {
        match &self.order {
            Order::Virtual(heap) => heap.peek().is_none_or(|Reverse((due, _))| *due > time),
            Order::Explored { .. } => false,
        }
    }

    fn head_at(&mut self, place: usize, time: Ps) {
        if let Some(die) = self.queues[place].dies.first() {
            self.make_ready(die.asking[0].cpu, time);
        }
    }

    fn close(&mut self, line: LineId) {
        let queue = core::mem::take(&mut self.lines.line(line).queue);
        let Queue { read, granted, .. } = &mut self.queues[queue as usize - 1];
        (*read, *granted) = (None, None);
        self.free_queues.push(queue - 1);
    }

    /// Takes the next one out of a line's queue. If nobody can be served at time `now`: when
    /// somebody can, if there is anybody.
    fn choose(&mut self, line: LineId, place: usize, now: Ps) -> Result<Asking, Option<Ps>> {
        let found = *self.lines.line(line);
        let (model, lines) = (&self.model, &self.lines);
        let Queue { dies, read, .. } = &mut self.queues[place];
        let moves = found.busy <= now;
        if let Some(cpu) = read.take()
            && let Some(at) = dies.iter().position(|one| one.die == model.places[cpu as usize].die)
        {
            let reads = |one: &Asking| {
                !one.kind.writes() && model.distance(one.cpu, cpu) == Distance::Core
            };
            if let Some(one) = dies[at].asking.iter().position(reads) {
                *read = Some(cpu);
                return Ok(take(dies, at, one));
            }
        }
        if moves && let Some(owner) = found.owned_by() {
            let home = model.places[owner as usize].die;
            let at = dies.iter().position(|one| one.die == home);
            let merged = at.and_then(|at| {
                let mut asking = dies[at].asking.iter();
                let one = asking.position(|one| found.visits(model, one.cpu, one.at));
                one.map(|one| (at, one))
            });
            if let Some((at, one)) = merged {
                return Ok(take(dies, at, one));
            }
        }
        // Each last cache takes one up: with `fifo` the first in the list, else any.
        let random = &mut self.random;
        for die in dies.iter_mut().filter(|die| !die.taken_up && die.free <= now) {
            if model.arbitration != Arbitration::Fifo {
                let one = random.below(die.asking.len() as u64) as usize;
                die.asking.swap(0, one);
            }
            die.taken_up = true;
        }
        // From when on a die can be served: at once, if its last cache can do it alone.
        let from = |die: &Die| {
            let first = die.asking[0];
            let alone = !die.taken_up
                || !first.kind.writes() && lines.die_shares(model, line, first.cpu);
            if alone { die.free } else { die.free.max(found.busy) }
        };
        let last = model.places[usize::from(found.last)].die;
        let near = || dies.iter().position(|one| one.die == last && from(one) <= now);
        let any = |random: &mut Rng| {
            let start = random.below(dies.len().max(1) as u64) as usize;
            let mut turn = (start..dies.len()).chain(0..start);
            turn.find(|at| from(&dies[*at]) <= now)
        };
        let at = match model.arbitration {
            Arbitration::Fifo => {
                let ready = dies.iter().enumerate().filter(|(_, one)| from(one) <= now);
                ready.min_by_key(|(_, one)| one.asking[0].at).map(|(at, _)| at)
            }
            Arbitration::NearFirst if random.below(1000) < model.near_first_permille => {
                near().or_else(|| any(random))
            }
            Arbitration::NearFirst | Arbitration::Random => any(random),
        };
        let Some(at) = at else {
            return Err(dies.iter().map(from).min());
        };
        let first = dies[at].asking[0];
        if !first.kind.writes() && model.siblings(first.cpu).next().is_some() {
            *read = Some(first.cpu);
        }
        let brings = !first.kind.writes() && !lines.die_shares(model, line, first.cpu);
        dies[at].free = now
            + if brings {
                // A copy for the rest of the die.
                model.transfer(model.distance(first.cpu, u32::from(found.last)))
            } else {
                model.serve
            };
        Ok(take(dies, at, 0))
    }

    /// A spinner looks at its line at time `now`.
    fn look(&mut self, one: Asking, line: LineId, now: Ps) {
        // The line has an owner or sharers: who changed it, at least. Its memory is not asked.
        let ask = Ask {
            id: line,
            node: 0,
            cpu: one.cpu,
            kind: Kind::Load,
            waited: true,
        };
        let end = self.lines.access(&self.model, ask, now);
        self.events += 1;
        let clock = &mut self.cpus[one.cpu as usize].clock;
        *clock = (*clock).max(end);
        let entry = &mut self.tasks[one.task as usize];
        entry.asks = None;
        let Some(spin) = entry.spin else { return };
        let interrupt = self.cpus[one.cpu as usize].interrupt;
        let interrupted = spin.irqs_on && interrupt.is_some_and(|at| at <= end);
        if interrupted || spin.is_over() {
            entry.state = State::Looking;
            self.make_ready(one.cpu, end);
        } else {
            entry.state = State::Spinning;
            self.spinners += 1;
            self.list(one.task, line);
            self.spins_on(one.task, spin);
        }
    }

    /// `task` has touched the line it asked for: the next one's turn.
    pub(super) fn touched(&mut self, task: u32) {
        let Some(line) = self.tasks[task as usize].asks.take() else {
            return;
        };
        let place = self.lines.line(line).queue as usize - 1;
        let granted = self.queues[place].granted.take();
        if self.queues[place].dies.is_empty() {
            self.close(line);
        } else {
            self.head_at(place, granted.unwrap_or(0));
        }
    }
}

/// Takes one of a die out; the die, if it was the last.
fn take(dies: &mut Vec<Die>, at: usize, one: usize) -> Asking {
    let die = &mut dies[at];
    let taken = die.asking.remove(one);
    die.taken_up &= one != 0;
    if die.asking.is_empty() {
        dies.swap_remove(at);
    }
    taken
}
