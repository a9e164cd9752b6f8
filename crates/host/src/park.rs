//! Sleeping and waking.
//!
//! # Problem
//! A sleeper must wake for its token, whenever that was left, and for an interrupt, which is not a
//! token: the caller of `park` must not take it for one.
//!
//! # Idea
//! One futex word for each context, and the interrupt's flag beside it. Most tokens come within
//! microseconds, and a futex's wake costs more than that: so a context that has nothing to run
//! looks at its word for a while, as an idle processor does before it halts, and sleeps then.
//!
//! # Protocol
//! ```text
//! sleep   AWAKE, POLLING, ASLEEP or TOKEN
//!
//! park                              unpark                    interrupt
//! serve if pending                  sleep := TOKEN            pending = 1
//! AWAKE->POLLING; TOKEN? take it    was ASLEEP? wake          ASLEEP->AWAKE? wake
//! some looks: TOKEN? take it
//!             pending? ->AWAKE, again
//! POLLING->ASLEEP; TOKEN? take it
//! pending? ->AWAKE, again
//! wait while ASLEEP, again
//! ```
//!
//! # Why it is correct
//! A token is exchanged in and out, so none is lost. The sleeper says ASLEEP, then reads the flag;
//! the sender sets the flag, then reads the word; all sequentially consistent, so one sees the
//! other. The host's futex compares the word and goes to sleep in one step. Who polls reads both by
//! himself, and needs no wake.
//!
//! # Cost
//! A token already there, or soon: one exchange or two. Otherwise the looks, and one system call on
//! either side.
//!
//! Linux: drivers/cpuidle/poll_state.c, cpuidle-haltpoll (v6.12).

use crate::context::HostCx;
use crate::machine::spin;
use core::ptr;
use minflt_sync::Ordering;
use minflt_sync::prim::AtomicU32;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const TOKEN: u32 = 2;
const POLLING: u32 = 3;

/// Looks before a context sleeps: some microseconds, about what a futex's sleep and wake take.
const LOOKS: u32 = 200;

impl HostCx {
    /// Sleeps until a token is left. The caller owns the context.
    pub(crate) fn park(&self) {
        self.parked.set(true);
        self.wait_for_token(None);
        self.parked.set(false);
    }

    /// Sleeps until a token is left, or the instance's clock is `until_ns`. The caller owns the
    /// context.
    pub(crate) fn park_until(&self, until_ns: u64) {
        self.parked.set(true);
        self.wait_for_token(Some(until_ns));
        self.parked.set(false);
    }

    fn wait_for_token(&self, until_ns: Option<u64>) {
        let Some(instance) = self.instance() else {
            panic!("set-up code would sleep: become a CPU first, `HostInstance::enter`");
        };
        loop {
            self.poll();
            instance.stop_if_failed();
            if self.exchange(AWAKE, POLLING).is_err() {
                // Only a token can be there, and only its owner takes it.
                self.sleep.swap(AWAKE, Ordering::Acquire);
                return;
            }
            let left = until_ns.map(|until| until.saturating_sub(instance.now_ns()));
            if left == Some(0) {
                if self.exchange(POLLING, AWAKE).is_err() {
                    // A token came at the last moment.
                    self.sleep.swap(AWAKE, Ordering::Acquire);
                }
                return;
            }
            let interrupted = self.look();
            let to = if interrupted { AWAKE } else { ASLEEP };
            if self.exchange(POLLING, to).is_err() || interrupted {
                continue;
            }
            // ORDERING: SeqCst; pairs with [host-sleep].
            if self.pending.0.load(Ordering::SeqCst) == 0 && !instance.has_failed_fenced() {
                futex_wait(&self.sleep, ASLEEP, left);
            }
            // ORDERING: Acquire; pairs with [host-token]. A token stays for the next turn.
            let _ =
                self.sleep
                    .compare_exchange(ASLEEP, AWAKE, Ordering::Acquire, Ordering::Acquire);
        }
    }

    // ORDERING: SeqCst; pairs with [host-sleep]; Acquire of what came before the token.
    fn exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.sleep
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// Looks for a token or an interrupt for a while; whether there is an interrupt.
    fn look(&self) -> bool {
        for _ in 0..LOOKS {
            if self.sleep.load(Ordering::Relaxed) != POLLING {
                return false;
            }
            if self.pending.0.load(Ordering::Relaxed) != 0 {
                return true;
            }
            spin();
        }
        false
    }

    /// Leaves a token. Anybody may call this.
    pub(crate) fn unpark(&self) {
        // ORDERING: SeqCst; pairs with [host-token]: what came before the token.
        if self.sleep.swap(TOKEN, Ordering::SeqCst) == ASLEEP {
            futex_wake(&self.sleep);
        }
    }

    /// Wakes the CPU, if it sleeps, without leaving a token.
    pub(crate) fn wake_to_serve(&self) {
        // ORDERING: SeqCst; pairs with [host-sleep].
        let woken = self
            .sleep
            .compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::SeqCst);
        if woken.is_ok() {
            futex_wake(&self.sleep);
        }
    }

    /// Whether its owner, which the caller is, has no task to go back to after an interrupt.
    pub(crate) fn is_idle(&self) -> bool {
        self.parked.get() || !self.is_entered()
    }

    /// Whether the CPU sleeps, or is about to. A guess.
    pub(crate) fn is_asleep(&self) -> bool {
        let now = self.sleep.load(Ordering::Relaxed);
        now == ASLEEP || now == POLLING
    }
}

/// Sleeps while `word` is `value`, for `ns` nanoseconds at most, if any; may return early.
fn futex_wait(word: &AtomicU32, value: u32, ns: Option<u64>) {
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // Longer than anybody waits.
    let spec = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000).min(1 << 30) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    let left = ns.map(spec);
    let timeout = left.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word and the time outlive the call, and the host only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, timeout) };
}

/// Wakes the sleeper at `word`, if there is one.
fn futex_wake(word: &AtomicU32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is only an address to this call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, 1) };
}
