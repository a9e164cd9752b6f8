//! Store buffers: what x86-TSO allows is seen, and nothing that it forbids.
//!
//! The litmus tests and their names are those of Sewell and others, "x86-TSO", CACM 2010, and of
//! Intel's and AMD's manuals.

use super::{Bed, M};
use crate::{Budget, How, Memory, Mix, Policy, RunOptions, TaskSpec, explore_mix};
use core::cell::Cell;
use minflt_sync::{Atomic, Kind, Machine, Ordering, TaskId};
use std::collections::BTreeSet;

type Word = Atomic<u64, M>;

struct Vars<'b> {
    x: &'b Word,
    y: &'b Word,
}

/// What one task does, and the two values it has seen.
type Body = fn(&Vars<'_>) -> [u64; 2];

/// What was seen: by each task, then `x` and `y` at the end.
type Seen = BTreeSet<(Vec<[u64; 2]>, u64, u64)>;

/// All results of a litmus test in 3,000 schedules of all kinds.
fn seen(memory: Memory, bodies: &[Body]) -> Seen {
    let bed = Bed::explorer(4);
    let mut all = Seen::new();
    let budget = Budget {
        schedules: 3_000,
        seed: 1,
    };
    let mix = Mix {
        memory: Some(memory),
        ..Mix::default()
    };
    let found = explore_mix(&budget, mix, |options| {
        // SAFETY: 1: the objects of the last schedule are not used any more.
        unsafe { bed.reset() };
        let vars = Vars {
            x: bed.place(Word::new(0)),
            y: bed.place(Word::new(0)),
        };
        let results = vec![Cell::new([0; 2]); bodies.len()];
        let task = |(body, result): (&Body, _)| (*body, result);
        let tasks = bodies.iter().zip(&results).map(task).enumerate();
        let vars = &vars;
        let tasks = tasks.map(|(cpu, (body, result))| {
            TaskSpec::new(cpu as u32, move || Cell::set(result, body(vars)))
        });
        let report = bed.run(options, tasks.collect());
        let results = results.into_iter().map(Cell::into_inner).collect();
        all.insert((results, vars.x.peek(), vars.y.peek()));
        report
    });
    assert!(found.failure.is_none());
    all
}

/// Whether `odd` is among the results with stores at once, and with buffers.
fn in_which(bodies: &[Body], odd: impl Fn(&[[u64; 2]], u64, u64) -> bool) -> [bool; 2] {
    [Memory::Sequential, Memory::Buffered].map(|memory| {
        let all = seen(memory, bodies);
        assert!(all.len() > 1, "schedules differ");
        all.iter().any(|(results, x, y)| odd(results, *x, *y))
    })
}

const NEVER: [bool; 2] = [false, false];
const WITH_BUFFERS: [bool; 2] = [false, true];

fn store(word: &Word, value: u64) {
    word.store(value, Ordering::Release);
}

fn load(word: &Word) -> u64 {
    word.load(Ordering::Acquire)
}

/// Both looked before either stored.
fn neither(results: &[[u64; 2]], _: u64, _: u64) -> bool {
    results.iter().all(|[looked, _]| *looked == 0)
}

/// Memory that becomes something else is written and copied as a whole, and no store to what it was
/// comes later. The first body is the control: it looks at memory without a word.
#[test]
fn what_is_held_reaches_an_object_that_is_written_copied_or_freed() {
    fn memory(word: &Word) -> u64 {
        let at = core::ptr::from_ref(word).cast::<u64>();
        // SAFETY: the word lives in the machine's memory, and its CPU is the only one to store.
        unsafe { at.read_volatile() }
    }
    fn at(word: &Word) -> *const u8 {
        core::ptr::from_ref(word).cast()
    }
    let other: Body = |v| [load(v.y), 0];
    let bodies: [(Body, [bool; 2]); 4] = [
        (
            |v| {
                store(v.x, 1);
                [memory(v.x), 0]
            },
            WITH_BUFFERS,
        ),
        (
            |v| {
                store(v.x, 1);
                M::before(at(v.x), 8, Kind::PlainWrite);
                [memory(v.x), 0]
            },
            NEVER,
        ),
        (
            |v| {
                store(v.x, 1);
                M::copied(at(v.x), 8);
                [memory(v.x), 0]
            },
            NEVER,
        ),
        (
            |v| {
                store(v.x, 1);
                M::freed(at(v.x), 8);
                [memory(v.x), 0]
            },
            NEVER,
        ),
    ];
    for (body, stale) in bodies {
        let is_stale = |all: &Seen| all.iter().any(|(results, ..)| results[0][0] == 0);
        let found = [Memory::Sequential, Memory::Buffered]
            .map(|memory| is_stale(&seen(memory, &[body, other])));
        assert_eq!(found, stale);
    }
}

#[test]
fn store_buffering_is_seen_unless_both_are_fenced() {
    let left: Body = |v| {
        store(v.x, 1);
        [load(v.y), 0]
    };
    let right: Body = |v| {
        store(v.y, 1);
        [load(v.x), 0]
    };
    assert_eq!(in_which(&[left, right], neither), WITH_BUFFERS);
    let local: Body = |v| {
        v.y.add_local(1, Ordering::Relaxed);
        [load(v.x), 0]
    };
    assert_eq!(in_which(&[left, local], neither), WITH_BUFFERS);
    let fenced: [Body; 5] = [
        |v| {
            store(v.y, 1);
            M::fence(Ordering::SeqCst);
            [load(v.x), 0]
        },
        |v| {
            v.y.store(1, Ordering::SeqCst);
            [load(v.x), 0]
        },
        |v| {
            v.y.swap(1, Ordering::Relaxed);
            [load(v.x), 0]
        },
        |v| {
            store(v.y, 1);
            // One that fails is a fence on x86, too.
            assert!(v.y.cas(7, 8, Ordering::Relaxed, Ordering::Relaxed).is_err());
            [load(v.x), 0]
        },
        |v| {
            store(v.y, 1);
            M::unpark(TaskId(2));
            [load(v.x), 0]
        },
    ];
    let fenced_left: Body = |v| {
        store(v.x, 1);
        M::fence(Ordering::SeqCst);
        [load(v.y), 0]
    };
    for fenced in fenced {
        assert_eq!(in_which(&[left, fenced], neither), WITH_BUFFERS, "one");
        assert_eq!(in_which(&[fenced_left, fenced], neither), NEVER, "both");
    }
    let weak: Body = |v| {
        store(v.x, 1);
        M::fence(Ordering::AcqRel);
        [load(v.y), 0]
    };
    assert_eq!(in_which(&[weak, right], neither), WITH_BUFFERS);
}

#[test]
fn a_cpu_sees_its_own_stores_first() {
    let left: Body = |v| {
        store(v.x, 1);
        [load(v.y), load(v.x)]
    };
    let right: Body = |v| {
        store(v.y, 1);
        [load(v.x), load(v.y)]
    };
    assert_eq!(in_which(&[left, right], neither), WITH_BUFFERS);
    let lost = |results: &[[u64; 2]], _, _| results.iter().any(|[_, own]| *own != 1);
    assert_eq!(in_which(&[left, right], lost), NEVER);
    // "R": the second store to y wins, and its CPU has not seen x.
    let writer: Body = |v| {
        store(v.x, 1);
        store(v.y, 1);
        [0; 2]
    };
    let over: Body = |v| {
        store(v.y, 2);
        [load(v.x), 0]
    };
    let r = |results: &[[u64; 2]], _, y| y == 2 && results[1][0] == 0;
    assert_eq!(in_which(&[writer, over], r), WITH_BUFFERS);
}

#[test]
fn what_total_store_order_forbids_is_never_seen() {
    let writer: Body = |v| {
        store(v.x, 1);
        store(v.y, 1);
        [0; 2]
    };
    let reader: Body = |v| [load(v.y), load(v.x)];
    let passed = |results: &[[u64; 2]], _, _| results[1] == [1, 0];
    assert_eq!(in_which(&[writer, reader], passed), NEVER, "MP");
    let left: Body = |v| {
        let seen = load(v.x);
        store(v.y, 1);
        [seen, 0]
    };
    let right: Body = |v| {
        let seen = load(v.y);
        store(v.x, 1);
        [seen, 0]
    };
    let both = |results: &[[u64; 2]], _, _| results[0][0] == 1 && results[1][0] == 1;
    assert_eq!(in_which(&[left, right], both), NEVER, "LB");
    let left: Body = |v| {
        store(v.x, 1);
        store(v.y, 2);
        [0; 2]
    };
    let right: Body = |v| {
        store(v.y, 1);
        store(v.x, 2);
        [0; 2]
    };
    let crossed = |_: &[[u64; 2]], x, y| x == 1 && y == 1;
    assert_eq!(in_which(&[left, right], crossed), NEVER, "2+2W");
    let left: Body = |v| {
        store(v.x, 2);
        store(v.y, 1);
        [0; 2]
    };
    let right: Body = |v| {
        let seen = load(v.y);
        store(v.x, 1);
        [seen, 0]
    };
    let back = |results: &[[u64; 2]], x, _| results[1][0] == 1 && x == 2;
    assert_eq!(in_which(&[left, right], back), NEVER, "S");
    let writers: [Body; 2] = [
        |v| {
            store(v.x, 1);
            [0; 2]
        },
        |v| {
            store(v.y, 1);
            [0; 2]
        },
    ];
    let other: Body = |v| [load(v.x), load(v.y)];
    let split = |results: &[[u64; 2]], _, _| results[2] == [1, 0] && results[3] == [1, 0];
    let four = [writers[0], writers[1], reader, other];
    assert_eq!(in_which(&four, split), NEVER, "IRIW");
}

#[test]
fn what_is_held_drains_before_somebody_waits_for_it_in_vain() {
    let bed = Bed::explorer(2);
    let budget = Budget {
        schedules: 1_000,
        seed: 3,
    };
    let mix = Mix {
        memory: Some(Memory::Buffered),
        ..Mix::default()
    };
    let found = explore_mix(&budget, mix, |options| {
        // SAFETY: 1: the objects of the last schedule are not used any more.
        unsafe { bed.reset() };
        let [x, y] = [(); 2].map(|()| bed.place(Word::new(0)));
        let ends = bed.place(Word::new(0));
        let tasks = vec![
            TaskSpec::new(0, || {
                store(x, 1);
                while load(y) == 0 {
                    y.wait_until(u64::MAX, 1);
                }
                // Nobody runs on this CPU any more when this is waited for.
                store(ends, 1);
            }),
            TaskSpec::new(1, || {
                while load(x) == 0 {
                    x.wait_until(u64::MAX, 1);
                }
                store(y, 1);
                while load(ends) == 0 {
                    ends.wait_until(u64::MAX, 1);
                }
            }),
        ];
        bed.run(options, tasks)
    });
    assert!(found.failure.is_none(), "{:?}", found.failure);
}

#[test]
fn half_of_a_word_that_is_held_is_seen_by_who_reads_the_whole() {
    let bed = Bed::explorer(1);
    for seed in 0..50 {
        // SAFETY: 1: the objects of the last run are not used any more.
        unsafe { bed.reset() };
        let whole = bed.place(Word::new(0));
        let half = core::ptr::from_ref(whole).cast::<Atomic<u32, M>>();
        // SAFETY: part of an atomic word, aligned, and used as an atomic word only.
        let half = unsafe { &*half };
        let body = || {
            whole.store(0x1_0000_0002, Ordering::Relaxed);
            half.store(7, Ordering::Relaxed);
            assert_eq!(whole.load(Ordering::Relaxed) & 0xffff_ffff, 7);
            whole.store(9, Ordering::Relaxed);
            assert_eq!(half.load(Ordering::Relaxed), 9);
            assert_eq!(whole.peek(), 9, "an oracle sees what its CPU stored");
            whole.poke(4);
            assert_eq!(whole.load(Ordering::Relaxed), 4);
            // More than a buffer holds.
            for n in 0..20 {
                whole.store(n, Ordering::Relaxed);
            }
            M::before(core::ptr::from_ref(half).cast(), 4, Kind::PlainRead);
        };
        let options = RunOptions {
            memory: Memory::Buffered,
            ..RunOptions::explored(Policy::Random(seed))
        };
        let report = bed.run(&options, vec![TaskSpec::new(0, body)]);
        assert!(report.outcome.is_ok(), "{}", report.outcome);
        assert_eq!(whole.peek(), 19, "all of it reaches memory");
    }
}

#[test]
fn a_mix_can_be_narrowed_to_one_kind() {
    let bed = Bed::explorer(2);
    let budget = Budget {
        schedules: 16,
        seed: 1,
    };
    let kinds = |mix| {
        let mut kinds = Vec::new();
        explore_mix(&budget, mix, |options| {
            let how = match options.policy {
                Policy::Random(_) => How::Walk,
                Policy::Pct { .. } => How::Pct,
                Policy::Samples { .. } => How::Samples,
                _ => How::Time,
            };
            kinds.push((how, options.memory));
            bed.run(options, vec![TaskSpec::new(0, || ())])
        });
        kinds
    };
    let all = kinds(Mix::default());
    for (how, ..) in How::ALL {
        for (memory, ..) in Memory::ALL {
            let of_kind = all.iter().filter(|kind| **kind == (*how, *memory));
            let share = match (how, memory) {
                (How::Pct, _) => 4,
                (How::Walk, _) => 2,
                (How::Samples | How::Time, _) => 1,
            };
            assert_eq!(of_kind.count(), share, "{how:?} {memory:?}");
            let mix = Mix {
                how: Some(*how),
                memory: Some(*memory),
            };
            assert!(kinds(mix).iter().all(|kind| *kind == (*how, *memory)));
        }
    }
}
