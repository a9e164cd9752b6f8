//! Handles of address spaces: creation and teardown.

use crate::base::error::NoMemory;
use crate::call::brk::Heap;
use crate::call::pin::Pins;
use crate::entry::walk::Tables;
use crate::entry::zap::Zap;
use crate::fault::stack::DEFAULT_LIMIT;
use crate::memory::commit::Pages;
use crate::memory::lifetime::SystemRef;
use crate::memory::locks::Locks;
use crate::memory::rss::Resident;
use crate::memory::sizes::Sizes;
use crate::mm::Mm;
use crate::pages::file::UnusedFiles;
use crate::pages::numa::Balance;
use crate::pages::userfault::Userfaults;
use crate::space::arenas::look::Held;
use crate::space::tree::Tree;
use crate::space::vma::VmaPtr;
use crate::system::System;
use core::ops::Deref;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Apart, Atomic, Job, LockSeq, Ordering, RwSem, SharedCpuMask, SpinLock};

/// A handle of an address space, which is torn down when the last one is dropped.
///
/// A thread that is not on a CPU may drop it. On a machine of threads the teardown then runs on an
/// idle CPU, before the drop returns; where every CPU is busy it is deferred until one becomes
/// idle, the ledger runs, or memory is short ([`on_a_cpu`](minflt_sync::Machine::on_a_cpu)). Until
/// then the memory is in use.
#[derive(Debug)]
pub struct MmHandle<'s, M: Mmu> {
    sys: &'s System<M>,
    mm: NonNull<Mm<M>>,
}

// SAFETY: an `Mm` may be shared by threads.
unsafe impl<M: Mmu> Send for MmHandle<'_, M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for MmHandle<'_, M> {}

impl<M: Mmu> System<M> {
    /// A new, empty address space.
    ///
    /// # Errors
    /// When there is no frame for its root table or no memory for its descriptor.
    pub fn new_mm(&self) -> Result<MmHandle<'_, M>, NoMemory> {
        self.with_memory(|| Mm::create(self))
    }

    /// The same, to be filled before it is visible to others.
    ///
    /// # Errors
    /// As [`System::new_mm`].
    pub(super) fn fresh_mm(&self) -> Result<Fresh<'_, M>, NoMemory> {
        self.new_mm().map(|handle| Fresh { handle })
    }
}

/// An address space that is not yet visible to others.
///
/// # Invariants
/// 1. There is no other handle of it.
pub(super) struct Fresh<'s, M: Mmu> {
    handle: MmHandle<'s, M>,
}

impl<'s, M: Mmu> Fresh<'s, M> {
    /// Its mappings, as under `mmap_lock`.
    pub(super) fn held(&self) -> Held<'_, M> {
        // SAFETY: 1: a thread that changes the tree has a handle, and none is given out as long as
        // this is borrowed.
        unsafe { Held::without_guard(&self.handle) }
    }

    /// It is as it shall be.
    pub(super) fn hand_out(self) -> MmHandle<'s, M> {
        self.handle
    }
}

impl<M: Mmu> Mm<M> {
    pub(crate) fn create(sys: &System<M>) -> Result<MmHandle<'_, M>, NoMemory> {
        let arenas = sys.new_arenas()?;
        let Some(root) = Self::new_table(sys, M::Paging::levels() - 1) else {
            // SAFETY: 1: made just now.
            unsafe { sys.free_arenas(arenas) };
            return Err(NoMemory);
        };
        let rss_slot = sys.rss_slots.take();
        let mm = Self {
            // SAFETY: 1: allocated below, or given up.
            system: unsafe { SystemRef::new(sys) },
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
            start_stack: Atomic::new(0),
            arenas,
            several_writers: Atomic::new(0),
        };
        match sys.mms.alloc(mm, sys) {
            Ok(mm) => {
                sys.spaces.add(1, Ordering::Relaxed);
                Ok(MmHandle { sys, mm })
            }
            Err(_) => {
                sys.rss_slots.give(rss_slot);
                sys.put_table(root);
                // SAFETY: 1: made just now.
                unsafe { sys.free_arenas(arenas) };
                Err(NoMemory)
            }
        }
    }

    /// The last handle is gone: unmaps everything and gives all frames back.
    fn exit(&self) {
        let sys = self.system();
        let all = VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::user_end()));
        unmap_all(self, all);
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
    /// Another handle of the same address space, as for a process that shares it (`CLONE_VM`, as in
    /// vfork). Dropping the last handle tears it down.
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
        // SAFETY: 1: this handle was the last one, so the address space has no other user; it and
        // its system stay until the system ends, which takes the handler back.
        unsafe { M::on_a_cpu(&self.sys.at, job) };
    }
}

/// Unmaps everything and frees the address space.
///
/// # Safety
/// 1. `arg` is an address space whose last handle was dropped. 2. It is called once.
unsafe fn tear_down<M: Mmu>(arg: *const ()) {
    let mm = arg.cast::<Mm<M>>();
    // SAFETY: 1 of this function: live, until the free below.
    let gone = unsafe { &*mm };
    // SAFETY: a system outlives its address spaces.
    let sys: &System<M> = unsafe { &*core::ptr::from_ref(gone.system()) };
    gone.exit();
    sys.spaces.sub(1, Ordering::Relaxed);
    if let Some(mm) = NonNull::new(mm.cast_mut()) {
        // SAFETY: 1, 2: allocated by `create`; 1, 2 of this function.
        unsafe { sys.mms.free(mm, sys) };
    }
}

/// Takes every VMA out and frees every table, for a dying address space that nobody else has.
fn unmap_all<M: Mmu>(mm: &Mm<M>, all: VirtRange) {
    let sys = mm.system();
    // SAFETY: 1: nobody else has the address space.
    let tables = unsafe { Tables::kept(mm) };
    let mut zap = Zap::begin_last(tables, all);
    let mut gone = Pages::default();
    let mut zap_vma = |vma: VmaPtr<'_, M>| {
        let vma = vma.get();
        let view = vma.peek();
        if view.is_huge() {
            zap.huge_gone(vma, &view);
        } else {
            zap.range(view.range);
        }
        gone.add(Pages::of::<M>(&view));
    };
    mm.visit_vmas(&mut zap_vma);
    let files = UnusedFiles::new();
    // A reverse-map walk may be below a table.
    let mut unlink = |vma: VmaPtr<'_, M>| {
        let vma = vma.get();
        vma.give_back_own(sys);
        if let Some(unused) = sys.drop_link(mm, vma.link()) {
            files.add(unused);
        }
        sys.unlink_anon_vmas(vma);
    };
    mm.visit_vmas(&mut unlink);
    free_all_tables(mm, &mut zap, all);
    zap.finish_last();
    mm.count_unmapped(gone);
    let vma = |vma: VmaPtr<'_, M>| {
        if let Some(by) = sys.config.fallback_order.vma_lock() {
            vma.get().detach(by, mm);
        }
        // SAFETY: 1: nobody looks into the tree any more.
        unsafe { sys.retire_vma(vma.as_ptr()) };
    };
    let node = |node| {
        // SAFETY: 1: nobody looks into the tree any more.
        unsafe { sys.retire_node(node) };
    };
    // What names a VMA goes after it: a record in another arena is not followed any more.
    mm.visit_vmas(&mut { vma });
    mm.visit_nodes(&mut { node });
    // SAFETY: 1: nobody else has the address space.
    unsafe { sys.free_arenas(mm.arenas) };
    // They may wait for a device, which nothing else does now.
    drop(files);
}

/// Frees every table, those below one mapping after those below the one before: a table that both
/// overlap goes with the later one. Before a division there are none below holes
/// ([`crate::entry::zap`]).
///
/// Linux: free_pgtables.
fn free_all_tables<M: Mmu>(mm: &Mm<M>, zap: &mut Zap<'_, M>, all: VirtRange) {
    if mm.has_several_writers() {
        return zap.free_tables(all, all);
    }
    let mut before: Option<VirtRange> = None;
    let mut next = |vma: VmaPtr<'_, M>| {
        let range = vma.get().peek().range;
        if let Some(before) = before.replace(range) {
            zap.free_tables(before, VirtRange::new(all.start(), range.start()));
        }
    };
    mm.visit_vmas(&mut next);
    if let Some(last) = before {
        zap.free_tables(last, all);
    }
}
