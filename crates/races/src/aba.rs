//! Races in which an entry comes back equal bit by bit, and the page behind it does not.

use super::forks::Child;
use super::migration::{FAR, boxed, fine, moves_at_last, touched};
use super::scenes::{S, tasks};
use super::stage::Script;
use minflt_pgtable::Paging;
use std::rc::Rc;

/// P58: a store to a page that a child shares, while the page is moved to another node and back.
/// The frame it comes back to is exclusive until the mover says otherwise.
pub(super) fn exclusive<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    touched(stage, 0, 1);
    let child = Child::of(stage);
    let (user, mover, last) = (Rc::clone(stage), Rc::clone(stage), Rc::clone(stage));
    let bodies = vec![
        boxed(move || {
            let stored = user.thread().store(user.page(0), 7);
            assert_eq!(stored, Ok(()), "mapped");
        }),
        boxed(move || {
            for node in [FAR, 0] {
                fine(mover.mm.move_page(mover.page(0), node));
            }
        }),
    ];
    tasks(bodies, move || {
        for (mm, whose, expected) in [(child.mm(), "child", 0), (last.mm, "parent", 7)] {
            let found = mm.thread().load(last.page(0));
            if found != Ok(expected) {
                return Err(format!(
                    "contents: the {whose} finds {found:?}, not {expected}"
                ));
            }
        }
        child.end(&last)?;
        moves_at_last(&last, last.mm, last.page(0))
    })
}
