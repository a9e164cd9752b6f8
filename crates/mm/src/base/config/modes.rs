//! What a fallback order consists of.

use super::FallbackOrder;

/// A lock mode of the fallback order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// No lock: lookup in a read section, validated by a sequence count.
    Speculative,
    /// The VMA lock, a read trylock.
    VmaLock,
    /// `mmap_lock` for reading.
    Mmap,
}

/// How a VMA is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VmaLockBy {
    /// A read-write semaphore. A VMA without an anon_vma is not locked (Linux 6.4).
    Rwsem,
    /// A reference count. A fault checks for the anon_vma only when it needs one (since Linux
    /// 6.10).
    Count,
    /// A lock supplied by the embedder ([`own_lock`](super::Config::own_lock)); the anon_vma is
    /// checked as with the count.
    Own,
}

impl FallbackOrder {
    /// The lock modes, in fallback order.
    #[must_use]
    pub const fn modes(self) -> &'static [LockMode] {
        match self {
            Self::Mmap => &[LockMode::Mmap],
            Self::SpeculativeMmap => &[LockMode::Speculative, LockMode::Mmap],
            Self::Speculative => &[LockMode::Speculative],
            Self::VmaRwsemMmap | Self::VmaCountMmap | Self::VmaOwnMmap => {
                &[LockMode::VmaLock, LockMode::Mmap]
            }
        }
    }

    /// How faults lock VMAs, if they do.
    #[must_use]
    pub const fn vma_lock(self) -> Option<VmaLockBy> {
        match self {
            Self::VmaRwsemMmap => Some(VmaLockBy::Rwsem),
            Self::VmaCountMmap => Some(VmaLockBy::Count),
            Self::VmaOwnMmap => Some(VmaLockBy::Own),
            Self::Mmap | Self::SpeculativeMmap | Self::Speculative => None,
        }
    }

    /// Whether a fault may run without a lock.
    #[must_use]
    pub const fn speculates(self) -> bool {
        matches!(self, Self::SpeculativeMmap | Self::Speculative)
    }
}
