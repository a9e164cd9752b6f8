//! Operations of a userfaultfd handler: fills missing pages, and write-protects pages.
//!
//! # Problem
//! A handler that protects a page relies on its contents not to change: it copies the page, and
//! threads that store to it wait. A CPU with a cached writable translation would still change the
//! page, and the handler's copy would lack a store that has completed.
//!
//! # Idea
//! As in any call that removes permissions: write-protect the PTEs under their page-table locks,
//! flush TLBs, and only then return.
//!
//! # Protocol
//! `mmap_lock` for reading, so that faults run concurrently. PTEs under their page-table lock. Two
//! calls that protect the same range do not share a TLB flush: [`crate::entry::zap`].
//!
//! # Why it is correct
//! A store that begins after the call returned finds no writable translation, faults, and finds the
//! PTE's write-protect bit. Allowing stores clears the bit and does not make the PTE writable: the
//! next store faults, and is resolved as every store to a read-only page.
//!
//! # Cost
//! An exchange per PTE, one TLB flush.
//!
//! Linux: mm/userfaultfd.c mfill_atomic, mwriteprotect_range; 6ce64428d62 for the TLB flush.

use super::{Uffd, UffdMode, Wake, for_parts, whole_pages};
use crate::base::attrs::VmaFlags;
use crate::base::config::NegativeControl;
use crate::base::error::UffdError;
use crate::entry::translation;
use crate::entry::zap::Zap;
use crate::fault::userfault::{Fill, NotFilled};
use crate::memory::lifetime::as_call;
use crate::pages::userfault::WriteProtected;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Grant, Mmu, Paging, Pte};

impl<M: Mmu> Uffd<'_, M> {
    /// Fills holes from `to` on with pages that hold `from`, and wakes the threads that wait there.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading, page by page.
    ///
    /// # Errors
    /// `Invalid`: no whole pages, or protected where the mapping is not registered for
    /// write-protection. `NotWatched`: the range is not within one watched mapping. `Exists`: there
    /// is a page. `NoMemory`. `Partial`: one of these, after some pages were filled.
    pub fn copy(
        &self,
        to: VirtAddr,
        from: &[u8],
        protect: WriteProtected,
        wake: Wake,
    ) -> Result<(), UffdError> {
        let range = whole_pages::<M>(to, from.len() as u64)?;
        let needs = match protect {
            WriteProtected::No => VmaFlags::NONE,
            WriteProtected::Yes => UffdMode::WriteProtect.flags(),
        };
        let page = M::Paging::page() as usize;
        let mut parts = from.chunks(page);
        let part = || Fill::Bytes(parts.next().unwrap_or_default(), protect);
        self.fill(range, needs, wake, part)
    }

    /// Fills holes with the shared zero page, and wakes the threads that wait there.
    ///
    /// # Context
    /// As [`Uffd::copy`].
    ///
    /// # Errors
    /// As [`Uffd::copy`].
    pub fn zeropage(&self, start: VirtAddr, len: u64, wake: Wake) -> Result<(), UffdError> {
        let range = whole_pages::<M>(start, len)?;
        self.fill(range, VmaFlags::NONE, wake, || Fill::Zeros)
    }

    fn fill<'a>(
        &self,
        range: VirtRange,
        needs: VmaFlags,
        wake: Wake,
        mut next: impl FnMut() -> Fill<'a>,
    ) -> Result<(), UffdError> {
        as_call(self.mm.system(), || {
            self.one_watched(range, needs)?;
            let mut at = range.start();
            let mut result = Ok(());
            while at < range.end() && result.is_ok() {
                let fill = next();
                let filled = || self.mm.fill_hole(at, fill);
                result = self.mm.system().with_memory(filled);
                if result.is_ok() {
                    at = VirtAddr(at.0 + M::Paging::page());
                }
            }
            let filled = VirtRange::new(range.start(), at);
            if wake == Wake::Yes {
                self.mm.wake_userfaults(filled);
            }
            match result {
                Ok(()) => Ok(()),
                Err(_) if !filled.is_empty() => Err(UffdError::Partial(filled.len())),
                Err(NotFilled::Exists) => Err(UffdError::Exists),
                Err(NotFilled::NoMemory) => Err(UffdError::NoMemory),
                Err(NotFilled::Gone) => Err(UffdError::NotWatched),
            }
        })
    }

    /// Whether one watched mapping has all of `range`, and is watched for `needs`.
    fn one_watched(&self, range: VirtRange, needs: VmaFlags) -> Result<(), UffdError> {
        let guard = self.mm.read(Over::Range(range));
        let view = guard
            .held()
            .find(range.start())
            .map(crate::space::vma::Vma::view);
        let view = view.filter(|view| view.range.covers(range) && view.uffd != 0);
        let view = view.ok_or(UffdError::NotWatched)?;
        if needs == VmaFlags::NONE || view.flags.has(needs) {
            Ok(())
        } else {
            Err(UffdError::Invalid)
        }
    }

    /// Write-protects the pages of a range: a store to one from now on waits. Or allows stores
    /// again, and wakes the threads that wait.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading; waits for TLB flushes.
    ///
    /// # Errors
    /// `Invalid`: no whole pages, or a wake-up requested with protection. `NotWatched`: nothing is
    /// mapped there, or a mapping whose stores are not watched; what lies before it was done.
    pub fn writeprotect(
        &self,
        start: VirtAddr,
        len: u64,
        protect: WriteProtected,
        wake: Wake,
    ) -> Result<(), UffdError> {
        if (protect, wake) == (WriteProtected::Yes, Wake::No) {
            return Err(UffdError::Invalid);
        }
        as_call(self.mm.system(), || {
            let range = whole_pages::<M>(start, len)?;
            let since = self.mm.system().moment();
            let guard = self.mm.read(Over::Range(range));
            let result = protect_parts(guard.held(), range, protect);
            drop(guard);
            if protect == WriteProtected::Yes {
                translation::translations_agree(self.mm, range, since);
            } else if result.is_ok() && wake == Wake::Yes {
                self.mm.wake_userfaults(range);
            }
            M::note(format_args!("writeprotect {range} {protect:?} returns"));
            result
        })
    }
}

/// Protects the pages of `range` against stores, or allows stores again.
fn protect_parts<M: Mmu>(
    held: Held<'_, M>,
    range: VirtRange,
    protect: WriteProtected,
) -> Result<(), UffdError> {
    let mut result = Err(UffdError::NotWatched);
    let mut zap = Zap::begin(held.tables(), range);
    let late = held.system().lacks(NegativeControl::ProtectWithoutFlush);
    let lowered = |pte: Pte<M::Paging>| {
        let grant = match pte.moving() {
            Some(_) => pte.grant_later(),
            None => pte.grant(),
        };
        pte.is_uffd_wp() && grant < Grant::Write
    };
    let skips = held.system().lacks(NegativeControl::WatchSkipsMoving);
    let change = |pte: Pte<M::Paging>| match protect {
        _ if skips && !pte.is_mapped() => None,
        WriteProtected::Yes if lowered(pte) => None,
        WriteProtected::Yes if pte.is_mapped() => {
            Some(pte.with_grant(pte.grant().min(Grant::Read)).uffd_wp())
        }
        // Restored with this protection after migration.
        WriteProtected::Yes if pte.moving().is_some() => {
            let grant = pte.grant_later().min(Grant::Read);
            Some(pte.granting_later(grant).uffd_wp())
        }
        WriteProtected::Yes => Some(pte.uffd_wp()),
        WriteProtected::No => pte.is_uffd_wp().then(|| pte.without_uffd_wp()),
    };
    let stopped = for_parts(held, range, |part, view| {
        if !view.flags.has(VmaFlags::UFFD_WP) {
            return Err(UffdError::NotWatched);
        }
        zap.change_any(part, change);
        result = Ok(());
        Ok(())
    });
    if late {
        zap.forget();
    }
    zap.finish();
    stopped.and(result)
}
