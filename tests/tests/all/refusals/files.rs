//! Files, while memory runs out.

use super::scenes::{Failing, RAM, Scene};
use super::{PAGE, World, page};
use minflt_mm::{
    Advice, Errno, Force, MapRequest, Place, Prot, Remap, RemapRequest, Sharing, ShmAttach,
    ShmCreate, ShmId, ShmKey, ShmPlace, ShmRequest, Signal,
};

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
        ram: RAM,
    }
}

impl World<'_> {
    /// Maps the pages of the file in memory from page `first` on.
    fn map_file(&self, first: u64, pages: u64, sharing: Sharing) -> Result<(), Errno> {
        let request = MapRequest::new(Place::Fixed(page(first)), pages * PAGE, Prot::READ_WRITE);
        self.mm.mmap_file(&request, self.file, 0, sharing)?;
        Ok(())
    }

    fn file_block(&self, sharing: Sharing) {
        self.map_file(8, 16, sharing).expect("memory");
    }

    fn remap_file(&self, old_len: u64, to: u64) -> Result<(), Errno> {
        let request = RemapRequest {
            old: page(8),
            old_len: old_len * PAGE,
            new_len: 4 * PAGE,
            how: Remap::Fixed(page(to)),
        };
        self.thread.mremap(&request)?;
        Ok(())
    }
}

impl World<'_> {
    /// A segment of 8 pages, the same each time.
    fn segment(&self) -> Result<ShmId, Errno> {
        Ok(self.mm.shmget(&ShmRequest {
            key: ShmKey(1),
            create: ShmCreate::IfMissing,
            ..ShmRequest::private(8 * PAGE)
        })?)
    }
}

/// What a signal for lack of memory is.
fn done<T>(result: Result<T, Signal>) -> Result<(), Errno> {
    match result {
        Ok(_) => Ok(()),
        Err(Signal::OutOfMemory) => Err(Errno::ENOMEM),
        Err(signal) => panic!("{signal:?}"),
    }
}

use Failing::{Partly, Whole};

/// All of them. Of the file in memory even pages are there, of the one on the disk none.
pub(crate) const SCENES: &[Scene] = &[
    scene(
        "new file",
        Whole,
        |_| (),
        |w| {
            let file = w.sys.new_file(PAGE)?;
            drop(file);
            Ok(())
        },
    ),
    scene(
        "first file mapping",
        Whole,
        |_| (),
        |w| w.map_file(4, 8, Sharing::Shared),
    ),
    scene(
        "file mapped over",
        Whole,
        |w| w.file_block(Sharing::Private),
        |w| w.map_file(10, 4, Sharing::Shared),
    ),
    // Pages that were made for a fault stay the file's when the fault then fails.
    scene(
        "loads of a file",
        Partly,
        |w| w.file_block(Sharing::Shared),
        |w| (8..24).try_for_each(|number| done(w.thread.load(page(number)))),
    ),
    scene(
        "stores to a file",
        Partly,
        |w| w.file_block(Sharing::Shared),
        |w| (8..24).try_for_each(|number| done(w.thread.store(page(number), number))),
    ),
    scene(
        "copies of a file",
        Partly,
        |w| w.file_block(Sharing::Private),
        |w| (8..24).try_for_each(|number| done(w.thread.store(page(number), number))),
    ),
    scene(
        "pages far apart",
        Partly,
        |_| (),
        |w| {
            // Each further from the beginning than the index reached before.
            for shift in [1, 7, 13, 19] {
                w.file.write_word(PAGE << shift, shift)?;
            }
            Ok(w.file.truncate(16 * PAGE)?)
        },
    ),
    scene(
        "memory for a file",
        Partly,
        |_| (),
        |w| Ok(w.file.allocate(0, 16 * PAGE)?),
    ),
    scene(
        "read in",
        Partly,
        |_| (),
        |w| {
            let request = MapRequest::new(Place::Fixed(page(8)), 8 * PAGE, Prot::READ);
            w.mm.mmap_file(&request, w.disk, 0, Sharing::Private)?;
            (8..16).try_for_each(|number| done(w.thread.load(page(number))))
        },
    ),
    scene(
        "written and truncated",
        Partly,
        |_| (),
        |w| {
            for number in 0..4 {
                w.disk.write_word(number * PAGE, 100 + number)?;
            }
            w.disk.sync()?;
            w.disk.punch_hole(PAGE, 8)?;
            w.disk.truncate(16 * PAGE - 8)?;
            w.disk.truncate(16 * PAGE)?;
            Ok(w.disk.write_word(PAGE, 101)?)
        },
    ),
    scene(
        "unmap the middle of a file",
        Whole,
        |w| w.file_block(Sharing::Shared),
        |w| Ok(w.mm.munmap(page(12), 4 * PAGE)?),
    ),
    scene(
        "protect the middle of a file",
        Whole,
        |w| w.file_block(Sharing::Private),
        |w| Ok(w.mm.mprotect(page(12), 4 * PAGE, Prot::READ)?),
    ),
    scene(
        "protect as it was",
        Whole,
        |w| {
            w.file_block(Sharing::Private);
            w.mm.mprotect(page(12), 4 * PAGE, Prot::READ)
                .expect("memory");
        },
        |w| Ok(w.mm.mprotect(page(12), 4 * PAGE, Prot::READ_WRITE)?),
    ),
    scene(
        "move a part of a file",
        Partly,
        |w| w.file_block(Sharing::Shared),
        |w| match w.thread.load(page(8)) {
            // Done before.
            Err(Signal::MapErr) => Ok(()),
            found => done(found).and_then(|()| w.remap_file(4, 26)),
        },
    ),
    scene(
        "a second mapping of a file",
        Whole,
        |w| w.file_block(Sharing::Shared),
        |w| w.remap_file(0, 26),
    ),
    scene(
        "fork with files",
        Partly,
        |w| {
            w.map_file(8, 8, Sharing::Shared).expect("memory");
            w.map_file(20, 8, Sharing::Private).expect("memory");
            done(w.thread.store(page(20), 1)).expect("memory");
        },
        |w| {
            let child = w.mm.fork()?;
            done(child.thread().store(page(8), 108))?;
            done(child.thread().store(page(20), 2))?;
            drop(child);
            Ok(())
        },
    ),
    scene(
        "write by force to a file",
        Partly,
        |w| {
            w.file_block(Sharing::Private);
            w.mm.mprotect(page(8), 16 * PAGE, Prot::READ)
                .expect("memory");
        },
        |w| {
            for number in [8, 9] {
                let done = w.mm.remote_write(page(number), &[1], Force::Yes);
                done.map_err(|_| Errno::ENOMEM)?;
            }
            Ok(())
        },
    ),
    scene(
        "populate a file",
        Partly,
        |w| w.file_block(Sharing::Shared),
        |w| {
            let advice = Advice::PopulateWrite;
            Ok(w.mm.madvise(page(8), 16 * PAGE, advice)?)
        },
    ),
    scene(
        "a hole in a file",
        Partly,
        |w| w.file_block(Sharing::Shared),
        |w| {
            for number in [8, 9, 10] {
                done(w.thread.store(page(number), number))?;
            }
            Ok(w.mm.madvise(page(9), PAGE, Advice::Remove)?)
        },
    ),
    scene(
        "a segment comes and goes",
        Whole,
        |_| (),
        |w| {
            let id = w.mm.shmget(&ShmRequest::private(4 * PAGE))?;
            Ok(w.sys.shmctl_remove(id)?)
        },
    ),
    scene(
        "attach a segment",
        Whole,
        |w| assert!(w.segment().is_ok()),
        |w| {
            let place = ShmPlace::Over(page(8));
            w.mm.shmat(w.segment()?, &ShmAttach::new(place))?;
            Ok(())
        },
    ),
    scene(
        "detach what is in parts",
        Partly,
        |w| {
            let id = w.segment().expect("memory");
            let place = ShmPlace::Over(page(8));
            assert_eq!(w.mm.shmat(id, &ShmAttach::new(place)), Ok(page(8)));
            for number in [9, 11, 13] {
                w.mm.mprotect(page(number), PAGE, Prot::READ)
                    .expect("memory");
            }
            assert_eq!(w.sys.shmctl_remove(id), Ok(()));
        },
        |w| Ok(w.mm.shmdt(page(8))?),
    ),
];
