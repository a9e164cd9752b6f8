//! Broadcast TLB invalidation, on machines that can flush other CPUs without interrupting them.

use crate::model::Ps;
use crate::sched::Ahead;
use crate::why::Cause;
use crate::world::World;
use minflt_sync::Instance;

/// How often a broadcast looks whether walks have ended.
const POLL: Ps = 20_000;

impl World<'_> {
    /// Flushes all other CPUs: broadcasts are served one after the other, and each waits for
    /// walks that have begun, during which a CPU has its interrupts off.
    pub(crate) fn broadcast(&self, forget: impl Fn(u32)) {
        let task = self.current.get();
        self.in_order();
        self.core.borrow_mut().broadcast(task);
        let mut rest: Vec<u32> = (0..self.at.cpus()).collect();
        loop {
            rest.retain(|cpu| {
                let walks = !std::thread::panicking() && self.has_interrupts_off(*cpu);
                if !walks {
                    forget(*cpu);
                }
                walks
            });
            if rest.is_empty() {
                return;
            }
            let mut core = self.core.borrow_mut();
            core.pass(task, POLL);
            core.spent(task, Cause::Invalidate);
            drop(core);
            self.point(Ahead::Never);
        }
    }

    /// Whether another CPU runs a context that takes no interrupts.
    fn has_interrupts_off(&self, cpu: u32) -> bool {
        let runs = self.core.borrow().runs_on(cpu);
        let other = runs.filter(|task| *task != self.current.get());
        // SAFETY: a task's context is valid for the instance's life, and only this thread uses it.
        other.is_some_and(|task| unsafe { &*self.at.cx(task + 1) }.irq_off.get() > 0)
    }
}
