//! Deferred teardown for threads that are not CPUs.
//!
//! # Problem
//! A thread that is no CPU drops the last handle of an address space. Taking that down uses the
//! area, the free frames and the context of a CPU, which the thread has not.
//!
//! # Idea
//! The thread becomes a CPU that nobody is, for as long as the work takes. Where every CPU is taken
//! the work is queued, and whoever gives a CPU up looks at the queue.
//!
//! # Protocol
//! ```text
//! thread that is no CPU              a CPU's thread leaves, or a borrower is done
//! queue the job, waiting += 1        state = ABSENT
//! waiting == 0? gone                 waiting == 0? gone
//! some ABSENT->BORROWED?             the same
//!   run what is queued
//!   state = ABSENT, again
//! none? gone
//! ```
//! BORROWED is RUNNING to senders of interrupts, which the job answers as every running CPU does.
//! A thread that enters the CPU waits for the job.
//!
//! # Why it is correct
//! Either the thread that queues finds a CPU absent, or it looked before that CPU's state was set;
//! then whoever set it sees the count. All are sequentially consistent. A CPU that is served by a
//! sender is waited for: it is absent again in a moment, and the sender does not look here.
//!
//! # Cost
//! A load at each leave. Nothing where handles are dropped by CPUs.

use crate::context::{HostCx, reinstall, with_current};
use crate::instance::{HostInstance, Shared};
use minflt_sync::prim::AtomicU64;
use minflt_sync::{Job, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The jobs of an instance.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Those in the queue and those on their way into it.
    waiting: AtomicU64,
    queue: Mutex<VecDeque<Queued>>,
}

#[derive(Debug)]
struct Queued(Job);

// SAFETY: whoever queues a job promises that any thread may run it.
unsafe impl Send for Queued {}

impl Jobs {
    fn push(&self, job: Job) {
        // ORDERING: SeqCst; pairs with [host-jobs].
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(Queued(job));
    }

    fn pop(&self) -> Option<Job> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Queued(job) = queue.pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(job)
    }

    /// Drops what waits: the system that it was for has ended, with its memory.
    pub(crate) fn forget(&self) {
        while self.pop().is_some() {}
    }

    fn waiting(&self) -> u64 {
        // ORDERING: SeqCst; pairs with [host-jobs].
        self.waiting.load(Ordering::SeqCst)
    }
}

impl HostInstance {
    /// Teardowns of dropped handles that wait for a CPU, because every CPU is taken.
    #[must_use]
    pub fn jobs_waiting(&self) -> u64 {
        self.shared().jobs.waiting()
    }

    /// Whether the calling thread is a CPU of this instance.
    fn is_here(&self) -> bool {
        with_current(|here| core::ptr::eq(here.instance.get(), self.shared()))
    }

    /// Runs `job` now, if the calling thread is a CPU, else on the first one that is free.
    ///
    /// # Safety
    /// 1. That of [`minflt_sync::Machine::on_a_cpu`].
    pub(crate) unsafe fn give_job(&self, job: Job) {
        if self.is_here() {
            // SAFETY: 1 of this function.
            unsafe { (job.call)(job.arg) };
        } else {
            self.shared().jobs.push(job);
            self.shared().settle_jobs();
        }
    }

    /// Runs what waits, if the calling thread is a CPU; returns how many jobs.
    pub(crate) fn run_jobs(&self) -> u64 {
        if self.jobs_waiting() > 0 && self.is_here() {
            self.shared().run_jobs()
        } else {
            0
        }
    }
}

impl Shared {
    /// Sees to it that jobs which wait are run: by the caller, which is no CPU, if it can be one,
    /// else by whoever leaves a CPU.
    pub(crate) fn settle_jobs(&self) {
        while self.jobs.waiting() != 0 {
            let Some(cpu) = self.contexts.iter().find(|cpu| cpu.borrow()) else {
                return;
            };
            let run = || {
                let lent = Lent::take(self, cpu);
                self.run_jobs();
                drop(lent);
            };
            // It may be a CPU of another machine, whose interrupts then have to be served.
            with_current(|here| match here.cx.irq_off.get() {
                0 => here.away(run),
                _ => run(),
            });
        }
    }

    /// Runs what is queued, on the calling thread's CPU.
    fn run_jobs(&self) -> u64 {
        let mut ran = 0;
        while let Some(job) = self.jobs.pop() {
            // SAFETY: its giver's promise; it is out of the queue, so it is called once.
            unsafe { (job.call)(job.arg) };
            ran += 1;
        }
        ran
    }
}

/// The calling thread is a CPU that was absent, until this is dropped.
struct Lent<'a> {
    cpu: &'a HostCx,
    before: *const HostCx,
}

impl<'a> Lent<'a> {
    /// The caller has just borrowed `cpu`.
    fn take(instance: &Shared, cpu: &'a HostCx) -> Self {
        let lent = Self {
            cpu,
            before: cpu.install(),
        };
        instance.tlbs[cpu.cx.cpu.get() as usize].0.flush_all();
        cpu.poll();
        lent
    }
}

impl Drop for Lent<'_> {
    /// Also when a job panics.
    fn drop(&mut self) {
        self.cpu.cx.irq_off.set(0);
        self.cpu.cx.read_sections.set(0);
        self.cpu.cx.rcu_depth.set(0);
        reinstall(self.before);
        self.cpu.give_back();
    }
}
