//! The ledger of huge pages: each page is in a pool or in use, each shared page table has the right
//! sharer count, and each reservation has an owner.

use super::ledger::is_other_exec;
use super::unbalanced::Unbalanced;
use crate::base::attrs::VmaFlags;
use crate::base::huge_size::HugeSize;
use crate::memory::frame::{Entries, Frame, Use};
use crate::mm::Mm;
use crate::pages::file::PageCache;
use crate::pages::hugetlb::interval;
use crate::space::vma::Vma;
use crate::system::System;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{Grant, Mmu, Pte};

/// What huge pages need beside themselves.
#[derive(Default)]
pub(super) struct HugeObjects {
    pub(super) locks: u64,
    pub(super) owns: u64,
    pub(super) regions: u64,
    large: Wanted,
    giant: Wanted,
}

/// What huge pages of a size are reserved for.
#[derive(Default)]
struct Wanted {
    /// Pages that files have.
    cached: u64,
    /// Pages that are reserved for files, whether they have them or not.
    of_files: u64,
    /// Pages that are reserved for mappings, and not used.
    of_mappings: u64,
}

impl HugeObjects {
    pub(super) const fn add(&mut self, other: &Self) {
        self.locks += other.locks;
        self.owns += other.owns;
        self.regions += other.regions;
        self.large.of_mappings += other.large.of_mappings;
        self.giant.of_mappings += other.giant.of_mappings;
    }

    const fn of(&mut self, size: HugeSize) -> &mut Wanted {
        match size {
            HugeSize::Large => &mut self.large,
            HugeSize::Giant => &mut self.giant,
        }
    }

    /// A page that a file has.
    pub(super) const fn add_cached(&mut self, size: HugeSize) {
        self.of(size).cached += 1;
    }

    pub(super) fn add_file<M: Mmu>(&mut self, cache: &PageCache<M>) -> Result<(), &'static str> {
        let (regions, pages) = cache.reserved.validate()?;
        self.regions += regions;
        self.of(cache.huge_size()).of_files += pages;
        Ok(())
    }

    pub(super) fn add_mapping<M: Mmu>(&mut self, vma: &Vma<M>) -> Result<(), &'static str> {
        self.locks += u64::from(vma.huge_lock().is_some());
        let Some(own) = vma.huge_own() else {
            return Ok(());
        };
        let view = vma.peek();
        let first = view.huge_index::<M::Paging>(view.range.start());
        let pages = view.huge_size().pages_of::<M::Paging>(view.range);
        self.of(view.huge_size()).of_mappings += pages - own.used.peek_count(first, first + pages);
        if own.is_last_look() {
            self.owns += 1;
            self.regions += own.used.validate()?.0;
        }
        Ok(())
    }
}

impl<M: Mmu> System<M> {
    /// Whether what the pools say is reserved is what somebody reserved and has not had.
    pub(super) fn reservations_add_up(&self, huge: &HugeObjects) -> Result<(), Unbalanced> {
        let sizes = [
            (HugeSize::Large, &huge.large),
            (HugeSize::Giant, &huge.giant),
        ];
        sizes.into_iter().try_for_each(|(size, wanted)| {
            let kept = self.frames.pool_counters(size).reserved;
            let wanted = (wanted.of_files + wanted.of_mappings).wrapping_sub(wanted.cached);
            match kept == wanted {
                true => Ok(()),
                false => Err(Unbalanced::Reserved { kept, wanted }),
            }
        })
    }
}

/// Whether a table is in as many address spaces as it says.
pub(super) fn sharers_add_up<M: Mmu>(table: Pfn, frame: &Frame<M>) -> Result<(), Unbalanced> {
    let (sharers, found) = (frame.maps.peek(), frame.sharers_seen());
    if sharers == 0 || found == u64::from(sharers) + 1 {
        return Ok(());
    }
    Err(Unbalanced::Sharers {
        table,
        sharers,
        found,
    })
}

impl<M: Mmu> Mm<M> {
    /// An entry of level `level` that points to a table: if others have that, too, all of it is in
    /// one mapping.
    pub(super) fn check_shared(
        &self,
        at: VirtAddr,
        level: u32,
        value: Pte<M::Paging>,
    ) -> Result<(), Unbalanced> {
        if level != HugeSize::Large.level() + 1
            || self.system().frames.get(value.pfn()).maps.peek() == 0
        {
            return Ok(());
        }
        let view = self.mapping_of(at)?.peek();
        let large = view.is_huge() && view.huge_size() == HugeSize::Large;
        if large && view.range.covers(interval::<M::Paging>(at)) {
            return Ok(());
        }
        Err(Unbalanced::SharedInPart(at))
    }

    /// An entry above the leaves that points to no table.
    pub(super) fn check_huge(
        &self,
        at: VirtAddr,
        level: u32,
        value: Pte<M::Paging>,
    ) -> Result<(), Unbalanced> {
        let vma = self.mapping_of(at)?;
        let view = vma.peek();
        let frame = self.system().frames.get(value.pfn());
        let size = view.huge_size();
        if level != size.level() || !view.is_huge() || frame.used_as() != Use::Huge {
            return Err(Unbalanced::NotAnon(at));
        }
        if value.grant() > view.prot.grant() || is_other_exec(value, view.prot) {
            return Err(Unbalanced::TooMuch(at));
        }
        frame.count_entries(Entries::One);
        let Some(cache) = view.cache::<M>() else {
            return Err(Unbalanced::OtherPage(at));
        };
        let index = view.huge_index::<M::Paging>(at);
        let cached = frame.mapping.peek() == cache.address();
        let shared = view.flags.has(VmaFlags::SHARED);
        let pages = cache.size_peek() >> size.shift::<M::Paging>();
        let pages = pages.max(cache.made_to.peek());
        if frame.index.peek() != index || cached && index >= pages || shared && !cached {
            return Err(Unbalanced::OtherPage(at));
        }
        if value.grant() == Grant::Write && !shared && (cached || !frame.is_exclusive()) {
            return Err(Unbalanced::WritableShared(at));
        }
        debug_assert!(size.exists::<M::Paging>(), "the format has such pages");
        Ok(())
    }
}
