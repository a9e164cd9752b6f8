//! The sleeping read-write semaphore of `mmap_lock` and other sleeping locks, as each
//! generation of Linux had it.
//!
//! # Problem
//! Many faults read an address space while few calls change it. Readers must run together; a writer
//! must not starve; and a waiter should not sleep when the holder is about to leave. Which waiter
//! acquires a released lock has had four answers in Linux, and decides the throughput of a
//! contended lock.
//!
//! # Idea
//! One word counts readers and flags a writer, so an uncontended reader costs one addition to take
//! and one to release. A thread that cannot take the lock queues and sleeps. The rest is the lock's
//! [`Succession`], given at construction: the head of the queue is handed the lock, and no thread
//! overtakes it; or the head is woken to try, and a newly arrived writer may steal the lock; or
//! such writers spin in a queue ([`SpinQueue`]) as long as the *writer* that holds the lock is
//! running, because it will release it soon; or, in addition, a waiter that was overtaken for too
//! long forces a hand-off.
//!
//! # Protocol
//! ```text
//! count     bit 0 WRITER   a writer holds the lock
//!           bit 1 WAITERS  the queue is not empty
//!           bit 2 HANDOFF  the head of the queue is next, no stealing
//!           8 and up       number of readers (holders, and those that are about to back off)
//! owner     the writer's task, 0 when there is none: a hint, maintained where writers spin
//! spinners  the queue of spinning writers; its mark is the succession
//! queue     of sleeping waiters, guarded by its own spinlock; nodes are in their contexts
//! ```
//! - Read: add a reader; if WRITER, WAITERS or HANDOFF was set, subtract it again and queue. With
//!   hand-off, a reader that finds the lock free keeps it all the same, and readers at the head of
//!   the queue are admitted, too.
//! - Write: exchange 0 for WRITER; else spin, at the head of the spinners; else steal the lock if
//!   it is free although others queue (not with *grant*); else queue, and try when woken at the
//!   head.
//! - Release: subtract; the last one out, if WAITERS is set, wakes the head. A head that reads is
//!   granted the lock with all readers right behind it; one that writes is woken to try, or with
//!   *grant* is granted it.
//! - Hand-off: a head that was woken in vain and has waited 4 ms sets HANDOFF; a writer spins then.
//! - Downgrade: in one step WRITER is cleared and a reader added. If WAITERS was set, readers at
//!   the head are granted the lock; a writer at the head stays asleep. With hand-off the name in
//!   `owner` stays until the holder leaves, so that a writer spins for this reader as for a writer.
//!
//! # Why it is correct
//! Only an exchange from "no writer, no readers" sets WRITER, and a reader that added itself while
//! WRITER was set subtracts itself again. WAITERS is set before a queued waiter last reads the
//! word, and a releaser reads WAITERS in the same step in which it releases, so one of the two sees
//! the other; a stealing writer leaves WAITERS set, so its release wakes the head again. A grant is
//! written after the node left the queue; the grantee returns only when it reads it, so the node is
//! not reused early. Readers admitted together are all counted before the first is woken, since it
//! may release before the second is woken. Wake tokens are sticky. Without hand-off a waiter may
//! starve, as in Linux.
//!
//! During a downgrade the word always has WRITER or a reader, so no writer intervenes. A reader
//! that saw WRITER rechecks with the queue's lock held. If the queue is empty, it holds the lock.
//! If not, either WAITERS was set before the downgrade, which then takes the queue's lock and finds
//! both waiters; or it was set after the downgrade, by a reader that then admitted itself.
//!
//! # Cost
//! Uncontended: two read-modify-writes on one line, for readers and writers alike. That line is the
//! limit of every fault that takes the lock: about 1 / (2 x line service time) faults per second. A
//! downgrade is one step more. A release transfers the line to one spinner, not to all. 24 bytes.
//!
//! Linux: lib/rwsem.c (2.6.10, 3.7, 3.14), kernel/locking/rwsem-xadd.c (v4.13), rwsem.c (v5.19);
//! commits and dates are at [`Succession`]. Differences from Linux: readers do not write `owner`; a
//! head that was woken to try is recorded only by WAITERS in the word; Linux's writers spin 10 to
//! 25 us for any readers (since 5.3), ours only for one that was the writer; a spinner stops when
//! HANDOFF is set and no writer holds the lock; a queued spinner does not learn that the writer
//! went to sleep.

mod set;
mod shown;
mod succession;
mod wait;

pub use shown::RwSemPart;
pub use succession::Succession;

use crate::atomic::Atomic;
use crate::cx::{Cx, TaskId};
use crate::lockdep::order::WaitLock;
use crate::lockdep::{self, Class, How};
use crate::machine::Machine;
use crate::prim::Ordering;
use crate::spin::SpinLock;
use crate::spin_queue::SpinQueue;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::Location;

const WRITER: u32 = 1;
const WAITERS: u32 = 1 << 1;
const HANDOFF: u32 = 1 << 2;
const READER: u32 = 1 << 8;
const READERS: u32 = !(READER - 1);

/// A sleeping read-write lock of class `C`.
pub struct RwSem<C, M: Machine> {
    count: Atomic<u32, M>,
    owner: Atomic<u32, M>,
    spinners: SpinQueue<M>,
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

/// The lock, held for reading after a downgrade.
#[must_use = "the lock is released when the guard is dropped"]
pub struct DowngradedGuard<'a, C: Class, M: Machine> {
    lock: &'a RwSem<C, M>,
    not_send: PhantomData<*mut ()>,
}

impl<C: Class, M: Machine> RwSem<C, M> {
    /// A free lock.
    pub fn new(succession: Succession) -> Self {
        Self {
            count: Atomic::new(0),
            owner: Atomic::new(0),
            spinners: SpinQueue::new(succession as u32),
            queue: SpinLock::new(Queue::default()),
            class: PhantomData,
        }
    }

    /// Takes the lock for reading; sleeps while a writer has it or waits for it.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, C, M> {
        lockdep::acquire::<C, M>(self.id(), How::Wait, Location::caller());
        self.add_reader();
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

    /// Takes the lock for writing; sleeps while it is held.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, C, M> {
        lockdep::acquire::<C, M>(self.id(), How::Wait, Location::caller());
        self.set_writer();
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
        self.name_owner(me::<M>().task.get());
        Some(WriteGuard {
            lock: self,
            not_send: PhantomData,
        })
    }

    /// Whether there are waiters in the queue, without the access hook: for oracles.
    pub fn has_waiters(&self) -> bool {
        self.count.peek() & WAITERS != 0
    }

    /// Whether it is held, without the access hook: for oracles.
    pub fn is_held(&self) -> bool {
        self.count.peek() & (WRITER | READERS) != 0
    }

    fn id(&self) -> *const () {
        core::ptr::from_ref(&self.count).cast()
    }

    /// Who has the lock next when it is released. The same always: no access.
    #[inline(always)]
    pub fn succession(&self) -> Succession {
        Succession::of(self.spinners.mark())
    }

    /// Sets the succession of an unpublished lock, or of one that has it already: for type-stable
    /// memory, where a new lock is zero.
    pub fn set_succession(&self, succession: Succession) {
        self.spinners.set_mark(succession as u32);
    }

    #[inline(always)]
    fn name_owner(&self, task: TaskId) {
        if self.succession().spins() {
            self.owner.store(task.0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn release_read(&self) {
        lockdep::release::<C, M>(self.id());
        self.sub_reader();
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

impl<C: Class, M: Machine> Drop for ReadGuard<'_, C, M> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release_read();
    }
}

impl<'a, C: Class, M: Machine> WriteGuard<'a, C, M> {
    /// Downgrades the lock to reading: other readers are admitted, and no writer is before this
    /// reader has released it, too. No write can intervene.
    ///
    /// # Context
    /// Does not sleep.
    #[inline]
    pub fn downgrade(self) -> DowngradedGuard<'a, C, M> {
        // The lock stays held.
        let lock = ManuallyDrop::new(self).lock;
        if lock.succession() == Succession::Spin {
            lock.name_owner(TaskId(0));
        }
        // ORDERING: Release; pairs with [rwsem-release].
        let old = lock
            .count
            .add(READER.wrapping_sub(WRITER), Ordering::Release);
        if old & WAITERS != 0 {
            lock.let_readers_in();
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
        if self.lock.succession() == Succession::HandOff {
            self.lock.name_owner(TaskId(0));
        }
        self.lock.release_read();
    }
}

impl<C: Class, M: Machine> Drop for WriteGuard<'_, C, M> {
    #[inline]
    fn drop(&mut self) {
        lockdep::release::<C, M>(self.lock.id());
        self.lock.clear_writer();
    }
}
