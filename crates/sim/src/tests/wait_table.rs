//! Locks that are a bit: exclusion, and nobody is forgotten.

use super::{Bed, M, judge};
use crate::{Budget, RunOptions, RunReport, TaskSpec, explore};
use core::cell::Cell;
use minflt_sync::order::{FolioLock, MmapLock};
use minflt_sync::{Atomic, Machine, Ordering, RwSem, Succession, WaitTable};

const LOCKED: u32 = 1;
const WAITERS: u32 = 1 << 1;
const BUSY: u32 = 1 << 2;

/// What a task does, twice.
#[derive(Clone, Copy)]
enum Act {
    Lock,
    TryLock,
    /// Locks, says that it is busy, lets go, works, and says that it is done: as writing back does.
    Write,
    /// Locks, and waits with the lock until nobody is busy.
    WaitBusy,
}

/// Task `n` runs on CPU `on[n].0` and does `on[n].1`; the words of odd tasks' second turns have
/// another key in the same queue.
fn scenario(bed: &Bed, options: &RunOptions<'_>, on: &[(u32, Act)]) -> RunReport {
    // SAFETY: 1: the objects of the last schedule are not used any more.
    unsafe { bed.reset() };
    let table = bed.place(WaitTable::<M>::new());
    let words = [0, 1].map(|_| bed.place(Atomic::<u32, M>::new(0)));
    let keys = [0, 89];
    let inside = [Cell::new(false), Cell::new(false)];
    let busy = [Cell::new(false), Cell::new(false)];
    let fail = |wrong: bool, what: &str| {
        if wrong {
            M::violation(format_args!("{what}"));
        }
    };
    let body = |number: usize, act: Act| {
        let (inside, busy) = (&inside, &busy);
        move || {
            for turn in 0..2 {
                let which = turn * (number % 2);
                let (key, word) = (keys[which], words[which]);
                let unlock = || {
                    inside[which].set(false);
                    table.unlock::<FolioLock>(key, word, LOCKED, WAITERS);
                };
                if matches!(act, Act::TryLock) {
                    if !table.try_lock::<FolioLock>(word, LOCKED) {
                        continue;
                    }
                } else {
                    table.lock::<FolioLock>(key, word, LOCKED, WAITERS);
                }
                fail(inside[which].replace(true), "two are inside");
                word.load(Ordering::Relaxed);
                match act {
                    Act::Lock | Act::TryLock => unlock(),
                    Act::WaitBusy => {
                        table.wait_clear(key, word, BUSY, WAITERS);
                        // Nobody becomes busy without the lock.
                        fail(busy[which].get(), "woken too early");
                        unlock();
                    }
                    Act::Write => {
                        table.wait_clear(key, word, BUSY, WAITERS);
                        fail(busy[which].replace(true), "two write");
                        word.or(BUSY, Ordering::Relaxed);
                        unlock();
                        word.load(Ordering::Relaxed);
                        busy[which].set(false);
                        table.clear_and_wake(key, word, BUSY, WAITERS);
                    }
                }
            }
        }
    };
    let tasks = on.iter().enumerate();
    let tasks = tasks.map(|(number, (cpu, act))| TaskSpec::new(*cpu, body(number, *act)));
    let report = bed.run(options, tasks.collect());
    let left = words.iter().any(|word| word.peek() != 0);
    judge(
        report,
        left,
        "a word is locked, or says that somebody sleeps",
    )
}

#[test]
fn everybody_gets_in_alone_and_sees_the_end() {
    use Act::{Lock, TryLock, WaitBusy, Write};
    let mixes: [&[(u32, Act)]; 5] = [
        &[(0, Lock), (1, Lock), (2, Lock)],
        &[(0, Lock), (1, TryLock), (2, Lock), (3, TryLock)],
        &[(0, Write), (1, WaitBusy), (2, Lock)],
        // More tasks than CPUs: holders sleep.
        &[(0, Write), (0, Write), (1, Lock), (1, WaitBusy)],
        &[(0, Lock), (0, WaitBusy), (1, Write), (2, Write), (2, Lock)],
    ];
    for (number, mix) in mixes.iter().enumerate() {
        let bed = Bed::explorer(4);
        let budget = Budget {
            schedules: 4000,
            seed: 200 + number as u64,
        };
        let found = explore(&budget, |options| scenario(&bed, options, mix));
        if let Some(failure) = found.failure {
            panic!("mix {number}: {failure}");
        }
    }
}

fn outcome_of(body: impl FnOnce(&WaitTable<M>, &Atomic<u32, M>)) -> String {
    let bed = Bed::explorer(1);
    let table = bed.place(WaitTable::<M>::new());
    let word = bed.place(Atomic::<u32, M>::new(0));
    let task = TaskSpec::new(0, move || body(table, word));
    bed.run(&RunOptions::default(), vec![task])
        .outcome
        .to_string()
}

#[test]
fn order_and_sleep_are_checked_although_nobody_waits() {
    let text = outcome_of(|table, word| {
        table.lock::<FolioLock>(0, word, LOCKED, WAITERS);
        let outer = RwSem::<MmapLock, M>::new(Succession::HandOff);
        let _outer = outer.read();
    });
    assert!(text.contains("waits for MmapLock"), "{text}");
    let text = outcome_of(|table, word| {
        let _ = M::irq_save();
        table.wait_clear(0, word, BUSY, WAITERS);
    });
    assert!(text.contains("with interrupts off"), "{text}");
    let text = outcome_of(|table, word| {
        table.unlock::<FolioLock>(0, word, LOCKED, WAITERS);
    });
    assert!(text.contains("FolioLock released by"), "{text}");
}

#[test]
fn a_bit_that_nobody_set_cannot_be_cleared() {
    let clears = |set: u32| {
        outcome_of(move |table, word| {
            word.store(set, Ordering::Relaxed);
            table.clear_and_wake(0, word, BUSY, WAITERS);
        })
    };
    let text = clears(LOCKED);
    assert!(
        text.contains("unlocked bit 0x4, which was not locked"),
        "{text}"
    );
    assert!(!clears(LOCKED | BUSY).contains("cleared"));
}
