//! What happens in each race.
//!
//! Tasks are numbered by CPU. What is set up before them runs alone: pages touched and discarded
//! again leave their tables and their VMA's anon_vma behind, so that a speculative fault gets as
//! far as it can.

use super::stage::{Checked, Script, Stage};
use core::cell::Cell;
use minflt_addr::VirtRange;
use minflt_mm::{Advice, Place, Prot, Signal, Thread};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// What one task does.
pub(super) type Body<'s> = Box<dyn FnOnce() + 's>;

pub(super) fn boxed<'s, F: FnOnce() + 's>(body: F) -> Body<'s> {
    Box::new(body)
}

/// Tasks after which nothing is left to be looked at but the ledger.
pub(super) fn plays(bodies: Vec<Body<'_>>) -> Script<'_> {
    tasks(bodies, || Ok(()))
}

pub(super) fn tasks<'s>(
    bodies: Vec<Body<'s>>,
    at_end: impl FnOnce() -> Result<(), String> + 's,
) -> Script<'s> {
    Script {
        tasks: bodies,
        at_end: Box::new(at_end),
    }
}

/// The word at page `n` must be `expected`.
pub(super) fn expect<P: Paging>(
    stage: Stage<'_, P>,
    thread: &Thread<'_, Checked<P>>,
    n: u64,
    expected: Result<u64, Signal>,
) {
    let found = thread.load(stage.page(n));
    if found != expected {
        Checked::<P>::violation(format_args!(
            "contents: page {n} holds {found:?}, not {expected:?}"
        ));
    }
}

/// Touches a page and throws it away again: its tables and its anon_vma stay.
pub(super) fn warm<P: Paging>(stage: Stage<'_, P>, n: u64) {
    let thread = stage.thread();
    let stored = thread.store(stage.page(n), 99);
    let discarded = stage.mm.madvise(stage.page(n), P::page(), Advice::DontNeed);
    assert!(stored.is_ok() && discarded.is_ok(), "alone, and mapped");
}

/// P1: two faults in one empty table, at different pages and then at the same.
pub(super) fn fault_fault<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 3);
    let body = |n: u64| {
        boxed(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(n), n + 1);
            expect(stage, &thread, n, stored.map(|()| n + 1));
            let shared = thread.store(stage.page(2), 7);
            expect(stage, &thread, 2, shared.map(|()| 7));
        })
    };
    plays(vec![body(0), body(1)])
}

/// P7: the low-level handler sets an accessed bit while mprotect takes the store permission away.
pub(super) fn accessed_protect<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    stage.touch(0, 5);
    stage.mm.age(VirtRange::new(stage.page(0), stage.page(1)));
    plays(vec![
        boxed(move || expect(stage, &stage.thread(), 0, Ok(5))),
        boxed(move || {
            stage.protect(0, 1, Prot::READ);
            // Nothing may store from here on.
            let thread = stage.thread();
            if thread.store(stage.page(0), 6) != Err(Signal::AccErr) {
                Checked::<P>::violation(format_args!(
                    "protection: a store succeeded after mprotect(READ) returned"
                ));
            }
        }),
    ])
}

/// P8: counts come and go without a lock; afterwards all is unmapped.
pub(super) fn resident<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 4);
    {
        let thread = stage.thread();
        for n in 0..2 {
            assert!(thread.store(stage.page(n), 1).is_ok(), "alone, and mapped");
        }
    }
    let bodies = vec![
        boxed(move || {
            let thread = stage.thread();
            for n in 2..4 {
                assert!(thread.store(stage.page(n), 1).is_ok(), "mapped");
            }
        }),
        boxed(move || {
            stage.discard(0, 2);
        }),
        boxed(move || shown_is_sane::<P>(stage)),
    ];
    tasks(bodies, move || {
        stage.unmap(0, 4);
        let shown = stage.mm.resident_pages();
        if shown < 0 {
            return Err(format!("resident count: {shown} is shown"));
        }
        Ok(())
    })
}

fn shown_is_sane<P: Paging>(stage: Stage<'_, P>) {
    let shown = stage.mm.resident_pages();
    if shown < 0 {
        Checked::<P>::violation(format_args!("resident count: {shown} is shown"));
    }
}

/// P27: munmap and a new, read-only mapping of the same address, beside a fault on the old one.
pub(super) fn fault_remap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    stage.map(1, 2);
    warm(stage, 0);
    stage.touch(1, 3);
    plays(vec![
        boxed(move || {
            let thread = stage.thread();
            let at = stage.page(0);
            assert!(stage.mm.munmap(at, P::page()).is_ok(), "mapped");
            let mapped = stage.mm.mmap(Place::Fixed(at), P::page(), Prot::READ);
            assert_eq!(mapped, Ok(at));
            // Nobody can ever have stored to the new mapping.
            expect(stage, &thread, 0, Ok(0));
            expect(stage, &thread, 0, Ok(0));
        }),
        boxed(move || {
            let thread = stage.thread();
            // Before the unmapping it succeeds; afterwards it is a signal.
            let stored = thread.store(stage.page(0), 5);
            assert!(
                stored != Err(Signal::OutOfMemory),
                "the stage is large enough"
            );
        }),
    ])
}

/// P28: mprotect(NONE) beside a store fault.
pub(super) fn fault_protect<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    let returned = Rc::new(Cell::new(0));
    let seen = Rc::clone(&returned);
    plays(vec![
        boxed(move || {
            stage.protect(0, 1, Prot::NONE);
            returned.set(1);
        }),
        boxed(move || {
            let thread = stage.thread();
            for _ in 0..2 {
                let before = seen.get();
                let stored = thread.store(stage.page(0), 5);
                if before == 1 && stored.is_ok() {
                    Checked::<P>::violation(format_args!(
                        "protection: a store that began after mprotect(NONE) returned succeeded"
                    ));
                }
            }
        }),
    ])
}

/// P62: mprotect takes the right to fetch instructions, and leaves all others. Formats that cannot
/// say it are asked for nothing.
pub(super) fn fetch_protect<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let code = Prot::READ_WRITE.with(Prot::EXEC);
    stage.map(0, 1);
    stage.protect(0, 1, code);
    warm(stage, 0);
    let returned = Rc::new(Cell::new(0));
    let seen = Rc::clone(&returned);
    let can_refuse = P::bits().of_exec() != 0;
    plays(vec![
        boxed(move || {
            stage.protect(0, 1, Prot::READ_WRITE);
            returned.set(1);
        }),
        boxed(move || {
            let thread = stage.thread();
            for _ in 0..3 {
                let before = seen.get();
                let fetched = thread.fetch(stage.page(0));
                if before == 1 && fetched.is_ok() && can_refuse {
                    Checked::<P>::violation(format_args!(
                        "protection: a fetch that began after mprotect returned succeeded"
                    ));
                }
            }
        }),
    ])
}

/// P37: a store replaces the zero page, holding the table's lock until all CPUs have forgotten
/// it, beside a fault on the next page of the table.
pub(super) fn fault_shootdown<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 2);
    warm(stage, 1);
    {
        let thread = stage.thread();
        assert_eq!(thread.load(stage.page(0)), Ok(0));
    }
    let body = |n: u64| {
        boxed(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(n), n + 1);
            expect(stage, &thread, n, stored.map(|()| n + 1));
        })
    };
    plays(vec![body(0), body(1)])
}

/// P41: two discards of one page, and a third CPU that buffers its translation.
pub(super) fn zap_zap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    let discard = || {
        boxed(move || {
            stage.discard(0, 1);
        })
    };
    let store = boxed(move || {
        let thread = stage.thread();
        for value in 1..3 {
            assert!(thread.store(stage.page(0), value).is_ok(), "mapped");
        }
    });
    plays(vec![discard(), discard(), store])
}

/// P57: a store fault beside a discard of the same page.
pub(super) fn fault_zap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    plays(vec![
        boxed(move || {
            stage.touch(0, 5);
        }),
        boxed(move || {
            stage.discard(0, 1);
        }),
    ])
}

/// The refused mix: a store fault beside an munmap that frees the table.
pub(super) fn fault_unmap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    plays(vec![
        boxed(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(0), 5);
            assert!(
                stored != Err(Signal::OutOfMemory),
                "the stage is large enough"
            );
        }),
        boxed(move || {
            stage.unmap(0, 1);
            let thread = stage.thread();
            expect(stage, &thread, 0, Err(Signal::MapErr));
        }),
    ])
}
