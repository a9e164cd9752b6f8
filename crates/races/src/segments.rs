//! What happens in the races about segments of shared memory.

use super::hugetlb::{at, bytes, stores};
use super::scenes::{boxed, tasks};
use super::stage::{Checked, Script, Stage};
use core::cell::Cell;
use minflt_mm::{Errno, Prot, ShmAttach, ShmPlace, ShmRequest};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// A segment is removed while another thread attaches it, which either finds none, or has it until
/// it detaches it.
pub(super) fn attach_remove<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let made = stage.mm.shmget(&ShmRequest::private(2 * P::page()));
    let id = made.unwrap_or_else(|error| panic!("the stage is large enough: {error:?}"));
    let came: Rc<Cell<Result<(), &str>>> = Rc::new(Cell::new(Ok(())));
    let said = Rc::clone(&came);
    let bodies = vec![
        boxed(move || {
            let at = stage.page(0);
            let how = ShmAttach::new(ShmPlace::Free(at));
            match stage.mm.shmat(id, &how).map_err(Errno::from) {
                Ok(_) => {}
                Err(Errno::EINVAL) => return,
                Err(_) => return said.set(Err("segment: it is there, and cannot be attached")),
            }
            if stage.thread().store(at, 7).is_err() {
                said.set(Err("segment: attached, and not to be stored to"));
            }
            if stage.sys.shmctl_stat(id).map(|found| found.attached) != Ok(1) {
                said.set(Err("segment: attached, and not counted"));
            }
            if stage.mm.shmdt(at).is_err() {
                said.set(Err("segment: attached, and not to be detached"));
            }
        }),
        boxed(move || {
            if stage.sys.shmctl_remove(id).is_err() {
                Checked::<P>::violation(format_args!(
                    "segment: it was there, and cannot be removed"
                ));
            }
        }),
    ];
    tasks(bodies, move || {
        came.get()?;
        if stage.sys.shmctl_stat(id).is_ok() {
            return Err("segment: removed, attached nowhere, and there".to_owned());
        }
        Ok(())
    })
}

/// Half of an attached segment of huge pages is protected, which splits the mapping, and then
/// unmapped, beside stores to the other half.
pub(super) fn attach_split<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    assert_eq!(
        stage.sys.resize_huge_pool(2),
        2,
        "the stage is large enough"
    );
    stage.sys.clear_free_frames();
    let made = stage.mm.shmget(&ShmRequest::private_huge(2 * bytes::<P>()));
    let id = made.unwrap_or_else(|error| panic!("the stage is large enough: {error:?}"));
    let how = ShmAttach::new(ShmPlace::Free(at::<P>(0)));
    let attached = stage.mm.shmat(id, &how);
    assert!(attached.is_ok(), "the stage is free: {attached:?}");
    stores(stage.mm, 0, &[Ok(())]);
    let bodies = vec![
        boxed(move || {
            let done = stage.mm.mprotect(at::<P>(1), bytes::<P>(), Prot::READ);
            assert!(done.is_ok(), "mapped");
            let done = stage.mm.munmap(at::<P>(1), bytes::<P>());
            assert!(done.is_ok(), "mapped");
        }),
        boxed(move || {
            for _ in 0..2 {
                stores(stage.mm, 0, &[Ok(())]);
            }
        }),
    ];
    tasks(bodies, move || {
        // Before what is left of it goes.
        stage
            .sys
            .check_ledger(&[stage.mm])
            .map_err(|error| format!("ledger: {error}"))?;
        let detached = stage.mm.shmdt(at::<P>(0));
        let removed = stage.sys.shmctl_remove(id);
        match (detached, removed) {
            (Ok(()), Ok(())) => Ok(()),
            said => Err(format!("segment: to be detached and removed: {said:?}")),
        }
    })
}
