//! Model of the locks that are a bit: exclusion, and that everybody gets it in the end, or sees it
//! clear. A lost wake-up would be a deadlock, which loom reports.
//!
//! Bounds: two tasks, at most 5 preemptions; three tasks, at most 3, or 2 where two words or two
//! bits of one word share a queue.
#![cfg(loom)]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "the whole crate is a test"
)]

#[path = "common/loom_machine.rs"]
mod loom_machine;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom_machine::{Loom, check, spawn};
use minflt_sync::order::{FolioLock, WaitLock};
use minflt_sync::{Atomic, Ordering, SpinLock, WaitTable};

type M = Loom<false>;

const LOCKED: u32 = 1;
const WAITERS: u32 = 1 << 1;
const BUSY: u32 = 1 << 2;
/// Whoever waits while others overtake it was inside.
const DONE: u32 = 1 << 3;
/// BUSY was set once more.
const SECOND: u32 = 1 << 4;

/// Two keys of one queue; a unit test says that they are.
const KEYS: [u64; 2] = [0, 89];

/// What one task does, in order.
#[derive(Clone, Copy)]
enum Act {
    Lock,
    TryLock,
    /// As `Lock`, of the other word, whose sleepers stand in the same queue.
    LockOther,
    /// Does what others wait for; BUSY was set before the tasks began.
    WorkWhileBusy,
    /// Waits until that is done, and looks.
    WaitBusy,
    /// Sets BUSY once more, and waits until that is done, too.
    BusyAgain,
    /// When it is set once more, does what is waited for then.
    WorkAgain,
    /// As `Lock`, and says DONE inside.
    LockOnce,
    /// Holds the lock until the one with `LockOnce` sleeps for it, lets go, and tries to overtake
    /// it: then that one is handed the lock.
    Overtake,
}

/// Where each counts what it did: sections of both words, work, work once more.
const WORK: usize = 2;
const AGAIN: usize = 3;

struct Shared {
    table: WaitTable<M>,
    words: [Atomic<u32, M>; 2],
    numbers: [UnsafeCell<u64>; 4],
}

// SAFETY: loom finds accesses to `numbers` that nothing orders.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(word: u32) -> Self {
        Self {
            table: WaitTable::new(),
            words: [Atomic::new(word), Atomic::new(0)],
            numbers: [0; 4].map(UnsafeCell::new),
        }
    }

    fn act(&self, acts: &[Act]) {
        for act in acts {
            match act {
                Act::Lock => self.section(0),
                Act::LockOther => self.section(1),
                Act::TryLock => {
                    if self.table.try_lock::<FolioLock>(&self.words[0], LOCKED) {
                        self.add_one(0);
                        self.unlock(0);
                    }
                }
                Act::WorkWhileBusy => self.work(WORK),
                Act::WaitBusy => self.wait(WORK),
                Act::BusyAgain => {
                    self.spin_until(BUSY, 0);
                    self.words[0].or(BUSY | SECOND, Ordering::Relaxed);
                    self.wait(AGAIN);
                }
                Act::WorkAgain => {
                    self.spin_until(SECOND, SECOND);
                    self.work(AGAIN);
                }
                Act::LockOnce => {
                    self.table
                        .lock::<FolioLock>(KEYS[0], &self.words[0], LOCKED, WAITERS);
                    self.add_one(0);
                    self.words[0].or(DONE, Ordering::Relaxed);
                    self.unlock(0);
                }
                Act::Overtake => self.overtake(),
            }
        }
    }

    fn work(&self, which: usize) {
        self.add_one(which);
        self.table
            .clear_and_wake(KEYS[0], &self.words[0], BUSY, WAITERS);
    }

    fn wait(&self, which: usize) {
        self.table
            .wait_clear(KEYS[0], &self.words[0], BUSY, WAITERS);
        assert_eq!(self.look(which), 1, "woken too early");
    }

    /// An exchange that changes nothing reads the newest value, as a load need not.
    fn spin_until(&self, bit: u32, eq: u32) {
        while self.words[0].or(0, Ordering::Relaxed) & bit != eq {
            self.words[0].wait_until(bit, eq);
        }
    }

    fn overtake(&self) {
        let word = &self.words[0];
        self.table.lock::<FolioLock>(KEYS[0], word, LOCKED, WAITERS);
        self.hold_until_wanted();
        if self.table.try_lock::<FolioLock>(word, LOCKED) {
            self.hold_until_wanted();
        }
    }

    /// Lets the lock go that the caller has. Who was not inside yet comes, and has to sleep.
    fn hold_until_wanted(&self) {
        let word = &self.words[0];
        self.add_one(0);
        while word.or(0, Ordering::Relaxed) & (DONE | WAITERS) == 0 {
            word.wait_until(WAITERS, WAITERS);
        }
        self.unlock(0);
    }

    fn section(&self, at: usize) {
        self.table
            .lock::<FolioLock>(KEYS[at], &self.words[at], LOCKED, WAITERS);
        self.add_one(at);
        self.unlock(at);
    }

    fn unlock(&self, at: usize) {
        self.table
            .unlock::<FolioLock>(KEYS[at], &self.words[at], LOCKED, WAITERS);
    }

    fn add_one(&self, at: usize) {
        self.numbers[at].with_mut(|number| {
            // SAFETY: loom has just checked that nobody else is here.
            unsafe { *number += 1 };
        });
    }

    fn look(&self, at: usize) -> u64 {
        self.numbers[at].with(|number| {
            // SAFETY: loom has just checked that nobody writes.
            unsafe { *number }
        })
    }
}

/// One task for each list of acts, beginning with `word`.
fn run(preemptions: usize, word: u32, tasks: &'static [&'static [Act]]) {
    check(tasks.len() as u32, preemptions, move || {
        let shared = Arc::new(Shared::new(word));
        let others: Vec<_> = (1..tasks.len())
            .map(|at| {
                let shared = shared.clone();
                spawn(at, move || shared.act(tasks[at]))
            })
            .collect();
        shared.act(tasks[0]);
        for other in others {
            other.join().unwrap();
        }
        let acts = || tasks.iter().flat_map(|acts| *acts);
        if !acts().any(|act| matches!(act, Act::TryLock | Act::Overtake)) {
            let locks = acts().filter(|act| matches!(act, Act::Lock)).count();
            assert_eq!(shared.look(0), locks as u64);
        }
        let others = acts().filter(|act| matches!(act, Act::LockOther)).count();
        assert_eq!(shared.look(1), others as u64);
        // Neither locked, nor does anybody sleep.
        let left = shared
            .words
            .each_ref()
            .map(|word| word.peek() & !(DONE | SECOND));
        assert_eq!(left, [0, 0]);
    });
}

#[test]
fn two_tasks_that_come_back() {
    run(5, 0, &[&[Act::Lock, Act::Lock], &[Act::Lock, Act::Lock]]);
}

#[test]
fn a_try_excludes_and_gives_up() {
    run(5, 0, &[&[Act::Lock], &[Act::TryLock, Act::Lock]]);
}

#[test]
fn three_tasks() {
    run(3, 0, &[&[Act::Lock], &[Act::Lock], &[Act::Lock]]);
}

#[test]
fn a_sleeper_that_is_overtaken_is_handed_the_lock() {
    run(
        3,
        0,
        &[&[Act::Lock, Act::Lock], &[Act::Lock], &[Act::TryLock]],
    );
}

#[test]
fn two_words_in_one_queue() {
    run(
        2,
        0,
        &[
            &[Act::Lock, Act::LockOther],
            &[Act::LockOther],
            &[Act::Lock],
        ],
    );
}

#[test]
fn who_waits_sees_what_was_done() {
    run(5, BUSY, &[&[Act::WorkWhileBusy], &[Act::WaitBusy]]);
}

#[test]
fn two_wait_for_the_end() {
    run(
        3,
        BUSY,
        &[&[Act::WorkWhileBusy], &[Act::WaitBusy], &[Act::WaitBusy]],
    );
}

#[test]
fn who_waits_for_a_bit_is_not_woken_for_another_of_its_queue() {
    run(
        2,
        BUSY,
        &[
            &[Act::Lock, Act::WorkWhileBusy],
            &[Act::WaitBusy],
            &[Act::Lock],
        ],
    );
    run(
        2,
        BUSY,
        &[
            &[Act::LockOther, Act::WorkWhileBusy],
            &[Act::WaitBusy],
            &[Act::LockOther],
        ],
    );
}

#[test]
fn who_waits_after_the_bit_was_set_again_is_not_woken_for_the_first_time() {
    run(
        3,
        BUSY,
        &[
            &[Act::WorkWhileBusy, Act::WorkAgain],
            &[Act::WaitBusy],
            &[Act::BusyAgain],
        ],
    );
}

#[test]
fn who_is_woken_by_another_than_the_last_worker_sees_its_work() {
    // WAITERS is set as by one that was about to sleep, and found the bit clear.
    run(
        3,
        BUSY | WAITERS,
        &[&[Act::WorkWhileBusy], &[Act::BusyAgain], &[Act::WorkAgain]],
    );
}

#[test]
fn who_is_handed_the_lock_sees_the_section_of_one_that_came_by() {
    run(3, 0, &[&[Act::Overtake], &[Act::LockOnce], &[Act::TryLock]]);
}

/// What the copy of the protocol does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Says that somebody sleeps in a step of its own, after the look at the bit.
    SaysSoLate,
    /// Lets go before what was done in the section.
    RelaxedUnlock,
    /// Wakes the first, and says that nobody sleeps although one is left.
    ForgetsTheRest,
    /// Says that a sleeper was woken before what was done for it.
    RelaxedGrant,
}

/// The protocol for one word. Who would sleep ends instead, and is gone on with when the others
/// have ended: loom's report of a deadlock cannot be expected by a test.
struct Copy {
    word: Atomic<u32, M>,
    queue: SpinLock<Queue, WaitLock, M>,
    number: UnsafeCell<u64>,
}

#[derive(Default)]
struct Queue {
    sleep: u32,
    woken: u32,
}

// SAFETY: loom finds accesses to `number` that nothing orders.
unsafe impl Sync for Copy {}
// SAFETY: as above.
unsafe impl Send for Copy {}

impl Copy {
    fn section(&self, wrong: Wrong) {
        if self.word.or(LOCKED, Ordering::Acquire) & LOCKED != 0 && self.sleep(wrong) {
            return;
        }
        self.number.with_mut(|number| {
            // SAFETY: loom has just checked that nobody else is here.
            unsafe { *number += 1 };
        });
        let order = if wrong == Wrong::RelaxedUnlock {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        if self.word.and(!LOCKED, order) & WAITERS != 0 {
            self.wake(wrong);
        }
    }

    /// Whether it has to; else it has the lock.
    fn sleep(&self, wrong: Wrong) -> bool {
        let mut queue = self.queue.lock();
        let late = wrong == Wrong::SaysSoLate;
        let bits = if late { LOCKED } else { LOCKED | WAITERS };
        if self.word.or(bits, Ordering::Acquire) & LOCKED == 0 {
            return false;
        }
        if late {
            self.word.or(WAITERS, Ordering::Relaxed);
        }
        queue.sleep += 1;
        true
    }

    fn wake(&self, wrong: Wrong) {
        let mut queue = self.queue.lock();
        if self.word.load(Ordering::Relaxed) & LOCKED != 0 {
            return;
        }
        if queue.sleep > 0 {
            queue.sleep -= 1;
            queue.woken += 1;
        }
        if queue.sleep == 0 || wrong == Wrong::ForgetsTheRest {
            self.word.and(!WAITERS, Ordering::Relaxed);
        }
    }

    /// The next that was woken, if any.
    fn take_woken(&self) -> bool {
        let mut queue = self.queue.lock();
        let any = queue.woken > 0;
        queue.woken -= u32::from(any);
        any
    }
}

fn copy_of_the_protocol(tasks: u32, wrong: Wrong) {
    check(tasks, 3, move || {
        let copy = Arc::new(Copy {
            word: Atomic::new(0),
            queue: SpinLock::new(Queue::default()),
            number: UnsafeCell::new(0),
        });
        let others: Vec<_> = (1..tasks)
            .map(|at| {
                let copy = copy.clone();
                spawn(at as usize, move || copy.section(wrong))
            })
            .collect();
        copy.section(wrong);
        for other in others {
            other.join().unwrap();
        }
        while copy.take_woken() {
            copy.section(wrong);
        }
        let asleep = copy.queue.lock().sleep;
        assert_eq!(asleep, 0, "somebody sleeps for ever");
    });
}

#[test]
fn the_copy_is_sound_with_everything_in_place() {
    copy_of_the_protocol(2, Wrong::Nothing);
    copy_of_the_protocol(3, Wrong::Nothing);
}

#[test]
#[should_panic(expected = "somebody sleeps for ever")]
fn control_a_sleeper_that_says_so_after_the_look_is_found() {
    copy_of_the_protocol(2, Wrong::SaysSoLate);
}

#[test]
#[should_panic(expected = "somebody sleeps for ever")]
fn control_a_waker_that_forgets_the_rest_is_found() {
    copy_of_the_protocol(3, Wrong::ForgetsTheRest);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_relaxed_unlock_is_found() {
    copy_of_the_protocol(2, Wrong::RelaxedUnlock);
}

/// A sleeper that finds itself woken before it has gone to sleep, and so takes no token.
fn copy_of_the_grant(wrong: Wrong) {
    check(2, 3, move || {
        let shared = Arc::new((Atomic::<u64, M>::new(0), UnsafeCell::new(0_u64)));
        let theirs = shared.clone();
        let sleeper = spawn(1, move || {
            if theirs.0.load(Ordering::Acquire) != 0 {
                theirs.1.with(|_| ());
            }
        });
        shared.1.with_mut(|_| ());
        let order = match wrong {
            Wrong::RelaxedGrant => Ordering::Relaxed,
            _ => Ordering::Release,
        };
        shared.0.store(1, order);
        sleeper.join().unwrap();
    });
}

#[test]
fn the_copy_of_the_grant_is_sound() {
    copy_of_the_grant(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_relaxed_grant_is_found() {
    copy_of_the_grant(Wrong::RelaxedGrant);
}
