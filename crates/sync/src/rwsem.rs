//! The sleeping read-write lock, as `mmap_lock` has been since 2014: optimistic spinning, a queue,
//! and hand-off.
//!
//! # Problem
//! Many faults read an address space while few calls change it. Readers must run together; a
//! writer must not starve; and a waiter should not sleep when the holder is about to let go.
//!
//! # Idea
//! One word counts readers and flags a writer, so an undisturbed reader costs one addition to take
//! and one to release. Whoever cannot have the lock queues and sleeps; but a writer first spins as
//! long as the present *writer* is running, because it will be done soon. Stealing by such spinners
//! is limited: a waiter at the head who was woken in vain sets the hand-off flag, and from then on
//! nobody overtakes.
//!
//! # Protocol
//! ```text
//! count   bit 0 WRITER   a writer holds the lock
//!         bit 1 WAITERS  the queue is not empty
//!         bit 2 HANDOFF  the head of the queue is next, no stealing
//!         8 and up       number of readers (those inside, and those about to find out)
//! owner   the writer's task, 0 when there is none: a hint for spinners
//! queue   guarded by its own spinning lock; nodes lie in the waiters' contexts
//! ```
//! - Read: add a reader; if WRITER, WAITERS or HANDOFF was set, take it back and queue.
//! - Write: exchange 0 for WRITER; else spin; else queue and try whenever woken at the head.
//! - Release: subtract; the last one out, if WAITERS is set, wakes the head. A head that reads is
//!   granted the lock with all readers right behind it; one that writes is woken to try.
//! - Downgrade: in one step WRITER goes and a reader comes. If WAITERS was set, readers at the head
//!   are granted the lock; a writer at the head sleeps on. The name in `owner` stays until the
//!   holder lets go, so that a writer spins for this reader as for a writer.
//!
//! # Why it is correct
//! Only an exchange from "no writer, no readers" sets WRITER, and a reader that added itself beside
//! a WRITER takes itself back. WAITERS is set before a queued waiter last looks at the word, and a
//! releaser looks at WAITERS in the same step in which it releases, so one of the two sees the
//! other. A grant is written after the node is out of the queue; the grantee leaves only when it
//! reads it, so the node is not reused early. Readers let in together are all counted before the
//! first is told, who may leave before the second is. Wake tokens are sticky.
//!
//! There is no moment at which a downgrade has neither WRITER nor a reader in the word, so no
//! writer comes in between. A reader that saw the WRITER looks again with the queue's lock held: if
//! nobody queues it is inside; if somebody does, WAITERS was set before the downgrade, which then
//! comes for that lock and finds both, or after it, by a reader that came in by himself.
//!
//! # Cost
//! Undisturbed: two read-modify-writes on one line, for readers and writers alike. That line is the
//! limit of every fault that takes the lock: about 1 / (2 x line service time) faults per second. A
//! downgrade is one step more.
//!
//! Linux: kernel/locking/rwsem.c (v4.13 for the queue and spinning, v5.x for the word's layout,
//! hand-off and downgrade). Linux's spinners queue among themselves (`osq_lock`); ours all watch
//! the word. Its writers spin for readers, 10 to 25 us (v5.3); ours for who was one, while he runs.

mod shown;

pub use shown::RwSemPart;

use crate::atomic::Atomic;
use crate::cx::{Cx, TaskId};
use crate::lockdep::order::WaitLock;
use crate::lockdep::{self, Class, How};
use crate::machine::Machine;
use crate::phase::Phase;
use crate::prim::Ordering;
use crate::spin::{SpinGuard, SpinLock};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::Location;

const WRITER: u64 = 1;
const WAITERS: u64 = 1 << 1;
const HANDOFF: u64 = 1 << 2;
const READER: u64 = 1 << 8;
const READERS: u64 = !(READER - 1);

const WANTS_READ: u32 = 1;
const WANTS_WRITE: u32 = 2;

/// A sleeping read-write lock of class `C`.
pub struct RwSem<C, M: Machine> {
    count: Atomic<u64, M>,
    owner: Atomic<u32, M>,
    queue: SpinLock<Queue, WaitLock, M>,
    class: PhantomData<fn() -> C>,
}

/// Guarded by: the lock around it.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    head: u32,
    tail: u32,
}

/// The lock, held for reading.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<'a, C: Class, M: Machine> {
    lock: &'a RwSem<C, M>,
    not_send: PhantomData<*mut ()>,
}

/// The lock, held for writing.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<'a, C: Class, M: Machine> {
    lock: &'a RwSem<C, M>,
    not_send: PhantomData<*mut ()>,
}

/// The lock, held for reading by who had it for writing just before.
#[must_use = "the lock is released when the guard is dropped"]
pub struct DowngradedGuard<'a, C: Class, M: Machine> {
    lock: &'a RwSem<C, M>,
    not_send: PhantomData<*mut ()>,
}

impl<C: Class, M: Machine> RwSem<C, M> {
    /// A free lock.
    pub fn new() -> Self {
        Self {
            count: Atomic::new(0),
            owner: Atomic::new(0),
            queue: SpinLock::new(Queue::default()),
            class: PhantomData,
        }
    }

    /// Takes the lock for reading; sleeps while a writer has it or waits for it.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, C, M> {
        lockdep::acquire::<C, M>(self.id(), How::Wait, Location::caller());
        // ORDERING: Acquire; pairs with [rwsem-release].
        let old = self.count.add(READER, Ordering::Acquire);
        if old & (WRITER | WAITERS | HANDOFF) != 0 {
            self.read_slow();
        }
        ReadGuard {
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Takes the lock for reading if that needs no waiting.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<ReadGuard<'_, C, M>> {
        let mut old = self.count.load(Ordering::Relaxed);
        loop {
            if old & (WRITER | WAITERS | HANDOFF) != 0 {
                return None;
            }
            // ORDERING: Acquire; pairs with [rwsem-release].
            match self
                .count
                .cas(old, old + READER, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(found) => old = found,
            }
        }
        lockdep::acquire::<C, M>(self.id(), How::Tried, Location::caller());
        Some(ReadGuard {
            lock: self,
            not_send: PhantomData,
        })
    }

    /// Takes the lock for writing; sleeps while anybody has it.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, C, M> {
        lockdep::acquire::<C, M>(self.id(), How::Wait, Location::caller());
        // ORDERING: Acquire; pairs with [rwsem-release].
        let free = self
            .count
            .cas(0, WRITER, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if !free && !self.spin_on_owner() {
            self.write_slow();
        }
        self.owner.store(me::<M>().task.get().0, Ordering::Relaxed);
        WriteGuard {
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Takes the lock for writing if that needs no waiting.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Option<WriteGuard<'_, C, M>> {
        // ORDERING: Acquire; pairs with [rwsem-release].
        let taken = self
            .count
            .cas(0, WRITER, Ordering::Acquire, Ordering::Relaxed);
        taken.ok()?;
        lockdep::acquire::<C, M>(self.id(), How::Tried, Location::caller());
        self.owner.store(me::<M>().task.get().0, Ordering::Relaxed);
        Some(WriteGuard {
            lock: self,
            not_send: PhantomData,
        })
    }

    /// Whether anybody waits in the queue, without the door: for oracles.
    pub fn has_waiters(&self) -> bool {
        self.count.peek() & WAITERS != 0
    }

    /// Whether anybody holds it, without the door: for oracles.
    pub fn is_held(&self) -> bool {
        self.count.peek() & (WRITER | READERS) != 0
    }

    fn id(&self) -> *const () {
        core::ptr::from_ref(&self.count).cast()
    }

    #[cold]
    fn read_slow(&self) {
        let node = &me::<M>().node;
        let mut queue = self.queue.lock();
        // Nobody queues and no writer is inside: the addition made by the fast path stands.
        // Queueing here would show WAITERS to the next reader, and so on: a convoy of readers only.
        // ORDERING: Acquire; pairs with [rwsem-release].
        let free = self.count.load(Ordering::Acquire) & (WRITER | HANDOFF) == 0;
        if queue.head == 0 && free {
            return;
        }
        let first = self.push(&mut queue, WANTS_READ);
        // Takes the reader added by the fast path back, and shows that somebody waits.
        let add = if first {
            WAITERS.wrapping_sub(READER)
        } else {
            0u64.wrapping_sub(READER)
        };
        let now = self.count.add(add, Ordering::Relaxed).wrapping_add(add);
        if now & WRITER == 0 && (first || now & READERS == 0) {
            self.wake_head(&mut queue);
        }
        drop(queue);
        // ORDERING: Acquire; pairs with [rwsem-grant].
        while M::load::<u64>(&node.granted, Ordering::Acquire) == 0 {
            lockdep::might_sleep::<M>();
            M::phase(Phase::Sleep(self.id()));
            M::park();
        }
    }

    /// Spins while the writer inside, or the reader who was the writer, is running; true when the
    /// lock was taken that way.
    fn spin_on_owner(&self) -> bool {
        loop {
            let count = self.count.load(Ordering::Relaxed);
            if count & HANDOFF != 0 {
                return false;
            }
            if count & (WRITER | READERS) == 0 {
                // ORDERING: Acquire; pairs with [rwsem-release].
                let taken =
                    self.count
                        .cas(count, count | WRITER, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    return true;
                }
                continue;
            }
            let owner = TaskId(self.owner.load(Ordering::Relaxed));
            let soon = match owner {
                // A writer that has not yet written, or has already cleared, its name is running.
                TaskId(0) => count & WRITER != 0,
                owner => M::is_running(owner),
            };
            if !soon {
                return false;
            }
            match count & WRITER {
                // He runs, elsewhere; another reader may wait for this very CPU.
                0 => self.owner.wait_until(!0, 0),
                _ => self.count.wait_until(WRITER, 0),
            }
        }
    }

    #[cold]
    fn write_slow(&self) {
        let my_task = me::<M>().task.get().0;
        let mut queue = self.queue.lock();
        if self.push(&mut queue, WANTS_WRITE) {
            self.count.or(WAITERS, Ordering::Relaxed);
        }
        let mut woken = false;
        while !(queue.head == my_task && self.take_at_head(&mut queue)) {
            if woken && queue.head == my_task {
                self.count.or(HANDOFF, Ordering::Relaxed);
                // The lock may have been released between the look and the flag.
                if self.take_at_head(&mut queue) {
                    break;
                }
            }
            drop(queue);
            lockdep::might_sleep::<M>();
            M::phase(Phase::Sleep(self.id()));
            M::park();
            woken = true;
            queue = self.queue.lock();
        }
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

    /// Wakes the head: grants the lock to the readers there, or tells a writer to try.
    fn wake_head(&self, queue: &mut SpinGuard<'_, Queue, WaitLock, M>) {
        let Some(head) = node_of::<M>(queue.head) else {
            return;
        };
        if M::load::<u32>(&head.node.wants, Ordering::Relaxed) == WANTS_WRITE {
            M::unpark(TaskId(queue.head));
            return;
        }
        // The first reader is added before the look for a writer, so none can come in between.
        // ORDERING: Acquire; pairs with [rwsem-release], on behalf of the readers granted below.
        let old = self.count.add(READER, Ordering::Acquire);
        if old & WRITER != 0 {
            // Stolen. The thief's release will wake the head again; nobody steals after that.
            self.count.sub(READER, Ordering::Relaxed);
            self.count.or(HANDOFF, Ordering::Relaxed);
            return;
        }
        // All are counted before one is told: the first could come and go, and while nobody is
        // counted a spinning writer takes the lock.
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
            // A node is its owner's again as soon as he reads the grant.
            let next = M::load::<u32>(&cx.node.next, Ordering::Relaxed);
            // ORDERING: Release; pairs with [rwsem-grant].
            M::store::<u64>(&cx.node.granted, 1, Ordering::Release);
            M::unpark(TaskId(task));
            task = next;
        }
    }

    #[cold]
    fn release_slow(&self) {
        let mut queue = self.queue.lock();
        self.wake_head(&mut queue);
    }

    /// The writer has become a reader: lets those at the head in who read.
    #[cold]
    fn downgrade_slow(&self) {
        let mut queue = self.queue.lock();
        let reads = |cx: &Cx| M::load::<u32>(&cx.node.wants, Ordering::Relaxed) == WANTS_READ;
        if node_of::<M>(queue.head).is_some_and(reads) {
            self.wake_head(&mut queue);
        }
    }

    #[inline]
    fn release_read(&self) {
        lockdep::release::<C, M>(self.id());
        // ORDERING: Release; pairs with [rwsem-release].
        let old = self.count.sub(READER, Ordering::Release);
        if old & WAITERS != 0 && old & READERS == READER {
            self.release_slow();
        }
    }

    /// Appends the caller; whether the queue was empty.
    fn push(&self, queue: &mut SpinGuard<'_, Queue, WaitLock, M>, wants: u32) -> bool {
        let cx = me::<M>();
        let task = cx.task.get().0;
        M::store::<u32>(&cx.node.next, 0, Ordering::Relaxed);
        M::store::<u32>(&cx.node.wants, wants, Ordering::Relaxed);
        M::store::<u64>(&cx.node.granted, 0, Ordering::Relaxed);
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

fn me<'a, M: Machine>() -> &'a Cx {
    // SAFETY: duty 1 of `Machine`.
    unsafe { &*M::cx() }
}

fn node_of<'a, M: Machine>(task: u32) -> Option<&'a Cx> {
    // SAFETY: duty 3 of `Machine`: a queued task exists.
    (task != 0).then(|| unsafe { &*M::context(TaskId(task)) })
}

impl<C: Class, M: Machine> Default for RwSem<C, M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Class, M: Machine> Drop for ReadGuard<'_, C, M> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release_read();
    }
}

impl<'a, C: Class, M: Machine> WriteGuard<'a, C, M> {
    /// Holds the lock for reading from here on: other readers come in, and no writer does until
    /// this one has gone, too. What was written stays as it is in between.
    ///
    /// # Context
    /// Does not sleep.
    #[inline]
    pub fn downgrade(self) -> DowngradedGuard<'a, C, M> {
        // The lock stays held.
        let lock = ManuallyDrop::new(self).lock;
        // ORDERING: Release; pairs with [rwsem-release].
        let old = lock
            .count
            .add(READER.wrapping_sub(WRITER), Ordering::Release);
        if old & WAITERS != 0 {
            lock.downgrade_slow();
        }
        DowngradedGuard {
            lock,
            not_send: PhantomData,
        }
    }
}

impl<C: Class, M: Machine> Drop for DowngradedGuard<'_, C, M> {
    #[inline]
    fn drop(&mut self) {
        self.lock.owner.store(0, Ordering::Relaxed);
        self.lock.release_read();
    }
}

impl<C: Class, M: Machine> Drop for WriteGuard<'_, C, M> {
    #[inline]
    fn drop(&mut self) {
        let lock = self.lock;
        lockdep::release::<C, M>(lock.id());
        lock.owner.store(0, Ordering::Relaxed);
        // ORDERING: Release; pairs with [rwsem-release].
        let old = lock.count.sub(WRITER, Ordering::Release);
        if old & WAITERS != 0 {
            lock.release_slow();
        }
    }
}
