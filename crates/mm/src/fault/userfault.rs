//! Faults that a userfaultfd handler resolves.
//!
//! # Problem
//! A thread that touches a hole of a registered mapping, or stores to a page that the handler
//! protects, must wait until the handler has filled the hole or allowed the store. The handler
//! needs `mmap_lock` for that, may be waiting for it behind a writer, and may finish before the
//! thread sleeps.
//!
//! # Idea
//! The thread queues itself while it still holds the lock of its fault, rechecks whether there is
//! anything to wait for, releases its locks, and sleeps. Then it retries.
//!
//! # Protocol
//! ```text
//! thread                            handler
//! finds the PTE empty
//! queues itself                     reads the queue
//! PTE still empty? yes              installs a page
//! releases the VMA or mmap_lock
//! sleeps                            wakes the range: marks it, unparks
//! marked: leaves the queue, retries
//! ```
//!
//! # Why it is correct
//! The handler changes the PTE before it wakes; the thread queues before it rechecks. So either the
//! thread sees the change, or the handler sees the thread in the queue. A thread removes itself
//! from the queue, under the queue's lock, so its queue entry outlives a handler that marks it.
//!
//! Whether a fault is the handler's is decided by the very PTE value that the fault compares with
//! at commit. If the page is protected or unmapped later, the commit fails, and the next attempt
//! decides again: no fault bypasses the handler.
//!
//! # Cost
//! A mapping without a handler: a test of its attributes, which the fault has read anyway.
//!
//! Linux: fs/userfaultfd.c handle_userfault, userfaultfd_must_wait; mm/memory.c do_wp_page,
//! do_anonymous_page, which ask under the table's lock (v6.12).

use super::stabilise::{Can, Stable};
use super::{Fault, Kind, Signal, Stop, Why};
use crate::base::attrs::VmaFlags;
use crate::base::event::Event;
use crate::entry::slot::Lost;
use crate::memory::rss::Moment;
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::pages::userfault::{Queued, Reason, WriteProtected};
use minflt_addr::VirtAddr;
use minflt_pgtable::{Access, Grant, Mmu, Paging, Pte};

/// What a hole is filled with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill<'a> {
    /// The shared zero page.
    Zeros,
    /// A page of its own with these bytes.
    Bytes(&'a [u8], WriteProtected),
}

/// Why a hole was not filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotFilled {
    /// There is a page.
    Exists,
    NoMemory,
    /// The mapping has gone, or is not watched for what was asked.
    Gone,
}

impl<M: Mmu> Fault<'_, M> {
    /// A fault in a watched mapping that found `found`: queues the thread if it is for the handler.
    #[cold]
    #[inline(never)]
    pub(super) fn userfault(
        &self,
        stable: &Stable<'_, M>,
        found: Pte<M::Paging>,
    ) -> Result<(), Stop> {
        let Some(reason) = self.reason(stable, found) else {
            return Ok(());
        };
        let view = &stable.view;
        let page = self.addr.align_down(M::Paging::shift());
        let queued = self
            .mm
            .queue_userfault(view.uffd, page, self.access, reason);
        match queued.map_err(|_| Stop::Oom)? {
            Queued::Waits => {}
            // Only a lock mode that holds a lock can confirm it.
            Queued::Signal if stable.can() == Can::Look => return Err(Why::NotSupported.into()),
            Queued::Signal => return Err(Stop::Signal(Signal::Bus)),
            // The handler is gone: there is nothing to wait for.
            Queued::Nobody => return Ok(()),
        }
        if self.reason(stable, self.look_again(stable)) != Some(reason) {
            self.mm.leave_queue();
        }
        Err(Stop::Userfault)
    }

    /// The PTE's current value.
    fn look_again(&self, stable: &Stable<'_, M>) -> Pte<M::Paging> {
        let leaf = stable.tables().leaf(self.addr);
        leaf.map_or(Pte::none(), |leaf| leaf.entry.load())
    }

    /// Why the fault is the handler's, if it is.
    fn reason(&self, stable: &Stable<'_, M>, found: Pte<M::Paging>) -> Option<Reason> {
        let flags = stable.view.flags;
        if found.is_none() {
            return flags.has(VmaFlags::UFFD_MISSING).then_some(Reason::Missing);
        }
        let protects = flags.has(VmaFlags::UFFD_WP) && self.access == Access::Write;
        (protects && found.is_uffd_wp()).then_some(Reason::WriteProtected)
    }

    /// Fills the hole at the fault's address.
    fn fill(&self, fill: Fill<'_>) -> Result<Kind, NotFilled> {
        let guard = self.mm.read_for_fault(self.addr);
        let stable = Stable::under(&guard, self.addr);
        let stable = stable.map_err(|_| NotFilled::Gone)?;
        // The mapping need not be the one that the call looked at.
        let protects = matches!(fill, Fill::Bytes(_, WriteProtected::Yes));
        let flags = stable.view.flags;
        if stable.view.uffd == 0 || protects && !flags.has(VmaFlags::UFFD_WP) {
            return Err(NotFilled::Gone);
        }
        // Linux: find_vma_and_prepare_anon; for zeros, too.
        let anon = stable.prepare_anon_vma_once();
        anon.map_err(|_| NotFilled::NoMemory)?;
        let filled = match fill {
            Fill::Zeros => self.fill_zeros(&stable),
            Fill::Bytes(bytes, protect) => self.fill_bytes(&stable, bytes, protect),
        };
        drop(guard);
        match filled {
            Ok(Kind::Spurious) => Err(NotFilled::Exists),
            Ok(kind) => {
                self.count_mapped(Moment::Hold, kind);
                self.count_mapped(Moment::After, kind);
                Ok(kind)
            }
            Err(_) => Err(NotFilled::NoMemory),
        }
    }

    fn fill_zeros(&self, stable: &Stable<'_, M>) -> Result<Kind, Stop> {
        let leaf = self.leaf(stable)?;
        let grant = stable.view.prot.grant().min(Grant::Read);
        let pte = stable
            .entry_for(self.mm.system().zero_page, grant)
            .zero_page();
        Ok(match stable.open(leaf)?.install(pte) {
            Ok(()) => Kind::AnonRead,
            Err(Lost) => self.lost(Event::CasAnonRead),
        })
    }

    fn fill_bytes(
        &self,
        stable: &Stable<'_, M>,
        bytes: &[u8],
        protect: WriteProtected,
    ) -> Result<Kind, Stop> {
        let leaf = self.leaf(stable)?;
        let sys = self.mm.system();
        let (pfn, frame) = self.private_frame(stable)?;
        if !frame.is_zeroed() {
            M::clear(&sys.at, pfn);
        }
        let (words, _) = bytes.as_chunks::<8>();
        for (word, offset) in words.iter().zip((0..).step_by(8)) {
            let word = u64::from_le_bytes(*word);
            if word != 0 {
                M::user_store(&sys.at, pfn, offset, word);
            }
        }
        self.flush_before_install(pfn);
        let slot = self.open_with(stable, leaf, pfn)?;
        let grant = stable.view.prot.grant();
        let pte = match protect {
            WriteProtected::No => stable.entry_for(pfn, grant).dirty(),
            WriteProtected::Yes => stable
                .entry_for(pfn, grant.min(Grant::Read))
                .dirty()
                .uffd_wp(),
        };
        match slot.install(pte) {
            Ok(()) => {
                self.finish_slot(slot, pfn);
                Ok(Kind::AnonWrite)
            }
            Err(Lost) => {
                drop(slot);
                self.undo_frame(pfn);
                Ok(self.lost(Event::CasAnonWrite))
            }
        }
    }
}

impl<M: Mmu> Mm<M> {
    /// Fills the hole at `addr` on a handler's behalf.
    ///
    /// # Context
    /// Holds nothing. Sleeps for `mmap_lock`, which it takes for reading.
    pub(crate) fn fill_hole(&self, addr: VirtAddr, fill: Fill<'_>) -> Result<(), NotFilled> {
        // The handler need not be a thread of this address space.
        let share = Share::default();
        let fault = Fault::new(self, &share, addr, Access::Write);
        let filled = fault.fill(fill);
        self.rss.sync(&share);
        filled.map(drop)
    }
}
