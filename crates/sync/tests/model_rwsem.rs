//! Model of the sleeping lock: exclusion, and that everybody gets it in the end. A lost wake-up
//! would be a deadlock, which loom reports.
//!
//! Bounds: two tasks of one section, at most 6 preemptions; two tasks that come back, at most 5;
//! three tasks, at most 3. Each runs with every succession; two tasks both where spinners find the
//! writer running, and where they find it not running, and so queue.
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
use minflt_sync::order::MmapLock;
use minflt_sync::{Atomic, Ordering, RwSem, Succession};

struct Shared<const SPIN: bool> {
    lock: RwSem<MmapLock, Loom<SPIN>>,
    number: UnsafeCell<u64>,
    /// Tries to write that were not in vain.
    tried: Atomic<u64, Loom<SPIN>>,
}

// SAFETY: loom finds accesses to `number` that nothing orders.
unsafe impl<const SPIN: bool> Sync for Shared<SPIN> {}
// SAFETY: as above.
unsafe impl<const SPIN: bool> Send for Shared<SPIN> {}

/// What one task does, in order.
#[derive(Clone, Copy)]
enum Act {
    Read,
    TryRead,
    Write,
    TryWrite,
    /// Writes, then reads what it wrote: nobody else wrote in between.
    WriteRead,
}

impl<const SPIN: bool> Shared<SPIN> {
    fn act(&self, acts: &[Act]) {
        for act in acts {
            match act {
                Act::Read => {
                    let _lock = self.lock.read();
                    self.look();
                }
                Act::TryRead => {
                    if let Some(_lock) = self.lock.try_read() {
                        self.look();
                    }
                }
                Act::Write => {
                    let _lock = self.lock.write();
                    self.number.with_mut(|number| {
                        // SAFETY: loom has just checked that nobody else is here.
                        unsafe { *number += 1 };
                    });
                }
                Act::TryWrite => {
                    if let Some(_lock) = self.lock.try_write() {
                        self.tried.add(1, Ordering::Relaxed);
                        self.number.with_mut(|number| {
                            // SAFETY: loom has just checked that nobody else is here.
                            unsafe { *number += 1 };
                        });
                    }
                }
                Act::WriteRead => {
                    let lock = self.lock.write();
                    let wrote = self.number.with_mut(|number| {
                        // SAFETY: loom has just checked that nobody else is here.
                        unsafe { *number += 1 };
                        // SAFETY: as above.
                        unsafe { *number }
                    });
                    let _lock = lock.downgrade();
                    assert_eq!(self.look(), wrote, "a writer came in between");
                }
            }
        }
    }

    fn look(&self) -> u64 {
        self.number.with(|number| {
            // SAFETY: loom has just checked that nobody writes.
            unsafe { *number }
        })
    }
}

/// One task for each list of acts.
fn run<const SPIN: bool>(
    succession: Succession,
    preemptions: usize,
    tasks: &'static [&'static [Act]],
) {
    check(tasks.len() as u32, preemptions, move || {
        let shared = Shared::<SPIN> {
            lock: RwSem::new(succession),
            number: UnsafeCell::new(0),
            tried: Atomic::new(0),
        };
        let shared = Arc::new(shared);
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
        let writes = tasks
            .iter()
            .flat_map(|acts| *acts)
            .filter(|act| matches!(act, Act::Write | Act::WriteRead));
        assert_eq!(shared.look(), writes.count() as u64 + shared.tried.peek());
        assert!(!shared.lock.is_held() && !shared.lock.has_waiters());
    });
}

/// Every succession, with writers that are seen to run and not to run.
fn all(preemptions: usize, tasks: &'static [&'static [Act]]) {
    for succession in Succession::ALL {
        run::<false>(succession, preemptions, tasks);
        if succession.spins() {
            run::<true>(succession, preemptions, tasks);
        }
    }
}

/// Every succession once; for three tasks.
fn each(preemptions: usize, tasks: &'static [&'static [Act]]) {
    for succession in [Succession::Grant, Succession::Steal, Succession::HandOff] {
        run::<false>(succession, preemptions, tasks);
    }
    run::<true>(Succession::Spin, preemptions, tasks);
}

#[test]
fn a_reader_and_a_writer() {
    all(6, &[&[Act::Read], &[Act::Write]]);
}

#[test]
fn two_writers() {
    all(6, &[&[Act::Write], &[Act::Write]]);
}

#[test]
fn two_tasks_that_come_back() {
    all(5, &[&[Act::Write, Act::Read], &[Act::Write, Act::TryRead]]);
}

#[test]
fn a_try_to_write_excludes_and_gives_up() {
    all(6, &[&[Act::Write], &[Act::TryWrite, Act::Read]]);
    all(6, &[&[Act::Read], &[Act::TryWrite]]);
    all(5, &[&[Act::TryWrite, Act::TryWrite], &[Act::TryWrite]]);
}

#[test]
fn a_try_to_write_while_a_writer_and_a_reader_queue() {
    each(3, &[&[Act::TryWrite], &[Act::Write], &[Act::Read]]);
}

#[test]
fn two_readers_and_a_writer() {
    each(3, &[&[Act::Read], &[Act::Read], &[Act::Write]]);
}

#[test]
fn a_reader_and_two_writers() {
    each(3, &[&[Act::Read], &[Act::Write], &[Act::Write]]);
}

#[test]
fn three_writers() {
    each(3, &[&[Act::Write], &[Act::Write], &[Act::Write]]);
}

#[test]
fn a_holder_that_reads_while_a_writer_and_a_reader_queue() {
    each(3, &[&[Act::Read, Act::Read], &[Act::Write], &[Act::Read]]);
}

#[test]
fn a_writer_that_goes_on_reading_and_another() {
    all(6, &[&[Act::WriteRead], &[Act::Read]]);
    all(6, &[&[Act::WriteRead], &[Act::Write]]);
    all(5, &[&[Act::WriteRead, Act::Read], &[Act::WriteRead]]);
}

#[test]
fn a_writer_that_goes_on_reading_while_a_writer_and_a_reader_queue() {
    each(3, &[&[Act::WriteRead], &[Act::Write], &[Act::Read]]);
}

#[test]
fn a_writer_that_goes_on_reading_lets_two_readers_in() {
    each(3, &[&[Act::WriteRead], &[Act::Read], &[Act::Read]]);
}

/// How a copy of the protocol takes the lock, and lets a waiter in.
#[derive(Clone, Copy)]
struct Orders {
    try_write: Ordering,
    grant: Ordering,
}

const SOUND: Orders = Orders {
    try_write: Ordering::Acquire,
    grant: Ordering::Release,
};

/// A writer that tries, and a reader that was queued: the writer inside lets go, and grants the
/// lock to the reader, who does not look at the lock's word any more.
fn copy_of_the_protocol(orders: Orders) {
    check(3, 4, move || {
        let count = Atomic::<u64, Loom<false>>::new(1);
        let granted = Atomic::<u64, Loom<false>>::new(0);
        let shared = Arc::new((count, granted, UnsafeCell::new(0_u64)));
        let (tries, waits) = (shared.clone(), shared.clone());
        let writer = spawn(1, move || {
            let (count, _, number) = &*tries;
            let order = orders.try_write;
            if count.cas(0, 1, order, Ordering::Relaxed).is_ok() {
                number.with_mut(|_| ());
                count.sub(1, Ordering::Release);
            }
        });
        let reader = spawn(2, move || {
            let (_, granted, number) = &*waits;
            if granted.load(Ordering::Acquire) == 1 {
                number.with(|_| ());
            }
        });
        let (count, granted, number) = &*shared;
        number.with_mut(|_| ());
        // Either the reader is let in, and stays counted, or nobody is.
        if count
            .cas(1, 2, Ordering::Release, Ordering::Relaxed)
            .is_ok()
        {
            granted.store(1, orders.grant);
        }
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// As above, but nobody queues.
fn copy_without_a_queue(orders: Orders) {
    check(2, 4, move || {
        let shared = Arc::new((Atomic::<u64, Loom<false>>::new(1), UnsafeCell::new(0_u64)));
        let tries = shared.clone();
        let writer = spawn(1, move || {
            let (count, number) = &*tries;
            let order = orders.try_write;
            if count.cas(0, 1, order, Ordering::Relaxed).is_ok() {
                number.with_mut(|_| ());
                count.sub(1, Ordering::Release);
            }
        });
        let (count, number) = &*shared;
        number.with_mut(|_| ());
        count.sub(1, Ordering::Release);
        writer.join().unwrap();
    });
}

#[test]
fn the_copy_is_sound_with_everything_in_place() {
    copy_of_the_protocol(SOUND);
    copy_without_a_queue(SOUND);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_relaxed_grant_is_found() {
    copy_of_the_protocol(Orders {
        grant: Ordering::Relaxed,
        ..SOUND
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_relaxed_try_to_write_is_found() {
    copy_without_a_queue(Orders {
        try_write: Ordering::Relaxed,
        ..SOUND
    });
}
