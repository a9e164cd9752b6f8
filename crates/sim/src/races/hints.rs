//! What happens in the race about hinting faults.

use super::files::finds;
use super::migration::{FAR, boxed, fine, left, protect_page, touched};
use super::scenes::{S, expect, tasks};
use super::stage::{Checked, Script, Stage};
use core::cell::Cell;
use minflt_mm::{NumaKnobs, Prot, Signal};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// A clock for scans: one is due whenever it is asked for.
#[derive(Debug)]
struct Clock(Cell<u64>);

impl Clock {
    fn of<P: Paging>(stage: &Stage<'_, P>) -> Self {
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
    fn scan<P: Paging>(&self, stage: &Stage<'_, P>) {
        let now = self.0.get();
        self.0.set(now + 2);
        stage.thread().tick(now);
    }
}

/// Two threads of one node use a page of another, which moves to them; meanwhile the right to store
/// to it is taken away, and the page beside it.
pub(super) fn hint<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    touched(stage, 0, 2);
    let clock = Rc::new(Clock::of(stage));
    for n in 0..2 {
        fine(stage.mm.move_page(stage.page(n), FAR));
    }
    // The first fault from the other node; the next one moves the page.
    clock.scan(stage);
    for n in 0..2 {
        finds(stage, n, &[Ok(n)]);
    }
    clock.scan(stage);
    let (user, looker, caller) = (Rc::clone(stage), Rc::clone(stage), Rc::clone(stage));
    let (last, stored) = (Rc::clone(stage), Rc::new(Cell::new(0)));
    let written = Rc::clone(&stored);
    let bodies = vec![
        boxed(move || {
            let thread = user.thread();
            for value in 1..4 {
                match thread.store(user.page(0), value) {
                    Ok(()) => {
                        written.set(value);
                        expect(&user, &thread, 0, Ok(value));
                    }
                    Err(signal) => assert_eq!(signal, Signal::AccErr, "it is mapped"),
                }
            }
        }),
        boxed(move || {
            finds(&looker, 0, &[0, 1, 2, 3].map(Ok));
            finds(&looker, 1, &[Ok(1), Err(Signal::MapErr)]);
            clock.scan(&looker);
            finds(&looker, 0, &[0, 1, 2, 3].map(Ok));
        }),
        boxed(move || {
            let thread = caller.thread();
            protect_page(&caller, 0, Prot::READ);
            if thread.store(caller.page(0), 9) != Err(Signal::AccErr) {
                Checked::<P>::violation(format_args!(
                    "protection: a store succeeded after mprotect(READ) returned"
                ));
            }
            let done = caller.mm.munmap(caller.page(1), P::PAGE);
            assert!(done.is_ok(), "mapped");
            expect(&caller, &thread, 1, Err(Signal::MapErr));
        }),
    ];
    tasks(bodies, move || left(&last, &[last.mm], 0, Ok(stored.get())))
}
