//! The rows, and how every side is measured: by the same loops, which are never inlined, so that a
//! profiler finds them by name.

use crate::common::machine::{CpuTime, PAGE, WallTime};
use crate::side::{Pages, Side, Space, User};
use core::cell::Cell;
use std::sync::Barrier;

/// Where threads' ranges lie apart, so that they share no table of the lowest level.
const APART: u64 = 2 << 20;
/// Pages of each mapping that is there besides; as many are free behind it.
const OTHER: u64 = 2;
/// Touched pages of an address space that forks.
const FORKED: u64 = 1000;

/// How often a round does each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Often {
    /// Calls.
    pub(crate) calls: u64,
    /// Pages that a thread touches.
    pub(crate) pages: u64,
    pub(crate) forks: u64,
}

/// What a row measures.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Row {
    Pair { among: u64 },
    PairBoth,
    Protect,
    Touch(Pages),
    TouchBoth(Pages),
    Unmap,
    Fork(Until),
}

/// The end of what a row of fork measures, from the fork on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The fork returns.
    Forked,
    /// The child has stored to each page.
    Stored,
    /// It has exited, and the parent has stored to each page: it is as before the fork.
    Restored,
}

/// All rows.
pub(crate) const ROWS: [(&str, Row); 12] = [
    (
        "mmap and munmap of a page among 10",
        Row::Pair { among: 10 },
    ),
    ("the same among 10,000", Row::Pair { among: 10_000 }),
    ("the same among 10, two threads", Row::PairBoth),
    ("mprotect there and back", Row::Protect),
    ("first touch, clear before", Row::Touch(Pages::Clear)),
    ("first touch with the clear", Row::Touch(Pages::Used)),
    (
        "first touch, clear before, two threads",
        Row::TouchBoth(Pages::Clear),
    ),
    (
        "first touch with the clear, two threads",
        Row::TouchBoth(Pages::Used),
    ),
    ("munmap of a touched page", Row::Unmap),
    ("fork, a touched page", Row::Fork(Until::Forked)),
    ("fork, child's store", Row::Fork(Until::Stored)),
    (
        "fork, child's store, exit, store",
        Row::Fork(Until::Restored),
    ),
];

/// Nanoseconds a call, pair or page. Two threads: of both together, by the clock on the wall; else
/// processor time.
pub(crate) fn measure<S: Side>(side: &S, row: Row, often: Often) -> f64 {
    let (times, pages) = (often.calls, often.pages);
    let with_others = |others| {
        let space = side.space(Pages::Any);
        among(&space, others);
        space
    };
    match row {
        Row::Pair { among: 10_000 } => pair(&with_others(10_000), times / 100),
        Row::Pair { among } => pair(&with_others(among), times),
        Row::PairBoth => together(&with_others(10), |user, _, wait| {
            wait();
            pairs(user, times);
            times
        }),
        Row::Protect => protect(&with_others(10), times),
        Row::Touch(found) => touch(&side.space(found), pages).touched,
        Row::TouchBoth(found) => together(&side.space(found), |user, cpu, wait| {
            let at = part(u64::from(cpu), pages);
            user.mmap_at(at, pages * PAGE);
            wait();
            faults(user, at, pages);
            pages
        }),
        Row::Unmap => touch(&side.space(Pages::Clear), pages).unmapped,
        Row::Fork(until) => forks(&side.space(Pages::Any), until, often.forks),
    }
}

/// Bytes that a mapping takes, of 10,000.
pub(crate) fn bytes_a_mapping<S: Side>(side: &S) -> f64 {
    let space = side.space(Pages::Any);
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

#[inline(never)]
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

#[inline(never)]
fn protects(user: &impl User, at: u64, times: u64) {
    for _ in 0..times {
        user.mprotect(at, PAGE, false);
        user.mprotect(at, PAGE, true);
    }
}

fn protect<A: Space>(space: &A, times: u64) -> f64 {
    space.on(0, |user| {
        let at = part(0, 1);
        user.mmap_at(at, PAGE);
        user.fault(at);
        protects(user, at, times / 10);
        let start = CpuTime::start();
        protects(user, at, times);
        start.ns() / times as f64
    })
}

#[inline(never)]
fn faults(user: &impl User, at: u64, pages: u64) {
    for page in 0..pages {
        user.fault(at + page * PAGE);
    }
}

/// Nanoseconds a page.
struct Touch {
    touched: f64,
    unmapped: f64,
}

/// A first touch of each page, and their munmap.
fn touch<A: Space>(space: &A, pages: u64) -> Touch {
    space.on(0, |user| {
        let at = part(0, pages);
        user.mmap_at(at, pages * PAGE);
        let start = CpuTime::start();
        faults(user, at, pages);
        let touched = start.ns();
        let start = CpuTime::start();
        unmap(user, at, pages);
        Touch {
            touched: touched / pages as f64,
            unmapped: start.ns() / pages as f64,
        }
    })
}

#[inline(never)]
fn unmap(user: &impl User, at: u64, pages: u64) {
    user.munmap(at, pages * PAGE);
}

#[inline(never)]
fn stores(user: &impl User, at: u64, value: u64) {
    for page in 0..FORKED {
        user.store(at + page * PAGE, value);
    }
}

/// Nanoseconds a touched page, of `times` forks one after the other.
fn forks<A: Space>(space: &A, until: Until, times: u64) -> f64 {
    let (at, mut ns) = (part(0, FORKED), 0.0);
    space.on(0, |user| {
        user.mmap_at(at, FORKED * PAGE);
        stores(user, at, 0);
    });
    for time in 0..times {
        let (child, forked) = space.on(0, |_| {
            let start = CpuTime::start();
            let child = fork(space);
            (child, start.ns())
        });
        let stored = child.on(0, |user| {
            assert_eq!(user.load(at), time, "what the parent stored");
            let start = CpuTime::start();
            stores(user, at, !time);
            start.ns()
        });
        let restored = space.on(0, |user| {
            assert_eq!(user.load(at), time, "not what the child stored");
            let start = CpuTime::start();
            exit(child);
            stores(user, at, time + 1);
            start.ns()
        });
        ns += match until {
            Until::Forked => forked,
            Until::Stored => forked + stored,
            Until::Restored => forked + stored + restored,
        };
    }
    ns / (times * FORKED) as f64
}

#[inline(never)]
fn fork<A: Space>(space: &A) -> A {
    space.fork()
}

#[inline(never)]
fn exit<A: Space>(child: A) {
    drop(child);
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
