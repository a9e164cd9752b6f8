//! The reverse map of anonymous memory: which mappings may hold a page.
//!
//! # Problem
//! After a fork a page can be reached from the address space that made it and from every one that
//! was forked from it since. Whoever wants to take the page away must find all of them, and finding
//! them must not cost more than there are.
//!
//! # Idea
//! A page names the anon_vma of the mapping that made it. A mapping is chained to its own anon_vma
//! and to those of all its ancestors, since it may hold pages of each.
//!
//! ```text
//! VMA of the parent ──chain── A         A: pages made before the fork, or by the parent since
//!                             │
//! VMA of the child ───chain───┘
//!        └────────────chain── B         B: pages made by the child since
//! ```
//! The anon_vmas of all processes that descend from one make a tree, whose lock is the root's.
//!
//! # Protocol
//! - A mapping gets its first anon_vma from a fault that holds `mmap_lock` for reading: everything
//!   is allocated, then linked under the root's lock and `page_table_lock`, unless another fault
//!   was faster. A neighbour's is taken where it can be, so that the two could be merged.
//! - Split and fork clone the chains; fork then adds an anon_vma of the child's own.
//! - A mapping that goes is unchained under the root's lock after its pages were zapped. What has
//!   no chain left is freed behind the lock, for the root may be among it; who unchains counts in
//!   the root meanwhile, which must outlive its lock's being let go.
//!
//! # Why it is correct
//! Pages that a mapping holds were made under an anon_vma that it is chained to: its own, or one
//! that it was chained to when it was forked; the ledger checks each page for that. An anon_vma
//! with at most one child and no mapping of its own can serve a forked mapping as its own, which
//! keeps a process that forks, and whose parent exits, for ever, from making ever longer chains.
//! Children and mappings are counted apart: one number for both let one anon_vma be taken twice
//! (CVE-2022-42703).
//!
//! # Cost
//! The first fault of a mapping takes the root's lock; no other fault does. Fork and split allocate
//! a link for each generation.
//!
//! Linux: mm/rmap.c __anon_vma_prepare, anon_vma_clone, anon_vma_fork, unlink_anon_vmas. The links
//! of one anon_vma stand in a list here; there they stand in an interval tree, which pays once
//! somebody walks them.

use crate::config::Broken;
use crate::error::NoMemory;
use crate::mm::Mm;
use crate::system::System;
use crate::vma::{Vma, VmaView};
use core::ptr::NonNull;
use minflt_addr::VirtAddr;
use minflt_pgtable::Mmu;
use minflt_sync::order::AnonVmaLock;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Ordering, RwSem};

/// Where the mappings of the pages that one mapping made can be found.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct AnonVma<M: Mmu> {
    /// The oldest of its tree, which has the lock. Immutable.
    root: NonNull<Self>,
    /// That of the mapping it was forked from; a root is its own. Immutable.
    parent: NonNull<Self>,
    /// The first of the links to mappings that may hold its pages, 0 for none. Guarded by: the
    /// root's lock.
    links: Atomic<u64, M>,
    /// Anon_vmas that have it for a parent; a root counts itself. Guarded by: the root's lock.
    children: Atomic<u64, M>,
    /// Mappings whose own anon_vma it is. Guarded by: the root's lock.
    active: Atomic<u64, M>,
    /// One while it has links, and one for each descendant of a root.
    refs: Atomic<u64, M>,
    /// Guards the links and counts of the whole tree. Only a root's is used.
    pub(crate) lock: RwSem<AnonVmaLock, M>,
}

/// A link between a mapping and an anon_vma. Linux: `struct anon_vma_chain`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Chain<M: Mmu> {
    /// The next older link of the same mapping, 0 for none. Guarded by: `mmap_lock` for writing,
    /// or for reading with `page_table_lock`.
    older: Atomic<u64, M>,
    /// Immutable.
    anon_vma: NonNull<AnonVma<M>>,
    /// The neighbours among the links of the anon_vma. Guarded by: the root's lock.
    next: Atomic<u64, M>,
    prev: Atomic<u64, M>,
    /// The mapping, for whoever walks the anon_vma. Immutable.
    vma: NonNull<Vma<M>>,
}

// SAFETY: the free link overwrites the root of an anon_vma that nothing names any more.
unsafe impl<M: Mmu> SlabObject for AnonVma<M> {}
// SAFETY: nobody reads a freed link.
unsafe impl<M: Mmu> SlabObject for Chain<M> {}
// SAFETY: what the pointers lead to is shared by the locks named above.
unsafe impl<M: Mmu> Send for AnonVma<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for AnonVma<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Send for Chain<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for Chain<M> {}

impl<M: Mmu> AnonVma<M> {
    pub(crate) fn root(&self) -> &Self {
        // SAFETY: a root outlives its descendants, each of which counts in its `refs`.
        unsafe { self.root.as_ref() }
    }

    fn is_root(&self) -> bool {
        core::ptr::eq(self.root.as_ptr(), self)
    }

    /// Puts `chain` in front of the links. The root's lock is held.
    fn link(&self, chain: NonNull<Chain<M>>) {
        let first = self.links.load(Ordering::Relaxed);
        // SAFETY: the caller made it, or it stands in this list.
        unsafe { chain.as_ref() }
            .next
            .store(first, Ordering::Relaxed);
        if let Some(first) = chain_at::<M>(first) {
            first.prev.store(address(chain), Ordering::Relaxed);
        }
        self.links.store(address(chain), Ordering::Relaxed);
    }

    /// Takes `chain` out of the links. The root's lock is held.
    fn unlink(&self, chain: &Chain<M>) {
        let next = chain.next.load(Ordering::Relaxed);
        let prev = chain.prev.load(Ordering::Relaxed);
        match chain_at::<M>(prev) {
            Some(prev) => prev.next.store(next, Ordering::Relaxed),
            None => self.links.store(next, Ordering::Relaxed),
        }
        if let Some(next) = chain_at::<M>(next) {
            next.prev.store(prev, Ordering::Relaxed);
        }
    }

    /// Whether a forked mapping may have it for its own.
    fn reusable(&self) -> bool {
        self.children.load(Ordering::Relaxed) < 2 && self.active.load(Ordering::Relaxed) == 0
    }
}

impl<M: Mmu> Chain<M> {
    fn anon_vma(&self) -> &AnonVma<M> {
        // SAFETY: an anon_vma lives as long as it has links.
        unsafe { self.anon_vma.as_ref() }
    }
}

fn address<T>(object: NonNull<T>) -> u64 {
    object.as_ptr() as u64
}

/// The link at an address taken from a list, which keeps it.
fn chain_at<'a, M: Mmu>(address: u64) -> Option<&'a Chain<M>> {
    // SAFETY: lists name live links, and the caller holds the lock of the list.
    unsafe { (address as *const Chain<M>).as_ref() }
}

/// The links of a mapping, newest first.
pub(crate) fn chains_of<'a, M: Mmu>(
    vma: &Vma<M>,
) -> impl Iterator<Item = &'a Chain<M>> + use<'a, M> {
    let first = chain_at(vma.chain.load(Ordering::Relaxed));
    core::iter::successors(first, |chain| chain_at(chain.older.load(Ordering::Relaxed)))
}

impl<M: Mmu> Vma<M> {
    /// Whether the mapping is found from the anon_vma at this address. For oracles, while nothing
    /// runs.
    pub(crate) fn is_chained_to(&self, anon_vma: u64) -> bool {
        let first = chain_at::<M>(self.chain.peek());
        let mut all = core::iter::successors(first, |chain| chain_at(chain.older.peek()));
        all.any(|chain| address(chain.anon_vma) == anon_vma)
    }

    /// How many anon_vmas it is chained to. For oracles, while nothing runs.
    pub(crate) fn chain_links(&self) -> u64 {
        let first = chain_at::<M>(self.chain.peek());
        core::iter::successors(first, |chain| chain_at(chain.older.peek())).count() as u64
    }

    /// Its own anon_vma, if it has one. The caller holds `mmap_lock`.
    pub(crate) fn own_anon_vma(&self) -> Option<&AnonVma<M>> {
        // ORDERING: Acquire; pairs with [vma-anon-vma].
        let own = self.anon_vma.load(Ordering::Acquire) as *const AnonVma<M>;
        // SAFETY: lives as long as this mapping is chained to it.
        unsafe { own.as_ref() }
    }
}

impl<M: Mmu> Vma<M> {
    /// Its own anon_vma, if it is chained to no other.
    pub(crate) fn only_anon_vma(&self) -> Option<&AnonVma<M>> {
        let own = self.own_anon_vma()?;
        let mut chains = chains_of(self).skip(1);
        chains.next().is_none().then_some(own)
    }
}

impl<M: Mmu> Mm<M> {
    /// Gives the mapping an anon_vma of its own, if it has none yet. The caller holds `mmap_lock`.
    ///
    /// Linux: __anon_vma_prepare.
    #[cold]
    #[inline(never)]
    pub(crate) fn prepare_anon_vma(&self, vma: &Vma<M>) -> Result<(), NoMemory> {
        let sys = self.system();
        let shared = self.mergeable_anon_vma(vma);
        let (anon_vma, fresh) = match shared {
            Some(neighbours) => (NonNull::from(neighbours), None),
            None => {
                let fresh = sys.new_anon_vma(None)?;
                (fresh, Some(fresh))
            }
        };
        let chain = sys.new_chain(vma, anon_vma).inspect_err(|_| {
            if let Some(fresh) = fresh {
                sys.discard_anon_vma(fresh);
            }
        })?;
        // SAFETY: fresh, or kept by the neighbour's chain, which `mmap_lock` keeps.
        let own = unsafe { anon_vma.as_ref() };
        let mine = {
            let _tree = own.root().lock.write();
            let _tables = self.page_table_lock.lock();
            let mine = vma.anon_vma.load(Ordering::Relaxed) == 0;
            if mine {
                own.link(chain);
                own.active.add(1, Ordering::Relaxed);
                if fresh.is_some() {
                    own.children.add(1, Ordering::Relaxed);
                }
                vma.chain.store(address(chain), Ordering::Relaxed);
                // ORDERING: Release; pairs with [vma-anon-vma].
                vma.anon_vma.store(address(anon_vma), Ordering::Release);
            }
            mine
        };
        if !mine {
            sys.discard_chain(chain);
            if let Some(fresh) = fresh {
                sys.discard_anon_vma(fresh);
            }
        }
        Ok(())
    }

    /// The anon_vma of a neighbour that touches the mapping, if it is the neighbour's only one: the
    /// two mappings could then be merged some day.
    ///
    /// Linux: find_mergeable_anon_vma.
    fn mergeable_anon_vma(&self, vma: &Vma<M>) -> Option<&AnonVma<M>> {
        let view = vma.view();
        let range = view.range;
        // Linux: anon_vma_compatible, which looks neither at what may be done there nor at
        // userfaultfds.
        let alike = |other: VmaView| {
            let (prot, uffd) = (other.prot, other.uffd);
            let like = VmaView { prot, uffd, ..view };
            other == like.of_range::<M::Paging>(other.range)
        };
        // SAFETY: 1: under `mmap_lock`.
        let above = unsafe { self.tree.at_or_after(range.end()) };
        let above = above.filter(|vma| {
            let view = vma.view();
            view.range.start() == range.end() && alike(view)
        });
        if let Some(found) = above.and_then(Vma::only_anon_vma) {
            return Some(found);
        }
        let last = VirtAddr(range.start().0.checked_sub(1)?);
        // SAFETY: 1: as above.
        let below = unsafe { self.tree.at_or_before(last) };
        let below = below.filter(|vma| {
            let view = vma.view();
            view.range.end() == range.start() && alike(view)
        });
        below.and_then(Vma::only_anon_vma)
    }
}

impl<M: Mmu> System<M> {
    /// A new anon_vma without links: a child of `parent`, or a root.
    fn new_anon_vma(&self, parent: Option<&AnonVma<M>>) -> Result<NonNull<AnonVma<M>>, NoMemory> {
        let dangling = NonNull::dangling();
        let new = AnonVma {
            root: parent.map_or(dangling, |parent| parent.root),
            parent: parent.map_or(dangling, NonNull::from),
            links: Atomic::new(0),
            children: Atomic::new(0),
            active: Atomic::new(0),
            refs: Atomic::new(1),
            lock: RwSem::new(),
        };
        let mut new = self.anon_vmas.alloc(new, self).map_err(|_| NoMemory)?;
        match parent {
            Some(parent) => {
                parent.root().refs.add(1, Ordering::Relaxed);
            }
            None => {
                let own = new;
                // SAFETY: allocated just now, published nowhere.
                let new = unsafe { new.as_mut() };
                (new.root, new.parent) = (own, own);
            }
        }
        Ok(new)
    }

    fn new_chain(
        &self,
        vma: &Vma<M>,
        anon_vma: NonNull<AnonVma<M>>,
    ) -> Result<NonNull<Chain<M>>, NoMemory> {
        let chain = Chain {
            older: Atomic::new(0),
            anon_vma,
            next: Atomic::new(0),
            prev: Atomic::new(0),
            vma: NonNull::from(vma),
        };
        self.chains.alloc(chain, self).map_err(|_| NoMemory)
    }

    fn discard_chain(&self, chain: NonNull<Chain<M>>) {
        // SAFETY: 1, 2: linked nowhere.
        unsafe { self.chains.free(chain) };
    }

    /// Lets go of one that has no links; frees it, and then perhaps its root, when nobody else
    /// counts on it.
    fn discard_anon_vma(&self, anon_vma: NonNull<AnonVma<M>>) {
        // SAFETY: alive: the caller's count is still in it.
        let dying = unsafe { anon_vma.as_ref() };
        // ORDERING: Release; pairs with [anon-vma-put].
        if dying.refs.sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // ORDERING: Acquire, by the same step; pairs with [anon-vma-put].
        let root = (!dying.is_root()).then_some(dying.root);
        // SAFETY: 1, 2: the last count is gone, so no link, page walk or descendant names it.
        unsafe { self.anon_vmas.free(anon_vma) };
        if let Some(root) = root {
            self.discard_anon_vma(root);
        }
    }

    /// Chains `new` to every anon_vma that `old` is chained to. Under `mmap_lock` for writing, and
    /// `new` is in no tree yet.
    ///
    /// Where `new` has no anon_vma of its own (a fork), one that nobody owns any more becomes it.
    ///
    /// # Errors
    /// No memory; `new` then is chained to nothing.
    fn clone_chains(&self, new: &Vma<M>, old: &Vma<M>) -> Result<(), NoMemory> {
        let Some(first) = chains_of(old).next() else {
            return Ok(());
        };
        let tree = first.anon_vma().root().lock.write();
        let mut newest: Option<NonNull<Chain<M>>> = None;
        let mut failed = false;
        for from in chains_of(old) {
            let Ok(chain) = self.new_chain(new, from.anon_vma) else {
                failed = true;
                break;
            };
            from.anon_vma().link(chain);
            match newest {
                // SAFETY: made by the round before.
                Some(newer) => unsafe { newer.as_ref() }
                    .older
                    .store(address(chain), Ordering::Relaxed),
                None => new.chain.store(address(chain), Ordering::Relaxed),
            }
            newest = Some(chain);
            let unowned = new.anon_vma.load(Ordering::Relaxed) == 0;
            if unowned && from.anon_vma().reusable() {
                new.anon_vma
                    .store(address(from.anon_vma), Ordering::Relaxed);
            }
        }
        if failed {
            new.anon_vma.store(0, Ordering::Relaxed);
        } else if let Some(own) = new.own_anon_vma() {
            own.active.add(1, Ordering::Relaxed);
        }
        drop(tree);
        if failed {
            self.unlink_anon_vmas(new);
            return Err(NoMemory);
        }
        Ok(())
    }

    /// Chains `new`, which is chained to nothing, as `old` is: the new part of a split mapping, a
    /// copy, or a mapping that takes pages of a neighbour over. Under `mmap_lock` for writing, with
    /// a section open on `new` if it is in the tree.
    ///
    /// Linux: anon_vma_clone, dup_anon_vma.
    ///
    /// # Errors
    /// No memory; `new` then is chained to nothing.
    pub(crate) fn split_anon_vma(&self, new: &Vma<M>, old: &Vma<M>) -> Result<(), NoMemory> {
        let own = old.anon_vma.load(Ordering::Relaxed);
        new.anon_vma.store(own, Ordering::Relaxed);
        self.clone_chains(new, old)
    }

    /// Chains a forked mapping: to all its parent is chained to, and to an anon_vma of its own.
    /// Under the parent's `mmap_lock` for writing.
    ///
    /// Linux: anon_vma_fork.
    ///
    /// # Errors
    /// No memory; `child` then is chained to nothing.
    pub(crate) fn fork_anon_vma(&self, child: &Vma<M>, parent: &Vma<M>) -> Result<(), NoMemory> {
        let Some(parents) = parent.own_anon_vma() else {
            return Ok(());
        };
        self.clone_chains(child, parent)?;
        if child.anon_vma.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let made = self.new_anon_vma(Some(parents)).and_then(|own| {
            let chain = self.new_chain(child, own);
            let chain = chain.inspect_err(|_| self.discard_anon_vma(own))?;
            Ok((own, chain))
        });
        let (own, chain) = made.inspect_err(|_| self.unlink_anon_vmas(child))?;
        let _tree = parents.root().lock.write();
        let older = child.chain.load(Ordering::Relaxed);
        // SAFETY: made above.
        unsafe { chain.as_ref() }
            .older
            .store(older, Ordering::Relaxed);
        child.chain.store(address(chain), Ordering::Relaxed);
        child.anon_vma.store(address(own), Ordering::Relaxed);
        // SAFETY: made above.
        let own = unsafe { own.as_ref() };
        own.link(chain);
        own.active.add(1, Ordering::Relaxed);
        parents.children.add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Unchains a mapping whose pages are gone. Under `mmap_lock` for writing; or it is detached,
    /// or nobody else has the address space.
    ///
    /// Linux: unlink_anon_vmas.
    pub(crate) fn unlink_anon_vmas(&self, vma: &Vma<M>) {
        let Some(first) = chain_at::<M>(vma.chain.load(Ordering::Relaxed)) else {
            return;
        };
        if self.config.lacks(Broken::ChainsStay) {
            return;
        }
        // The root outlives its lock's being let go, though somebody else may by then have taken
        // the last link of all.
        let root = first.anon_vma().root;
        first.anon_vma().root().refs.add(1, Ordering::Relaxed);
        {
            let _tree = first.anon_vma().root().lock.write();
            for chain in chains_of(vma) {
                let anon_vma = chain.anon_vma();
                anon_vma.unlink(chain);
                let last = anon_vma.links.load(Ordering::Relaxed) == 0;
                chain.prev.store(u64::from(last), Ordering::Relaxed);
                if last {
                    // SAFETY: whoever is chained to a child is chained to its parent, too.
                    let parent = unsafe { anon_vma.parent.as_ref() };
                    parent.children.sub(1, Ordering::Relaxed);
                }
            }
            if let Some(own) = vma.own_anon_vma() {
                own.active.sub(1, Ordering::Relaxed);
            }
        }
        vma.anon_vma.store(0, Ordering::Relaxed);
        // Nobody finds an anon_vma without links, so what this mapping emptied is its to free,
        // behind the lock, which may be in it.
        let mut at = vma.chain.swap(0, Ordering::Relaxed);
        while let Some(chain) = chain_at::<M>(at) {
            at = chain.older.load(Ordering::Relaxed);
            let emptied = chain.prev.load(Ordering::Relaxed) == 1;
            let anon_vma = chain.anon_vma;
            self.discard_chain(NonNull::from(chain));
            if emptied {
                self.discard_anon_vma(anon_vma);
            }
        }
        self.discard_anon_vma(root);
    }
}
