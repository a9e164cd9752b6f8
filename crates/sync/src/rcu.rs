//! Read-copy-update: readers that write nothing shared, and callbacks that run when every CPU has
//! been seen outside of all read sections.
//!
//! # Problem
//! A lookup without a lock is short and never sleeps, and should cost less than the lock it saves:
//! no line that another CPU ever reads, and no fence.
//!
//! # Idea
//! A context that is inside a section keeps its CPU: it neither sleeps nor returns to user mode. So
//! a CPU whose *running* context is outside of every section has no reader at all; it is
//! *quiescent*, and whatever section it opens later starts later. A grace period is over when every
//! CPU was quiescent once since it began.
//!
//! # Protocol
//! ```text
//! reader                   CPU c, at kernel exit             grace period
//! depth += 1               p = period; even? nothing to do   1  period += 1  (now odd)
//!   ... reads ...          depth == 0?                       2  wait: said[c] == period, all c
//! depth -= 1                 fence                           3  period += 1  (now even)
//!                            said[c] = p
//! interrupted when late:   the same; but if depth > 0, said[c] = p & !1: "inside"
//! ```
//! No thread blocks in a grace period: [`Rcu::poll`] advances it as far as possible. The caller
//! reports for its own CPU; busy CPUs report at their next kernel exit. A CPU that idles or
//! computes in user mode does neither, so a CPU that has polled in vain [`Patience`] times
//! interrupts those that have not reported, and their handlers report ([`Rcu::answer`]). A callback
//! waits for the first grace period that *starts* after it was queued.
//!
//! # Why it is correct
//! - *A section that began before the report* is over, because the depth is 0 and the CPU has no
//!   other context inside a section: a context gives its CPU up only where it sleeps or is in user
//!   mode, and lock checking refuses both inside. What it read is read before `said` is stored.
//! - *A section that begins after it* sees the object unlinked: unlinking came before the sample,
//!   the sample before the start of the period (else a later one is waited for), the start before
//!   the report, each by a full fence.
//! - *An interrupt inside a section* finds the depth above 0 and does not report: depth and handler
//!   belong to one CPU, which runs them in program order.
//! - *Every grace period ends.* A CPU reports at kernel exit, or is interrupted again and again
//!   until one finds it outside. A report is looked up and stored with interrupts off, so an older
//!   one never hides a newer one.
//!
//! The alternative, a word for each CPU that says "in user mode or idle", would spare the
//! interrupts and cost two fenced stores at each kernel entry and exit, which is each fault.
//!
//! # Cost
//! Reader: two additions to a word of its own context. Kernel exit: a load of a line that changes
//! twice a grace period, and once a grace period a load, a fence and a store on a line of its own.
//! Writer: nothing at unlink; a grace period reads each CPU's line once, and more only of the first
//! one that is late, by polls that write no shared line; one interrupt for each CPU that is late
//! for too long.
//!
//! Linux: kernel/rcu/tree.c (v4.13), for kernels that are not preempted, without its tree.

use crate::atomic::Atomic;
use crate::callback::{Callback, CallbackQueue, Run};
use crate::counter::Counter;
use crate::cpumask::CpuMask;
use crate::cx::Cx;
use crate::lockdep;
use crate::lockdep::order::GraceLock;
use crate::machine::Machine;
use crate::percpu::{Apart, PerCpu};
use crate::prim::{Ordering, compiler_fence};
use crate::spin::SpinLock;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// A domain of read sections and of callbacks that wait for them.
#[derive(Debug)]
#[repr(C)]
pub struct Rcu<M: Machine> {
    /// Twice the grace periods completed, plus 1 while one is under way. Read at each kernel exit.
    period: Atomic<u64, M>,
    cpus: PerCpu<RcuCpu<M>, M>,
    patience: Patience,
    _apart: Apart,
    /// How many CPUs, from the first on, are known to have reported for the grace period under way.
    reported: SpinLock<u32, GraceLock, M>,
}

/// One CPU's reports and callbacks.
#[derive(Debug)]
pub struct RcuCpu<M: Machine> {
    /// The grace period, as `period` numbers it, in which the CPU was last quiescent; or that
    /// number with its low bit cleared, when it was interrupted inside a section. Written by
    /// the CPU only, with interrupts off.
    said: Atomic<u64, M>,
    callbacks: CallbackQueue<M>,
    /// How often the CPU polled for the batch that waits.
    polls: Counter,
    /// The CPU that stood in the way at this CPU's last try, and in which grace period. Written by
    /// the CPU only.
    late: Atomic<u32, M>,
    late_in: Atomic<u64, M>,
}

/// How many polls a grace period may keep a CPU's callbacks waiting before the CPUs that have not
/// reported are interrupted; and after that, again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience(pub u64);

/// An open read section.
#[must_use = "the section ends when the guard is dropped"]
#[derive(Debug)]
pub struct RcuGuard<'a, M: Machine> {
    cx: NonNull<Cx>,
    /// A guard belongs to the context that opened the section.
    domain: PhantomData<(&'a Rcu<M>, *mut ())>,
}

/// What to do about CPUs that have not reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Late {
    /// Nothing.
    Leave,
    /// Interrupt them.
    Ask,
    /// Interrupt them and wait until they have answered, one way or the other.
    AskAndWait,
}

/// Why a CPU checks whether it is quiescent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// It happens to be outside of the kernel soon.
    Passing,
    /// It was interrupted for it.
    Asked,
}

/// `period` before the first grace period: not 0, so that no CPU has answered for the first one.
const NONE_YET: u64 = 2;

impl<M: Machine> RcuCpu<M> {
    /// A CPU that has reported nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            said: Atomic::new(0),
            callbacks: CallbackQueue::new(),
            polls: Counter::new(),
            late: Atomic::new(0),
            late_in: Atomic::new(0),
        }
    }
}

impl<M: Machine> Default for RcuCpu<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> Rcu<M> {
    /// A domain over the CPUs' reports.
    #[must_use]
    pub fn new(cpus: PerCpu<RcuCpu<M>, M>, patience: Patience) -> Self {
        Self {
            period: Atomic::new(NONE_YET),
            cpus,
            patience: Patience(patience.0.max(1)),
            _apart: Apart,
            reported: SpinLock::new(0),
        }
    }

    /// The CPU whose report lies at a host address: for names.
    #[must_use]
    pub fn cpu_at(&self, at: usize) -> Option<u32> {
        self.cpus.find(at).map(|(cpu, _)| cpu)
    }

    /// Opens a read section. Sections nest. Whoever is inside one does not sleep, does not return
    /// to user mode and does not wait for a grace period.
    ///
    /// Linux: rcu_read_lock.
    #[inline(always)]
    pub fn read(&self) -> RcuGuard<'_, M> {
        // SAFETY: duty 1 of `Machine`.
        let cx = unsafe { NonNull::new_unchecked(M::cx().cast_mut()) };
        // SAFETY: as above.
        let depth = unsafe { &cx.as_ref().rcu_depth };
        depth.set(depth.get() + 1);
        // ORDERING: of the compiler only, SeqCst; pairs with [rcu-section]: what an interrupt on
        // this CPU finds outside has read nothing yet.
        compiler_fence(Ordering::SeqCst);
        RcuGuard {
            cx,
            domain: PhantomData,
        }
    }

    /// Queues `callback` to run `run` after a grace period that starts later than now.
    ///
    /// Linux: call_rcu.
    ///
    /// # Safety
    /// 1. The object is unlinked: no reader that starts now can find it.
    /// 2. `callback` stays valid until it runs and is in no list.
    /// 3. `run` is sound for it and for the argument given to [`Rcu::poll`].
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

    /// Reports that this CPU is quiescent, if it is and a grace period wants to know: at kernel
    /// exit.
    ///
    /// Linux: rcu_qs and rcu_report_qs_rdp.
    #[inline(always)]
    pub fn quiescent(&self) {
        let period = self.period.load(Ordering::Relaxed);
        if period & 1 != 0 {
            self.report(period);
        }
    }

    /// Answers the interrupt that asks whether this CPU is quiescent.
    ///
    /// # Context
    /// The machine's interrupt handler, on the interrupted CPU, interrupts off.
    pub fn answer(&self) {
        self.say(Why::Asked);
    }

    /// Reports for this CPU, takes the grace period as far as it goes, and runs this CPU's
    /// callbacks that are due. Returns how many ran. `at` is the machine whose interrupt handler
    /// calls [`Rcu::answer`].
    ///
    /// # Context
    /// At kernel exit, on idle CPUs, and while waiting; interrupts on.
    ///
    /// # Safety
    /// 1. `arg` is what every queued function expects.
    #[inline]
    pub unsafe fn poll(&self, at: &M::Instance, arg: *const ()) -> u64 {
        self.quiescent();
        if self.pending_here() == 0 {
            return 0;
        }
        let cpu = self.cpus.this();
        cpu.polls.add(1);
        // SAFETY: 1 of this function.
        unsafe { self.poll_on(cpu, at, arg, Late::Leave) }
    }

    /// As [`Rcu::poll`], for all CPUs, until nothing is left or a reader is inside. Waits for other
    /// CPUs to answer an interrupt, but not for readers. Says how many ran.
    ///
    /// # Context
    /// May wait: not in a read section, not with interrupts off, not with a spinning lock held.
    ///
    /// # Safety
    /// 1. `arg` is what every queued function expects.
    pub unsafe fn drain(&self, at: &M::Instance, arg: *const ()) -> u64 {
        lockdep::might_sleep::<M>();
        let mut all = 0;
        loop {
            let mut ran = 0;
            for cpu in self.cpus.iter().filter(|cpu| cpu.callbacks.pending() != 0) {
                // A batch needs one pass to get its grace period's number and one to run.
                for _ in 0..2 {
                    // SAFETY: 1 of this function.
                    ran += unsafe { self.poll_on(cpu, at, arg, Late::AskAndWait) };
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
    unsafe fn poll_on(
        &self,
        cpu: &RcuCpu<M>,
        at: &M::Instance,
        arg: *const (),
        mut late: Late,
    ) -> u64 {
        let sample = || {
            cpu.polls.add(0u64.wrapping_sub(cpu.polls.get()));
            // ORDERING: fence SeqCst; pairs with [rcu-start]: unlinking comes before the sample.
            M::fence(Ordering::SeqCst);
            // Idle after k: the (k+1)th starts later. Under way as (k+1)th: the (k+2)th does.
            (self.period.load(Ordering::Relaxed) + 3) >> 1
        };
        let Some(wanted) = cpu.callbacks.batch(sample) else {
            return 0;
        };
        let polls = cpu.polls.get();
        if late == Late::Leave && polls > 0 && polls.is_multiple_of(self.patience.0) {
            late = Late::Ask;
        }
        while !self.completed(wanted) {
            if !self.advance(at, late) {
                return 0;
            }
        }
        // SAFETY: 1: the grace period is over. 2: 1 of this function.
        unsafe { cpu.callbacks.run_due(wanted, arg) }
    }

    fn completed(&self, wanted: u64) -> bool {
        // ORDERING: Acquire; pairs with [rcu-done].
        self.period.load(Ordering::Acquire) >> 1 >= wanted
    }

    /// Starts a grace period, or ends the one in progress; false if a CPU has not reported, or
    /// another CPU is advancing it.
    fn advance(&self, at: &M::Instance, late: Late) -> bool {
        self.quiescent();
        if late == Late::Leave && self.still_late() {
            return false;
        }
        let Some(mut reported) = self.reported.try_lock() else {
            return false;
        };
        // Only the lock's holder changes it.
        let period = self.period.load(Ordering::Relaxed);
        if period & 1 == 0 {
            *reported = 0;
            // ORDERING: SeqCst; pairs with [rcu-start]: who samples it before this waits for the
            // grace period that starts here.
            self.period.add(1, Ordering::SeqCst);
            return true;
        }
        let mut seen = self.scan(*reported, period);
        if seen < self.cpus.count() && late != Late::Leave {
            self.ask(seen, period, late, at);
            seen = self.scan(seen, period);
        }
        *reported = seen;
        if seen < self.cpus.count() {
            let mine = self.cpus.this();
            mine.late.store(seen, Ordering::Relaxed);
            mine.late_in.store(period, Ordering::Relaxed);
            return false;
        }
        // ORDERING: Release; pairs with [rcu-done].
        self.period.add(1, Ordering::Release);
        true
    }

    /// Whether the CPU that stood in the way at the last try still does. Looks at lines that change
    /// once a grace period, and writes none: polls are many, and one line for all CPUs' would be
    /// moved by each of them.
    fn still_late(&self) -> bool {
        let mine = self.cpus.this();
        let period = self.period.load(Ordering::Relaxed);
        if period & 1 == 0 || mine.late_in.load(Ordering::Relaxed) != period {
            return false;
        }
        let late = self.cpus.get(mine.late.load(Ordering::Relaxed));
        late.said.load(Ordering::Relaxed) != period
    }

    /// The first CPU, from `first` on, that has not reported.
    fn scan(&self, first: u32, period: u64) -> u32 {
        let has_reported = |cpu: &u32| {
            // ORDERING: Acquire; pairs with [rcu-report].
            self.cpus.get(*cpu).said.load(Ordering::Acquire) == period
        };
        let all = self.cpus.count();
        (first..all).find(|cpu| !has_reported(cpu)).unwrap_or(all)
    }

    /// Interrupts the CPUs that have not reported, from `first` on. The caller holds the lock, so
    /// the grace period stays what it is.
    #[cold]
    fn ask(&self, first: u32, period: u64, late: Late, at: &M::Instance) {
        // SAFETY: duty 1 of `Machine`.
        let me = unsafe { &*M::cx() }.cpu.get();
        let mut to = CpuMask::empty();
        for cpu in (first..self.cpus.count()).filter(|cpu| *cpu != me) {
            if self.cpus.get(cpu).said.load(Ordering::Relaxed) != period {
                to.insert(cpu);
            }
        }
        if to.is_empty() {
            return;
        }
        M::send_ipi(at, &to);
        if late == Late::AskAndWait {
            for cpu in to.iter() {
                let said = &self.cpus.get(cpu).said;
                M::await_cpus(
                    at,
                    &to,
                    || said.load(Ordering::Relaxed) | 1 == period,
                    || said.wait_until(!1, period & !1),
                );
            }
        }
    }

    #[cold]
    fn report(&self, period: u64) {
        if self.cpus.this().said.load(Ordering::Relaxed) != period {
            let irq = M::irq_save();
            self.say(Why::Passing);
            M::irq_restore(irq);
        }
    }

    /// Says what there is to say about this CPU. Interrupts are off.
    fn say(&self, why: Why) {
        let period = self.period.load(Ordering::Relaxed);
        let said = &self.cpus.this().said;
        if period & 1 == 0 || said.load(Ordering::Relaxed) == period {
            return;
        }
        // SAFETY: duty 1 of `Machine`.
        let inside = unsafe { &*M::cx() }.rcu_depth.get() > 0;
        let what = match why {
            _ if !inside => period,
            Why::Asked => period & !1,
            Why::Passing => return,
        };
        // ORDERING: fence SeqCst; pairs with [rcu-report]: sections before this have read what they
        // read; and with [rcu-start]: sections after it see what was unlinked.
        M::fence(Ordering::SeqCst);
        // ORDERING: Release; pairs with [rcu-report], for checkers that know no fences.
        said.store(what, Ordering::Release);
    }
}

impl<M: Machine> Drop for RcuGuard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // ORDERING: of the compiler only, SeqCst; pairs with [rcu-section].
        compiler_fence(Ordering::SeqCst);
        // SAFETY: duty 1 of `Machine`: the context of the task that opened the section, which is
        // this one, for a guard is not sent to another.
        let depth = unsafe { &self.cx.as_ref().rcu_depth };
        depth.set(depth.get().wrapping_sub(1));
    }
}
