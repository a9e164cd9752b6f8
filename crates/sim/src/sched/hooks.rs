//! Hooks from the scheduler to the trace and to time accounting ([`crate::why`]). They change
//! nothing, except for a line that is to be free of cost.

use super::{Core, Order, Spin};
use crate::lines::{Ask, LineId};
use crate::model::Ps;
use crate::stops::Window;
use crate::trace::{Event, Step};
use crate::why::{Access, Cause, Ledger, Stage, Who};
use minflt_pgtable::EntryPoint;
use minflt_sync::{Kind, Phase};

impl Core {
    #[inline]
    fn account_of(&mut self, task: u32) -> Option<(&mut Ledger, Who, Ps)> {
        let cpu = self.tasks[task as usize].cpu;
        let clock = self.cpus[cpu as usize].clock;
        let ledger = self.why.as_deref_mut()?;
        Some((ledger, Who { task, cpu }, clock))
    }

    /// `task`'s time until now went to `cause`.
    #[inline]
    pub(crate) fn spent(&mut self, task: u32, cause: Cause) {
        if let Some((ledger, who, clock)) = self.account_of(task) {
            ledger.until(who, clock, cause, None);
        }
    }

    /// `task` touched the line of `ask` at `now`: when that is done.
    #[inline]
    pub(super) fn accessed(&mut self, task: u32, ask: Ask, now: Ps, end: Ps) -> Ps {
        if self.why.is_none() {
            return end;
        }
        let hit = match ask.kind {
            Kind::Rmw => self.model.rmw_hit,
            _ => self.model.hit,
        };
        let mut access = Access {
            end,
            moved: end > now + hit,
            waited: ask.waited,
        };
        if self.is_free(ask.id) {
            access.end = now + hit;
            access.moved = false;
            self.lines.line(ask.id).is_free_at(now);
        }
        if let Some((ledger, who, _)) = self.account_of(task) {
            ledger.access(who, ask.id, ask.kind, now, hit, access);
        }
        access.end
    }

    /// Whether a line costs a hit only, to see what is left without it.
    #[inline]
    pub(super) fn is_free(&self, line: LineId) -> bool {
        self.why.as_ref().is_some_and(|ledger| ledger.is_free(line))
    }

    /// `task` no longer spins.
    pub(super) fn spun(&mut self, task: u32, spin: Spin) {
        if let Some((ledger, who, clock)) = self.account_of(task) {
            ledger.until(who, clock, Cause::Spin, Some(spin.offset));
        }
    }

    /// `task` goes to sleep.
    pub(super) fn sleeps_from_now(&mut self, task: u32) {
        if let Some((ledger, who, clock)) = self.account_of(task) {
            ledger.parks(who, clock);
        }
    }

    /// `task` has its CPU.
    pub(super) fn runs_from_now(&mut self, task: u32) {
        if let Some((ledger, who, clock)) = self.account_of(task) {
            ledger.runs(who, clock);
        }
    }

    /// `task` has ended.
    pub(super) fn ended(&mut self, task: u32) {
        if let Some((ledger, who, clock)) = self.account_of(task) {
            ledger.ends(who, clock);
        }
    }

    /// `task` has entered the kernel.
    pub(super) fn entered(&mut self, task: u32) {
        if let Some(ledger) = &mut self.why {
            ledger.enter(task);
        }
    }

    /// `task` has been interrupted, and has entered the kernel for it.
    pub(super) fn interrupted(&mut self, task: u32) {
        if let Some(ledger) = &mut self.why {
            ledger.interrupted(task);
        }
        self.spent(task, Cause::Interrupt);
    }

    /// `task` is about to leave the kernel.
    pub(super) fn left(&mut self, task: u32) {
        if let Some(ledger) = &mut self.why {
            ledger.leave(task);
        }
    }

    /// `task` opens or closes its window.
    pub(crate) fn window(&mut self, task: u32, stage: Stage) {
        if let Some((ledger, who, clock)) = self.account_of(task) {
            ledger.window(who, clock, stage);
        }
    }

    /// Something becomes of the entry at `offset`, by `task`; whether it is about to be exchanged
    /// by a sample since which it has named another page.
    pub(crate) fn entry_point(&mut self, task: u32, offset: usize, what: EntryPoint) -> bool {
        match what {
            EntryPoint::Sampled => {
                self.entries.sampled(task, offset);
                self.opens_window(task, Window::AfterSample);
            }
            EntryPoint::Followed => self.opens_window(task, Window::InWalk),
            EntryPoint::Renamed => {
                self.entries.renamed(offset);
                if let Order::Explored { chooser, .. } = &mut self.order {
                    chooser.entry_changed(task);
                }
            }
            EntryPoint::Decided => return self.entries.is_stale(task, offset),
        }
        false
    }

    fn opens_window(&mut self, task: u32, window: Window) {
        if let Order::Explored { chooser, .. } = &mut self.order {
            chooser.opens_window(task, window);
        }
    }

    /// A remark of `task`.
    pub(crate) fn phase(&mut self, task: u32, phase: Phase, sleeps_for: Option<usize>) {
        if let Some((ledger, ..)) = self.account_of(task) {
            ledger.phase(task, phase, sleeps_for);
        }
    }

    /// Records a step, where a trace is kept.
    pub(crate) fn record(&mut self, task: u32, event: impl FnOnce() -> Event) {
        let at_ns = match &self.order {
            Order::Virtual(_) => (self.clock_of(task) - self.started) / 1000,
            Order::Explored { chooser, .. } => chooser.steps(),
        };
        let cpu = self.tasks[task as usize].cpu;
        if let Some(steps) = &mut self.trace {
            steps.push(Step {
                at_ns,
                cpu,
                task: task + 1,
                event: event(),
            });
        }
    }
}
