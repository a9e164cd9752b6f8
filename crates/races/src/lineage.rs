//! What happens in the races about anon_vmas: freed, used again, shared and passed on.

use super::forks::Child;
use super::migration::{adds_up, frame_of, left, move_mapping, mover, protect_page, touched};
use super::scenes::{boxed, expect, tasks};
use super::stage::{Script, Stage};
use core::cell::RefCell;
use minflt_mm::{Prot, Refuse};
use minflt_pgtable::Paging;
use std::rc::Rc;

/// Where other mappings are.
const THERE: u64 = 8;

/// P16: somebody comes from a frame to the anon_vma of its page, while the only mapping goes that
/// is chained to it, and others come that take its memory.
pub(super) fn recycled<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, 1);
    let pfn = frame_of(stage, 0);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || {
            stage.unmap(0, 1);
            for n in [THERE, THERE + 2] {
                touched(stage, n, n + 1);
            }
        }),
    ];
    tasks(bodies, move || {
        left(stage, &[stage.mm], THERE, Ok(THERE))?;
        for n in [THERE, THERE + 2] {
            stage.unmap(n, 1);
        }
        Ok(())
    })
}

/// P17: five generations, of which some end and some have their mappings in pieces; then the
/// youngest makes one mapping of two, while a page that both share with the one before is moved,
/// and that one ends.
///
/// Where one number counts children and owners, the two mappings have one anon_vma for their own,
/// though each is chained to one that the other is not (CVE-2022-42703).
pub(super) fn reused<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let piece = |child: &Child<'s, P>, from: u64, to: u64, prot| {
        let len = (to - from) * P::page();
        let done = child.mm().mprotect(stage.page(from), len, prot);
        assert!(done.is_ok(), "mapped: {done:?}");
    };
    touched(stage, 0, 3);
    let first = Child::of(stage);
    stage.unmap(0, 3);
    let second = first.child(stage);
    first.exit();
    let third = second.child(stage);
    piece(&third, 1, 3, Prot::READ);
    piece(&second, 1, 2, Prot::READ);
    let fourth = third.child(stage);
    piece(&fourth, 1, 3, Prot::READ_WRITE);
    for n in 0..2 {
        let stored = fourth.mm().thread().store(stage.page(n), 10 + n);
        assert!(stored.is_ok(), "mapped: {stored:?}");
    }
    second.exit();
    let fifth = Rc::new(fourth.child(stage));
    let pfn = {
        let youngest = Stage {
            sys: stage.sys,
            mm: fifth.mm(),
        };
        frame_of(youngest, 1)
    };
    let merger = Rc::clone(&fifth);
    let at = stage.page(1);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || {
            for prot in [Prot::READ, Prot::READ_WRITE] {
                let done = merger.mm().mprotect(at, 2 * P::page(), prot);
                assert!(done.is_ok(), "mapped: {done:?}");
            }
        }),
        boxed(move || fourth.exit()),
    ];
    tasks(bodies, move || {
        let fifth = Rc::into_inner(fifth).ok_or("a task still has the child")?;
        left(stage, &[fifth.mm(), stage.mm, third.mm()], 1, Ok(11))?;
        third.exit();
        fifth.end(stage)
    })
}

/// P17: a mapping that has pages is moved next to one that has none, and they become one, while
/// one of the pages is moved to another frame.
pub(super) fn inherited<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 1, 2);
    move_mapping(stage, 1, THERE);
    stage.map(0, 1);
    let pfn = frame_of(stage, THERE);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || {
            move_mapping(stage, THERE, 1);
            expect(stage, &stage.thread(), 1, Ok(1));
        }),
    ];
    tasks(bodies, move || left(stage, &[stage.mm], 1, Ok(1)))
}

/// Allocations of the merge of [`refused`], and of the store beside it, before that which fails
/// when the store comes in between.
const BEFORE: u64 = 2;

/// P18: two mappings become one, of which the one that stays gets the other's anon_vma, and there
/// is no memory to take the other out; beside the first store to the one that stays.
pub(super) fn refused<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 1, 2);
    protect_page(stage, 1, Prot::READ);
    stage.map(0, 1);
    let stored = Rc::new(RefCell::new(false));
    let done = Rc::clone(&stored);
    let bodies = vec![
        boxed(move || {
            // The store's are counted, too: it may be that one that is refused.
            stage.sys.refuse_allocations(Refuse::Nth(BEFORE + 1));
            let merged = stage
                .mm
                .mprotect(stage.page(1), P::page(), Prot::READ_WRITE);
            let fine = matches!(merged, Ok(()) | Err(minflt_mm::MprotectError::NoMemory));
            assert!(fine, "{merged:?}");
            stage.sys.refuse_allocations(Refuse::Nothing);
        }),
        boxed(move || {
            *done.borrow_mut() = stage.thread().store(stage.page(0), 7).is_ok();
        }),
    ];
    tasks(bodies, move || {
        let expected = if *stored.borrow() { 7 } else { 0 };
        // Where nothing was stored it is the zero page, which stays where it is.
        adds_up(stage, &[stage.mm], 0, Ok(expected))
    })
}
