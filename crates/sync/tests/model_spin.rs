//! Model of the spinning lock: exclusion, and that the section's accesses stay inside.
//!
//! Bounds: two tasks of two sections each, three tasks of one; at most 4 preemptions.
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
use minflt_sync::order::PageTableLock;
use minflt_sync::{Atomic, Ordering, SpinLock};

type M = Loom<true>;

/// A number that loom watches: unordered accesses to it fail the model.
#[derive(Default)]
struct Watched(UnsafeCell<u64>);

// SAFETY: loom finds accesses that nothing orders.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn add_one(&self) {
        self.0.with_mut(|number| {
            // SAFETY: loom has just checked that nobody else is here.
            unsafe { *number += 1 };
        });
    }

    fn get(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|number| unsafe { *number })
    }
}

fn sections(tasks: u32, each: u64) {
    check(tasks, 4, move || {
        let shared = Arc::new((
            SpinLock::<(), PageTableLock, M>::new(()),
            Watched::default(),
        ));
        let run = move |shared: &(SpinLock<(), PageTableLock, M>, Watched)| {
            for _ in 0..each {
                let _lock = shared.0.lock();
                shared.1.add_one();
            }
        };
        let others: Vec<_> = (1..tasks as usize)
            .map(|at| {
                let shared = shared.clone();
                spawn(at, move || run(&shared))
            })
            .collect();
        run(&shared);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(shared.1.get(), u64::from(tasks) * each);
    });
}

#[test]
fn two_tasks_exclude_each_other() {
    sections(2, 2);
}

#[test]
fn three_tasks_exclude_each_other() {
    sections(3, 1);
}

#[test]
fn a_try_excludes_and_gives_up() {
    check(2, 4, || {
        let shared = Arc::new((
            SpinLock::<(), PageTableLock, M>::new(()),
            Watched::default(),
        ));
        let theirs = shared.clone();
        let other = spawn(1, move || {
            if let Some(_lock) = theirs.0.try_lock() {
                theirs.1.add_one();
            }
        });
        {
            let _lock = shared.0.lock();
            shared.1.add_one();
        }
        other.join().unwrap();
        assert!((1..=2).contains(&shared.1.get()));
    });
}

/// The same lock with a relaxed release: the model must see that the section leaks.
#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_relaxed_release_is_found() {
    check(2, 4, || {
        let shared = Arc::new((Atomic::<u32, M>::new(0), Watched::default()));
        let run = |shared: &(Atomic<u32, M>, Watched)| {
            while shared
                .0
                .cas(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                shared.0.wait_until(u32::MAX, 0);
            }
            shared.1.add_one();
            shared.0.store(0, Ordering::Relaxed);
        };
        let theirs = shared.clone();
        let other = spawn(1, move || run(&theirs));
        run(&shared);
        other.join().unwrap();
    });
}
