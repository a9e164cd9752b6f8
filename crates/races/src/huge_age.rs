//! A walk under `mmap_lock` alone, and tables of huge pages that address spaces share.

use super::hugetlb::{at, bytes, end, interval, shared};
use super::migration::boxed;
use super::scenes::{S, tasks};
use super::stage::Script;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_mm::{Place, Prot};
use minflt_pgtable::Paging;
use std::rc::Rc;

/// P59: the walk reads the parent's upper entry; a hole makes the parent leave its table, the child
/// frees that, and makes other tables, of the same frames.
pub(super) fn beside_hole<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    let (file, child) = shared(stage);
    let small = VirtAddr(interval::<P>() - 4 * bytes::<P>());
    let place = Place::FixedNoReplace(small);
    let mapped = child.mm().mmap(place, 2 * bytes::<P>(), Prot::READ_WRITE);
    assert_eq!(mapped, Ok(small), "free");
    let (parent, last) = (Rc::clone(stage), Rc::clone(stage));
    let (punched, user) = (Rc::clone(&file), Rc::clone(&child));
    let bodies = vec![
        boxed(move || {
            let all = VirtRange::new(at::<P>(0), at::<P>(4));
            let _young = parent.mm.age(all);
        }),
        boxed(move || {
            punched.punch(0);
            let done = user.mm().munmap(at::<P>(0), interval::<P>());
            assert_eq!(done, Ok(()), "mapped");
            let thread = user.mm().thread();
            for n in 0..2 {
                let stored = thread.store(VirtAddr(small.0 + n * bytes::<P>()), 1);
                assert_eq!(stored, Ok(()), "mapped");
            }
        }),
    ];
    tasks(bodies, move || end(&last, file, child))
}
