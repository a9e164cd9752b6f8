//! Model of the sleeping lock: exclusion, and that everybody gets it in the end. A lost wake-up
//! would be a deadlock, which loom reports.
//!
//! Bounds: two tasks of one section, at most 6 preemptions; two tasks that come back, at most 5;
//! three tasks, at most 3. Each runs with waiters that find the writer running, and so spin, and
//! with waiters that find it not running, and so queue.
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
use minflt_sync::RwSem;
use minflt_sync::order::MmapLock;

struct Shared<const SPIN: bool> {
    lock: RwSem<MmapLock, Loom<SPIN>>,
    number: UnsafeCell<u64>,
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
fn run<const SPIN: bool>(preemptions: usize, tasks: &'static [&'static [Act]]) {
    check(tasks.len() as u32, preemptions, move || {
        let shared = Shared::<SPIN> {
            lock: RwSem::new(),
            number: UnsafeCell::new(0),
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
        assert_eq!(shared.look(), writes.count() as u64);
        assert!(!shared.lock.is_held() && !shared.lock.has_waiters());
    });
}

fn both(preemptions: usize, tasks: &'static [&'static [Act]]) {
    run::<false>(preemptions, tasks);
    run::<true>(preemptions, tasks);
}

#[test]
fn a_reader_and_a_writer() {
    both(6, &[&[Act::Read], &[Act::Write]]);
}

#[test]
fn two_writers() {
    both(6, &[&[Act::Write], &[Act::Write]]);
}

#[test]
fn two_tasks_that_come_back() {
    both(5, &[&[Act::Write, Act::Read], &[Act::Write, Act::TryRead]]);
}

#[test]
fn two_readers_and_a_writer() {
    both(3, &[&[Act::Read], &[Act::Read], &[Act::Write]]);
}

#[test]
fn a_reader_and_two_writers() {
    both(3, &[&[Act::Read], &[Act::Write], &[Act::Write]]);
}

#[test]
fn three_writers() {
    both(3, &[&[Act::Write], &[Act::Write], &[Act::Write]]);
}

#[test]
fn a_holder_that_reads_while_a_writer_and_a_reader_queue() {
    both(3, &[&[Act::Read, Act::Read], &[Act::Write], &[Act::Read]]);
}

#[test]
fn a_writer_that_goes_on_reading_and_another() {
    both(6, &[&[Act::WriteRead], &[Act::Read]]);
    both(6, &[&[Act::WriteRead], &[Act::Write]]);
    both(5, &[&[Act::WriteRead, Act::Read], &[Act::WriteRead]]);
}

#[test]
fn a_writer_that_goes_on_reading_while_a_writer_and_a_reader_queue() {
    both(3, &[&[Act::WriteRead], &[Act::Write], &[Act::Read]]);
}

#[test]
fn a_writer_that_goes_on_reading_lets_two_readers_in() {
    both(3, &[&[Act::WriteRead], &[Act::Read], &[Act::Read]]);
}
