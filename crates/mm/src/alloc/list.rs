//! The free frames that a CPU has to itself.

use core::ops::Range;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::Plain;

pub(super) const CPU_LIST: usize = 64;
const CPU_BATCH: usize = 32;

/// The free frames of one CPU.
#[derive(Debug)]
pub(crate) struct CpuFrames<M: Mmu> {
    /// Guarded by: being this CPU's.
    pub(super) list: Plain<CpuList, M>,
}

#[derive(Debug)]
pub(super) struct CpuList {
    /// Frames that were freed here, the last one on top.
    pub(super) frames: [u32; CPU_LIST],
    pub(super) len: usize,
    /// What is left of a block from a zone.
    pub(super) block: Range<u64>,
}

impl CpuList {
    /// The frame that is taken next.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<Pfn> {
        self.coming(0)
    }

    /// The frame that is taken after `others`, as far as is known.
    #[inline(always)]
    pub(super) fn coming(&self, others: usize) -> Option<Pfn> {
        if others < self.len {
            return Some(Pfn(u64::from(self.frames[self.len - 1 - others])));
        }
        let pfn = self.block.start + (others - self.len) as u64;
        (pfn < self.block.end).then_some(Pfn(pfn))
    }

    /// Takes that frame.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Pfn> {
        let next = self.next()?;
        if self.len > 0 {
            self.len -= 1;
        } else {
            self.block.start += 1;
        }
        Some(next)
    }

    /// All frames of the CPU.
    pub(super) fn all(&self) -> impl Iterator<Item = Pfn> + '_ {
        let freed = self.frames[..self.len].iter();
        let freed = freed.map(|pfn| Pfn(u64::from(*pfn)));
        freed.chain(self.block.clone().map(Pfn))
    }

    /// Takes half of those that were freed.
    pub(super) fn take_batch(&mut self) -> ([u32; CPU_BATCH], usize) {
        let mut batch = [0; CPU_BATCH];
        let count = self.len.div_ceil(2);
        self.len -= count;
        batch[..count].copy_from_slice(&self.frames[self.len..self.len + count]);
        (batch, count)
    }
}

impl<M: Mmu> CpuFrames<M> {
    pub(crate) const fn new() -> Self {
        Self {
            list: Plain::new(CpuList {
                frames: [0; CPU_LIST],
                len: 0,
                block: 0..0,
            }),
        }
    }
}
