//! Contexts: the running task of the calling thread.
//!
//! Each CPU of an instance has one context, used by whichever thread is that CPU. A thread that is
//! no CPU has a boot context of its own. The running context is found by one thread-local pointer.

use crate::instance::Shared;
use crate::interrupts::{ABSENT, Handler};
use core::cell::Cell;
use core::ptr;
use minflt_sync::prim::AtomicU32;
use minflt_sync::{Cx, Ordering, TaskId};
use std::sync::RwLock;

/// One CPU of an instance and the context of the thread that is that CPU.
///
/// # Invariants
/// `cx` is touched by the thread that owns the CPU: see [`crate::interrupts`] for who that is.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct HostCx {
    /// What `sync` remembers.
    pub(crate) cx: Cx,
    /// The instance; null in a boot context. Immutable after the instance was built.
    pub(crate) instance: Cell<*const Shared>,
    /// Called for an interrupt. Each CPU has a copy, so that taking one moves no shared line.
    pub(crate) handler: RwLock<Option<Handler>>,
    /// 1 while an interrupt waits to be taken. Read at each user access, so alone on its line.
    pub(crate) pending: Line<AtomicU32>,
    /// Who is the CPU: see [`crate::interrupts`].
    pub(crate) state: Line<AtomicU32>,
    /// Whether it sleeps, and the wake token: see [`crate::park`].
    pub(crate) sleep: AtomicU32,
    /// Whether its owner is in [`HostCx::park`].
    pub(crate) parked: Cell<bool>,
}

/// A value that shares its line (and the line a prefetcher pairs it with) with no other data.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

// SAFETY: by the type's invariants only the owner touches the `Cell`s; `instance` is only read once
// the context is shared; the rest is atomic or locked.
unsafe impl Sync for HostCx {}
// SAFETY: as above; nothing in it is bound to the thread that built it.
unsafe impl Send for HostCx {}

thread_local! {
    static CURRENT: Cell<*const HostCx> = const { Cell::new(ptr::null()) };
    /// No CPU: whoever reaches for what belongs to one panics, instead of sharing it.
    static BOOT: HostCx = HostCx::boot();
}

impl HostCx {
    /// A context that belongs to no instance yet.
    pub(crate) fn new(task: TaskId, cpu: u32) -> Self {
        Self {
            cx: Cx::new(task, cpu),
            instance: Cell::new(ptr::null()),
            handler: RwLock::new(None),
            pending: Line(AtomicU32::new(0)),
            state: Line(AtomicU32::new(ABSENT)),
            sleep: AtomicU32::new(0),
            parked: Cell::new(false),
        }
    }

    /// A boot context. An interrupt always waits there, so that a user access is noticed by the
    /// look that each one begins with.
    fn boot() -> Self {
        let boot = Self::new(TaskId(0), u32::MAX);
        boot.pending.0.store(1, Ordering::Relaxed);
        boot
    }

    /// The instance, unless this is a boot context.
    #[inline]
    pub(crate) fn instance(&self) -> Option<&Shared> {
        // SAFETY: an instance lives longer than its contexts, which lie in it.
        unsafe { self.instance.get().as_ref() }
    }

    /// Makes this the calling thread's context and returns the one it had.
    pub(crate) fn install(&self) -> *const Self {
        CURRENT.replace(self)
    }
}

/// Gives the calling thread the context `previous`, which [`HostCx::install`] returned.
pub(crate) fn reinstall(previous: *const HostCx) {
    CURRENT.set(previous);
}

/// Whether the calling thread is a CPU of some instance.
pub(crate) fn is_a_cpu() -> bool {
    with_current(|here| !here.instance.get().is_null())
}

/// Calls `f` with the running context.
#[inline(always)]
pub(crate) fn with_current<R>(f: impl FnOnce(&HostCx) -> R) -> R {
    let mut current = CURRENT.get();
    if current.is_null() {
        current = boot();
    }
    // SAFETY: a boot context lives as long as its thread; an installed one lies in an instance that
    // stays until the thread has left it.
    f(unsafe { &*current })
}

#[cold]
#[inline(never)]
fn boot() -> *const HostCx {
    let boot = BOOT.with(ptr::from_ref);
    CURRENT.set(boot);
    boot
}
