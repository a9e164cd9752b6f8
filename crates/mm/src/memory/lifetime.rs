//! Reclamation of unlinked objects: immediately, or after a grace period.
//!
//! # Problem
//! Whether a lockless reader can still hold an unlinked VMA, attribute record, tree node or page
//! table depends on the configured lock modes.
//!
//! # Idea
//! One interface for all of them: *retire*. Under `immediate` it frees the object at once; under
//! `srcu` and `rcu` it queues the callback embedded in the object; `type-stable` is as `rcu`,
//! except that VMAs go back to their slab at once; `rcu-batched` is as `rcu` with fewer and larger
//! batches. Readers open a section of the configured domain
//! by [`System::grace_read`]. No other code knows which one it is.
//!
//! The backlog is bounded: a CPU that has queued more than its share of an eighth of all memory
//! waits at kernel exit for readers, [`WAITS`] times at most.
//!
//! # Why it is correct
//! The table of illegal mixes refuses `immediate` with every lock mode that reads without
//! `mmap_lock`. Readers and *retire* test the same choice, which is constant for the life of the
//! system. Each callback below recovers the object that it is embedded in.
//!
//! # Cost
//! At kernel exit: nothing under `immediate`; a look at this CPU's count of callbacks under `srcu`;
//! that and a load of a shared, rarely written line under `rcu`.

use crate::base::config::{Config, NegativeControl, Reclamation};
use crate::base::event::Event;
use crate::system::System;
use core::ptr::NonNull;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::callback::Run;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Callback, RcuGuard, Slab, SpentPage, SrcuGuard};

/// A read section of the configured reclamation scheme's domain: VMAs, records, tree nodes and
/// tables found within stay memory of their kind until it is dropped.
#[must_use = "the section ends when the guard is dropped"]
#[derive(Debug)]
pub(crate) enum Grace<'a, M: Mmu> {
    /// May sleep; a fence and two additions on lines of this CPU.
    Srcu { _section: SrcuGuard<'a, M> },
    /// Must neither sleep nor return to user mode; writes nothing that is shared.
    Rcu { _section: RcuGuard<'a, M> },
}

impl<M: Mmu> System<M> {
    /// Opens a read section of the configured reclamation scheme's domain.
    ///
    /// # Context
    /// Until it is dropped the caller does not sleep: not every domain allows it. With `immediate`
    /// it protects nothing, and the table of illegal mixes refuses whatever would rely on it.
    #[inline(always)]
    pub(crate) fn grace_read(&self) -> Grace<'_, M> {
        match self.config.reclamation {
            Reclamation::Rcu | Reclamation::RcuBatched | Reclamation::TypeStable => Grace::Rcu {
                _section: self.rcu.read(),
            },
            Reclamation::Srcu | Reclamation::Immediate => Grace::Srcu {
                _section: self.srcu.read(),
            },
        }
    }

    /// Runs what is due of deferred work: at kernel exit, and on idle CPUs. A few callbacks are not
    /// worth a grace period, which takes as long for one as for many.
    ///
    /// # Context
    /// Holds nothing, outside of read sections, interrupts on. Waits for readers where this CPU has
    /// queued very much.
    #[inline]
    pub fn run_deferred(&self) {
        match self.config.reclamation {
            Reclamation::Immediate => {}
            Reclamation::Rcu | Reclamation::RcuBatched | Reclamation::TypeStable
                if self.deferred_here() < enough::<M>(&self.at) =>
            {
                self.rcu.quiescent();
            }
            Reclamation::Srcu if self.deferred_here() < enough::<M>(&self.at) => {}
            Reclamation::RcuBatched if !self.batch.is_due(self.deferred_here()) => {
                self.rcu.quiescent();
            }
            Reclamation::Srcu
            | Reclamation::Rcu
            | Reclamation::RcuBatched
            | Reclamation::TypeStable => self.run_due(),
        }
    }

    /// Free slots of a slab that a CPU keeps: what one grace period frees, and as much again, where
    /// it frees much. And bytes of a page of them.
    pub(crate) fn kept_slots(
        at: &M::Instance,
        config: &Config,
        frames: u64,
        cpus: u32,
    ) -> (u16, usize) {
        let slots = match config.reclamation {
            Reclamation::RcuBatched if !M::defers_little(at) => {
                (2 * BATCH).min(share_of_memory(frames, cpus)) as u16
            }
            _ => 0,
        };
        (slots, M::Paging::page() as usize)
    }

    /// Callbacks that this CPU has queued and not run.
    #[inline(always)]
    fn deferred_here(&self) -> u64 {
        match self.config.reclamation {
            Reclamation::Immediate => 0,
            Reclamation::Srcu => self.srcu.pending_here(),
            Reclamation::Rcu | Reclamation::RcuBatched | Reclamation::TypeStable => {
                self.rcu.pending_here()
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn run_due(&self) {
        let arg = core::ptr::from_ref(self).cast();
        let ran = match self.config.reclamation {
            Reclamation::Immediate => 0,
            // SAFETY: 1: every function queued here expects the system.
            Reclamation::Srcu => unsafe { self.srcu.poll(arg) },
            // SAFETY: 1: every function queued here expects the system.
            Reclamation::Rcu | Reclamation::RcuBatched | Reclamation::TypeStable => unsafe {
                self.rcu.poll(&self.at, arg)
            },
        };
        if ran > 0 {
            self.count_n(Event::CallbacksRun, ran);
        }
        let most = self.most_deferred();
        if self.deferred_here() > most {
            self.throttle(most);
        }
    }

    /// Callbacks that a CPU may have queued when it leaves the kernel: of the largest objects,
    /// tables, this many are its part of an eighth of all memory.
    #[must_use]
    pub fn most_deferred(&self) -> u64 {
        most_deferred(self.usable_frames(), self.machine_cpus())
    }

    /// Waits until this CPU has queued no more than `most` callbacks, for some time.
    fn throttle(&self, most: u64) {
        self.count(Event::CallbackStalls);
        for _ in 0..WAITS {
            self.drain_deferred();
            if self.deferred_here() <= most {
                return;
            }
            M::pass();
        }
    }

    /// Answers an interrupt that may have come to ask whether this CPU has a reader.
    ///
    /// # Context
    /// The interrupt handler, interrupts off.
    pub(crate) fn answer_grace_period(&self) {
        if matches!(
            self.config.reclamation,
            Reclamation::Rcu | Reclamation::RcuBatched | Reclamation::TypeStable
        ) {
            self.rcu.answer();
        }
    }

    /// Runs all deferred work that no reader is in the way of; returns how much ran.
    ///
    /// # Context
    /// May wait for other CPUs to answer an interrupt.
    pub fn drain_deferred(&self) -> u64 {
        let arg = core::ptr::from_ref(self).cast();
        // SAFETY: 1: every function queued here expects the system.
        let ran = unsafe { self.srcu.drain(arg) };
        // SAFETY: 1: every function queued here expects the system.
        ran + unsafe { self.rcu.drain(&self.at, arg) }
    }

    /// Callbacks that wait for a grace period, of all CPUs: a guess while any run.
    pub fn deferred(&self) -> u64 {
        self.srcu.pending() + self.rcu.pending()
    }

    /// Frees a page of a slab, none of whose objects is in use: at once, as those waited for
    /// readers; one of VMAs, which under `type-stable` did not, by the configured reclamation
    /// scheme.
    ///
    /// Linux: `SLAB_TYPESAFE_BY_RCU`.
    pub(crate) fn retire_slab_page(&self, of_vmas: bool, page: &SpentPage) {
        if of_vmas && self.config.reclamation == Reclamation::TypeStable {
            // SAFETY: 1: no slab has the page any more, which `SpentPage` says. 2: it is made once
            // for each page that a slab gives back. 3: the callback lies in the page.
            unsafe { self.retire(page.callback(), free_slab_page::<M>) };
        } else {
            self.put_frame_at(page.base());
        }
    }

    fn put_frame_at(&self, at: NonNull<u8>) {
        if let Some(pfn) = self.frame_at(at) {
            self.frames.put(pfn);
        }
    }

    /// The frame that a host address lies in.
    pub(crate) fn frame_at(&self, at: NonNull<u8>) -> Option<Pfn> {
        let first = self.frames.table.first();
        let base = M::frame_ptr(&self.at, first).addr();
        let frame = at.addr().get().checked_sub(base)? as u64 >> M::Paging::shift();
        (frame < self.frames.table.len()).then_some(Pfn(first.0 + frame))
    }

    /// # Safety
    /// 1. The callback's object is unlinked. 2. It is retired once. 3. `run` fits it.
    pub(crate) unsafe fn retire(&self, callback: NonNull<Callback>, run: Run) {
        let reclamation = match self.config.reclamation {
            _ if self.lacks(NegativeControl::NoGracePeriod) => Reclamation::Immediate,
            configured => configured,
        };
        match reclamation {
            // SAFETY: 1 to 3 of this function; the argument is the system.
            Reclamation::Immediate => unsafe { run(core::ptr::from_ref(self).cast(), callback) },
            // SAFETY: 1 to 3: the same of this function.
            Reclamation::Srcu => unsafe { self.srcu.call(callback, run) },
            // SAFETY: 1 to 3: the same of this function.
            Reclamation::Rcu | Reclamation::RcuBatched | Reclamation::TypeStable => unsafe {
                self.rcu.call(callback, run)
            },
        }
    }
}

/// Callbacks that each CPU may queue however small memory is.
const LEAST_DEFERRED: u64 = 64;
/// How often a throttled CPU polls for the end of a grace period.
pub(crate) const WAITS: u32 = 256;

/// When a CPU looks after the grace period where these are to be rare.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Callbacks that are worth one, which ends with every CPU's moving of a few lines: half of
    /// what a CPU may have queued, so that the other half has place while they wait.
    enough: u64,
    /// From then on it looks once for so many more, as each look writes a line of all CPUs: when it
    /// has some more than a multiple, which is what a call leaves.
    step: u64,
    some: u64,
}

impl Batch {
    /// For so many frames of memory.
    pub(crate) fn of<M: Mmu>(at: &M::Instance, frames: u64, cpus: u32) -> Self {
        let most = most_deferred(frames, cpus);
        let (enough, step) = if M::defers_little(at) {
            (2, 1)
        } else {
            (BATCH, STEP.min(most / 8))
        };
        Self {
            enough: enough.min(most / 2),
            step,
            some: step.div_ceil(8),
        }
    }

    /// Whether a CPU that has queued so many looks.
    #[inline]
    fn is_due(&self, queued: u64) -> bool {
        queued >= self.enough && queued % self.step < self.some
    }
}

/// Callbacks that a CPU may have queued, with so many frames of memory.
fn most_deferred(frames: u64, cpus: u32) -> u64 {
    share_of_memory(frames, cpus).max(LEAST_DEFERRED)
}

/// A CPU's part of an eighth of all memory, in frames.
fn share_of_memory(frames: u64, cpus: u32) -> u64 {
    frames / (8 * u64::from(cpus))
}

/// Callbacks of a CPU that are worth a grace period where these are to be rare: those of some
/// hundred mmaps and munmaps, 128 KiB of VMAs and nodes.
const BATCH: u64 = 1024;

/// Callbacks that a CPU queues between two looks after a grace period, about.
const STEP: u64 = 64;

/// Callbacks of a CPU that are worth a grace period: each call that changes mappings leaves a few.
#[inline(always)]
fn enough<M: Mmu>(at: &M::Instance) -> u64 {
    if M::defers_little(at) { 1 } else { 16 }
}

/// The system of an object that lies in its memory.
pub(crate) struct SystemRef<M: Mmu> {
    system: *const System<M>,
}

// SAFETY: a `System` is made to be shared by threads.
unsafe impl<M: Mmu> Send for SystemRef<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for SystemRef<M> {}

impl<M: Mmu> SystemRef<M> {
    /// # Safety
    /// 1. What has this is allocated from a slab of the system, or dropped, before this is used:
    ///    then it goes no later than the system does.
    pub(crate) const unsafe fn new(system: &System<M>) -> Self {
        Self { system }
    }

    /// The system.
    #[inline(always)]
    pub(crate) fn get(&self) -> &System<M> {
        // What was freed names another, or none: for controls, which come to such.
        if M::CHECKED && self.system.is_null() {
            M::violation(format_args!("use of an object that was freed"));
        }
        // SAFETY: 1 of `new`: this lies in the system's memory.
        unsafe { &*self.system }
    }
}

/// What is freed by the configured lifetime: an object of a slab that has a callback in it.
///
/// # Safety
/// 1. At the offset `CALLBACK` lies a [`Callback`], which is for this only.
pub(crate) unsafe trait Reclaimed<M: Mmu>: SlabObject {
    /// Offset of the callback.
    const CALLBACK: usize;

    /// The slab that they are in.
    fn slab(sys: &System<M>) -> &Slab<Self, M>;

    /// Frees what belongs to it; it has no references any more.
    fn dying(&self, sys: &System<M>) {
        let _ = sys;
    }
}

impl<M: Mmu> System<M> {
    /// Frees an unlinked object by the configured lifetime.
    ///
    /// # Safety
    /// 1. It came from its slab of this system, and is unlinked.
    /// 2. It is retired once.
    pub(crate) unsafe fn retire_object<T: Reclaimed<M>>(&self, object: NonNull<T>) {
        // SAFETY: 1: a live object, and the callback's offset is what its type says.
        let callback = unsafe { embedded(object, T::CALLBACK) };
        // SAFETY: 1, 2: 1 and 2 of this function. 3: the function finds the object from it.
        unsafe { self.retire(callback, free_object::<T, M>) };
    }
}

/// # Safety
/// 1. `sys` is the system. 2. The callback is a retired `T`'s.
unsafe fn free_object<T: Reclaimed<M>, M: Mmu>(sys: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function: a system outlives what it has queued.
    let sys = unsafe { &*sys.cast::<System<M>>() };
    // SAFETY: 1: 2 of this function.
    let object = unsafe { owner::<T>(callback, T::CALLBACK) };
    // SAFETY: the grace period is over, so nobody else has it any more.
    unsafe { object.as_ref() }.dying(sys);
    // SAFETY: 1: it was retired once. 2: as above.
    unsafe { T::slab(sys).free(object, sys) };
}

/// The callback that is embedded in an object, `offset` bytes into it. By a pointer to the whole of
/// it and through no reference to the field: the object is found again from what this returns.
///
/// # Safety
/// 1. The object is live, and has a callback at that offset.
unsafe fn embedded<T>(object: NonNull<T>, offset: usize) -> NonNull<Callback> {
    // SAFETY: within the object, which is live, by 1 of this function.
    unsafe { object.byte_add(offset) }.cast()
}

/// The object that a callback is embedded in, `offset` bytes before it.
///
/// # Safety
/// 1. The callback is embedded in a `T` at that offset, and was found by [`embedded`].
unsafe fn owner<T>(callback: NonNull<Callback>, offset: usize) -> NonNull<T> {
    // SAFETY: 1 of this function; the pointer was made by `embedded`, and is one to all of it.
    unsafe { callback.byte_sub(offset) }.cast()
}

/// # Safety
/// 1. `sys` is the system. 2. The callback lies in a retired page of a slab.
unsafe fn free_slab_page<M: Mmu>(sys: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function: a system outlives what it has queued.
    let sys = unsafe { &*sys.cast::<System<M>>() };
    sys.put_frame_at(callback.cast());
}

/// Runs a call's body as the kernel does: charged, and with deferred work at its end.
#[inline(always)]
pub(crate) fn as_call<M: Mmu, T>(sys: &System<M>, body: impl FnOnce() -> T) -> T {
    M::enter_kernel();
    M::charge(minflt_sync::Cost::Syscall);
    let result = body();
    sys.run_deferred();
    M::leave_kernel();
    result
}
