//! What happens in the races about huge pages that are moved to another node.
//!
//! A move that finds the page in use gives up, which is no mistake while the tasks run; one when
//! they have ended has to succeed. Where the machine has one node only, there is nothing to move
//! to.

use super::forks::Child;
use super::hugetlb::{Big, at, bytes, end, finds, has, shared, stores};
use super::migration::{FAR, moves_at_last};
use super::scenes::{boxed, tasks};
use super::stage::{Checked, Script, Stage};
use core::cell::RefCell;
use minflt_mm::{Advice, Mm, MovePageError, Reserve, Sharing};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// What is in the page.
const WORD: u64 = 100;

/// Moves page `n`.
fn moves<P: Paging>(mm: &Mm<Checked<P>>, n: u64) {
    let moved = mm.move_page(at::<P>(n), FAR);
    let fine = matches!(
        moved,
        Ok(()) | Err(MovePageError::Busy | MovePageError::NoNode)
    );
    if !fine {
        Checked::<P>::violation(format_args!("huge page {n}: a move returned {moved:?}"));
    }
}

/// What page 0 holds at the end, and after a move that nothing is in the way of.
fn holds_moved<P: Paging>(
    stage: Stage<'_, P>,
    mm: &Mm<Checked<P>>,
    word: u64,
) -> Result<(), String> {
    has(mm, 0, word)?;
    moves_at_last(stage, mm, at::<P>(0))?;
    has(mm, 0, word)
}

/// Stores other words to page 0, and finds each.
fn goes_on<P: Paging>(mm: &Mm<Checked<P>>) {
    let thread = mm.thread();
    for word in 1..4 {
        let stored = thread.store(at::<P>(0), word);
        let found = thread.load(at::<P>(0));
        if stored.is_err() || found != Ok(word) {
            Checked::<P>::violation(format_args!(
                "huge page 0: {word} is stored, {stored:?}, and {found:?} is found"
            ));
        }
    }
}

/// A page of a file is moved beside stores to it.
pub(super) fn beside_fault<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 1, 2);
    file.map(0, 1, Reserve::Charged, Sharing::Shared);
    stores(stage.mm, 0, &[Ok(())]);
    let bodies = vec![
        boxed(move || moves(stage.mm, 0)),
        boxed(move || goes_on(stage.mm)),
    ];
    tasks(bodies, move || {
        holds_moved(stage, stage.mm, 3)?;
        file.end()
    })
}

/// A page is moved that parent and child reach by one table, beside stores of the child's.
pub(super) fn by_one_table<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let (file, child) = shared(stage);
    let user = Rc::clone(&child);
    let bodies = vec![
        boxed(move || moves(stage.mm, 0)),
        boxed(move || goes_on(user.mm())),
    ];
    tasks(bodies, move || {
        holds_moved(stage, stage.mm, 3)?;
        end(stage, file, child)
    })
}

/// A private page that parent and child share is moved by the parent, beside a fork of the child:
/// one of the parent would wait for `mmap_lock`.
pub(super) fn beside_fork<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 1, 3);
    file.map(0, 1, Reserve::Charged, Sharing::Private);
    stores(stage.mm, 0, &[Ok(())]);
    let child = Rc::new(Child::of(stage));
    let born = Rc::new(RefCell::new(None));
    let grandchild = Rc::clone(&born);
    let forks = Rc::clone(&child);
    let bodies = vec![
        boxed(move || moves(stage.mm, 0)),
        boxed(move || *born.borrow_mut() = Some(forks.child(stage))),
    ];
    tasks(bodies, move || {
        let grandchild: Child<'s, P> = grandchild.take().ok_or("fork did not return")?;
        for mm in [stage.mm, child.mm(), grandchild.mm()] {
            holds_moved(stage, mm, WORD)?;
        }
        grandchild.exit();
        end(stage, file, child)
    })
}

/// Page 1 of a private mapping is moved beside MADV_DONTNEED of page 0 and a part of page 1, which
/// stays as a whole.
pub(super) fn beside_discard<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 2, 4);
    file.map(0, 2, Reserve::Charged, Sharing::Private);
    for n in 0..2 {
        stores(stage.mm, n, &[Ok(())]);
    }
    let bodies = vec![
        boxed(move || moves(stage.mm, 1)),
        boxed(move || {
            for _ in 0..2 {
                finds(stage.mm, 1, &[Ok(WORD + 1)]);
            }
        }),
        boxed(move || {
            let len = bytes::<P>() + P::page();
            let done = stage.mm.madvise(at::<P>(0), len, Advice::DontNeed);
            assert!(done.is_ok(), "mapped: {done:?}");
            finds(stage.mm, 1, &[Ok(WORD + 1)]);
        }),
    ];
    tasks(bodies, move || {
        has(stage.mm, 0, 0)?;
        has(stage.mm, 1, WORD + 1)?;
        moves_at_last(stage, stage.mm, at::<P>(1))?;
        has(stage.mm, 1, WORD + 1)?;
        file.end()
    })
}
