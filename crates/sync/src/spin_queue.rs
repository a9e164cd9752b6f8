//! The optimistic spin queue (`osq_lock`): the head spins on the lock, the others on a line of
//! their own.
//!
//! # Problem
//! When all spinners poll the lock's word, each change of the word is transferred to all of them,
//! and each release makes all of them request the line at once. A spinner must also be able to give
//! up at any time, to sleep.
//!
//! # Idea
//! A queue of the spinners, each with a node in its context. Only the head polls the lock; a
//! spinner behind it polls a word of its own node. The queue does not protect the data: the head
//! may still lose the lock to a thread that never queued.
//!
//! # Protocol
//! ```text
//! tail         the task at the end, 0 for none; two bits on top are the owner's, and never change
//! node.state   HEAD   this one is at the head now
//!              NEWS   this node or the predecessor's changed: recheck
//!              else   the task in front
//! node.next    NEXT   the task behind, or one that was: if there is none, read the tail
//!              TURN   the one behind is leaving: wait for it
//! ```
//! - Enter: exchange the tail for this task. If the queue was empty, this task is the head. Else
//!   link this task behind the old tail, and wait for HEAD.
//! - Leave, from the head: remove this task from the tail; if there is a successor, set its HEAD.
//! - Give up: in the predecessor's node, exchange this task for TURN, which keeps the predecessor
//!   from leaving. Then make the predecessor the tail, or link it with this task's successor; clear
//!   TURN. If the exchange fails, the predecessor is changing this task's node, or has: wait for
//!   NEWS, and recheck.
//!
//! # Why it is correct
//! A node's successor is named by that node alone. The node's owner removes it by exchange, to set
//! its HEAD or to relink it; the successor removes itself by exchange, to leave: one of the two
//! wins. While TURN is set the node's owner does not leave, so the leaving task may still access
//! that node; TURN is set before the tail is restored, so a task that leaves by the tail sees it. A
//! newcomer behind such a node adds itself without clearing TURN. A node is reused only when no
//! other task will access it, except to set NEWS, which only asks for a recheck.
//!
//! # Cost
//! To enter: an exchange of the tail, and of the predecessor's node; to leave, one of the tail or
//! of the own node, and one line to the successor. Each release of the lock transfers its line to
//! one spinner.
//!
//! Linux: kernel/locking/osq_lock.c, there with a node for each CPU. It came as the cancelable MCS
//! lock of mutexes in 3.15, and the read-write semaphore has it since 3.16 (4fc828e24cd9, 2014).
//! Linux polls two words where this one has NEWS and TURN: a simulated CPU waits for one.

use crate::atomic::Atomic;
use crate::cx::{Cx, SpinNode, TaskId};
use crate::machine::Machine;
use crate::prim::Ordering;
use crate::word::Rmw;
use core::fmt;

const HEAD: u32 = 1 << 31;
const NEWS: u32 = 1 << 30;
const NEXT: u32 = 1 << 31;
const TURN: u32 = 1 << 30;
const TASK: u32 = (1 << 30) - 1;

/// A queue of spinners.
pub struct SpinQueue<M: Machine> {
    tail: Atomic<u32, M>,
}

impl<M: Machine> SpinQueue<M> {
    /// An empty queue, with a mark from 0 to 3.
    #[must_use]
    pub fn new(mark: u32) -> Self {
        Self {
            tail: Atomic::new(mark << TASK.count_ones()),
        }
    }

    /// The mark. It is the same always, so this is no access.
    #[inline(always)]
    pub fn mark(&self) -> u32 {
        self.tail.peek() >> TASK.count_ones()
    }

    /// Sets the mark of an empty, unpublished queue, or of one that has it already.
    pub fn set_mark(&self, mark: u32) {
        if self.mark() != mark {
            self.tail.poke(mark << TASK.count_ones());
        }
    }

    /// Whether it is empty, without the access hook: for oracles.
    pub fn is_empty(&self) -> bool {
        self.tail.peek() & TASK == 0
    }

    /// Queues; returns true at the head, which must [`SpinQueue::leave`]. Returns false if the task
    /// left because `gives_up` returned true, which is called now and then with the predecessor.
    ///
    /// # Context
    /// A task is in one queue at a time. Interrupts are on.
    pub fn enter(&self, gives_up: impl Fn(TaskId) -> bool) -> bool {
        let me = me::<M>();
        let task = me.task.get().0;
        let node = &me.spin;
        M::store::<u32>(&node.next, 0, Ordering::Relaxed);
        // ORDERING: AcqRel; pairs with [spin-queue-tail]: `next` is empty before one is behind.
        let old = self.tail.swap(self.with_mark(task), Ordering::AcqRel) & TASK;
        let Some(front) = node_of::<M>(old) else {
            return true;
        };
        M::store::<u32>(&node.state, old, Ordering::Relaxed);
        // ORDERING: Release; pairs with [spin-queue-link]: `state` is set before it is HEAD.
        M::rmw::<u32>(&front.next, Rmw::Or, NEXT | task, Ordering::Release);
        loop {
            let state = M::load::<u32>(&node.state, Ordering::Relaxed);
            if state & HEAD != 0 {
                return true;
            }
            if gives_up(TaskId(state & TASK)) {
                return self.give_up(task, node);
            }
            M::wait_until::<u32>(&node.state, HEAD, HEAD);
        }
    }

    /// Leaves the head.
    pub fn leave(&self) {
        let me = me::<M>();
        if let Some(next) = self.detach(me.task.get().0, &me.spin, 0)
            && let Some(node) = node_of::<M>(next)
        {
            M::rmw::<u32>(&node.state, Rmw::Swap, HEAD | NEWS, Ordering::Relaxed);
        }
    }

    /// Leaves from where it is; true when it has become the head meanwhile.
    #[cold]
    fn give_up(&self, task: u32, node: &SpinNode) -> bool {
        let (front, before) = loop {
            let state = M::rmw::<u32>(&node.state, Rmw::And, !NEWS, Ordering::Relaxed);
            if state & HEAD != 0 {
                return true;
            }
            let front = state & TASK;
            if let Some(before) = node_of::<M>(front) {
                let mine = NEXT | task;
                let order = Ordering::Relaxed;
                if M::cas::<u32>(&before.next, mine, NEXT | TURN, order, order).is_ok() {
                    break (front, before);
                }
            }
            M::wait_until::<u32>(&node.state, NEWS, NEWS);
        };
        let behind = match self.detach(task, node, front) {
            None => M::rmw::<u32>(&before.next, Rmw::And, !TURN, Ordering::Relaxed) & TASK,
            Some(next) => {
                if let Some(node) = node_of::<M>(next) {
                    M::rmw::<u32>(&node.state, Rmw::Swap, NEWS | front, Ordering::Relaxed);
                }
                // ORDERING: Release; pairs with [spin-queue-link]: the new neighbour comes first.
                M::store::<u32>(&before.next, NEXT | next, Ordering::Release);
                next
            }
        };
        // Who is behind may have tried to leave while TURN stood there.
        if let Some(node) = node_of::<M>(behind) {
            M::rmw::<u32>(&node.state, Rmw::Or, NEWS, Ordering::Relaxed);
        }
        false
    }

    /// Removes `task` from the queue: returns its successor, unlinked from it; or none, and `front`
    /// is the tail.
    fn detach(&self, task: u32, node: &SpinNode, front: u32) -> Option<u32> {
        let (last, new) = (self.with_mark(task), self.with_mark(front));
        let order = Ordering::Relaxed;
        loop {
            // ORDERING: AcqRel; pairs with [spin-queue-tail]: TURN comes before the tail.
            if self.tail.cas(last, new, Ordering::AcqRel, order).is_ok() {
                while M::load::<u32>(&node.next, order) & TURN != 0 {
                    M::wait_until::<u32>(&node.next, TURN, 0);
                }
                return None;
            }
            M::wait_until::<u32>(&node.next, NEXT | TURN, NEXT);
            let next = M::load::<u32>(&node.next, order);
            if next & (NEXT | TURN) != NEXT {
                continue;
            }
            // ORDERING: Acquire; pairs with [spin-queue-link].
            let taken = M::cas::<u32>(&node.next, next, 0, Ordering::Acquire, order);
            if taken.is_ok() && next & TASK != 0 {
                return Some(next & TASK);
            }
        }
    }

    fn with_mark(&self, task: u32) -> u32 {
        self.mark() << TASK.count_ones() | task
    }
}

fn me<'a, M: Machine>() -> &'a Cx {
    // SAFETY: duty 1 of `Machine`.
    unsafe { &*M::cx() }
}

fn node_of<'a, M: Machine>(task: u32) -> Option<&'a SpinNode> {
    // SAFETY: duty 3 of `Machine`: a queued task exists.
    (task != 0).then(|| unsafe { &(*M::context(TaskId(task))).spin })
}

impl<M: Machine> fmt::Debug for SpinQueue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpinQueue({})", self.tail.peek() & TASK)
    }
}
