//! Costs of accessing the words of a page; a simulated page holds only one.
//!
//! # Problem
//! How fast a thread goes over its memory depends on where that lies: on the thread's own node or
//! on another, and on who else uses that node. Yet the accesses of a workload go through
//! translation buffers and tables, which name frames, and a worker knows addresses only.
//!
//! # Idea
//! The access to a page's word notes its frame; then the bytes that the word stands for are charged
//! by the frame's node. So a page that was migrated meanwhile costs what its new place costs.
//!
//! # Protocol
//! Requests to a node's memory are made in the order of time ([`World::in_order`]): a CPU that is
//! ahead waits before it makes its own.
//!
//! # Cost
//! One cell an access; a change of task for each stretch that is used.

use crate::here;
use crate::instance::SimInstance;
use crate::world::World;
use minflt_addr::Pfn;
use minflt_workload::Use;

/// The running task has touched `pfn` in user mode.
#[inline]
pub(crate) fn touches(pfn: Pfn) {
    if let Some(world) = here::here() {
        let task = world.current.get() as usize;
        if let Some(task) = world.core.borrow_mut().tasks.get_mut(task) {
            task.touched = Some(pfn);
        }
    }
}

/// The running task uses `bytes` bytes around the word that it touched last, in a page of
/// `1 << shift` bytes.
pub(crate) fn used(at: &SimInstance, shift: u32, bytes: u64, how: Use) {
    if let Some(world) = here::here() {
        world.use_data(|pfn| at.node_of_data(pfn, shift), bytes, how);
    }
}

impl World<'_> {
    fn use_data(&self, node_of: impl Fn(Pfn) -> u32, bytes: u64, how: Use) {
        self.in_order();
        let task = self.current.get();
        let mut core = self.core.borrow_mut();
        if let Some(pfn) = core.tasks[task as usize].touched {
            core.use_data(task, node_of(pfn), bytes, how);
        }
    }
}
