//! File faults: what the PTE holds, and how the fault resolves it.
//!
//! ```text
//! found            load                      store, shared            store, private
//! none             the page, and those       the page, dirty          a copy
//!                  around it ([`around`])
//! read-only page   -                         dirty, then writable     a copy in its place
//! else             accessed bit              accessed and dirty bit
//! ```
//! A page that is not cached is read in with no lock held; then the fault restarts. The page stays
//! locked until its PTE is installed: truncation waits for that lock, and then unmaps the page.
//!
//! Linux: mm/memory.c do_read_fault, do_cow_fault, do_shared_fault, do_wp_page (v6.12). Linux, too,
//! drops `mmap_lock` to wait for a page.
//!
//! [`around`]: super::around

use super::anon::Own;
use super::remote::Held;
use super::stabilise::{Can, Stable};
use super::{Fault, FaultOutcome, Kind, Signal, Stop, Why};
use crate::base::attrs::{Prot, VmaFlags};
use crate::base::event::Event;
use crate::entry::slot::Lost;
use crate::entry::table;
use crate::memory::frame::Use;
use crate::memory::rss::Moment;
use crate::pages::file::{FileRef, NotRead, PageCache, Sought};
use crate::pages::page::{Locked, Page};
use core::mem::ManuallyDrop;
use minflt_pgtable::{Access, Grant, Leaf, Mmu, Pte, with_bits};
use minflt_sync::Ordering;

/// A page that has to be read in. Whoever wants it holds the file.
pub(super) struct Wanted<M: Mmu> {
    /// Its file, held since it was wanted until [`Fault::page_in`].
    file: ManuallyDrop<FileRef<M>>,
    index: u64,
    flags: VmaFlags,
}

impl<M: Mmu> Fault<'_, M> {
    /// A fault on a mapping of a file.
    #[inline(never)]
    pub(super) fn file(&self, stable: &Stable<'_, M>) -> Result<Kind, Stop> {
        if stable.can() == Can::Look {
            return Err(Why::NotSupported.into());
        }
        let Some(cache) = stable.view.cache::<M>() else {
            return Err(Stop::Signal(Signal::Bus));
        };
        let shared = stable.view.flags.has(VmaFlags::SHARED);
        let copies = self.access == Access::Write && !shared;
        if copies {
            self.prepare_anon(stable)?;
        }
        let leaf = self.leaf_or(stable, || {
            if self.access == Access::Read {
                self.ask_around(stable, cache);
            }
        })?;
        let found = leaf.entry.sample();
        table::is_table(self.mm.system(), leaf.table);
        if found.is_mapped() && !found.is_present() {
            return self.hint(stable, leaf, found);
        }
        let protected = found.is_present() && found.grant() < Grant::Write;
        match self.access {
            Access::Read if found.is_none() => self.read_page(stable, leaf, cache),
            Access::Write if found.is_none() && shared => {
                let page = self.locked_page(stable, cache)?;
                page.frame().set_dirty();
                let pte = stable.entry_for(page.pfn(), Grant::Write).dirty();
                self.map_page(stable, leaf, page, pte, Kind::FileWrite)
            }
            Access::Write if found.is_none() => self.map_copy(stable, leaf, cache, Grant::Write),
            Access::Write if protected && shared => self.allow_stores(stable, leaf, cache, found),
            Access::Write if protected => self.write_protected(stable, leaf, found),
            _ => self.set_flags(stable, leaf, found),
        }
    }

    /// Linux: do_read_fault.
    fn read_page(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        cache: &PageCache<M>,
    ) -> Result<Kind, Stop> {
        if let Some(kind) = self.map_around(stable, leaf, cache)? {
            return Ok(kind);
        }
        let page = self.locked_page(stable, cache)?;
        // Files that are never written back need no fault at the first store.
        let shared = stable.view.flags.has(VmaFlags::SHARED);
        let grant = match stable.view.prot.has(Prot::WRITE) && shared && !cache.writes_back() {
            true => Grant::Write,
            false => Grant::Read,
        };
        let pte = stable.entry_for(page.pfn(), grant);
        self.map_page(stable, leaf, page, pte, Kind::FileRead)
    }

    /// The faulting page, locked, if that needs no wait for a device.
    fn locked_page<'c>(
        &self,
        stable: &Stable<'_, M>,
        cache: &'c PageCache<M>,
    ) -> Result<Locked<'c, M>, Stop> {
        let index = stable.view.page_index::<M::Paging>(self.addr);
        match cache.seek(index).map_err(|_| Stop::Oom)? {
            Sought::Locked(page) => Ok(page),
            Sought::Beyond => Err(Stop::Signal(Signal::Bus)),
            Sought::Absent => {
                // The mapping may go while it is waited for.
                self.wanted.set(Some(Wanted {
                    file: ManuallyDrop::new(cache.keep()),
                    index,
                    flags: stable.view.flags,
                }));
                Err(Stop::PageIn)
            }
        }
    }

    /// Reads the page in that is wanted.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device.
    #[cold]
    pub(super) fn page_in(&self) -> Result<(), FaultOutcome> {
        if let Some(away) = self.away.take() {
            return self.fetch(away);
        }
        let Some(wanted) = self.wanted.take() else {
            return Ok(());
        };
        let file = ManuallyDrop::into_inner(wanted.file);
        let read = file.read_in(wanted.index, wanted.flags);
        drop(file);
        let sys = self.mm.system();
        read.map_err(|why| match why {
            NotRead::Failed => {
                sys.count(Event::Signals);
                FaultOutcome::Signal(Signal::Bus)
            }
            NotRead::NoMemory => FaultOutcome::Oom,
        })
    }

    /// Maps a locked page; the PTE takes over the caller's reference.
    fn map_page(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        page: Locked<'_, M>,
        pte: Pte<M::Paging>,
        kind: Kind,
    ) -> Result<Kind, Stop> {
        let pfn = page.pfn();
        let maps = &page.frame().maps;
        // Before an entry names it, as of anonymous memory.
        maps.add(1, Ordering::Relaxed);
        let slot = stable.open(leaf).inspect_err(|_| {
            maps.sub(1, Ordering::Relaxed);
        })?;
        if slot.install(pte).is_err() {
            drop(slot);
            maps.sub(1, Ordering::Relaxed);
            return Ok(self.lost(Event::CasAnonRead));
        }
        M::note(format_args!("fault {} maps page {pfn}", self.addr));
        self.count_pages(Moment::Slot, 1);
        drop(slot);
        let _entrys = page.unlock().give();
        Ok(kind)
    }

    /// A copy of the page, where nothing is mapped. Linux: do_cow_fault.
    fn map_copy(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        cache: &PageCache<M>,
        grant: Grant,
    ) -> Result<Kind, Stop> {
        let page = self.locked_page(stable, cache)?;
        let (copy, _) = self.private_frame(stable)?;
        // Others may store to it, by other mappings.
        M::copy_in_use(&self.mm.system().at, copy, page.pfn());
        self.flush_before_install(copy);
        // Locked until the copy is mapped: truncation removes copies of its pages, too.
        let slot = self.open_with(stable, leaf, copy)?;
        match slot.install(stable.entry_for(copy, grant).dirty()) {
            Ok(()) => {
                M::note(format_args!("fault {} maps copy {copy}", self.addr));
                self.finish_slot(slot, copy);
                drop(page);
                Ok(Kind::FileCopy)
            }
            Err(Lost) => {
                drop(slot);
                drop(page);
                self.undo_frame(copy);
                Ok(self.lost(Event::CasAnonWrite))
            }
        }
    }

    /// The first store to a page that was mapped for loads. Linux: wp_page_shared.
    fn allow_stores(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        cache: &PageCache<M>,
        found: Pte<M::Paging>,
    ) -> Result<Kind, Stop> {
        let writable = with_bits(found.with_grant(Grant::Write), Access::Write);
        let Some(page) = self.held_page(stable, leaf, found)? else {
            return Ok(self.lost(Event::CasReuse));
        };
        let page = page.lock();
        let index = stable.view.page_index::<M::Paging>(self.addr);
        if !page.is(cache, index) {
            // Truncated: the PTE is being unmapped, or was.
            return Ok(Kind::Spurious);
        }
        page.frame().set_dirty();
        Ok(match stable.open(leaf)?.change(found, writable) {
            Ok(()) => Kind::FileShared,
            Err(Lost) => self.lost(Event::CasReuse),
        })
    }

    /// A reference to the page that the entry names, if it names it still.
    fn held_page(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        found: Pte<M::Paging>,
    ) -> Result<Option<Page<'_, M>>, Stop> {
        let sys = self.mm.system();
        let slot = stable.open_locked(leaf)?;
        let same = slot.holds(found) && sys.is_of_file(found);
        if !same || !sys.frames.hold(found.pfn(), 1) {
            return Ok(None);
        }
        Ok(Some(Page::held(sys, found.pfn())))
    }

    /// Faults a page of a private mapping in for a forced access, which the mapping does not allow.
    /// The page is the mapping's own where the access stores, or must see later stores.
    #[cold]
    pub(super) fn bring_page(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        (grant, held): (Grant, Held),
    ) -> Result<Kind, Stop> {
        let Some(cache) = stable.view.cache::<M>() else {
            return Err(Stop::Signal(Signal::Bus));
        };
        let found = leaf.entry.sample();
        if !found.is_mapped() && !found.is_none() {
            return self.away(stable, leaf, found);
        }
        let frames = &self.mm.system().frames;
        let copied = found.is_mapped() && frames.get(found.pfn()).used_as() == Use::Anon;
        let owns = self.access == Access::Write || self.wants_own(stable, held);
        match owns {
            false if found.is_none() => {
                let page = self.locked_page(stable, cache)?;
                let pte = stable.entry_for(page.pfn(), grant);
                self.map_page(stable, leaf, page, pte, Kind::FileRead)
            }
            true if found.is_none() => {
                self.prepare_own(stable)?;
                self.map_copy(stable, leaf, cache, grant)
            }
            // A copy that a child may have, too, is not the mapping's own.
            _ if found.is_mapped() && (owns || copied) => {
                self.prepare_own(stable)?;
                Ok(match self.own(stable, leaf, found, grant)? {
                    Own::Changed(kind) => kind,
                    Own::Exclusive(_) => Kind::Spurious,
                })
            }
            _ => Ok(Kind::Spurious),
        }
    }
}
