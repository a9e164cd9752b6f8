//! What happens in the races about huge pages and the tables of them that address spaces share.
//!
//! The stage's address space maps a file over one whole interval, so that a child has its table in
//! common with it; nothing is reserved then, for there are no 512 pages. Formats without huge
//! pages, or with a root that maps them, play nothing.

use super::forks::Child;
use super::scenes::{boxed, tasks};
use super::stage::{Checked, Script, Stage};
use core::cell::RefCell;
use core::mem::ManuallyDrop;
use minflt_addr::VirtAddr;
use minflt_mm::{Advice, FileHandle, MapRequest, Mm, Place, Prot, Reserve, Sharing, Signal};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// The frames that it takes.
pub(super) const FRAMES: u64 = 5 * 512;
/// Words of the first pages are these, and the page's number.
pub(super) const WORD: u64 = 100;

/// Whether the format has what these scenes are about.
pub(super) fn is_played<P: Paging>() -> bool {
    let small = matches!(P::huge_order(), Some(order) if order <= 10);
    small && P::levels() > 2
}

/// Bytes of a huge page.
pub(super) fn bytes<P: Paging>() -> u64 {
    1 << (P::shift() + P::tree()[0].bits)
}

/// Bytes that one table of huge pages covers.
pub(super) fn interval<P: Paging>() -> u64 {
    bytes::<P>() << P::tree()[1].bits
}

/// The address of huge page `n` of the second interval.
pub(super) fn at<P: Paging>(n: u64) -> VirtAddr {
    VirtAddr(interval::<P>() + n * bytes::<P>())
}

/// A file of huge pages, dropped only when the scene ended well.
pub(super) struct Big<'s, P: Paging> {
    stage: Stage<'s, P>,
    file: ManuallyDrop<FileHandle<'s, Checked<P>>>,
}

impl<'s, P: Paging> Big<'s, P> {
    /// One of so many pages, on a stage with a pool of so many.
    pub(super) fn new(stage: Stage<'s, P>, pages: u64, pool: u64) -> Rc<Self> {
        assert_eq!(
            stage.sys.resize_huge_pool(pool),
            pool,
            "the stage is large enough"
        );
        stage.sys.clear_free_frames();
        let file = stage.sys.new_huge_file(pages * bytes::<P>());
        let file = file.unwrap_or_else(|error| panic!("the stage is large enough: {error:?}"));
        Rc::new(Self {
            stage,
            file: ManuallyDrop::new(file),
        })
    }

    /// Maps the first `pages` pages of it at page `n`.
    pub(super) fn map(&self, n: u64, pages: u64, reserve: Reserve, sharing: Sharing) {
        self.map_at(Place::FixedNoReplace(at::<P>(n)), pages, reserve, sharing);
    }

    /// The same, where the place says.
    pub(super) fn map_at(&self, place: Place, pages: u64, reserve: Reserve, sharing: Sharing) {
        let request = MapRequest {
            reserve,
            ..MapRequest::new(place, pages * bytes::<P>(), Prot::READ_WRITE)
        };
        let mapped = self.stage.mm.mmap_file(&request, &self.file, 0, sharing);
        assert!(mapped.is_ok(), "the stage is free and small: {mapped:?}");
    }

    /// Maps a whole interval of it.
    pub(super) fn map_interval(&self) {
        let pages = interval::<P>() / bytes::<P>();
        self.map(0, pages, Reserve::NoReserve, Sharing::Shared);
    }

    /// Makes a hole of page `n`.
    pub(super) fn punch(&self, n: u64) {
        let done = self.file.punch_hole(n * bytes::<P>(), bytes::<P>());
        assert!(done.is_ok(), "there is memory: {done:?}");
    }

    /// Cuts it behind its first page.
    fn cut(&self) {
        let done = self.file.truncate(bytes::<P>());
        assert!(done.is_ok(), "whole pages: {done:?}");
    }

    /// The last of it.
    pub(super) fn end(self: Rc<Self>) -> Result<(), String> {
        let file = Rc::into_inner(self).ok_or("the file is in use still")?;
        drop(ManuallyDrop::into_inner(file.file));
        Ok(())
    }
}

/// A store to page `n` returns one of these.
pub(super) fn stores<P: Paging>(mm: &Mm<Checked<P>>, n: u64, allowed: &[Result<(), Signal>]) {
    let stored = mm.thread().store(at::<P>(n), WORD + n);
    if !allowed.contains(&stored) {
        Checked::<P>::violation(format_args!("huge page {n}: a store returned {stored:?}"));
    }
}

/// A load of page `n` finds one of these.
pub(super) fn finds<P: Paging>(mm: &Mm<Checked<P>>, n: u64, allowed: &[Result<u64, Signal>]) {
    let found = mm.thread().load(at::<P>(n));
    if !allowed.contains(&found) {
        Checked::<P>::violation(format_args!(
            "huge page {n} holds {found:?}, none of {allowed:?}"
        ));
    }
}

/// Discards what is in `len` bytes from `at` on, which are mapped.
pub(super) fn discards<P: Paging>(mm: &Mm<Checked<P>>, at: VirtAddr, len: u64) {
    let done = mm.madvise(at, len, Advice::DontNeed);
    assert_eq!(done, Ok(()), "mapped");
}

/// Page `n` holds `word`, when the tasks have ended.
pub(super) fn has<P: Paging>(mm: &Mm<Checked<P>>, n: u64, word: u64) -> Result<(), String> {
    match mm.thread().load(at::<P>(n)) {
        Ok(found) if found == word => Ok(()),
        found => Err(format!(
            "huge page {n}: {word} was stored, and {found:?} is found"
        )),
    }
}

/// A file over an interval, and a child; both have touched page 0, and so share the table.
pub(super) fn shared<'s, P: Paging>(stage: Stage<'s, P>) -> (Rc<Big<'s, P>>, Rc<Child<'s, P>>) {
    let file = Big::new(stage, 0, 3);
    file.map_interval();
    stores(stage.mm, 0, &[Ok(())]);
    let child = Rc::new(Child::of(stage));
    finds(child.mm(), 0, &[Ok(WORD)]);
    (file, child)
}

/// The end of both.
pub(super) fn end<'s, P: Paging>(
    stage: Stage<'s, P>,
    file: Rc<Big<'s, P>>,
    child: Rc<Child<'s, P>>,
) -> Result<(), String> {
    Rc::into_inner(child)
        .ok_or("a task still has the child")?
        .end(stage)?;
    file.end()
}

/// Faults of parent and child beside a hole: both lose their table in turn.
pub(super) fn unshare<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let (file, child) = shared(stage);
    let (punched, user) = (Rc::clone(&file), Rc::clone(&child));
    let bodies = vec![
        boxed(move || stores(stage.mm, 1, &[Ok(())])),
        boxed(move || punched.punch(0)),
        boxed(move || stores(user.mm(), 2, &[Ok(())])),
    ];
    tasks(bodies, move || end(stage, file, child))
}

/// A thread discards a whole interval beside a hole, and beside a store of its own.
pub(super) fn leave<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let (file, child) = shared(stage);
    let punched = Rc::clone(&file);
    let (user, discarder) = (Rc::clone(&child), Rc::clone(&child));
    let bodies = vec![
        boxed(move || {
            discards(discarder.mm(), at::<P>(0), bytes::<P>());
        }),
        boxed(move || {
            for _ in 0..3 {
                stores(user.mm(), 0, &[Ok(())]);
            }
        }),
        boxed(move || punched.punch(0)),
    ];
    tasks(bodies, move || end(stage, file, child))
}

/// One who throws an interval away beside somebody who looks at its table.
pub(super) fn looked<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let (file, child) = shared(stage);
    let table = stage.mm.huge_table_for(at::<P>(0));
    let table = table.unwrap_or_else(|| panic!("page 0 is mapped"));
    // It is not shared any more.
    discards(child.mm(), at::<P>(0), bytes::<P>());
    let bodies = vec![
        boxed(move || {
            for _ in 0..2 {
                // It is no page, which is found out with a reference to it.
                assert!(stage.sys.move_frame(table, 0).is_err(), "a table");
            }
        }),
        boxed(move || {
            discards(stage.mm, at::<P>(0), bytes::<P>());
            finds(stage.mm, 0, &[Ok(WORD)]);
        }),
    ];
    tasks(bodies, move || end(stage, file, child))
}

/// A mapping is cut in an interval that the parent `shares`, beside a fault of its own; or else
/// beside a fault of a child that has no table yet.
pub(super) fn cut<'s, P: Paging>(stage: Stage<'s, P>, shares: bool) -> Script<'s> {
    let file = Big::new(stage, 0, 3);
    file.map_interval();
    // The child is the younger: it has no table before it touches a page.
    let child = Rc::new(Child::of(stage));
    stores(stage.mm, 0, &[Ok(())]);
    if shares {
        finds(child.mm(), 0, &[Ok(WORD)]);
    }
    let other = Rc::clone(&child);
    let bodies = vec![
        boxed(move || {
            let done =
                stage
                    .mm
                    .madvise(at::<P>(1), interval::<P>() - bytes::<P>(), Advice::DontFork);
            assert!(done.is_ok(), "mapped");
        }),
        boxed(move || match shares {
            true => stores(stage.mm, 2, &[Ok(())]),
            false => stores(other.mm(), 2, &[Ok(())]),
        }),
    ];
    tasks(bodies, move || end(stage, file, child))
}

/// fork beside a hole.
pub(super) fn fork<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 0, 3);
    file.map_interval();
    stores(stage.mm, 0, &[Ok(())]);
    let born = Rc::new(RefCell::new(None));
    let child = Rc::clone(&born);
    let punched = Rc::clone(&file);
    let bodies = vec![
        boxed(move || *born.borrow_mut() = Some(Child::of(stage))),
        boxed(move || punched.punch(0)),
    ];
    tasks(bodies, move || {
        let child = child.take().ok_or("fork did not return")?;
        end(stage, file, Rc::new(child))
    })
}

/// A private mapping is thrown away beside a store to it.
pub(super) fn discard<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    // All that the pool has.
    let file = Big::new(stage, 2, 2);
    file.map(0, 2, Reserve::Charged, Sharing::Private);
    for n in 0..2 {
        stores(stage.mm, n, &[Ok(())]);
    }
    let bodies = vec![
        boxed(move || {
            discards(stage.mm, at::<P>(0), 2 * bytes::<P>());
        }),
        boxed(move || {
            for n in 0..2 {
                stores(stage.mm, n, &[Ok(())]);
            }
        }),
    ];
    tasks(bodies, move || {
        for n in 0..2 {
            let stored = stage.mm.thread().store(at::<P>(n), WORD);
            stored.map_err(|signal| format!("huge page {n}: a store returned {signal:?}"))?;
        }
        file.end()
    })
}

/// A cut beside stores to what goes.
pub(super) fn truncate<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    const EITHER: &[Result<(), Signal>] = &[Ok(()), Err(Signal::Bus)];
    let file = Big::new(stage, 3, 3);
    file.map(0, 3, Reserve::Charged, Sharing::Shared);
    stores(stage.mm, 0, &[Ok(())]);
    let cut = Rc::clone(&file);
    let bodies = vec![
        boxed(move || {
            for n in [2, 0, 1] {
                stores(stage.mm, n, if n == 0 { &[Ok(())] } else { EITHER });
            }
        }),
        boxed(move || {
            cut.cut();
            for n in 1..3 {
                finds(stage.mm, n, &[Err(Signal::Bus)]);
            }
        }),
        boxed(move || {
            for n in [1, 2] {
                stores(stage.mm, n, EITHER);
            }
        }),
    ];
    tasks(bodies, move || {
        let (cached, pool) = (file.file.cached_pages(), stage.sys.huge_pool());
        if cached > 1 || cached + pool.reserved != 1 {
            let reserved = pool.reserved;
            return Err(format!(
                "one page is left of the file: it has {cached}, and {reserved} are reserved"
            ));
        }
        file.end()
    })
}

/// A hole beside a store to it.
pub(super) fn hole<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 1, 2);
    file.map(0, 1, Reserve::Charged, Sharing::Shared);
    stores(stage.mm, 0, &[Ok(())]);
    let punched = Rc::clone(&file);
    let bodies = vec![
        boxed(move || {
            for _ in 0..2 {
                stores(stage.mm, 0, &[Ok(())]);
            }
        }),
        boxed(move || punched.punch(0)),
    ];
    tasks(bodies, move || file.end())
}

/// A cut beside one who maps the file.
pub(super) fn map<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 2, 3);
    file.map(0, 2, Reserve::Charged, Sharing::Shared);
    stores(stage.mm, 1, &[Ok(())]);
    let (mapped, cut) = (Rc::clone(&file), Rc::clone(&file));
    let bodies = vec![
        boxed(move || mapped.map(8, 3, Reserve::Charged, Sharing::Shared)),
        boxed(move || cut.cut()),
    ];
    tasks(bodies, move || {
        stage
            .sys
            .check_ledger(&[stage.mm])
            .map_err(|error| format!("ledger: {error}"))?;
        file.end()
    })
}

/// Two stores to a page, of which there is only one left.
pub(super) fn last<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 1, 1);
    file.map(0, 1, Reserve::NoReserve, Sharing::Shared);
    let body = || boxed(move || stores(stage.mm, 0, &[Ok(())]));
    tasks(vec![body(), body()], move || file.end())
}

/// A store to a private page that a child throws away.
pub(super) fn reuse<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = Big::new(stage, 1, 3);
    file.map(0, 1, Reserve::Charged, Sharing::Private);
    stores(stage.mm, 0, &[Ok(())]);
    let child = Rc::new(Child::of(stage));
    let (looker, discarder) = (Rc::clone(&child), Rc::clone(&child));
    let bodies = vec![
        boxed(move || {
            let stored = stage.mm.thread().store(at::<P>(0), 2);
            assert!(stored.is_ok(), "mapped");
        }),
        boxed(move || {
            for _ in 0..4 {
                finds(looker.mm(), 0, &[Ok(WORD), Ok(0)]);
            }
        }),
        boxed(move || {
            discards(discarder.mm(), at::<P>(0), bytes::<P>());
        }),
    ];
    tasks(bodies, move || end(stage, file, child))
}
