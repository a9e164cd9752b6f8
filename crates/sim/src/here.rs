//! The calling thread's current run and task: a thread-local pointer.

use crate::instance::SimInstance;
use crate::model::Ps;
use crate::world::World;
use core::cell::Cell;
use minflt_sync::{Cx, TaskId};

thread_local! {
    static HERE: Cell<*const World<'static>> = const { Cell::new(core::ptr::null()) };
    static CX: Cell<*const Cx> = const { Cell::new(core::ptr::null()) };
    /// Who runs outside runs.
    static BOOT: Cx = Cx::new(TaskId(0), 0);
}

/// The run that the caller is in.
#[inline]
pub(crate) fn here<'a>() -> Option<&'a World<'a>> {
    let world = HERE.get();
    // SAFETY: set by `enter`, whose caller clears it before the world goes.
    (!world.is_null()).then(|| unsafe { &*world.cast::<World<'a>>() })
}

/// The context that runs.
#[inline]
pub(crate) fn cx() -> *const Cx {
    let cx = CX.get();
    if cx.is_null() {
        BOOT.with(core::ptr::from_ref)
    } else {
        cx
    }
}

/// The clock of the CPU that the caller runs on, if it is in a run on `at`.
pub(crate) fn clock(at: &SimInstance) -> Option<Ps> {
    let world = here().filter(|world| core::ptr::eq(world.at, at))?;
    Some(world.core.borrow().clock_of(world.current.get()))
}

/// Marks the thread as being in a run until dropped.
pub(crate) struct Entered;

/// Marks the thread as being in the run of `world`.
///
/// # Safety
/// 1. The result is dropped before `world` is.
pub(crate) unsafe fn enter(world: &World<'_>) -> Entered {
    assert!(HERE.get().is_null(), "a run is started within a run");
    HERE.set(core::ptr::from_ref(world).cast());
    Entered
}

impl Drop for Entered {
    fn drop(&mut self) {
        HERE.set(core::ptr::null());
        CX.set(core::ptr::null());
    }
}

/// `cx` is the context that runs from now on.
pub(crate) fn set_cx(cx: *const Cx) {
    CX.set(cx);
}
