//! The semaphore's slow path: wait queue, wake-up and grant.

use super::{HANDOFF, Queue, READER, READERS, RwSem, Succession, WAITERS, WRITER, me, node_of};
use crate::cx::{Cx, TaskId, WaitNode};
use crate::lockdep::order::WaitLock;
use crate::lockdep::{self, Class};
use crate::machine::Machine;
use crate::phase::Phase;
use crate::prim::Ordering;
use crate::spin::SpinGuard;

const WANTS_READ: u32 = 1;
const WANTS_WRITE: u32 = 2;

/// How long a waiter is overtaken before it ends that.
const HANDOFF_NS: u64 = 4_000_000;

/// What a spinning writer waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// No owner: the lock is free.
    Not,
    /// For a writer that runs.
    Writer,
    /// For a reader that runs, and was the writer.
    Reader,
    /// For others, too long to spin.
    Long,
}

impl<C: Class, M: Machine> RwSem<C, M> {
    #[cold]
    pub(super) fn read_slow(&self, old: u32) {
        let steals = self.succession() == Succession::HandOff;
        if steals && old & (WRITER | HANDOFF | READERS) == 0 {
            // The lock is free: the fast path's addition stays, and queued readers at the head are
            // admitted.
            return self.let_readers_in();
        }
        let node = &me::<M>().node;
        let mut queue = self.queue.lock();
        // The queue is empty and no writer holds the lock: the fast path's addition stays. Queueing
        // here would show WAITERS to the next reader, and so on: a convoy of readers only.
        // ORDERING: Acquire; pairs with [rwsem-release].
        let free = self.count.load(Ordering::Acquire) & (WRITER | HANDOFF) == 0;
        if queue.head == 0 && free {
            return;
        }
        let first = self.push(&mut queue, WANTS_READ);
        // Subtracts the reader that the fast path added, and sets WAITERS.
        let add = if first {
            WAITERS.wrapping_sub(READER)
        } else {
            0u32.wrapping_sub(READER)
        };
        let now = self.count.add(add, Ordering::Relaxed).wrapping_add(add);
        if now & WRITER == 0 && (first || now & READERS == 0) {
            self.wake_head(&mut queue);
        }
        drop(queue);
        self.sleep_until_granted(node);
    }

    fn sleep_until_granted(&self, node: &WaitNode) {
        // ORDERING: Acquire; pairs with [rwsem-grant].
        while M::load::<u64>(&node.granted, Ordering::Acquire) == 0 {
            lockdep::might_sleep::<M>();
            M::phase(Phase::Sleep(self.id()));
            M::park();
        }
    }

    #[cold]
    pub(super) fn write_contended(&self) {
        match self.succession() {
            Succession::Grant => self.write_granted(),
            Succession::Steal => self.write_slow(),
            Succession::Spin | Succession::HandOff => {
                if !self.spin() {
                    self.write_slow();
                }
            }
        }
    }

    /// Spins while the writer that holds the lock, or the downgraded one, is running; true when the
    /// lock was taken that way.
    fn spin(&self) -> bool {
        let gives_up = |front| M::should_yield() || !M::is_running(front);
        if self.waits_for() == Wait::Long || !self.spinners.enter(gives_up) {
            return false;
        }
        let taken = loop {
            match self.waits_for() {
                Wait::Long => break false,
                Wait::Not if self.steal() => break true,
                Wait::Not => {}
                Wait::Reader => self.owner.wait_until(!0, 0),
                Wait::Writer => self.count.wait_until(WRITER, 0),
            }
        };
        self.spinners.leave();
        taken
    }

    /// What a writer that spins would wait for.
    fn waits_for(&self) -> Wait {
        let count = self.count.load(Ordering::Relaxed);
        if M::should_yield() || count & HANDOFF != 0 && count & WRITER == 0 {
            return Wait::Long;
        }
        if count & (WRITER | READERS) == 0 {
            return Wait::Not;
        }
        let owner = TaskId(self.owner.load(Ordering::Relaxed));
        let soon = match owner {
            // A writer that has not yet written, or has already cleared, its name is running.
            TaskId(0) => count & WRITER != 0,
            owner => M::is_running(owner),
        };
        match (soon, count & WRITER) {
            (false, _) => Wait::Long,
            // It runs, elsewhere; another reader may wait for this very CPU.
            (true, 0) => Wait::Reader,
            (true, _) => Wait::Writer,
        }
    }

    /// Takes the lock if it is free, past all waiters.
    fn steal(&self) -> bool {
        let mut old = self.count.load(Ordering::Relaxed);
        while old & (WRITER | READERS | HANDOFF) == 0 {
            // ORDERING: Acquire; pairs with [rwsem-release].
            match self
                .count
                .cas(old, old | WRITER, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(found) => old = found,
            }
        }
        false
    }

    /// Queues, and sleeps until the lock is handed over.
    fn write_granted(&self) {
        let node = &me::<M>().node;
        let mut queue = self.queue.lock();
        let now = if self.push(&mut queue, WANTS_WRITE) {
            self.count.or(WAITERS, Ordering::Relaxed)
        } else {
            self.count.load(Ordering::Relaxed)
        };
        if now & (WRITER | READERS) == 0 {
            self.wake_head(&mut queue);
        }
        drop(queue);
        self.sleep_until_granted(node);
    }

    #[cold]
    fn write_slow(&self) {
        let my_task = me::<M>().task.get().0;
        let mut queue = self.queue.lock();
        if queue.head != 0 && self.steal() {
            return;
        }
        if self.push(&mut queue, WANTS_WRITE) {
            self.count.or(WAITERS, Ordering::Relaxed);
        }
        let mut woken = false;
        while !(queue.head == my_task && self.take_at_head(&mut queue)) {
            let mut spins = false;
            if woken && queue.head == my_task && self.waited_long(my_task) {
                self.count.or(HANDOFF, Ordering::Relaxed);
                // The lock may have been released between the look and the flag.
                if self.take_at_head(&mut queue) {
                    break;
                }
                spins = self.waits_for() == Wait::Writer;
            }
            drop(queue);
            if spins {
                self.count.wait_until(WRITER, 0);
            } else {
                lockdep::might_sleep::<M>();
                M::phase(Phase::Sleep(self.id()));
                M::park();
                woken = true;
            }
            queue = self.queue.lock();
        }
    }

    /// Whether the head of the queue, woken in vain, has waited so long that it is next.
    fn waited_long(&self, head: u32) -> bool {
        let Some(now) = M::clock_ns() else {
            return self.succession() == Succession::HandOff;
        };
        let since = |cx: &Cx| M::load::<u64>(&cx.node.since, Ordering::Relaxed);
        self.succession() == Succession::HandOff
            && node_of::<M>(head).is_some_and(|cx| now.saturating_sub(since(cx)) > HANDOFF_NS)
    }

    /// The head of the queue, a writer, takes the lock if it is free, and leaves the queue.
    fn take_at_head(&self, queue: &mut SpinGuard<'_, Queue, WaitLock, M>) -> bool {
        let last = queue.head == queue.tail;
        let mut old = self.count.load(Ordering::Relaxed);
        loop {
            if old & (WRITER | READERS) != 0 {
                return false;
            }
            let new = old & !HANDOFF & if last { !WAITERS } else { !0 } | WRITER;
            // ORDERING: Acquire; pairs with [rwsem-release].
            match self
                .count
                .cas(old, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(found) => old = found,
            }
        }
        self.pop(queue);
        true
    }

    /// Wakes the head: grants the lock to the readers there, or wakes a writer to try.
    fn wake_head(&self, queue: &mut SpinGuard<'_, Queue, WaitLock, M>) {
        let Some(head) = node_of::<M>(queue.head) else {
            return;
        };
        if M::load::<u32>(&head.node.wants, Ordering::Relaxed) == WANTS_WRITE {
            let task = queue.head;
            if self.succession() != Succession::Grant {
                M::unpark(TaskId(task));
            } else if self.take_at_head(queue) {
                self.grant(task, head);
            }
            return;
        }
        // The first reader is added before the check for a writer, so none can intervene. ORDERING:
        // Acquire; pairs with [rwsem-release], on behalf of the readers granted below.
        let old = self.count.add(READER, Ordering::Acquire);
        if old & WRITER != 0 {
            // Stolen. The stealing writer's release will wake the head again; with HANDOFF set no
            // thread steals.
            self.count.sub(READER, Ordering::Relaxed);
            if self.waited_long(queue.head) {
                self.count.or(HANDOFF, Ordering::Relaxed);
            }
            return;
        }
        // All are counted before one is woken: the first could release at once, and with a count of
        // 0 a spinning writer takes the lock.
        let first = queue.head;
        let mut readers = 0;
        while let Some(cx) = node_of::<M>(queue.head) {
            if M::load::<u32>(&cx.node.wants, Ordering::Relaxed) == WANTS_WRITE {
                break;
            }
            readers += 1;
            self.pop(queue);
        }
        if readers > 1 {
            self.count.add((readers - 1) * READER, Ordering::Relaxed);
        }
        let keep = if queue.head == 0 {
            !(WAITERS | HANDOFF)
        } else {
            !HANDOFF
        };
        self.count.and(keep, Ordering::Relaxed);
        let mut task = first;
        for _ in 0..readers {
            let Some(cx) = node_of::<M>(task) else { break };
            // A node is its owner's again as soon as it reads the grant.
            let next = M::load::<u32>(&cx.node.next, Ordering::Relaxed);
            self.grant(task, cx);
            task = next;
        }
    }

    /// Tells `task`, which is out of the queue, that it has the lock.
    fn grant(&self, task: u32, cx: &Cx) {
        // ORDERING: Release; pairs with [rwsem-grant].
        M::store::<u64>(&cx.node.granted, 1, Ordering::Release);
        M::unpark(TaskId(task));
    }

    #[cold]
    pub(super) fn release_slow(&self) {
        let mut queue = self.queue.lock();
        self.wake_head(&mut queue);
    }

    /// The caller holds the lock for reading: admits the readers at the head of the queue.
    #[cold]
    pub(super) fn let_readers_in(&self) {
        let mut queue = self.queue.lock();
        let reads = |cx: &Cx| M::load::<u32>(&cx.node.wants, Ordering::Relaxed) == WANTS_READ;
        if node_of::<M>(queue.head).is_some_and(reads) {
            self.wake_head(&mut queue);
        }
    }

    /// Appends the caller; whether the queue was empty.
    fn push(&self, queue: &mut SpinGuard<'_, Queue, WaitLock, M>, wants: u32) -> bool {
        let cx = me::<M>();
        let task = cx.task.get().0;
        M::store::<u32>(&cx.node.next, 0, Ordering::Relaxed);
        M::store::<u32>(&cx.node.wants, wants, Ordering::Relaxed);
        M::store::<u64>(&cx.node.granted, 0, Ordering::Relaxed);
        if self.succession() == Succession::HandOff
            && let Some(now) = M::clock_ns()
        {
            M::store::<u64>(&cx.node.since, now, Ordering::Relaxed);
        }
        let tail = core::mem::replace(&mut queue.tail, task);
        match node_of::<M>(tail) {
            Some(last) => M::store::<u32>(&last.node.next, task, Ordering::Relaxed),
            None => queue.head = task,
        }
        tail == 0
    }

    /// Takes the head out.
    fn pop(&self, queue: &mut SpinGuard<'_, Queue, WaitLock, M>) {
        if let Some(head) = node_of::<M>(queue.head) {
            queue.head = M::load::<u32>(&head.node.next, Ordering::Relaxed);
            if queue.head == 0 {
                queue.tail = 0;
            }
        }
    }
}
