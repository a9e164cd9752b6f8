//! The reverse map of anonymous memory: which VMAs may map a page.
//!
//! # Problem
//! After a fork a page can be mapped in the address space that created it and in every one forked
//! from that since. Unmapping the page must find all of them, at a cost proportional to their
//! number.
//!
//! # Idea
//! A page names the anon_vma of the VMA that created it. A VMA is chained to its own anon_vma and
//! to those of all its ancestors, since it may map pages of each.
//!
//! ```text
//! VMA of the parent ──chain── A         A: pages made before the fork, or by the parent since
//!                             │
//! VMA of the child ───chain───┘
//!        └────────────chain── B         B: pages made by the child since
//! ```
//! The anon_vmas of all processes that descend from one form a tree, whose lock is the root's.
//!
//! # Protocol
//! - A VMA gets its first anon_vma from a fault ([`super::prepare`]).
//! - Split and fork clone the chains; fork then adds an anon_vma of the child's own.
//! - A removed VMA is unchained under the root's lock after its pages were zapped. An anon_vma
//!   without chains is freed after the lock is released, since it may be the root; the unchaining
//!   thread holds a reference to the root meanwhile, which must outlive the release of its lock.
//!
//! # Why it is correct
//! Every page that a VMA maps was created under an anon_vma that the VMA is chained to: its own, or
//! one that it was chained to at fork; the ledger checks this for each page. An anon_vma with at
//! most one child and no VMA of its own can serve a forked VMA as its own. This keeps chains short
//! in a process that forks, and whose parent exits, again and again. Children and VMAs are counted
//! apart: one count for both let one anon_vma be reused twice (CVE-2022-42703).
//!
//! # Cost
//! The first fault of a VMA takes the root's lock; no later fault does. Fork and split allocate a
//! link for each generation.
//!
//! Linux: mm/rmap.c anon_vma_clone, anon_vma_fork, unlink_anon_vmas.

use crate::base::attrs::VmaView;
use crate::base::config::{Config, NegativeControl};
use crate::base::error::NoMemory;
use crate::memory::frame::Frame;
use crate::mm::Mm;
use crate::pages::interval::{Span, Spans};
use crate::space::vma::Vma;
use crate::system::System;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::order::AnonVmaLock;
use minflt_sync::slab::{Kept, SlabObject};
use minflt_sync::{Atomic, Ordering, RwSem};

/// Leads from the pages that one VMA created to the VMAs that may map them.
///
/// Its memory is type-stable: a walk that starts from a page may read one that is free, or was
/// reused ([`System::hold_anon_vma`]).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct AnonVma<M: Mmu> {
    /// That of the mapping it was forked from; a root is its own. Immutable.
    pub(super) parent: NonNull<Self>,
    /// VMAs that may map its pages. Guarded by: the root's lock.
    pub(super) spans: Spans<M>,
    /// Anon_vmas that have it for a parent; a root counts itself. Guarded by: the root's lock.
    pub(super) children: Atomic<u64, M>,
    /// Number of VMAs whose own anon_vma it is. Guarded by: the root's lock.
    pub(super) active: Atomic<u64, M>,
    /// The address of the oldest of its tree, which has the lock. Immutable while it is in use.
    pub(super) root: Atomic<u64, M>,
    /// One while it has links, one for each holder, and in a root one for each descendant; 0 while
    /// it is free.
    pub(super) refs: Atomic<u64, M>,
    /// Guards the links and counts of the whole tree. Only a root's is used.
    pub(crate) lock: RwSem<AnonVmaLock, M>,
}

/// A link between a mapping and an anon_vma. Linux: `struct anon_vma_chain`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Chain<M: Mmu> {
    /// The next older link of the same mapping, 0 for none. Guarded by: `mmap_lock` for writing,
    /// or for reading with `page_table_lock`.
    pub(super) older: Atomic<u64, M>,
    /// Immutable.
    pub(super) anon_vma: NonNull<AnonVma<M>>,
    /// In the tree of the anon_vma. Guarded by: the root's lock.
    pub(super) span: Span<M>,
    /// Whether the anon_vma has no link left. For the thread that unchains the VMA.
    pub(super) last: Atomic<u64, M>,
}

impl<M: Mmu> SlabObject for AnonVma<M> {
    // SAFETY: 1: the last three fields, which are all that those without a reference look at. 2:
    // zeros are an anon_vma that nobody has, and a free lock, as is what the one before leaves.
    const KEPT: Kept = unsafe { Kept::new(offset_of!(Self, root), size_of::<Self>()) };
}
impl<M: Mmu> SlabObject for Chain<M> {}

impl<M: Mmu> AnonVma<M> {
    /// Start offsets of its fields, ascending: for names.
    pub(crate) const fn fields() -> [(usize, &'static str); 5] {
        [
            (0, "anon_vma"),
            (offset_of!(Self, spans), "spans"),
            (offset_of!(Self, root), "root"),
            (offset_of!(Self, refs), "refs"),
            (offset_of!(Self, lock), "lock"),
        ]
    }

    pub(crate) fn root(&self) -> &Self {
        // SAFETY: a root outlives its descendants, each of which counts in its `refs`.
        unsafe { self.root_ptr().as_ref() }
    }

    /// The same, for a caller that drops a reference to it.
    pub(super) fn root_ptr(&self) -> NonNull<Self> {
        let root = self.root.load(Ordering::Relaxed) as *mut Self;
        // SAFETY: from its first link to its last count an anon_vma has a root.
        unsafe { NonNull::new_unchecked(root) }
    }

    /// A reference to its root, which [`System::discard_anon_vma`] gives up.
    pub(super) fn hold_root(&self) -> NonNull<Self> {
        self.root().refs.add(1, Ordering::Relaxed);
        self.root_ptr()
    }

    /// That of the mapping it was forked from. The root's lock is held.
    pub(super) const fn parent(&self) -> &Self {
        // SAFETY: a VMA that is chained to a child is chained to its parent, too.
        unsafe { self.parent.as_ref() }
    }

    fn is_root(&self) -> bool {
        core::ptr::eq(self.root(), self)
    }

    /// Puts the link of a mapping that is as `view` says into the tree. The root's lock is held.
    pub(super) fn link(&self, chain: &Chain<M>, view: &VmaView) {
        self.spans.put(&chain.span, view);
    }

    /// Whether a mapping that is forked from `parent` may have it for its own.
    pub(super) fn reusable(&self, parent: &Vma<M>, config: &Config) -> bool {
        let children = self.children.load(Ordering::Relaxed);
        let active = self.active.load(Ordering::Relaxed);
        if config.lacks::<M>(NegativeControl::ChildrenAndOwners) {
            // Linux: anon_vma_clone before 2555283eb40d.
            let parents = parent.anon_vma.load(Ordering::Relaxed);
            return address(self) != parents && children + active < 2;
        }
        children < 2 && active == 0
    }
}

impl<M: Mmu> Chain<M> {
    pub(super) fn anon_vma(&self) -> &AnonVma<M> {
        // SAFETY: an anon_vma lives as long as it has links.
        unsafe { self.anon_vma.as_ref() }
    }
}

/// An anon_vma that stays what it is until this is dropped.
pub(crate) struct HeldAnonVma<'s, M: Mmu> {
    pub(super) sys: &'s System<M>,
    anon_vma: NonNull<AnonVma<M>>,
}

impl<M: Mmu> HeldAnonVma<'_, M> {
    pub(super) fn get(&self) -> &AnonVma<M> {
        // SAFETY: has our reference.
        unsafe { self.anon_vma.as_ref() }
    }
}

impl<M: Mmu> Drop for HeldAnonVma<'_, M> {
    fn drop(&mut self) {
        self.sys.discard_anon_vma(self.anon_vma);
    }
}

impl<M: Mmu> AnonVma<M> {
    /// Takes a reference, unless it is free.
    fn try_hold(&self) -> bool {
        let mut found = self.refs.load(Ordering::Relaxed);
        while found != 0 {
            // ORDERING: Acquire; pairs with [anon-vma-hold].
            let taken = self
                .refs
                .cas(found, found + 1, Ordering::Acquire, Ordering::Relaxed);
            match taken {
                Ok(_) => return true,
                Err(now) => found = now,
            }
        }
        false
    }
}

impl<M: Mmu> System<M> {
    /// The anon_vma of a page of anonymous memory, on which the caller has a reference; `None` if
    /// the page is not mapped, or another thread is changing it.
    pub(super) fn hold_anon_vma(&self, frame: &Frame<M>) -> Option<HeldAnonVma<'_, M>> {
        // ORDERING: Acquire; pairs with [frame-maps].
        let uncounted = self.lacks(NegativeControl::FoundBeforeCounted);
        if frame.maps.load(Ordering::Acquire) == 0 && !uncounted {
            return None;
        }
        let named = frame.mapping.load(Ordering::Relaxed);
        let anon_vma = NonNull::new(named as *mut AnonVma<M>)?;
        // SAFETY: memory of anon_vmas stays that; what is looked at here is never overwritten.
        let alive = unsafe { anon_vma.as_ref() };
        if self.lacks(NegativeControl::HoldsFreedAnonVma) {
            alive.refs.add(1, Ordering::Relaxed);
        } else if !alive.try_hold() {
            return None;
        }
        let held = HeldAnonVma {
            sys: self,
            anon_vma,
        };
        let mapped = frame.maps.load(Ordering::Relaxed) > 0 || uncounted;
        (mapped && frame.mapping.load(Ordering::Relaxed) == named).then_some(held)
    }
}

pub(super) fn address<T>(object: &T) -> u64 {
    core::ptr::from_ref(object) as u64
}

/// The link at an address taken from a list, which keeps it.
pub(super) fn chain_at<'a, M: Mmu>(address: u64) -> Option<&'a Chain<M>> {
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

/// A link of a mapping, as oracles see it, while nothing runs.
#[derive(Clone, Copy)]
pub(crate) struct LinkSeen<'c, M: Mmu>(&'c Chain<M>);

/// Calls `visit` with the links of a mapping, newest first, as long as it says so. For oracles,
/// while nothing runs.
pub(crate) fn each_link<M: Mmu>(vma: &Vma<M>, mut visit: impl FnMut(LinkSeen<'_, M>) -> bool) {
    let mut at = chain_at::<M>(vma.chain.peek());
    while let Some(chain) = at.filter(|chain| visit(LinkSeen(chain))) {
        at = chain_at(chain.older.peek());
    }
}

impl<M: Mmu> LinkSeen<'_, M> {
    /// Whether it leads to the anon_vma at this address.
    pub(crate) fn is_to(self, anon_vma: u64) -> bool {
        address(self.0.anon_vma()) == anon_vma
    }

    /// Whether its span says what the record of its mapping says.
    pub(crate) fn agrees(self, view: &VmaView) -> bool {
        self.0.span.agrees(view)
    }

    /// How many spans the anon_vma's tree has, if this one's is its root, else 0; or what is wrong
    /// with the tree.
    pub(crate) fn validate_tree(self) -> Result<u64, &'static str> {
        let spans = &self.0.anon_vma().spans;
        match spans.has_root(&self.0.span) {
            true => spans.validate(),
            false => Ok(0),
        }
    }
}

impl<M: Mmu> Vma<M> {
    /// Its spans are as they shall be, after this, unless those that it has are `enough`. Nobody
    /// else changes them.
    #[inline]
    pub(crate) fn spans_follow(&self, enough: impl Fn(&Span<M>, &VmaView) -> bool) {
        // Under a downgraded `mmap_lock` a fault may be chaining it concurrently, with the same
        // attributes: if no anon_vma is found there is nothing to do; if one is found, so is the
        // whole chain.
        if self.own_anon_vma().is_some()
            && let Some(newest) = chain_at::<M>(self.chain.load(Ordering::Relaxed))
        {
            self.move_spans(newest, enough);
        }
    }

    /// All of them say the same.
    fn move_spans(&self, newest: &Chain<M>, enough: impl Fn(&Span<M>, &VmaView) -> bool) {
        let view = self.view();
        if enough(&newest.span, &view) {
            return;
        }
        let _tree = newest.anon_vma().root().lock.write();
        for chain in chains_of(self) {
            chain.anon_vma().spans.put(&chain.span, &view);
        }
    }

    /// Its own anon_vma, if it has one. The caller holds `mmap_lock`.
    pub(crate) fn own_anon_vma(&self) -> Option<&AnonVma<M>> {
        // ORDERING: Acquire; pairs with [vma-anon-vma].
        let own = self.anon_vma.load(Ordering::Acquire) as *const AnonVma<M>;
        // SAFETY: lives as long as this mapping is chained to it.
        unsafe { own.as_ref() }
    }

    /// Its own anon_vma, if it is chained to no other.
    pub(crate) fn only_anon_vma(&self) -> Option<&AnonVma<M>> {
        let own = self.own_anon_vma()?;
        let mut chains = chains_of(self).skip(1);
        chains.next().is_none().then_some(own)
    }
}

impl<M: Mmu> System<M> {
    /// A new anon_vma without links: a child of `parent`, or a root.
    pub(super) fn new_anon_vma(
        &self,
        parent: Option<&AnonVma<M>>,
    ) -> Result<&AnonVma<M>, NoMemory> {
        let new = AnonVma {
            parent: parent.map_or(NonNull::dangling(), NonNull::from),
            spans: Spans::new(),
            children: Atomic::new(0),
            active: Atomic::new(0),
            // These three are not copied: see `SlabObject::KEPT`.
            root: Atomic::new(0),
            refs: Atomic::new(0),
            lock: RwSem::new(self.config.anon_vma_lock()),
        };
        let mut new = self.anon_vmas.alloc(new, self).map_err(|_| NoMemory)?;
        let own = new;
        if parent.is_none() {
            // SAFETY: allocated just now, and nobody has a reference.
            unsafe { new.as_mut() }.parent = own;
        }
        // SAFETY: allocated just now: it lives until its last reference, which is made below, goes.
        let made = unsafe { new.as_ref() };
        let root = match parent {
            Some(parent) => parent.hold_root().as_ptr() as u64,
            None => address(made),
        };
        made.root.store(root, Ordering::Relaxed);
        made.lock.set_succession(self.config.anon_vma_lock());
        // ORDERING: Release; pairs with [anon-vma-hold].
        made.refs.store(1, Ordering::Release);
        Ok(made)
    }

    pub(super) fn new_chain(
        &self,
        mm: &Mm<M>,
        vma: &Vma<M>,
        anon_vma: &AnonVma<M>,
    ) -> Result<&Chain<M>, NoMemory> {
        let chain = Chain {
            older: Atomic::new(0),
            anon_vma: NonNull::from(anon_vma),
            span: Span::new(mm, vma.id),
            last: Atomic::new(0),
        };
        let chain = self.chains.alloc(chain, self).map_err(|_| NoMemory)?;
        // SAFETY: allocated just now, and freed in this file only, once it is linked nowhere.
        Ok(unsafe { chain.as_ref() })
    }

    /// Frees a link that [`Self::new_chain`] made, and nothing leads to.
    pub(super) fn discard_new_chain(&self, chain: &Chain<M>) {
        // SAFETY: 1, 2: made by the caller, and linked nowhere.
        unsafe { self.chains.free(NonNull::from(chain), self) };
    }

    /// Frees the links of a mapping, which are in no tree any more, and drops the references to
    /// anon_vmas that they were the last links of.
    pub(super) fn discard_chains(&self, vma: &Vma<M>) {
        let mut newest = chain_at::<M>(vma.chain.swap(0, Ordering::Relaxed));
        while let Some(chain) = newest {
            newest = chain_at(chain.older.load(Ordering::Relaxed));
            let emptied = chain.last.load(Ordering::Relaxed) == 1;
            let (gone, anon_vma) = (NonNull::from(chain), chain.anon_vma);
            // SAFETY: 1, 2: out of the mapping's list by the exchange, and of its tree before that.
            unsafe { self.chains.free(gone, self) };
            if emptied {
                self.discard_anon_vma(anon_vma);
            }
        }
    }

    /// Drops the reference of an anon_vma without links; frees it, and then perhaps its root, when
    /// no reference is left.
    pub(super) fn discard_anon_vma(&self, anon_vma: NonNull<AnonVma<M>>) {
        // SAFETY: alive: the caller's count is still in it.
        let dying = unsafe { anon_vma.as_ref() };
        // ORDERING: Release; pairs with [anon-vma-put].
        if dying.refs.sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // ORDERING: Acquire, by the same step; pairs with [anon-vma-put].
        let root = (!dying.is_root()).then(|| dying.root_ptr());
        // SAFETY: 1, 2: the last count is gone, so no link, page walk or descendant names it.
        unsafe { self.anon_vmas.free(anon_vma, self) };
        if let Some(root) = root {
            self.discard_anon_vma(root);
        }
    }
}
