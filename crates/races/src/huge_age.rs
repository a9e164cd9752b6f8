//! A walk under `mmap_lock` alone, and tables of huge pages that address spaces share.

use super::hugetlb::{at, end, interval, shared};
use super::migration::boxed;
use super::scenes::{S, tasks};
use super::stage::Script;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Paging;
use std::rc::Rc;

/// P59: for each page the walk reads the parent's upper entry; a hole makes the parent leave its
/// table, and the child frees that, the last one who had it.
pub(super) fn beside_hole<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    let (file, child) = shared(stage);
    let (parent, last) = (Rc::clone(stage), Rc::clone(stage));
    let (punched, user) = (Rc::clone(&file), Rc::clone(&child));
    let bodies = vec![
        boxed(move || {
            let all = VirtRange::new(at::<P>(0), VirtAddr(2 * interval::<P>()));
            let _young = parent.mm.age(all);
        }),
        boxed(move || {
            punched.punch(0);
            let done = user.mm().munmap(at::<P>(0), interval::<P>());
            assert_eq!(done, Ok(()), "mapped");
        }),
    ];
    tasks(bodies, move || end(&last, file, child))
}
