//! *Prepare*: allocates what a fault needs before it opens a PTE, with no page-table lock held.
//!
//! A table is linked by compare-and-exchange, or under a lock in the other protocols ([`Linking`]);
//! either way only an empty entry becomes a table, and the loser of a race frees its own table and
//! uses the winner's. Speculative faults link tables only where that is done under each parent's
//! lock ([`crate::entry::table`]): a table linked after munmap freed the others would leak.

use super::stabilise::{Can, Stable};
use super::{Fault, Stop, Why};
use crate::base::config::{AnonVmaPreparation, Linking, NegativeControl, Prefetch, Protocol};
use crate::base::error::NoMemory;
use crate::base::policy::{Policy, PolicyMode};
use crate::entry::slot::Hold;
use crate::entry::table::Unchanged;
use crate::memory::frame::{Frame, Use};
use minflt_addr::Pfn;
use minflt_pgtable::{Access, BeforeInstall, Leaf, Missing, Mmu, Paging, Walk};
use minflt_sync::{Cost, Ordering};

impl<M: Mmu> Fault<'_, M> {
    /// The VMA has an anon_vma after this.
    #[inline(always)]
    pub(super) fn prepare_anon(&self, stable: &Stable<'_, M>) -> Result<(), Stop> {
        // ORDERING: Acquire; pairs with [vma-anon-vma].
        if stable.vma.anon_vma.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        match stable.can() {
            // The posting of 2017 falls back for a load, too.
            Can::Look if !self.prepares_once() => Err(Why::NoAnonVma.into()),
            // Only a frame of its own needs one. Linux: do_anonymous_page; under a VMA's lock
            // since v6.10.
            _ if self.access == Access::Read => Ok(()),
            Can::Look => self.prepare_or(stable, Why::NoAnonVma),
            Can::GrowTables
                if self
                    .mm
                    .system()
                    .lacks(NegativeControl::MmapLockUnderVmaLock) =>
            {
                let guard = self.mm.read_for_fault(self.addr);
                let held = guard.held();
                held.prepare_anon_vma(stable.vma).map_err(|_| Stop::Oom)
            }
            Can::GrowTables if self.mm.system().lacks(NegativeControl::AnonVmaBeforeLock) => Ok(()),
            Can::GrowTables => self.prepare_or(stable, Why::NeedsMmapLock),
            Can::Grow => stable.prepare_anon_vma(),
        }
    }

    /// Without `mmap_lock` held: the VMA has an anon_vma after this, or the fault falls back, for
    /// this reason.
    #[inline(always)]
    fn prepare_or(&self, stable: &Stable<'_, M>, why: Why) -> Result<(), Stop> {
        if self.prepares_once() && stable.try_prepare_anon_vma()? {
            return Ok(());
        }
        Err(why.into())
    }

    #[inline(always)]
    fn prepares_once(&self) -> bool {
        self.mm.system().config.anon_vma_preparation == AnonVmaPreparation::OneFault
    }

    /// The leaf entry; missing tables above it are linked where the lock mode permits.
    #[inline(always)]
    pub(super) fn leaf<'s>(&self, stable: &'s Stable<'_, M>) -> Result<Leaf<'s, M>, Stop> {
        self.leaf_or(stable, || ())
    }

    /// The same; `missing` is called before a table is made.
    #[inline(always)]
    pub(super) fn leaf_or<'s>(
        &self,
        stable: &'s Stable<'_, M>,
        missing: impl Fn(),
    ) -> Result<Leaf<'s, M>, Stop> {
        let tables = stable.tables();
        let sys = tables.system();
        let links = sys.config.linking == Linking::EveryParent;
        loop {
            // `page_table_lock` is taken to look up, released to prepare, and taken again to
            // commit. Linux: handle_mm_fault and do_anonymous_page (v2.6.10).
            let one_lock = sys.config.protocol == Protocol::MmLock && stable.can() != Can::Look;
            let held = one_lock.then(|| self.mm.page_table_lock.lock());
            let walked = tables.walk(self.addr);
            drop(held);
            match walked {
                Walk::Leaf(leaf) => return Ok(leaf),
                Walk::Missing(_) if stable.can() == Can::Look && !links => {
                    return Err(Why::PmdChanged.into());
                }
                Walk::Missing(place) => {
                    missing();
                    self.put_table_in(stable, &place)?;
                }
            }
        }
    }

    /// Puts a missing table in, or finds that another fault has.
    ///
    /// # Errors
    /// No memory; for a fault that only sampled its VMA, that this has changed.
    #[cold]
    pub(super) fn put_table_in(
        &self,
        stable: &Stable<'_, M>,
        place: &Missing<'_, M>,
    ) -> Result<(), Stop> {
        let hold = stable.hold();
        let unchanged = || hold.check().is_ok();
        let unchanged: Option<Unchanged<'_>> = match hold {
            Hold::Kept => None,
            Hold::Sampled(..) => Some(&unchanged),
        };
        let linked = self.mm.populate(place, unchanged);
        linked.map_err(|NoMemory| Stop::Oom)?;
        Ok(hold.check()?)
    }

    /// A frame of zeros, as [`Self::private_frame`] makes it.
    #[inline(always)]
    pub(super) fn fresh_frame(&self, stable: &Stable<'_, M>) -> Result<Pfn, Stop> {
        let sys = self.mm.system();
        let (pfn, frame) = self.private_frame(stable)?;
        if !frame.is_zeroed() {
            sys.frames.clear(&sys.at, pfn);
            self.filled.set(true);
        }
        self.flush_before_install(pfn);
        Ok(pfn)
    }

    /// A frame with arbitrary contents, and with everything set that must be set before a PTE names
    /// it: a reference and a map count for the mapping, and its owner.
    ///
    /// The one reference is the mapping's: once a PTE names the frame, another CPU may unmap and
    /// free it, and this fault does not touch it again. (As posted it does, with a reference of its
    /// own.)
    ///
    /// This order is safe in all eras: as posted in 2004 the map count was raised after the
    /// exchange, and a zap in between took it below zero.
    #[inline(always)]
    pub(super) fn private_frame(&self, stable: &Stable<'_, M>) -> Result<(Pfn, &Frame<M>), Stop> {
        let sys = self.mm.system();
        let pfn = if Policy::both_default(stable.view.policy, self.share.policy()) {
            let pfn = sys.frames.alloc_here(&sys.at, Use::Anon);
            pfn.ok_or(Stop::Oom)?
        } else {
            self.chosen_frame(stable)?
        };
        // The stores to the descriptor that follow do not stall: its address came from the CPU's
        // own list.
        M::charge(Cost::Fresh);
        if sys.config.prefetch == Prefetch::Frame {
            let offset = self.addr.page_offset(M::Paging::shift());
            M::prefetch_user(&sys.at, pfn, offset);
        }
        let frame = sys.frames.get(pfn);
        self.make_private(stable, frame);
        Ok((pfn, frame))
    }

    /// The frame, which is the caller's, is a page of the mapping's own; see
    /// [`Self::private_frame`].
    #[inline(always)]
    pub(super) fn make_private(&self, stable: &Stable<'_, M>, frame: &Frame<M>) {
        let sys = self.mm.system();
        let anon_vma = stable.vma.anon_vma.load(Ordering::Relaxed);
        frame.mapping.store(anon_vma, Ordering::Relaxed);
        frame.index.store(
            stable.view.page_index::<M::Paging>(self.addr),
            Ordering::Relaxed,
        );
        let late = sys.counts_late();
        // ORDERING: Release; pairs with [frame-maps]: what it belongs to is there before.
        frame.maps.store(u32::from(!late), Ordering::Release);
        if late {
            frame.refs.store(2, Ordering::Relaxed);
        }
    }

    /// A frame by the mapping's memory policy, or by the thread's where the mapping has none. A
    /// speculative fault does not interleave, as in the 2017 series.
    ///
    /// Linux: get_vma_policy, whose interleaving goes by page number also for a thread's policy.
    #[cold]
    #[inline(never)]
    fn chosen_frame(&self, stable: &Stable<'_, M>) -> Result<Pfn, Stop> {
        let policy = self.policy(stable);
        if policy.mode() == PolicyMode::Interleave && stable.can() == Can::Look {
            return Err(Why::NotSupported.into());
        }
        let index = stable.view.page_index::<M::Paging>(self.addr);
        self.alloc_by(policy, index).ok_or(Stop::Oom)
    }

    /// A frame for page number `index` of a mapping, as a policy chooses.
    pub(super) fn alloc_by(&self, policy: Policy, index: u64) -> Option<Pfn> {
        let sys = self.mm.system();
        self.within.set(policy.bound());
        sys.frames.alloc_on(&sys.at, Use::Anon, policy, index)
    }

    /// The policy that a page of the mapping is taken by.
    pub(super) fn policy(&self, stable: &Stable<'_, M>) -> Policy {
        match stable.view.policy {
            Policy::DEFAULT => self.share.policy(),
            own => own,
        }
    }

    /// Does what the paging format requires before a PTE names the frame. As posted in 2004 for
    /// ia64: once the PTE is installed, another CPU may use the page before this one gets to it.
    #[inline(always)]
    pub(super) fn flush_before_install(&self, pfn: Pfn) {
        if M::Paging::caps().before_install == BeforeInstall::FlushCaches
            && !self.mm.system().lacks(NegativeControl::FlushAfterInstall)
        {
            self.flush(pfn);
        }
    }

    /// The control to that: too late.
    #[inline(always)]
    pub(super) fn flush_after_install(&self, pfn: Pfn) {
        if M::Paging::caps().before_install == BeforeInstall::FlushCaches
            && self.mm.system().lacks(NegativeControl::FlushAfterInstall)
        {
            self.flush(pfn);
        }
    }

    fn flush(&self, pfn: Pfn) {
        let sys = self.mm.system();
        let frame = sys.frames.get(pfn);
        frame.flush_once(|| M::flush_frame(&sys.at, pfn));
    }

    /// The frame was never reached: back with it.
    #[cold]
    pub(super) fn undo_frame(&self, pfn: Pfn) {
        let frames = &self.mm.system().frames;
        let frame = frames.get(pfn);
        frame.maps.store(0, Ordering::Relaxed);
        // A page-cache lookup may take a brief reference to any frame: a frame with other
        // references is left alone.
        let late = self.mm.system().counts_late();
        frames.put_many(pfn, if late { 2 } else { 1 });
    }
}
