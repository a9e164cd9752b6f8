//! Exclusive access of one host thread to an instance.
#![expect(
    clippy::disallowed_types,
    reason = "it belongs to the host, not to the simulated machine: no simulated context sees it"
)]

use minflt_sync::Ordering;
use minflt_sync::prim::AtomicU32;

/// Whether a run is under way.
#[derive(Debug, Default)]
pub(crate) struct Lease(AtomicU32);

impl Lease {
    /// Takes it.
    ///
    /// # Panics
    /// If it is taken.
    pub(crate) fn take(&self) {
        // ORDERING: Acquire; pairs with [sim-lease].
        let before = self.0.swap(1, Ordering::Acquire);
        assert_eq!(before, 0, "a run is under way on this instance");
    }

    /// Gives it back.
    pub(crate) fn give_back(&self) {
        // ORDERING: Release; pairs with [sim-lease].
        self.0.store(0, Ordering::Release);
    }
}
