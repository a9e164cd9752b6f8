//! An address space.

use crate::call::as_call;
use crate::call::brk::Heap;
use crate::call::mlock::Locks;
use crate::call::pin::Pins;
use crate::call::stack::DEFAULT_LIMIT;
use crate::call::userfaultfd::Userfaults;
use crate::commit::Sizes;
use crate::config::Broken;
use crate::error::NoMemory;
use crate::frame::Use;
use crate::numa::Balance;
use crate::rss::{Resident, Share, Slot};
use crate::system::System;
use crate::tree::{Mapping, Tree};
use crate::vma::{Vma, VmaView};
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
use minflt_sync::{
    Apart, Atomic, Job, LockSeq, Ordering, ReadGuard, RwSem, SharedCpuMask, SpinLock,
};

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
    /// Handles. The last one to go tears it down.
    pub(crate) users: Atomic<u64, M>,
    /// What VMAs that are write-locked now have in their own. Guarded by: `mmap_lock`, write.
    pub(crate) lock_seq: LockSeq<M>,
    /// CPUs that may buffer translations.
    pub(crate) cpus: SharedCpuMask<M>,
    /// Where CPUs count its resident pages. Immutable.
    pub(crate) rss_slot: Slot,
    pub(crate) heap: Heap<M>,
    pub(crate) pins: Pins<M>,
    pub(crate) uffd: Userfaults<M>,
    /// Bytes that a stack may grow to (`RLIMIT_STACK`).
    pub(crate) limit_stack: Atomic<u64, M>,
    pub(crate) sizes: Sizes<M>,
    pub(crate) locks: Locks<M>,
    written: Apart,
    /// Guards the tree and the VMAs' attributes.
    pub(crate) mmap_lock: RwSem<MmapLock, M>,
    pub(crate) rss: Resident<M>,
    /// Guards tables' being put in; all entries, where there is one lock for all.
    pub(crate) page_table_lock: PtLock<M>,
    /// Zaps and protects whose invalidation is not yet done.
    pub(crate) flushes_pending: Atomic<u64, M>,
    hinted: Apart,
    /// When and where balancing goes on, and what came of it.
    pub(crate) balance: Balance<M>,
}

// SAFETY: the link overwrites `system`; nobody holds an address space that was freed.
unsafe impl<M: Mmu> SlabObject for Mm<M> {}
// SAFETY: `system` outlives it and is shared; all else is shared by its own locks.
unsafe impl<M: Mmu> Send for Mm<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for Mm<M> {}

/// A handle of an address space, which is torn down when the last one is dropped.
///
/// A thread that is no CPU may drop it. On a machine of threads the teardown then runs on a CPU
/// that nobody is, before the drop returns; where every CPU is taken it waits until one is left,
/// the ledger is asked for, or memory is short ([`on_a_cpu`](minflt_sync::Machine::on_a_cpu)).
/// Until then the memory is in use.
#[derive(Debug)]
pub struct MmHandle<'s, M: Mmu> {
    sys: &'s System<M>,
    mm: NonNull<Mm<M>>,
}

// SAFETY: an `Mm` may be shared by threads.
unsafe impl<M: Mmu> Send for MmHandle<'_, M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for MmHandle<'_, M> {}

/// The mappings of an address space, none of which changes while this lives.
#[derive(Debug)]
pub struct Mappings<'m, M: Mmu> {
    mm: &'m Mm<M>,
    _held: ReadGuard<'m, MmapLock, M>,
}

impl<M: Mmu> Mappings<'_, M> {
    /// What is mapped at `addr`.
    #[inline]
    #[must_use]
    pub fn at(&self, addr: VirtAddr) -> Option<Mapping> {
        // SAFETY: 1: under `mmap_lock`.
        unsafe { self.mm.tree.mapping(addr) }
    }

    /// The attributes of the mapping that covers `addr`, found as a fault finds them: by its VMA.
    #[inline]
    #[must_use]
    pub fn vma_at(&self, addr: VirtAddr) -> Option<VmaView> {
        // SAFETY: 1: under `mmap_lock`.
        let view = unsafe { self.mm.tree.at_or_before(addr) }?.view();
        view.range.contains(addr).then_some(view)
    }
}

impl<M: Mmu> Mm<M> {
    pub(crate) fn create(sys: &System<M>) -> Result<MmHandle<'_, M>, NoMemory> {
        let root = Self::new_table(sys, M::Paging::levels() - 1).ok_or(NoMemory)?;
        let rss_slot = sys.rss_slots.take();
        let mm = Self {
            system: sys,
            space: sys.new_space(),
            root,
            tree: Tree::new(),
            users: Atomic::new(1),
            lock_seq: LockSeq::new(),
            cpus: SharedCpuMask::new(),
            rss_slot,
            heap: Heap::new(),
            pins: Pins::new(),
            uffd: Userfaults::new(),
            limit_stack: Atomic::new(DEFAULT_LIMIT),
            sizes: Sizes::new(),
            locks: Locks::new(),
            written: Apart,
            mmap_lock: RwSem::new(sys.config.sleeping_locks.of_semaphore()),
            rss: Resident::new(),
            page_table_lock: SpinLock::new(()),
            flushes_pending: Atomic::new(0),
            hinted: Apart,
            balance: Balance::new(),
        };
        match sys.mms.alloc(mm, sys) {
            Ok(mm) => {
                sys.spaces.add(1, Ordering::Relaxed);
                Ok(MmHandle { sys, mm })
            }
            Err(_) => {
                sys.rss_slots.give(rss_slot);
                sys.put_table(root);
                Err(NoMemory)
            }
        }
    }

    /// The system it belongs to.
    #[inline(always)]
    pub fn system(&self) -> &System<M> {
        // A freed one names another, or none: for controls, which come to such.
        if M::CHECKED && self.system.is_null() {
            M::violation(format_args!("an address space is used that was freed"));
        }
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
            VirtAddr(M::Paging::user_end() - M::Paging::page()),
        )
    }

    /// The mappings, held still: `mmap_lock` for reading until dropped.
    ///
    /// # Context
    /// Sleeps for the lock. Whoever holds it calls nothing of this address space that takes it.
    #[inline]
    pub fn mappings(&self) -> Mappings<'_, M> {
        Mappings {
            mm: self,
            _held: self.mmap_lock.read(),
        }
    }

    /// What is mapped at `addr`.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    #[inline]
    #[must_use]
    pub fn mapping_at(&self, addr: VirtAddr) -> Option<Mapping> {
        self.mappings().at(addr)
    }

    /// Calls `visit` with each mapping, in order, under `mmap_lock`.
    pub fn for_each_mapping(&self, mut visit: impl FnMut(VirtRange, crate::vma::Prot)) {
        let _held = self.mmap_lock.read();
        self.tree_visit(|vma| {
            let view = vma.view();
            visit(view.range, view.prot);
        });
    }

    /// Leaves of the tree of mappings, of at most 18 each: how full they are says how much memory
    /// lookups at random have to go through. Sleeps for `mmap_lock`.
    #[must_use]
    pub fn mapping_leaves(&self) -> usize {
        let _held = self.mmap_lock.read();
        // SAFETY: 1: under `mmap_lock`.
        unsafe { self.tree.leaves() }
    }

    /// Calls `visit` with each VMA, in order. The caller holds `mmap_lock`.
    pub(crate) fn tree_visit<'a>(&'a self, mut visit: impl FnMut(&'a Vma<M>)) {
        let mut at = VirtAddr(0);
        // SAFETY: 1: under `mmap_lock`.
        while let Some(vma) = unsafe { self.tree.at_or_after(at) } {
            visit(vma);
            at = vma.view().range.end();
        }
    }

    /// Calls `visit` with the parts of `range` whose tables stay while the caller holds
    /// `mmap_lock`, in order: all that is mapped but huge pages. Tables of those may be shared, and
    /// then others leave and free them under `i_mmap`, whoever has `mmap_lock` (P59); a walk
    /// through them holds `i_mmap`, as [`Mm::see_huge`] does.
    ///
    /// Linux: hugetlb_walk, which asks for the mapping's lock or `i_mmap` (v6.3).
    pub(crate) fn each_unshared(&self, range: VirtRange, mut visit: impl FnMut(VirtRange)) {
        let mut at = range.start();
        while at < range.end()
            && let Some(vma) = self.find(at)
        {
            let view = vma.view();
            let part = view.range.intersect(range);
            let stays = !view.is_huge() || self.system().lacks(Broken::AgesShared);
            if stays && !part.is_empty() {
                visit(part);
            }
            at = view.range.end();
        }
    }

    /// Clears the accessed bits of the pages in `range`; returns how many were set. Huge pages are
    /// passed over: they are not reclaimed, so nothing asks for their age.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    pub fn age(&self, range: VirtRange) -> u64 {
        as_call(self.system(), || self.age_range(range))
    }

    fn age_range(&self, range: VirtRange) -> u64 {
        let _held = self.mmap_lock.read();
        let mut zap = Zap::begin(self, range);
        let mut young = 0;
        if self.system().lacks(Broken::AgeHoles) {
            young = zap.age(range);
        } else {
            // Elsewhere munmap may be freeing tables.
            self.each_unshared(range, |part| young += zap.age(part));
        }
        zap.finish();
        young
    }

    /// Frames for a table of level `level`, with nothing in it.
    pub(crate) fn new_table(sys: &System<M>, level: u32) -> Option<Pfn> {
        let order = table_order::<M::Paging>(level);
        let pfn = sys.frames.alloc_block(&sys.at, order, Use::Table)?;
        let frame = sys.frames.get(pfn);
        frame.level.store(level, Ordering::Relaxed);
        frame.index.store(0, Ordering::Relaxed);
        frame.set_zeroed(crate::frame::Zeroed::No);
        let bytes = table_bytes::<M::Paging>(level);
        M::charge(minflt_sync::Cost::Clear {
            bytes,
            node: sys.frames.node_of(pfn),
        });
        let none = Pte::<M::Paging>::none_at(level);
        for part in 0..1 << order {
            let words = M::frame_ptr(&sys.at, Pfn(pfn.0 + part));
            let here = bytes.min(M::Paging::page()) as usize;
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

    /// Does something that may fault pages in on behalf of no thread: nobody's memory policy is
    /// asked, and what is counted goes to the whole at once.
    pub(crate) fn for_no_thread<T>(&self, body: impl FnOnce(&Share) -> T) -> T {
        let share = Share::default();
        let result = body(&share);
        self.rss.sync(&share);
        result
    }

    /// The last holder lets go: unmaps everything and gives all frames back.
    fn exit(&self) {
        let sys = self.system();
        let all = VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::user_end()));
        crate::call::munmap::unmap_all(self, all);
        self.end_resident();
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

impl<'s, M: Mmu> MmHandle<'s, M> {
    /// Another handle of the same address space, as a process that shares it has (`CLONE_VM`, which
    /// vfork asks for). The last handle to go tears it down.
    ///
    /// Linux: mmget.
    #[must_use]
    pub fn share(&self) -> Self {
        self.users.add(1, Ordering::Relaxed);
        Self {
            sys: self.sys,
            mm: self.mm,
        }
    }

    /// See [`System::fork`].
    ///
    /// # Errors
    /// No memory; nothing has changed then.
    pub fn fork(&self) -> Result<MmHandle<'s, M>, NoMemory> {
        self.sys.fork(self)
    }
}

impl<M: Mmu> Drop for MmHandle<'_, M> {
    fn drop(&mut self) {
        // ORDERING: Release; pairs with [mm-put].
        if self.users.sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // ORDERING: Acquire, by the same step; pairs with [mm-put].
        let job = Job {
            call: tear_down::<M>,
            arg: self.mm.as_ptr().cast_const().cast(),
        };
        // SAFETY: 1: this handle was the last one, so nobody else has the address space; it and its
        // system stay until the system ends, which takes the handler back.
        unsafe { M::on_a_cpu(&self.sys.at, job) };
    }
}

/// Unmaps everything and frees the address space.
///
/// # Safety
/// 1. `arg` is an address space whose last handle has gone. 2. It is called once.
unsafe fn tear_down<M: Mmu>(arg: *const ()) {
    let mm = arg.cast::<Mm<M>>();
    // SAFETY: 1 of this function.
    let sys: *const System<M> = unsafe { (*mm).system };
    // SAFETY: a system outlives its address spaces.
    let sys = unsafe { &*sys };
    // SAFETY: 1 of this function.
    unsafe { &*mm }.exit();
    sys.spaces.sub(1, Ordering::Relaxed);
    if let Some(mm) = NonNull::new(mm.cast_mut()) {
        // SAFETY: 1, 2: allocated by `create`; 1, 2 of this function.
        unsafe { sys.mms.free(mm, sys) };
    }
}

impl<M: Mmu> fmt::Debug for Mm<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mm {}", self.space.0)
    }
}
