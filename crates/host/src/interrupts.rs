//! Interrupts between CPUs that are threads.
//!
//! # Problem
//! Whoever changes a page table has every CPU forget what it buffered, and waits until all have
//! done so, often with a lock held. But a thread cannot be interrupted: it computes, it spins for
//! the very lock the initiator holds, it sleeps, or nobody is that CPU at the moment.
//!
//! # Idea
//! An interrupt is a flag. A CPU looks at its flag at each user access, at kernel entry, when it
//! turns interrupts on, and in every wait. One that sleeps is woken to look. For a CPU that nobody
//! is, or whose thread is in a call of the host that may take long, the sender runs the handler
//! itself, in that CPU's context.
//!
//! # Protocol
//! ```text
//! state    ABSENT        nobody is this CPU
//!          RUNNING       a thread is this CPU
//!          SERVED        nobody is this CPU, and a sender runs its handler
//!          AWAY          the thread that is this CPU is in a call of the host
//!          SERVED_AWAY   the same, and a sender runs the CPU's handler
//!          BORROWED      as RUNNING, by a thread that runs jobs there ([`crate::jobs`])
//! owner of the context and of the translation buffer: the running thread, or the serving one
//!
//! sender                       running CPU            entering          leaving, or done serving
//! pending = 1                  pending == 0? go on    ABSENT->RUNNING   state = ABSENT
//! ABSENT->SERVED? serve        interrupts off? later  flush buffer      pending == 0? gone
//! RUNNING? wake if asleep      serve                  serve if pending  ABSENT->SERVED? serve
//! SERVED? nothing
//!
//! serve: interrupts off; while pending was 1 and is now 0: call the handler; interrupts on
//! ```
//! A thread that goes away for a call does what one that leaves does, with AWAY for ABSENT and
//! SERVED_AWAY for SERVED; nobody else can enter its CPU, and its translation buffer stays.
//!
//! The handler sees the target as the running CPU, and none of the sender's held locks.
//!
//! # Why it is correct
//! - *Nobody misses a request.* The flag is taken back before the handler looks for requests, so a
//!   request posted before the flag was set is seen by that call or a later one.
//! - *Somebody serves.* The sender sets the flag, then reads the state; whoever gives a CPU up sets
//!   the state, then reads the flag. Both are sequentially consistent, so one sees the other. The
//!   same holds for the flag and a sleeper's word ([`crate::park`]).
//! - *One owner.* RUNNING, SERVED, BORROWED and SERVED_AWAY are reached only by an exchange from
//!   ABSENT or AWAY, and SERVED_AWAY leads to AWAY only.
//! - *No deadlock between initiators.* Both wait with interrupts on and serve each other.
//!
//! # Cost
//! Unsent: one load of a private line at each look. Sent: one exchange and one load at the sender,
//! and the move of the flag's line there and back.

use crate::context::{HostCx, reinstall};
use core::ptr;
use minflt_sync::{IpiHandler, Ordering};
use std::sync::PoisonError;

/// Nobody is the CPU.
pub(crate) const ABSENT: u32 = 0;
/// A thread is the CPU.
pub(crate) const RUNNING: u32 = 1;
/// Nobody is the CPU, and a sender runs its handler.
pub(crate) const SERVED: u32 = 2;
/// The thread that is the CPU is in a call of the host.
pub(crate) const AWAY: u32 = 3;
/// The same, and a sender runs the CPU's handler.
pub(crate) const SERVED_AWAY: u32 = 4;
/// A thread is the CPU for as long as it runs jobs.
pub(crate) const BORROWED: u32 = 5;

/// An instance's handler, in one CPU's copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handler(pub(crate) IpiHandler);

// SAFETY: whoever sets a handler promises that any CPU may call it.
unsafe impl Send for Handler {}
// SAFETY: as above.
unsafe impl Sync for Handler {}

impl HostCx {
    /// Takes an interrupt that waits, unless interrupts are off. The caller owns the context.
    #[inline(always)]
    pub(crate) fn poll(&self) {
        if self.pending.0.load(Ordering::Relaxed) != 0 {
            self.take();
        }
    }

    /// The same before a user access, which only a CPU makes: its translation buffer is its own.
    #[inline(always)]
    pub(crate) fn poll_in_user_mode(&self) {
        if self.pending.0.load(Ordering::Relaxed) != 0 {
            self.take_in_user_mode();
        }
    }

    #[cold]
    fn take(&self) {
        // A boot context has nothing to take: its flag stays.
        if self.cx.irq_off.get() == 0 && !self.instance.get().is_null() {
            self.serve();
        }
    }

    #[cold]
    #[inline(never)]
    fn take_in_user_mode(&self) {
        assert!(
            !self.instance.get().is_null(),
            "a thread that is no CPU now loads or stores: become one, `HostInstance::enter`, or \
             come back first, if this is in `CpuGuard::away`"
        );
        self.take();
    }

    /// Interrupts the CPU. The caller need not own the context.
    pub(crate) fn interrupt(&self) {
        // ORDERING: SeqCst; pairs with [host-leave] and [host-sleep].
        self.pending.0.store(1, Ordering::SeqCst);
        self.settle();
    }

    /// Ensures that a pending interrupt is handled: by the CPU, or by the caller while no thread
    /// is that CPU.
    pub(crate) fn settle(&self) {
        // ORDERING: SeqCst; pairs with [host-leave].
        while self.pending.0.load(Ordering::SeqCst) != 0 {
            match self.exchange_state(ABSENT, SERVED) {
                Ok(_) => self.serve_absent(ABSENT),
                Err(RUNNING | BORROWED) => return self.wake_to_serve(),
                Err(AWAY) => {
                    if self.exchange_state(AWAY, SERVED_AWAY).is_ok() {
                        self.serve_absent(AWAY);
                    }
                }
                // Whoever serves looks at the flag again after it has given the CPU up.
                Err(_) => return,
            }
        }
    }

    // ORDERING: SeqCst; pairs with [host-leave].
    fn exchange_state(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.state
            .0
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// Runs the handler in the context of this CPU, which the caller has just made its own, and
    /// gives it back as `state`.
    fn serve_absent(&self, state: u32) {
        /// Gives the CPU up and the thread its own context back, also when the handler panics.
        struct Return<'a>(&'a HostCx, *const HostCx, u32);
        impl Drop for Return<'_> {
            fn drop(&mut self) {
                reinstall(self.1);
                // ORDERING: SeqCst; pairs with [host-leave].
                self.0.state.0.store(self.2, Ordering::SeqCst);
            }
        }
        let _return = Return(self, self.install(), state);
        self.serve();
    }

    fn serve(&self) {
        /// Turns interrupts on again, also when the handler panics.
        struct On<'a>(&'a HostCx);
        impl Drop for On<'_> {
            fn drop(&mut self) {
                let off = &self.0.cx.irq_off;
                off.set(off.get().saturating_sub(1));
            }
        }
        self.cx.irq_off.set(self.cx.irq_off.get() + 1);
        let _on = On(self);
        // ORDERING: SeqCst; pairs with [host-leave] and [host-sleep].
        while self.pending.0.swap(0, Ordering::SeqCst) != 0 {
            let handler = self.handler.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(Handler(IpiHandler { call, arg })) = *handler {
                // SAFETY: it is called on the interrupted CPU, interrupts off, as its setter asks.
                unsafe { call(arg) };
            }
        }
    }

    /// Sets the CPU's copy of the handler; waits for a call that is under way.
    pub(crate) fn set_handler(&self, handler: Option<Handler>) {
        *self.handler.write().unwrap_or_else(PoisonError::into_inner) = handler;
    }

    /// Whether a thread is the CPU now.
    pub(crate) fn is_entered(&self) -> bool {
        matches!(self.state.0.load(Ordering::Relaxed), RUNNING | BORROWED)
    }

    /// The calling thread becomes the CPU, which must be absent.
    pub(crate) fn become_cpu(&self) {
        loop {
            match self.exchange_state(ABSENT, RUNNING) {
                Ok(_) => break,
                Err(SERVED | BORROWED) => std::thread::yield_now(),
                Err(_) => panic!("CPU {} is run by another thread already", self.cx.cpu.get()),
            }
        }
        self.install();
    }

    /// The calling thread is no longer the CPU.
    pub(crate) fn give_up(&self) {
        reinstall(ptr::null());
        self.give_back();
        if let Some(instance) = self.instance() {
            instance.settle_jobs();
        }
    }

    /// Nobody is the CPU any more. Jobs that wait are the caller's to look at.
    pub(crate) fn give_back(&self) {
        // ORDERING: SeqCst; pairs with [host-leave] and [host-jobs].
        self.state.0.store(ABSENT, Ordering::SeqCst);
        self.settle();
    }

    /// The CPU is the caller's for as long as it runs jobs, if it is nobody's.
    pub(crate) fn borrow(&self) -> bool {
        loop {
            // ORDERING: SeqCst; pairs with [host-jobs].
            match self.exchange_state(ABSENT, BORROWED) {
                Ok(_) => return true,
                // For a moment only, and who serves does not look for jobs.
                Err(SERVED) => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
    }

    /// Calls `call`, which may take as long as the host likes, and needs no CPU: interrupts of this
    /// one are served by their senders meanwhile. The caller owns the context, with interrupts on.
    pub(crate) fn away<R>(&self, call: impl FnOnce() -> R) -> R {
        /// Makes the thread the CPU again, also when the call panics.
        struct Return<'a>(&'a HostCx);
        impl Drop for Return<'_> {
            fn drop(&mut self) {
                while self.0.exchange_state(AWAY, RUNNING).is_err() {
                    std::thread::yield_now();
                }
                self.0.install();
            }
        }
        if self.instance().is_none() {
            return call();
        }
        reinstall(ptr::null());
        // ORDERING: SeqCst; pairs with [host-leave].
        self.state.0.store(AWAY, Ordering::SeqCst);
        self.settle();
        let back = Return(self);
        let result = call();
        drop(back);
        self.poll();
        result
    }
}
