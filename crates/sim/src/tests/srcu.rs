//! Grace periods: no callback runs while a reader from before is inside.

use super::{Bed, M, judge};
use crate::{Budget, RunOptions, RunReport, TaskSpec, explore};
use core::cell::Cell;
use core::ptr::NonNull;
use minflt_sync::srcu::SrcuCpu;
use minflt_sync::{Atomic, Callback, Machine, Ordering, PerCpu, Srcu};

/// An object that a writer unlinks and frees.
#[repr(C)]
struct Object {
    callback: Callback,
    freed: Cell<bool>,
}

/// # Safety
/// 1. `callback` is that of an `Object` in the machine's memory.
unsafe fn free(_: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function, and the callback is the first field.
    let object = unsafe { callback.cast::<Object>().as_ref() };
    object.freed.set(true);
}

fn domain(bed: &Bed, cpus: u32) -> &Srcu<M> {
    let bytes = bed.place([const { [0u64; 16] }; 64]);
    assert!(PerCpu::<SrcuCpu<M>, M>::bytes(cpus) <= size_of_val(bytes));
    let at = NonNull::from(bytes).cast();
    // SAFETY: large enough, aligned to 128, and nobody else's.
    let areas = unsafe { PerCpu::build(at, cpus, |_| SrcuCpu::new()) };
    bed.place(Srcu::new(areas))
}

/// Readers on CPUs 0 and 1 follow a link; a writer on CPU 2 replaces it three times.
fn scenario(bed: &Bed, options: &RunOptions<'_>, waits: bool) -> RunReport {
    // SAFETY: 1: the objects of the last schedule are not used any more.
    unsafe { bed.reset() };
    let domain = domain(bed, 3);
    let objects: [&Object; 4] = core::array::from_fn(|_| {
        bed.place(Object {
            callback: Callback::new(),
            freed: Cell::new(false),
        })
    });
    let link = bed.place(Atomic::<u64, M>::new(0));
    let steps = bed.place(Atomic::<u64, M>::new(0));
    let read = || {
        for _ in 0..2 {
            let guard = domain.read();
            let at = link.load(Ordering::Acquire) as usize;
            for _ in 0..3 {
                if objects[at].freed.get() {
                    M::violation(format_args!("a reader sees object {at} freed"));
                }
                steps.load(Ordering::Relaxed);
            }
            drop(guard);
        }
    };
    let write = || {
        for at in 1..4 {
            link.store(at as u64, Ordering::Release);
            let callback = NonNull::from(&objects[at - 1].callback);
            if waits {
                // SAFETY: 1: unlinked. 2: it lies in the machine's memory. 3: of an `Object`.
                unsafe { domain.call(callback, free) };
                for _ in 0..2 {
                    // SAFETY: 1: `free` needs no argument.
                    unsafe { domain.poll(core::ptr::null()) };
                }
            } else {
                // SAFETY: 1: of an `Object`.
                unsafe { free(core::ptr::null(), callback) };
            }
        }
    };
    let tasks = vec![
        TaskSpec::new(0, read),
        TaskSpec::new(1, read),
        TaskSpec::new(2, write),
    ];
    let report = bed.run(options, tasks);
    if report.outcome.is_ok() {
        // SAFETY: 1: `free` needs no argument.
        unsafe { domain.drain(core::ptr::null()) };
    }
    let freed = objects.map(|object| object.freed.get());
    judge(
        report,
        freed != [true, true, true, false],
        "not every callback ran",
    )
}

#[test]
fn no_callback_runs_while_a_reader_from_before_is_inside() {
    let bed = Bed::explorer(3);
    let budget = Budget {
        schedules: 10_000,
        seed: 11,
    };
    let found = explore(&budget, |options| scenario(&bed, options, true));
    if let Some(failure) = found.failure {
        panic!("{failure}");
    }
}

#[test]
fn without_a_grace_period_a_reader_sees_a_freed_object() {
    let bed = Bed::explorer(3);
    let budget = Budget {
        schedules: 1000,
        seed: 11,
    };
    let failure = explore(&budget, |options| scenario(&bed, options, false))
        .failure
        .unwrap();
    assert!(
        failure.report.outcome.to_string().contains("freed"),
        "{failure}"
    );
}
