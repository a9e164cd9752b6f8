//! What happens in the races about stacks.

use super::scenes::{boxed, expect, plays, tasks};
use super::stage::{Checked, Script, Stage};
use minflt_mm::{Growth, MapRequest, Place, Prot};
use minflt_pgtable::Paging;

/// Maps pages `from..to` as a stack.
fn map_stack<P: Paging>(stage: Stage<'_, P>, from: u64, to: u64) {
    let place = Place::FixedNoReplace(stage.page(from));
    let request = MapRequest {
        growth: Growth::Down,
        ..MapRequest::new(place, (to - from) * P::page(), Prot::READ_WRITE)
    };
    let mapped = stage.thread().mmap(&request);
    assert!(mapped.is_ok(), "the stage is free and small: {mapped:?}");
}

/// P31: two stacks, neighbours in the tree, grow at the same time, beside somebody who looks up
/// what is there all the time.
pub(super) fn stack_stack<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.sys.set_stack_guard_gap(0);
    stage.map(0, 1);
    map_stack(stage, 4, 5);
    map_stack(stage, 8, 9);
    let thread = stage.thread();
    for n in [0, 4, 8] {
        assert!(thread.store(stage.page(n), n).is_ok(), "alone, and mapped");
    }
    drop(thread);
    let grow = |n: u64| {
        boxed(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(n), n);
            assert!(stored.is_ok(), "a stack's: {stored:?}");
            expect::<P>(stage, &thread, n, Ok(n));
        })
    };
    let look = boxed(move || {
        let thread = stage.thread();
        for n in [8, 4, 0] {
            let found = stage.mm.mapping_at(stage.page(n));
            if found.is_none() {
                <Checked<P> as minflt_sync::Machine>::violation(format_args!(
                    "lookup: page {n} is mapped, and not found"
                ));
            }
            expect::<P>(stage, &thread, n, Ok(n));
        }
    });
    plays(vec![grow(3), grow(7), look])
}

/// P39: a stack grows into a range that is being unmapped, and whose table nobody else uses. The
/// stack begins where that table's reach ends.
pub(super) fn stack_unmap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.sys.set_stack_guard_gap(0);
    let edge = 1 << P::tree()[0].bits;
    stage.map(edge - 2, edge);
    map_stack(stage, edge, edge + 1);
    let thread = stage.thread();
    // Not the page in between: nobody shall buffer it.
    for n in [edge - 2, edge] {
        assert!(thread.store(stage.page(n), n).is_ok(), "alone, and mapped");
    }
    drop(thread);
    let store = boxed(move || {
        let thread = stage.thread();
        // To the mapping, or to the stack that takes its place.
        let stored = thread.store(stage.page(edge - 1), 1);
        assert!(stored.is_ok(), "the stage is large enough: {stored:?}");
    });
    let unmap = boxed(move || {
        stage.unmap(edge - 2, 2);
        expect::<P>(stage, &stage.thread(), edge, Ok(edge));
    });
    tasks(vec![store, unmap], move || {
        let thread = stage.thread();
        let found = thread.load(stage.page(edge - 1));
        match found {
            Ok(0 | 1) => Ok(()),
            other => Err(format!("contents: the stack's new page holds {other:?}")),
        }
    })
}
