//! The account of a run: it changes nothing, adds up, and finds what limits.

use super::{Bed, M};
use crate::why::{Activity, Cause, Limit, Name, PhaseRow, Why, WhyOptions, Window, Windows};
use crate::{Outcome, RunOptions, RunReport, TaskSpec};
use minflt_sync::order::{MmapLock, PageTableLock};
use minflt_sync::{Atomic, Cost, Machine, Ordering, Phase, RwSem, SpinLock, Succession};

const ROUNDS: u64 = 300;

/// Tasks that take a spinning lock, a sleeping lock, change a word of all, and compute.
fn contend(cpus: u32, why: Option<WhyOptions<'_>>) -> RunReport {
    let bed = Bed::on("altix32", 32);
    let lock = bed.place(SpinLock::<u64, PageTableLock, M>::new(0));
    // In order of arrival, so that all end together.
    let sem = bed.place(RwSem::<MmapLock, M>::new(Succession::Grant));
    let word = bed.place(Atomic::<u64, M>::new(0));
    let body = |cpu: u32| {
        move || {
            for round in 0..ROUNDS {
                M::phase(Phase::Call("work"));
                M::enter_kernel();
                M::charge(Cost::Syscall);
                if (round + u64::from(cpu)).is_multiple_of(8) {
                    let _held = sem.write();
                    M::charge(Cost::Copy {
                        bytes: 65536,
                        from: 0,
                        to: 0,
                    });
                } else {
                    let _held = sem.read();
                    M::phase(Phase::Open);
                    *lock.lock() += 1;
                    M::phase(Phase::Back);
                }
                word.add(1, Ordering::Relaxed);
                M::leave_kernel();
                M::compute(2000);
            }
        }
    };
    let tasks = (0..cpus)
        .map(|cpu| TaskSpec::new(2 * cpu, body(cpu)))
        .collect();
    let options = RunOptions {
        why,
        ..RunOptions::virtual_time()
    };
    let report = bed.run(&options, tasks);
    assert_eq!(report.outcome, Outcome::Ok);
    report
}

/// Names by the order in which the bed places things, 128 bytes each.
fn names(offset: u64) -> Name {
    let (object, lock) = match offset / 128 {
        0 => ("lock", Some("spinning lock")),
        1 => ("semaphore", Some("sleeping lock")),
        _ => ("word", None),
    };
    Name {
        object,
        field: "",
        number: 0,
        lock,
    }
}

fn asked(free: Option<&str>) -> WhyOptions<'_> {
    WhyOptions {
        names: &names,
        windows: Windows::None,
        free,
        samples: 1000,
    }
}

fn sum(rows: &[PhaseRow], cause: Cause) -> u64 {
    rows.iter().map(|row| row.by_cause[cause as usize]).sum()
}

#[test]
fn an_account_changes_nothing_and_adds_up() {
    let without = contend(8, None);
    let with = contend(8, Some(asked(None)));
    assert_eq!((without.end_ns, without.hash), (with.end_ns, with.hash));
    assert_eq!(without.tasks, with.tasks);
    let why = with.why.expect("asked for");
    assert_eq!(why.length / 1000, with.end_ns);
    // Every picosecond of every task, from the start of the run until it ended.
    let lives: u64 = why.time();
    assert!(lives <= why.length * 8 && lives > why.length * 7, "{why:?}");
    assert_eq!(sum(&why.within, Cause::Other), 0);
    assert_eq!(sum(&why.within, Cause::User) / 1000, 8 * ROUNDS * 2000);
    let stacks: u64 = why.stacks.iter().map(|(.., time)| time).sum();
    assert_eq!(stacks, lives);
    let lines = |of: fn(&crate::why::LineRow) -> u64| why.lines.iter().map(of).sum::<u64>();
    assert_eq!(lines(|line| line.queued), sum(&why.within, Cause::Queue));
    assert_eq!(lines(|line| line.moved), sum(&why.within, Cause::Move));
    assert_eq!(lines(|line| line.spun), sum(&why.within, Cause::Spin));
    assert_eq!(lines(|line| line.slept), sum(&why.within, Cause::Sleep));
    assert!(!why.samples.list.is_empty() && why.samples.list.len() <= 1000);
}

#[test]
fn waits_are_charged_to_the_lock_and_the_phase() {
    let why = contend(8, Some(asked(None))).why.expect("asked for");
    let lock = |name: &str| why.locks.iter().find(|row| row.lock == name).cloned();
    let (spinning, sleeping) = (lock("spinning lock"), lock("sleeping lock"));
    assert!(spinning.is_some_and(|lock| lock.spun > 0 && lock.slept == 0));
    assert!(sleeping.is_some_and(|lock| lock.slept > 0));
    let of = |activity| why.within.iter().find(|row| row.activity == activity);
    let open = of(Activity::FaultPhase("open")).expect("a row");
    assert!(open.by_cause[Cause::Spin as usize] > 0);
    assert_eq!(open.by_cause[Cause::Sleep as usize], 0);
    let call = of(Activity::Call("work")).expect("a row");
    assert!(call.by_cause[Cause::Sleep as usize] > 0);
    assert_eq!(
        call.by_cause[Cause::Spin as usize],
        sum_of(&why, "semaphore")
    );
    let row = why.lines.iter().find(|line| line.name == "word");
    let row = row.expect("a row");
    assert_eq!((row.lines, row.writers), (1, 8));
    // Each round writes the word, the semaphore twice or more, and in most the lock.
    assert!(why.shared_writes >= 8 * ROUNDS * 4, "{}", why.shared_writes);
    // A line counts once an operation.
    assert!(why.shared_written < why.shared_writes);
}

fn sum_of(why: &Why, name: &str) -> u64 {
    let lines = why.lines.iter().filter(|line| line.name == name);
    lines.map(|line| line.spun).sum()
}

#[test]
fn the_limit_is_named_and_another_limits_without_it() {
    // No lock: all do nothing but change one word, and a second one now and then.
    let run = |free: Option<&str>| {
        let bed = Bed::on("altix32", 32);
        let words = [0, 1].map(|_| bed.place(Atomic::<u64, M>::new(0)));
        let body = || {
            for round in 0..ROUNDS {
                words[0].add(1, Ordering::Relaxed);
                if round % 2 == 0 {
                    words[1].add(1, Ordering::Relaxed);
                }
            }
        };
        let options = RunOptions {
            why: Some(asked(free)),
            ..RunOptions::virtual_time()
        };
        let tasks = (0..8).map(|cpu| TaskSpec::new(2 * cpu, body)).collect();
        let report = bed.run(&options, tasks);
        (report.end_ns, report.why.expect("asked for"))
    };
    let (before, why) = run(None);
    assert_eq!(why.limit(), Limit::Line("lock".into(), 1));
    assert!(!why.freed);
    let (after, why) = run(Some("lock"));
    assert!(why.freed && after < before * 3 / 4, "{before} {after}");
    assert_eq!(why.limit(), Limit::Line("semaphore".into(), 1));
    let (same, why) = run(Some("nothing of that name"));
    assert!(!why.freed);
    assert_eq!(same, before);
}

#[test]
fn lines_count_within_windows_only() {
    let bed = Bed::on("altix32", 32);
    let word = bed.place(Atomic::<u64, M>::new(0));
    let body = || {
        word.add(1, Ordering::Relaxed);
        M::window(Window::Opens);
        word.add(1, Ordering::Relaxed);
        M::window(Window::Closes);
        word.add(1, Ordering::Relaxed);
    };
    let why = WhyOptions {
        windows: Windows::Opened,
        ..asked(None)
    };
    let options = RunOptions {
        why: Some(why),
        ..RunOptions::virtual_time()
    };
    let tasks = (0..4).map(|cpu| TaskSpec::new(2 * cpu, body)).collect();
    let why = bed.run(&options, tasks).why.expect("asked for");
    assert_eq!(why.shared_writes, 4);
    assert!(!why.before.is_empty() && !why.within.is_empty() && !why.after.is_empty());
}
