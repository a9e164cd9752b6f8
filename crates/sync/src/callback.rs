//! Grace-period callbacks, and their per-CPU queues.
//!
//! # Problem
//! Unlinking an object must not wait until its readers have left, and deferring its freeing must
//! not need memory.
//!
//! # Idea
//! The callback is embedded in the object. Each CPU queues its own; the first in the queue that are
//! not yet waiting become a *batch* with one number: the grace period after which all of it may
//! run.
//!
//! # Protocol
//! `push` puts a callback behind the others; `batch` makes a batch of everything queued, if none is
//! waiting, and returns its number; `run_due` runs the batch, once the grace period of that number
//! is over.
//!
//! # Why it is correct
//! The queue's lock guards both lists. The CPU that runs a batch has removed all of it first, so
//! that no callback runs twice, and checks that it is still the batch whose grace period ended. A
//! callback has a function from its push to its run and at no other time, so pushing a waiting one
//! is detected: a list with a member twice would lead into reused memory.
//!
//! # Cost
//! A lock of this CPU's own for each callback and each poll; nothing while nothing is queued.
//!
//! Linux: kernel/rcu/rcu_segcblist.c (v4.13), with two segments.

use crate::counter::Counter;
use crate::lockdep::order::GraceLock;
use crate::machine::Machine;
use crate::spin::SpinLock;
use core::cell::Cell;
use core::ptr::NonNull;

/// What to do when all readers of before have left: embedded in the object it is about.
#[derive(Debug)]
pub struct Callback {
    next: Cell<Option<NonNull<Callback>>>,
    run: Cell<Option<Run>>,
}

/// A callback's function: gets the argument of the poll that runs it, and the callback.
pub type Run = unsafe fn(*const (), NonNull<Callback>);

/// One CPU's callbacks.
#[derive(Debug)]
pub(crate) struct CallbackQueue<M: Machine> {
    callbacks: SpinLock<Callbacks, GraceLock, M>,
    /// How many there are; a hint that the CPU itself keeps.
    pending: Counter,
}

/// Guarded by: the lock around it.
#[derive(Debug, Default)]
struct Callbacks {
    queued: List,
    waiting: List,
    /// The grace period, counted from 1, after which `waiting` may run.
    waiting_for: u64,
}

#[derive(Debug, Default)]
struct List {
    head: Option<NonNull<Callback>>,
    tail: Option<NonNull<Callback>>,
    len: u64,
}

// SAFETY: the callbacks in a list belong to the list until run; nothing else accesses them.
unsafe impl Send for List {}

impl Callback {
    /// A callback that is in no list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            next: Cell::new(None),
            run: Cell::new(None),
        }
    }

    /// Links another object, for a caller that unlinked this one and has yet to retire it: so a
    /// list of unlinked objects needs no memory.
    pub fn remember(&self, other: Option<NonNull<()>>) {
        self.next.set(other.map(NonNull::cast));
    }

    /// Takes the remembered object.
    pub fn recall(&self) -> Option<NonNull<()>> {
        self.next.take().map(NonNull::cast)
    }
}

impl Default for Callback {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    /// # Safety
    /// 1. `callback` is valid until run, and in no list.
    unsafe fn push(&mut self, callback: NonNull<Callback>) {
        // SAFETY: 1 of this function.
        unsafe { callback.as_ref() }.next.set(None);
        match self.tail.replace(callback) {
            // SAFETY: 1 of this function held for the tail when it was pushed.
            Some(tail) => unsafe { tail.as_ref() }.next.set(Some(callback)),
            None => self.head = Some(callback),
        }
        self.len += 1;
    }
}

impl<M: Machine> CallbackQueue<M> {
    /// No callbacks.
    pub(crate) fn new() -> Self {
        Self {
            callbacks: SpinLock::new(Callbacks::default()),
            pending: Counter::new(),
        }
    }

    /// How many there are.
    #[inline(always)]
    pub(crate) fn pending(&self) -> u64 {
        self.pending.get()
    }

    /// Puts `callback` behind the others.
    ///
    /// # Safety
    /// 1. `callback` stays valid until it runs and is in no list.
    /// 2. `run` is sound for it, and for the argument given to [`CallbackQueue::run_due`].
    pub(crate) unsafe fn push(&self, callback: NonNull<Callback>, run: Run) {
        // SAFETY: 1 of this function.
        let before = unsafe { callback.as_ref() }.run.replace(Some(run));
        if before.is_some() {
            M::violation(format_args!(
                "double retire: the object is already waiting for a grace period"
            ));
        }
        let mut queue = self.callbacks.lock();
        // SAFETY: 1 of this function.
        unsafe { queue.queued.push(callback) };
        self.pending.add(1);
    }

    /// The number of the batch that waits. If none does, what is queued becomes one, with the
    /// number that `sample` gives it: that of a grace period which starts later than now.
    pub(crate) fn batch(&self, sample: impl FnOnce() -> u64) -> Option<u64> {
        let mut queue = self.callbacks.lock();
        if queue.waiting.head.is_none() && queue.queued.head.is_some() {
            queue.waiting = core::mem::take(&mut queue.queued);
            queue.waiting_for = sample();
        }
        let wanted = queue.waiting_for;
        queue.waiting.head.is_some().then_some(wanted)
    }

    /// Runs the batch of number `wanted`, unless another context does; returns how many ran.
    ///
    /// # Safety
    /// 1. The grace period `wanted` is over, and the caller has synchronized with its end.
    /// 2. `arg` is what every queued function expects.
    pub(crate) unsafe fn run_due(&self, wanted: u64, arg: *const ()) -> u64 {
        let mut queue = self.callbacks.lock();
        if queue.waiting_for != wanted {
            return 0;
        }
        let due = core::mem::take(&mut queue.waiting);
        self.pending.add(0u64.wrapping_sub(due.len));
        drop(queue);
        let mut next = due.head;
        while let Some(callback) = next {
            // SAFETY: 1 of `push`: valid until run.
            let this = unsafe { callback.as_ref() };
            next = this.next.get();
            if let Some(run) = this.run.take() {
                // SAFETY: 2 of `push`; 2 of this function.
                unsafe { run(arg, callback) };
            }
        }
        due.len
    }
}
