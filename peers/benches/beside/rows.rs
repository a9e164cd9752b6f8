//! How both sides are measured.

use crate::common::machine::{CpuTime, PAGE, WallTime};
use crate::side::{Pages, Side, Space, User};
use core::cell::Cell;
use std::sync::Barrier;

/// Where threads' ranges lie apart, so that they share no table of the lowest level.
const APART: u64 = 2 << 20;
/// Pages of each mapping that is there besides; as many are free behind it.
const OTHER: u64 = 2;

/// The rows, in the order of what [`measure`] returns.
pub(crate) const ROWS: [&str; 8] = [
    "mmap and munmap of a page among 10 mappings",
    "the same among 10,000 mappings",
    "the same among 10, two threads",
    "mprotect of a mapping there and back, among 10",
    "first touch, page clear beforehand",
    "first touch with the clear",
    "first touch, page clear beforehand, two threads",
    "munmap of a touched page, many at once",
];

/// Nanoseconds a call, pair or page, one number a row. Two threads: of both together, by the clock
/// on the wall; else processor time.
pub(crate) fn measure<S: Side>(side: &S, times: u64, pages: u64) -> Vec<f64> {
    let (few, protect) = {
        let space = side.space(Pages::Used);
        among(&space, 10);
        (pair(&space, times), protect(&space, times))
    };
    let many = {
        let space = side.space(Pages::Used);
        among(&space, 10_000);
        pair(&space, times / 100)
    };
    let both = {
        let space = side.space(Pages::Used);
        among(&space, 10);
        together(&space, |user, _, wait| {
            wait();
            pairs(user, times);
            times
        })
    };
    let (clear, unmap) = touch(&side.space(Pages::Clear), pages);
    let (with, _) = touch(&side.space(Pages::Used), pages);
    let two = {
        let space = side.space(Pages::Clear);
        together(&space, |user, cpu, wait| {
            let at = part(u64::from(cpu), pages);
            user.mmap_at(at, pages * PAGE);
            wait();
            faults(user, at, pages);
            pages
        })
    };
    vec![few, many, both, protect, clear, with, two, unmap]
}

/// Bytes that a mapping takes, of 10,000.
pub(crate) fn bytes_a_mapping<S: Side>(side: &S) -> f64 {
    let space = side.space(Pages::Used);
    let before = side.bytes(&space);
    among(&space, 10_000);
    (side.bytes(&space) - before) as f64 / 10_000.0
}

/// Where the range of a thread starts.
const fn part(thread: u64, pages: u64) -> u64 {
    (1 << 40) + thread * (pages * PAGE).next_multiple_of(APART)
}

/// Maps `others` mappings with gaps between them that the mappings measured do fit in.
fn among<A: Space>(space: &A, others: u64) {
    space.on(0, |user| {
        let top = (1 << 46) - 4 * OTHER * PAGE * others;
        for other in 0..others {
            user.mmap_at(top + 2 * OTHER * PAGE * other, OTHER * PAGE);
        }
    });
}

fn pairs(user: &impl User, times: u64) {
    for _ in 0..times {
        let at = user.mmap(PAGE);
        user.munmap(at, PAGE);
    }
}

fn pair<A: Space>(space: &A, times: u64) -> f64 {
    space.on(0, |user| {
        pairs(user, times / 10);
        let start = CpuTime::start();
        pairs(user, times);
        start.ns() / times as f64
    })
}

fn protect<A: Space>(space: &A, times: u64) -> f64 {
    space.on(0, |user| {
        let at = part(0, 1);
        user.mmap_at(at, PAGE);
        user.fault(at);
        let run = |times| {
            for _ in 0..times {
                user.mprotect(at, PAGE, false);
                user.mprotect(at, PAGE, true);
            }
        };
        run(times / 10);
        let start = CpuTime::start();
        run(times);
        start.ns() / times as f64
    })
}

fn faults(user: &impl User, at: u64, pages: u64) {
    for page in 0..pages {
        user.fault(at + page * PAGE);
    }
}

/// A first touch of each page, and the end of all.
fn touch<A: Space>(space: &A, pages: u64) -> (f64, f64) {
    space.on(0, |user| {
        let at = part(0, pages);
        user.mmap_at(at, pages * PAGE);
        let start = CpuTime::start();
        faults(user, at, pages);
        let touched = start.ns();
        let start = CpuTime::start();
        user.munmap(at, pages * PAGE);
        (touched / pages as f64, start.ns() / pages as f64)
    })
}

/// Two threads of one address space, that begin together when they call what they are given; what
/// they return is how many operations they did. Nanoseconds from the first begin to the last end,
/// by operations of both.
fn together<A: Space + Sync>(
    space: &A,
    run: impl Fn(&A::User<'_>, u32, &dyn Fn()) -> u64 + Sync,
) -> f64 {
    let (ready, start) = (Barrier::new(2), WallTime::start());
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|cpu| {
            let (ready, start, run) = (&ready, &start, &run);
            scope.spawn(move || {
                space.on(cpu, |user| {
                    let began = Cell::new(0.0);
                    let did = run(user, cpu, &|| {
                        ready.wait();
                        began.set(start.ns());
                    });
                    (did, began.get(), start.ns())
                })
            })
        });
        let [one, two] = threads.map(|thread| thread.join().expect("no panic"));
        (one.2.max(two.2) - one.1.min(two.1)) / (one.0 + two.0) as f64
    })
}
