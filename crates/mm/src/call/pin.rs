//! Long-term pins: page references for DMA by a driver (`FOLL_LONGTERM`).
//!
//! # Problem
//! A driver reads and writes a page long after it looked it up. The page must remain the one that
//! the address space maps at that address: if a fork shared it, the owner's next store would go to
//! a copy, and the driver would keep a page that only the child maps.
//!
//! # Idea
//! A pinned page is *exclusive*, and a fork leaves it so: the child gets a copy at once. A pin is a
//! large number of references ([`PIN`]), so that fork sees it in the count that it raises anyway. A
//! pin for loads first unshares a page, as a store would, but without making it writable: a page
//! shared with a child, a private mapping's page of a file, the zero page. All pins are long-term
//! in Linux's sense (`FOLL_LONGTERM`); Linux does this for no other pins.
//!
//! # Protocol
//! [`Mm::pin`] takes the reference under `mmap_lock` for reading and the table's lock; a fork holds
//! both for writing. [`Thread::pin_fast`] takes no lock:
//! ```text
//! CPU 0: pin_fast                      CPU 1: fork
//! count even?
//! interrupts off
//! entry: exclusive, writable
//!                                      count odd; fence
//!                                      pinned? no
//! references + PIN
//! entry unchanged?  yes
//! interrupts on; fence
//!                                      entry read-only, page shared
//! count changed?  yes: references - PIN, give up
//! ```
//!
//! # Why it is correct
//! Either the pin sees the sequence count changed, or fork sees the pin's references: both have a
//! full fence between their store and their load. The frame cannot be freed before the reference is
//! taken: an unmapper first waits for this CPU to acknowledge the TLB flush, which needs interrupts
//! on. A pin that is being given up may cost a child an unnecessary copy, no more.
//!
//! # Cost
//! Fast: a walk, two additions, two loads of a cache line that forks write, as do pins and unpins,
//! which count themselves there. A fork of an address space that never had a pin loads one more
//! word for each table.
//!
//! Linux: mm/gup.c gup_fast, mm/memory.c copy_present_page; `write_protect_seq` since 57efa1fe5957,
//! unsharing since a7f226604170, of files' pages and zeros since 84209e87c696.

use crate::base::config::NegativeControl;
use crate::base::error::RemoteError;
use crate::base::event::Event;
use crate::call::thread::Thread;
use crate::entry::walk::Tables;
use crate::fault::remote::Force;
use crate::fault::remote::{Held, HeldPage};
use crate::memory::frame::{PIN, Use};
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{Access, Mmu, Paging, with_bits};
use minflt_sync::{Atomic, Ordering, SeqCount};

/// What an address space knows of its pins.
#[derive(Debug)]
pub(crate) struct Pins<M: Mmu> {
    /// 1 once there was a pin. Linux: MMF_HAS_PINNED.
    ever: Atomic<u64, M>,
    /// How many there are (`VmPin`).
    now: Atomic<u64, M>,
    /// Odd while a fork shares pages. Guarded by: `mmap_lock`, write.
    forks: SeqCount<M>,
}

impl<M: Mmu> Pins<M> {
    pub(crate) fn new() -> Self {
        Self {
            ever: Atomic::new(0),
            now: Atomic::new(0),
            forks: SeqCount::new(),
        }
    }

    /// There is a pin, or is about to be.
    pub(crate) fn first(&self) {
        if self.ever.load(Ordering::Relaxed) == 0 {
            self.ever.store(1, Ordering::Relaxed);
        }
    }

    /// Whether there can be a pinned page. The caller is in [`Pins::begin_fork`]'s section.
    pub(crate) fn any(&self) -> bool {
        self.ever.load(Ordering::Relaxed) != 0
    }

    /// A fork begins to share pages. Under `mmap_lock` for writing.
    pub(crate) fn begin_fork(&self) {
        self.forks.write_begin();
        // ORDERING: fence SeqCst; pairs with [pin-fork]: odd before a page's references are looked
        // at.
        M::fence(Ordering::SeqCst);
    }

    /// It has shared them.
    pub(crate) fn end_fork(&self) {
        self.forks.write_end();
    }

    /// How many pins there are, without the door: for oracles.
    pub(crate) fn raw(&self) -> u64 {
        self.now.peek()
    }

    /// How many pins there are.
    pub(crate) fn count(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }
}

/// A pinned page of an address space, until this is dropped. It remains the address space's own
/// page until it is unmapped; then the pin is its only user.
#[derive(Debug)]
#[must_use = "the page is let go when the pin is dropped"]
pub struct Pin<'m, M: Mmu> {
    mm: &'m Mm<M>,
    page: HeldPage,
    access: Access,
}

impl<'m, M: Mmu> Pin<'m, M> {
    /// The page is held by a pin's references.
    fn of(mm: &'m Mm<M>, page: HeldPage, access: Access) -> Self {
        mm.pins.now.add(1, Ordering::Relaxed);
        Self { mm, page, access }
    }

    /// Loads the word at `offset` of the page, a multiple of 8.
    ///
    /// # Errors
    /// There is no such word.
    pub fn load(&self, offset: u64) -> Result<u64, RemoteError> {
        let offset = word::<M>(offset)?;
        Ok(M::user_load(&self.mm.system().at, self.page.pfn, offset))
    }

    /// Stores the word at `offset` of the page, a multiple of 8.
    ///
    /// # Errors
    /// There is no such word, or the pin is for loads.
    pub fn store(&self, offset: u64, value: u64) -> Result<(), RemoteError> {
        let offset = word::<M>(offset)?;
        if self.access == Access::Read {
            return Err(RemoteError::Fault);
        }
        let sys = self.mm.system();
        M::user_store(&sys.at, self.page.pfn, offset, value);
        let frame = sys.frames.get(self.page.first);
        if frame.used_as() == Use::File {
            // No entry says so. Linux: unpin_user_pages_dirty_lock.
            frame.set_stored();
        }
        Ok(())
    }
}

/// The offset, if it is a word's of a page.
fn word<M: Mmu>(offset: u64) -> Result<u64, RemoteError> {
    if offset < M::Paging::page() && offset.is_multiple_of(8) {
        Ok(offset)
    } else {
        Err(RemoteError::Invalid)
    }
}

impl<M: Mmu> Drop for Pin<'_, M> {
    fn drop(&mut self) {
        self.mm.put_page(self.page, PIN);
        self.mm.pins.now.sub(1, Ordering::Relaxed);
    }
}

impl<M: Mmu> Mm<M> {
    /// Pins the page at `addr` for loads, or for loads and stores; it is faulted in where it is
    /// missing. The caller may be any thread. In a private mapping the page becomes the address
    /// space's own, even if it was never stored to: a pin for loads sees what the address space
    /// stores.
    ///
    /// # Context
    /// Holds nothing. Sleeps for `mmap_lock`, which it takes for reading.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn pin(&self, addr: VirtAddr, access: Access) -> Result<Pin<'_, M>, RemoteError> {
        as_call(self.system(), || {
            self.system().with_memory(|| {
                let page = self.hold_page(addr, access, Force::No, Held::Pin)?;
                Ok(Pin::of(self, page, access))
            })
        })
    }
}

impl<'m, M: Mmu> Thread<'m, M> {
    /// Pins a page of the thread's own address space without a lock, if it is there and may be used
    /// as it is. Otherwise [`Mm::pin`] has to.
    ///
    /// # Context
    /// Holds nothing. Turns interrupts off for the walk; does not sleep.
    #[must_use]
    pub fn pin_fast(&self, addr: VirtAddr, access: Access) -> Option<Pin<'m, M>> {
        let mm = self.mm();
        let sys = mm.system();
        mm.pins.first();
        let before = mm.pins.forks.begin()?;
        let Some(as_hardware) = mm.as_hardware(addr) else {
            mm.joins_arena(addr);
            return None;
        };
        let pfn = take(as_hardware.tables(), addr, access)?;
        drop(as_hardware);
        // ORDERING: fence SeqCst; pairs with [pin-fork]: the references stand before the count is
        // looked at.
        M::fence(Ordering::SeqCst);
        if mm.pins.forks.changed(before) && !sys.lacks(NegativeControl::PinWithoutSequence) {
            sys.frames.put_many(pfn, PIN);
            return None;
        }
        sys.count(Event::PinnedFast);
        Some(Pin::of(mm, HeldPage::small(pfn), access))
    }
}

/// Takes a pin's references to the page at `addr`, if its entry says that it may be used as it is,
/// and still says so afterwards.
fn take<M: Mmu>(tables: Tables<'_, M>, addr: VirtAddr, access: Access) -> Option<Pfn> {
    let sys = tables.system();
    // A walk uses only the address bits that tables resolve.
    if addr.0 >= M::Paging::user_end() {
        return None;
    }
    let leaf = tables.leaf(addr)?;
    let found = leaf.entry.load();
    let usable = found.lets(access) && !found.is_zero_page() && with_bits(found, access) == found;
    if !usable {
        return None;
    }
    let frame = sys.frames.get(found.pfn());
    if !frame.is_exclusive() {
        return None;
    }
    if !sys.frames.hold(found.pfn(), PIN) {
        return None;
    }
    if leaf.entry.load() != found {
        sys.frames.put_many(found.pfn(), PIN);
        return None;
    }
    Some(found.pfn())
}
