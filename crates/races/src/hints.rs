//! What happens in the race about hinting faults.

use super::files::finds;
use super::migration::{FAR, fine, left, protect_page, touched};
use super::scenes::{boxed, expect, tasks};
use super::stage::{Checked, Script, Stage};
use core::cell::Cell;
use minflt_mm::{Advice, NumaKnobs, Prot, Signal};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// Pages in use.
const PAGES: u64 = 3;

/// A clock for scans: one is due whenever it is asked for.
#[derive(Debug)]
struct Clock(Cell<u64>);

impl Clock {
    fn of<P: Paging>(stage: Stage<'_, P>) -> Self {
        stage.sys.set_numa_knobs(NumaKnobs {
            scan_delay_ns: 1,
            scan_period_min_ns: 1,
            scan_period_max_ns: 1,
            ..stage.sys.numa_knobs()
        });
        let clock = Self(Cell::new(1));
        // The first one only says when.
        clock.scan(stage);
        clock
    }

    /// Makes all pages fault that may.
    fn scan<P: Paging>(&self, stage: Stage<'_, P>) {
        let now = self.0.get();
        self.0.set(now + 2);
        stage.thread().tick(now);
    }
}

/// Two threads of one node use pages of another, which move to them; meanwhile one page is
/// protected, one is thrown away, and one is taken out.
pub(super) fn hint<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, PAGES);
    let clock = Clock::of(stage);
    for n in 0..PAGES {
        fine(stage.mm.move_page(stage.page(n), FAR));
    }
    // The first fault from the other node; the next one moves the page.
    clock.scan(stage);
    for n in 0..PAGES {
        finds(stage, n, &[Ok(n)]);
    }
    clock.scan(stage);
    let stored = Rc::new(Cell::new(0));
    let written = Rc::clone(&stored);
    let bodies = vec![
        boxed(move || {
            for n in 0..PAGES {
                let thread = stage.thread();
                match (n, thread.store(stage.page(n), 10 + n)) {
                    (0, Ok(())) => {
                        written.set(10);
                        expect(stage, &thread, 0, Ok(10));
                    }
                    (_, Ok(())) | (0, Err(Signal::AccErr)) | (2, Err(Signal::MapErr)) => {}
                    (_, other) => assert_eq!(other, Ok(()), "it is mapped"),
                }
            }
        }),
        boxed(move || {
            finds(stage, 0, &[Ok(0), Ok(10)]);
            finds(stage, 1, &[Ok(1), Ok(11), Ok(0)]);
            finds(stage, 2, &[Ok(2), Ok(12), Err(Signal::MapErr)]);
            clock.scan(stage);
            finds(stage, 0, &[Ok(0), Ok(10)]);
        }),
        boxed(move || {
            protect_page(stage, 0, Prot::READ);
            let thread = stage.thread();
            if thread.store(stage.page(0), 9) != Err(Signal::AccErr) {
                Checked::<P>::violation(format_args!(
                    "protection: a store succeeded after mprotect(READ) returned"
                ));
            }
            let (at, len) = (stage.page(1), P::page());
            assert_eq!(stage.mm.madvise(at, len, Advice::DontNeed), Ok(()));
            finds(stage, 1, &[Ok(0), Ok(11)]);
            assert_eq!(stage.mm.munmap(stage.page(2), len), Ok(()));
            expect(stage, &thread, 2, Err(Signal::MapErr));
        }),
    ];
    tasks(bodies, move || {
        left(stage, &[stage.mm], 0, Ok(stored.get()))
    })
}
