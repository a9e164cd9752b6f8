//! The sequence count: no reader accepts a torn pair.

use super::{Bed, M};
use crate::{Budget, Outcome, Policy, RunOptions, RunReport, TaskSpec, explore};
use core::cell::Cell;
use minflt_sync::{Atomic, Machine, Ordering, SeqCount};

fn scenario(
    bed: &Bed,
    options: &RunOptions<'_>,
    validates: bool,
    accepted: &Cell<u64>,
) -> RunReport {
    // SAFETY: 1: the objects of the last schedule are not used any more.
    unsafe { bed.reset() };
    let count = bed.place(SeqCount::<M>::new());
    let pair = bed.place([0, 0].map(Atomic::<u64, M>::new));
    let write = || {
        for value in 1..4 {
            count.write_begin();
            pair[0].store(value, Ordering::Relaxed);
            pair[1].store(value, Ordering::Relaxed);
            count.write_end();
        }
    };
    let read = || {
        for _ in 0..3 {
            let Some(seq) = count.begin() else { continue };
            let found = [0, 1].map(|at: usize| pair[at].load(Ordering::Relaxed));
            if validates && count.changed(seq) {
                continue;
            }
            accepted.set(accepted.get() + 1);
            if found[0] != found[1] {
                M::violation(format_args!("torn: {found:?}"));
            }
        }
    };
    bed.run(
        options,
        vec![TaskSpec::new(0, read), TaskSpec::new(1, write)],
    )
}

#[test]
fn a_reader_that_validates_accepts_no_torn_pair() {
    let (bed, accepted) = (Bed::explorer(2), Cell::new(0));
    let budget = Budget {
        schedules: 10_000,
        seed: 2,
    };
    let found = explore(&budget, |options| scenario(&bed, options, true, &accepted));
    if let Some(failure) = found.failure {
        panic!("{failure}");
    }
    assert!(accepted.get() > 1000, "{}", accepted.get());
}

#[test]
fn a_reader_that_does_not_validate_accepts_one_and_the_schedule_replays() {
    let (bed, accepted) = (Bed::explorer(2), Cell::new(0));
    let budget = Budget {
        schedules: 1000,
        seed: 2,
    };
    let failure = explore(&budget, |options| scenario(&bed, options, false, &accepted))
        .failure
        .unwrap();
    assert!(
        failure.report.outcome.to_string().contains("torn"),
        "{failure}"
    );
    let replay = RunOptions::explored(Policy::Replay(failure.report.schedule.clone()));
    let again = scenario(&bed, &replay, false, &accepted);
    assert!(matches!(again.outcome, Outcome::Violation(_)));
    assert_eq!(again, failure.report);
}
