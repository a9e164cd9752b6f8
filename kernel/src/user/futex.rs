//! Futexes: threads that sleep until a word of their program is said to have changed.
//!
//! # Problem
//! A thread sleeps only if the word still has the value that it saw, and a waker that changes the
//! word afterwards must find the waiter.
//!
//! # Idea
//! A table of queues, by address space and address. The word is compared under the lock of its
//! queue, which wakers take as well.
//!
//! # Protocol
//! ```text
//! waiter                               waker
//! lock the queue                       change the word
//! the word differs? unlock, EAGAIN     lock the queue
//! enter the queue; unlock              take waiters out; unlock
//! sleep until taken out                wake them
//! ```
//! The word may have to be faulted in, which sleeps. So it is loaded without that under the lock,
//! and if it is not there, once without the lock, before all begins again.
//!
//! # Why it is correct
//! The waker changes the word before it takes the lock. If the waiter had the lock before, it is in
//! the queue; if after, it sees the change. A waiter knows that it was taken out by `bucket`, so
//! that stray wake-ups do no harm; moving to another queue changes it under both locks.
//!
//! # Cost
//! A lock of one of 64 queues, and a look at each waiter in it.
//!
//! Words in memory that processes share are not supported: each address space has futexes of its
//! own. Linux: kernel/futex/.

use core::cell::Cell;

use minflt_mm::Errno;
use minflt_pgtable::SpaceId;
use minflt_sync::order::WaitLock;
use minflt_sync::{Atomic, Ordering, SpinLock};

use super::process;
use crate::arch::uaccess;
use crate::linux::{EAGAIN, ETIMEDOUT, RESTART_IF_ASKED, RESTART_IF_QUIET};
use crate::machine::{self, Kernel};
use crate::sched;
use crate::shared::Once;
use crate::task::{self, Task};

const BUCKETS: usize = 64;
/// Waits and wakes that choose among the waiters of a word by bits: these are all.
pub(crate) const ALL_BITS: u32 = u32::MAX;

/// A word of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    space: SpaceId,
    addr: u64,
}

impl Key {
    /// The word at `addr`.
    ///
    /// # Errors
    /// `EINVAL` where that is no multiple of 4.
    pub(crate) fn new(space: SpaceId, addr: u64) -> Result<Self, Errno> {
        if addr.is_multiple_of(4) {
            Ok(Self { space, addr })
        } else {
            Err(Errno::EINVAL)
        }
    }

    fn bucket(self) -> usize {
        let mixed = (self.addr >> 2 ^ self.space.0 << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 58) as usize % BUCKETS
    }
}

/// A task's place in a queue.
///
/// # Invariants
/// All is guarded by the lock of the queue that `bucket` names; while it names none, it is the
/// task's own.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The queue's number plus 1; 0 for none.
    bucket: Atomic<u32, Kernel>,
    key: Cell<Option<Key>>,
    bits: Cell<u32>,
    next: Cell<Option<&'static Task>>,
}

impl Waiter {
    /// In no queue.
    pub(super) fn new() -> Self {
        Self {
            bucket: Atomic::new(0),
            key: Cell::new(None),
            bits: Cell::new(0),
            next: Cell::new(None),
        }
    }
}

/// Those that wait for words of one hash, the last to come first.
#[derive(Debug)]
struct Bucket {
    first: Option<&'static Task>,
}

// SAFETY: (1) tasks are made to be shared, and the links are under the bucket's lock.
unsafe impl Send for Bucket {}

type Table = [SpinLock<Bucket, WaitLock, Kernel>; BUCKETS];

static TABLE: Once<Table> = Once::new();

/// Called once, before there are threads.
pub(crate) fn init() {
    TABLE.set(core::array::from_fn(|_| {
        SpinLock::new(Bucket { first: None })
    }));
}

fn bucket(index: usize) -> &'static SpinLock<Bucket, WaitLock, Kernel> {
    match TABLE.get() {
        Some(table) => &table[index],
        None => panic!("a thread waits before there may be any"),
    }
}

impl Bucket {
    fn push(&mut self, task: &'static Task, key: Key) {
        let waiter = task.own.waiter();
        waiter.key.set(Some(key));
        waiter.next.set(None);
        // Behind the others: those that came first are woken first.
        let mut last: Option<&'static Task> = None;
        let mut at = self.first;
        while let Some(task) = at {
            last = at;
            at = task.own.waiter().next.get();
        }
        match last {
            Some(last) => last.own.waiter().next.set(Some(task)),
            None => self.first = Some(task),
        }
        waiter
            .bucket
            .store(key.bucket() as u32 + 1, Ordering::Relaxed);
    }

    /// Takes out the first one that is `wanted`; `bucket` still names this queue.
    fn take(&mut self, wanted: impl Fn(&Task) -> bool) -> Option<&'static Task> {
        let mut before: Option<&'static Task> = None;
        let mut at = self.first;
        while let Some(task) = at {
            let next = task.own.waiter().next.get();
            if wanted(task) {
                match before {
                    Some(before) => before.own.waiter().next.set(next),
                    None => self.first = next,
                }
                return Some(task);
            }
            before = at;
            at = next;
        }
        None
    }

    /// How many wait for `key`.
    fn count(&self, key: Key) -> u32 {
        let mut count = 0;
        let mut at = self.first;
        while let Some(task) = at {
            let waiter = task.own.waiter();
            count += u32::from(waiter.key.get() == Some(key));
            at = waiter.next.get();
        }
        count
    }

    /// Takes out and wakes up to `count` waiters for `key` with one of `bits`; how many.
    fn wake(&mut self, key: Key, bits: u32, count: u32) -> u32 {
        let wanted = |task: &Task| {
            let waiter = task.own.waiter();
            waiter.key.get() == Some(key) && waiter.bits.get() & bits != 0
        };
        let mut woken = 0;
        while woken < count
            && let Some(task) = self.take(wanted)
        {
            // ORDERING: Release; pairs with [kernel-futex].
            task.own.waiter().bucket.store(0, Ordering::Release);
            sched::unpark(task);
            woken += 1;
        }
        woken
    }
}

/// Sleeps until woken, if the word is `value`; until `deadline`, by the machine's clock, at most.
///
/// # Errors
/// `EAGAIN`: the word is another one. `ETIMEDOUT`. `EFAULT`: it cannot be read. That a signal has
/// ended the wait.
pub(crate) fn wait(key: Key, value: u32, bits: u32, deadline: Option<u64>) -> Result<(), Errno> {
    let me = task::current();
    let waiter = me.own.waiter();
    loop {
        if super::is_interrupted() {
            return Err(cut(deadline));
        }
        let mut held = bucket(key.bucket()).lock();
        if let Ok(found) = uaccess::load_u32_if_there(key.addr) {
            if found != value {
                return Err(EAGAIN);
            }
            waiter.bits.set(bits);
            held.push(me, key);
            break;
        }
        drop(held);
        uaccess::load_u32(key.addr)?;
    }
    loop {
        // ORDERING: Acquire; pairs with [kernel-futex].
        if waiter.bucket.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let late = deadline.is_some_and(|deadline| machine::now_ns() >= deadline);
        let interrupted = super::is_interrupted();
        if late || interrupted {
            let still = leave_queue(me);
            return match (still, interrupted) {
                (false, _) => Ok(()),
                (true, true) => Err(cut(deadline)),
                (true, false) => Err(ETIMEDOUT),
            };
        }
        super::park_until(deadline);
    }
}

/// How a wait begins again that a signal has ended: one with a time-out not after a handler, as on
/// Linux. A relative time-out begins again with it, where no handler ran.
const fn cut(deadline: Option<u64>) -> Errno {
    match deadline {
        None => RESTART_IF_ASKED,
        Some(_) => RESTART_IF_QUIET,
    }
}

/// Takes `me`, the caller, out of its queue; whether it was in one still.
fn leave_queue(me: &'static Task) -> bool {
    let waiter = me.own.waiter();
    loop {
        // ORDERING: Acquire; pairs with [kernel-futex].
        let number = waiter.bucket.load(Ordering::Acquire);
        let Some(index) = number.checked_sub(1) else {
            return false;
        };
        let mut held = bucket(index as usize).lock();
        if waiter.bucket.load(Ordering::Relaxed) == number {
            let taken = held.take(|task| task.id() == me.id());
            waiter.bucket.store(0, Ordering::Relaxed);
            return taken.is_some();
        }
    }
}

/// Wakes up to `count` waiters with one of `bits`; how many.
pub(crate) fn wake(key: Key, bits: u32, count: u32) -> u32 {
    bucket(key.bucket()).lock().wake(key, bits, count)
}

/// Wakes up to `wakes` waiters, and has up to `moves` more wait for `to` instead, if the word is
/// `value` or none is given; how many of both.
///
/// # Errors
/// `EAGAIN`: the word is another one. `EFAULT`: it cannot be read.
pub(crate) fn requeue(
    key: Key,
    to: Key,
    value: Option<u32>,
    wakes: u32,
    moves: u32,
) -> Result<u32, Errno> {
    let (from_index, to_index) = (key.bucket(), to.bucket());
    loop {
        // Two locks, that of the lower number first.
        let mut low = bucket(from_index.min(to_index)).lock();
        let mut high =
            (from_index != to_index).then(|| bucket(from_index.max(to_index)).lock_second());
        if let Some(value) = value {
            match uaccess::load_u32_if_there(key.addr) {
                Ok(found) if found == value => {}
                Ok(_) => return Err(EAGAIN),
                Err(_) => {
                    drop(high);
                    drop(low);
                    uaccess::load_u32(key.addr)?;
                    continue;
                }
            }
        }
        let (from, mut other) = match &mut high {
            Some(high) if from_index > to_index => (&mut **high, Some(&mut *low)),
            Some(high) => (&mut *low, Some(&mut **high)),
            None => (&mut *low, None),
        };
        let mut done = from.wake(key, ALL_BITS, wakes);
        if key == to {
            // They stay; moved one by one, the same one would come again and again.
            return Ok(done + from.count(key).min(moves));
        }
        for _ in 0..moves {
            let wanted = |task: &Task| task.own.waiter().key.get() == Some(key);
            let Some(task) = from.take(wanted) else { break };
            match &mut other {
                Some(other) => other.push(task, to),
                None => from.push(task, to),
            }
            done += 1;
        }
        return Ok(done);
    }
}

/// The caller's thread ends, with its address space still loaded: its tid is cleared, a waiter for
/// that is woken, and its robust futexes are marked and woken.
pub(super) fn thread_ends(me: &Task) {
    give_up_locks(me);
    let clear = me.own.clear_tid().take();
    if clear == 0 || uaccess::store_u32(clear, 0).is_err() {
        return;
    }
    wake_at(me, clear, 1);
}

fn wake_at(me: &Task, addr: u64, count: u32) {
    let Some(space) = me.space() else { return };
    if let Ok(key) = Key::new(space.mm().space(), addr) {
        wake(key, ALL_BITS, count);
    }
}

/// The program's list of locks (`set_robust_list`): a head of three words (the first lock, the
/// offset from an entry to its word, the lock being taken), and entries that point to the next one.
fn give_up_locks(me: &Task) {
    /// A list may be a circle, or anything.
    const LIMIT: u32 = 2048;
    let head = me.own.robust_list().take();
    if head == 0 {
        return;
    }
    let word = |at: u64| uaccess::load(at).ok();
    let (Some(first), Some(offset), Some(pending)) = (
        word(head),
        word(head.wrapping_add(8)),
        word(head.wrapping_add(16)),
    ) else {
        return;
    };
    let mut entry = first;
    for _ in 0..LIMIT {
        // The lowest bit says which kind of lock it is; none inherits priorities here.
        if entry & !1 == head {
            break;
        }
        let Some(next) = word(entry & !1) else { return };
        if entry & !1 != pending & !1 {
            give_up(me, (entry & !1).wrapping_add(offset));
        }
        entry = next;
    }
    if pending & !1 != 0 {
        give_up(me, (pending & !1).wrapping_add(offset));
    }
}

/// Marks a lock's word, if `me` holds it.
fn give_up(me: &Task, addr: u64) {
    const WAITERS: u32 = 1 << 31;
    const OWNER_DIED: u32 = 1 << 30;
    const OWNER: u32 = OWNER_DIED - 1;
    if !addr.is_multiple_of(4) {
        return;
    }
    while let Ok(found) = uaccess::load_u32(addr) {
        if found & OWNER != process::number(me) {
            return;
        }
        match uaccess::exchange_u32(addr, found, found & WAITERS | OWNER_DIED) {
            Ok(true) => {
                if found & WAITERS != 0 {
                    wake_at(me, addr, 1);
                }
                return;
            }
            Ok(false) => {}
            Err(_) => return,
        }
    }
}
