//! Moves one mapping, or a part of it.

use super::{Done, Late, Plan, Remap, mapped_at};
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::{MremapError, NoMemory};
use crate::change::merge::of_range;
use crate::change::modify::add_vma;
use crate::change::owned::NewRecord;
use crate::change::unmap::{free_tables, unmap_range};
use crate::change::writers::{Afterwards, Writers};
use crate::entry::translation;
use crate::entry::zap::Zap;
use crate::memory::commit::Pages;
use crate::mm::Mm;
use crate::pages::rmap::anon_vma::chains_of;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use crate::space::vma::VmaPtr;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::order::AnonVmaLock;
use minflt_sync::{Ordering, WriteGuard};

/// What says that a mapping is locked.
const LOCKS: VmaFlags = VmaFlags::LOCKED.with(VmaFlags::LOCKED_ON_FAULT);

impl<M: Mmu> Mm<M> {
    /// Moves a part of one VMA to a place that is free.
    ///
    /// Linux: move_vma.
    pub(super) fn move_vma(
        &self,
        writers: &Writers<'_, M>,
        plan: &Plan,
        to: VirtAddr,
        late: &mut Late,
    ) -> Result<Done, MremapError> {
        let sys = self.system();
        if self.map_count() + 3 >= sys.max_map_count() {
            return Err(MremapError::NoMemory);
        }
        let vma = mapped_at(writers.held(), plan.old)?;
        let view = vma.view();
        let old = of_range::<M>(&view, plan.old, VirtAddr(plan.old.0 + plan.old_len));
        let new = new_view::<M>(vma, &old, to, plan.new_len);
        if plan.old_len == 0 {
            return self.map_again(writers, &new);
        }
        // The old place gives its own promise back.
        let pages = (Pages::of::<M>(&old), Pages::of::<M>(&new));
        let more = match plan.how.keeps_old() {
            true => pages.1.accounted,
            false => pages.1.accounted.saturating_sub(pages.0.accounted),
        };
        sys.charge(more).map_err(|_| MremapError::Overcommit)?;
        self.copy_vma(writers, vma.into(), &old, &new, plan.how, late)
            .inspect_err(|_| sys.uncharge(more))?;
        let locked = new.flags.has(VmaFlags::LOCKED) && plan.grows();
        let more = VirtRange::new(VirtAddr(to.0 + plan.old_len), new.range.end());
        Ok(Done {
            at: to,
            more: locked.then_some(more),
        })
    }

    /// A second mapping of what a shared one has: no page is moved, and nothing is promised.
    fn map_again(&self, writers: &Writers<'_, M>, new: &VmaView) -> Result<Done, MremapError> {
        let beside = writers.held().beside(new.range);
        drop(add_vma(writers, new, beside, None)?);
        self.count_mapped(Pages::of::<M>(new));
        Ok(Done {
            at: new.range.start(),
            more: new.flags.has(VmaFlags::LOCKED).then_some(new.range),
        })
    }

    /// Makes the VMA `new`, moves the pages of `old`, a part of `whole`, there, and takes `old` out
    /// or leaves it empty.
    fn copy_vma(
        &self,
        writers: &Writers<'_, M>,
        whole: VmaPtr<'_, M>,
        old: &VmaView,
        new: &VmaView,
        how: Remap,
        late: &mut Late,
    ) -> Result<(), NoMemory> {
        let sys = self.system();
        let vma = whole.get();
        // Faults that hold the VMA's lock leave before room is made for what they put in. The lock
        // outlasts this section; and a speculative fault puts no tables in.
        drop(writers.begin(vma));
        let faulted = vma.anon_vma.load(Ordering::Relaxed) != 0;
        let links = u32::try_from(vma.chain_count()).map_err(|_| NoMemory)?;
        // What follows takes no more memory than this.
        let ensured = writers
            .held()
            .tables()
            .make_room(old, new.range.start())
            .and_then(|()| {
                let unlocked = self.unlocked(old, how)?;
                let chains = sys.chains.ensure(3 * links + 2, sys).ok_or(NoMemory)?;
                let attrs = sys.attrs.ensure(6, sys).ok_or(NoMemory)?;
                let vmas = sys.vmas.ensure(3, sys).ok_or(NoMemory)?;
                let links = u32::from(old.file.is_file()) * 3;
                let links = sys.files.links.ensure(links, sys).ok_or(NoMemory)?;
                Ok((
                    unlocked,
                    (
                        chains,
                        attrs,
                        vmas,
                        links,
                        writers.ensure(Some(new.range), 0, 5)?,
                    ),
                ))
            });
        let (unlocked, ensured) = ensured.inspect_err(|_| free_room(writers.held(), new.range))?;
        // One that has no pages may become one with its own copy.
        let before = faulted.then(|| writers.begin(vma));
        let from = faulted.then_some(whole);
        let beside = writers.held().beside(new.range);
        let added = add_vma(writers, new, beside, from)
            .inspect_err(|_| free_room(writers.held(), new.range))?;
        // Whoever truncates finds the pages at the new place, too, once they are there.
        added.vma().link_follows();
        let vma = writers.held().find(old.range.start()).ok_or(NoMemory)?;
        let apart = !core::ptr::eq(vma, added.vma());
        let section = before.or_else(|| apart.then(|| writers.begin(vma)));
        let added = if sys.lacks(NegativeControl::RemapPublishesEarly) {
            drop(added);
            None
        } else {
            Some(added)
        };
        self.move_mapped_pages(writers.held(), vma, old, new.range.start(), late);
        self.count_mapped(Pages::of::<M>(new));
        if how.keeps_old() {
            self.leave_empty(vma, unlocked, apart && vma.view().range == old.range);
            return Ok(());
        }
        sys.charge_again(
            Pages::of::<M>(old)
                .accounted
                .min(Pages::of::<M>(new).accounted),
        );
        // The section of what is at the old place goes on, since a fault there between the move and
        // the cut would find zeros. It is the new one's where both have become one.
        let held = if apart { section } else { added };
        // Were there no memory after all, the old place would stay mapped, with nothing in it.
        let _gone = unmap_range(writers, old.range, held, Afterwards::Writes);
        drop(ensured);
        Ok(())
    }

    /// Moves the pages of `old`, a part of `vma`, and makes every CPU forget the old place.
    fn move_mapped_pages(
        &self,
        held: Held<'_, M>,
        vma: &Vma<M>,
        old: &VmaView,
        to: VirtAddr,
        late: &mut Late,
    ) {
        let mut zap = Zap::begin(held.tables(), old.range);
        {
            let locks = !self.system().lacks(NegativeControl::RemapUnlocked);
            let file = vma.view().cache::<M>().filter(|_| locks);
            let _file = file.map(|file| file.i_mmap.write());
            let _reverse_map = locks.then(|| vma.lock_reverse_map());
            held.tables().move_entries(&mut zap, old, to);
        }
        if self.system().lacks(NegativeControl::RemapFlushesLate) {
            *late = Some(zap.hide());
        } else {
            zap.finish();
            translation::translations_agree(self, old.range, u64::MAX);
        }
    }

    /// A record for what stays at the old place, if it must get one. It is had before the first
    /// change: the move sleeps, so that nothing that was ensured before is sure after it.
    fn unlocked(&self, old: &VmaView, how: Remap) -> Result<Option<NewRecord<'_, M>>, NoMemory> {
        let needed = how.keeps_old() && old.flags.has(LOCKS);
        needed.then(|| NewRecord::new(self, *old)).transpose()
    }

    /// `vma` has lost the pages of a part, or of all, and stays. It is not locked any more, whole;
    /// and if it has no page left, it is found from no anon_vma.
    ///
    /// Linux: dontunmap_complete.
    fn leave_empty(&self, vma: &Vma<M>, unlocked: Option<NewRecord<'_, M>>, empty: bool) {
        if let Some(record) = unlocked {
            let view = vma.view();
            let flags = view.flags.without(LOCKS);
            drop(record.saying(VmaView { flags, ..view }).publish(vma));
            self.count_locked(-(Pages::of::<M>(&view).locked as i64));
        }
        if empty {
            self.system().unlink_anon_vmas(vma);
        }
    }
}

/// Frees tables that were made in vain.
fn free_room<M: Mmu>(held: Held<'_, M>, range: VirtRange) {
    let mut zap = Zap::begin(held.tables(), range);
    free_tables(held, range, &mut zap);
    zap.finish();
}

impl<M: Mmu> Vma<M> {
    /// How many anon_vmas it is chained to. The caller holds `mmap_lock` for writing.
    fn chain_count(&self) -> usize {
        chains_of(self).count()
    }

    /// Keeps everybody away who comes to its pages from their anon_vmas. The caller holds
    /// `mmap_lock` for writing.
    fn lock_reverse_map(&self) -> Option<WriteGuard<'_, AnonVmaLock, M>> {
        let own = self.own_anon_vma()?;
        Some(own.root().lock.write())
    }
}

/// What `old`, a part of `vma`, is at its new place.
fn new_view<M: Mmu>(vma: &Vma<M>, old: &VmaView, to: VirtAddr, len: u64) -> VmaView {
    let faulted = vma.anon_vma.load(Ordering::Relaxed) != 0;
    let uffd = VmaFlags::UFFD_MISSING.with(VmaFlags::UFFD_WP);
    VmaView {
        range: VirtRange::new(to, VirtAddr(to.0 + len)),
        pgoff: if faulted || old.file.is_file() {
            old.pgoff
        } else {
            to.page(M::Paging::shift())
        },
        flags: old.flags.without(uffd),
        uffd: 0,
        ..*old
    }
}
