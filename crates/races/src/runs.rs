//! What happens in the race about free frames that a CPU keeps.

use super::scenes::{boxed, plays};
use super::stage::{Script, Stage};
use minflt_mm::{Gfp, MAX_PAGE_ORDER};
use minflt_pgtable::Paging;

/// Pages that are mapped: more than a CPU's list of free frames holds.
const PAGES: u64 = 12;
/// Pages that are unmapped beforehand, whose frames the CPU keeps when the tasks begin.
const BEFORE: u64 = 8;

/// P73: a CPU adds frames to its runs while another one, for which memory has become short, gives
/// the runs of all back.
pub(super) fn draining<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, PAGES);
    for page in 0..PAGES {
        stage.touch(page, 1);
    }
    stage.unmap(0, BEFORE);
    plays(vec![
        // On the CPU that has set the scene, and has the runs.
        boxed(move || (BEFORE..PAGES).for_each(|page| stage.unmap(page, 1))),
        boxed(move || {
            let block = stage.sys.alloc_pages(MAX_PAGE_ORDER, Gfp::NoWait);
            assert!(block.is_err(), "there is less memory than that");
        }),
    ])
}
