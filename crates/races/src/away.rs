//! What happens in the races about pages that go to the swap device, alone, and where files are
//! mapped around faults.

use super::disk::Disk;
use super::files::{File, PAGES, finds, word};
use super::migration::{grows, left, touched};
use super::scenes::{boxed, expect, tasks, warm};
use super::stage::{Script, Stage};
use minflt_mm::{Advice, Event, Prot, Sharing};
use minflt_pgtable::Paging;

/// Frames of a machine that is small enough for [`unused`]: all of them are looked at, in each
/// schedule.
pub(super) const FRAMES: u64 = 96;
/// Frames that are free when the tasks of [`unused`] begin, of which the system keeps some.
const FREE: u64 = 14;
/// Pages that were stored to: more than are asked for at a time.
const USED: u64 = 6;
/// Pages of memory between those that were used and those of the file: the hand comes to one of
/// them first.
const APART: u64 = 16;
/// Where the file of [`unused`] is mapped, and where its frames are used up.
const FILE: u64 = 8;
const FRESH: u64 = 16;
/// Pages there: more than are free.
const MOST: u64 = 16;

/// P25: a private copy goes out, and comes back when it is stored to, beside loads that map what is
/// around them.
pub(super) fn around_out<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::in_memory(stage);
    file.map(stage, 0, PAGES, Prot::READ_WRITE, Sharing::Private);
    assert!(stage.thread().store(stage.page(2), 5).is_ok(), "alone");
    let bodies = vec![
        boxed(move || {
            for _ in 0..2 {
                page_out(stage, 2);
            }
        }),
        boxed(move || {
            for n in [1, 3] {
                finds(stage, n, &[Ok(word(n))]);
                stage.discard(n, 1);
            }
            finds(stage, 1, &[Ok(word(1))]);
        }),
        boxed(move || {
            let thread = stage.thread();
            expect(stage, &thread, 2, Ok(5));
            let stored = thread.store(stage.page(2), 6);
            expect(stage, &thread, 2, stored.map(|()| 6));
        }),
    ];
    tasks(bodies, move || {
        left(stage, &[stage.mm], 2, Ok(6))?;
        file.end()
    })
}

/// P26: a file of which one page was loaded, pages that were stored to, and one who stores to more
/// until somebody's have to go, beside one who loads the pages that are used.
///
/// # Correctness
/// Only one of them asks for frames, and only once pages have gone the other may. So nothing keeps
/// the hand of the clock from going round, and the pages that nobody used go before it comes to
/// any page a second time.
pub(super) fn unused<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::on(stage, Disk::fresh());
    touched(stage, 0, USED);
    let between = File::of_pages(stage, APART);
    file.read(PAGES);
    file.map(stage, FILE, PAGES, Prot::READ, Sharing::Private);
    finds(stage, FILE, &[Ok(word(0))]);
    stage.map(FRESH, FRESH + MOST);
    let filler = File::of_pages(stage, free(stage).saturating_sub(FREE));
    let bodies = vec![
        boxed(move || {
            let thread = stage.thread();
            for n in FRESH..FRESH + MOST {
                assert!(thread.store(stage.page(n), n).is_ok(), "pages can go");
                if swapped(stage) {
                    break;
                }
            }
        }),
        boxed(move || {
            for n in 0..2 {
                expect(stage, &stage.thread(), n, Ok(n));
            }
        }),
    ];
    tasks(bodies, move || {
        if !swapped(stage) {
            return Err("reclaim: nobody's page had to go".into());
        }
        // The page that was loaded may be one of them.
        let stay = file.cached();
        if stay > 1 {
            return Err(format!(
                "reclaim: a page that was used went, and {} stay that were not",
                stay - 1
            ));
        }
        filler.end()?;
        between.end()?;
        file.end()
    })
}

/// Whether an anonymous page has gone.
fn swapped<P: Paging>(stage: Stage<'_, P>) -> bool {
    stage.sys.count_of(Event::SwapOut) > 0
}

/// Frames that are free. Only while nothing else runs.
fn free<P: Paging>(stage: Stage<'_, P>) -> u64 {
    match stage.sys.check_ledger(&[stage.mm]) {
        Ok(ledger) => ledger.free,
        Err(error) => panic!("it is set up only: {error}"),
    }
}

/// Swaps a page out that is there, whether it was used or not.
fn page_out<P: Paging>(stage: Stage<'_, P>, n: u64) {
    let done = stage.mm.madvise(stage.page(n), P::page(), Advice::PageOut);
    assert!(done.is_ok(), "mapped: {done:?}");
}

/// P2, P3: a page goes out again and again, while one thread stores to it and another loads it.
pub(super) fn out<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    assert!(stage.thread().store(stage.page(0), 1).is_ok(), "alone");
    let bodies = vec![
        boxed(move || {
            for _ in 0..2 {
                page_out(stage, 0);
            }
        }),
        boxed(move || {
            let thread = stage.thread();
            for value in 2..5 {
                let stored = thread.store(stage.page(0), value);
                expect(stage, &thread, 0, stored.map(|()| value));
            }
        }),
        boxed(move || grows(stage, 1)),
    ];
    tasks(bodies, move || left(stage, &[stage.mm], 0, Ok(4)))
}

/// P4: the first store to a page beside one who swaps out what he finds there.
pub(super) fn out_fault<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    let bodies = vec![
        boxed(move || {
            for _ in 0..2 {
                page_out(stage, 0);
            }
        }),
        boxed(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(0), 5);
            expect(stage, &thread, 0, stored.map(|()| 5));
        }),
    ];
    tasks(bodies, move || left(stage, &[stage.mm], 0, Ok(5)))
}
