//! Lock order and lock contexts, checked at run time where [`Machine::CHECKED`].
//!
//! # Problem
//! A deadlock by inverted order shows in one schedule of thousands; the inverted order itself is
//! there in every run.
//!
//! # Idea
//! Each lock has a class, the classes stand in one order ([`order`]), and a context remembers what
//! it holds. Waiting for a lock whose class does not come after all held ones is a violation, in
//! whatever schedule.
//!
//! # Protocol
//! Locks call [`acquire`] before they wait or after a successful try, and [`release`] after they
//! let go. A try adds no wait edge, so it may be made in any order.
//!
//! # Why it is correct
//! The memory of held locks belongs to the context: its own task touches it, and interrupt handlers
//! on top of that, which let go what they take. A slot at or above the length is empty. So a lock
//! is added by raising the length first: a handler in between takes the slots above, and finds an
//! empty one below. It is removed in the opposite order.
//!
//! # Cost
//! Nothing where `CHECKED` is false: the constant folds the calls away.

pub mod order;

use crate::machine::Machine;
use crate::prim::{Ordering, compiler_fence};
use core::cell::Cell;
use core::panic::Location;
pub use order::Rank;

/// How a lock of a class is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// The waiter sleeps: never with interrupts off or a spinning lock held.
    Sleeps,
    /// The waiter spins.
    Spins,
    /// The waiter spins, and only with interrupts on: a holder may be waiting for every CPU to
    /// acknowledge an invalidation.
    SpinsWithIrqsOn,
}

/// A class of locks: a place in the order.
pub trait Class: Copy + Send + Sync + core::fmt::Debug + 'static {
    /// The place.
    const RANK: Rank;
    /// How it is waited for.
    const WAITING: Waiting;
}

/// How a lock is being taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The caller will wait as long as it takes.
    Wait,
    /// The same, beside one of the same class: of the two this comes later, in an order that the
    /// caller knows.
    Second,
    /// The caller has it already, by a try.
    Tried,
}

const DEPTH: usize = 12;

#[derive(Clone, Copy, Debug)]
struct Held {
    rank: Rank,
    waiting: Waiting,
    lock: *const (),
    at: &'static Location<'static>,
}

/// The locks one context holds, in the order taken.
#[derive(Debug)]
pub struct HeldLocks {
    stack: [Cell<Option<Held>>; DEPTH],
    len: Cell<usize>,
}

impl HeldLocks {
    pub(crate) const fn new() -> Self {
        Self {
            stack: [const { Cell::new(None) }; DEPTH],
            len: Cell::new(0),
        }
    }

    /// How many locks are held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.len.get()
    }

    fn iter(&self) -> impl Iterator<Item = Held> + '_ {
        self.stack.iter().take(self.len.get()).filter_map(Cell::get)
    }

    fn push(&self, held: Held) -> Result<(), ()> {
        self.push_around(held, || {})
    }

    /// The same; a handler may run where `between` stands.
    fn push_around(&self, held: Held, between: impl FnOnce()) -> Result<(), ()> {
        let len = self.len.get();
        let slot = self.stack.get(len).ok_or(())?;
        self.len.set(len + 1);
        // ORDERING: of the compiler only, SeqCst; pairs with [held-slot].
        compiler_fence(Ordering::SeqCst);
        between();
        slot.set(Some(held));
        Ok(())
    }

    fn take(&self, lock: *const ()) -> bool {
        let len = self.len.get();
        let Some(at) = (0..len)
            .rev()
            .find(|i| self.stack[*i].get().is_some_and(|h| h.lock == lock))
        else {
            return false;
        };
        for i in at..len - 1 {
            self.stack[i].set(self.stack[i + 1].get());
        }
        self.stack[len - 1].set(None);
        // ORDERING: of the compiler only, SeqCst; pairs with [held-slot]: a handler that runs
        // before this takes the slot above, one that runs after it finds this one empty.
        compiler_fence(Ordering::SeqCst);
        self.len.set(len - 1);
        true
    }
}

/// The context takes `lock`, of class `C`.
#[inline(always)]
pub fn acquire<C: Class, M: Machine>(lock: *const (), how: How, at: &'static Location<'static>) {
    if M::CHECKED {
        acquire_checked::<C, M>(lock, how, at);
    }
}

/// The context has let `lock` go.
#[inline(always)]
pub fn release<C: Class, M: Machine>(lock: *const ()) {
    if M::CHECKED {
        // SAFETY: duty 1 of `Machine`.
        let cx = unsafe { &*M::cx() };
        if !cx.held.take(lock) {
            M::violation(format_args!(
                "{:?} released by a context that does not hold it",
                C::RANK
            ));
        }
    }
}

/// The context is about to sleep or to wait for a grace period.
#[inline(always)]
#[track_caller]
pub fn might_sleep<M: Machine>() {
    if M::CHECKED {
        // SAFETY: duty 1 of `Machine`.
        let cx = unsafe { &*M::cx() };
        let at = Location::caller();
        if cx.irq_off.get() > 0 {
            M::violation(format_args!("sleeps at {at} with interrupts off"));
        }
        if cx.rcu_depth.get() > 0 {
            M::violation(format_args!("sleeps at {at} inside an RCU read section"));
        }
        if let Some(held) = cx.held.iter().find(|h| h.waiting != Waiting::Sleeps) {
            M::violation(format_args!(
                "sleeps at {at} while it holds {:?}, taken at {}",
                held.rank, held.at
            ));
        }
    }
}

/// The context is about to do what may need any lock, and the end of any read section.
#[inline(always)]
#[track_caller]
pub fn holds_nothing<M: Machine>() {
    might_sleep::<M>();
    if M::CHECKED {
        // SAFETY: duty 1 of `Machine`.
        let cx = unsafe { &*M::cx() };
        let at = Location::caller();
        if let Some(held) = cx.held.iter().next() {
            M::violation(format_args!(
                "{at} may need any lock, and {:?} is held, taken at {}",
                held.rank, held.at
            ));
        }
        if cx.read_sections.get() > 0 {
            M::violation(format_args!(
                "{at} may need any lock, inside a read section"
            ));
        }
    }
}

/// The context is about to return to user mode, or to let another one of its CPU run.
#[inline(always)]
pub fn leaves_kernel<M: Machine>() {
    if M::CHECKED {
        // SAFETY: duty 1 of `Machine`.
        let cx = unsafe { &*M::cx() };
        if cx.rcu_depth.get() > 0 {
            M::violation(format_args!(
                "returns to user mode inside an RCU read section"
            ));
        }
    }
}

/// The context is about to wait for other CPUs to acknowledge an interrupt.
#[inline(always)]
#[track_caller]
pub fn waits_for_cpus<M: Machine>() {
    if M::CHECKED {
        // SAFETY: duty 1 of `Machine`.
        let cx = unsafe { &*M::cx() };
        if cx.irq_off.get() > 0 {
            let at = Location::caller();
            M::violation(format_args!(
                "waits for other CPUs at {at} with interrupts off"
            ));
        }
    }
}

#[cold]
fn acquire_checked<C: Class, M: Machine>(
    lock: *const (),
    how: How,
    at: &'static Location<'static>,
) {
    // SAFETY: duty 1 of `Machine`.
    let cx = unsafe { &*M::cx() };
    if how != How::Tried {
        let mut first = how == How::Second;
        let out_of_order = |held: &Held| {
            // One of the same class is before it; no other.
            let excused = held.rank == C::RANK && core::mem::take(&mut first);
            held.rank >= C::RANK && !excused
        };
        if let Some(held) = cx.held.iter().find(out_of_order) {
            M::violation(format_args!(
                "lock order: waits for {:?} at {at} while it holds {:?}, taken at {}",
                C::RANK,
                held.rank,
                held.at
            ));
        }
        let irqs_off = cx.irq_off.get() > 0;
        if irqs_off && C::WAITING != Waiting::Spins {
            M::violation(format_args!(
                "waits for {:?} at {at} with interrupts off",
                C::RANK
            ));
        }
        if C::WAITING == Waiting::Sleeps && cx.rcu_depth.get() > 0 {
            M::violation(format_args!(
                "may sleep for {:?} at {at} inside an RCU read section",
                C::RANK
            ));
        }
        if C::WAITING == Waiting::Sleeps
            && let Some(held) = cx.held.iter().find(|held| held.waiting != Waiting::Sleeps)
        {
            M::violation(format_args!(
                "may sleep for {:?} at {at} while it holds {:?}, taken at {}",
                C::RANK,
                held.rank,
                held.at
            ));
        }
    }
    let held = Held {
        rank: C::RANK,
        waiting: C::WAITING,
        lock,
        at,
    };
    if cx.held.push(held).is_err() {
        M::violation(format_args!("{at}: more than {DEPTH} locks held"));
    }
}

#[cfg(test)]
mod tests {
    use super::{Held, HeldLocks, Rank, Waiting};
    use core::panic::Location;

    fn held(lock: &u8) -> Held {
        Held {
            rank: Rank::PageTableLock,
            waiting: Waiting::Spins,
            lock: core::ptr::from_ref(lock).cast(),
            at: Location::caller(),
        }
    }

    #[test]
    fn a_handler_in_the_middle_of_an_addition_does_not_take_its_slot() {
        let locks = HeldLocks::new();
        let [first, second, of_handler] = [1_u8, 2, 3];
        locks.push(held(&first)).expect("room");
        let handler = || {
            locks.push(held(&of_handler)).expect("room");
            assert!(locks.iter().count() <= 3);
            assert!(locks.take(held(&of_handler).lock));
        };
        locks.push_around(held(&second), handler).expect("room");
        assert_eq!(locks.count(), 2);
        assert!(locks.take(held(&first).lock));
        assert!(locks.take(held(&second).lock));
        assert!(!locks.take(held(&second).lock));
        assert_eq!(locks.count(), 0);
    }
}
