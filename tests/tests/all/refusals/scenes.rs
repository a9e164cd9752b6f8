//! What is done while memory runs out.

use super::{BASE, PAGE, World, page};
use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Errno, MapRequest, Misplaced, NodeMask, Place, Policy, PolicyMode, Populate, Prot,
    Remap, RemapRequest, Which,
};

/// What a table of leaf entries covers.
const TABLE: u64 = 512 * PAGE;

/// Where a table's reach begins, far from the window.
fn table(number: u64) -> VirtAddr {
    VirtAddr((1 << 31) + number * TABLE)
}

/// Whether a scene that fails has done nothing, or may have done part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failing {
    Whole,
    /// As in Linux, where it says so.
    Partly,
}

/// One thing to do to an address space.
#[derive(Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) set_up: fn(&World<'_>),
    pub(crate) act: fn(&World<'_>) -> Result<(), Errno>,
    pub(crate) failing: Failing,
    /// Bytes of the machine.
    pub(crate) ram: usize,
}

/// Of a machine without huge pages.
pub(crate) const RAM: usize = 8 << 20;

impl World<'_> {
    pub(super) fn map(&self, first: u64, pages: u64, prot: Prot) -> Result<(), Errno> {
        let place = Place::Fixed(page(first));
        self.mm.mmap(place, pages * PAGE, prot)?;
        Ok(())
    }

    fn protect(&self, first: u64, pages: u64) -> Result<(), Errno> {
        let length = pages * PAGE;
        Ok(self.mm.mprotect(page(first), length, Prot::READ)?)
    }

    pub(super) fn remap(&self, first: u64, pages: u64, to: u64, how: Remap) -> Result<(), Errno> {
        let request = RemapRequest {
            old: page(first),
            old_len: pages * PAGE,
            new_len: to * PAGE,
            how,
        };
        self.thread.mremap(&request)?;
        Ok(())
    }

    pub(super) fn store(&self, pages: core::ops::Range<u64>) -> Result<(), Errno> {
        for number in pages {
            let stored = self.thread.store(page(number), 100 + number);
            stored.map_err(|_| Errno::ENOMEM)?;
        }
        Ok(())
    }

    /// Mappings with holes between them, of every other page.
    pub(super) fn comb(&self, teeth: u64) {
        for tooth in 0..teeth {
            self.map(2 * tooth, 1, Prot::READ_WRITE).expect("memory");
        }
    }

    /// A mapping of 16 pages in the middle, with contents.
    pub(super) fn block(&self) {
        self.map(8, 16, Prot::READ_WRITE).expect("memory");
        self.store(8..24).expect("memory");
    }
}

const fn whole(
    name: &'static str,
    set_up: fn(&World<'_>),
    act: fn(&World<'_>) -> Result<(), Errno>,
) -> Scene {
    Scene {
        name,
        set_up,
        act,
        failing: Failing::Whole,
        ram: RAM,
    }
}

const fn partly(scene: Scene) -> Scene {
    Scene {
        failing: Failing::Partly,
        ..scene
    }
}

/// A policy, of the one node there is.
fn bound() -> Policy {
    Policy::new(PolicyMode::Bind, NodeMask::of(0))
}

/// All of them.
pub(crate) const SCENES: &[Scene] = &[
    whole("first mapping", |_| (), |w| w.map(0, 4, Prot::READ_WRITE)),
    whole(
        "fifteenth mapping",
        |w| w.comb(14),
        |w| w.map(31, 1, Prot::READ),
    ),
    whole("mapping over", |w| w.block(), |w| w.map(10, 4, Prot::READ)),
    whole(
        "mapping over many",
        |w| w.comb(15),
        |w| w.map(1, 24, Prot::READ),
    ),
    whole(
        "populate",
        |_| (),
        |w| {
            let request = MapRequest {
                populate: Populate::Now,
                ..MapRequest::new(Place::FixedNoReplace(page(14)), 4 * PAGE, Prot::READ_WRITE)
            };
            match w.thread.mmap(&request) {
                // Done before, but for its pages.
                Ok(_) | Err(minflt_mm::MmapError::Exists) => Ok(()),
                Err(error) => Err(error.into()),
            }
        },
    ),
    partly(whole(
        "first stores",
        |w| w.map(8, 16, Prot::READ_WRITE).expect("memory"),
        |w| w.store(8..24),
    )),
    partly(whole(
        "stores beside a neighbour",
        |w| {
            w.map(8, 8, Prot::READ_WRITE).expect("memory");
            w.store(8..10).expect("memory");
            w.map(16, 8, Prot::READ_WRITE).expect("memory");
        },
        |w| w.store(8..24),
    )),
    partly(whole(
        "stores to what is swapped out",
        |w| {
            w.block();
            let out = w.mm.madvise(page(8), 16 * PAGE, Advice::PageOut);
            out.expect("mapped");
        },
        |w| w.store(8..24),
    )),
    whole(
        "unmap the middle",
        |w| w.block(),
        |w| Ok(w.mm.munmap(page(12), 4 * PAGE)?),
    ),
    whole(
        "unmap many",
        |w| w.comb(15),
        |w| Ok(w.mm.munmap(page(1), 25 * PAGE)?),
    ),
    whole(
        "protect the middle",
        |w| w.block(),
        |w| Ok(w.mm.mprotect(page(12), 4 * PAGE, Prot::READ)?),
    ),
    partly(whole(
        "protect two",
        |w| {
            w.block();
            w.map(24, 4, Prot::READ).expect("memory");
        },
        |w| Ok(w.mm.mprotect(page(20), 6 * PAGE, Prot::NONE)?),
    )),
    whole(
        "protect like both neighbours",
        |w| {
            w.block();
            w.protect(12, 4).expect("memory");
        },
        |w| Ok(w.mm.mprotect(page(12), 4 * PAGE, Prot::READ_WRITE)?),
    ),
    whole(
        "protect like the one below",
        |w| {
            w.block();
            w.protect(8, 4).expect("memory");
        },
        |w| w.protect(12, 4),
    ),
    whole(
        "protect like the one above",
        |w| {
            w.block();
            w.protect(20, 4).expect("memory");
        },
        |w| w.protect(16, 4),
    ),
    whole(
        "protect what takes pages over",
        |w| {
            w.map(4, 4, Prot::READ).expect("memory");
            w.block();
        },
        |w| w.protect(8, 16),
    ),
    whole(
        "mapping between two",
        |w| {
            w.block();
            w.mm.munmap(page(12), 4 * PAGE).expect("memory");
        },
        |w| w.map(12, 4, Prot::READ_WRITE),
    ),
    whole(
        "mapping below one",
        |w| w.block(),
        |w| w.map(6, 2, Prot::READ_WRITE),
    ),
    whole(
        "mapping over the edges of two",
        |w| {
            w.block();
            w.protect(8, 8).expect("memory");
        },
        |w| w.map(14, 4, Prot::READ_WRITE),
    ),
    whole(
        "grow",
        |w| w.block(),
        |w| w.remap(8, 16, 18, Remap::InPlace),
    ),
    whole(
        "grow up to another",
        |w| {
            w.block();
            w.map(26, 2, Prot::READ_WRITE).expect("memory");
        },
        |w| w.remap(8, 16, 18, Remap::InPlace),
    ),
    whole(
        "move what has no pages to its neighbour",
        |w| {
            w.map(8, 4, Prot::READ_WRITE).expect("memory");
            w.map(20, 4, Prot::READ_WRITE).expect("memory");
        },
        |w| w.remap(20, 4, 4, Remap::Fixed(page(12))),
    ),
    whole(
        "move",
        |w| w.block(),
        |w| w.remap(12, 4, 6, Remap::Fixed(page(26))),
    ),
    whole(
        "move far",
        |w| w.block(),
        |w| w.remap(12, 4, 4, Remap::Fixed(VirtAddr(BASE << 4))),
    ),
    whole(
        "move the pages only",
        |w| w.block(),
        |w| w.remap(8, 16, 16, Remap::FixedDontUnmap(VirtAddr(BASE << 4))),
    ),
    partly(whole(
        "move over something",
        |w| {
            w.block();
            w.map(26, 4, Prot::READ).expect("memory");
        },
        |w| w.remap(12, 4, 4, Remap::Fixed(page(26))),
    )),
    whole(
        "move a table",
        |w| {
            let place = Place::Fixed(table(1));
            w.mm.mmap(place, TABLE, Prot::READ_WRITE).expect("memory");
            let stored = w.thread.store(table(1), 5);
            stored.expect("memory");
        },
        |w| {
            let request = RemapRequest {
                old: table(1),
                old_len: TABLE,
                new_len: TABLE,
                how: Remap::Fixed(table(700)),
            };
            w.thread.mremap(&request)?;
            assert_eq!(w.thread.load(table(700)), Ok(5));
            Ok(())
        },
    ),
    whole(
        "discard",
        |w| w.block(),
        |w| Ok(w.mm.madvise(page(10), 4 * PAGE, Advice::DontNeed)?),
    ),
    whole(
        "advise the middle",
        |w| w.block(),
        |w| Ok(w.mm.madvise(page(12), 4 * PAGE, Advice::DontFork)?),
    ),
    partly(whole(
        "populate by advice",
        |w| w.map(8, 16, Prot::READ_WRITE).expect("memory"),
        |w| {
            w.thread
                .madvise(page(12), 4 * PAGE, Advice::PopulateWrite)
                .map_err(Errno::from)
        },
    )),
    partly(whole(
        "lock the middle",
        |w| w.map(8, 16, Prot::READ_WRITE).expect("memory"),
        |w| Ok(w.thread.mlock(page(12), 4 * PAGE)?),
    )),
    whole(
        "unlock the middle",
        |w| {
            w.block();
            w.thread.mlock(page(8), 16 * PAGE).expect("memory");
        },
        |w| Ok(w.thread.mm().munlock(page(12), 4 * PAGE)?),
    ),
    whole(
        "bind the middle",
        |w| w.block(),
        |w| {
            let (at, len) = (page(12), 4 * PAGE);
            Ok(w.mm.mbind(at, len, bound(), Misplaced::Stay)?)
        },
    ),
    whole(
        "move the middle to the other node",
        |w| w.block(),
        |w| {
            let pages = (12..16).map(|n| (page(n), 1));
            let mut why = Ok(());
            let left = w.mm.move_pages(pages, Which::Own, |status| {
                why = why.and(status.map(drop));
            });
            left?;
            Ok(why?)
        },
    ),
    partly(whole(
        "stores with a policy",
        |w| {
            w.map(8, 16, Prot::READ_WRITE).expect("memory");
            let bound = w.mm.mbind(page(8), 16 * PAGE, bound(), Misplaced::Stay);
            bound.expect("memory");
        },
        |w| w.store(8..24),
    )),
    whole(
        "heap",
        |w| w.mm.set_start_brk(page(2)).expect("unused"),
        |w| {
            let end = page(5);
            let moved = w.mm.brk(Some(end)) == end;
            if moved { Ok(()) } else { Err(Errno::ENOMEM) }
        },
    ),
    whole(
        "heap grows",
        |w| {
            w.mm.set_start_brk(page(2)).expect("unused");
            assert_eq!(w.mm.brk(Some(page(5))), page(5));
            w.store(2..4).expect("memory");
        },
        |w| {
            let moved = w.mm.brk(Some(page(9))) == page(9);
            if moved { Ok(()) } else { Err(Errno::ENOMEM) }
        },
    ),
    whole(
        "fork",
        |w| w.block(),
        |w| {
            let child = w.mm.fork()?;
            let thread = child.thread();
            assert_eq!(thread.load(page(9)), Ok(109));
            Ok(())
        },
    ),
    whole(
        "fork a comb",
        |w| w.comb(15),
        |w| {
            w.mm.fork()?;
            Ok(())
        },
    ),
    partly(whole(
        "copies after a fork",
        |w| w.block(),
        |w| {
            let child = w.mm.fork()?;
            let thread = child.thread();
            for number in 8..24 {
                let stored = thread.store(page(number), number);
                stored.map_err(|_| Errno::ENOMEM)?;
            }
            drop(thread);
            drop(child);
            w.store(8..24)
        },
    )),
    whole(
        "another address space",
        |_| (),
        |w| {
            let other = w.sys.new_mm()?;
            drop(other);
            Ok(())
        },
    ),
];
