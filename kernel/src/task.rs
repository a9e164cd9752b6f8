//! Tasks: who runs, as the machine's locks and the traps see it.
//!
//! Today there is one: the kernel's own, on the boot CPU, which enters programs and serves their
//! traps. Who runs is found through GS, so that another CPU, or another task on this one, only has
//! to put its own task there.

use core::cell::Cell;
use core::{ptr, slice};

use minflt_sync::{Atomic, Cx, Ordering, TaskId};

use crate::arch::gdt;
use crate::arch::paging::{self, PAGE};
use crate::frames;
use crate::machine::Kernel;
use crate::shared::Once;
use crate::space::Space;

/// Tasks that the kernel has.
const TASKS: u32 = 1;

static ALL: Once<&'static [Task]> = Once::new();

/// One task.
///
/// # Invariants
/// The `Cell`s, also those of `cx`, are touched by the task itself only.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Task {
    /// What `sync` remembers.
    pub(crate) cx: Cx,
    /// 1 while a wake token is left.
    token: Atomic<u32, Kernel>,
    /// The address space that is active while the task runs; null where it is the kernel's own.
    space: Cell<*const Space<'static>>,
}

// SAFETY: by the type's invariants, what others than the task touch is atomic.
unsafe impl Sync for Task {}

/// Makes the tasks, and the caller the first of them. Called once, at boot.
pub(crate) fn init() {
    const { assert!(size_of::<Task>() * TASKS as usize <= PAGE as usize) };
    let Some(frame) = frames::take() else {
        panic!("no memory for the kernel's tasks");
    };
    let base = paging::direct(frame).cast::<Task>();
    for index in 0..TASKS {
        let task = Task {
            cx: Cx::new(TaskId(index + 1), index),
            token: Atomic::new(0),
            space: Cell::new(ptr::null()),
        };
        // SAFETY: (1) within the frame, see the assertion.
        let at = unsafe { base.add(index as usize) };
        // SAFETY: (1) the frame was taken for this, and is aligned to more than a task.
        unsafe { at.write(task) };
    }
    // SAFETY: (1) all were written above, and the frame is never given back.
    let tasks: &'static [Task] = unsafe { slice::from_raw_parts(base, TASKS as usize) };
    ALL.set(tasks);
    gdt::set_task(&tasks[0]);
}

/// The running task.
#[inline(always)]
pub(crate) fn current() -> &'static Task {
    // SAFETY: (1) set by `init` before anything asks, to a task that stays.
    unsafe { &*gdt::task() }
}

/// The task called `id`, or `None` where there never was one.
pub(crate) fn find(id: TaskId) -> Option<&'static Task> {
    ALL.get()?.get((id.0 as usize).wrapping_sub(1))
}

impl Task {
    /// Takes the wake token; whether there was one.
    pub(crate) fn take_token(&self) -> bool {
        // ORDERING: Acquire of what came before the token; pairs with [kernel-token].
        self.token.swap(0, Ordering::Acquire) == 1
    }

    /// Leaves a wake token.
    pub(crate) fn leave_token(&self) {
        // ORDERING: Release of what came before; pairs with [kernel-token].
        self.token.store(1, Ordering::Release);
    }

    /// Lets `space` be found by traps while `work` runs. The caller is the task.
    pub(crate) fn with_space<R>(&self, space: &Space<'_>, work: impl FnOnce() -> R) -> R {
        let outer = self.space.replace(ptr::from_ref(space).cast());
        assert!(outer.is_null(), "a task has one address space at a time");
        let result = work();
        self.space.set(ptr::null());
        result
    }

    /// The address space that [`Task::with_space`] was given. The caller is the task.
    pub(crate) fn space(&self) -> Option<&Space<'_>> {
        // SAFETY: (1) `with_space` borrows it until it takes the pointer back, and a trap's handler
        // returns before that; the longer lifetime the pointer has is cut to this borrow's.
        unsafe { self.space.get().as_ref() }
    }
}
