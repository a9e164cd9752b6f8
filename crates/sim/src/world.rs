//! The state of a run that its contexts share.
//!
//! # Problem
//! Atomics and locks know only a type, and yet each access must reach the run it belongs to, on a
//! host with several runs on several threads.
//!
//! # Idea
//! While a task runs, a thread-local pointer leads to its [`World`] and its context. A run happens
//! on one thread, so the pointer is set before a task is resumed and cleared when the run ends.
//!
//! # Protocol
//! The world's [`Core`] is borrowed for the time of one bookkeeping step, never across a switch and
//! never while foreign code runs (handlers, bodies). To switch, a task suspends itself; the loop in
//! [`crate::run`] picks the next one.
//!
//! # Why it is correct
//! A context that must not go on (a violation, an access budget used up) is suspended and never
//! resumed: nothing of it is dropped, so no guard releases a lock into a world that is over. Only a
//! panicking body unwinds; its locks are released without scheduling points, and what it would wait
//! for is given to it, for the run is lost anyway.
//!
//! # Cost
//! One thread-local load and one borrow an access; two stack switches a change of task.

use crate::buffer::Held;
use crate::here::{self, cx};
use crate::instance::SimInstance;
use crate::model::Ps;
use crate::report::Outcome;
use crate::sched::{Ahead, Core, Order, Peek, State, Turn};
use crate::trace::{Event, Place};
use crate::why::{Cause, Name};
use core::cell::{Cell, RefCell};
use corosensei::Yielder;
use minflt_pgtable::EntryPoint;
use minflt_sync::{Cost, CpuMask, Kind, Ordering, Phase, TaskId};

/// What every task suspends itself with: nothing.
pub(crate) type Suspender = Yielder<(), ()>;

/// One run.
pub(crate) struct World<'a> {
    pub(crate) at: &'a SimInstance,
    pub(crate) core: RefCell<Core>,
    /// The task that runs.
    pub(crate) current: Cell<u32>,
    /// By task; set when its body starts.
    pub(crate) suspenders: Vec<Cell<*const Suspender>>,
    pub(crate) line_shift: u32,
    /// Whether stores may be held back.
    pub(crate) buffers: bool,
    /// Names a place, where time is accounted.
    names: Option<&'a dyn Fn(u64) -> Name>,
    /// How often something waited while a panic unwinds.
    pub(crate) hopeless: Cell<u32>,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        at: &'a SimInstance,
        core: Core,
        names: Option<&'a dyn Fn(u64) -> Name>,
    ) -> Self {
        let tasks = core.tasks.len();
        let buffers = match &core.order {
            Order::Virtual(_) => false,
            Order::Explored { chooser, .. } => chooser.buffers(),
        };
        Self {
            at,
            buffers,
            line_shift: at.model.line_shift,
            core: RefCell::new(core),
            current: Cell::new(0),
            suspenders: vec![Cell::new(core::ptr::null()); tasks],
            names,
            hopeless: Cell::new(0),
        }
    }

    /// `task` is about to be resumed.
    pub(crate) fn resuming(&self, task: u32) {
        self.current.set(task);
        here::set_cx(self.at.cx(task + 1));
        let cpu = self.core.borrow().tasks[task as usize].cpu;
        // SAFETY: as in `irqs_on`: it is the current context now.
        unsafe { &*cx() }.cpu.set(cpu);
    }

    pub(crate) fn suspend(&self) {
        let suspender = self.suspenders[self.current.get() as usize].get();
        // SAFETY: the current task has a suspender from its start on; it lives on the task's stack,
        // which is the one we are on.
        unsafe { &*suspender }.suspend(());
    }

    /// Ends the run with `outcome`; the caller's context stops for ever where it stands.
    pub(crate) fn stop(&self, outcome: Outcome) -> ! {
        if std::thread::panicking() {
            // A second failure while a body unwinds: nothing can go on, not even this thread.
            #[expect(clippy::print_stderr, reason = "last words")]
            {
                eprintln!("minflt-sim: while a body panicked: {outcome}");
            }
            std::process::abort();
        }
        {
            let mut core = self.core.borrow_mut();
            let text = || Event::Stops(outcome.to_string());
            core.record(self.current.get(), text);
            core.outcome.get_or_insert(outcome);
        }
        loop {
            self.suspend();
        }
    }

    pub(crate) fn irqs_on(&self) -> bool {
        // SAFETY: the current context is valid for the instance's life, and only this thread uses
        // it.
        unsafe { &*cx() }.irq_off.get() == 0
    }

    /// A scheduling point.
    pub(crate) fn point(&self, ahead: Ahead) {
        if !std::thread::panicking() {
            let task = self.current.get();
            let turn = self.core.borrow_mut().turn(task, ahead, self.irqs_on());
            self.act_on(turn, ahead);
        }
    }

    /// Does what `turn` says, until it is the current task's turn.
    fn act_on(&self, mut turn: Turn, ahead: Ahead) {
        let task = self.current.get();
        loop {
            match turn {
                Turn::Go => return,
                Turn::Stop => self.endless(),
                Turn::Switch => self.suspend(),
                Turn::Interrupt => {}
            }
            let interrupted = self.take_interrupts();
            let mut core = self.core.borrow_mut();
            if !interrupted && (!core.is_virtual() || turn == Turn::Switch) {
                return;
            }
            turn = core.turn(task, ahead, self.irqs_on());
        }
    }

    fn endless(&self) -> ! {
        let endless = self.core.borrow().endless();
        self.stop(endless)
    }

    /// Takes the interrupts that are due, unless they are off; whether there were any.
    pub(crate) fn take_interrupts(&self) -> bool {
        let task = self.current.get();
        let mut any = false;
        while self.irqs_on()
            && !std::thread::panicking()
            && self.core.borrow_mut().take_interrupt(task)
        {
            any = true;
            self.drain();
            // SAFETY: as in `irqs_on`.
            let cx = unsafe { &*cx() };
            cx.irq_off.set(cx.irq_off.get() + 1);
            if let Some(handler) = self.at.handler() {
                // SAFETY: whoever set the handler promised that it may be called with `arg`, with
                // interrupts off, on the interrupted CPU: so it is.
                unsafe { (handler.call)(handler.arg) };
            }
            cx.irq_off.set(cx.irq_off.get() - 1);
            self.drain();
            self.core.borrow_mut().leave_kernel(task);
        }
        any
    }

    /// Before an access; whether [`World::wrote`] wants to know what became of the word.
    #[inline]
    pub(crate) fn access(&self, at: *const u8, len: usize, kind: Kind) -> bool {
        if len == 0 || std::thread::panicking() {
            return false;
        }
        let Some(offset) = self.at.offset(at as usize, len) else {
            self.outside(len, kind)
        };
        let (first, last) = (
            offset >> self.line_shift,
            (offset + len - 1) >> self.line_shift,
        );
        let task = self.current.get();
        let ahead = if first == last {
            Ahead::OnLine(first)
        } else {
            Ahead::Never
        };
        let node = |line: usize| self.at.node_at(line << self.line_shift);
        let turn = {
            let mut core = self.core.borrow_mut();
            let turn = core.turn(task, ahead, self.irqs_on());
            if turn == Turn::Go && !core.must_wait(task, first..=last, kind) {
                self.trace_access(&mut core, task, offset, len, kind);
                let watched = core.commit(task, first..=last, node, kind);
                self.name_lines(&mut core);
                return watched;
            }
            turn
        };
        self.act_on(turn, ahead);
        let mut core = self.core.borrow_mut();
        if core.must_wait(task, first..=last, kind) {
            core.ask(task, first, kind);
            drop(core);
            // Resumed when the line is this task's, and at once before anybody else.
            self.suspend();
            core = self.core.borrow_mut();
        }
        self.trace_access(&mut core, task, offset, len, kind);
        let watched = core.commit(task, first..=last, node, kind);
        self.name_lines(&mut core);
        watched
    }

    /// Names what was touched for the first time, where time is accounted.
    #[inline]
    fn name_lines(&self, core: &mut Core) {
        let (Some(why), Some(names)) = (&mut core.why, self.names) else {
            return;
        };
        while let Some(offset) = why.next_unnamed() {
            why.name(match self.at.place(offset) {
                Place::Ram(offset) => names(offset),
                Place::Context { task, .. } => Name {
                    object: "task",
                    field: "context",
                    number: u64::from(task),
                    lock: None,
                },
            });
        }
    }

    /// Something becomes of an entry of a table; whether the current task has an old sample of it.
    pub(crate) fn entry_point(&self, at: *const u8, what: EntryPoint) -> bool {
        let task = self.current.get();
        let offset = self.at.offset(at as usize, 1);
        offset.is_some_and(|offset| self.core.borrow_mut().entry_point(task, offset, what))
    }

    /// A remark on what the current task does.
    pub(crate) fn phase(&self, phase: Phase) {
        let sleeps_for = match phase {
            Phase::Sleep(lock) => self.at.offset(lock as usize, 1),
            _ => None,
        };
        let task = self.current.get();
        self.core.borrow_mut().phase(task, phase, sleeps_for);
    }

    fn trace_access(&self, core: &mut Core, task: u32, offset: usize, len: usize, kind: Kind) {
        if let Some(why) = &mut core.why {
            why.is_about(offset);
        }
        core.record(task, || Event::Access {
            kind,
            place: self.at.place(offset),
            len: len as u32,
            old: None,
            new: None,
        });
    }

    #[cold]
    fn outside(&self, len: usize, kind: Kind) -> ! {
        self.stop(Outcome::Violation(format!(
            "shared access outside the machine's RAM: {kind:?} of {len} bytes"
        )))
    }

    /// After an access to a word: it was `old` and is `new`.
    pub(crate) fn wrote(&self, at: *const u8, old: u64, new: u64) {
        let mut core = self.core.borrow_mut();
        if old != new
            && let Some(offset) = self.at.offset(at as usize, 1)
        {
            core.changed(self.current.get(), offset >> self.line_shift, true);
        }
        let step = core.trace.as_mut().and_then(|steps| steps.last_mut());
        if let Some(Event::Access {
            kind,
            old: was,
            new: is,
            ..
        }) = step.map(|s| &mut s.event)
        {
            *was = kind.writes().then_some(old);
            *is = Some(new);
        }
    }

    /// A store of `value` to the word at `at`, just announced: whether it is held back.
    pub(crate) fn holds(&self, at: Peek, value: u64, order: Ordering) -> bool {
        if order == Ordering::SeqCst || std::thread::panicking() {
            self.drain();
            return false;
        }
        let Some(offset) = self.at.offset(at.start(), at.len()) else {
            return false;
        };
        self.core.borrow_mut().hold(Held {
            at,
            value,
            offset,
            place: self.at.place(offset),
            task: self.current.get(),
        })
    }

    /// The word at `at` as the caller sees it, where that is not what memory holds.
    pub(crate) fn held(&self, at: Peek) -> Option<u64> {
        self.as_cpu(|core, cpu| core.held(cpu, at))
    }

    /// The word at `at` becomes `value` where the caller holds it back; whether it does.
    pub(crate) fn poke(&self, at: Peek, value: u64) -> bool {
        self.as_cpu(|core, cpu| core.poke(cpu, at, value))
    }

    fn as_cpu<R>(&self, ask: impl FnOnce(&mut Core, u32) -> R) -> R {
        let mut core = self.core.borrow_mut();
        let cpu = core.tasks[self.current.get() as usize].cpu;
        ask(&mut core, cpu)
    }

    /// What the caller's CPU holds back reaches memory.
    pub(crate) fn drain(&self) {
        if self.buffers {
            self.as_cpu(Core::drain);
        }
    }

    /// The same, if it holds back any of these bytes. Only where stores may be held back.
    pub(crate) fn drain_within(&self, at: *const u8, len: usize) {
        self.as_cpu(|core, cpu| core.drain_within(cpu, at as usize, len));
    }

    pub(crate) fn park(&self) {
        let task = self.current.get();
        self.point(Ahead::Never);
        self.drain();
        if !self.core.borrow_mut().take_token(task) {
            self.core.borrow_mut().park(task);
            self.suspend();
            let _ = self.core.borrow_mut().take_token(task);
        }
        self.take_interrupts();
    }

    /// Takes the running task's wake token, if there is one, and interrupts.
    pub(crate) fn takes_token(&self) -> bool {
        self.point(Ahead::Never);
        self.drain();
        let took = self.core.borrow_mut().take_token(self.current.get());
        self.take_interrupts();
        took
    }

    pub(crate) fn unpark(&self, other: TaskId) {
        self.point(Ahead::Never);
        self.drain();
        self.core
            .borrow_mut()
            .unpark(self.current.get(), other.0 - 1);
    }

    /// Whether `task` has a CPU.
    pub(crate) fn is_running(&self, task: TaskId) -> bool {
        let core = self.core.borrow();
        let entry = task
            .0
            .checked_sub(1)
            .and_then(|at| core.tasks.get(at as usize));
        entry.is_some_and(|entry| {
            matches!(
                entry.state,
                State::Running | State::Spinning | State::Looking | State::Asking | State::Granted
            )
        })
    }

    /// Whether the running context is that of a CPU that has no task.
    pub(crate) fn is_idle(&self) -> bool {
        self.current.get() >= self.core.borrow().bodies
    }

    /// Whether another task waits for the caller's CPU, and the caller's slice is over.
    pub(crate) fn should_yield(&self) -> bool {
        let core = self.core.borrow();
        core.is_virtual() && core.slice_left(self.current.get()) == 0
    }

    /// The time of the caller's CPU; none in an explored run, where no time passes.
    pub(crate) fn clock_ns(&self) -> Option<u64> {
        let core = self.core.borrow();
        core.is_virtual()
            .then(|| core.clock_of(self.current.get()) / 1000)
    }

    pub(crate) fn interrupts_are_on_again(&self) {
        self.take_interrupts();
    }

    pub(crate) fn send_interrupt(&self, to: &CpuMask) {
        self.point(Ahead::Never);
        self.drain();
        self.core
            .borrow_mut()
            .send_interrupt(self.current.get(), to);
        self.take_interrupts();
    }

    pub(crate) fn charge(&self, cost: Cost) {
        let task = self.current.get();
        if matches!(cost, Cost::Clear { .. } | Cost::Copy { .. }) {
            // Requests to a node's memory are served in the order of time.
            self.in_order();
        }
        let mut core = self.core.borrow_mut();
        core.record(task, || Event::Charge(cost));
        core.charge(task, cost);
    }

    /// Lets CPUs with a lower clock go first; takes no interrupt, and is nothing in explored runs.
    pub(crate) fn in_order(&self) {
        if std::thread::panicking() {
            return;
        }
        let task = self.current.get();
        let mut core = self.core.borrow_mut();
        if core.is_virtual() && core.turn(task, Ahead::Never, false) == Turn::Switch {
            drop(core);
            self.suspend();
        }
    }

    /// Before an access in user mode.
    pub(crate) fn user_access(&self) {
        let task = self.current.get();
        let hit = self.at.model.hit;
        self.core.borrow_mut().pass(task, hit);
        self.core.borrow_mut().spent(task, Cause::User);
        self.user_point(Ahead::Always);
    }

    /// The end of a stretch in user mode: other tasks and interrupts get their turn.
    fn user_point(&self, ahead: Ahead) {
        let task = self.current.get();
        self.point(ahead);
        let ends = self.core.borrow_mut().slice_ends(task);
        if ends {
            self.drain();
            self.suspend();
            self.take_interrupts();
        }
    }

    /// The task starts `after` the run did, if that is still to come.
    pub(crate) fn starts_at(&self, after: Ps) {
        let waits = self.core.borrow_mut().start_at(self.current.get(), after);
        if waits {
            self.suspend();
        }
    }

    /// Computes for `time` in user mode.
    pub(crate) fn compute(&self, mut time: Ps) {
        let task = self.current.get();
        while time > 0 {
            let stretch = self.core.borrow().slice_left(task).clamp(1, time);
            self.core.borrow_mut().compute(task, stretch);
            self.core.borrow_mut().spent(task, Cause::User);
            time -= stretch;
            self.user_point(Ahead::Always);
        }
    }

    /// The body of an idle task: takes interrupts for ever.
    pub(crate) fn idle(&self) -> ! {
        let task = self.current.get();
        loop {
            self.take_interrupts();
            self.core.borrow_mut().park(task);
            self.suspend();
        }
    }
}
