//! fork: copies an address space, and shares its pages copy-on-write.
//!
//! # Problem
//! The child must get the parent's memory as of one moment, though other threads of the parent
//! store meanwhile; and most children never use most of the pages that a full copy would cost.
//!
//! # Idea
//! Copy PTEs, not pages. A writable PTE is write-protected in both, its page is no longer
//! exclusive, and the first store gets a copy ([`crate::fault`]).
//!
//! # Protocol
//! ```text
//! parent: mmap_lock for writing, a write section on every VMA
//! for each VMA: a VMA of the child, chained to the parent's anon_vmas (before any page is shared)
//!   for each table, under its lock: PTE -> read-only; references and map count + 1;
//!                                   not exclusive; the child's PTE
//! parent's TLBs: flushed
//! write sections and lock: released
//! ```
//! The child's tables are written without their locks: the child is not yet visible to others.
//!
//! # Why it is correct
//! Until the TLB flush, a store of another thread of the parent uses a cached translation of a page
//! that the child shares; after it, the store faults, and waits for the fork to end. So if the
//! child lacks a thread's store, it lacks that thread's later stores, too. All write sections stay
//! open until the flush completes: a fault admitted earlier would copy a page that another CPU
//! still stores to through its old translation, and lose that store. A speculative fault that
//! opened its PTE before the write sections holds the page-table lock, which fork takes before it
//! reads the table.
//!
//! A `MADV_DONTFORK` mapping is not copied; a `MADV_WIPEONFORK` mapping is empty in the child, with
//! no chain to the parent's anon_vmas, since no page is shared. No mapping of the child is locked,
//! or registered with a userfaultfd.
//!
//! A pinned page stays the parent's own ([`super::pin`]), and is copied under the page-table lock,
//! a few pages per critical section. Between two critical sections of one table other threads may
//! change its PTEs, as they may between two tables.
//!
//! # Cost
//! Two counts per PTE; where the page was exclusive, its flag and an exchange of the PTE; one TLB
//! flush.
//!
//! Linux: kernel/fork.c dup_mmap, mm/memory.c copy_page_range; all VMAs write-locked since
//! fb49c455323f.

use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::base::event::Event;
use crate::base::policy::Policy;
use crate::call::handle::MmHandle;
use crate::change::owned::NewVma;
use crate::change::writers::Writers;
use crate::entry::translation;
use crate::entry::walk::pages;
use crate::entry::zap::Zap;
use crate::memory::frame::{Exclusive, Use};
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use crate::space::vma_lock;
use crate::system::System;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{BeforeInstall, Grant, Missing, Mmu, NonPresent, Paging, Pte, Walk};
use minflt_sync::Ordering;

/// Pages copied in one critical section of a page-table lock.
const COPIES_A_HOLD: u64 = 8;

impl<M: Mmu> System<M> {
    /// A new address space like `parent`, sharing its pages until one of the two stores to them.
    ///
    /// # Context
    /// Sleeps for the parent's `mmap_lock`, which it takes for writing; waits for TLB flushes.
    ///
    /// # Errors
    /// No memory. The parent then is as before, except that its next stores find pages read-only.
    pub fn fork(&self, parent: &Mm<M>) -> Result<MmHandle<'_, M>, NoMemory> {
        as_call(self, || {
            self.count(Event::Fork);
            self.with_memory(|| {
                let fresh = self.fresh_mm()?;
                let child = fresh.held();
                let writers = Writers::lock(parent, Over::All);
                child.inherit(parent);
                let outside = self.lacks(NegativeControl::ForkWithoutSections);
                let sections = (!outside).then(|| writers.begin_all());
                let user = VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::user_end()));
                let mut zap = Zap::begin(writers.held().tables(), user);
                parent.pins.begin_fork();
                let copied = copy_all(self, writers.held(), child, &mut zap);
                parent.pins.end_fork();
                zap.finish();
                translation::translations_agree_alone(parent, user);
                vma_lock::end_all(&child);
                drop(sections);
                drop(writers);
                M::note(format_args!("fork returns"));
                copied.map(|()| fresh.hand_out())
            })
        })
    }
}

impl<M: Mmu> Mm<M> {
    /// See [`System::fork`].
    ///
    /// # Errors
    /// No memory. This address space then is as before, but that its next stores find pages
    /// read-only.
    pub fn fork(&self) -> Result<MmHandle<'_, M>, NoMemory> {
        self.system().fork(self)
    }
}

/// Copies every VMA and shares its pages.
fn copy_all<M: Mmu>(
    sys: &System<M>,
    parent: Held<'_, M>,
    child: Held<'_, M>,
    zap: &mut Zap<'_, M>,
) -> Result<(), NoMemory> {
    let mut result = Ok(());
    parent.each(|vma| {
        if result.is_ok() {
            result = copy_vma(sys, child, vma, zap);
        }
    });
    result
}

fn copy_vma<M: Mmu>(
    sys: &System<M>,
    child: Held<'_, M>,
    vma: &Vma<M>,
    zap: &mut Zap<'_, M>,
) -> Result<(), NoMemory> {
    let view = in_child(vma.view());
    if view.flags.has(VmaFlags::DONT_FORK) {
        return Ok(());
    }
    let wiped = view.flags.has(VmaFlags::WIPE_ON_FORK);
    child.charge_copy(&view)?;
    let uncharge = |_: &NoMemory| child.uncharge_copy(&view);
    let new = NewVma::new(child.mm(), view).inspect_err(uncharge)?;
    let chained = if wiped {
        Ok(())
    } else {
        sys.fork_anon_vma(&child, new.get(), vma)
    };
    let inserted = chained.and_then(|()| new.insert_alone());
    // Before any page is shared.
    inserted.inspect_err(uncharge)?.link_follows();
    if view.is_huge() && !wiped {
        return zap.share_huge(&view, child);
    }
    if wiped || vma.anon_vma.load(Ordering::Relaxed) == 0 {
        // Nothing, or at most zero pages or file pages, which the child's faults map again.
        return Ok(());
    }
    zap.share(view.range, child)
}

/// What a mapping is in the child: locked and watched it is in the parent only.
fn in_child(view: VmaView) -> VmaView {
    let locked = VmaFlags::LOCKED.with(VmaFlags::LOCKED_ON_FAULT);
    let watched = VmaFlags::UFFD_MISSING.with(VmaFlags::UFFD_WP);
    VmaView {
        flags: (view.flags.without(locked.with(watched))).without(VmaFlags::HUGE_OWNER),
        uffd: 0,
        ..view
    }
}

impl<M: Mmu> Zap<'_, M> {
    /// Shares the pages of `range` with a child that is not yet visible to others.
    fn share(&mut self, range: VirtRange, child: Held<'_, M>) -> Result<(), NoMemory> {
        let sys = self.mm().system();
        let mut at = range.start();
        while let Some((leaf, span)) = self.tables.next_table(&mut at, range) {
            // A fault without `mmap_lock` may have locked its PTE before the write sections: it is
            // done once the lock is free, and later faults see the sections.
            if !self.mm().system().lacks(NegativeControl::ForkLooksUnlocked) {
                drop(self.mm().table_lock(leaf.table).lock());
            }
            let used =
                |page: &VirtRange| !self.tables.entry(leaf.table, page.start()).load().is_none();
            let Some(first) = pages::<M>(span).find(used) else {
                continue;
            };
            let table = table_for(child, first.start())?;
            let mut left = VirtRange::new(first.start(), span.end());
            while !left.is_empty() {
                let (shared, done) = self.share_table(leaf.table, table, &mut left, child);
                sys.count_n(Event::ForkEntries, shared);
                // Truncation may have found the child by its file already.
                child.count_unlocked(shared as i64);
                done?;
            }
        }
        Ok(())
    }

    /// Shares the pages of one table, and copies the pinned ones, in one critical section of its
    /// lock; returns how many there are, and whether there was memory for all. The caller repeats
    /// it for what is left of `span`.
    fn share_table(
        &mut self,
        from: Pfn,
        to: Pfn,
        span: &mut VirtRange,
        child: Held<'_, M>,
    ) -> (u64, Result<(), NoMemory>) {
        let sys = self.mm().system();
        let how = self.mm().exchange_under_lock();
        let (mut shared, mut copies) = (0, 0);
        let mutant = sys.lacks(NegativeControl::ForkLeavesWritable);
        let leaves_moving = sys.lacks(NegativeControl::ForkLeavesMoving);
        let pins = self.mm().pins.any() && !sys.lacks(NegativeControl::ForkSharesPinned);
        let pinned = |pte: Pte<M::Paging>| pins && pinned(sys, pte);
        let _held = self.mm().table_lock(from).lock();
        for page in pages::<M>(*span) {
            if copies == COPIES_A_HOLD {
                *span = VirtRange::new(page.start(), span.end());
                return (shared, Ok(()));
            }
            let entry = self.tables.entry(from, page.start());
            // Asked once of each value. A pin may be dropped at any time: a page that was passed
            // over since it was pinned, and is not when asked again, would be shared while the
            // parent's entry still grants stores.
            let mut keeps = false;
            let lower = |pte: Pte<M::Paging>| {
                if pte.moving().is_some() {
                    let stores = pte.grant_later() == Grant::Write && !leaves_moving;
                    return stores.then(|| pte.granting_later(Grant::Read));
                }
                keeps = pinned(pte);
                let stores = pte.is_mapped() && pte.grant() == Grant::Write && !mutant;
                (stores && !keeps).then(|| pte.with_grant(Grant::Read))
            };
            let found = match entry.update(how, lower) {
                Ok(old) if old.is_none() || old.is_mapped() => {
                    self.gather.touch(page);
                    old.with_grant(Grant::Read)
                }
                Err(found) if keeps => {
                    let Ok(copy) = copy_pinned(sys, child, found, page.start()) else {
                        return (shared, Err(NoMemory));
                    };
                    self.tables.entry(to, page.start()).store(copy);
                    shared += 1;
                    copies += 1;
                    continue;
                }
                Err(found) if found.is_mapped() => found,
                Ok(found) | Err(found) => {
                    if let Some(copy) = sys.share_nonpresent(found, leaves_moving) {
                        self.tables.entry(to, page.start()).store(copy);
                        shared += u64::from(copy.moving().is_some());
                    }
                    continue;
                }
            };
            if !found.is_zero_page() {
                let frame = sys.frames.get(found.pfn());
                frame.refs.add(1, Ordering::Relaxed);
                frame.maps.add(1, Ordering::Relaxed);
                if frame.is_exclusive() {
                    frame.set_exclusive(Exclusive::No);
                }
                shared += 1;
            }
            // Nobody watches the child.
            let copy = found.old().without_uffd_wp();
            self.tables.entry(to, page.start()).store(copy);
        }
        *span = VirtRange::new(span.end(), span.end());
        (shared, Ok(()))
    }
}

/// Whether the PTE maps a page that may be pinned, and therefore must stay the parent's own.
fn pinned<M: Mmu>(sys: &System<M>, pte: Pte<M::Paging>) -> bool {
    if !pte.is_mapped() || pte.is_zero_page() {
        return false;
    }
    let frame = sys.frames.get(pte.pfn());
    frame.may_be_pinned() && frame.is_exclusive()
}

/// The child's copy of a page that stays the parent's own; returns the PTE for it. The pin's holder
/// and the parent may store to the page meanwhile: as in Linux, the copy is not atomic. The frame
/// is allocated by the mapping's memory policy; the thread's is not known here.
///
/// Linux: copy_present_page.
#[cold]
fn copy_pinned<M: Mmu>(
    sys: &System<M>,
    child: Held<'_, M>,
    found: Pte<M::Paging>,
    addr: VirtAddr,
) -> Result<Pte<M::Paging>, NoMemory> {
    let vma = child.at_or_before(addr);
    let from = sys.frames.get(found.pfn());
    let index = from.index.load(Ordering::Relaxed);
    let policy = vma.map_or(Policy::DEFAULT, |vma| vma.view().policy);
    let pfn = sys.frames.alloc_on(&sys.at, Use::Anon, policy, index);
    let pfn = pfn.ok_or(NoMemory)?;
    M::copy_in_use(&sys.at, pfn, found.pfn());
    if M::Paging::caps().before_install == BeforeInstall::FlushCaches {
        let frame = sys.frames.get(pfn);
        frame.flush_once(|| M::flush_frame(&sys.at, pfn));
    }
    let to = sys.frames.get(pfn);
    let own = vma.map_or(0, |vma| vma.anon_vma.load(Ordering::Relaxed));
    to.mapping.store(own, Ordering::Relaxed);
    to.index.store(index, Ordering::Relaxed);
    // ORDERING: Release; pairs with [frame-maps].
    to.maps.store(1, Ordering::Release);
    sys.count(Event::ForkCopies);
    let copy = Pte::page(pfn, found.grant()).with_exec(found.exec());
    Ok(copy.dirty())
}

impl<M: Mmu> System<M> {
    /// What a child gets for an entry that maps nothing now, if anything: its page is shared, like
    /// any other. Under the lock of the parent's table. See [`crate::pages::rmap::away`].
    #[cold]
    fn share_nonpresent(
        &self,
        found: Pte<M::Paging>,
        leaves_moving: bool,
    ) -> Option<Pte<M::Paging>> {
        let pfn = match found.nonpresent()? {
            NonPresent::Migration(pfn) => pfn,
            NonPresent::Swap(slot) => {
                self.swap.dup(slot);
                return Some(found.without_uffd_wp());
            }
        };
        if leaves_moving {
            return Some(found);
        }
        self.frames.get(pfn).set_exclusive(Exclusive::No);
        let grant = found.grant_later().min(Grant::Read);
        Some(found.granting_later(grant).without_uffd_wp())
    }
}

/// The table of leaf entries for `addr` of a child, put in where it is missing.
fn table_for<M: Mmu>(child: Held<'_, M>, addr: VirtAddr) -> Result<Pfn, NoMemory> {
    let sys = child.system();
    loop {
        match child.tables().walk(addr) {
            Walk::Leaf(leaf) => return Ok(leaf.table),
            Walk::Missing(Missing { entry, level, .. }) => {
                let table = Mm::<M>::new_table(sys, level - 1).ok_or(NoMemory)?;
                entry.store(Pte::table(table, level));
                sys.count(Event::TablesInstalled);
            }
        }
    }
}

impl<M: Mmu> Mm<M> {
    /// Copies from `parent` what is not in VMAs: the heap and the limits. For fork, before this
    /// address space is visible to others.
    fn inherit(&self, parent: &Self) {
        self.heap.copy_from(&parent.heap);
        self.set_limit_as(parent.limit_as());
        self.set_limit_memlock(parent.limit_memlock());
        self.set_limit_stack(parent.limit_stack());
        // Outside the door: only shown.
        self.start_stack.poke(parent.start_stack.peek());
    }
}
