//! Model of per-CPU data: what one CPU writes without exclusive access, and others only read.
//!
//! Bounds: two CPUs that add twice each and one that sums, at most 3 preemptions; two CPUs, at most
//! 4.
#![cfg(loom)]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "the whole crate is a test"
)]

#[path = "common/areas.rs"]
mod areas;
#[path = "common/loom_machine.rs"]
mod loom_machine;

use areas::Areas;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom_machine::{Loom, check, spawn};
use minflt_sync::{Atomic, Counter, Ordering, PerCpu, this_cpu};

type M = Loom<true>;

/// What one CPU has.
struct Own {
    count: Counter,
    word: Atomic<u64, M>,
    /// For the CPU alone.
    private: UnsafeCell<u64>,
}

struct Shared {
    cpus: PerCpu<Own, M>,
    /// What `cpus` lies in; last, so dropped after it.
    _areas: Areas,
}

// SAFETY: loom finds accesses to `private` that nothing orders.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// Whose area a task uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Its CPU's.
    Own,
    /// CPU 0's, wherever it runs.
    First,
}

impl Shared {
    fn new(cpus: u32) -> Self {
        let areas = Areas::new(PerCpu::<Own, M>::bytes(cpus));
        let own = |_| Own {
            count: Counter::new(),
            word: Atomic::new(0),
            private: UnsafeCell::new(0),
        };
        // SAFETY: 1: as many bytes as asked for, aligned, ours, and kept as long as the areas.
        let cpus = unsafe { PerCpu::build(areas.base(), cpus, own) };
        Self {
            cpus,
            _areas: areas,
        }
    }

    fn area(&self, whose: Whose) -> &Own {
        match whose {
            Whose::Own => self.cpus.this(),
            Whose::First => self.cpus.get(0),
        }
    }

    fn add(&self, whose: Whose) {
        let own = self.area(whose);
        own.count.add(1);
        own.word.add_local(1, Ordering::Relaxed);
    }

    fn change_private(&self, whose: Whose) {
        self.area(whose).private.with_mut(|number| {
            // SAFETY: loom has just checked that nobody else is here.
            unsafe { *number += u64::from(this_cpu::<M>()) };
        });
    }

    fn sum(&self) -> (u64, u64) {
        let add = |sum: (u64, u64), own: &Own| {
            (
                sum.0 + own.count.get(),
                sum.1 + own.word.load(Ordering::Relaxed),
            )
        };
        self.cpus.iter().fold((0, 0), add)
    }
}

fn two_cpus_that_add(whose: Whose, times: u64, preemptions: usize) {
    check(3, preemptions, move || {
        let shared = Arc::new(Shared::new(3));
        let others: Vec<_> = (1..3)
            .map(|cpu| {
                let shared = shared.clone();
                spawn(cpu, move || {
                    for _ in 0..times {
                        shared.add(whose);
                    }
                })
            })
            .collect();
        // One that looks meanwhile sees no more than there will be, and none that goes back.
        let first = shared.sum();
        let second = shared.sum();
        assert!(first.0 <= second.0 && first.1 <= second.1);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(shared.sum(), (2 * times, 2 * times), "an addition is lost");
    });
}

fn two_cpus_with_private_data(whose: Whose) {
    check(2, 4, move || {
        let shared = Arc::new(Shared::new(2));
        let theirs = shared.clone();
        let other = spawn(1, move || {
            theirs.change_private(whose);
            theirs.add(whose);
            theirs.change_private(whose);
        });
        shared.change_private(whose);
        shared.add(whose);
        shared.change_private(whose);
        other.join().unwrap();
    });
}

#[test]
fn no_addition_is_lost_though_none_is_an_exchange() {
    two_cpus_that_add(Whose::Own, 2, 3);
}

#[test]
fn private_data_of_two_cpus() {
    two_cpus_with_private_data(Whose::Own);
}

#[test]
#[should_panic(expected = "an addition is lost")]
fn control_two_cpus_that_add_to_one_counter_are_found() {
    two_cpus_that_add(Whose::First, 1, 3);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_two_cpus_with_the_private_data_of_one_are_found() {
    two_cpus_with_private_data(Whose::First);
}
