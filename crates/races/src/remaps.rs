//! What happens in the races about moving mappings.

use super::scenes::{S, expect, tasks};
use super::stage::{Checked, Script};
use minflt_mm::{Advice, Remap, RemapRequest, Signal};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// The page that the moved ones go to.
const THERE: u64 = 8;

/// Maps two pages, of which the first `touched` hold 5 and 6.
fn set_up<P: Paging>(stage: &S<'_, P>, touched: u64) {
    stage.map(0, 2);
    let thread = stage.thread();
    for n in 0..touched {
        assert!(thread.store(stage.page(n), 5 + n).is_ok(), "alone");
    }
}

/// Moves both pages.
fn remap<P: Paging>(stage: &S<'_, P>, how: Remap) {
    let request = RemapRequest {
        old: stage.page(0),
        old_len: 2 * P::page(),
        new_len: 2 * P::page(),
        how,
    };
    let moved = stage.thread().mremap(&request);
    assert_eq!(moved, Ok(stage.page(THERE)));
}

/// P29: stores to the new place beside the mremap that moves pages there.
pub(super) fn remap_fault<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    set_up(stage, 2);
    let (user, caller) = (Rc::clone(stage), Rc::clone(stage));
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || {
            let to = Remap::Fixed(caller.page(THERE));
            remap(&caller, to);
            expect(&caller, &caller.thread(), THERE, Ok(5));
        }),
        Box::new(move || {
            let thread = user.thread();
            for _ in 0..3 {
                // Nothing is there, or what was moved.
                let found = thread.load(user.page(THERE + 1));
                if !matches!(found, Ok(6 | 7) | Err(Signal::MapErr)) {
                    Checked::<P>::violation(format_args!(
                        "contents: the moved page holds {found:?}"
                    ));
                }
                let stored = thread.store(user.page(THERE + 1), 7);
                assert!(matches!(stored, Ok(()) | Err(Signal::MapErr)), "{stored:?}");
            }
        }),
    ];
    tasks(bodies, || Ok(()))
}

/// P34: a first store to a page beside the mremap that leaves its mapping without an anon_vma.
pub(super) fn remap_anon<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    set_up(stage, 1);
    let (user, caller) = (Rc::clone(stage), Rc::clone(stage));
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || {
            let to = Remap::FixedDontUnmap(caller.page(THERE));
            remap(&caller, to);
            expect(&caller, &caller.thread(), THERE, Ok(5));
        }),
        Box::new(move || {
            let thread = user.thread();
            let stored = thread.store(user.page(1), 7);
            assert_eq!(stored, Ok(()), "it stays mapped");
        }),
    ];
    tasks(bodies, || Ok(()))
}

/// P40: pages are moved, and taken out at their new place, by a discard and by munmap, beside
/// somebody who stores to the old place all the time.
pub(super) fn remap_zap<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    set_up(stage, 2);
    let (user, caller, taker) = (Rc::clone(stage), Rc::clone(stage), Rc::clone(stage));
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || {
            let to = Remap::FixedDontUnmap(caller.page(THERE));
            remap(&caller, to);
        }),
        Box::new(move || {
            for _ in 0..2 {
                let there = taker.page(THERE);
                // Before the move nothing is mapped there.
                let _done = taker.mm.madvise(there, P::page(), Advice::DontNeed);
                let done = taker.mm.munmap(taker.page(THERE + 1), P::page());
                assert!(done.is_ok(), "nothing there is no error");
            }
        }),
        Box::new(move || {
            let thread = user.thread();
            for round in 0..4 {
                let stored = thread.store(user.page(round % 2), 7);
                assert_eq!(stored, Ok(()), "it stays mapped");
            }
        }),
    ];
    tasks(bodies, || Ok(()))
}
