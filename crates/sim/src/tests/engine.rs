//! Determinism, and every way a run can end.

use super::{Bed, M};
use crate::{Entry, Look, Names, Place, Thing};
use crate::{Memory, Outcome, Policy, RunOptions, RunReport, Schedule, TaskSpec, Timeline};
use core::cell::Cell;
use minflt_sync::order::{FilesLock, SlabLock, ZoneLock};
use minflt_sync::{Atomic, Machine, Ordering, SpinLock};

type Lock = SpinLock<u64, FilesLock, M>;

/// Four tasks on three CPUs take a lock and count.
fn count(policy: Policy, trace: bool) -> RunReport {
    count_on(Memory::Sequential, policy, trace)
}

fn count_on(memory: Memory, policy: Policy, trace: bool) -> RunReport {
    let bed = Bed::on("altix32", 3);
    let lock = bed.place(Lock::new(0));
    let word = bed.place(Atomic::<u64, M>::new(0));
    let body = || {
        for _ in 0..50 {
            *lock.lock() += 1;
            word.add(1, Ordering::Relaxed);
            M::compute(2000);
        }
    };
    let tasks = [0, 1, 2, 1].map(|cpu| TaskSpec::new(cpu, body)).into();
    let options = RunOptions {
        policy,
        memory,
        trace,
        ..RunOptions::default()
    };
    let report = bed.run(&options, tasks);
    assert_eq!(report.outcome, Outcome::Ok);
    assert_eq!(*lock.lock(), 200);
    assert_eq!(word.peek(), 200);
    report
}

fn policies() -> [Policy; 3] {
    let pct = Policy::Pct {
        seed: 3,
        depth: 3,
        steps: 1000,
    };
    [Policy::VirtualTime, Policy::Random(7), pct]
}

#[test]
fn two_runs_at_once_on_two_threads_are_equal() {
    for policy in policies() {
        let reports = std::thread::scope(|scope| {
            let runs = [0, 1].map(|n| {
                let policy = policy.clone();
                scope.spawn(move || {
                    // Moves the host's heap about.
                    let junk: Vec<Vec<u8>> = (0..n * 50).map(|i| vec![0; i * 100]).collect();
                    let report = count(policy, true);
                    drop(junk);
                    report
                })
            });
            runs.map(|run| run.join().unwrap())
        });
        assert_eq!(reports[0], reports[1]);
        assert_eq!(
            reports[0].hash,
            count(policy, false).hash,
            "tracing changes nothing"
        );
    }
}

#[test]
fn the_access_trace_is_the_same_on_every_host() {
    // A change here means that published simulated figures change: say so where it is made.
    let hashes = policies().map(|policy| count(policy, false).hash);
    assert_eq!(hashes, GOLDEN);
}

const GOLDEN: [u64; 3] = [
    5_272_017_355_358_130_566,
    9_833_893_222_275_175_417,
    1_180_755_569_408_119_446,
];

#[test]
fn other_seeds_give_other_schedules_and_replay_gives_the_same() {
    let first = count(Policy::Random(1), false);
    assert_ne!(first.hash, count(Policy::Random(2), false).hash);
    assert!(!first.schedule.0.is_empty());
    let text = first.schedule.to_string();
    let schedule: Schedule = text.parse().unwrap();
    let again = count(Policy::Replay(schedule), false);
    assert_eq!(first, again);
}

#[test]
fn every_kind_of_schedule_repeats_and_replays() {
    let pct = Policy::Pct {
        seed: 5,
        depth: 4,
        steps: 1500,
    };
    let samples = Policy::Samples {
        seed: 5,
        steps: 1500,
    };
    for policy in [Policy::Random(5), pct, samples, Policy::Time(5)] {
        for memory in [Memory::Sequential, Memory::Buffered] {
            let first = count_on(memory, policy.clone(), true);
            assert_eq!(first, count_on(memory, policy.clone(), true));
            assert_eq!(
                first.schedule.holds_stores(),
                memory == Memory::Buffered,
                "{policy:?}"
            );
            let text = first.schedule.to_string();
            let again = count(Policy::Replay(text.parse().unwrap()), true);
            assert_eq!(first, again, "{policy:?} {memory:?}");
        }
    }
    let other = count(Policy::Time(6), false);
    assert_ne!(other.hash, count(Policy::Time(5), false).hash);
}

#[test]
fn a_deadlock_is_seen_and_named() {
    for policy in policies() {
        let bed = Bed::explorer(2);
        let left = bed.place(Atomic::<u32, M>::new(0));
        let right = bed.place(Atomic::<u32, M>::new(0));
        let wait = |mine: &Atomic<u32, M>, other: &Atomic<u32, M>| {
            other.wait_until(u32::MAX, 1);
            mine.store(1, Ordering::Release);
        };
        let tasks = vec![
            TaskSpec::new(0, || wait(left, right)),
            TaskSpec::new(1, || wait(right, left)),
            TaskSpec::new(1, || ()),
        ];
        let names = |offset| {
            if offset == 0 {
                "left".to_owned()
            } else {
                "right".to_owned()
            }
        };
        let options = RunOptions {
            policy,
            describe: Some(&names),
            ..RunOptions::default()
        };
        let report = bed.run(&options, tasks);
        assert_eq!(
            report.outcome,
            Outcome::Deadlock(
                "deadlock: 3 tasks wait; task 1 on CPU 0 for right & 0xffffffff to be 0x1; \
                 task 2 on CPU 1 for left & 0xffffffff to be 0x1; \
                 task 3 on CPU 1 is queued behind another"
                    .to_owned()
            )
        );
    }
}

#[test]
fn a_sleeper_whom_nobody_wakes_is_a_deadlock() {
    let bed = Bed::explorer(1);
    let report = bed.run(&RunOptions::default(), vec![TaskSpec::new(0, M::park)]);
    let text = "deadlock: 1 tasks wait; task 1 on CPU 0 sleeps";
    assert_eq!(report.outcome, Outcome::Deadlock(text.to_owned()));
}

#[test]
fn a_shared_object_outside_the_machines_memory_is_refused() {
    let bed = Bed::explorer(1);
    let on_the_hosts_stack = Lock::new(0);
    let body = || *on_the_hosts_stack.lock() += 1;
    let report = bed.run(&RunOptions::default(), vec![TaskSpec::new(0, body)]);
    let text = "shared access outside the machine's RAM: Rmw of 4 bytes";
    assert_eq!(report.outcome, Outcome::Violation(text.to_owned()));
}

struct Bomb<'a>(&'a Cell<bool>);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
fn a_violation_ends_the_run_as_a_value_while_others_hold_guards() {
    let bed = Bed::explorer(3);
    let dropped = Cell::new(false);
    let lock = bed.place(Lock::new(0));
    let word = bed.place(Atomic::<u64, M>::new(0));
    let hold = || {
        let _bomb = Bomb(&dropped);
        let mut guard = lock.lock();
        *guard += 1;
        word.wait_until(u64::MAX, 100);
    };
    let speak = || {
        word.wait_until(0, 0);
        while !lock.is_locked() {
            word.add(1, Ordering::Relaxed);
        }
        M::violation(format_args!("stale translation of {:#x}", 4096));
    };
    let tasks = vec![
        TaskSpec::new(0, hold),
        TaskSpec::new(1, hold),
        TaskSpec::new(2, speak),
    ];
    let report = bed.run(&RunOptions::default(), tasks);
    let text = "stale translation of 0x1000".to_owned();
    assert_eq!(report.outcome, Outcome::Violation(text));
    assert!(
        !dropped.get(),
        "a context that was cut off is never dropped"
    );
    // The instance can be used again.
    // SAFETY: 1: the objects are not used any more.
    unsafe { bed.reset() };
    let lock = bed.place(Lock::new(0));
    let report = bed.run(
        &RunOptions::default(),
        vec![TaskSpec::new(2, || *lock.lock() += 1)],
    );
    assert_eq!(report.outcome, Outcome::Ok);
}

#[test]
fn a_panic_is_an_outcome_even_with_locks_held_here_and_there() {
    let bed = Bed::explorer(2);
    let (a, b) = (bed.place(Lock::new(0)), bed.place(Lock::new(0)));
    let word = bed.place(Atomic::<u64, M>::new(0));
    let hold = || {
        let _guard = a.lock();
        word.store(1, Ordering::Relaxed);
        word.wait_until(u64::MAX, 2);
    };
    struct TakesALockWhenDropped<'a>(&'a Lock);
    impl Drop for TakesALockWhenDropped<'_> {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }
    let fail = || {
        word.wait_until(u64::MAX, 1);
        let _takes = TakesALockWhenDropped(a);
        let _guard = b.lock();
        panic!("{} is no answer", 43);
    };
    let tasks = vec![TaskSpec::new(0, hold), TaskSpec::new(1, fail)];
    let report = bed.run(&RunOptions::default(), tasks);
    assert_eq!(report.outcome, Outcome::Panic("43 is no answer".to_owned()));
}

#[test]
fn a_loop_without_end_is_cut_off() {
    let bed = Bed::explorer(1);
    let word = bed.place(Atomic::<u64, M>::new(0));
    let body = || while word.load(Ordering::Relaxed) == 0 {};
    let options = RunOptions {
        max_events: 1000,
        ..RunOptions::default()
    };
    let report = bed.run(&options, vec![TaskSpec::new(0, body)]);
    assert_eq!(
        report.outcome,
        Outcome::Endless("endless: more than 1000 accesses".to_owned())
    );
}

#[test]
fn the_lock_order_is_checked() {
    let bed = Bed::explorer(1);
    let inner = bed.place(SpinLock::<u64, ZoneLock, M>::new(0));
    let outer = bed.place(SpinLock::<u64, SlabLock, M>::new(0));
    let body = || {
        let _inner = inner.lock();
        let _outer = outer.lock();
    };
    let report = bed.run(&RunOptions::default(), vec![TaskSpec::new(0, body)]);
    assert!(
        report
            .outcome
            .to_string()
            .contains("lock order: waits for SlabLock")
    );
}

#[test]
fn a_timeline_shows_what_is_shared_and_nothing_else() {
    let bed = Bed::explorer(2);
    let word = bed.place(Atomic::<u64, M>::new(0));
    let own = bed.place(Atomic::<u64, M>::new(0));
    let first = || {
        own.store(9, Ordering::Relaxed);
        word.store(5, Ordering::Release);
        M::note(format_args!("published"));
    };
    let second = || word.wait_until(u64::MAX, 5);
    let tasks = vec![TaskSpec::new(0, first), TaskSpec::new(1, second)];
    // The second task looks first.
    let policy = Policy::Replay("1:1".parse().unwrap());
    let options = RunOptions {
        trace: true,
        policy,
        ..RunOptions::default()
    };
    let report = bed.run(&options, tasks);
    let steps = report.timeline.unwrap();
    let timeline = Timeline::of(&steps, &["stores", "waits"], &Words, None);
    let look = Look {
        width: 64,
        ..Look::default()
    };
    let text = timeline.draw(look);
    assert_eq!(text, DRAWN, "{text}");
}

/// Two words, of which the first is shared.
struct Words;

impl Names for Words {
    fn thing(&self, offset: u64) -> Thing {
        Thing {
            kind: if offset < 128 { "word" } else { "own" },
            number: 0,
            part: String::new(),
        }
    }

    fn pointer(&self, _value: u64) -> Option<Place> {
        None
    }

    fn entry(&self, _offset: u64, _value: u64) -> Option<Entry> {
        None
    }

    fn frame(&self, _number: u64) -> Option<u64> {
        None
    }
}

const DRAWN: &str = "  step  stores (CPU 0)    waits (CPU 1)
     2  |                 word#1 is 0x0
     2  |                 spins until word#1 = 0x5
     5  word#1: 0x0 -> 0x5
     5  # published       |
     5  ends              |
     7  |                 word#1 is 0x5
     7  |                 ends
";
