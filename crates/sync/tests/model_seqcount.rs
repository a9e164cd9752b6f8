//! Model of the sequence count: a reader that sees half of a change notices.
//!
//! Bounds: one writer of two sections, one reader of two attempts; at most 5 preemptions.
#![cfg(loom)]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "the whole crate is a test"
)]

#[path = "common/loom_machine.rs"]
mod loom_machine;

use loom::sync::Arc;
use loom_machine::{Loom, check, spawn};
use minflt_sync::prim::fence;
use minflt_sync::{Atomic, Ordering, SeqCount};

type M = Loom<true>;

/// Two words that a section changes together.
struct Pair {
    first: Atomic<u64, M>,
    second: Atomic<u64, M>,
}

impl Pair {
    fn new() -> Self {
        Self {
            first: Atomic::new(0),
            second: Atomic::new(0),
        }
    }

    fn set(&self, value: u64) {
        self.first.store(value, Ordering::Relaxed);
        self.second.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (
            self.first.load(Ordering::Relaxed),
            self.second.load(Ordering::Relaxed),
        )
    }
}

#[test]
fn a_torn_read_is_noticed() {
    check(2, 5, || {
        let shared = Arc::new((SeqCount::<M>::new(), Pair::new()));
        let theirs = shared.clone();
        let writer = spawn(1, move || {
            for value in 1..=2 {
                theirs.0.write_begin();
                theirs.1.set(value);
                theirs.0.write_end();
            }
        });
        let mut last = 0;
        for _ in 0..2 {
            let Some(since) = shared.0.begin() else {
                continue;
            };
            let (first, second) = shared.1.get();
            if !shared.0.changed(since) {
                assert_eq!(first, second, "a torn read");
                assert!(first >= last, "a section older than one already seen");
                last = first;
            }
        }
        writer.join().unwrap();
        let since = shared.0.begin().unwrap();
        assert_eq!(shared.1.get(), (2, 2));
        assert!(!shared.0.changed(since) && !shared.0.is_odd());
    });
}

/// How the copy of the protocol opens its section.
#[derive(Clone, Copy)]
enum Opening {
    /// A fence after the increment, as `write_begin` has it.
    Fence,
    /// The increment itself is a release, which orders only what came before.
    ReleaseOnly,
}

fn copy_of_the_protocol(opening: Opening) {
    check(2, 5, move || {
        let shared = Arc::new((Atomic::<u64, M>::new(0), Pair::new()));
        let theirs = shared.clone();
        let writer = spawn(1, move || {
            match opening {
                Opening::Fence => {
                    theirs.0.add(1, Ordering::Relaxed);
                    fence(Ordering::Release);
                }
                Opening::ReleaseOnly => {
                    theirs.0.add(1, Ordering::Release);
                }
            }
            theirs.1.set(1);
            theirs.0.add(1, Ordering::Release);
        });
        let since = shared.0.load(Ordering::Acquire);
        if since.is_multiple_of(2) {
            let (first, second) = shared.1.get();
            fence(Ordering::Acquire);
            if shared.0.load(Ordering::Relaxed) == since {
                assert_eq!(first, second, "a torn read");
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn the_copy_is_sound_with_the_fence() {
    copy_of_the_protocol(Opening::Fence);
}

#[test]
#[should_panic(expected = "a torn read")]
fn control_a_missing_fence_is_found() {
    copy_of_the_protocol(Opening::ReleaseOnly);
}
