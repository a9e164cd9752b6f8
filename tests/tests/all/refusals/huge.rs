//! Huge pages, while memory runs out, or the pool.

use super::scenes::{Failing, Scene};
use super::{PAGE, World};
use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Errno, MapRequest, Place, Prot, Remap, RemapRequest, Sharing, ShmRequest, Signal,
};
use minflt_pgtable::Access;

const HUGE: u64 = 2 << 20;

/// A scene with room for a pool.
const fn scene(
    name: &'static str,
    failing: Failing,
    set_up: fn(&World<'_>),
    act: fn(&World<'_>) -> Result<(), Errno>,
) -> Scene {
    Scene {
        name,
        set_up,
        act,
        failing,
        ram: 24 << 20,
    }
}

const fn at(number: u64) -> VirtAddr {
    VirtAddr((4 << 30) + number * HUGE)
}

const fn request(first: u64, pages: u64) -> MapRequest {
    MapRequest::new(Place::Fixed(at(first)), pages * HUGE, Prot::READ_WRITE)
}

impl World<'_> {
    fn pool(&self) {
        assert_eq!(self.sys.resize_huge_pool(4), 4);
    }

    fn huge(&self, sharing: Sharing) -> Result<(), Errno> {
        self.mm.mmap_huge(&request(0, 3), sharing)?;
        Ok(())
    }

    fn pooled(&self, sharing: Sharing) {
        self.pool();
        self.huge(sharing).expect("memory");
    }

    /// A pool that has nothing, too, is no memory.
    fn touch(&self, number: u64) -> Result<(), Errno> {
        match self.thread.store(at(number), 1 + number) {
            Ok(()) => Ok(()),
            Err(Signal::OutOfMemory | Signal::Bus) => Err(Errno::ENOMEM),
            Err(signal) => panic!("{signal:?}"),
        }
    }
}

use Failing::{Partly, Whole};

/// All of them.
pub(crate) const SCENES: &[Scene] = &[
    scene(
        "huge pages, private",
        Whole,
        |w| w.pool(),
        |w| w.huge(Sharing::Private),
    ),
    scene(
        "huge pages, shared",
        Whole,
        |w| w.pool(),
        |w| w.huge(Sharing::Shared),
    ),
    Scene {
        ram: 48 << 20,
        ..scene(
            "a huge page moved to the other node",
            Whole,
            |w| {
                w.pooled(Sharing::Private);
                w.touch(1).expect("memory");
            },
            |w| Ok(w.mm.move_page(at(1), 1)?),
        )
    },
    scene(
        "a segment of huge pages",
        Whole,
        |w| w.pool(),
        |w| {
            let made = w.mm.shmget(&ShmRequest::private_huge(2 * HUGE))?;
            w.sys.shmctl_remove(made).expect("there");
            Ok(())
        },
    ),
    scene(
        "a store to a private huge page",
        Partly,
        |w| w.pooled(Sharing::Private),
        |w| w.touch(1),
    ),
    scene(
        "a store to a shared huge page",
        Partly,
        |w| w.pooled(Sharing::Shared),
        |w| w.touch(1),
    ),
    scene(
        "munmap of a huge page in the middle",
        Partly,
        |w| {
            w.pooled(Sharing::Private);
            w.touch(1).expect("memory");
        },
        |w| Ok(w.mm.munmap(at(1), HUGE)?),
    ),
    scene(
        "a hole of huge pages",
        Partly,
        |w| {
            w.pooled(Sharing::Shared);
            w.touch(1).expect("memory");
        },
        |w| Ok(w.mm.madvise(at(1), HUGE, Advice::Remove)?),
    ),
    scene(
        "a private huge page thrown away",
        Partly,
        |w| {
            w.pooled(Sharing::Private);
            (0..3).for_each(|number| w.touch(number).expect("memory"));
        },
        |w| Ok(w.mm.madvise(at(1), HUGE, Advice::DontNeed)?),
    ),
    scene(
        "fork with huge pages",
        Partly,
        |w| {
            w.pooled(Sharing::Private);
            w.touch(1).expect("memory");
        },
        |w| {
            let child = w.mm.fork()?;
            let found = child.thread().load(at(1));
            assert_eq!(found, Ok(2));
            Ok(())
        },
    ),
    scene(
        "huge pages in place of small ones",
        Whole,
        |w| {
            w.pool();
            // The parts at both ends stay.
            let from = VirtAddr(at(0).0 - PAGE);
            let mapped =
                w.mm.mmap(Place::Fixed(from), 3 * HUGE + 2 * PAGE, Prot::READ_WRITE);
            mapped.expect("memory");
            (0..3).for_each(|number| w.touch(number).expect("memory"));
        },
        |w| w.huge(Sharing::Private),
    ),
    scene(
        "fork with a huge page that is pinned",
        Whole,
        |w| {
            w.pooled(Sharing::Private);
            w.touch(1).expect("memory");
        },
        |w| {
            let pin = w.mm.pin(at(1), Access::Write)?;
            let child = w.mm.fork()?;
            assert_eq!(child.thread().load(at(1)), Ok(2));
            assert_eq!(pin.load(0), Ok(2));
            Ok(())
        },
    ),
    scene(
        "mremap of huge pages",
        Partly,
        |w| {
            w.pooled(Sharing::Private);
            w.touch(1).expect("memory");
        },
        |w| {
            let request = RemapRequest {
                old: at(1),
                old_len: HUGE,
                new_len: HUGE,
                how: Remap::Fixed(at(600)),
            };
            if w.thread.load(at(600)) == Ok(2) {
                return Ok(());
            }
            w.thread.mremap(&request)?;
            Ok(())
        },
    ),
];
