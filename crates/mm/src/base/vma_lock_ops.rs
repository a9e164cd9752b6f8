//! A VMA lock supplied by the embedder: the lock mode of a fault, and the writer's half.
//!
//! # Problem
//! The generations of page faults differ most in how a fault locks its VMA. An embedder should be
//! able to try another lock without changing this library.
//!
//! # Idea
//! A mode is a [`VmaLockOps`]: four operations on a few words that each VMA and each address space
//! reserve for it. The part common to all such locks is here: the VMA is looked up in a read
//! section, its owner is checked once the lock is held, and a fault whose trylock fails falls back
//! to `mmap_lock`.
//!
//! # Protocol
//! ```text
//! fault                                      writer, mmap_lock held for writing
//! looks the VMA up, in a read section        for each VMA that it changes or removes:
//! try_enter: held, or fall back              shut: admits no fault, waits for those inside
//! is the owner this mm? covers the address?  changes VMAs, zaps, frees page tables
//! page tables, frame, the exchange           reopen: all VMAs that were shut, in one step
//! leave                                      releases mmap_lock
//! ```
//! A new VMA is write-locked before it is published. A removed VMA is not unlocked individually: a
//! fault that locks it finds it detached, and backs off.
//!
//! # Why it is correct
//! It is if the mode keeps what each of its functions promises; the search for races runs with it
//! as with any other. The mapping's words stay its own until readers of before have left, which the
//! table of illegal mixes sees to.
//!
//! # Cost
//! A call by pointer for each step and each word.

use core::fmt;
use minflt_sync::Ordering;

/// A fault's lock mode, which an embedder brings ([`Config::own_lock`](crate::Config::own_lock)).
///
/// All functions are called with interrupts on, and may be called on all CPUs at once, but that the
/// writer's two are called by one writer of an address space at a time.
pub trait VmaLockOps: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// A fault comes in, or is not let in. Never waits. Once in, no writer returns from
    /// [`shut`](Self::shut) for this mapping until the fault has left, and the fault sees all that
    /// writers of before have done (*acquire*).
    fn try_enter(&self, words: &dyn Words) -> bool;

    /// A fault leaves: its changes are visible to the next writer (*release*).
    fn leave(&self, words: &dyn Words);

    /// Admits no further fault until [`reopen`](Self::reopen), and returns when none is inside. A
    /// repeated call for the same VMA has no effect. May sleep.
    fn shut(&self, words: &dyn Words);

    /// Faults may again enter all VMAs of the address space that were shut (*release*). Of the
    /// words only [`Word::Space`] is available.
    fn reopen(&self, words: &dyn Words);
}

/// Which word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// One of the mapping; 0 at first. On the line that faults write.
    Users,
    /// Another one of the mapping; 0 at first. On the line that faults only read.
    Mark,
    /// One of the address space; 1 at first.
    Space,
}

/// The words of one mapping and its address space, and what a lock needs beside them.
///
/// The first three are as in [`minflt_sync::Atomic`].
pub trait Words {
    /// The word's value.
    fn load(&self, word: Word, order: Ordering) -> u64;

    /// Sets the word.
    fn store(&self, word: Word, value: u64, order: Ordering);

    /// Adds to the word, wrapping; returns what it was.
    fn add(&self, word: Word, value: u64, order: Ordering) -> u64;

    /// Sets the word to `new` if it is `old`.
    ///
    /// # Errors
    /// What it is instead.
    fn cas(&self, word: Word, old: u64, new: u64, ok: Ordering, fail: Ordering)
    -> Result<u64, u64>;

    /// The running task's number, never 0.
    fn task(&self) -> u32;

    /// Sleeps until this task is woken; spurious wake-ups are possible. A wake-up before the call
    /// is not lost.
    fn sleep(&self);

    /// Wakes a task.
    fn wake(&self, task: u32);
}

/// A mode that was brought, as a choice: equal to another if it lies at the same address. (Two
/// types without any data may share one: give such a mode a byte.)
#[derive(Clone, Copy)]
pub struct OwnLock(pub &'static dyn VmaLockOps);

impl PartialEq for OwnLock {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for OwnLock {}

impl fmt::Debug for OwnLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}
