//! Shortcut: the scheduler itself completes a spinner's lock acquisition.
//!
//! # Problem
//! Where hundreds spin for one lock, each release lets dozens of them see it free. All try to take
//! it, and all but one spin again: a look, an exchange that fails, three times a change of stacks
//! that lie in no cache of the host.
//!
//! # Idea
//! What such a task does next is known: it looks, exchanges, and spins again or has the lock
//! ([`minflt_sync::Machine::take`]). So the scheduler does that for it, access by access, and
//! resumes the task when it has the lock, or where something else comes in between.
//!
//! # Protocol
//! ```text
//! spins -> looks -> exchanges -> has the lock        resumed: Taken
//!   ^        |           |
//!   +--------+-----------+ in vain
//! ```
//! Before each access it is the task's turn, and the line is asked for if it moves, as for any
//! access of a running task; the CPU goes back into the heap meanwhile, and [`Core::goes_on`] comes
//! here again. An interrupt is the task's to take: it is resumed, and told what it was about to do.
//!
//! # Why it is correct
//! The accesses, their order and what is asked before each are those of the task's own loop
//! (`words::take`), which does the same where time is accounted or steps are recorded: both make
//! the same events, clocks and hash. A run that is cut off ends here as it would in the task. While
//! a panic unwinds, accesses are nothing: the task goes on by itself, and is given what it waits
//! for.
//!
//! # Cost
//! Two accesses' bookkeeping a try, and no change of stacks.

use super::task::{Carried, Handed, Passed, Spin};
use super::{Ahead, Core, State, Turn};
use minflt_sync::Kind;

impl Core {
    /// Whether tasks that take locks are carried on: where nobody wants to hear of each access.
    pub(crate) fn carries_on(&self) -> bool {
        self.is_virtual() && self.trace.is_none() && self.why.is_none()
    }

    /// What the scheduler did of what `task` would have done; asked once.
    pub(crate) fn handed(&mut self, task: u32) -> Handed {
        core::mem::take(&mut self.tasks[task as usize].handed)
    }

    /// `task` spins no more, and will look at what it waited for.
    pub(super) fn carries(&mut self, task: u32, spin: Spin) {
        self.tasks[task as usize].carried = spin.takes.map(|taken| Carried {
            spin,
            taken,
            kind: Kind::Load,
            passed: Passed::Wait,
        });
    }

    /// `task`'s CPU was chosen: does what it can of what `task` does next; whether `task` itself
    /// goes on.
    pub(super) fn carry_on(&mut self, task: u32) -> bool {
        let Some(mut it) = self.tasks[task as usize].carried.take() else {
            return true;
        };
        self.tasks[task as usize].state = State::Running;
        let (spin, cpu) = (it.spin, self.tasks[task as usize].cpu);
        loop {
            let before = match it.kind {
                Kind::Load => Handed::Nothing,
                _ => Handed::Looked,
            };
            let waited = matches!(it.passed, Passed::Wait | Passed::Switch);
            if waited && spin.irqs_on && self.interrupt_is_due(cpu) {
                return self.hand(task, before);
            }
            if matches!(it.passed, Passed::Wait | Passed::Access) {
                if std::thread::panicking() {
                    return self.hand(task, before);
                }
                match self.turn(task, Ahead::OnLine(spin.line), spin.irqs_on) {
                    Turn::Go => {}
                    Turn::Switch => return self.set_aside(task, it, Passed::Switch),
                    Turn::Interrupt => return self.hand(task, before),
                    Turn::Stop => {
                        let endless = self.endless();
                        self.outcome.get_or_insert(endless);
                        return false;
                    }
                }
            }
            let lines = spin.line..=spin.line;
            if it.passed != Passed::Ask && self.must_wait(task, lines.clone(), it.kind) {
                self.ask(task, spin.line, it.kind);
                return self.set_aside(task, it, Passed::Ask);
            }
            let watched = self.commit(task, lines, |_| spin.node, it.kind);
            let free = spin.is_over();
            it.passed = Passed::Access;
            it.kind = match (it.kind, free) {
                (Kind::Load, true) => Kind::Rmw,
                (Kind::Load, false) => {
                    self.spin(task, spin);
                    return false;
                }
                (_, true) => {
                    spin.peek.write(it.taken);
                    if watched {
                        self.changed(task, spin.line, true);
                    }
                    return self.hand(task, Handed::Taken);
                }
                (_, false) => Kind::Load,
            };
        }
    }

    /// `task` goes on by itself.
    fn hand(&mut self, task: u32, handed: Handed) -> bool {
        self.tasks[task as usize].handed = handed;
        true
    }

    /// `task` has to wait before it goes on.
    fn set_aside(&mut self, task: u32, it: Carried, passed: Passed) -> bool {
        self.tasks[task as usize].carried = Some(Carried { passed, ..it });
        false
    }
}
