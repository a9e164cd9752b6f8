//! What happens in the races about arenas, which are of 4 pages each where scenes map.

use super::scenes::{boxed, expect, plays, warm};
use super::stage::{Checked, Script, Stage};
use minflt_mm::{Place, Prot, Signal};
use minflt_pgtable::Paging;
use minflt_sync::Machine;

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

/// Maps pages `from..to` in place of whatever is there.
fn again<P: Paging>(stage: Stage<'_, P>, from: u64, to: u64) {
    let place = Place::Fixed(stage.page(from));
    let len = (to - from) * P::page();
    let mapped = stage.mm.mmap(place, len, Prot::READ_WRITE);
    if mapped != Ok(stage.page(from)) {
        Checked::<P>::violation(format_args!("mmap of page {from} comes to {mapped:?}"));
    }
}
