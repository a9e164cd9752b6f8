//! What happens in the races about huge pages that are moved to another node.
//!
//! A move that finds the page in use gives up, which is no mistake. Where the machine has one node
//! only, there is nothing to move to.

use super::forks::Child;
use super::hugetlb::{Big, at, end, shared, stores};
use super::migration::{FAR, boxed};
use super::scenes::{S, tasks};
use super::stage::{Checked, Script};
use core::cell::RefCell;
use minflt_mm::{Mm, MovePageError, Reserve, Sharing};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// What is in the page.
const WORD: u64 = 100;

/// Moves page 0.
fn moves<P: Paging>(mm: &Mm<Checked<P>>) {
    let moved = mm.move_page(at::<P>(0), FAR);
    let fine = matches!(
        moved,
        Ok(()) | Err(MovePageError::Busy | MovePageError::NoNode)
    );
    if !fine {
        Checked::<P>::violation(format_args!("huge page 0: a move returned {moved:?}"));
    }
}

/// What page 0 holds at the end.
fn holds<P: Paging>(mm: &Mm<Checked<P>>, word: u64) -> Result<(), String> {
    match mm.thread().load(at::<P>(0)) {
        Ok(found) if found == word => Ok(()),
        found => Err(format!(
            "huge page 0: {word} was stored, and {found:?} is found"
        )),
    }
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
pub(super) fn beside_fault<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 1, 2);
    file.map(0, 1, Reserve::Charged, Sharing::Shared);
    stores(stage.mm, 0, &[Ok(())]);
    let (mover, user, last) = (Rc::clone(stage), Rc::clone(stage), Rc::clone(stage));
    let bodies = vec![
        boxed(move || moves(mover.mm)),
        boxed(move || goes_on(user.mm)),
    ];
    tasks(bodies, move || {
        holds(last.mm, 3)?;
        file.end()
    })
}

/// A page is moved that parent and child reach by one table, beside stores of the child's.
pub(super) fn by_one_table<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    let (file, child) = shared(stage);
    let (mover, user, last) = (Rc::clone(stage), Rc::clone(&child), Rc::clone(stage));
    let bodies = vec![
        boxed(move || moves(mover.mm)),
        boxed(move || goes_on(user.mm())),
    ];
    tasks(bodies, move || {
        holds(last.mm, 3)?;
        end(&last, file, child)
    })
}

/// A private page that parent and child share is moved by the parent, beside a fork of the child:
/// one of the parent would wait for `mmap_lock`.
pub(super) fn beside_fork<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 1, 3);
    file.map(0, 1, Reserve::Charged, Sharing::Private);
    stores(stage.mm, 0, &[Ok(())]);
    let child = Rc::new(Child::of(stage));
    let born = Rc::new(RefCell::new(None));
    let grandchild = Rc::clone(&born);
    let (forks, forker) = (Rc::clone(&child), Rc::clone(stage));
    let (mover, last) = (Rc::clone(stage), Rc::clone(stage));
    let bodies = vec![
        boxed(move || moves(mover.mm)),
        boxed(move || *born.borrow_mut() = Some(forks.child(&forker))),
    ];
    tasks(bodies, move || {
        let grandchild: Child<'s, P> = grandchild.take().ok_or("fork did not return")?;
        for mm in [last.mm, child.mm(), grandchild.mm()] {
            holds(mm, WORD)?;
        }
        grandchild.exit();
        end(&last, file, child)
    })
}
