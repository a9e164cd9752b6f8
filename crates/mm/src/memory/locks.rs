//! Locked pages of an address space, and their limit (`RLIMIT_MEMLOCK`).

use crate::base::attrs::VmaFlags;
use crate::base::error::NoMemory;
use crate::mm::Mm;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Atomic, Ordering};

/// When the pages of a locked mapping are faulted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWhen {
    /// By the call.
    Now,
    /// When they are touched (`MLOCK_ONFAULT`).
    OnFault,
}

/// What an address space has locked, and may.
#[derive(Debug)]
pub(crate) struct Locks<M: Mmu> {
    /// Pages of locked mappings (`locked_vm`). Guarded by: `mmap_lock`.
    pages: Atomic<u64, M>,
    /// Bytes that may be locked (`RLIMIT_MEMLOCK`).
    limit: Atomic<u64, M>,
    /// How new mappings are locked: [`Kind`] (`def_flags`). Guarded by: `mmap_lock`.
    future: Atomic<u32, M>,
}

/// How a mapping is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Not,
    Locked(LockWhen),
}

impl Kind {
    pub(crate) const BOTH: VmaFlags = VmaFlags::LOCKED.with(VmaFlags::LOCKED_ON_FAULT);

    const fn number(self) -> u32 {
        match self {
            Self::Not => 0,
            Self::Locked(LockWhen::Now) => 1,
            Self::Locked(LockWhen::OnFault) => 2,
        }
    }

    const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Not,
            1 => Self::Locked(LockWhen::Now),
            _ => Self::Locked(LockWhen::OnFault),
        }
    }

    pub(crate) const fn flags(self) -> VmaFlags {
        match self {
            Self::Not => VmaFlags::NONE,
            Self::Locked(LockWhen::Now) => VmaFlags::LOCKED,
            Self::Locked(LockWhen::OnFault) => Self::BOTH,
        }
    }
}

impl<M: Mmu> Locks<M> {
    /// Nothing locked, no limit.
    pub(crate) fn new() -> Self {
        Self {
            pages: Atomic::new(0),
            limit: Atomic::new(u64::MAX),
            future: Atomic::new(Kind::Not.number()),
        }
    }

    /// How new mappings are locked from now on. The caller holds `mmap_lock` for writing.
    pub(crate) fn set_future(&self, kind: Kind) {
        self.future.store(kind.number(), Ordering::Relaxed);
    }

    /// Pages locked. The caller holds `mmap_lock`, or takes what it gets.
    fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Counts pages as locked, or as no longer so, by `add`. The caller holds `mmap_lock` for
    /// writing, or is alone.
    pub(crate) fn change(&self, change: i64, add: impl FnOnce(&Atomic<u64, M>, i64)) {
        if change != 0 {
            // The ledger is to find a count that went below zero, not this sum.
            add(&self.pages, change);
        }
    }

    /// Pages locked, without the door, for oracles.
    pub(crate) fn raw(&self) -> u64 {
        self.pages.peek()
    }
}

impl<M: Mmu> Mm<M> {
    /// How many bytes may be locked from now on (`RLIMIT_MEMLOCK`); `u64::MAX` for no limit, as at
    /// first, and for whoever is privileged (`CAP_IPC_LOCK`). What is locked stays so.
    pub fn set_limit_memlock(&self, bytes: u64) {
        self.locks.limit.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes may be locked.
    #[must_use]
    pub fn limit_memlock(&self) -> u64 {
        self.locks.limit.load(Ordering::Relaxed)
    }

    /// How many bytes are locked (`VmLck`).
    #[must_use]
    pub fn locked_bytes(&self) -> u64 {
        self.locks.pages() << M::Paging::shift()
    }

    /// Whether `pages` more locked pages may be mapped; none may always. The caller holds
    /// `mmap_lock`.
    ///
    /// # Errors
    /// When they may not.
    ///
    /// Linux: mlock_future_ok.
    pub(crate) fn may_lock(&self, pages: u64) -> Result<(), NoMemory> {
        if pages == 0 || self.can_lock_more(pages) {
            Ok(())
        } else {
            Err(NoMemory)
        }
    }

    /// Whether what is locked would be within the limit with `pages` more, be they none.
    pub(crate) fn can_lock_more(&self, pages: u64) -> bool {
        let all = self.locks.pages().saturating_add(pages);
        all <= self.limit_memlock() >> M::Paging::shift()
    }

    /// What the flags of a new mapping are besides its own (`MCL_FUTURE`). The caller holds
    /// `mmap_lock`.
    pub(crate) fn flags_of_new(&self) -> VmaFlags {
        Kind::from_number(self.locks.future.load(Ordering::Relaxed)).flags()
    }

    /// Whether anything may be locked. Linux: can_do_mlock.
    pub(crate) fn can_lock(&self) -> bool {
        self.limit_memlock() != 0
    }
}
