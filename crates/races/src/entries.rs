//! Races about the entries themselves, which are staged on every format, and the tour that every
//! format has to pass.

use super::scenes::{boxed, expect, plays, tasks, warm};
use super::stage::{Checked, Script, Stage};
use core::cell::Cell;
use minflt_addr::{Pfn, VirtAddr};
use minflt_mm::{Advice, Prot, Signal};
use minflt_pgtable::{EntryRef, Exchange, Grant, Missing, Paging, Pte, Walk, index_of, walk};
use minflt_sync::{Machine, Word};
use std::rc::Rc;

/// The leaf entry for page `n`, whose table is there.
pub(super) fn leaf<'s, P: Paging>(stage: Stage<'s, P>, n: u64) -> EntryRef<'s, Checked<P>> {
    let (at, root) = (stage.sys.machine(), stage.mm.root_table());
    // SAFETY: 1: nobody unmaps anything in the scene that asks.
    match unsafe { walk::<Checked<P>>(at, root, stage.page(n)) } {
        Walk::Leaf(leaf) => leaf.entry,
        Walk::Missing(Missing { level, .. }) => {
            Checked::<P>::violation(format_args!("no table of level {}", level - 1))
        }
    }
}

/// The table with the leaf entry for page `n`, if there is one, and the entry's number.
pub(super) fn leaf_table<P: Paging>(stage: Stage<'_, P>, n: u64) -> Option<(Pfn, usize)> {
    let (at, root) = (stage.sys.machine(), stage.mm.root_table());
    // SAFETY: 1: nothing runs.
    match unsafe { walk::<Checked<P>>(at, root, stage.page(n)) } {
        Walk::Leaf(leaf) => Some((leaf.table, index_of::<P>(stage.page(n), 0))),
        Walk::Missing(_) => None,
    }
}

/// The bits of a word that stand in the half at its address.
fn near_half<P: Paging>() -> u64 {
    u64::MAX >> (64 - 4 * size_of::<P::Word>())
}

/// An entry for another frame than that of `of`, such that the two words differ only in one bit,
/// one that `mask` has: the `nth` of those.
fn differing<P: Paging>(of: Pte<P>, mask: u64, nth: usize) -> Pte<P> {
    let of_bit = |bit: u32| {
        let pfn = Pfn(of.pfn().0 ^ 1 << bit);
        let other = Pte::<P>::page(pfn, of.grant());
        let differ = other.word().wide() ^ of.word().wide();
        (other.pfn() == pfn && differ & !mask == 0).then_some(other)
    };
    match (0..52).filter_map(of_bit).nth(nth) {
        Some(other) => other,
        None => Checked::<P>::violation(format_args!("{}: no such frame", P::about().id)),
    }
}

/// P5: two exchanges from one entry, to one whose near half is the same and to one whose is not,
/// and somebody who puts in an entry that differs in both halves, and looks. The frames named are
/// none that exist, so nobody uses the page.
///
/// Found in review of the patches of 2004: i386 with PAE compared 32 of an entry's 64 bits and
/// exchanged them in two steps, x86-64 took the entry for an `int`.
pub(super) fn half_equal<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    let first = Pte::<P>::page(Pfn(0x15), Grant::Read);
    let half_equal = differing(first, !near_half::<P>(), 0);
    let unequal = differing(first, near_half::<P>(), 0);
    let last = differing(half_equal, near_half::<P>(), 1);
    let known = [first, half_equal, unequal, last];
    let check = move |found: Pte<P>| {
        if !known.contains(&found) {
            Checked::<P>::violation(format_args!(
                "entry: read {:#x}, which no task wrote",
                found.raw()
            ));
        }
    };
    leaf(stage, 0).store(first);
    let winners = Rc::new(Cell::new(0));
    let change = |new: Pte<P>| -> Box<dyn FnOnce() + 's> {
        let winners = Rc::clone(&winners);
        Box::new(move || {
            match leaf(stage, 0).cas(stage.mm.exchange(), first, new) {
                Ok(()) => winners.set(winners.get() + 1),
                Err(found) => check(found),
            }
            if winners.get() > 1 {
                Checked::<P>::violation(format_args!("entry: two exchanges from one value"));
            }
        })
    };
    let look = Box::new(move || {
        let entry = leaf(stage, 0);
        check(entry.load());
        check(entry.swap(stage.mm.exchange(), last));
        check(entry.load());
    });
    tasks(vec![change(half_equal), change(unequal), look], move || {
        // No frame is lost: these were none.
        leaf(stage, 0).swap(Exchange::Native, Pte::none());
        Ok(())
    })
}

/// P6: faults that exchange under the emulating lock, beside a zap and a protect that hold it.
pub(super) fn emulated<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 2);
    stage.touch(0, 1);
    let store = |n: u64| {
        boxed(move || {
            let thread = stage.thread();
            // Page 1 is protected at some time.
            let stored = thread.store(stage.page(n), 5);
            if stored != Ok(()) && (n, stored) != (1, Err(Signal::AccErr)) {
                Checked::<P>::violation(format_args!("contents: a store ends as {stored:?}"));
            }
        })
    };
    let call = Box::new(move || {
        let thread = stage.thread();
        let zapped = stage.mm.madvise(stage.page(0), P::page(), Advice::DontNeed);
        let done = stage.mm.mprotect(stage.page(1), P::page(), Prot::READ);
        assert!(zapped.is_ok() && done.is_ok(), "mapped");
        if thread.store(stage.page(1), 6) != Err(Signal::AccErr) {
            Checked::<P>::violation(format_args!(
                "protection: a store succeeded after mprotect(READ) returned"
            ));
        }
    });
    plays(vec![store(0), store(1), call])
}

/// A small workload of one task: map, touch, protect, discard, unmap, near and far.
pub(super) fn tour<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let body = Box::new(move || {
        let thread = stage.thread();
        stage.map(0, 6);
        for n in 0..4 {
            expect(stage, &thread, n, Ok(0));
            assert_eq!(thread.store(stage.page(n), 10 + n), Ok(()));
            expect(stage, &thread, n, Ok(10 + n));
        }
        // Old and clean again: the next use of each kind takes the bits' way.
        stage.mm.age(stage.range(0, 6));
        expect(stage, &thread, 0, Ok(10));
        assert_eq!(thread.store(stage.page(1), 21), Ok(()));
        let protect = |n, prot| stage.mm.mprotect(stage.page(n), P::page(), prot);
        assert_eq!(protect(2, Prot::NONE), Ok(()));
        expect(stage, &thread, 2, Err(Signal::AccErr));
        assert_eq!(protect(2, Prot::READ), Ok(()));
        expect(stage, &thread, 2, Ok(12));
        assert_eq!(thread.store(stage.page(2), 3), Err(Signal::AccErr));
        assert_eq!(protect(2, Prot::READ_WRITE), Ok(()));
        assert_eq!(thread.store(stage.page(2), 22), Ok(()));
        // Fetches alone, and loads again.
        assert_eq!(protect(2, Prot::EXEC), Ok(()));
        assert_eq!(thread.fetch(stage.page(2)), Ok(22));
        let loaded = match P::bits().execute_only() {
            true => Err(Signal::AccErr),
            false => Ok(22),
        };
        expect(stage, &thread, 2, loaded);
        assert_eq!(protect(2, Prot::READ_WRITE), Ok(()));
        stage.discard(0, 1);
        expect(stage, &thread, 0, Ok(0));
        stage.unmap(1, 1);
        expect(stage, &thread, 1, Err(Signal::MapErr));
        expect(stage, &thread, 2, Ok(22));
        expect(stage, &thread, 3, Ok(13));
        // The last page that user space can have, below tables of its own.
        let last = VirtAddr(P::user_end() - 2 * P::page());
        let place = minflt_mm::Place::Fixed(last);
        assert_eq!(stage.mm.mmap(place, P::page(), Prot::READ_WRITE), Ok(last));
        assert_eq!(thread.store(last, 7), Ok(()));
        assert_eq!(thread.load(last), Ok(7));
        assert_eq!(stage.mm.munmap(last, P::page()), Ok(()));
        assert_eq!(thread.load(last), Err(Signal::MapErr));
    });
    plays(vec![body])
}

/// The zero page is replaced by one store, used by another, and loaded by a third CPU that may
/// still buffer it.
pub(super) fn replace_load<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    let returned = Rc::new(Cell::new(0));
    let seen = Rc::clone(&returned);
    plays(vec![
        boxed(move || {
            stage.touch(0, 6);
        }),
        boxed(move || {
            let thread = stage.thread();
            assert!(thread.store(stage.page(0), 5).is_ok(), "mapped");
            returned.set(1);
        }),
        boxed(move || {
            let thread = stage.thread();
            for _ in 0..4 {
                let stored = seen.get() == 1;
                if thread.load(stage.page(0)) == Ok(0) && stored {
                    Checked::<P>::violation(format_args!(
                        "contents: page 0 holds 0 after a store of 5 returned"
                    ));
                }
            }
        }),
    ])
}
