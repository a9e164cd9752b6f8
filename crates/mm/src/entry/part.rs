//! What zaps and TLB flushes have once for each arena.
//!
//! [`crate::entry::shootdown`] and [`crate::entry::zap`] say what it is for.

use crate::base::config::CpuMasks;
use crate::mm::Mm;
use core::mem::offset_of;
use minflt_addr::VirtRange;
use minflt_pgtable::{Mmu, PtLock};
use minflt_sync::{Apart, Atomic, Ordering, SharedCpuMask};

/// Arenas whose masks are put together at most; of more, all that run the address space are asked.
const TOGETHER: usize = 16;

/// Of one arena.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Part<M: Mmu> {
    /// Zaps and protects within it whose invalidation is not yet done.
    pub(crate) flushes_pending: Atomic<u64, M>,
    /// Guards VMAs' getting their anon_vmas, in place of the address space's `page_table_lock`.
    pub(crate) prepare_lock: PtLock<M>,
    apart: Apart,
    /// The CPUs that may cache its translations, as far as they are in the mask of the address
    /// space.
    pub(crate) cpus: SharedCpuMask<M>,
}

impl<M: Mmu> Part<M> {
    /// Where the mask is in it.
    pub(crate) const MASK: usize = offset_of!(Self, cpus);

    /// Of a new arena.
    pub(crate) fn new() -> Self {
        Self {
            flushes_pending: Atomic::new(0),
            prepare_lock: PtLock::new(()),
            apart: Apart,
            cpus: SharedCpuMask::new(),
        }
    }
}

impl<M: Mmu> Mm<M> {
    /// What stands for a range that is in one arena.
    #[inline(always)]
    pub(crate) fn part_of(&self, range: VirtRange) -> Option<&Part<M>> {
        let arenas = self.divided()?;
        let only = arenas.span_of(range).only()?;
        arenas.get(only).map(|arena| &arena.part)
    }

    /// The parts of a range, where CPUs that use it are in their masks; none if it has too many, or
    /// if CPUs are in the mask of the address space only.
    pub(super) fn masks_of(&self, range: VirtRange) -> Option<impl Iterator<Item = &Part<M>>> {
        if self.system().config.cpu_masks == CpuMasks::Space {
            return None;
        }
        let arenas = self.divided()?;
        let span = arenas.span_of(range);
        let few = span.numbers().count() <= TOGETHER;
        // Set before the mark that `divided` has seen, or never.
        let known = arenas.linking.load(Ordering::Relaxed) != 0;
        (few && known).then(|| arenas.each(span).map(|(_, arena)| &arena.part))
    }

    /// Whether an invalidation in an arena of `range` is to come.
    pub(super) fn are_flushes_pending(&self, range: VirtRange) -> bool {
        // ORDERING: SeqCst; pairs with [flush-pending].
        let pending = |part: &Part<M>| part.flushes_pending.load(Ordering::SeqCst) != 0;
        self.divided().is_some_and(|arenas| {
            let mut parts = arenas.each(arenas.span_of(range));
            parts.any(|(_, arena)| pending(&arena.part))
        })
    }

    /// The same in all of them, or of several, for oracles.
    pub(super) fn peek_flushes_pending(&self) -> bool {
        let mut pending = self.flushes_pending.peek() != 0;
        self.peek_each_arena(|_, arena| pending |= arena.part.flushes_pending.peek() != 0);
        pending
    }
}
