//! Tree nodes: access to published ones, edits of unpublished ones, their publication and freeing.
//!
//! # Idea
//! What keeps nodes from being freed is proved once, where a [`Locked`] or a [`Section`] is made.
//! All that is reached from there is a [`NodeRef`] or a [`SeenRef`], and lives no longer.
//!
//! | | made of | sees |
//! |---|---|---|
//! | [`Locked`] | `mmap_lock`, held for reading or writing | nodes whole, and VMAs |
//! | [`Section`] | a read section of the lifetime's domain | keys and slots, and where VMAs are |
//!
//! A node that a change has made is a [`Made`](super::change), which it edits alone.

use super::{Body, FANOUT, HOLE, Node, Tree};
use crate::memory::lifetime::Reclaimed;
use crate::space::vma::{Vma, VmaPtr};
use crate::system::System;
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_addr::VirtAddr;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Kind, Ordering, Slab};

/// What a slot leads to: a VMA from a leaf, a node from an inner node, or nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(u64);

impl Slot {
    pub(super) const NOTHING: Self = Self(0);

    pub(super) fn vma<M: Mmu>(vma: &Vma<M>) -> Self {
        Self(core::ptr::from_ref(vma) as u64)
    }

    /// Stores it where readers find it.
    #[inline(always)]
    pub(super) fn publish<M: Mmu>(self, place: &Atomic<u64, M>) {
        // ORDERING: Release; pairs with [tree-slot].
        place.store(self.0, Ordering::Release);
    }
}

/// What a node says of one VMA or child.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) word: u32,
    pub(super) slot: Slot,
}

impl Entry {
    pub(super) const fn new(key: u64, word: u32, slot: Slot) -> Self {
        Self { key, word, slot }
    }
}

/// A tree whose `mmap_lock` is held.
///
/// # Invariants
/// 1. As long as `'h` nobody else changes the tree: nodes that are in it, or that the holder takes
///    out, stay until the holder retires them, and VMAs longer than the nodes that name them.
pub(crate) struct Locked<'h, M: Mmu> {
    root: &'h Atomic<u64, M>,
}

/// A tree that is looked at in a read section.
///
/// # Invariants
/// 1. As long as `'s` what was a node of the tree since then stays one.
pub(crate) struct Section<'s, M: Mmu> {
    root: &'s Atomic<u64, M>,
}

/// A node, for the holder of `mmap_lock`.
pub(super) struct NodeRef<'h, M: Mmu> {
    pub(super) at: NonNull<Node<M>>,
    kept: PhantomData<&'h Node<M>>,
}

/// A node, for a reader in a section.
pub(super) struct SeenRef<'s, M: Mmu>(NodeRef<'s, M>);

/// Keys and slots of a node, for a reader in a section.
pub(super) struct Seen<'s, M: Mmu> {
    body: &'s Body<M>,
}

macro_rules! copy {
    ($($name:ident),*) => {$(
        impl<M: Mmu> Clone for $name<'_, M> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<M: Mmu> Copy for $name<'_, M> {}
    )*};
}
copy!(Locked, Section, NodeRef, SeenRef, Seen);

impl<M: Mmu> Tree<M> {
    /// The tree, for who holds the lock.
    ///
    /// # Safety
    /// 1. As long as `'h` the caller holds `mmap_lock`, for writing where it changes anything; or
    ///    nobody else has the address space, or nothing else runs.
    #[inline(always)]
    pub(crate) const unsafe fn locked<'h>(&'h self) -> Locked<'h, M> {
        // INVARIANT: 1: 1 of this function.
        Locked { root: &self.root }
    }

    /// The tree, for who changes it. The caller's caller holds `mmap_lock` for writing.
    #[inline(always)]
    pub(super) const fn written(&self) -> Locked<'_, M> {
        // SAFETY: 1: asked for by functions that say so of their callers, until they return.
        unsafe { self.locked() }
    }

    /// The tree, for who is in a read section.
    ///
    /// # Safety
    /// 1. As long as `'s` the caller is in a read section of the lifetime's domain.
    #[inline(always)]
    pub(crate) const unsafe fn section<'s>(&'s self) -> Section<'s, M> {
        // INVARIANT: 1: 1 of this function: nodes are freed by that lifetime.
        Section { root: &self.root }
    }
}

impl<'h, M: Mmu> Locked<'h, M> {
    /// The word that names the root.
    pub(super) const fn root_slot(self) -> &'h Atomic<u64, M> {
        self.root
    }

    #[inline(always)]
    pub(super) fn root(self) -> Option<NodeRef<'h, M>> {
        NodeRef::at(self.root.load(Ordering::Relaxed))
    }

    /// The same as a reader sees it.
    #[inline(always)]
    const fn section(self) -> Section<'h, M> {
        // INVARIANT: 1: by that of `self` nodes are kept as long as `'h`.
        Section { root: self.root }
    }

    /// The last VMA that starts at or before `addr`.
    #[inline]
    pub(crate) fn at_or_before(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        let found = self.section().at_or_before(addr);
        // SAFETY: found under the lock, which by the invariant keeps VMAs.
        found.map(|found| unsafe { found.as_ref() })
    }

    /// The same where no key of its leaf that is at most `addr` leads anywhere.
    pub(super) fn before_hole(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        let found = self.section().before_hole(addr);
        // SAFETY: found under the lock, which by the invariant keeps VMAs.
        found.map(|found| unsafe { found.as_ref() })
    }
}

impl<'s, M: Mmu> Section<'s, M> {
    #[inline(always)]
    pub(super) fn root(self) -> Option<SeenRef<'s, M>> {
        // ORDERING: Acquire; pairs with [tree-slot].
        NodeRef::at(self.root.load(Ordering::Acquire)).map(SeenRef)
    }
}

impl<'h, M: Mmu> NodeRef<'h, M> {
    /// What a root or slot leads to that the caller's hold keeps.
    #[inline(always)]
    const fn at(slot: u64) -> Option<Self> {
        match NonNull::new(slot as *mut Node<M>) {
            Some(at) => Some(Self {
                at,
                kept: PhantomData,
            }),
            None => None,
        }
    }

    /// # Safety
    /// 1. It is a node as long as `'h`, and nobody else writes it meanwhile.
    pub(super) const unsafe fn new(at: NonNull<Node<M>>) -> Self {
        let kept = PhantomData;
        Self { at, kept }
    }

    /// What names it.
    pub(super) fn slot(self) -> Slot {
        Slot(self.at.as_ptr() as u64)
    }

    /// Asks for its first `bytes` bytes.
    #[inline(always)]
    pub(super) fn prefetch(self, bytes: usize) {
        M::prefetch(self.at.as_ptr().cast(), bytes);
    }

    /// Reads it, announcing its keys to the machine.
    #[inline(always)]
    pub(super) fn read(self) -> &'h Body<M> {
        let node = self.at.as_ptr();
        M::before(node.cast(), offset_of!(Body<M>, words), Kind::PlainRead);
        // SAFETY: by the invariants of what it was reached from it is a node as long as `'h`. It
        // was published whole, or is the change's own; what changes is atomic, or words, which only
        // a holder of `mmap_lock` has by this.
        unsafe { &(*node).body }
    }

    /// The same without announcing it, for oracles and teardown.
    pub(super) const fn peek(self) -> &'h Body<M> {
        // SAFETY: as in `read`.
        unsafe { &self.at.as_ref().body }
    }
}

impl<'s, M: Mmu> SeenRef<'s, M> {
    /// Asks for all of it but the callback.
    #[inline(always)]
    pub(super) fn prefetch(self) {
        self.0.prefetch(size_of::<Body<M>>());
    }

    /// Reads it, announcing its keys to the machine.
    #[inline(always)]
    pub(super) fn read(self) -> Seen<'s, M> {
        Seen {
            body: self.0.read(),
        }
    }
}

impl<'s, M: Mmu> Seen<'s, M> {
    #[inline(always)]
    pub(super) const fn is_leaf(self) -> bool {
        self.body.level == 0
    }

    /// Keys that are at most `addr`.
    #[inline(always)]
    pub(super) fn at_most(self, addr: u64) -> usize {
        self.body.at_most(addr)
    }

    /// What `slot` leads to, whole also without a lock.
    #[inline(always)]
    fn found(self, slot: usize) -> u64 {
        // ORDERING: Acquire; pairs with [tree-slot].
        self.body.slots[slot].load(Ordering::Acquire)
    }

    /// The VMA that `slot` of a leaf leads to.
    #[inline(always)]
    pub(super) fn vma(self, slot: usize) -> Option<NonNull<Vma<M>>> {
        NonNull::new(self.found(slot) as *mut Vma<M>).filter(|_| self.is_leaf())
    }

    /// The child that `slot` of an inner node leads to.
    #[inline(always)]
    pub(super) fn child(self, slot: usize) -> Option<SeenRef<'s, M>> {
        let child = NodeRef::at(self.found(slot));
        child.filter(|_| !self.is_leaf()).map(SeenRef)
    }
}

/// What the holder of `mmap_lock` sees of a node.
impl<M: Mmu> Body<M> {
    /// What `slot` leads to.
    #[inline(always)]
    pub(super) fn slot(&self, slot: usize) -> Slot {
        Slot(self.slots[slot].peek())
    }

    /// The child that `slot` of an inner node leads to.
    #[inline(always)]
    pub(super) fn child(&self, slot: usize) -> Option<NodeRef<'_, M>> {
        NodeRef::at(self.slots[slot].peek()).filter(|_| self.level > 0)
    }

    /// The VMA that `slot` of a leaf leads to.
    #[inline(always)]
    pub(super) fn vma(&self, slot: usize) -> Option<&Vma<M>> {
        if self.level > 0 {
            return None;
        }
        // SAFETY: a leaf names VMAs or nothing, and VMAs outlive the nodes that name them.
        unsafe { (self.slots[slot].peek() as *const Vma<M>).as_ref() }
    }

    /// The words.
    #[inline(always)]
    pub(super) fn words(&self) -> &[Cell<u32>; FANOUT] {
        let words = &raw const self.words;
        M::before(words.cast(), size_of_val(&self.words), Kind::PlainRead);
        &self.words
    }

    /// Sets a word. The lock is held for writing.
    #[inline(always)]
    pub(super) fn set_word(&self, slot: usize, word: u32) {
        let words = &raw const self.words;
        M::before(words.cast(), size_of::<u32>(), Kind::PlainWrite);
        self.words[slot].set(word);
    }

    /// Publishes what `slot` leads to from now on. The lock is held for writing.
    #[inline(always)]
    pub(super) fn publish(&self, slot: usize, to: Slot) {
        to.publish(&self.slots[slot]);
    }

    /// Sets what `slot` leads to, of a node that nobody else knows.
    pub(super) fn set_slot(&mut self, slot: usize, to: Slot) {
        self.slots[slot] = Atomic::new(to.0);
    }

    /// What stands in a slot of a leaf, if that is no hole.
    pub(super) fn living_at(&self, slot: usize) -> Option<Entry> {
        let word = self.words()[slot].get();
        (word != HOLE).then(|| Entry::new(self.keys[slot], word, self.slot(slot)))
    }
}

/// Shifts keys and slots of a leaf that readers may be looking at, to show what that does.
#[cold]
pub(super) fn insert_in_place<M: Mmu>(leaf: &Body<M>, entry: Entry) {
    let at = leaf.at_most(entry.key);
    let used = leaf.used();
    let body = core::ptr::from_ref(leaf).cast_mut();
    let write = |slot: usize, entry: Entry| {
        M::before(body.cast(), size_of::<u64>(), Kind::PlainWrite);
        // SAFETY: a key of the leaf. Readers are in the way: that is what this is to show.
        unsafe { (*body).keys[slot] = entry.key };
        leaf.set_word(slot, entry.word);
        leaf.publish(slot, entry.slot);
    };
    for slot in (at..used).rev() {
        let word = leaf.words()[slot].get();
        write(slot + 1, Entry::new(leaf.keys[slot], word, leaf.slot(slot)));
    }
    write(at, entry);
    // SAFETY: the count of the leaf; as above.
    unsafe { (*body).len += 1 };
}

// SAFETY: 1: the field of that name.
unsafe impl<M: Mmu> Reclaimed<M> for Node<M> {
    const CALLBACK: usize = offset_of!(Self, callback);

    fn slab(sys: &System<M>) -> &Slab<Self, M> {
        &sys.nodes
    }
}

impl<M: Mmu> System<M> {
    /// Frees an unlinked tree node by the configured reclamation scheme.
    ///
    /// # Safety
    /// 1. The node is unlinked, and retired once.
    pub(crate) unsafe fn retire_node(&self, node: NonNull<Node<M>>) {
        // SAFETY: 1, 2: unlinked and retired once, by 1; nodes come from this slab.
        unsafe { self.retire_object(node) };
    }
}

/// A VMA, and where in the tree it is.
pub(crate) struct Found<'a, M: Mmu> {
    /// The node may be freed while a function runs that was given this: see [`VmaPtr`].
    leaf: NonNull<Body<M>>,
    pub(super) slot: usize,
    vma: VmaPtr<'a, M>,
}

impl<'a, M: Mmu> Found<'a, M> {
    pub(super) fn new(leaf: &'a Body<M>, slot: usize) -> Option<Self> {
        let (vma, leaf) = (leaf.vma(slot)?.into(), NonNull::from(leaf));
        Some(Self { leaf, slot, vma })
    }

    /// The VMA.
    pub(crate) const fn vma(&self) -> &'a Vma<M> {
        self.vma.get()
    }

    pub(super) fn leaf(&self) -> &'a Body<M> {
        // SAFETY: found under `mmap_lock`, which is held as long as `'a`, and not yet taken out.
        unsafe { self.leaf.as_ref() }
    }
}

/// Two slots of a leaf with VMAs, and only holes between them: what is mapped there is inserted
/// without another descent. Good until the tree changes.
pub(crate) struct Between<'a, M: Mmu> {
    /// As in [`Found`].
    leaf: NonNull<Body<M>>,
    before: usize,
    after: usize,
    kept: PhantomData<&'a Node<M>>,
}
copy!(Between);

impl<'a, M: Mmu> Between<'a, M> {
    pub(super) fn new(leaf: &'a Body<M>, before: usize, after: usize) -> Self {
        let (leaf, kept) = (NonNull::from(leaf), PhantomData);
        Self {
            leaf,
            before,
            after,
            kept,
        }
    }

    fn leaf(self) -> &'a Body<M> {
        // SAFETY: found under `mmap_lock`, which is held as long as `'a`, and not yet replaced.
        unsafe { self.leaf.as_ref() }
    }

    /// The two VMAs.
    pub(super) fn both(self) -> (Option<VmaPtr<'a, M>>, Option<VmaPtr<'a, M>>) {
        let vma = |slot| self.leaf().vma(slot).map(VmaPtr::from);
        (vma(self.before), vma(self.after))
    }

    /// The leaf, and the slot of the key `start`, if there is one.
    #[inline(always)]
    pub(super) fn hole(self, start: u64) -> Option<(&'a Body<M>, usize)> {
        let mut between = self.before + 1..self.after;
        let slot = between.find(|slot| self.leaf().keys[*slot] == start)?;
        Some((self.leaf(), slot))
    }
}

/// Looks without instrumented access, for oracles and teardown, while nobody changes the tree.
impl<M: Mmu> Tree<M> {
    /// Visits every VMA in order; then every node.
    pub(crate) fn visit(
        &self,
        vmas: &mut dyn FnMut(VmaPtr<'_, M>),
        nodes: &mut dyn FnMut(NonNull<Node<M>>),
    ) {
        visit_from(self.root.peek(), vmas, nodes);
    }

    /// The root, if there is one.
    pub(super) fn peek_root(&self) -> Option<NodeRef<'_, M>> {
        NodeRef::at(self.root.peek())
    }
}

/// Visits the VMAs and the nodes below what names a root.
pub(super) fn visit_from<M: Mmu>(
    root: u64,
    vmas: &mut dyn FnMut(VmaPtr<'_, M>),
    nodes: &mut dyn FnMut(NonNull<Node<M>>),
) {
    fn down<M: Mmu>(
        node: NodeRef<'_, M>,
        vmas: &mut dyn FnMut(VmaPtr<'_, M>),
        nodes: &mut dyn FnMut(NonNull<Node<M>>),
    ) {
        let body = node.peek();
        for slot in 0..body.used() {
            if let Some(vma) = body.vma(slot) {
                vmas(vma.into());
            } else if let Some(child) = body.child(slot) {
                down(child, vmas, nodes);
            }
        }
        nodes(node.at);
    }
    if let Some(root) = NodeRef::at(root) {
        down(root, vmas, nodes);
    }
}
