//! The sleeping read-write semaphore of `mmap_lock` and other sleeping locks, as each
//! generation of Linux had it.
//!
//! # Problem
//! Many faults read an address space while few calls change it. Readers must run together; a
//! writer must not starve; and a waiter should not sleep when the holder is about to leave. Who has
//! the lock next when it is released has had four answers in Linux, and decides what a contended
//! lock yields.
//!
//! # Idea
//! One word counts readers and flags a writer, so an undisturbed reader costs one addition to take
//! and one to release. Who cannot have the lock queues and sleeps. The rest is the lock's
//! [`Succession`], told when it is made: the head of the queue is handed the lock and nobody
//! overtakes; or it is woken to try, and a writer that comes meanwhile takes the lock; or such
//! writers spin, one behind the other ([`SpinQueue`]), as long as the *writer* inside is running,
//! because that will be done soon; or, beside this, a waiter that was overtaken for long ends the
//! overtaking.
//!
//! # Protocol
//! ```text
//! count     bit 0 WRITER   a writer holds the lock
//!           bit 1 WAITERS  the queue is not empty
//!           bit 2 HANDOFF  the head of the queue is next, no stealing
//!           8 and up       number of readers (those inside, and those about to find out)
//! owner     the writer's task, 0 when there is none: a hint for spinners, kept where there are any
//! spinners  the queue of those who spin; its mark is the succession
//! queue     of those who sleep, guarded by its own spinning lock; nodes lie in their contexts
//! ```
//! - Read: add a reader; if WRITER, WAITERS or HANDOFF was set, take it back and queue. With
//!   hand-off, a lock that nobody holds is kept nevertheless, and readers at the head come in, too.
//! - Write: exchange 0 for WRITER; else spin, at the head of the spinners; else take the lock if it
//!   is free though others queue (not with *grant*); else queue, and try when woken at the head.
//! - Release: subtract; the last one out, if WAITERS is set, wakes the head. A head that reads is
//!   granted the lock with all readers right behind it; one that writes is woken to try, or with
//!   *grant* is granted it.
//! - Hand-off: a head that was woken in vain and has waited 4 ms sets HANDOFF; a writer spins then.
//! - Downgrade: in one step WRITER goes and a reader comes. If WAITERS was set, readers at the head
//!   are granted the lock; a writer at the head sleeps on. With hand-off the name in `owner` stays
//!   until the holder leaves, so that a writer spins for this reader as for a writer.
//!
//! # Why it is correct
//! Only an exchange from "no writer, no readers" sets WRITER, and a reader that added itself beside
//! a WRITER takes itself back. WAITERS is set before a queued waiter last looks at the word, and a
//! releaser looks at WAITERS in the same step in which it releases, so one of the two sees the
//! other; a thief leaves WAITERS as it is, so its release wakes the head again. A grant is written
//! after the node is out of the queue; the grantee leaves only when it reads it, so the node is not
//! reused early. Readers let in together are all counted before the first is told, who may leave
//! before the second is. Wake tokens are sticky. Without hand-off a waiter may starve, as in Linux.
//!
//! There is no moment at which a downgrade has neither WRITER nor a reader in the word, so no
//! writer comes in between. A reader that saw the WRITER looks again with the queue's lock held: if
//! nobody queues it is inside; if somebody does, WAITERS was set before the downgrade, which then
//! comes for that lock and finds both, or after it, by a reader that came in by itself.
//!
//! # Cost
//! Undisturbed: two read-modify-writes on one line, for readers and writers alike. That line is the
//! limit of every fault that takes the lock: about 1 / (2 x line service time) faults per second. A
//! downgrade is one step more. A release goes to one spinner, not to all. 24 bytes.
//!
//! Linux: lib/rwsem.c (2.6.10, 3.7, 3.14), kernel/locking/rwsem-xadd.c (v4.13), rwsem.c (v5.19);
//! commits and dates stand at [`Succession`]. Not as there: readers do not write `owner`; a head
//! that was told to try keeps its place in the word's WAITERS only; writers spin 10 to 25 us for
//! any readers (since 5.3), ours for one that was the writer; a spinner stops where HANDOFF is set
//! and nobody writes; a spinner that waits is not told that the writer went to sleep.

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

/// The lock, held for reading by who had it for writing just before.
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
        // ORDERING: Acquire; pairs with [rwsem-release].
        let old = self.count.add(READER, Ordering::Acquire);
        if old & (WRITER | WAITERS | HANDOFF) != 0 {
            self.read_slow(old);
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
        if !free {
            self.write_contended();
        }
        self.name_owner(me::<M>().task.get());
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

    /// Sets that of a lock that nobody knows, or that has it already: for memory that outlives the
    /// lock in it, where it was zero.
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
        // ORDERING: Release; pairs with [rwsem-release].
        let old = self.count.sub(READER, Ordering::Release);
        if old & WAITERS != 0 && old & READERS == READER {
            self.release_slow();
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
        let lock = self.lock;
        lockdep::release::<C, M>(lock.id());
        lock.name_owner(TaskId(0));
        // ORDERING: Release; pairs with [rwsem-release].
        let old = lock.count.sub(WRITER, Ordering::Release);
        if old & WAITERS != 0 {
            lock.release_slow();
        }
    }
}
