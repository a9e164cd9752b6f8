//! A reference count that is a read-write lock: readers that never wait, a writer that waits for
//! them, and an end after which no reader is admitted.
//!
//! # Problem
//! A fault must lock one VMA against its writers by one exchange, although the VMA may be gone: it
//! may have been removed, freed, and reused by another address space. Its memory is only guaranteed
//! to be *some* VMA's. (A count plus a sleeping lock take more room, and the lock would have to be
//! reinitialised under such readers.)
//!
//! # Idea
//! One word counts the users of the object, is 0 while it is detached, and names the waiting
//! writer. No reader counts up from 0, so an object under initialisation is safe from readers that
//! hold a stale pointer to it.
//!
//! # Protocol
//! ```text
//! bits 0..30    0 detached; 1 attached; 1 more for each reader inside
//! bit  30       WRITER: a writer holds the lock or waits; no reader is admitted
//! bits 32..64   the writer's task
//! ```
//! - Attach: store 1 with release, once the object is whole.
//! - Read: count up, unless 0 or WRITER; then ask [`LockedAt::is_locked`]. Leaving counts down, and
//!   the old value of that same exchange says whether a writer waits, and which.
//! - Write-lock: set WRITER and the task; sleep until 1 is left; set the number of
//!   [`crate::lock_seq`]; take WRITER and the task off.
//! - Detach: the same, but the 1 is removed, too.
//!
//! ```text
//! CPU 0: reader            CPU 1: writer
//! count 1 -> 2
//!                          count 2 -> WRITER + task + 2
//!                          2 left: sleeps
//! count -> WRITER + task + 1
//! (object may be gone)     may wake by itself, detach, free
//! wakes `task`
//! ```
//!
//! # Why it is correct
//! A reader accesses nothing of the object after its last exchange: the task to wake came out of
//! that exchange. (In Linux it looked the waiter up in the address space, which could be gone:
//! CVE-2025-38554.) A late wake-up finds a task that waits for something else, and every waiter
//! rechecks. No wake-up is lost: the writer rechecks after it set WRITER, so either it sees that
//! the last reader has left, or that reader's exchange sees the task. There is one writer at a
//! time. A reader with a stale pointer may enter a reused object; it then checks the owner and
//! leaves, and writers wait for it like for any other.
//!
//! # Cost
//! Reader: a load and an exchange to enter, an addition to leave, on one line. Writer: two
//! additions.
//!
//! Linux: include/linux/mmap_lock.h and mm/mmap_lock.c, `vm_refcnt` (v6.15). There the waiter is
//! named in the `mm`.

use crate::atomic::Atomic;
use crate::cx::TaskId;
use crate::lock_seq::{LockSeq, LockedAt};
use crate::lockdep::{self, Class, How};
use crate::machine::Machine;
use crate::phase::Phase;
use crate::prim::Ordering;
use core::fmt;
use core::marker::PhantomData;
use core::panic::Location;

const USERS: u64 = (1 << 30) - 1;
const WRITER: u64 = 1 << 30;
const TASK_SHIFT: u32 = 32;

/// A count of users, of class `C`.
pub struct RefLock<C, M: Machine> {
    word: Atomic<u64, M>,
    class: PhantomData<fn() -> C>,
}

/// One reader inside.
#[must_use = "the reader leaves when the guard is dropped"]
pub struct RefGuard<'a, C: Class, M: Machine> {
    lock: &'a RefLock<C, M>,
    not_send: PhantomData<*mut ()>,
}

/// Why a reader is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The object is out of use, or not yet in use.
    Detached,
    /// A writer has it.
    Locked,
}

/// What a waiting writer does about new readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Newcomers {
    /// They are refused.
    Refused,
    /// They are admitted, and the writer may starve: for tests that show it.
    LetIn,
}

impl<C: Class, M: Machine> RefLock<C, M> {
    /// Detached.
    pub fn new() -> Self {
        Self {
            word: Atomic::new(0),
            class: PhantomData,
        }
    }

    /// The count, for locks of other forms.
    pub const fn word(&self) -> &Atomic<u64, M> {
        &self.word
    }

    /// Attaches the initialised object: readers may enter. The caller is its only user until then.
    #[inline]
    pub fn attach(&self) {
        // ORDERING: Release; pairs with [ref-lock-enter].
        self.word.store(1, Ordering::Release);
    }

    /// Comes in for reading, without waiting.
    ///
    /// # Errors
    /// Why not. `Locked` may be said of an object that is another whole's by now.
    #[inline]
    #[track_caller]
    pub fn try_read(
        &self,
        at: &LockedAt<M>,
        whole: &LockSeq<M>,
    ) -> Result<RefGuard<'_, C, M>, Refused> {
        // Most write locks are seen here, without a write to the lock's line.
        if at.is_locked(whole) {
            return Err(Refused::Locked);
        }
        // ORDERING: Acquire; pairs with [ref-lock-detach], as does the failed exchange below.
        let mut old = self.word.load(Ordering::Acquire);
        loop {
            if old & USERS == 0 {
                return Err(Refused::Detached);
            }
            if old & WRITER != 0 || old & USERS == USERS {
                return Err(Refused::Locked);
            }
            // ORDERING: Acquire; pairs with [ref-lock-enter].
            match self
                .word
                .cas(old, old + 1, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => break,
                Err(found) => old = found,
            }
        }
        lockdep::acquire::<C, M>(self.id(), How::Tried, Location::caller());
        let guard = RefGuard {
            lock: self,
            not_send: PhantomData,
        };
        if at.is_locked(whole) {
            return Err(Refused::Locked);
        }
        Ok(guard)
    }

    /// Write-locks until [`LockSeq::end_all`]; returns how often it slept. The caller is the
    /// whole's writer, and the object attached.
    ///
    /// # Context
    /// May sleep.
    #[track_caller]
    pub fn write_until_end(
        &self,
        at: &LockedAt<M>,
        whole: &LockSeq<M>,
        newcomers: Newcomers,
    ) -> u64 {
        if at.is_locked(whole) {
            return 0;
        }
        let (mine, slept) = self.wait_alone(newcomers, Location::caller());
        at.lock(whole);
        self.let_go(mine);
        slept
    }

    /// Write-locks: admits no new reader, and waits until none is inside; returns how often it
    /// slept. The caller is the only writer, and the object is attached.
    ///
    /// # Context
    /// May sleep.
    #[track_caller]
    pub fn detach(&self) -> u64 {
        let (mine, slept) = self.wait_alone(Newcomers::Refused, Location::caller());
        self.let_go(mine + 1);
        slept
    }

    /// Whether it is in use, without the access hook: for oracles.
    pub fn is_attached(&self) -> bool {
        self.word.peek() & USERS != 0
    }

    fn id(&self) -> *const () {
        core::ptr::from_ref(&self.word).cast()
    }

    /// Waits until no reader is inside, with WRITER set; returns what the caller added.
    fn wait_alone(&self, newcomers: Newcomers, caller: &'static Location<'static>) -> (u64, u64) {
        lockdep::acquire::<C, M>(self.id(), How::Wait, caller);
        // SAFETY: duty 1 of `Machine`.
        let me = unsafe { &*M::cx() }.task.get().0;
        let me = u64::from(me) << TASK_SHIFT;
        let mine = me | WRITER;
        let mut slept = 0;
        match newcomers {
            Newcomers::Refused => {
                self.word.add(mine, Ordering::Relaxed);
                // ORDERING: Acquire; pairs with [ref-lock-leave].
                while self.word.load(Ordering::Acquire) & USERS > 1 {
                    M::phase(Phase::Sleep(self.id()));
                    M::park();
                    slept += 1;
                }
            }
            Newcomers::LetIn => {
                self.word.add(me, Ordering::Relaxed);
                // ORDERING: Acquire; pairs with [ref-lock-leave].
                while self
                    .word
                    .cas(me | 1, mine | 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
                {
                    M::phase(Phase::Sleep(self.id()));
                    M::park();
                    slept += 1;
                }
            }
        }
        (mine, slept)
    }

    fn let_go(&self, mine: u64) {
        lockdep::release::<C, M>(self.id());
        // ORDERING: Release; pairs with [ref-lock-enter], and where nothing is left with
        // [ref-lock-detach].
        self.word.sub(mine, Ordering::Release);
    }
}

impl<C: Class, M: Machine> Default for RefLock<C, M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Class, M: Machine> Drop for RefGuard<'_, C, M> {
    #[inline]
    fn drop(&mut self) {
        lockdep::release::<C, M>(self.lock.id());
        // ORDERING: Release; pairs with [ref-lock-leave].
        let old = self.lock.word.sub(1, Ordering::Release);
        // From here on the object may be freed or reused.
        let waiter = TaskId((old >> TASK_SHIFT) as u32);
        if waiter != TaskId(0) && old & USERS == 2 {
            wake::<M>(waiter);
        }
    }
}

#[cold]
#[inline(never)]
fn wake<M: Machine>(waiter: TaskId) {
    M::unpark(waiter);
}

impl<C: Class, M: Machine> fmt::Debug for RefLock<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.peek();
        write!(
            f,
            "{:?}(users {}, writer {})",
            C::RANK,
            word & USERS,
            word >> TASK_SHIFT
        )
    }
}

impl<C: Class, M: Machine> fmt::Debug for RefGuard<'_, C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} held for reading", C::RANK)
    }
}
