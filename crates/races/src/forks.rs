//! Scenes with two address spaces.

use super::scenes::{boxed, tasks};
use super::stage::{Checked, Script, Stage};
use core::cell::RefCell;
use core::mem::ManuallyDrop;
use minflt_mm::{Advice, Mm, MmHandle};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// A child that is torn down only when the scene ended well: after a failure locks may be held for
/// ever.
pub(super) struct Child<'s, P: Paging>(ManuallyDrop<MmHandle<'s, Checked<P>>>);

impl<'s, P: Paging> Child<'s, P> {
    pub(super) fn of(stage: Stage<'s, P>) -> Self {
        match stage.sys.fork(stage.mm) {
            Ok(child) => Self(ManuallyDrop::new(child)),
            Err(error) => panic!("the stage is large enough: {error:?}"),
        }
    }

    /// A child of the child.
    pub(super) fn child(&self, stage: Stage<'s, P>) -> Self {
        match stage.sys.fork(self.mm()) {
            Ok(child) => Self(ManuallyDrop::new(child)),
            Err(error) => panic!("the stage is large enough: {error:?}"),
        }
    }

    /// Not a child, but an empty address space beside the stage's.
    pub(super) fn beside(stage: Stage<'s, P>) -> Self {
        match stage.sys.new_mm() {
            Ok(mm) => Self(ManuallyDrop::new(mm)),
            Err(error) => panic!("the stage is large enough: {error:?}"),
        }
    }

    pub(super) fn mm(&self) -> &Mm<Checked<P>> {
        &self.0
    }

    /// It ends while others go on.
    pub(super) fn exit(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }

    /// The ledger of both, then the end of the child.
    pub(super) fn end(self, stage: Stage<'s, P>) -> Result<(), String> {
        let ledger = stage.sys.check_ledger(&[stage.mm, self.mm()]);
        ledger.map_err(|error| format!("ledger with the child: {error}"))?;
        self.exit();
        Ok(())
    }
}

/// Whether the parent has touched the page that it stores to first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    Touched,
    Fresh,
}

/// P32: fork beside a thread of the parent that stores to one page and then to another, which it
/// still buffers. What the child has must be what the parent had at one moment. The first page is
/// there before, or is not.
pub(super) fn fork_fault<'s, P: Paging>(stage: Stage<'s, P>, first: First) -> Script<'s> {
    stage.map(0, 2);
    {
        let thread = stage.thread();
        let there = if first == First::Touched { 0 } else { 1 };
        for n in there..2 {
            assert!(thread.store(stage.page(n), 0).is_ok(), "alone, and mapped");
        }
    }
    let born = Rc::new(RefCell::new(None));
    let child = Rc::clone(&born);
    let bodies = vec![
        boxed(move || {
            let child = Child::of(stage);
            *born.borrow_mut() = Some(child);
        }),
        boxed(move || {
            let thread = stage.thread();
            for (n, value) in [(1, 0), (0, 1), (1, 1)] {
                assert!(thread.store(stage.page(n), value).is_ok(), "mapped");
            }
        }),
    ];
    tasks(bodies, move || {
        let Some(child) = child.take() else {
            return Err("fork did not return".into());
        };
        let words = [0, 1].map(|n| child.mm().thread().load(stage.page(n)));
        if words == [Ok(0), Ok(1)] {
            return Err("fork: the child lacks a store and has a later one".into());
        }
        child.end(stage)
    })
}

/// P46: the parent stores to a page that it shares, while the child throws it away on one CPU and
/// still buffers it on another.
pub(super) fn reuse_zap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    stage.touch(0, 1);
    let child = Rc::new(Child::of(stage));
    let (looker, discarder) = (Rc::clone(&child), Rc::clone(&child));
    let at = stage.page(0);
    let bodies = vec![
        boxed(move || {
            assert!(stage.thread().store(at, 2).is_ok(), "mapped");
        }),
        boxed(move || {
            let thread = looker.mm().thread();
            for _ in 0..4 {
                let found = thread.load(at);
                if found != Ok(1) && found != Ok(0) {
                    Checked::<P>::violation(format_args!(
                        "contents: the child finds {found:?}, which only the parent stored"
                    ));
                }
            }
        }),
        boxed(move || {
            let done = discarder.mm().madvise(at, P::page(), Advice::DontNeed);
            assert!(done.is_ok(), "mapped");
        }),
    ];
    tasks(bodies, move || {
        let child = Rc::into_inner(child).ok_or("a task still has the child")?;
        child.end(stage)
    })
}
