//! Sleepable read-copy-update: readers that cost two local increments, and callbacks that run when
//! no reader from before is left.
//!
//! # Problem
//! A speculative fault looks at VMAs and tree nodes that a writer may unlink at any time. The
//! memory must stay what it was until the fault is done, and the fault may take long.
//!
//! # Idea
//! Each CPU counts readers that entered and readers that left, in two generations. A grace period
//! flips the generation that new readers use and waits until as many have left the old one as
//! entered it.
//!
//! # Protocol
//! ```text
//! reader on CPU c                    grace period
//! i = index & 1                      1  wait: readers(!i) == 0     (late ones of the last flip)
//! entered[c][i] += 1  (full fence)   2  index += 1                 (new readers use !i)
//!   ... reads ...                    3  wait: readers(i) == 0
//! left[c][i] += 1     (release)      done += 1
//!
//! readers(i): sum of left[*][i], full fence, sum of entered[*][i]; equal means none
//! ```
//! Nobody blocks in a grace period: [`Srcu::poll`] takes it as far as it will go, at kernel exit,
//! on idle CPUs and at teardown. A callback waits for the first grace period that *starts* after it
//! was queued.
//!
//! # Why it is correct
//! Summing what left before what entered can only see too many readers, never too few. A reader
//! that read `index` before the flip but counted itself after step 3's sum began did so, by its
//! full fence, before it read anything the writer unlinked: it cannot hold it. It may however
//! count in the old generation for a while, which is why the *next* grace period starts with step
//! 1.
//!
//! # Cost
//! Reader: a read-modify-write and an addition on lines of its own CPU. Writer: nothing at unlink;
//! a scan of all CPUs' counts for each step of a grace period, shared by all callbacks that wait
//! for it.
//!
//! Linux: kernel/rcu/srcutree.c (v4.13), without its tree.

use crate::atomic::Atomic;
use crate::callback::CallbackQueue;
use crate::lockdep::order::GraceLock;
use crate::machine::Machine;
use crate::percpu::PerCpu;
use crate::prim::Ordering;
use crate::spin::SpinLock;
use core::marker::PhantomData;
use core::ptr::NonNull;

pub use crate::callback::{Callback, Run};

/// A domain of read sections and of callbacks that wait for them.
#[derive(Debug)]
pub struct Srcu<M: Machine> {
    /// Its low bit is the generation that new readers count in.
    index: Atomic<u64, M>,
    /// Twice the grace periods completed, plus 1 while one is under way.
    progress: Atomic<u64, M>,
    step: SpinLock<Step, GraceLock, M>,
    cpus: PerCpu<SrcuCpu<M>, M>,
}

/// One CPU's counts and callbacks.
#[derive(Debug)]
pub struct SrcuCpu<M: Machine> {
    entered: [Atomic<u64, M>; 2],
    left: [Atomic<u64, M>; 2],
    callbacks: CallbackQueue<M>,
}

/// The grace period's progress. Guarded by: the lock around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Idle,
    BeforeFlip,
    AfterFlip,
}

/// An open read section.
#[must_use = "the section ends when the guard is dropped"]
#[derive(Debug)]
pub struct SrcuGuard<'a, M: Machine> {
    cpu: &'a SrcuCpu<M>,
    generation: usize,
    not_send: PhantomData<*mut ()>,
}

impl<M: Machine> SrcuCpu<M> {
    /// The counts of a CPU that has seen no reader.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entered: [Atomic::new(0), Atomic::new(0)],
            left: [Atomic::new(0), Atomic::new(0)],
            callbacks: CallbackQueue::new(),
        }
    }
}

impl<M: Machine> Default for SrcuCpu<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> Srcu<M> {
    /// A domain over the CPUs' counts.
    #[must_use]
    pub fn new(cpus: PerCpu<SrcuCpu<M>, M>) -> Self {
        Self {
            index: Atomic::new(0),
            progress: Atomic::new(0),
            step: SpinLock::new(Step::Idle),
            cpus,
        }
    }

    /// The CPU whose counts lie at a host address: for names.
    #[must_use]
    pub fn cpu_at(&self, at: usize) -> Option<u32> {
        self.cpus.find(at).map(|(cpu, _)| cpu)
    }

    /// Opens a read section.
    #[inline]
    pub fn read(&self) -> SrcuGuard<'_, M> {
        sections::<M>(1);
        let cpu = self.cpus.this();
        let generation = (self.index.load(Ordering::Relaxed) & 1) as usize;
        // ORDERING: SeqCst; pairs with [srcu-scan]: what the section reads is read after this.
        cpu.entered[generation].add(1, Ordering::SeqCst);
        SrcuGuard {
            cpu,
            generation,
            not_send: PhantomData,
        }
    }

    /// Queues `callback` to run `run` after a grace period that starts later than now.
    ///
    /// # Safety
    /// 1. The object is unlinked: no reader that starts now can find it.
    /// 2. `callback` stays valid until it runs and is in no list.
    /// 3. `run` is sound for it and for the argument given to [`Srcu::poll`].
    pub unsafe fn call(&self, callback: NonNull<Callback>, run: Run) {
        // SAFETY: 1, 2: 2 and 3 of this function.
        unsafe { self.cpus.this().callbacks.push(callback, run) };
    }

    /// Callbacks of this CPU that have not run.
    #[inline(always)]
    #[must_use]
    pub fn pending_here(&self) -> u64 {
        self.cpus.this().callbacks.pending()
    }

    /// Callbacks not yet run, on all CPUs: for oracles at quiescence.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.callbacks.pending()).sum()
    }

    /// Takes the grace period as far as it goes and runs this CPU's callbacks that are due.
    /// Returns how many ran.
    ///
    /// # Safety
    /// 1. `arg` is what every queued function expects.
    pub unsafe fn poll(&self, arg: *const ()) -> u64 {
        if self.pending_here() == 0 {
            return 0;
        }
        // SAFETY: 1 of this function.
        unsafe { self.poll_on(self.cpus.this(), arg) }
    }

    /// As [`Srcu::poll`], for all CPUs, until nothing is left or a reader is inside; says how many
    /// ran.
    ///
    /// # Safety
    /// 1. `arg` is what every queued function expects.
    pub unsafe fn drain(&self, arg: *const ()) -> u64 {
        let mut all = 0;
        loop {
            let mut ran = 0;
            for cpu in self.cpus.iter().filter(|cpu| cpu.callbacks.pending() != 0) {
                // A batch needs one pass to get its grace period's number and one to run.
                for _ in 0..2 {
                    // SAFETY: 1 of this function.
                    ran += unsafe { self.poll_on(cpu, arg) };
                }
            }
            if ran == 0 {
                return all;
            }
            all += ran;
        }
    }

    /// # Safety
    /// 1. `arg` is what every queued function expects.
    unsafe fn poll_on(&self, cpu: &SrcuCpu<M>, arg: *const ()) -> u64 {
        let sample = || {
            // ORDERING: fence SeqCst; pairs with [srcu-scan]: unlinking comes before the sample.
            M::fence(Ordering::SeqCst);
            // Idle after k: the (k+1)th starts later. Under way as (k+1)th: the (k+2)th does.
            (self.progress.load(Ordering::Relaxed) + 3) >> 1
        };
        let Some(wanted) = cpu.callbacks.batch(sample) else {
            return 0;
        };
        while !self.completed(wanted) {
            if !self.advance() {
                return 0;
            }
        }
        // SAFETY: 1: the grace period is over. 2: 1 of this function.
        unsafe { cpu.callbacks.run_due(wanted, arg) }
    }

    fn completed(&self, wanted: u64) -> bool {
        // ORDERING: Acquire; pairs with [srcu-done].
        self.progress.load(Ordering::Acquire) >> 1 >= wanted
    }

    /// Advances the grace period by one step; false when a reader or another CPU prevents it.
    fn advance(&self) -> bool {
        // Before the lock, whose line all CPUs would move by their polls.
        let under_way = self.progress.load(Ordering::Relaxed) & 1 == 1;
        let idle = (self.index.load(Ordering::Relaxed) & 1 ^ 1) as usize;
        if under_way && !self.no_readers(idle) {
            return false;
        }
        let Some(mut step) = self.step.try_lock() else {
            return false;
        };
        let index = self.index.load(Ordering::Relaxed);
        // Before the flip: the generation of the last flip. After it: the one readers left behind.
        let idle = (index & 1 ^ 1) as usize;
        match *step {
            Step::Idle => {
                // ORDERING: SeqCst; pairs with [srcu-scan]: who samples it before this waits for
                // the grace period that starts here.
                self.progress.add(1, Ordering::SeqCst);
                *step = Step::BeforeFlip;
            }
            Step::BeforeFlip if self.no_readers(idle) => {
                // ORDERING: SeqCst; pairs with [srcu-scan].
                self.index.add(1, Ordering::SeqCst);
                *step = Step::AfterFlip;
            }
            Step::AfterFlip if self.no_readers(idle) => {
                // ORDERING: Release; pairs with [srcu-done].
                self.progress.add(1, Ordering::Release);
                *step = Step::Idle;
            }
            Step::BeforeFlip | Step::AfterFlip => return false,
        }
        true
    }

    fn no_readers(&self, generation: usize) -> bool {
        // ORDERING: Acquire; pairs with [srcu-leave].
        let left = self.sum(|cpu| cpu.left[generation].load(Ordering::Acquire));
        // ORDERING: fence SeqCst; pairs with [srcu-scan].
        M::fence(Ordering::SeqCst);
        left == self.sum(|cpu| cpu.entered[generation].load(Ordering::Relaxed))
    }

    fn sum(&self, of: impl Fn(&SrcuCpu<M>) -> u64) -> u64 {
        self.cpus
            .iter()
            .fold(0, |sum, cpu| sum.wrapping_add(of(cpu)))
    }
}

impl<M: Machine> Drop for SrcuGuard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release; pairs with [srcu-leave].
        self.cpu.left[self.generation].add_local(1, Ordering::Release);
        sections::<M>(1u32.wrapping_neg());
    }
}

fn sections<M: Machine>(add: u32) {
    // SAFETY: duty 1 of `Machine`.
    let cx = unsafe { &*M::cx() };
    cx.read_sections
        .set(cx.read_sections.get().wrapping_add(add));
}
