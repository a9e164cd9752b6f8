//! mlock, munlock, mlockall and munlockall: pages that are faulted in and stay resident.
//!
//! # Problem
//! A program that must not wait for a page needs resident pages; the system limits their number.
//!
//! # Idea
//! A flag of the mapping keeps its pages resident. The number of pages in such mappings is one
//! counter of the address space, which is compared with the limit.
//!
//! # Protocol
//! `mmap_lock` for writing; for each VMA a write section, in which its flags change; then the
//! counter. The pages are faulted in after the lock was released, under `mmap_lock` for reading.
//! Mapping and unmapping count by [`Mm::count_mapped`] and [`Mm::count_unmapped`].
//!
//! # Why it is correct
//! The counter changes with the flags in one critical section of `mmap_lock`, at whose end it is
//! the sum over the mappings, which the ledger checks. A concurrent fault sees the flags of before
//! or after, and treats both alike: it maps a locked page like any other.
//!
//! # Cost
//! A word of the address space, which no fault reads.
//!
//! Linux: mm/mlock.c (v6.18).

use super::populate::{Failure, NotPopulated, to_lock};
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::{MlockError, NoMemory};
use crate::base::event::Event;
use crate::call::thread::Thread;
use crate::change::modify::modify;
use crate::change::writers::Writers;
use crate::memory::commit::Pages;
use crate::memory::lifetime::as_call;
use crate::memory::locks::{Kind, LockWhen};
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use crate::space::vma::VmaPtr;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// What mlockall shall do: a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockAll(u32);

impl LockAll {
    /// Lock what is mapped (`MCL_CURRENT`).
    pub const CURRENT: Self = Self(1);
    /// Lock what will be mapped (`MCL_FUTURE`).
    pub const FUTURE: Self = Self(2);
    /// Pages are faulted in when they are touched (`MCL_ONFAULT`).
    pub const ON_FAULT: Self = Self(4);

    /// The set that Linux's number stands for; mlockall refuses unknown bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// With those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn is_valid(self) -> bool {
        let known = Self::CURRENT.with(Self::FUTURE).with(Self::ON_FAULT);
        self.0 & !known.0 == 0 && self.has(Self::CURRENT.with(Self::FUTURE))
    }
}

impl<M: Mmu> Mm<M> {
    /// Locked pages of `range`.
    fn locked_in(held: Held<'_, M>, range: VirtRange) -> u64 {
        let mut pages = 0;
        let mut at = range.start();
        while at < range.end()
            && let Some(view) = held.find(at).map(Vma::view)
        {
            let part = view.range.intersect(range);
            if part.is_empty() {
                break;
            }
            pages += Pages::of::<M>(&view.of_range::<M::Paging>(part)).locked;
            at = part.end();
        }
        pages
    }

    /// Locks or unlocks what is mapped in `range`, up to the first hole, and counts it.
    fn set_locked(
        &self,
        writers: Writers<'_, M>,
        range: VirtRange,
        kind: Kind,
    ) -> Result<(), NoMemory> {
        let mut change = 0;
        let result = self.set_locked_flags(&writers, range, kind, &mut change);
        if self.system().lacks(NegativeControl::LockedCountLate) {
            drop(writers);
            self.count_locked(change);
        } else {
            self.count_locked(change);
            drop(writers);
        }
        result
    }

    /// The flags only; adds up by how much the count is to change.
    ///
    /// Linux: apply_vma_lock_flags.
    fn set_locked_flags(
        &self,
        writers: &Writers<'_, M>,
        range: VirtRange,
        kind: Kind,
        change: &mut i64,
    ) -> Result<(), NoMemory> {
        let mut at = range.start();
        while at < range.end() {
            let vma = writers.held().find(at).ok_or(NoMemory)?;
            let whole = vma.view().range;
            if !whole.contains(at) {
                return Err(NoMemory);
            }
            let part = VirtRange::new(at, whole.end().min(range.end()));
            *change += self.set_locked_in(writers, vma.into(), part, kind)?;
            at = part.end();
        }
        Ok(())
    }

    /// The same of one mapping; returns the change. Linux: mlock_fixup.
    fn set_locked_in(
        &self,
        writers: &Writers<'_, M>,
        vma: VmaPtr<'_, M>,
        part: VirtRange,
        kind: Kind,
    ) -> Result<i64, NoMemory> {
        let view = vma.get().view();
        let flags = view.flags.without(Kind::BOTH).with(kind.flags());
        // Huge pages are always resident, and not counted.
        if flags == view.flags || view.is_huge() {
            return Ok(0);
        }
        modify(writers, vma, part, |view| VmaView { flags, ..view }).map(drop)?;
        let pages = part.pages(M::Paging::shift()) as i64;
        Ok(match (view.flags.has(VmaFlags::LOCKED), kind) {
            (false, Kind::Locked(_)) => pages,
            (true, Kind::Not) => -pages,
            _ => 0,
        })
    }
}

/// Bytes of the pages that `len` bytes from `start` on touch. A length that wraps when it is
/// rounded up is none, as in Linux.
fn touched_bytes<M: Mmu>(start: VirtAddr, len: u64) -> u64 {
    let mask = M::Paging::page() - 1;
    len.wrapping_add(start.0 & mask).wrapping_add(mask) & !mask
}

/// Those pages.
fn touched<M: Mmu>(start: VirtAddr, len: u64) -> Result<VirtRange, MlockError> {
    let first = start.align_down(M::Paging::shift());
    let bytes = touched_bytes::<M>(start, len);
    VirtRange::from_len(first, bytes).ok_or(MlockError::Invalid)
}

impl<M: Mmu> Mm<M> {
    /// Locks the pages that `len` bytes from `start` on touch, and faults them in.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing, and then, to populate, for reading.
    ///
    /// # Errors
    /// See [`MlockError`]. What lies before a hole is locked; after [`MlockError::Again`], and
    /// where a mapping allows no access, all of it.
    pub fn mlock(&self, start: VirtAddr, len: u64) -> Result<(), MlockError> {
        self.mlock2(start, len, LockWhen::Now)
    }

    /// The same; says when pages are faulted in.
    ///
    /// # Context
    /// As [`Mm::mlock`].
    ///
    /// # Errors
    /// As [`Mm::mlock`].
    pub fn mlock2(&self, start: VirtAddr, len: u64, when: LockWhen) -> Result<(), MlockError> {
        self.for_no_thread(|share| self.lock_touched(share, start, len, when))
    }

    fn lock_touched(
        &self,
        share: &Share,
        start: VirtAddr,
        len: u64,
        when: LockWhen,
    ) -> Result<(), MlockError> {
        as_call(self.system(), || {
            self.system().count(Event::Mlock);
            self.system().with_memory(|| {
                if !self.can_lock() {
                    return Err(MlockError::NotPermitted);
                }
                let range = touched::<M>(start, len);
                let pages = touched_bytes::<M>(start, len) >> M::Paging::shift();
                let writers = Writers::lock(self, self.over_locked(range.ok()));
                // Some may be locked already.
                let fresh =
                    || pages - range.map_or(0, |range| Self::locked_in(writers.held(), range));
                if !self.can_lock_more(pages) && !self.can_lock_more(fresh()) {
                    return Err(MlockError::NoMemory);
                }
                let range = range?;
                let locked = self.set_locked(writers, range, Kind::Locked(when));
                locked.map_err(|NoMemory| MlockError::NoMemory)?;
                M::note(format_args!("mlock {range} populates"));
                let populated = self.populate_mapped(share, range, Failure::Ends, to_lock);
                populated.map_err(|why| match why {
                    // Linux: __mlock_posix_error_return.
                    NotPopulated::Refused | NotPopulated::Hole | NotPopulated::Bus => {
                        MlockError::NoMemory
                    }
                    NotPopulated::NoMemory => MlockError::Again,
                })
            })
        })
    }

    /// Unlocks the pages that `len` bytes from `start` on touch. They stay where they are.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing.
    ///
    /// # Errors
    /// See [`MlockError`]. What lies before a hole is unlocked.
    pub fn munlock(&self, start: VirtAddr, len: u64) -> Result<(), MlockError> {
        as_call(self.system(), || {
            self.system().count(Event::Mlock);
            self.system().with_memory(|| {
                let range = touched::<M>(start, len)?;
                let writers = Writers::lock(self, self.over(range));
                self.set_locked(writers, range, Kind::Not)
                    .map_err(|NoMemory| MlockError::NoMemory)
            })
        })
    }

    /// Locks all current or all future mappings, or both; future mappings are not locked unless
    /// requested.
    ///
    /// # Context
    /// As [`Mm::mlock`].
    ///
    /// # Errors
    /// See [`MlockError`]; nothing is changed then. A mapping that could not be locked, or a page
    /// that could not be faulted in, is no error.
    pub fn mlockall(&self, what: LockAll) -> Result<(), MlockError> {
        self.for_no_thread(|share| self.lock_everything(share, what))
    }

    fn lock_everything(&self, share: &Share, what: LockAll) -> Result<(), MlockError> {
        as_call(self.system(), || {
            self.system().count(Event::Mlock);
            if !what.is_valid() {
                return Err(MlockError::Invalid);
            }
            if !self.can_lock() {
                return Err(MlockError::NotPermitted);
            }
            let writers = Writers::lock(self, Over::All);
            let all = self.mapped_bytes() >> M::Paging::shift();
            let current = what.has(LockAll::CURRENT);
            if current && all > self.limit_memlock() >> M::Paging::shift() {
                return Err(MlockError::NoMemory);
            }
            self.lock_all(&writers, what);
            drop(writers);
            if current {
                let user = VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::user_end()));
                // Linux ignores pages that cannot be faulted in.
                let _some = self.populate_mapped(share, user, Failure::Skips, to_lock);
            }
            Ok(())
        })
    }

    /// Unlocks all that is mapped; what will be is not locked either.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing.
    pub fn munlockall(&self) {
        as_call(self.system(), || {
            self.system().count(Event::Mlock);
            let writers = Writers::lock(self, Over::All);
            self.locks.set_future(Kind::Not);
            self.lock_each(&writers, Kind::Not);
        });
    }
}

impl<M: Mmu> Thread<'_, M> {
    /// Locks pages, and faults them in; see [`Mm::mlock`].
    ///
    /// # Context
    /// As [`Mm::mlock`].
    ///
    /// # Errors
    /// As [`Mm::mlock`].
    pub fn mlock(&self, start: VirtAddr, len: u64) -> Result<(), MlockError> {
        self.mlock2(start, len, LockWhen::Now)
    }

    /// The same; says when pages are faulted in.
    ///
    /// # Context
    /// As [`Mm::mlock`].
    ///
    /// # Errors
    /// As [`Mm::mlock`].
    pub fn mlock2(&self, start: VirtAddr, len: u64, when: LockWhen) -> Result<(), MlockError> {
        self.mm().lock_touched(&self.share, start, len, when)
    }

    /// Locks all that is mapped, or will be; see [`Mm::mlockall`].
    ///
    /// # Context
    /// As [`Mm::mlock`].
    ///
    /// # Errors
    /// As [`Mm::mlockall`].
    pub fn mlockall(&self, what: LockAll) -> Result<(), MlockError> {
        self.mm().lock_everything(&self.share, what)
    }
}

impl<M: Mmu> Mm<M> {
    /// Linux: apply_mlockall_flags.
    fn lock_all(&self, writers: &Writers<'_, M>, what: LockAll) {
        let kind = Kind::Locked(if what.has(LockAll::ON_FAULT) {
            LockWhen::OnFault
        } else {
            LockWhen::Now
        });
        let future = what.has(LockAll::FUTURE);
        let new = if future { kind } else { Kind::Not };
        self.locks.set_future(new);
        if what.has(LockAll::CURRENT) {
            self.lock_each(writers, kind);
        }
    }

    /// Locks or unlocks every mapping. One that cannot be is passed over, as in Linux.
    fn lock_each(&self, writers: &Writers<'_, M>, kind: Kind) {
        let mut at = VirtAddr(0);
        while let Some(vma) = writers.held().find(at) {
            let whole = vma.view().range;
            let change = self.set_locked_in(writers, vma.into(), whole, kind);
            self.count_locked(change.unwrap_or(0));
            at = whole.end();
        }
    }
}
