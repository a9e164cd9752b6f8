//! What happens in the races about moving mappings.

use super::scenes::{boxed, expect, plays};
use super::stage::{Checked, Script, Stage};
use minflt_mm::{Advice, Remap, RemapRequest, Signal};
use minflt_pgtable::Paging;
use minflt_sync::Machine;

/// The page that the moved ones go to.
const THERE: u64 = 8;

/// Maps two pages, of which the first `touched` hold 5 and 6.
fn set_up<P: Paging>(stage: Stage<'_, P>, touched: u64) {
    stage.map(0, 2);
    let thread = stage.thread();
    for n in 0..touched {
        assert!(thread.store(stage.page(n), 5 + n).is_ok(), "alone");
    }
}

/// Moves both pages.
fn remap<P: Paging>(stage: Stage<'_, P>, how: Remap) {
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
pub(super) fn remap_fault<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    set_up(stage, 2);
    plays(vec![
        boxed(move || {
            let to = Remap::Fixed(stage.page(THERE));
            remap(stage, to);
            expect(stage, &stage.thread(), THERE, Ok(5));
        }),
        boxed(move || {
            let thread = stage.thread();
            for _ in 0..3 {
                // Nothing is there, or what was moved.
                let found = thread.load(stage.page(THERE + 1));
                if !matches!(found, Ok(6 | 7) | Err(Signal::MapErr)) {
                    Checked::<P>::violation(format_args!(
                        "contents: the moved page holds {found:?}"
                    ));
                }
                let stored = thread.store(stage.page(THERE + 1), 7);
                assert!(matches!(stored, Ok(()) | Err(Signal::MapErr)), "{stored:?}");
            }
        }),
    ])
}

/// P34: a first store to a page beside the mremap that leaves its mapping without an anon_vma.
pub(super) fn remap_anon<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    set_up(stage, 1);
    plays(vec![
        boxed(move || {
            let to = Remap::FixedDontUnmap(stage.page(THERE));
            remap(stage, to);
            expect(stage, &stage.thread(), THERE, Ok(5));
        }),
        boxed(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(1), 7);
            assert_eq!(stored, Ok(()), "it stays mapped");
        }),
    ])
}

/// P40: pages are moved, and taken out at their new place, by a discard and by munmap, beside
/// somebody who stores to the old place all the time.
pub(super) fn remap_zap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    set_up(stage, 2);
    plays(vec![
        boxed(move || {
            let to = Remap::FixedDontUnmap(stage.page(THERE));
            remap(stage, to);
        }),
        boxed(move || {
            for _ in 0..2 {
                let there = stage.page(THERE);
                // Before the move nothing is mapped there.
                let _done = stage.mm.madvise(there, P::page(), Advice::DontNeed);
                let done = stage.mm.munmap(stage.page(THERE + 1), P::page());
                assert!(done.is_ok(), "nothing there is no error");
            }
        }),
        boxed(move || {
            let thread = stage.thread();
            for round in 0..4 {
                let stored = thread.store(stage.page(round % 2), 7);
                assert_eq!(stored, Ok(()), "it stays mapped");
            }
        }),
    ])
}
