//! The scheduler: CPUs, tasks, run queues and waits.
//!
//! # Problem
//! Hundreds of CPUs run at once in virtual time, on one thread of the host, and the order in which
//! they touch a line decides what it costs; in an exploration, the order is what is searched.
//!
//! # Idea
//! A task is a context that can be set aside anywhere; a CPU is a clock and a queue of tasks.
//! Before each access the running CPU asks whether it is its turn. In virtual time that is the CPU
//! with the lowest clock (ties: the lowest number); otherwise a [`Chooser`] decides.
//!
//! # Protocol
//! ```text
//! task   Queued -> Running -> Spinning -> Looking -> Running (or Spinning again): keeps its CPU
//!                  Running -> Asking -> Granted -> Running: it waits for a line (queue.rs)
//!                  Spinning -> ... -> Running, with the lock it waited for (carry.rs)
//!                  Running -> Parked   -> Queued: gives it up
//!                  Running -> Done
//! CPU    ready: its current task can go on, or it has none and one is queued, or an interrupt is
//!        pending for it while it idles or spins with interrupts on
//! ```
//! Within the kernel a CPU changes tasks only where one sleeps, and a task changes CPUs only where
//! it is woken ([`wake`]), in virtual time; so what belongs to a CPU is safe between sleeps.
//!
//! A CPU may run up to 5,000 cycles ahead of the lowest clock as long as it touches lines that no
//! other CPU has ever touched: nobody can see the difference. On a line it merely owns that would
//! be wrong, for the owner of a contended line would never let go of it.
//!
//! # Why it is correct
//! One simulated context runs at a time, and nothing here depends on the host. A spinner is put on
//! its line's list in the same step in which it saw the wrong value, and whenever it leaves the
//! list it looks once more before it goes back, so it misses no change; wake tokens are sticky.
//!
//! # Cost
//! In virtual time a heap operation for each change of CPU.

mod arbitration;
mod bits;
mod carry;
mod dispatch;
mod entries;
mod hooks;
mod node;
mod queue;
mod spinners;
mod task;
mod time;
mod waits;
mod wake;

use crate::buffer::Buffers;
use crate::lines::{Ask, LineId, Lines, NOBODY};
use crate::model::{Model, Ps};
use crate::policy::Chooser;
use crate::report::Outcome;
use crate::rng::Rng;
use crate::trace::{Event, Step};
use crate::why::Ledger;
use arbitration::Queue;
use core::cmp::Reverse;
use entries::Entries;
use minflt_sync::Kind;
use spinners::Spinners;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use task::Cpu;
pub(crate) use task::{Handed, Peek, Spin, State, Task};

/// In what order CPUs run.
#[derive(Debug)]
pub(crate) enum Order {
    Virtual(BinaryHeap<Reverse<(Ps, u32)>>),
    /// The mask of CPUs that can run, and the one chosen to run next.
    Explored {
        chooser: Chooser,
        ready: u64,
        next: Option<u32>,
    },
}

/// What the running context does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Go,
    /// Another CPU runs first.
    Switch,
    /// An interrupt is pending and due.
    Interrupt,
    /// The run is over.
    Stop,
}

/// Whether a CPU may be ahead of the lowest clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ahead {
    Never,
    /// A little, as long as no other CPU has ever touched this line.
    OnLine(LineId),
    /// A little: in user mode.
    Always,
}

/// All state of one run that is not a coroutine.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) model: Arc<Model>,
    pub(crate) lines: Lines,
    pub(crate) buffers: Buffers,
    cpus: Vec<Cpu>,
    /// Tasks that wait for each CPU.
    waiting: Vec<VecDeque<u32>>,
    /// The CPUs that tasks with a body may run on: those that some began on.
    allowed: Vec<bool>,
    pub(crate) tasks: Vec<Task>,
    /// Tasks with a body; behind them in `tasks` comes the idle task of each CPU.
    pub(crate) bodies: u32,
    pub(crate) order: Order,
    /// In virtual time, who runs next where the last one to run has put itself in its place.
    next: Option<(Ps, u32)>,
    /// Who spins on which line.
    spinners: Spinners,
    /// CPUs with a pending interrupt.
    interrupted: u32,
    queues: Vec<Queue>,
    free_queues: Vec<u32>,
    /// For arbitration.
    random: Rng,
    /// The nodes' memories, and how busy they are.
    nodes: Vec<node::NodeMemory>,
    /// Until when a broadcast is under way.
    broadcasting: Ps,
    /// Until when a process is being started, as far as no two can be.
    starting: Ps,
    pub(crate) started: Ps,
    pub(crate) end: Ps,
    pub(crate) events: u64,
    pub(crate) max_events: u64,
    pub(crate) switches: u64,
    /// Switches because a task went to sleep.
    pub(crate) sleeps: u64,
    pub(crate) interrupts: u64,
    pub(crate) hash: u64,
    pub(crate) outcome: Option<Outcome>,
    /// How often entries came to name other pages, in checked runs.
    entries: Entries,
    pub(crate) trace: Option<Vec<Step>>,
    /// The account of where time goes, if it is kept.
    pub(crate) why: Option<Box<Ledger>>,
}

impl Core {
    /// A run of tasks on the CPUs `on`, from time `now` on.
    pub(crate) fn new(
        model: Arc<Model>,
        lines: Lines,
        chooser: Option<Chooser>,
        on: &[u32],
        now: Ps,
    ) -> Self {
        let cpus = model.places.len() as u32;
        let task = |cpu, state| Task::new(cpu, state, now);
        let with_body = on.iter().map(|cpu| task(*cpu, State::Queued));
        let tasks: Vec<Task> = with_body
            .chain((0..cpus).map(|cpu| task(cpu, State::Parked)))
            .collect();
        let order = match chooser {
            None => Order::Virtual(BinaryHeap::new()),
            Some(chooser) => Order::Explored {
                chooser,
                ready: 0,
                next: None,
            },
        };
        let mut allowed = vec![false; cpus as usize];
        for cpu in on {
            allowed[*cpu as usize] = true;
        }
        let cpu = || Cpu::idle(now);
        let mut core = Self {
            cpus: core::iter::repeat_with(cpu).take(cpus as usize).collect(),
            waiting: vec![VecDeque::new(); cpus as usize],
            allowed,
            nodes: vec![node::NodeMemory::idle(now); model.nodes as usize],
            broadcasting: now,
            starting: now,
            model,
            lines,
            buffers: Buffers::default(),
            tasks,
            bodies: on.len() as u32,
            order,
            next: None,
            spinners: Spinners::default(),
            interrupted: 0,
            queues: Vec::new(),
            free_queues: Vec::new(),
            random: Rng::new(0),
            started: now,
            end: now,
            events: 0,
            max_events: u64::MAX,
            switches: 0,
            sleeps: 0,
            interrupts: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            outcome: None,
            entries: Entries::default(),
            trace: None,
            why: None,
        };
        for (task, cpu) in on.iter().enumerate() {
            core.waiting[*cpu as usize].push_back(task as u32);
            core.make_ready(*cpu, now);
        }
        core
    }

    /// Draws what is left to chance from another seed.
    pub(crate) fn seed(&mut self, seed: u64) {
        self.random = Rng::new(seed);
    }

    /// The task that runs next; `None` when the run is over or nobody can run.
    pub(crate) fn pick(&mut self) -> Option<u32> {
        // Also after the last body has ended: an idle CPU may be in the middle of an interrupt.
        while self.outcome.is_none() {
            let cpu = self.next_cpu()?;
            if let Some(task) = self.dispatch(cpu) {
                return Some(task);
            }
        }
        None
    }

    /// The tasks that have not come to their end: bodies, and idle tasks within an interrupt.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = (u32, &Task)> {
        let ends = |at: u32| {
            if at < self.bodies {
                State::Done
            } else {
                State::Parked
            }
        };
        let tasks = (0..).zip(&self.tasks);
        tasks.filter(move |(at, task)| task.state != ends(*at))
    }

    fn next_cpu(&mut self) -> Option<u32> {
        if !matches!(self.order, Order::Explored { next: Some(_), .. }) {
            self.drain_some();
        }
        match &mut self.order {
            Order::Virtual(heap) => loop {
                let next = self.next.take().map(Reverse);
                let Reverse((due, at)) = next.or_else(|| heap.pop())?;
                let cpu = &mut self.cpus[at as usize];
                if cpu.queued && cpu.due == due {
                    cpu.queued = false;
                    cpu.clock = cpu.clock.max(due);
                    return Some(at);
                }
            },
            Order::Explored {
                chooser,
                ready,
                next,
            } => {
                let chosen = next.take().filter(|cpu| *ready >> cpu & 1 == 1);
                let choose = || {
                    let (cpus, waiting, bodies) = (&self.cpus, &self.waiting, self.bodies);
                    chooser.choose(None, *ready, |cpu| would_run(cpus, waiting, bodies, cpu))
                };
                if *ready == 0 {
                    None
                } else {
                    Some(chosen.unwrap_or_else(choose))
                }
            }
        }
    }

    fn make_ready(&mut self, cpu: u32, due: Ps) {
        match &mut self.order {
            Order::Virtual(heap) => {
                let entry = &mut self.cpus[cpu as usize];
                let due = due.max(entry.clock);
                if !entry.queued || due < entry.due {
                    entry.queued = true;
                    entry.due = due;
                    heap.push(Reverse((due, cpu)));
                }
            }
            Order::Explored { chooser, ready, .. } => {
                if *ready >> cpu & 1 == 0 {
                    chooser.wakes(cpu, due.saturating_sub(self.cpus[cpu as usize].clock));
                }
                *ready |= 1 << cpu;
            }
        }
    }

    fn not_ready(&mut self, cpu: u32) {
        if let Order::Explored { ready, .. } = &mut self.order {
            *ready &= !(1 << cpu);
        }
    }

    /// The task that runs on `cpu`, if one does.
    pub(crate) fn runs_on(&self, cpu: u32) -> Option<u32> {
        self.cpus[cpu as usize].current
    }

    pub(crate) fn clock_of(&self, task: u32) -> Ps {
        self.cpus[self.tasks[task as usize].cpu as usize].clock
    }

    /// Before task `task` does something that others could see: is it its turn?
    pub(crate) fn turn(&mut self, task: u32, ahead: Ahead, irqs_on: bool) -> Turn {
        if self.events >= self.max_events {
            return Turn::Stop;
        }
        let at = self.tasks[task as usize].cpu;
        self.drain_some();
        match &mut self.order {
            Order::Virtual(heap) => {
                while let Some(Reverse((due, cpu))) = heap.peek() {
                    let entry = &self.cpus[*cpu as usize];
                    if entry.queued && entry.due == *due {
                        break;
                    }
                    heap.pop();
                }
                let clock = self.cpus[at as usize].clock;
                if let Some(&Reverse((due, cpu))) = heap.peek()
                    && (due, cpu) < (clock, at)
                {
                    let ahead = match ahead {
                        Ahead::Never => false,
                        Ahead::OnLine(line) => self.lines.is_private(line, at),
                        Ahead::Always => true,
                    };
                    if !ahead || clock - due > self.model.ahead {
                        let me = &mut self.cpus[at as usize];
                        if !me.queued
                            && let Some(mut first) = heap.peek_mut()
                        {
                            (me.queued, me.due) = (true, clock);
                            let Reverse(next) =
                                core::mem::replace(&mut *first, Reverse((clock, at)));
                            self.next = Some(next);
                        } else {
                            self.make_ready(at, clock);
                        }
                        return Turn::Switch;
                    }
                }
            }
            Order::Explored {
                chooser,
                ready,
                next,
            } => {
                let (cpus, waiting, bodies) = (&self.cpus, &self.waiting, self.bodies);
                let chosen = chooser.choose(Some(at), *ready, |cpu| {
                    would_run(cpus, waiting, bodies, cpu)
                });
                if chosen != at {
                    *next = Some(chosen);
                    return Turn::Switch;
                }
            }
        }
        if irqs_on && self.interrupt_is_due(at) {
            Turn::Interrupt
        } else {
            Turn::Go
        }
    }

    /// What a run comes to that does not end.
    pub(crate) fn endless(&self) -> Outcome {
        let max = self.max_events;
        Outcome::Endless(format!("endless: more than {max} accesses"))
    }

    fn interrupt_is_due(&self, cpu: u32) -> bool {
        let cpu = &self.cpus[cpu as usize];
        cpu.interrupt
            .is_some_and(|at| at <= cpu.clock || !self.is_virtual())
    }

    /// Takes the pending interrupt of `task`'s CPU, if it is due.
    pub(crate) fn take_interrupt(&mut self, task: u32) -> bool {
        let cpu = self.tasks[task as usize].cpu;
        let due = self.interrupt_is_due(cpu);
        if due {
            self.cpus[cpu as usize].interrupt = None;
            self.interrupted -= 1;
            self.enter_kernel(task);
            self.pass(task, self.model.ipi_handle);
            self.interrupted(task);
            self.interrupts += 1;
            self.record(task, || Event::Interrupt);
        }
        due
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.order, Order::Virtual(_))
    }

    /// Accounts an access of `task` to `lines` (from the first to the last); whether the caller has
    /// to tell what became of the word.
    pub(crate) fn commit(
        &mut self,
        task: u32,
        lines: core::ops::RangeInclusive<LineId>,
        node: impl Fn(LineId) -> Option<u32>,
        kind: Kind,
    ) -> bool {
        self.events += 1;
        let cpu = self.tasks[task as usize].cpu;
        let mut watched = self.trace.is_some();
        for line in lines {
            let word = (line as u64) << 16 ^ u64::from(task) << 4 ^ kind as u64;
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(23);
            if self.keeps_time() {
                let here = self.model.places[cpu as usize].node;
                let node = node(line).unwrap_or(here);
                let now = match &mut self.order {
                    Order::Virtual(_) => self.cpus[cpu as usize].clock,
                    Order::Explored { chooser, .. } => chooser.now(cpu),
                };
                let ask = Ask {
                    id: line,
                    node,
                    cpu,
                    kind,
                    waited: self.tasks[task as usize].asks.is_some(),
                };
                let done = self.lines.access(&self.model, ask, now);
                self.came(cpu, done);
                let end = self.accessed(task, ask, now, done.end);
                match &mut self.order {
                    Order::Virtual(_) => self.cpus[cpu as usize].clock = end,
                    Order::Explored { chooser, .. } => chooser.pass(cpu, end - now),
                }
            }
            if !self.spinners.is_empty() && kind.writes() {
                if kind == Kind::PlainWrite {
                    self.changed(task, line, false);
                } else {
                    watched |= self.lines.line(line).spinners != NOBODY;
                }
            }
        }
        self.touched(task);
        watched
    }
}

/// What `cpu` would run if it were chosen.
fn would_run(cpus: &[Cpu], waiting: &[VecDeque<u32>], bodies: u32, cpu: u32) -> u32 {
    let at = cpu as usize;
    let next = cpus[at].current.or_else(|| waiting[at].front().copied());
    next.unwrap_or(bodies + cpu)
}
