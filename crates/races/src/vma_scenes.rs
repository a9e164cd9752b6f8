//! What happens in the races about finding, locking and freeing VMAs.

use super::scenes::{boxed, expect, plays, tasks, warm};
use super::stage::{Checked, Script, Stage};
use core::cell::RefCell;
use core::mem::ManuallyDrop;
use minflt_mm::{Event, Place, Prot, Signal, Thread};
use minflt_pgtable::{Paging, span_shift};
use minflt_sync::Machine;
use std::rc::Rc;

/// Protection calls of a storm.
const STORM: usize = 4;
/// Pages that each of those who fault loads.
const LOADS: u64 = 6;

/// P9: munmap of all there is, beside two who walk through it, page after page.
pub(super) fn walk_free<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, LOADS);
    warm(stage, 0);
    let loads = || {
        boxed(move || {
            let thread = stage.thread();
            for n in 0..LOADS {
                zero_or_nothing(stage, &thread, n);
            }
        })
    };
    let unmap = boxed(move || {
        stage.unmap(0, LOADS);
        expect(stage, &stage.thread(), 0, Err(Signal::MapErr));
    });
    plays(vec![loads(), loads(), unmap])
}

/// P63: a fault without a lock finds no table of leaf entries, beside munmap of all that the table
/// above overlaps.
pub(super) fn link_unmap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let span = leaf_span::<P>();
    let (first, end) = (span - 1, span + 2);
    stage.map(first, end);
    warm(stage, first);
    plays(vec![
        boxed(move || {
            let thread = stage.thread();
            zero_or_nothing(stage, &thread, span);
            zero_or_nothing(stage, &thread, span + 1);
        }),
        boxed(move || {
            stage.unmap(first, end - first);
            expect(stage, &stage.thread(), span, Err(Signal::MapErr));
        }),
    ])
}

/// P64: the first stores to a mapping, without a lock, beside munmap of it.
pub(super) fn prepare_unmap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 2);
    plays(vec![
        boxed(move || {
            let thread = stage.thread();
            for page in 0..2 {
                let _stored = thread.store(stage.page(page), 1);
            }
        }),
        boxed(move || {
            stage.unmap(0, 2);
            expect(stage, &stage.thread(), 0, Err(Signal::MapErr));
        }),
    ])
}

/// Pages that a table of leaf entries covers.
fn leaf_span<P: Paging>() -> u64 {
    1 << (span_shift::<P>(1) - P::shift())
}

/// P9: munmap of a mapping whose tables nobody else uses, beside one who ages the pages there.
pub(super) fn age_unmap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 2);
    stage.touch(0, 5);
    plays(vec![
        boxed(move || {
            for _ in 0..2 {
                let young = stage.mm.age(stage.range(0, 2));
                if young > 1 {
                    Checked::<P>::violation(format_args!("{young} of one page were young"));
                }
            }
        }),
        boxed(move || {
            stage.unmap(0, 2);
            expect(stage, &stage.thread(), 0, Err(Signal::MapErr));
        }),
    ])
}

/// A load finds a page that nobody stored to, or no mapping.
fn zero_or_nothing<P: Paging>(stage: Stage<'_, P>, thread: &Thread<'_, Checked<P>>, n: u64) {
    let found = thread.load(stage.page(n));
    if !matches!(found, Ok(0) | Err(Signal::MapErr)) {
        Checked::<P>::violation(format_args!(
            "contents: page {n} holds {found:?}, not zero, and is not unmapped"
        ));
    }
}

/// P30: a VMA is taken out beside a fault that may just have found it, and its memory becomes a VMA
/// of another address space, at the same address.
pub(super) fn fault_reuse<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    // Apart, or the two would be one.
    stage.map(2, 3);
    warm(stage, 0);
    // Dropped at the end only: after a failure its locks may be held for ever.
    let other = stage.sys.new_mm();
    let other = other.unwrap_or_else(|e| panic!("the stage is large enough: {e:?}"));
    let other = Rc::new(RefCell::new(ManuallyDrop::new(other)));
    let last = Rc::clone(&other);
    let bodies = vec![
        boxed(move || {
            let thread = stage.thread();
            for _ in 0..2 {
                zero_or_nothing(stage, &thread, 0);
            }
        }),
        boxed(move || {
            let at = stage.page(0);
            assert!(stage.mm.munmap(at, P::page()).is_ok(), "mapped");
            let mapped = other.borrow().mmap(Place::Fixed(at), P::page(), Prot::READ);
            assert_eq!(mapped, Ok(at));
            expect(stage, &stage.thread(), 0, Err(Signal::MapErr));
        }),
    ];
    tasks(bodies, move || {
        // SAFETY: dropped here only, and nobody uses it any more.
        unsafe { ManuallyDrop::drop(&mut last.borrow_mut()) };
        Ok(())
    })
}

/// P30: a VMA loses its second page beside a fault there that may just have found it.
pub(super) fn fault_split<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 2);
    warm(stage, 0);
    plays(vec![
        boxed(move || {
            let thread = stage.thread();
            for _ in 0..2 {
                zero_or_nothing(stage, &thread, 1);
            }
        }),
        boxed(move || {
            stage.unmap(1, 1);
            expect(stage, &stage.thread(), 1, Err(Signal::MapErr));
        }),
    ])
}

/// P33: a load beside the mmap that makes the page.
pub(super) fn map_load<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(1, 2);
    plays(vec![
        boxed(move || {
            let place = Place::FixedNoReplace(stage.page(0));
            let mapped = stage.mm.mmap(place, P::page(), Prot::READ);
            assert_eq!(mapped, Ok(stage.page(0)));
        }),
        boxed(move || {
            let thread = stage.thread();
            for _ in 0..3 {
                zero_or_nothing(stage, &thread, 0);
            }
        }),
    ])
}

/// P36: a store that needs an anon_vma, beside a writer who wants the same VMA.
pub(super) fn fault_waits<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    plays(vec![
        boxed(move || {
            let stored = stage.thread().store(stage.page(0), 5);
            assert!(matches!(stored, Ok(()) | Err(Signal::AccErr)), "{stored:?}");
        }),
        boxed(move || {
            stage.protect(0, 1, Prot::READ);
        }),
    ])
}

/// P38: loads beside a storm of calls that change their VMA. A fault fails at most once before it
/// waits.
pub(super) fn fault_starves<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 3);
    warm(stage, 0);
    let before = attempts(stage);
    let bodies = vec![
        boxed(move || {
            for round in 0..STORM {
                let prot = [Prot::READ, Prot::READ_WRITE][round % 2];
                stage.protect(0, 3, prot);
            }
        }),
        boxed(move || {
            let thread = stage.thread();
            for n in 0..3 {
                expect(stage, &thread, n, Ok(0));
            }
        }),
    ];
    tasks(bodies, move || {
        let after = attempts(stage);
        let (faults, failed) = (after.0 - before.0, after.1 - before.1);
        if failed > faults {
            return Err(format!("starvation: {faults} faults failed {failed} times"));
        }
        Ok(())
    })
}

/// P31: loads of a mapping that nobody changes, beside mappings that are made below it: into a hole
/// of their leaf, and by a key more. Without a lock it is found each time.
pub(super) fn lookup_beside<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(2, 3);
    stage.map(4, 4 + LOADS);
    stage.map(12, 13);
    warm(stage, 4);
    stage.unmap(2, 1);
    let before = attempts(stage).1;
    let bodies = vec![
        boxed(move || {
            let thread = stage.thread();
            for n in 4..4 + LOADS {
                expect(stage, &thread, n, Ok(0));
            }
        }),
        boxed(move || {
            stage.map(2, 3);
            stage.map(0, 1);
        }),
    ];
    tasks(bodies, move || match attempts(stage).1 - before {
        0 => Ok(()),
        missed => Err(format!("lookup: {missed} did not find what was there")),
    })
}

/// Faults, and attempts in vain.
fn attempts<P: Paging>(stage: Stage<'_, P>) -> (u64, u64) {
    let count = |event| stage.sys.count_of(event);
    let failed = [
        Event::SpeculativeFailed,
        Event::VmaLockAbort,
        Event::VmaLockRetry,
    ];
    (count(Event::PageFaults), failed.map(count).iter().sum())
}

/// P38: a writer among those who fault in its VMA. Once it waits, nobody new comes in, so it sleeps
/// until those inside have left; a wake meant for something else may come between.
pub(super) fn writer_starves<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 2 * LOADS);
    warm(stage, 0);
    let before = stage.sys.count_of(Event::VmaLockWaits);
    let loads = |from: u64| {
        boxed(move || {
            let thread = stage.thread();
            for n in from..from + LOADS {
                expect(stage, &thread, n, Ok(0));
            }
        })
    };
    let write = boxed(move || {
        let all = 2 * LOADS * P::page();
        let done = stage.mm.mprotect(stage.page(0), all, Prot::READ);
        assert!(done.is_ok(), "mapped");
    });
    tasks(vec![loads(0), loads(LOADS), write], move || {
        let slept = stage.sys.count_of(Event::VmaLockWaits) - before;
        if slept > 3 {
            return Err(format!("starvation: one write lock slept {slept} times"));
        }
        Ok(())
    })
}
