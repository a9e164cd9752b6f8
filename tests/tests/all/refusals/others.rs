//! Stacks, pages of another address space, pins, userfaultfd, pages that move or are swapped out,
//! while memory runs out.

use super::scenes::{Failing, RAM, Scene};
use super::{PAGE, World, page};
use minflt_addr::Pfn;
use minflt_mm::{
    Advice, Errno, Event, Force, Gfp, Growth, LockAll, MapRequest, Misplaced, MovePageError,
    NodeMask, NumaKnobs, Place, Policy, PolicyMode, Prot, Refuse, Remap, UffdMode, Wake, Which,
    WriteProtected,
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
        ram: RAM,
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

/// Pages 8 to 24, in slots.
fn swapped_out(w: &World<'_>) {
    w.block();
    let out = w.mm.madvise(page(8), 16 * PAGE, Advice::PageOut);
    out.expect("mapped");
}

/// Every page that somebody maps goes to the other node, found by its frame.
fn move_frames(w: &World<'_>) -> Result<(), Errno> {
    // This machine numbers its frames from 0.
    for pfn in 0..w.sys.total_frames() {
        match w.sys.move_frame(Pfn(pfn), 1) {
            Ok(()) | Err(MovePageError::NotThere) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A timer's scan makes all 16 pages fault.
fn scan(w: &World<'_>) {
    let updates = || w.sys.count_of(Event::NumaPteUpdates);
    let before = updates();
    // Later than any scan before this one.
    let mut now_ns = (before + 1) << 46;
    while updates() < before + 16 {
        now_ns += 1 << 40;
        w.thread.tick(now_ns);
    }
}

/// Pages that are on the other node, and are used from here twice running, come here if there is
/// memory; there is no call that could fail.
pub(crate) const FOLLOW: Scene = partly(
    "pages follow their user",
    |w| {
        w.sys.set_numa_knobs(NumaKnobs {
            scan_delay_ns: 0,
            scan_period_min_ns: 1,
            scan_period_max_ns: 1,
            rate_bytes: u64::MAX,
            ..NumaKnobs::default()
        });
        w.block();
        for number in 8..24 {
            w.mm.move_page(page(number), 1).expect("memory");
        }
    },
    |w| {
        for _ in 0..2 {
            scan(w);
            for number in 8..24 {
                assert_eq!(w.thread.load(page(number)), Ok(100 + number));
            }
        }
        let moved = w.sys.count_of(Event::NumaPagesMigrated);
        assert!(moved == 16 || w.sys.refused_allocation().is_some());
        Ok(())
    },
);

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
        "lock all",
        |w| w.comb(15),
        |w| Ok(w.thread.mlockall(LockAll::CURRENT)?),
    ),
    partly(
        "bind the middle and move it",
        |w| w.block(),
        |w| {
            let there = Policy::new(PolicyMode::Bind, NodeMask::of(1));
            let which = Misplaced::Move(Which::Own);
            Ok(w.mm.mbind(page(12), 4 * PAGE, there, which)?)
        },
    ),
    partly(
        "frames for the kernel",
        |_| {},
        |w| {
            let (page, run) = (
                w.sys.alloc_pages(0, Gfp::Kernel)?,
                w.sys.alloc_pages(3, Gfp::Kernel)?,
            );
            drop((page, run));
            Ok(())
        },
    ),
    partly("move frames", |w| w.block(), move_frames),
    partly("fork what is swapped out", swapped_out, |w| {
        let child = w.mm.fork()?;
        let loaded = child.thread().load(page(9));
        assert_eq!(loaded.map_err(|_| Errno::ENOMEM)?, 109);
        Ok(())
    }),
    partly("move what is swapped out", swapped_out, |w| {
        w.remap(12, 4, 4, Remap::Fixed(page(26)))
    }),
    partly(
        "write from outside to what is swapped out",
        swapped_out,
        |w| {
            let bytes = [1; 3 * PAGE as usize];
            let done = w.mm.remote_write(page(9), &bytes, Force::No)?;
            all(done, bytes.len())
        },
    ),
    partly("pin what is swapped out", swapped_out, |w| {
        let pin = w.mm.pin(page(9), Access::Write)?;
        pin.store(0, 7).expect("writable");
        Ok(())
    }),
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
