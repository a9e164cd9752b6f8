//! An address space.

use crate::anon_vma::AnonVma;
use crate::error::NoMemory;
use crate::frame::Use;
use crate::rss::Resident;
use crate::system::System;
use crate::tree::Tree;
use crate::vma::Vma;
use crate::zap::Zap;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{
    Mmu, Paging, PtLock, Pte, SpaceId, Table, entries_of, table_bytes, table_order,
};
use minflt_sync::order::MmapLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Apart, Atomic, Ordering, RwSem, SharedCpuMask, SpinLock};

/// An address space: its VMAs, its tables, and what ties them together.
///
/// What every fault reads stands before `written` and changes with mappings only; what faults
/// write, as their era has it, stands together behind, so that one move of one line serves the
/// lock, the count and the release. A speculative fault writes none of it.
///
/// Linux: `struct mm_struct`.
#[repr(C)]
pub struct Mm<M: Mmu> {
    pub(crate) system: *const System<M>,
    /// Names it to translation buffers. Immutable.
    pub(crate) space: SpaceId,
    /// The root table. Immutable.
    pub(crate) root: Pfn,
    pub(crate) tree: Tree<M>,
    /// The address of the one anon_vma, 0 before there is one. Guarded by: `page_table_lock`, once
    /// from none.
    pub(crate) anon_vma: Atomic<u64, M>,
    /// CPUs that may buffer translations.
    pub(crate) cpus: SharedCpuMask<M>,
    written: Apart,
    /// Guards the tree and the VMAs' attributes.
    pub(crate) mmap_lock: RwSem<MmapLock, M>,
    pub(crate) rss: Resident<M>,
    /// Guards tables' being put in; all entries, where there is one lock for all.
    pub(crate) page_table_lock: PtLock<M>,
    /// Zaps and protects whose invalidation is not yet done.
    pub(crate) flushes_pending: Atomic<u64, M>,
}

// SAFETY: the link overwrites `system`; nobody holds an address space that was freed.
unsafe impl<M: Mmu> SlabObject for Mm<M> {}
// SAFETY: `system` outlives it and is shared; all else is shared by its own locks.
unsafe impl<M: Mmu> Send for Mm<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for Mm<M> {}

/// An address space that is torn down when dropped.
#[derive(Debug)]
pub struct MmHandle<'s, M: Mmu> {
    sys: &'s System<M>,
    mm: NonNull<Mm<M>>,
}

// SAFETY: an `Mm` may be shared by threads.
unsafe impl<M: Mmu> Send for MmHandle<'_, M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for MmHandle<'_, M> {}

impl<M: Mmu> Mm<M> {
    pub(crate) fn create(sys: &System<M>) -> Result<MmHandle<'_, M>, NoMemory> {
        let root = Self::new_table(sys, M::Paging::LEVELS - 1).ok_or(NoMemory)?;
        let mm = Self {
            system: sys,
            space: sys.new_space(),
            root,
            tree: Tree::new(),
            anon_vma: Atomic::new(0),
            cpus: SharedCpuMask::new(),
            written: Apart,
            mmap_lock: RwSem::new(),
            rss: Resident::new(),
            page_table_lock: SpinLock::new(()),
            flushes_pending: Atomic::new(0),
        };
        match sys.mms.alloc(mm, sys) {
            Ok(mm) => {
                sys.spaces.add(1, Ordering::Relaxed);
                Ok(MmHandle { sys, mm })
            }
            Err(_) => {
                sys.put_table(root);
                Err(NoMemory)
            }
        }
    }

    /// The system it belongs to.
    #[inline(always)]
    pub fn system(&self) -> &System<M> {
        // SAFETY: a system outlives its address spaces.
        unsafe { &*self.system }
    }

    /// The frame of its root table, for machines whose hardware walks it.
    #[must_use]
    pub const fn root_table(&self) -> Pfn {
        self.root
    }

    /// Its name in translation buffers.
    #[must_use]
    pub const fn space(&self) -> SpaceId {
        self.space
    }

    /// The addresses that can be mapped: all of user space but its first 64 KiB.
    #[must_use]
    pub fn user_range() -> VirtRange {
        VirtRange::new(
            VirtAddr(1 << 16),
            VirtAddr(M::Paging::USER_END - M::Paging::PAGE),
        )
    }

    /// Resident pages, as a reader is shown them.
    #[must_use]
    pub fn resident_pages(&self) -> i64 {
        self.rss.shown(&self.system().config)
    }

    /// Calls `visit` with each mapping, in order, under `mmap_lock`.
    pub fn for_each_mapping(&self, mut visit: impl FnMut(VirtRange, crate::vma::Prot)) {
        let _held = self.mmap_lock.read();
        let mut at = VirtAddr(0);
        // SAFETY: 1: under `mmap_lock`.
        while let Some(vma) = unsafe { self.tree.at_or_after(at) } {
            let view = vma.view();
            visit(view.range, view.prot);
            at = view.range.end();
        }
    }

    /// Clears the accessed bits of the pages in `range`; returns how many were set.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    pub fn age(&self, range: VirtRange) -> u64 {
        let _held = self.mmap_lock.read();
        let mut zap = Zap::begin(self, range);
        let young = zap.age(range);
        zap.finish();
        young
    }

    /// Frames for a table of level `level`, with nothing in it.
    pub(crate) fn new_table(sys: &System<M>, level: u32) -> Option<Pfn> {
        let order = table_order::<M::Paging>(level);
        let pfn = sys.frames.alloc_block(&sys.at, order, Use::Table)?;
        let frame = sys.frames.get(pfn);
        frame.level.store(level, Ordering::Relaxed);
        frame.set_zeroed(crate::frame::Zeroed::No);
        let bytes = table_bytes::<M::Paging>(level);
        M::charge(minflt_sync::Cost::Clear {
            bytes,
            node: sys.frames.node_of(pfn),
        });
        let none = Pte::<M::Paging>::none_at(level);
        for part in 0..1 << order {
            let words = M::frame_ptr(&sys.at, Pfn(pfn.0 + part));
            let here = bytes.min(M::Paging::PAGE) as usize;
            // SAFETY: duty 1 of `Mmu`: the frame's bytes, which nobody else uses.
            unsafe { words.write_bytes(0, here) };
        }
        if none.raw() != 0 {
            // SAFETY: 1: the frames hold zeros, and nobody else uses them.
            let table = unsafe { Table::<M>::at(&sys.at, pfn, level) };
            for index in 0..entries_of::<M::Paging>(level) as usize {
                table.entry(index).clear(none);
            }
        }
        Some(pfn)
    }

    /// The first VMA that ends after `addr`. The caller holds `mmap_lock`.
    pub(crate) fn find(&self, addr: VirtAddr) -> Option<&Vma<M>> {
        // SAFETY: 1: under `mmap_lock`.
        let before = unsafe { self.tree.at_or_before(addr) };
        match before {
            Some(vma) if vma.view().range.end() > addr => Some(vma),
            // SAFETY: 1: as above.
            _ => unsafe { self.tree.at_or_after(addr) },
        }
    }

    /// The anon_vma's id, making one if there is none yet. The caller holds `mmap_lock`.
    pub(crate) fn prepare_anon_vma(&self, vma: &Vma<M>) -> Result<(), NoMemory> {
        let sys = self.system();
        let fresh = AnonVma {
            id: sys.new_id(),
            users: Atomic::new(0),
        };
        // ORDERING: Acquire; pairs with [mm-anon-vma].
        let spare = match self.anon_vma.load(Ordering::Acquire) {
            0 => Some(sys.anon_vmas.alloc(fresh, sys).map_err(|_| NoMemory)?),
            _ => None,
        };
        let unused = {
            let _held = self.page_table_lock.lock();
            let unused = match spare {
                Some(fresh) if self.anon_vma.load(Ordering::Relaxed) == 0 => {
                    // ORDERING: Release; pairs with [mm-anon-vma].
                    self.anon_vma
                        .store(fresh.as_ptr() as u64, Ordering::Release);
                    None
                }
                spare => spare,
            };
            if vma.anon_vma.load(Ordering::Relaxed) == 0
                && let Some(anon_vma) = self.anon_vma()
            {
                anon_vma.users.add(1, Ordering::Relaxed);
                // ORDERING: Release; pairs with [vma-anon-vma].
                vma.anon_vma.store(anon_vma.id, Ordering::Release);
            }
            unused
        };
        if let Some(unused) = unused {
            // SAFETY: 1, 2: allocated above, never published.
            unsafe { sys.anon_vmas.free(unused) };
        }
        Ok(())
    }

    /// The one anon_vma, if there is one.
    fn anon_vma(&self) -> Option<&AnonVma<M>> {
        // ORDERING: Acquire; pairs with [mm-anon-vma].
        let anon_vma = self.anon_vma.load(Ordering::Acquire) as *const AnonVma<M>;
        // SAFETY: published once, freed with the address space.
        unsafe { anon_vma.as_ref() }
    }

    /// The last holder lets go: unmaps everything and gives all frames back.
    fn exit(&self) {
        let sys = self.system();
        let all = VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::USER_END));
        crate::call::munmap::unmap_all(self, all);
        let anon_vma = NonNull::new(self.anon_vma.load(Ordering::Relaxed) as *mut AnonVma<M>);
        if let Some(anon_vma) = anon_vma {
            // SAFETY: 1, 2: nobody else has the address space.
            unsafe { sys.anon_vmas.free(anon_vma) };
        }
        sys.put_table(self.root);
        sys.run_deferred();
    }
}

impl<M: Mmu> Deref for MmHandle<'_, M> {
    type Target = Mm<M>;

    fn deref(&self) -> &Mm<M> {
        // SAFETY: allocated by `create`, freed when the handle is dropped.
        unsafe { self.mm.as_ref() }
    }
}

impl<M: Mmu> Drop for MmHandle<'_, M> {
    fn drop(&mut self) {
        self.exit();
        self.sys.spaces.sub(1, Ordering::Relaxed);
        // SAFETY: 1, 2: allocated by `create`, and this handle is the only one.
        unsafe { self.sys.mms.free(self.mm) };
    }
}

impl<M: Mmu> fmt::Debug for Mm<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mm {}", self.space.0)
    }
}
