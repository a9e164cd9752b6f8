//! Interval tree of the VMAs that map pages of one object.
//!
//! # Problem
//! Unmapping a page everywhere must find all addresses that map it; each VMA maps another part of
//! the page's object, at another address, and there may be thousands.
//!
//! # Idea
//! Each VMA has an interval node (*span*) in the tree of each object that its pages may belong to:
//! which pages, and where. The tree is a treap ordered by first page and VMA number; each node has
//! the largest last page below it. A node's heap priority is a hash of the number, so that the tree
//! is as balanced as a random one, and the same in each run.
//!
//! # Protocol
//! The tree is changed under the object's lock (a file's `i_mmap`, the lock of an anon_vma's root)
//! for writing, and walked under that lock for reading. A node follows its VMA's attributes early
//! or late: a mapped page is covered by a node at every moment.
//! - A new VMA's node is inserted before the VMA, if the VMA has pages from the beginning (a split,
//!   a copy, a child). Otherwise it is inserted before the VMA's write section ends: until then the
//!   VMA that it replaces has pages there.
//! - A VMA that grows extends its node before a fault can map pages there, and before the VMA that
//!   it grows over is removed.
//! - A VMA that shrinks shortens its node when its write section ends, or, where its pages are
//!   unmapped, after that: until then its former range belongs to other VMAs of the same pages, or
//!   is unmapped.
//! - A removed VMA's node is removed after its pages are unmapped, but before page tables are
//!   freed.
//!
//! # Why it is correct
//! A walk finds each mapping of a page, by one node or by two. It may walk the page tables below:
//! those of a VMA with a node are not freed, since the thread that frees tables removes the nodes
//! first, which waits for the walk.
//!
//! A child has a larger number than its parent, and the same first page when it is forked. So a
//! walk that unmaps pages visits the parent first: what fork copies after that is no longer mapped,
//! and what it copied before is found when the walk reaches the child (P13). (Linux:
//! vma_interval_tree_insert_after in dup_mmap.)
//!
//! # Cost
//! A change of `log n` nodes under the lock for each call that maps, unmaps or splits.
//!
//! Linux: mm/interval_tree.c, mm/vma.c vma_prepare.

use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::entry::walk::Tables;
use crate::mm::Mm;
use core::fmt;
use core::ops::ControlFlow;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::slab::POISON;
use minflt_sync::{Atomic, Ordering};

/// The pages of an object that a mapping has, and where.
///
/// # Invariants
/// It lives as long as it is in a tree, and no longer than its address space.
#[repr(C)]
pub(crate) struct Span<M: Mmu> {
    /// Immutable.
    mm: NonNull<Mm<M>>,
    /// The VMA's number. Immutable.
    id: u64,
    /// The first page. This and what follows is guarded by: the object's lock.
    first: Atomic<u64, M>,
    /// The last page.
    last: Atomic<u64, M>,
    /// Where the first page is mapped.
    start: Atomic<u64, M>,
    /// The largest last page here and below.
    most: Atomic<u64, M>,
    left: Atomic<u64, M>,
    right: Atomic<u64, M>,
    /// [`INSIDE`], [`LOCKED`].
    flags: Atomic<u64, M>,
    /// Of a shared mapping of huge pages: what another has to be alike in to share its tables; else
    /// 0.
    like: Atomic<u64, M>,
}

/// The node is in the tree.
const INSIDE: u64 = 1;
/// Its pages stay resident.
const LOCKED: u64 = 2;

/// Deeper than any tree that fits a machine's memory.
const DEEPEST: u32 = 128;

/// A tree of spans.
#[derive(Debug)]
pub(crate) struct Spans<M: Mmu> {
    root: Atomic<u64, M>,
}

/// A part of an object that is mapped somewhere.
#[derive(Clone, Copy)]
pub(crate) struct Mapped<'c, M: Mmu> {
    pub(crate) tables: Tables<'c, M>,
    pub(crate) range: VirtRange,
    /// Whether its pages stay resident (`VM_LOCKED`).
    pub(crate) locked: bool,
    /// Its span, where it was found by that.
    pub(crate) span: Option<&'c Span<M>>,
}

impl<M: Mmu> Mapped<'_, M> {
    /// The page of the file that the range begins with, where it was found by its span.
    pub(crate) fn first_page(&self) -> Option<u64> {
        let span = self.span?;
        let before = self.range.start().0 - span.start.load(Ordering::Relaxed);
        Some(span.first.load(Ordering::Relaxed) + (before >> M::Paging::shift()))
    }
}

/// The span at an address that a tree names.
fn span<'a, M: Mmu>(address: u64) -> Option<&'a Span<M>> {
    if M::CHECKED && address == u64::from_ne_bytes([POISON; 8]) {
        M::violation(format_args!(
            "reverse-map walk reached a freed interval node"
        ));
    }
    // SAFETY: a span lives as long as it is in a tree.
    unsafe { (address as *const Span<M>).as_ref() }
}

/// Steele, Lea and Flood's mixing function (splitmix64).
const fn mixed(number: u64) -> u64 {
    let a = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ a >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ b >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ c >> 31
}

/// The pages that a mapping has: first and last.
fn pages_of<P: Paging>(view: &VmaView) -> (u64, u64) {
    let pages = view.range.pages(P::shift()).max(1);
    (view.pgoff, view.pgoff.saturating_add(pages - 1))
}

const fn flags_of(view: &VmaView) -> u64 {
    let locked = VmaFlags::LOCKED.with(VmaFlags::LOCKED_ON_FAULT);
    INSIDE | if view.flags.has(locked) { LOCKED } else { 0 }
}

impl<M: Mmu> Span<M> {
    /// One of VMA number `id`, in no tree and of no pages yet.
    pub(crate) fn new(mm: &Mm<M>, id: u64) -> Self {
        let id = match mm.system().lacks(NegativeControl::ChildFirst) {
            true => !id,
            false => id,
        };
        Self {
            mm: NonNull::from(mm),
            id,
            first: Atomic::new(0),
            last: Atomic::new(0),
            start: Atomic::new(0),
            most: Atomic::new(0),
            left: Atomic::new(0),
            right: Atomic::new(0),
            flags: Atomic::new(0),
            like: Atomic::new(0),
        }
    }

    /// What it says of sharing tables, and whether it may. Under the object's lock.
    pub(crate) fn like(&self) -> u64 {
        self.like.load(Ordering::Relaxed)
    }

    /// The mapping's page tables may no longer be shared. Under the object's lock for writing.
    pub(crate) fn shares_no_more(&self) {
        self.like.store(0, Ordering::Relaxed);
    }

    /// Its first and last page, if it is in the tree. The caller may change the VMA.
    pub(crate) fn pages(&self) -> Option<(u64, u64)> {
        let inside = self.flags.load(Ordering::Relaxed) & INSIDE != 0;
        inside.then(|| {
            let first = self.first.load(Ordering::Relaxed);
            (first, self.last.load(Ordering::Relaxed))
        })
    }

    pub(crate) fn address(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    /// What orders spans in the tree.
    fn key(&self) -> (u64, u64) {
        (self.first.load(Ordering::Relaxed), self.id)
    }

    /// Of two, the one with the larger is above.
    const fn priority(&self) -> (u64, u64) {
        (mixed(self.id), self.id)
    }

    /// Whether it is in the tree and equals `view`. The caller may change the VMA.
    pub(crate) fn says(&self, view: &VmaView) -> bool {
        let (first, last) = pages_of::<M::Paging>(view);
        self.flags.load(Ordering::Relaxed) == flags_of(view)
            && self.first.load(Ordering::Relaxed) == first
            && self.last.load(Ordering::Relaxed) == last
            && self.start.load(Ordering::Relaxed) == view.range.start().0
            && (!view.is_huge() || self.like() == view.sharing_kind())
    }

    /// Whether it is in the tree, and its pages lie within `view`.
    pub(crate) fn is_within(&self, view: &VmaView) -> bool {
        let (first, last) = pages_of::<M::Paging>(view);
        first <= self.first.load(Ordering::Relaxed)
            && self.flags.load(Ordering::Relaxed) & INSIDE != 0
            && self.last.load(Ordering::Relaxed) <= last
    }

    /// The same as [`Self::says`], for oracles, while nothing runs.
    pub(crate) fn agrees(&self, view: &VmaView) -> bool {
        let (first, last) = pages_of::<M::Paging>(view);
        let said = (self.first.peek(), self.last.peek(), self.start.peek());
        self.flags.peek() == flags_of(view) && said == (first, last, view.range.start().0)
    }

    fn say(&self, view: &VmaView) {
        let (first, last) = pages_of::<M::Paging>(view);
        self.first.store(first, Ordering::Relaxed);
        self.last.store(last, Ordering::Relaxed);
        self.start.store(view.range.start().0, Ordering::Relaxed);
        self.flags.store(flags_of(view), Ordering::Relaxed);
        if view.is_huge() {
            self.like.store(view.sharing_kind(), Ordering::Relaxed);
        }
    }

    /// The largest last page, from its own and its children's.
    fn update(&self) {
        let most = |child: &Atomic<u64, M>| {
            let child = span::<M>(child.load(Ordering::Relaxed));
            child.map_or(0, |child| child.most.load(Ordering::Relaxed))
        };
        let own = self.last.load(Ordering::Relaxed);
        let most = own.max(most(&self.left)).max(most(&self.right));
        self.most.store(most, Ordering::Relaxed);
    }
}

impl<M: Mmu> Spans<M> {
    pub(crate) fn new() -> Self {
        Self {
            root: Atomic::new(0),
        }
    }

    /// Whether there is none. Under the object's lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.load(Ordering::Relaxed) == 0
    }

    /// Puts `own` where `view` says. Under the object's lock for writing.
    pub(crate) fn put(&self, own: &Span<M>, view: &VmaView) {
        self.remove(own);
        own.say(view);
        own.left.store(0, Ordering::Relaxed);
        own.right.store(0, Ordering::Relaxed);
        own.update();
        let root = insert(self.root.load(Ordering::Relaxed), own);
        self.root.store(root, Ordering::Relaxed);
    }

    /// Takes `old` out, if it is inside. Under the object's lock for writing.
    pub(crate) fn remove(&self, old: &Span<M>) {
        if old.flags.swap(0, Ordering::Relaxed) & INSIDE == 0 {
            return;
        }
        let root = remove(self.root.load(Ordering::Relaxed), old);
        self.root.store(root, Ordering::Relaxed);
    }

    /// Calls `visit` with every mapping of any of the pages `first` to `last`, and the part of it
    /// that maps them, until `visit` returns stop. Under the object's lock.
    pub(crate) fn each(
        &self,
        first: u64,
        last: u64,
        mut visit: impl FnMut(Mapped<'_, M>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let root = self.root.load(Ordering::Relaxed);
        each::<M>(root, (first, last), DEEPEST, &mut |found| {
            let start = found.first.load(Ordering::Relaxed);
            let from = start.max(first);
            let to = found.last.load(Ordering::Relaxed).min(last);
            let at = |page: u64| {
                let base = found.start.load(Ordering::Relaxed);
                VirtAddr(base + ((page - start) << M::Paging::shift()))
            };
            // SAFETY: an address space outlives the spans of its mappings.
            let mm = unsafe { found.mm.as_ref() };
            visit(Mapped {
                // SAFETY: 1: a span leaves the tree, under the lock that the caller holds, before
                // the tables below what it says is mapped are unlinked.
                tables: unsafe { Tables::kept(mm) },
                range: VirtRange::new(at(from), at(to + 1)),
                locked: found.flags.load(Ordering::Relaxed) & LOCKED != 0,
                span: Some(found),
            })
        })
    }

    /// Whether a span is the root of the tree. For oracles, while nothing runs.
    pub(crate) fn has_root(&self, span: &Span<M>) -> bool {
        self.root.peek() == span.address()
    }

    /// How many spans there are, or what is wrong with the tree. For oracles, while nothing runs.
    pub(crate) fn validate(&self) -> Result<u64, &'static str> {
        validate::<M>(self.root.peek()).map(|found| found.map_or(0, |found| found.spans))
    }
}

fn insert<M: Mmu>(root: u64, new: &Span<M>) -> u64 {
    let Some(top) = span::<M>(root) else {
        return new.address();
    };
    if new.priority() > top.priority() {
        let (below, above) = split::<M>(root, new.key());
        new.left.store(below, Ordering::Relaxed);
        new.right.store(above, Ordering::Relaxed);
        new.update();
        return new.address();
    }
    let child = if new.key() < top.key() {
        &top.left
    } else {
        &top.right
    };
    child.store(
        insert(child.load(Ordering::Relaxed), new),
        Ordering::Relaxed,
    );
    top.update();
    root
}

/// Splits a tree into the nodes before `key` and the others.
fn split<M: Mmu>(root: u64, key: (u64, u64)) -> (u64, u64) {
    let Some(top) = span::<M>(root) else {
        return (0, 0);
    };
    if top.key() < key {
        let (below, above) = split::<M>(top.right.load(Ordering::Relaxed), key);
        top.right.store(below, Ordering::Relaxed);
        top.update();
        (root, above)
    } else {
        let (below, above) = split::<M>(top.left.load(Ordering::Relaxed), key);
        top.left.store(above, Ordering::Relaxed);
        top.update();
        (below, root)
    }
}

fn remove<M: Mmu>(root: u64, old: &Span<M>) -> u64 {
    let Some(top) = span::<M>(root) else {
        return 0;
    };
    if root == old.address() {
        let (left, right) = (&top.left, &top.right);
        return join::<M>(left.load(Ordering::Relaxed), right.load(Ordering::Relaxed));
    }
    let child = if old.key() < top.key() {
        &top.left
    } else {
        &top.right
    };
    child.store(
        remove(child.load(Ordering::Relaxed), old),
        Ordering::Relaxed,
    );
    top.update();
    root
}

/// Joins two trees; all nodes of the first come before all of the second.
fn join<M: Mmu>(first: u64, second: u64) -> u64 {
    let (Some(before), Some(after)) = (span::<M>(first), span::<M>(second)) else {
        return first | second;
    };
    if before.priority() > after.priority() {
        let child = &before.right;
        child.store(
            join::<M>(child.load(Ordering::Relaxed), second),
            Ordering::Relaxed,
        );
        before.update();
        first
    } else {
        let child = &after.left;
        child.store(
            join::<M>(first, child.load(Ordering::Relaxed)),
            Ordering::Relaxed,
        );
        after.update();
        second
    }
}

fn each<M: Mmu>(
    root: u64,
    pages: (u64, u64),
    depth: u32,
    visit: &mut impl FnMut(&Span<M>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some(top) = span::<M>(root) else {
        return ControlFlow::Continue(());
    };
    if depth == 0 {
        M::violation(format_args!("reverse-map walk does not terminate"));
    }
    let (first, last) = pages;
    if top.most.load(Ordering::Relaxed) < first {
        return ControlFlow::Continue(());
    }
    each(top.left.load(Ordering::Relaxed), pages, depth - 1, visit)?;
    if top.first.load(Ordering::Relaxed) > last {
        return ControlFlow::Continue(());
    }
    if top.last.load(Ordering::Relaxed) >= first {
        visit(top)?;
    }
    each(top.right.load(Ordering::Relaxed), pages, depth - 1, visit)
}

/// What a tree turned out to be.
struct Found {
    spans: u64,
    least: (u64, u64),
    greatest: (u64, u64),
    most: u64,
    priority: (u64, u64),
}

fn validate<M: Mmu>(root: u64) -> Result<Option<Found>, &'static str> {
    let Some(top) = span::<M>(root) else {
        return Ok(None);
    };
    let (left, right) = (
        validate::<M>(top.left.peek())?,
        validate::<M>(top.right.peek())?,
    );
    let key = (top.first.peek(), top.id);
    let mut all = Found {
        spans: 1,
        least: key,
        greatest: key,
        most: top.last.peek(),
        priority: top.priority(),
    };
    if left.as_ref().is_some_and(|left| left.greatest >= key)
        || right.as_ref().is_some_and(|right| right.least <= key)
    {
        return Err("spans of a reverse map are out of order");
    }
    for (child, first) in [(left, true), (right, false)] {
        let Some(child) = child else { continue };
        if child.priority > top.priority() {
            return Err("the spans of a reverse map are no heap");
        }
        all.spans += child.spans;
        all.most = all.most.max(child.most);
        if first {
            all.least = child.least;
        } else {
            all.greatest = child.greatest;
        }
    }
    if all.most != top.most.peek() {
        return Err("a span does not know the last page below it");
    }
    Ok(Some(all))
}

impl<M: Mmu> fmt::Debug for Span<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.first.peek(), self.last.peek());
        write!(f, "pages {first}..={last} of VMA {}", self.id)
    }
}
