//! What a side is: address spaces, and the calls that threads make in them.

use crate::common::machine::PAGE;

/// Pages that the rounds of first touches use, each thread.
pub(crate) const PAGES: u64 = 8 << 10;
/// Memory of a side: for two threads' pages, tables and descriptors.
pub(crate) const MEMORY: u64 = 2 * PAGES * PAGE + (48 << 20);

/// One of those compared.
pub(crate) trait Side: Sync {
    /// An address space.
    type Space<'a>: Space + Sync
    where
        Self: 'a;

    /// As the tables name it.
    fn name(&self) -> String;

    /// A new address space, while no other exists.
    fn space(&self, pages: Pages) -> Self::Space<'_>;

    /// Bytes in use for what describes mappings.
    fn bytes(&self, space: &Self::Space<'_>) -> u64;
}

/// What first touches find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    /// Any pages: the row has no first touches.
    Any,
    /// Pages that a fault has to clear: every free one was written to.
    Used,
    /// Clear pages: every free one was cleared beforehand.
    Clear,
}

/// An address space of one side.
pub(crate) trait Space: Sized {
    /// A thread in it, on a CPU.
    type User<'u>: User
    where
        Self: 'u;

    /// Runs `run` as a thread on `cpu`.
    fn on<R>(&self, cpu: u32, run: impl FnOnce(&Self::User<'_>) -> R) -> R;

    /// A child with the same contents. Called by a thread that [`Space::on`] runs.
    fn fork(&self) -> Self;
}

/// A thread's calls. Each fails the bench if it fails.
pub(crate) trait User {
    /// Maps private memory where there is room.
    fn mmap(&self, len: u64) -> u64;
    /// The same at an address that is free.
    fn mmap_at(&self, at: u64, len: u64);
    fn munmap(&self, at: u64, len: u64);
    fn mprotect(&self, at: u64, len: u64, writable: bool);
    /// What a trap calls for the first store to a page.
    fn fault(&self, at: u64);
    /// A store to the first word of a page, as the CPU does it: looked up in the page tables,
    /// after a fault if they do not allow it.
    fn store(&self, at: u64, value: u64);
    /// A load of the first word of a page that was stored to.
    fn load(&self, at: u64) -> u64;
}
