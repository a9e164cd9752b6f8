//! What happens in the races about tables of huge pages that one fault puts in, and another shares:
//! while the mapping that has them comes or goes.

use super::forks::Child;
use super::hugetlb::{Big, WORD, at, bytes, end, finds, has, interval, stores};
use super::scenes::{boxed, tasks};
use super::stage::{Script, Stage};
use minflt_mm::{Place, Prot, Reserve, Sharing};
use minflt_pgtable::Paging;
use std::rc::Rc;

/// munmap beside a fault that looks for a table to share.
pub(super) fn gone<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 0, 3);
    file.map_interval();
    let child = Rc::new(Child::of(stage));
    stores(stage.mm, 0, &[Ok(())]);
    let user = Rc::clone(&child);
    let bodies = vec![
        boxed(move || {
            let done = stage.mm.munmap(at::<P>(0), interval::<P>());
            assert!(done.is_ok(), "mapped");
        }),
        boxed(move || {
            stores(user.mm(), 1, &[Ok(())]);
            finds(user.mm(), 0, &[Ok(WORD)]);
        }),
    ];
    tasks(bodies, move || end(stage, file, child))
}

/// An interval of the file is mapped over small pages, beside a fault that looks for a table to
/// share.
pub(super) fn over<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 0, 3);
    file.map_interval();
    let child = Rc::new(Child::of(stage));
    let gone = stage.mm.munmap(at::<P>(0), interval::<P>());
    assert!(gone.is_ok(), "mapped: {gone:?}");
    let small = stage
        .mm
        .mmap(Place::Fixed(at::<P>(0)), P::page(), Prot::READ_WRITE);
    assert!(small.is_ok(), "there is memory: {small:?}");
    stores(stage.mm, 0, &[Ok(())]);
    let user = Rc::clone(&child);
    let mapped = Rc::clone(&file);
    let bodies = vec![
        boxed(move || {
            mapped.map_at(
                Place::Fixed(at::<P>(0)),
                interval::<P>() / bytes::<P>(),
                Reserve::NoReserve,
                Sharing::Shared,
            );
            stores(stage.mm, 2, &[Ok(())]);
        }),
        boxed(move || stores(user.mm(), 1, &[Ok(())])),
    ];
    tasks(bodies, move || {
        for mm in [stage.mm, child.mm()] {
            for (n, word) in [(0, 0), (1, WORD + 1), (2, WORD + 2)] {
                has(mm, n, word)?;
            }
        }
        end(stage, file, child)
    })
}

/// Two faults in one empty interval, for which another thread is installing a table.
pub(super) fn make<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 0, 3);
    file.map_interval();
    let child = Rc::new(Child::of(stage));
    let user = Rc::clone(&child);
    let bodies = vec![
        boxed(move || stores(stage.mm, 0, &[Ok(())])),
        boxed(move || stores(stage.mm, 1, &[Ok(())])),
        boxed(move || stores(user.mm(), 2, &[Ok(())])),
    ];
    tasks(bodies, move || end(stage, file, child))
}
