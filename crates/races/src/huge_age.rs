//! A walk under `mmap_lock` alone, and tables of huge pages that address spaces share.

use super::hugetlb::{at, end, interval, shared};
use super::scenes::{boxed, tasks};
use super::stage::{Script, Stage};
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Paging;
use std::rc::Rc;

/// P59: for each page the walk reads the parent's upper entry; a hole makes the parent leave its
/// table, and the child, the last that had it, frees that.
pub(super) fn beside_hole<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let (file, child) = shared(stage);
    let (punched, user) = (Rc::clone(&file), Rc::clone(&child));
    let bodies = vec![
        boxed(move || {
            let all = VirtRange::new(at::<P>(0), VirtAddr(2 * interval::<P>()));
            let _young = stage.mm.age(all);
        }),
        boxed(move || {
            punched.punch(0);
            let done = user.mm().munmap(at::<P>(0), interval::<P>());
            assert_eq!(done, Ok(()), "mapped");
        }),
    ];
    tasks(bodies, move || end(stage, file, child))
}
