//! Bit locks and bit waits: hashed wait queues for single bits of words.
//!
//! # Problem
//! Each file page can be locked, and waited for during writeback. There are millions of pages, so a
//! page lock may take no more than a bit of the page's descriptor, and is rarely contended. But a
//! waiter may wait for a disk, and has to sleep.
//!
//! # Idea
//! The bit is in the word; sleepers are in one of a few queues that all words share, chosen by a
//! hash of a *key* that the caller has for the word (the frame number). A second bit of the word
//! says that there may be sleepers, so that an uncontended unlock does not look at the queue.
//!
//! # Protocol
//! ```text
//! word    `bit`      locked, or busy
//!         `waiters`  a task sleeps for this key, or is about to; of all bits of the word
//! queue   guarded by its own spin lock; nodes are in the sleepers' contexts, each with key, bit,
//!         and its kind: wait until clear, try for the lock, or be handed it
//! ```
//! - Lock: set `bit`; the task that found it clear has the lock. Else, with the queue's lock held,
//!   set `bit` and `waiters` in one step; if `bit` was set, enqueue a node, release the queue's
//!   lock, sleep.
//! - Unlock: clear `bit`; if `waiters` was set, scan the queue. Wake all that wait for this bit to
//!   be clear, and *the first* that wants the lock, to try for it. Clear `waiters` when no node
//!   with this key is left.
//! - A woken task that fails to get the lock sleeps again, and asks to be *handed* the lock: it is
//!   then locked on its behalf before the wake-up. So a sleeper is overtaken a bounded number of
//!   times.
//! - Wait until clear: as lock, but sets `waiters` only, and only where `bit` is set.
//!
//! # Why it is correct
//! Exclusion: only an exchange that finds the bit clear gives the lock, to its caller or to the
//! task that it is handed to.
//!
//! No wake-up is lost. A task in the queue set `waiters`, or found it set, in the same step in
//! which it found `bit` set, and was enqueued before it released the queue's lock. `waiters` is
//! cleared under that lock only, when no node with the key is in the queue. So a later unlock finds
//! `waiters` set, and the sleeper in the queue. It leaves the sleeper there in two cases. The bit
//! is set again: then its new holder will clear it, and finds `waiters` still set. Or another task
//! was woken first to take the lock: it tries until it has the lock, and meanwhile another holder
//! will find `waiters`.
//!
//! ```text
//! CPU 0: holder            CPU 1: wants the lock
//!                          sets bit: was set
//! clears bit
//! finds no `waiters`       takes the queue's lock
//!                          sets bit and `waiters`: bit was clear, so it has the lock
//! ```
//!
//! A node is dequeued, and its link read, before `granted` is stored; its owner proceeds only after
//! reading that. Wake-up tokens are sticky, and each sleeper rechecks `granted`. Words that share a
//! queue do not disturb each other: nodes of other keys are skipped.
//!
//! An unlock reads the word once more after it has cleared the bit, so the word must stay valid
//! until it returns: the caller has a reference to the page, or the page cannot be freed.
//!
//! # Cost
//! Uncontended: an exchange to lock and one to unlock, on the word's line. A wait adds the queue's
//! lock twice and a scan of the sleepers in the same queue.
//!
//! Linux: mm/filemap.c `folio_wait_table`, `folio_lock`, `folio_unlock`, `folio_wait_bit_common`,
//! `folio_wake_bit` (v6.12). There a sleeper is overtaken up to five times before it is handed the
//! lock, and a task that waits for the bit to clear may be woken although it is set again.

use crate::atomic::Atomic;
use crate::cx::{Cx, TaskId};
use crate::lockdep::order::WaitLock;
use crate::lockdep::{self, Class, How};
use crate::machine::Machine;
use crate::phase::Phase;
use crate::prim::Ordering;
use crate::spin::{SpinGuard, SpinLock};
use core::fmt;
use core::panic::Location;

/// Wants to see the bit clear.
const WANTS_CLEAR: u32 = 1;
/// Wants to be woken to try for the lock.
const WANTS_TO_TRY: u32 = 2;
/// Wants the lock.
const WANTS_LOCK: u32 = 3;

/// `granted`: the bit is or was clear.
const WOKEN: u64 = 1;
/// `granted`: the bit is set again, on behalf of the woken task.
const HANDED: u64 = 2;

const QUEUES_LOG2: u32 = 6;
const QUEUES: usize = 1 << QUEUES_LOG2;

/// Queues for sleeping on bits of any words.
///
/// `bit` and `waiters` are masks of one bit each. Of one word and one table: the key is always the
/// same, and no other word has it; `waiters` is the same for all bits; one bit at most is a lock;
/// and while others can reach it the word is changed by exchanges only.
pub struct WaitTable<M: Machine> {
    queues: [OwnLine<M>; QUEUES],
}

/// A queue that shares its line with no other.
#[repr(align(64))]
struct OwnLine<M: Machine>(SpinLock<Queue, WaitLock, M>);

/// Guarded by: the lock around it.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    head: u32,
    tail: u32,
}

/// What the caller waits for.
struct Wait<'a, M: Machine> {
    key: u64,
    word: &'a Atomic<u32, M>,
    bit: u32,
    waiters: u32,
}

impl<M: Machine> WaitTable<M> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self {
            queues: core::array::from_fn(|_| OwnLine(SpinLock::new(Queue::default()))),
        }
    }

    /// Locks `bit` of `word`, a lock of class `C`; sleeps while another task has it.
    ///
    /// # Context
    /// Sleeps; the caller holds only locks ordered before `C`.
    #[inline]
    #[track_caller]
    pub fn lock<C: Class>(&self, key: u64, word: &Atomic<u32, M>, bit: u32, waiters: u32) {
        lockdep::acquire::<C, M>(id(word), How::Wait, Location::caller());
        // ORDERING: Acquire; pairs with [wait-bit].
        if word.or(bit, Ordering::Acquire) & bit != 0 {
            self.lock_slow(&Wait {
                key,
                word,
                bit,
                waiters,
            });
        }
    }

    /// Tries to lock `bit` of `word`; whether it succeeded.
    ///
    /// # Context
    /// Does not sleep.
    #[inline]
    #[track_caller]
    #[must_use = "the lock may have been refused"]
    pub fn try_lock<C: Class>(&self, word: &Atomic<u32, M>, bit: u32) -> bool {
        // ORDERING: Acquire; pairs with [wait-bit].
        let taken = word.or(bit, Ordering::Acquire) & bit == 0;
        if taken {
            lockdep::acquire::<C, M>(id(word), How::Tried, Location::caller());
        }
        taken
    }

    /// Unlocks `bit` of `word`, and wakes all tasks that wait for it to be clear, and the first
    /// that waits for the lock.
    ///
    /// # Context
    /// Does not sleep. The caller has the lock, and the word stays this key's until it returns.
    #[inline]
    pub fn unlock<C: Class>(&self, key: u64, word: &Atomic<u32, M>, bit: u32, waiters: u32) {
        lockdep::release::<C, M>(id(word));
        self.clear_and_wake(key, word, bit, waiters);
    }

    /// Sleeps until `bit` of `word` is clear: until it was so at some moment after the call began.
    ///
    /// # Context
    /// Sleeps. The word stays this key's until it returns.
    #[inline]
    #[track_caller]
    pub fn wait_clear(&self, key: u64, word: &Atomic<u32, M>, bit: u32, waiters: u32) {
        lockdep::might_sleep::<M>();
        // ORDERING: Acquire; pairs with [wait-bit].
        if word.load(Ordering::Acquire) & bit != 0 {
            self.wait_clear_slow(&Wait {
                key,
                word,
                bit,
                waiters,
            });
        }
    }

    /// Clears `bit` of `word`, and wakes the tasks that wait for that.
    ///
    /// # Context
    /// Does not sleep. The caller has set the bit, and the word stays this key's until it returns.
    #[inline]
    pub fn clear_and_wake(&self, key: u64, word: &Atomic<u32, M>, bit: u32, waiters: u32) {
        // The bit is set, so subtracting it clears it: one instruction that returns the old value,
        // where an `and` on x86 needs a loop. ORDERING: Release; pairs with [wait-bit].
        let before = word.sub(bit, Ordering::Release);
        if M::CHECKED && before & bit == 0 {
            M::violation(format_args!("unlocked bit {bit:#x}, which was not locked"));
        }
        if before & waiters != 0 {
            self.wake(&Wait {
                key,
                word,
                bit,
                waiters,
            });
        }
    }

    #[cold]
    fn lock_slow(&self, wait: &Wait<'_, M>) {
        let mut wants = WANTS_TO_TRY;
        loop {
            let mut queue = self.queue_of(wait.key).lock();
            // ORDERING: Acquire; pairs with [wait-bit].
            let old = wait.word.or(wait.bit | wait.waiters, Ordering::Acquire);
            if old & wait.bit == 0 {
                return;
            }
            push(&mut queue, wait, wants);
            drop(queue);
            if sleep::<M>(id(wait.word)) == HANDED {
                return;
            }
            // ORDERING: Acquire; pairs with [wait-bit].
            if wait.word.or(wait.bit, Ordering::Acquire) & wait.bit == 0 {
                return;
            }
            wants = WANTS_LOCK;
        }
    }

    #[cold]
    fn wait_clear_slow(&self, wait: &Wait<'_, M>) {
        let mut queue = self.queue_of(wait.key).lock();
        // ORDERING: Acquire; pairs with [wait-bit].
        let mut old = wait.word.load(Ordering::Acquire);
        // If the bit is clear, no unlock may follow that would clear `waiters`, so it is not set
        // then.
        while old & wait.bit != 0 {
            let new = old | wait.waiters;
            // ORDERING: Acquire; pairs with [wait-bit].
            match wait
                .word
                .cas(old, new, Ordering::Relaxed, Ordering::Acquire)
            {
                Ok(_) => {
                    push(&mut queue, wait, WANTS_CLEAR);
                    drop(queue);
                    sleep::<M>(id(wait.word));
                    return;
                }
                Err(found) => old = found,
            }
        }
    }

    #[cold]
    fn wake(&self, wait: &Wait<'_, M>) {
        let mut queue = self.queue_of(wait.key).lock();
        // ORDERING: Acquire; pairs with [wait-bit], on behalf of the woken tasks.
        if wait.word.load(Ordering::Acquire) & wait.bit != 0 {
            // Set again: the task that set it will unlock, too.
            return;
        }
        let (mut others_stay, mut locked) = (false, false);
        let (mut before, mut at) = (0, queue.head);
        while let Some(cx) = node_of::<M>(at) {
            let next = M::load::<u32>(&cx.node.next, Ordering::Relaxed);
            let grant = if M::load::<u64>(&cx.node.key, Ordering::Relaxed) == wait.key {
                let grant = grant_for(cx, wait, &mut locked);
                others_stay |= grant.is_none();
                grant
            } else {
                None
            };
            if let Some(how) = grant {
                unlink(&mut queue, before, at, next);
                // ORDERING: Release; pairs with [wait-grant].
                M::store::<u64>(&cx.node.granted, how, Ordering::Release);
                M::unpark(TaskId(at));
            } else {
                before = at;
            }
            at = next;
        }
        if !others_stay {
            wait.word.and(!wait.waiters, Ordering::Relaxed);
        }
    }

    fn queue_of(&self, key: u64) -> &SpinLock<Queue, WaitLock, M> {
        &self.queues[queue_number(key)].0
    }
}

/// The bits in which neighbours differ are spread by a multiplication (by 2^64 over the golden
/// ratio), whose high bits depend on all of them.
fn queue_number(key: u64) -> usize {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - QUEUES_LOG2)) as usize
}

/// Whether the task that sleeps with `cx` proceeds, and how. `locked`: a task was woken to try, or
/// has the lock.
fn grant_for<M: Machine>(cx: &Cx, wait: &Wait<'_, M>, locked: &mut bool) -> Option<u64> {
    if M::load::<u32>(&cx.node.bit, Ordering::Relaxed) != wait.bit {
        return None;
    }
    let wants = M::load::<u32>(&cx.node.wants, Ordering::Relaxed);
    if wants == WANTS_CLEAR {
        return Some(WOKEN);
    }
    if core::mem::replace(locked, true) {
        return None;
    }
    if wants == WANTS_TO_TRY {
        return Some(WOKEN);
    }
    // ORDERING: Acquire; pairs with [wait-bit], on behalf of the task that is handed the lock.
    let old = wait.word.or(wait.bit, Ordering::Acquire);
    // Else another task took it, and finds `waiters` set when it unlocks.
    (old & wait.bit == 0).then_some(HANDED)
}

/// Appends the caller.
fn push<M: Machine>(queue: &mut SpinGuard<'_, Queue, WaitLock, M>, wait: &Wait<'_, M>, wants: u32) {
    let cx = me::<M>();
    let task = cx.task.get().0;
    M::store::<u32>(&cx.node.next, 0, Ordering::Relaxed);
    M::store::<u32>(&cx.node.wants, wants, Ordering::Relaxed);
    M::store::<u64>(&cx.node.granted, 0, Ordering::Relaxed);
    M::store::<u64>(&cx.node.key, wait.key, Ordering::Relaxed);
    M::store::<u32>(&cx.node.bit, wait.bit, Ordering::Relaxed);
    let tail = core::mem::replace(&mut queue.tail, task);
    match node_of::<M>(tail) {
        Some(last) => M::store::<u32>(&last.node.next, task, Ordering::Relaxed),
        None => queue.head = task,
    }
}

/// Removes `at`, which is between `before` (0: at the head) and `next`.
fn unlink<M: Machine>(
    queue: &mut SpinGuard<'_, Queue, WaitLock, M>,
    before: u32,
    at: u32,
    next: u32,
) {
    match node_of::<M>(before) {
        Some(cx) => M::store::<u32>(&cx.node.next, next, Ordering::Relaxed),
        None => queue.head = next,
    }
    if queue.tail == at {
        queue.tail = before;
    }
}

/// Sleeps until the caller's node is out of the queue; how it came out.
#[track_caller]
fn sleep<M: Machine>(what: *const ()) -> u64 {
    let node = &me::<M>().node;
    loop {
        // ORDERING: Acquire; pairs with [wait-grant].
        let granted = M::load::<u64>(&node.granted, Ordering::Acquire);
        if granted != 0 {
            return granted;
        }
        lockdep::might_sleep::<M>();
        M::phase(Phase::Sleep(what));
        M::park();
    }
}

fn id<M: Machine>(word: &Atomic<u32, M>) -> *const () {
    core::ptr::from_ref(word).cast()
}

fn me<'a, M: Machine>() -> &'a Cx {
    // SAFETY: duty 1 of `Machine`.
    unsafe { &*M::cx() }
}

fn node_of<'a, M: Machine>(task: u32) -> Option<&'a Cx> {
    // SAFETY: duty 3 of `Machine`: a queued task exists.
    (task != 0).then(|| unsafe { &*M::context(TaskId(task)) })
}

impl<M: Machine> Default for WaitTable<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> fmt::Debug for WaitTable<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitTable({QUEUES} queues)")
    }
}

#[cfg(test)]
mod tests {
    use super::{QUEUES, queue_number};

    /// The model tests have two words in one queue.
    #[test]
    fn keys_of_the_model_share_a_queue() {
        assert_eq!(queue_number(0), queue_number(89));
    }

    #[test]
    fn neighbours_do_not_crowd() {
        for stride in [1, 2, 512, 1 << 18] {
            let mut of = [0; QUEUES];
            for key in 0..QUEUES as u64 {
                of[queue_number(7 + key * stride)] += 1;
            }
            let worst = of.iter().max();
            assert!(worst <= Some(&4), "{stride}: {worst:?}");
        }
    }
}
