//! What happens in the races about the CPU mask of an address space.

use super::scenes::{boxed, plays};
use super::stage::{Checked, Script, Stage};
use core::cell::Cell;
use minflt_pgtable::Paging;
use minflt_sync::{Machine, TaskId};
use std::rc::Rc;

/// P61: a thread has loaded from two pages and sleeps. Another unmaps one, which interrupts its
/// CPU, and then the other, which does not: that CPU has left the mask.
pub(super) fn sleep_unmap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 2);
    let done = Rc::new(Cell::new(false));
    let sleeps_no_more = Rc::clone(&done);
    plays(vec![
        boxed(move || {
            let thread = stage.thread();
            // Both are gone where the other was faster.
            for n in [0, 1] {
                let _ = thread.load(stage.page(n));
            }
            while !sleeps_no_more.get() {
                Checked::<P>::park();
            }
            let found = thread.load(stage.page(1));
            if found.is_ok() {
                Checked::<P>::violation(format_args!("a load after munmap found {found:?}"));
            }
        }),
        boxed(move || {
            for n in [0, 1] {
                let unmapped = stage.mm.munmap(stage.page(n), P::page());
                assert_eq!(unmapped, Ok(()), "mapped");
            }
            done.set(true);
            Checked::<P>::unpark(TaskId(1));
        }),
    ])
}
