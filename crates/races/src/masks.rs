//! What happens in the races about the CPU mask of an address space.

use super::scenes::{S, tasks};
use super::stage::{Checked, Script};
use core::cell::Cell;
use minflt_pgtable::Paging;
use minflt_sync::{Machine, TaskId};
use std::rc::Rc;

/// P61: a thread has loaded from two pages and sleeps. Another unmaps one, which interrupts its
/// CPU, and then the other, which does not: that CPU has left the mask.
pub(super) fn sleep_unmap<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 2);
    let (sleeper, other) = (Rc::clone(stage), Rc::clone(stage));
    let done = Rc::new(Cell::new(false));
    let sleeps_no_more = Rc::clone(&done);
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || {
            let thread = sleeper.thread();
            // Both are gone where the other was faster.
            for n in [0, 1] {
                let _ = thread.load(sleeper.page(n));
            }
            while !sleeps_no_more.get() {
                Checked::<P>::park();
            }
            let found = thread.load(sleeper.page(1));
            if found.is_ok() {
                Checked::<P>::violation(format_args!("a load after munmap found {found:?}"));
            }
        }),
        Box::new(move || {
            for n in [0, 1] {
                let unmapped = other.mm.munmap(other.page(n), P::page());
                assert_eq!(unmapped, Ok(()), "mapped");
            }
            done.set(true);
            Checked::<P>::unpark(TaskId(1));
        }),
    ];
    tasks(bodies, || Ok(()))
}
