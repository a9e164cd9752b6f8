//! Races in which an entry comes back equal bit by bit, and the page behind it does not.

use super::forks::Child;
use super::migration::{FAR, fine, moves_at_last, touched};
use super::scenes::{boxed, tasks};
use super::stage::{Script, Stage};
use minflt_pgtable::Paging;

/// P58: a store to a page that a child shares, while the page is moved to another node and back.
/// The frame it comes back to is exclusive until the mover says otherwise.
pub(super) fn exclusive<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, 1);
    let child = Child::of(stage);
    let bodies = vec![
        boxed(move || {
            let stored = stage.thread().store(stage.page(0), 7);
            assert_eq!(stored, Ok(()), "mapped");
        }),
        boxed(move || {
            for node in [FAR, 0] {
                fine(stage.mm.move_page(stage.page(0), node));
            }
        }),
    ];
    tasks(bodies, move || {
        for (mm, whose, expected) in [(child.mm(), "child", 0), (stage.mm, "parent", 7)] {
            let found = mm.thread().load(stage.page(0));
            if found != Ok(expected) {
                return Err(format!(
                    "contents: the {whose} finds {found:?}, not {expected}"
                ));
            }
        }
        child.end(stage)?;
        moves_at_last(stage, stage.mm, stage.page(0))
    })
}
