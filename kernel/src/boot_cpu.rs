//! A variable of the boot CPU.

use core::cell::{Cell, UnsafeCell};

/// A value that the boot CPU uses while it sets up the machine, one borrower at a time.
///
/// A second borrow, from a trap in the middle of the first, is a panic: the flag is the lock, and
/// on one CPU it need not be atomic.
#[derive(Debug)]
pub(crate) struct BootCpu<T> {
    busy: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: (1) the boot CPU alone uses such variables, so accesses never run at the same time, only
// nested in a trap, and the flag refuses those.
unsafe impl<T: Send> Sync for BootCpu<T> {}

impl<T> BootCpu<T> {
    /// A variable with its first value.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            busy: Cell::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Lends the value for the call of `work`.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        assert!(
            !self.busy.replace(true),
            "a variable of the kernel is in use"
        );
        // SAFETY: (1) the flag was clear, so no other borrow is alive; a panic ends the kernel.
        let value = unsafe { &mut *self.value.get() };
        let result = work(value);
        self.busy.set(false);
        result
    }
}
