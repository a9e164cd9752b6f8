//! What happens in the races about arenas, which are of 4 pages each where scenes map.

use super::scenes::{boxed, expect, plays, warm};
use super::stage::{Checked, Script, Stage};
use core::cell::Cell;
use minflt_mm::{Place, Prot, Signal};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// P65: an mmap over two arenas beside one in the second, in which nothing is mapped.
pub(super) fn overlapping<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    // The arena is made, and left empty.
    stage.map(5, 6);
    stage.unmap(5, 1);
    plays(vec![
        boxed(move || again(stage, 3, 5)),
        boxed(move || {
            again(stage, 6, 7);
            expect(stage, &stage.thread(), 6, Ok(0));
        }),
    ])
}

/// P66: two calls cut one mapping, which lies over a border, on both sides of that.
pub(super) fn border<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(1, 7);
    let cuts = |page| {
        boxed(move || {
            stage.unmap(page, 1);
            expect(stage, &stage.thread(), page, Err(Signal::MapErr));
        })
    };
    plays(vec![cuts(2), cuts(5)])
}

/// P67: an address space is divided beside a call that waits for its lock.
pub(super) fn division<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    plays(vec![
        boxed(move || {
            let _one_of_two = stage.thread();
            again(stage, 2, 3);
        }),
        boxed(move || {
            let thread = stage.thread();
            stage.unmap(0, 1);
            expect(stage, &thread, 0, Err(Signal::MapErr));
        }),
    ])
}

/// P68: a CPU's first access in an arena beside munmap.
pub(super) fn joining<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(4, 6);
    stage.touch(5, 3);
    plays(vec![
        // On the CPU that has set the scene, and is in the mask.
        boxed(move || stage.unmap(5, 1)),
        boxed(move || {
            let _found = stage.thread().load(stage.page(5));
        }),
    ])
}

/// P72: a CPU uses an arena beside unmappings, and leaves the arena's mask at the second one.
pub(super) fn leaving<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(4, 8);
    for page in 4..8 {
        stage.touch(page, 3);
    }
    let gone = Rc::new(Cell::new(false));
    let is_gone = Rc::clone(&gone);
    plays(vec![
        boxed(move || {
            stage.unmap(4, 1);
            stage.unmap(5, 1);
            stage.unmap(6, 1);
            gone.set(true);
        }),
        boxed(move || {
            let thread = stage.thread();
            for page in 4..8 {
                // Unmapped where the other was faster.
                let _ = thread.load(stage.page(page));
            }
            // Does not sleep: its CPU stays in the mask of the address space.
            for _ in 0..4 {
                expect(stage, &thread, 7, Ok(3));
                if is_gone.get() {
                    expect(stage, &thread, 6, Err(Signal::MapErr));
                }
            }
        }),
    ])
}

/// P69: an address space is divided that a CPU has used before, and a page of it is unmapped.
pub(super) fn division_flush<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    stage.touch(0, 3);
    plays(vec![
        boxed(move || {
            let _found = stage.thread().load(stage.page(0));
        }),
        boxed(move || {
            let _two = [stage.thread(), stage.thread()];
            again(stage, 2, 3);
            stage.unmap(0, 1);
        }),
    ])
}

/// P70: a page is discarded beside a discard of more, over a border.
pub(super) fn discards<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(3, 6);
    warm(stage, 5);
    let store = boxed(move || {
        let thread = stage.thread();
        for value in 1..3 {
            assert!(thread.store(stage.page(5), value).is_ok(), "mapped");
        }
    });
    plays(vec![
        boxed(move || {
            stage.discard(5, 1);
        }),
        boxed(move || {
            stage.discard(3, 3);
        }),
        store,
    ])
}

/// P71: an address space is divided while two threads touch mappings for the first time.
pub(super) fn division_prepare<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    const MAPPINGS: [u64; 4] = [0, 2, 4, 6];
    for page in MAPPINGS {
        stage.map(page, page + 1);
    }
    let touches = || {
        boxed(move || {
            let thread = stage.thread();
            for page in MAPPINGS {
                assert!(thread.store(stage.page(page), 1).is_ok(), "mapped");
            }
        })
    };
    let divides = boxed(move || {
        let _two = [stage.thread(), stage.thread()];
        again(stage, 8, 9);
    });
    plays(vec![touches(), touches(), divides])
}

/// Maps pages `from..to` in place of whatever is there.
fn again<P: Paging>(stage: Stage<'_, P>, from: u64, to: u64) {
    let place = Place::Fixed(stage.page(from));
    let len = (to - from) * P::page();
    let mapped = stage.mm.mmap(place, len, Prot::READ_WRITE);
    if mapped != Ok(stage.page(from)) {
        Checked::<P>::violation(format_args!("mmap of page {from} comes to {mapped:?}"));
    }
}
