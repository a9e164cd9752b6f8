//! The context: per-task state of `sync` (CPU, locks held, interrupt state).
//!
//! A context belongs to a task (a thread, a coroutine, a CPU's idle loop), never to the operating
//! system's thread: simulated tasks share one. It lies in the machine's own memory and outlives the
//! task, because other tasks look at it: a waiter's node, an owner's identity.

use crate::lockdep::HeldLocks;
use crate::prim::{AtomicU32, AtomicU64};
use core::cell::Cell;

/// A task of one machine instance: 1 and up, below 2^30. 0 is no task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct TaskId(pub u32);

/// What `sync` remembers of one task.
///
/// # Invariants
/// The `Cell`s are touched by the task itself only; what other tasks touch is atomic.
#[derive(Debug)]
#[repr(align(128))]
pub struct Cx {
    /// The CPU the task runs on.
    pub cpu: Cell<u32>,
    /// Who it is.
    pub task: Cell<TaskId>,
    /// How often interrupts were turned off and not yet on again.
    pub irq_off: Cell<u32>,
    /// How many SRCU read sections are open.
    pub read_sections: Cell<u32>,
    /// How many RCU read sections are open: while any is, the task keeps its CPU.
    pub rcu_depth: Cell<u32>,
    /// A word the machine may use as it likes.
    pub machine: Cell<u64>,
    /// The locks held, where the machine is checked.
    pub held: HeldLocks,
    /// The task's place in a queue.
    pub node: WaitNode,
    /// Its place in a queue of spinners.
    pub spin: SpinNode,
}

/// A place in a queue of those who spin: [`crate::SpinQueue`]. On a line of its own, which its
/// owner watches.
#[derive(Debug)]
#[repr(align(128))]
pub struct SpinNode {
    /// Who is in front, and whether this one is at the head.
    pub state: AtomicU32,
    /// Who is behind.
    pub next: AtomicU32,
}

/// A place in a queue of those who sleep. A task waits for one thing at a time.
///
/// Raw words, because a context is no machine's type; they are reached through the access hook.
#[derive(Debug)]
pub struct WaitNode {
    /// The next waiter's [`TaskId`], 0 at the tail. Guarded by: the lock's queue lock.
    pub next: AtomicU32,
    /// What it waits for. Guarded by: the lock's queue lock.
    pub wants: AtomicU32,
    /// Set when the lock was handed over, or the wait is over.
    pub granted: AtomicU64,
    /// For which word, where a queue is many words'. Guarded by: the queue's lock.
    pub key: AtomicU64,
    /// For which bit of it. Guarded by: the queue's lock.
    pub bit: AtomicU32,
    /// Since when, where that matters. Guarded by: the lock's queue lock.
    pub since: AtomicU64,
}

impl Cx {
    /// A context of `task` on `cpu`.
    #[must_use]
    pub fn new(task: TaskId, cpu: u32) -> Self {
        Self {
            cpu: Cell::new(cpu),
            task: Cell::new(task),
            irq_off: Cell::new(0),
            read_sections: Cell::new(0),
            rcu_depth: Cell::new(0),
            machine: Cell::new(0),
            held: HeldLocks::new(),
            node: WaitNode {
                next: AtomicU32::new(0),
                wants: AtomicU32::new(0),
                granted: AtomicU64::new(0),
                key: AtomicU64::new(0),
                bit: AtomicU32::new(0),
                since: AtomicU64::new(0),
            },
            spin: SpinNode {
                state: AtomicU32::new(0),
                next: AtomicU32::new(0),
            },
        }
    }
}
