//! Tasks: who runs, as the machine's locks and the traps see it.
//!
//! There is one for each CPU, which is the CPU's for good. The boot CPU's enters programs and
//! serves their traps; the others wait for work (`crew.rs`). Who runs is found through GS, so that
//! another task on a CPU only has to be put there.

use core::cell::Cell;
use core::{ptr, slice};

use minflt_sync::{Atomic, Cx, Ordering, TaskId};
use x86_64::instructions::interrupts;

use crate::arch::gdt;
use crate::arch::paging::{self, PAGE};
use crate::frames;
use crate::machine::Kernel;
use crate::shared::Once;
use crate::space::Space;

static ALL: Once<&'static [Task]> = Once::new();

/// One task.
///
/// # Invariants
/// The `Cell`s, also those of `cx`, are touched by the task itself only, and by handlers of
/// interrupts that run as it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Task {
    /// What `sync` remembers.
    pub(crate) cx: Cx,
    /// The number of its CPU. Immutable after `init`.
    cpu: u32,
    /// 1 while a wake token is left.
    token: Atomic<u32, Kernel>,
    /// 1 while it sleeps.
    asleep: Atomic<u32, Kernel>,
    /// 1 once its CPU runs.
    up: Atomic<u32, Kernel>,
    /// 1 while there is work for it.
    posted: Atomic<u32, Kernel>,
    /// The address space that traps are served in; null where there is none.
    space: Cell<*const Space<'static>>,
    /// The physical address of the root that is active on its CPU; 0 for the kernel's own.
    root: Cell<u64>,
    /// The physical address of the root that `space::access` keeps active; 0 for none.
    kept: Cell<u64>,
    /// Whether it was interrupted, and the handler runs.
    in_handler: Cell<bool>,
    /// Whether a handler flushed all translations since the active root was loaded.
    swept: Cell<bool>,
}

// SAFETY: by the type's invariants, what others than the task touch is atomic.
unsafe impl Sync for Task {}

/// Makes a task for each of `cpus` CPUs, and the caller the first of them. Called once, at boot.
pub(crate) fn init(cpus: u32) {
    let bytes = size_of::<Task>() * cpus as usize;
    let Some(frames) = frames::take_run((bytes as u64).div_ceil(PAGE)) else {
        panic!("no memory for the kernel's tasks");
    };
    let base = paging::direct(frames).cast::<Task>();
    for index in 0..cpus {
        let task = Task {
            cx: Cx::new(TaskId(index + 1), index),
            cpu: index,
            token: Atomic::new(0),
            asleep: Atomic::new(0),
            up: Atomic::new(0),
            posted: Atomic::new(0),
            space: Cell::new(ptr::null()),
            root: Cell::new(0),
            kept: Cell::new(0),
            in_handler: Cell::new(false),
            swept: Cell::new(false),
        };
        // SAFETY: (1) within the frames.
        let at = unsafe { base.add(index as usize) };
        // SAFETY: (1) the frames were taken for this, and are aligned to more than a task.
        unsafe { at.write(task) };
    }
    // SAFETY: (1) all were written above, and the frames are never given back.
    let tasks: &'static [Task] = unsafe { slice::from_raw_parts(base, cpus as usize) };
    ALL.set(tasks);
    adopt(0);
}

/// Makes the task of CPU `cpu`, the caller, the one that runs.
pub(crate) fn adopt(cpu: u32) {
    let task = of_cpu(cpu);
    gdt::set_task(task);
    // ORDERING: Release; pairs with [kernel-up].
    task.up.store(1, Ordering::Release);
}

/// The task of CPU `cpu`.
pub(crate) fn of_cpu(cpu: u32) -> &'static Task {
    match find(TaskId(cpu + 1)) {
        Some(task) => task,
        None => panic!("there is no CPU {cpu}"),
    }
}

/// The running task.
#[inline(always)]
pub(crate) fn current() -> &'static Task {
    // SAFETY: (1) set by `adopt` before anything asks, to a task that stays.
    unsafe { &*gdt::task() }
}

/// The task called `id`, or `None` where there never was one.
pub(crate) fn find(id: TaskId) -> Option<&'static Task> {
    ALL.get()?.get((id.0 as usize).wrapping_sub(1))
}

impl Task {
    /// Its number.
    pub(crate) const fn id(&self) -> TaskId {
        TaskId(self.cpu + 1)
    }

    /// The number of its CPU.
    pub(crate) const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Whether its CPU runs.
    pub(crate) fn is_up(&self) -> bool {
        // ORDERING: Acquire; pairs with [kernel-up].
        self.up.load(Ordering::Acquire) == 1
    }

    /// Says that there is work for it; it is to be woken.
    pub(crate) fn post(&self) {
        // ORDERING: Release of the work; pairs with [kernel-post].
        self.posted.store(1, Ordering::Release);
    }

    /// Whether there is work for it still.
    pub(crate) fn is_posted(&self) -> bool {
        // ORDERING: Acquire of the work, or of what it did; pairs with [kernel-post].
        self.posted.load(Ordering::Acquire) == 1
    }

    /// Says that the work is done; whoever posted it is to be woken. The caller is the task.
    pub(crate) fn done(&self) {
        // ORDERING: Release of what the work did; pairs with [kernel-post].
        self.posted.store(0, Ordering::Release);
    }

    /// Sleeps until there is a wake token, and takes it. Interrupts are served meanwhile. The
    /// caller is the task, with interrupts on.
    ///
    /// No token is missed: with interrupts off the interrupt that follows a token stays pending,
    /// and `sti; hlt` lets it in at the `hlt` at the earliest.
    pub(crate) fn sleep(&self) {
        self.asleep.store(1, Ordering::Relaxed);
        interrupts::disable();
        while !self.take_token() {
            interrupts::enable_and_hlt();
            interrupts::disable();
        }
        interrupts::enable();
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Whether it sleeps. A hint, but for its own CPU.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) == 1
    }

    /// Whether there is a wake token. A hint, but where nobody else leaves any.
    pub(crate) fn has_token(&self) -> bool {
        self.token.load(Ordering::Relaxed) == 1
    }

    /// Takes the wake token; whether there was one.
    fn take_token(&self) -> bool {
        // ORDERING: Acquire of what came before the token; pairs with [kernel-token].
        self.token.swap(0, Ordering::Acquire) == 1
    }

    /// Leaves a wake token; its CPU is to be interrupted then.
    pub(crate) fn leave_token(&self) {
        // ORDERING: Release of what came before; pairs with [kernel-token].
        self.token.swap(1, Ordering::Release);
    }

    /// Whether the kernel's own root is active on its CPU. Asked on that CPU.
    pub(crate) fn has_no_space(&self) -> bool {
        self.root.get() == 0
    }

    /// The physical address of the root that is active, 0 for the kernel's own. The caller is the
    /// task.
    pub(crate) const fn root(&self) -> &Cell<u64> {
        &self.root
    }

    /// The physical address of the root that `space::access` keeps active, 0 for none. The caller
    /// is the task.
    pub(crate) const fn kept(&self) -> &Cell<u64> {
        &self.kept
    }

    /// Whether the handler of interrupts runs on its CPU, as this task. The caller is the task.
    pub(crate) const fn in_handler(&self) -> &Cell<bool> {
        &self.in_handler
    }

    /// Whether a handler flushed all translations of its CPU since the active root was loaded.
    /// The caller is the task.
    pub(crate) const fn swept(&self) -> &Cell<bool> {
        &self.swept
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
