//! What happens in the races about those who have a page without mapping it: pins and handlers.

use super::forks::Child;
use super::scenes::{boxed, expect, plays, tasks};
use super::stage::{Checked, Script, Stage};
use core::cell::RefCell;
use core::mem::ManuallyDrop;
use minflt_mm::{Force, UffdMode, Wake, WriteProtected};
use minflt_pgtable::{Access, Paging};
use minflt_sync::Machine;
use std::rc::Rc;

/// P45: fork beside one who pins a page without a lock, and then goes on storing to it: by its
/// address and by the pin.
pub(super) fn fork_pin<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    stage.touch(0, 1);
    let born = Rc::new(RefCell::new(None));
    let child = Rc::clone(&born);
    let bodies = vec![
        boxed(move || {
            let child = Child::of(stage);
            *born.borrow_mut() = Some(child);
        }),
        boxed(move || {
            let thread = stage.thread();
            let Some(pin) = thread.pin_fast(stage.page(0), Access::Write) else {
                return;
            };
            assert!(thread.store(stage.page(0), 2).is_ok(), "mapped");
            let found = pin.load(0);
            if found != Ok(2) {
                Checked::<P>::violation(format_args!(
                    "pin: page 0 holds 2, and the pin finds {found:?}"
                ));
            }
            assert!(pin.store(0, 3).is_ok(), "pinned for stores");
            expect::<P>(stage, &thread, 0, Ok(3));
        }),
    ];
    tasks(bodies, move || {
        let child = child.take();
        child.map_or(Ok(()), |child| child.end(stage))
    })
}

/// P43: a handler protects a page and reads it twice, beside one who stores to it, and still
/// buffers the right to.
pub(super) fn protect_copy<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    if P::bits().uffd_wp == 0 {
        return plays(vec![Box::new(|| ())]);
    }
    stage.touch(0, 1);
    let mm = stage.mm;
    // Ended at the end only: after a failure its locks may be held for ever.
    let uffd = mm.userfaultfd();
    let uffd = uffd.unwrap_or_else(|e| panic!("the stage is large enough: {e:?}"));
    let watched = uffd.register(stage.page(0), P::page(), UffdMode::WriteProtect);
    assert!(watched.is_ok(), "mapped: {watched:?}");
    let uffd = Rc::new(RefCell::new(ManuallyDrop::new(uffd)));
    let last = Rc::clone(&uffd);
    let bodies = vec![
        boxed(move || {
            let uffd = uffd.borrow();
            let (page, len) = (stage.page(0), P::page());
            let protect = |protect| uffd.writeprotect(page, len, protect, Wake::Yes);
            assert!(protect(WriteProtected::Yes).is_ok(), "watched");
            let copies = [(); 2].map(|()| {
                let mut word = [0; 8];
                let read = stage.mm.remote_read(page, &mut word, Force::No);
                assert!(read == Ok(8), "mapped");
                word
            });
            if copies[0] != copies[1] {
                Checked::<P>::violation(format_args!(
                    "contents: a store reached a page that is protected"
                ));
            }
            assert!(protect(WriteProtected::No).is_ok(), "watched");
        }),
        boxed(move || {
            let thread = stage.thread();
            for value in 2..5 {
                assert!(thread.store(stage.page(0), value).is_ok(), "mapped");
            }
        }),
    ];
    tasks(bodies, move || {
        // SAFETY: dropped here only, and nobody uses it any more.
        unsafe { ManuallyDrop::drop(&mut last.borrow_mut()) };
        Ok(())
    })
}
