//! Wait queues of userfaultfd: faulting threads, and handlers that wait for a fault.
//!
//! # Problem
//! A faulting thread sleeps until a handler wakes its address; a handler sleeps until there is such
//! a thread. Either may be torn down first.
//!
//! # Idea
//! One list per address space, of queue entries from a slab. A thread that sleeps inserts its entry
//! and removes it itself; a thread that wakes it only marks the entry.
//!
//! # Protocol
//! All of it under one spinlock. Sleep: insert the entry; release the lock; park until the entry is
//! marked. Wake: mark; unpark.
//!
//! # Why it is correct
//! Wake tokens are sticky, so a mark between the check and the sleep is not lost. An entry is freed
//! by its owner under the lock, after which no other thread finds it.
//!
//! # Cost
//! A walk of the list, which is as long as the number of waiting threads.

use crate::base::error::NoMemory;
use crate::base::event::Event;
use crate::mm::Mm;
use core::iter::successors;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Access, Mmu};
use minflt_sync::lockdep::might_sleep;
use minflt_sync::order::WaitLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Ordering, Owned, SpinLock, TaskId, this_task};

/// Whether a page is write-protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteProtected {
    /// Stores go on.
    No,
    /// A store is for the handler.
    Yes,
}

/// Why a fault is a handler's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// There is no page.
    Missing,
    /// The handler protects the page.
    WriteProtected,
}

/// A fault, as its handler reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The page.
    pub addr: VirtAddr,
    /// What was tried.
    pub access: Access,
    /// Why it waits.
    pub reason: Reason,
}

/// How a userfaultfd's faults are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UffdFaults {
    /// The thread waits, and the handler reads of it.
    Wait,
    /// The thread gets SIGBUS, as behind the end of a file; a system call that accesses the page
    /// fails. No thread waits. Linux: `UFFD_FEATURE_SIGBUS`.
    Signal,
}

/// What became of a thread that faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queued {
    /// It is in the queue.
    Waits,
    /// It is not to wait.
    Signal,
    /// There is no handler any more.
    Nobody,
}

/// The most userfaultfds that an address space has at a time: as many as Linux by default lets a
/// process open files.
const MOST: u64 = 1024;

/// A userfaultfd that has not ended.
#[derive(Debug)]
pub(crate) struct Context {
    next: Option<Owned<Self>>,
    number: u16,
    faults: UffdFaults,
}

/// A place in the queue. Guarded by: the queue's lock.
#[derive(Debug)]
pub(crate) struct Waiter {
    next: Option<Owned<Self>>,
    task: TaskId,
    /// Whose.
    number: u16,
    what: What,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// A thread that faulted.
    Fault(Message),
    /// A handler.
    Handler,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    New,
    /// A handler knows of it.
    Read,
    /// It may go on.
    Woken,
}

impl SlabObject for Context {}
impl SlabObject for Waiter {}

/// Guarded by: the lock around it.
#[derive(Debug)]
struct Queue {
    contexts: Option<Owned<Context>>,
    /// The newest first.
    waiters: Option<Owned<Waiter>>,
    last_number: u16,
}

/// The userfaultfds of an address space, and their waiters.
pub(crate) struct Userfaults<M: Mmu> {
    /// How many userfaultfds there are.
    contexts: Atomic<u64, M>,
    queue: SpinLock<Queue, WaitLock, M>,
}

impl<M: Mmu> Userfaults<M> {
    pub(crate) fn new() -> Self {
        Self {
            contexts: Atomic::new(0),
            queue: SpinLock::new(Queue {
                contexts: None,
                waiters: None,
                last_number: 0,
            }),
        }
    }
}

impl Queue {
    fn knows(&self, number: u16) -> bool {
        self.faults_of(number).is_some()
    }

    /// How faults are reported by the userfaultfd of this number, if there is one.
    fn faults_of(&self, number: u16) -> Option<UffdFaults> {
        let mut contexts = successors(self.contexts.as_ref(), |context| context.next.as_ref());
        let found = contexts.find(|context| context.number == number);
        found.map(|context| context.faults)
    }

    /// An unused userfaultfd number; 0 is never used.
    fn unused_number(&self) -> Option<u16> {
        let others = (1..=u16::MAX).map(|step| self.last_number.wrapping_add(step));
        others
            .chain([self.last_number])
            .find(|number| *number != 0 && !self.knows(*number))
    }

    /// Calls `visit` with each entry, the newest first, until it returns stop.
    fn visit(&mut self, mut visit: impl FnMut(&mut Waiter) -> Go) {
        let mut at = self.waiters.as_mut();
        while let Some(waiter) = at {
            if visit(waiter) == Go::Stop {
                return;
            }
            at = waiter.next.as_mut();
        }
    }

    /// Takes the place of `task` out, if it is `state`.
    fn take_out(&mut self, task: TaskId, needs: Option<State>) -> Taken {
        let may_go = |waiter: &Waiter| needs.is_none_or(|state| waiter.state == state);
        let taken = Owned::take_out(
            &mut self.waiters,
            |waiter| waiter.task == task && may_go(waiter),
            |waiter| &mut waiter.next,
        );
        if let Some(waiter) = taken {
            return Taken::Out(waiter);
        }
        let mut waiters = successors(self.waiters.as_ref(), |waiter| waiter.next.as_ref());
        match waiters.any(|waiter| waiter.task == task) {
            true => Taken::NotYet,
            false => Taken::Nothing,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    Stop,
}

enum Taken {
    Nothing,
    NotYet,
    Out(Owned<Waiter>),
}

impl<M: Mmu> Mm<M> {
    /// Begins a userfaultfd; returns its number.
    ///
    /// # Errors
    /// No memory, or there are [`MOST`] already.
    pub(crate) fn new_context(&self, faults: UffdFaults) -> Result<u16, NoMemory> {
        let sys = self.system();
        let context = Context {
            next: None,
            number: 0,
            faults,
        };
        let mut new = sys.uffds.alloc_owned(context, sys).map_err(|_| NoMemory)?;
        let mut queue = self.uffd.queue.lock();
        let room = self.uffd.contexts.load(Ordering::Relaxed) < MOST;
        let Some(number) = room.then(|| queue.unused_number()).flatten() else {
            drop(queue);
            sys.uffds.put_back(new, sys);
            return Err(NoMemory);
        };
        new.number = number;
        new.next = queue.contexts.take();
        queue.contexts = Some(new);
        queue.last_number = number;
        self.uffd.contexts.add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// Closes a userfaultfd and wakes its waiters.
    pub(crate) fn end_context(&self, number: u16) {
        let mut queue = self.uffd.queue.lock();
        let ended = Owned::take_out(
            &mut queue.contexts,
            |context| context.number == number,
            |context| &mut context.next,
        );
        queue.visit(|waiter| {
            if waiter.number == number {
                mark::<M>(waiter);
            }
            Go::On
        });
        drop(queue);
        if let Some(context) = ended {
            self.system().uffds.put_back(context, self.system());
            self.uffd.contexts.sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the userfaultfd of this number, if it is one, has not ended.
    pub(crate) fn is_watched_by(&self, number: u16) -> bool {
        number != 0 && self.uffd.queue.lock().knows(number)
    }

    /// How many userfaultfds there are, without the door: for oracles.
    pub(crate) fn count_contexts(&self) -> u64 {
        self.uffd.contexts.peek()
    }

    /// `range` was unmapped: wakes the threads that wait there, if the address space has any
    /// userfaultfd.
    #[inline]
    pub(crate) fn wake_unmapped(&self, range: VirtRange) {
        if self.uffd.contexts.load(Ordering::Relaxed) != 0 {
            self.wake_userfaults(range);
        }
    }

    /// Queues the calling thread for a handler, and wakes a handler, if the thread must wait.
    pub(crate) fn queue_userfault(
        &self,
        number: u16,
        addr: VirtAddr,
        access: Access,
        reason: Reason,
    ) -> Result<Queued, NoMemory> {
        if self.uffd.queue.lock().faults_of(number) == Some(UffdFaults::Signal) {
            return Ok(Queued::Signal);
        }
        let message = Message {
            addr,
            access,
            reason,
        };
        let queued = self.enqueue(number, What::Fault(message))?;
        if queued {
            self.system().count(Event::Userfaults);
            M::note(format_args!("fault {addr} waits for a handler"));
        }
        Ok(if queued {
            Queued::Waits
        } else {
            Queued::Nobody
        })
    }

    fn enqueue(&self, number: u16, what: What) -> Result<bool, NoMemory> {
        let sys = self.system();
        let waiter = Waiter {
            next: None,
            task: this_task::<M>(),
            number,
            what,
            state: State::New,
        };
        let mut new = sys.waiters.alloc_owned(waiter, sys).map_err(|_| NoMemory)?;
        let mut queue = self.uffd.queue.lock();
        if !queue.knows(number) {
            drop(queue);
            sys.waiters.put_back(new, sys);
            return Ok(false);
        }
        new.next = queue.waiters.take();
        queue.waiters = Some(new);
        if what != What::Handler {
            wake_handler::<M>(&mut queue, number);
        }
        Ok(true)
    }

    /// Leaves the queue again without having waited.
    pub(crate) fn leave_queue(&self) {
        let taken = self.uffd.queue.lock().take_out(this_task::<M>(), None);
        self.free_place(taken);
    }

    /// Sleeps until the calling task's place in the queue is marked, and leaves it; at once where
    /// it has none.
    ///
    /// # Context
    /// Holds nothing. Sleeps.
    #[cold]
    #[inline(never)]
    pub(crate) fn await_wake(&self) {
        loop {
            let task = this_task::<M>();
            let taken = self.uffd.queue.lock().take_out(task, Some(State::Woken));
            if !matches!(taken, Taken::NotYet) {
                return self.free_place(taken);
            }
            might_sleep::<M>();
            M::park();
        }
    }

    fn free_place(&self, taken: Taken) {
        if let Taken::Out(place) = taken {
            self.system().waiters.put_back(place, self.system());
        }
    }

    /// The oldest fault that no handler has read.
    pub(crate) fn next_userfault(&self, number: u16) -> Option<Message> {
        let mut queue = self.uffd.queue.lock();
        let mut oldest = None;
        queue.visit(|waiter| {
            if waiter.number == number
                && waiter.state == State::New
                && let What::Fault(message) = waiter.what
            {
                oldest = Some((waiter.task, message));
            }
            Go::On
        });
        let (task, message) = oldest?;
        queue.visit(|waiter| {
            if waiter.task != task {
                return Go::On;
            }
            waiter.state = State::Read;
            Go::Stop
        });
        Some(message)
    }

    /// A handler sleeps until there may be a fault to read.
    pub(crate) fn await_userfault(&self, number: u16) -> Result<(), NoMemory> {
        self.enqueue(number, What::Handler)?;
        // A fault may have been queued before this entry was inserted.
        let mut queue = self.uffd.queue.lock();
        let mut waits = Go::On;
        queue.visit(|waiter| {
            let fault = waiter.number == number && matches!(waiter.what, What::Fault(_));
            if fault && waiter.state == State::New {
                waits = Go::Stop;
            }
            waits
        });
        if waits == Go::Stop {
            wake_handler::<M>(&mut queue, number);
        }
        drop(queue);
        self.await_wake();
        Ok(())
    }

    /// Wakes the threads that wait in `range`.
    pub(crate) fn wake_userfaults(&self, range: VirtRange) {
        let mut queue = self.uffd.queue.lock();
        queue.visit(|waiter| {
            if let What::Fault(message) = waiter.what
                && range.contains(message.addr)
            {
                mark::<M>(waiter);
            }
            Go::On
        });
    }
}

/// Wakes one handler that waits.
fn wake_handler<M: Mmu>(queue: &mut Queue, number: u16) {
    queue.visit(|waiter| {
        let waits = waiter.what == What::Handler && waiter.state == State::New;
        if !waits || waiter.number != number {
            return Go::On;
        }
        mark::<M>(waiter);
        Go::Stop
    });
}

/// Marks an entry and wakes its thread.
fn mark<M: Mmu>(waiter: &mut Waiter) {
    if waiter.state != State::Woken {
        waiter.state = State::Woken;
        M::unpark(waiter.task);
    }
}
