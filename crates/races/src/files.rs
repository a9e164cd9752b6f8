//! What happens in the races about files: faults that map what is around them, truncation, writing
//! back.

use super::disk::Disk;
use super::scenes::{boxed, expect, tasks};
use super::stage::{Checked, Script, Stage};
use core::cell::Cell;
use core::mem::ManuallyDrop;
use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, FileHandle, Force, MapRequest, Place, Prot, Remap, RemapRequest, Sharing, Signal,
};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// Pages of a scene's file; page `n` begins with [`word`].
pub(super) const PAGES: u64 = 4;
/// Where a private mapping of the same file is, and where pages are moved to.
const THERE: u64 = 8;

/// A handle that is dropped only when the scene ended well: after a failure locks may be held for
/// ever.
pub(super) struct File<'s, P: Paging>(ManuallyDrop<FileHandle<'s, Checked<P>>>);

/// What page `n` of a file begins with.
pub(super) const fn word(n: u64) -> u64 {
    100 + n
}

impl<'s, P: Paging> File<'s, P> {
    fn of(handle: Result<FileHandle<'s, Checked<P>>, minflt_mm::NoMemory>) -> Rc<Self> {
        match handle {
            Ok(handle) => Rc::new(Self(ManuallyDrop::new(handle))),
            Err(error) => panic!("the stage is large enough: {error:?}"),
        }
    }

    /// Memory only, with all pages there.
    pub(super) fn in_memory(stage: Stage<'s, P>) -> Rc<Self> {
        Self::of_pages(stage, PAGES)
    }

    /// The same of so many pages.
    pub(super) fn of_pages(stage: Stage<'s, P>, pages: u64) -> Rc<Self> {
        let file = Self::of(stage.sys.new_file(pages * P::page()));
        (0..pages).for_each(|n| file.make(n));
        file
    }

    /// On a disk, with no page there.
    pub(super) fn on(stage: Stage<'s, P>, disk: &'static Disk) -> Rc<Self> {
        Self::of(stage.sys.open_file(disk, PAGES * P::page()))
    }

    /// Maps the first pages of it at stage page `at`.
    pub(super) fn map(
        &self,
        stage: Stage<'_, P>,
        at: u64,
        pages: u64,
        prot: Prot,
        sharing: Sharing,
    ) {
        let place = Place::FixedNoReplace(stage.page(at));
        let request = MapRequest::new(place, pages * P::page(), prot);
        let mapped = stage.mm.mmap_file(&request, &self.0, 0, sharing);
        assert!(mapped.is_ok(), "the stage is free and small: {mapped:?}");
    }

    /// Makes page `n` hold a word, which takes a frame for it.
    pub(super) fn make(&self, n: u64) {
        let made = self.0.write_word(n * P::page(), word(n));
        assert!(made.is_ok(), "there are frames for it: {made:?}");
    }

    /// Reads its first pages in, as if by a call.
    pub(super) fn read(&self, pages: u64) {
        for n in 0..pages {
            assert_eq!(self.0.read_word(n * P::page()), Ok(Some(word(n))));
        }
    }

    /// Pages of it that are cached.
    pub(super) fn cached(&self) -> u64 {
        self.0.cached_pages()
    }

    /// Writes it back.
    pub(super) fn write_back(&self) {
        assert_eq!(self.0.sync(), Ok(()));
    }

    /// Makes a hole of page `n`.
    pub(super) fn punch(&self, n: u64) {
        assert!(
            self.0.punch_hole(n * P::page(), P::page()).is_ok(),
            "a small file"
        );
    }

    /// The last of it: nobody else has it any more.
    pub(super) fn end(self: Rc<Self>) -> Result<(), String> {
        let file = Rc::try_unwrap(self).map_err(|_| "the file is in use still")?;
        drop(ManuallyDrop::into_inner(file.0));
        Ok(())
    }
}

/// Touches the first page and throws all entries away again: their tables stay.
fn warm<P: Paging>(stage: Stage<'_, P>, at: u64) {
    let found = stage.thread().load(stage.page(at));
    let len = PAGES * P::page();
    let discarded = stage.mm.madvise(stage.page(at), len, Advice::DontNeed);
    assert!(found.is_ok() && discarded.is_ok(), "alone, and mapped");
}

/// A load of page `n` finds one of these.
pub(super) fn finds<P: Paging>(stage: Stage<'_, P>, n: u64, allowed: &[Result<u64, Signal>]) {
    let found = stage.thread().load(stage.page(n));
    if !allowed.contains(&found) {
        Checked::<P>::violation(format_args!(
            "contents: page {n} holds {found:?}, none of {allowed:?}"
        ));
    }
}

/// When the tasks have ended: what a load of page `n` finds.
fn left<P: Paging>(
    stage: Stage<'_, P>,
    n: u64,
    expected: Result<u64, Signal>,
) -> Result<(), String> {
    let found = stage.thread().load(stage.page(n));
    if found == expected {
        return Ok(());
    }
    Err(format!(
        "contents: page {n} holds {found:?}, not {expected:?}"
    ))
}

/// P20: truncation beside loads of pages that go, each of which maps what is around it, and beside
/// a store that makes a copy of one.
pub(super) fn around_truncate<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::in_memory(stage);
    file.map(stage, 0, PAGES, Prot::READ_WRITE, Sharing::Shared);
    file.map(stage, THERE, PAGES, Prot::READ_WRITE, Sharing::Private);
    warm(stage, 0);
    warm(stage, THERE);
    let cut = Rc::clone(&file);
    let bodies = vec![
        boxed(move || {
            for n in [3, 2] {
                finds(stage, n, &[Ok(word(n)), Err(Signal::Bus)]);
            }
        }),
        boxed(move || {
            assert!(cut.0.truncate(P::page()).is_ok(), "a small file");
            for n in [1, 2, 3, THERE + 2] {
                expect(stage, &stage.thread(), n, Err(Signal::Bus));
            }
        }),
        boxed(move || {
            let stored = stage.thread().store(stage.page(THERE + 2), 7);
            assert!(matches!(stored, Ok(()) | Err(Signal::Bus)), "{stored:?}");
        }),
    ];
    tasks(bodies, move || {
        for n in 1..PAGES {
            for n in [n, THERE + n] {
                left(stage, n, Err(Signal::Bus))?;
            }
        }
        file.end()
    })
}

/// P20: truncation beside a store that makes a page which is not there yet.
pub(super) fn make_truncate<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::of(stage.sys.new_file(PAGES * P::page()));
    file.map(stage, 0, PAGES, Prot::READ_WRITE, Sharing::Shared);
    warm(stage, 0);
    let cut = Rc::clone(&file);
    let bodies = vec![
        boxed(move || {
            let stored = stage.thread().store(stage.page(2), 7);
            assert!(matches!(stored, Ok(()) | Err(Signal::Bus)), "{stored:?}");
        }),
        boxed(move || {
            assert!(cut.0.truncate(P::page()).is_ok(), "a small file");
            expect(stage, &stage.thread(), 2, Err(Signal::Bus));
        }),
    ];
    tasks(bodies, move || {
        left(stage, 2, Err(Signal::Bus))?;
        let cached = file.0.cached_pages();
        if cached != 1 {
            return Err(format!("truncation: {cached} pages are cached of one"));
        }
        file.end()
    })
}

/// P21: a load that maps what is around it, beside a hole that is made there, whose frame becomes a
/// page of another file.
pub(super) fn around_reuse<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let (file, other) = (
        File::in_memory(stage),
        File::of(stage.sys.new_file(P::page())),
    );
    file.map(stage, 0, PAGES, Prot::READ, Sharing::Shared);
    warm(stage, 0);
    let (cut, next) = (Rc::clone(&file), Rc::clone(&other));
    let bodies = vec![
        boxed(move || {
            finds(stage, 2, &[Ok(word(2)), Ok(0)]);
            finds(stage, 1, &[Ok(word(1))]);
            finds(stage, 2, &[Ok(word(2)), Ok(0)]);
        }),
        boxed(move || {
            let cut = cut.0.punch_hole(2 * P::page(), P::page());
            let written = next.0.write_word(0, 777);
            assert!(cut.is_ok() && written.is_ok(), "{cut:?}, {written:?}");
        }),
    ];
    tasks(bodies, move || {
        left(stage, 2, Ok(0))?;
        other.end()?;
        file.end()
    })
}

/// P22: loads that map what is around them, beside a call that takes the end of their mapping out.
pub(super) fn around_edges<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::in_memory(stage);
    file.map(stage, 1, 3, Prot::READ, Sharing::Shared);
    let bodies = vec![
        boxed(move || {
            for n in [2, 1] {
                finds(stage, n, &[Ok(word(n - 1))]);
            }
        }),
        boxed(move || {
            stage.unmap(3, 1);
            expect(stage, &stage.thread(), 3, Err(Signal::MapErr));
        }),
    ];
    tasks(bodies, move || {
        for n in [0, 3, 4] {
            left(stage, n, Err(Signal::MapErr))?;
        }
        file.end()
    })
}

/// P23: a load whose neighbours are one that is being read in, which fails, and one whose memory
/// breaks.
pub(super) fn around_unready<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let disk = Disk::fresh();
    let file = File::on(stage, disk);
    file.map(stage, 0, PAGES, Prot::READ, Sharing::Private);
    for n in [3, 1, 0] {
        assert_eq!(file.0.read_word(n * P::page()), Ok(Some(word(n))));
    }
    disk.fail(2);
    let broken = Rc::clone(&file);
    let bodies = vec![
        boxed(move || expect(stage, &stage.thread(), 2, Err(Signal::Bus))),
        boxed(move || {
            for n in [1, 3] {
                expect(stage, &stage.thread(), n, Ok(word(n)));
            }
            expect(stage, &stage.thread(), 2, Err(Signal::Bus));
        }),
        boxed(move || {
            assert!(broken.0.poison(0), "it is cached");
            expect(stage, &stage.thread(), 0, Err(Signal::Bus));
            finds(stage, 1, &[Ok(word(1))]);
            expect(stage, &stage.thread(), 0, Err(Signal::Bus));
        }),
    ];
    tasks(bodies, move || file.end())
}

/// P24: a load that maps what is around it, beside a store that makes a copy there.
pub(super) fn around_copy<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::in_memory(stage);
    file.map(stage, 0, PAGES, Prot::READ_WRITE, Sharing::Private);
    warm(stage, 0);
    let bodies = vec![
        boxed(move || {
            for n in [1, 3] {
                expect(stage, &stage.thread(), n, Ok(word(n)));
            }
        }),
        boxed(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(2), 7);
            expect(stage, &thread, 2, stored.map(|()| 7));
        }),
    ];
    tasks(bodies, move || {
        left(stage, 2, Ok(7))?;
        file.end()
    })
}

/// P40: pages of a file are moved, and truncated, beside somebody who stores to the old place all
/// the time.
pub(super) fn remap_truncate<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::in_memory(stage);
    file.map(stage, 0, 2, Prot::READ_WRITE, Sharing::Shared);
    for n in 0..2 {
        assert!(stage.thread().store(stage.page(n), 5).is_ok(), "alone");
    }
    let cut = Rc::clone(&file);
    let bodies = vec![
        boxed(move || {
            let moved = stage.thread().mremap(&RemapRequest {
                old: stage.page(0),
                old_len: 2 * P::page(),
                new_len: 2 * P::page(),
                how: Remap::FixedDontUnmap(stage.page(THERE)),
            });
            assert_eq!(moved, Ok(stage.page(THERE)));
        }),
        boxed(move || assert!(cut.0.truncate(0).is_ok(), "a small file")),
        boxed(move || {
            let thread = stage.thread();
            for round in 0..4 {
                let stored = thread.store(stage.page(round % 2), 7);
                let fine = matches!(stored, Ok(()) | Err(Signal::Bus | Signal::MapErr));
                assert!(fine, "{stored:?}");
            }
        }),
    ];
    tasks(bodies, move || file.end())
}

/// P42: munmap of pages of a file that is truncated, beside somebody who still buffers them.
pub(super) fn unmap_truncate<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::in_memory(stage);
    file.map(stage, 0, 4, Prot::READ_WRITE, Sharing::Shared);
    let cut = Rc::clone(&file);
    let bodies = vec![
        boxed(move || {
            stage.unmap(0, 4);
        }),
        boxed(move || assert!(cut.0.truncate(0).is_ok(), "a small file")),
        boxed(move || {
            let thread = stage.thread();
            for round in 0..12 {
                let stored = thread.store(stage.page(round % 4), 7);
                let fine = matches!(stored, Ok(()) | Err(Signal::Bus | Signal::MapErr));
                assert!(fine, "{stored:?}");
            }
        }),
    ];
    tasks(bodies, move || file.end())
}

/// P44: a forced store to a private mapping that may only be read, beside one who throws its copy
/// away.
pub(super) fn force_discard<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::in_memory(stage);
    file.map(stage, 0, 1, Prot::READ, Sharing::Private);
    let looked = Rc::clone(&file);
    let untouched = |file: &File<'_, P>| match file.0.read_word(0) {
        Ok(Some(found)) if found == word(0) => Ok(()),
        found => Err(format!("contents: the file holds {found:?}")),
    };
    let bodies = vec![
        boxed(move || {
            let at: VirtAddr = stage.page(0);
            let bytes = 7_u64.to_le_bytes();
            let done = stage.mm.remote_write(at, &bytes, Force::Yes);
            assert_eq!(done, Ok(bytes.len()));
        }),
        boxed(move || {
            for _ in 0..2 {
                stage.discard(0, 1);
                finds(stage, 0, &[Ok(word(0)), Ok(7)]);
            }
            if let Err(text) = untouched(&looked) {
                Checked::<P>::violation(format_args!("{text}"));
            }
        }),
    ];
    tasks(bodies, move || {
        untouched(&file)?;
        file.end()
    })
}

/// Writing back beside stores to the page.
pub(super) fn write_store<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let disk = Disk::fresh();
    let file = File::on(stage, disk);
    file.map(stage, 0, 1, Prot::READ_WRITE, Sharing::Shared);
    assert!(stage.thread().store(stage.page(0), 1).is_ok(), "alone");
    let written = Rc::clone(&file);
    let bodies = vec![
        boxed(move || {
            let thread = stage.thread();
            for value in 2..4 {
                assert!(thread.store(stage.page(0), value).is_ok(), "mapped");
            }
            expect(stage, &thread, 0, Ok(3));
        }),
        boxed(move || {
            for _ in 0..2 {
                assert_eq!(written.0.sync(), Ok(()));
            }
        }),
    ];
    tasks(bodies, move || {
        let synced = file.0.sync();
        let found = disk.word(0);
        if (synced, found) != (Ok(()), 3) {
            return Err(format!(
                "writeback: {found} is on the disk, and 3 was stored"
            ));
        }
        file.end()
    })
}

/// Writing back beside a munmap, and one who stores as long as it is mapped.
pub(super) fn unmap_write<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let disk = Disk::fresh();
    let file = File::on(stage, disk);
    file.map(stage, 0, 1, Prot::READ_WRITE, Sharing::Shared);
    assert!(stage.thread().store(stage.page(0), 1).is_ok(), "alone");
    let written = Rc::clone(&file);
    let stored = Rc::new(Cell::new(1));
    let last = Rc::clone(&stored);
    let bodies = vec![
        boxed(move || {
            let thread = stage.thread();
            for value in 2..6 {
                match thread.store(stage.page(0), value) {
                    Ok(()) => stored.set(value),
                    Err(signal) => assert_eq!(signal, Signal::MapErr, "it was mapped"),
                }
            }
        }),
        boxed(move || {
            stage.unmap(0, 1);
        }),
        boxed(move || assert_eq!(written.0.sync(), Ok(()))),
    ];
    tasks(bodies, move || {
        let synced = file.0.sync();
        let (found, last) = (disk.word(0), last.get());
        if (synced, found) != (Ok(()), last) {
            return Err(format!(
                "writeback: {found} is on the disk, and {last} was stored"
            ));
        }
        file.end()
    })
}
