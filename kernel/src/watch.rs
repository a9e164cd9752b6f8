//! Tasks that wait until something else than a task changes: a pipe, a terminal, a child.
//!
//! # Problem
//! A task may wait for many things at once (poll), a thing may have any number of waiters, and
//! neither may need memory.
//!
//! # Idea
//! A thing has a bit for each task. A waiter sets its bit, looks, and sleeps; a task that changes
//! the thing takes the bits and wakes their tasks. A bit that is left behind costs a stray wake-up,
//! which all sleepers here bear.
//!
//! # Protocol
//! ```text
//! waiter                          changer of the thing
//! set the bit                     change it
//! look: it is as wanted? go on    take all bits
//! sleep; begin again              wake their tasks
//! ```
//!
//! # Why it is correct
//! Both sides write, then read, and both do so by locked instructions, which no later load
//! overtakes. So either the waiter sees the change, or the other one sees its bit. A wake-up before
//! the sleep leaves a token ([`sched`]), so that the sleep ends at once.
//!
//! # Cost
//! One locked instruction on a shared line where no task waits.

use minflt_mm::Errno;
use minflt_sync::{Atomic, Ordering, TaskId};

use crate::linux::{ETIMEDOUT, RESTART_IF_ASKED};
use crate::machine::{self, Kernel};
use crate::sched;
use crate::task;
use crate::user;

/// Words of bits: for all tasks that there may be.
const WORDS: usize = task::MOST.div_ceil(64);

/// Those that wait for a thing.
#[derive(Debug)]
pub(crate) struct Watchers {
    /// A bit for each word that is not 0.
    summary: Atomic<u64, Kernel>,
    words: [Atomic<u64, Kernel>; WORDS],
}

impl Watchers {
    /// None.
    pub(crate) fn new() -> Self {
        Self {
            summary: Atomic::new(0),
            words: core::array::from_fn(|_| Atomic::new(0)),
        }
    }

    /// The caller is woken by the next change: it looks now, and sleeps then.
    pub(crate) fn watch(&self) {
        let number = task::current().id().0 as usize;
        let (word, bit) = (number / 64, 1 << (number % 64));
        // ORDERING: SeqCst, both: the look comes after; pairs with [kernel-watch].
        self.words[word].or(bit, Ordering::SeqCst);
        self.summary.or(1 << word, Ordering::SeqCst);
    }

    /// The thing has changed: wakes all that wait.
    pub(crate) fn wake(&self) {
        // ORDERING: SeqCst: the change comes before; pairs with [kernel-watch].
        if self.summary.or(0, Ordering::SeqCst) == 0 {
            return;
        }
        let mut words = self.summary.swap(0, Ordering::SeqCst);
        while words != 0 {
            let word = words.trailing_zeros() as usize;
            words &= words - 1;
            let mut bits = self.words[word].swap(0, Ordering::SeqCst);
            while bits != 0 {
                let number = 64 * word as u32 + bits.trailing_zeros();
                bits &= bits - 1;
                if let Some(task) = task::find(TaskId(number)) {
                    sched::unpark(task);
                }
            }
        }
    }
}

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A signal is to be handled, or the process ends.
    Interrupted,
    /// The time is over.
    Late,
}

impl From<Ended> for Errno {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Interrupted => RESTART_IF_ASKED,
            Ended::Late => ETIMEDOUT,
        }
    }
}

/// Sleeps until `look` finds what the caller wants, a signal comes, or the deadline. `look` is to
/// [`Watchers::watch`] whatever may change that, before it looks at it.
pub(crate) fn wait<R>(
    deadline: Option<u64>,
    mut look: impl FnMut() -> Option<R>,
) -> Result<R, Ended> {
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if user::is_interrupted() {
            return Err(Ended::Interrupted);
        }
        if deadline.is_some_and(|at| machine::now_ns() >= at) {
            return Err(Ended::Late);
        }
        user::park_until(deadline);
    }
}

/// A lock whose holder may sleep, and fault. It is not part of the lock order: a task that holds
/// one takes others of the library as if it had none.
#[derive(Debug)]
pub(crate) struct Mutex {
    taken: Atomic<u32, Kernel>,
    watchers: Watchers,
}

/// The lock, taken.
pub(crate) struct MutexGuard<'m>(&'m Mutex);

impl Mutex {
    /// A free one.
    pub(crate) fn new() -> Self {
        Self {
            taken: Atomic::new(0),
            watchers: Watchers::new(),
        }
    }

    fn try_take(&self) -> bool {
        // ORDERING: Acquire; pairs with [kernel-mutex].
        self.taken.swap(1, Ordering::Acquire) == 0
    }

    /// Takes it; sleeps until it is free, whatever signal comes.
    pub(crate) fn lock(&self) -> MutexGuard<'_> {
        while !self.try_take() {
            self.watchers.watch();
            if self.try_take() {
                break;
            }
            sched::park_until(None);
        }
        MutexGuard(self)
    }
}

impl Drop for MutexGuard<'_> {
    fn drop(&mut self) {
        // ORDERING: Release; pairs with [kernel-mutex].
        self.0.taken.store(0, Ordering::Release);
        self.0.watchers.wake();
    }
}
