//! Charging virtual time to tasks.

use super::{Core, Order};
use crate::model::Ps;
use crate::why::Cause;
use minflt_sync::Cost;
use minflt_workload::Use;

impl Core {
    /// Whether accesses and work take time.
    pub(super) fn keeps_time(&self) -> bool {
        match &self.order {
            Order::Virtual(_) => true,
            Order::Explored { chooser, .. } => chooser.keeps_time(),
        }
    }

    /// Time passes for `task`, doing work that touches no shared line.
    pub(crate) fn pass(&mut self, task: u32, time: Ps) {
        let cpu = self.tasks[task as usize].cpu;
        match &mut self.order {
            Order::Virtual(_) => self.cpus[cpu as usize].clock += time,
            Order::Explored { chooser, .. } => chooser.pass(cpu, time),
        }
    }

    /// `task` computes for `time`, slower while its core's sibling runs.
    pub(crate) fn compute(&mut self, task: u32, time: Ps) {
        let cpu = self.tasks[task as usize].cpu;
        let shared = self
            .model
            .siblings(cpu)
            .any(|other| self.cpus[other as usize].current.is_some());
        self.pass(
            task,
            if shared {
                self.model.on_shared_core(time)
            } else {
                time
            },
        );
    }

    /// `task` does fixed work.
    pub(crate) fn charge(&mut self, task: u32, cost: Cost) {
        if !self.keeps_time() {
            return;
        }
        let at = self.tasks[task as usize].cpu as usize;
        let here = self.model.places[at].node;
        let started = self.cpus[at].clock;
        self.compute(task, self.model.fixed(cost, here));
        if !self.is_virtual() {
            return;
        }
        self.spent(task, Cause::of(cost));
        match cost {
            Cost::Clear { bytes, node } => self.through_memory(task, started, node, bytes),
            Cost::Copy { bytes, from, to } => {
                // A write reads the line before, and takes twice what a read takes.
                self.through_memory(task, started, from, bytes / 2);
                self.through_memory(task, started, to, bytes);
            }
            _ => {}
        }
    }

    /// `task` is not done before the memory of `node` has had its share of `bytes`.
    fn through_memory(&mut self, task: u32, started: Ps, node: u32, bytes: u64) {
        let at = self.tasks[task as usize].cpu as usize;
        if let Some(memory) = self.nodes.get_mut(node as usize) {
            let done = memory.kernel(started, self.model.node_busy(bytes));
            let clock = &mut self.cpus[at].clock;
            *clock = (*clock).max(done);
            self.spent(task, Cause::Node);
        }
    }

    /// `task` uses `bytes` bytes of the memory of `node` in user mode.
    pub(crate) fn use_data(&mut self, task: u32, node: u32, bytes: u64, how: Use) {
        if !self.is_virtual() {
            return;
        }
        let at = self.tasks[task as usize].cpu as usize;
        let is_near = self.model.places[at].node == node;
        let started = self.cpus[at].clock;
        let (alone, busy) = match how {
            Use::Load => (
                self.model.data_read(bytes, is_near),
                self.model.node_reads(bytes),
            ),
            Use::Store | Use::Update => {
                (self.model.data(bytes, is_near), self.model.node_busy(bytes))
            }
        };
        self.compute(task, alone);
        self.spent(task, Cause::User);
        let near_first = self.model.near_first_permille;
        if let Some(memory) = self.nodes.get_mut(node as usize) {
            let done = memory.user(started, busy, is_near, near_first);
            let clock = &mut self.cpus[at].clock;
            *clock = (*clock).max(done);
            self.spent(task, Cause::Node);
        }
    }

    /// `task` broadcasts to all CPUs, once nobody else does.
    pub(crate) fn broadcast(&mut self, task: u32) {
        self.events += 1;
        if self.is_virtual() {
            let clock = &mut self.cpus[self.tasks[task as usize].cpu as usize].clock;
            let end = (*clock).max(self.broadcasting) + self.model.broadcast;
            self.broadcasting = end;
            *clock = end;
            self.spent(task, Cause::Invalidate);
        }
    }

    /// `task` starts a process: a part of that once nobody else does.
    pub(crate) fn start_process(&mut self, task: u32) {
        if self.is_virtual() {
            let clock = &mut self.cpus[self.tasks[task as usize].cpu as usize].clock;
            *clock = (*clock).max(self.starting) + self.model.spawn_alone;
            self.starting = *clock;
        }
        self.pass(task, self.model.spawn);
        self.spent(task, Cause::Other);
    }

    /// Accounts `task`'s time since it was last accounted.
    pub(super) fn account(&mut self, task: u32) {
        let clock = self.clock_of(task);
        let entry = &mut self.tasks[task as usize];
        let time = clock.saturating_sub(entry.mark);
        entry.mark = clock;
        if entry.kernel > 0 {
            entry.system += time
        } else {
            entry.user += time
        }
    }

    pub(crate) fn enter_kernel(&mut self, task: u32) {
        self.account(task);
        self.tasks[task as usize].kernel += 1;
        self.entered(task);
    }

    pub(crate) fn leave_kernel(&mut self, task: u32) {
        self.account(task);
        self.left(task);
        let kernel = &mut self.tasks[task as usize].kernel;
        *kernel = kernel.saturating_sub(1);
    }

    /// User and system time of `task` so far.
    pub(crate) fn times(&mut self, task: u32) -> (Ps, Ps) {
        self.account(task);
        let entry = &self.tasks[task as usize];
        (entry.user, entry.system)
    }
}
