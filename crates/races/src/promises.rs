//! What happens in the race about memory that is promised.

use super::forks::Child;
use super::scenes::{boxed, tasks};
use super::stage::{Script, Stage};
use core::cell::Cell;
use minflt_addr::VirtAddr;
use minflt_mm::{MmapError, Overcommit, Place, Prot};
use minflt_pgtable::Paging;
use std::rc::Rc;

/// Pages that are never promised: the sum stays below.
const LIMIT: u64 = 15;
/// Pages that each address space asks for; they fit one by one.
const EACH: u64 = 10;

/// Two address spaces map at once, on a system that does not overcommit. Only one of the mappings
/// fits.
pub(super) fn charge_charge<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.sys.set_overcommit(Overcommit::Never);
    stage.sys.set_overcommit_ratio(0);
    stage.sys.set_swap_pages(LIMIT);
    type Asked = Result<VirtAddr, MmapError>;
    let other = Rc::new(Child::beside(stage));
    let asked: Rc<[Cell<Option<Asked>>; 2]> = Rc::default();
    let second = Rc::clone(&other);
    let (of_first, of_second) = (Rc::clone(&asked), Rc::clone(&asked));
    let place = Place::FixedNoReplace(stage.page(0));
    let bodies = vec![
        boxed(move || {
            let mapped = stage.mm.mmap(place, EACH * P::page(), Prot::READ_WRITE);
            of_first[0].set(Some(mapped));
        }),
        boxed(move || {
            let mapped = second.mm().mmap(place, EACH * P::page(), Prot::READ_WRITE);
            of_second[1].set(Some(mapped));
        }),
    ];
    tasks(bodies, move || {
        let both = asked.iter().map(Cell::get);
        let admitted = both.filter(|mapped| matches!(mapped, Some(Ok(_)))).count() as u64;
        if admitted * EACH >= LIMIT {
            let pages = admitted * EACH;
            return Err(format!("commit: {pages} pages are promised of {LIMIT}"));
        }
        let other = Rc::into_inner(other).ok_or("a task still has the other")?;
        other.end(stage)
    })
}
