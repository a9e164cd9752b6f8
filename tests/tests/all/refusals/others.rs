//! Stacks, pages of another address space, pins, userfaultfd, while memory runs out.

use super::scenes::{Failing, Scene};
use super::{PAGE, World, page};
use minflt_mm::{
    Advice, Errno, Force, Growth, MapRequest, Place, Prot, Refuse, UffdMode, Wake, WriteProtected,
};
use minflt_pgtable::Access;

const fn partly(
    name: &'static str,
    set_up: fn(&World<'_>),
    act: fn(&World<'_>) -> Result<(), Errno>,
) -> Scene {
    Scene {
        name,
        set_up,
        act,
        failing: Failing::Partly,
    }
}

/// Pages 8 to 16, as they are stored to if asked.
fn block(w: &World<'_>, stored: bool) {
    let mapped = w.mm.mmap(Place::Fixed(page(8)), 8 * PAGE, Prot::READ_WRITE);
    assert_eq!(mapped, Ok(page(8)));
    for number in (8..16).filter(|_| stored) {
        w.thread.store(page(number), number).expect("memory");
    }
}

/// A stack that may grow to page 20, so that whoever looks into each page does not make it longer.
fn stack(w: &World<'_>) {
    w.mm.set_limit_stack(5 * PAGE);
    let request = MapRequest {
        growth: Growth::Down,
        ..MapRequest::new(Place::Fixed(page(24)), PAGE, Prot::READ_WRITE)
    };
    assert_eq!(w.thread.mmap(&request), Ok(page(24)));
}

/// A transfer of all bytes, or the lack of memory that ended it.
fn all(done: usize, len: usize) -> Result<(), Errno> {
    if done == len {
        Ok(())
    } else {
        Err(Errno::ENOMEM)
    }
}

/// Fills holes, which are there whatever was tried before.
fn watch(w: &World<'_>) -> Result<(), Errno> {
    let discarded = w.mm.madvise(page(10), 4 * PAGE, Advice::DontNeed);
    assert_eq!(discarded, Ok(()));
    let uffd = w.mm.userfaultfd()?;
    uffd.register(page(10), 4 * PAGE, UffdMode::Both)?;
    let bytes = [7; 2 * PAGE as usize];
    uffd.copy(page(10), &bytes, WriteProtected::No, Wake::Yes)
        .map_err(|_| Errno::ENOMEM)?;
    uffd.zeropage(page(12), PAGE, Wake::Yes)
        .map_err(|_| Errno::ENOMEM)?;
    // What has no memory to end says so here; dropping it could not.
    Ok(uffd.unregister(page(10), 4 * PAGE)?)
}

/// All of them.
pub(crate) const SCENES: &[Scene] = &[
    partly("stack grows", stack, |w| {
        let stored = w.thread.store(page(20), 20);
        stored.map_err(|_| Errno::ENOMEM)
    }),
    partly(
        "write from outside",
        |w| block(w, false),
        |w| {
            let bytes = [1; 3 * PAGE as usize];
            let done = w.mm.remote_write(page(9), &bytes, Force::No)?;
            all(done, bytes.len())
        },
    ),
    partly(
        "write by force",
        |w| {
            block(w, true);
            let child = w.mm.fork().expect("memory");
            drop(child);
            w.mm.mprotect(page(8), 8 * PAGE, Prot::READ)
                .expect("mapped");
        },
        |w| {
            let child = w.mm.fork()?;
            let done = w.mm.remote_write(page(9), &[1], Force::Yes);
            drop(child);
            all(done.map_err(|_| Errno::ENOMEM)?, 1)
        },
    ),
    partly(
        "fork with a pin",
        |w| block(w, true),
        |w| {
            let pin = w.mm.pin(page(9), Access::Write)?;
            let child = w.mm.fork()?;
            assert_eq!(child.thread().load(page(9)), Ok(9));
            drop((pin, child));
            Ok(())
        },
    ),
    partly("userfaultfd", |w| block(w, false), watch),
    partly(
        "a handler that is gone",
        |w| {
            block(w, false);
            let uffd = w.mm.userfaultfd().expect("memory");
            uffd.register(page(8), 8 * PAGE, UffdMode::Missing)
                .expect("mapped");
            // Without memory its mapping goes on naming it.
            w.sys.refuse_allocations(Refuse::From(1));
            drop(uffd);
            w.sys.refuse_allocations(Refuse::Nothing);
        },
        |w| {
            let stored = w.thread.store(page(9), 109);
            stored.map_err(|_| Errno::ENOMEM)?;
            watch(w)
        },
    ),
];
