//! The reverse map of a file: which mappings have a page.
//!
//! # Problem
//! Truncation and writeback have to find every entry that maps a page; each address space may map
//! another part of the file, at another address.
//!
//! # Idea
//! Each mapping has a link that says which pages of the file it has, and where. The links of a
//! file stand in an interval tree: a treap by first page and number of the VMA, each node with the
//! largest last page below it. A link's place in the heap is a hash of the number, so that the tree
//! is as likely high as a random one, and the same in each run.
//!
//! # Protocol
//! `i_mmap` for writing to change the tree, for reading to walk it. A link follows its VMA's
//! record, late or early: a page that is mapped is covered by a link at every moment.
//! - A new VMA's link is there before the VMA is, if it has pages of another from the beginning
//!   (a split, a copy, a child). Otherwise it is there before the VMA's section ends: what it
//!   replaces has pages of its own there until then.
//! - One that grows says so before a fault finds pages there, and before what it grows over goes.
//! - One that shrinks says so when its section ends, or, where it lost pages that go, when these
//!   are gone: until then other mappings of the same pages are where it was, or nothing is.
//! - One that goes is taken out after its pages, and after every CPU has forgotten them, but before
//!   tables are freed.
//!
//! # Why it is correct
//! Who walks finds each mapping of a page, by one link or by two. He may walk the tables below it:
//! those of a linked mapping are not freed, since whoever frees tables has taken the links out
//! first, which waits for him.
//!
//! A child has a larger number than its parent. So who takes pages away comes to the parent first:
//! what a fork copies after that is not there any more, and what it copied before is found when he
//! comes to the child. (Linux: vma_interval_tree_insert_after in dup_mmap.)
//!
//! # Cost
//! A link for each mapping of a file; a change of `log n` nodes under the lock for each call that
//! maps, unmaps or splits.
//!
//! Linux: mm/interval_tree.c, mm/vma.c vma_prepare, `__vma_link_file`, unlink_file_vma.

use super::PageCache;
use crate::error::NoMemory;
use crate::mm::Mm;
use crate::system::System;
use crate::vma::{Vma, VmaView};
use core::fmt;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Ordering};

/// A mapping, to its file.
#[repr(C)]
pub(crate) struct FileLink<M: Mmu> {
    /// Immutable.
    cache: NonNull<PageCache<M>>,
    /// Immutable.
    mm: NonNull<Mm<M>>,
    /// The VMA's number. Immutable.
    id: u64,
    /// The first page. This and what follows is guarded by: the cache's `i_mmap`.
    first: Atomic<u64, M>,
    /// The last page.
    last: Atomic<u64, M>,
    /// Where the first page is mapped.
    start: Atomic<u64, M>,
    /// The largest last page here and below.
    most: Atomic<u64, M>,
    left: Atomic<u64, M>,
    right: Atomic<u64, M>,
    /// 1 while it stands in the tree.
    inside: Atomic<u64, M>,
}

// SAFETY: the free link overwrites the cache of a link that no tree has.
unsafe impl<M: Mmu> SlabObject for FileLink<M> {}
// SAFETY: what the pointers lead to is shared by the lock named above.
unsafe impl<M: Mmu> Send for FileLink<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for FileLink<M> {}

/// The tree of a file's links.
#[derive(Debug)]
pub(crate) struct Links<M: Mmu> {
    root: Atomic<u64, M>,
}

/// A part of a file that is mapped somewhere.
#[derive(Clone, Copy)]
pub(crate) struct Mapped<'c, M: Mmu> {
    pub(crate) mm: &'c Mm<M>,
    pub(crate) range: VirtRange,
}

/// The link at an address that a tree or a VMA names.
fn link<'a, M: Mmu>(address: u64) -> Option<&'a FileLink<M>> {
    // SAFETY: a link lives as long as its VMA, and is in a tree no longer.
    unsafe { (address as *const FileLink<M>).as_ref() }
}

/// Steele, Lea and Flood's mixing function (splitmix64).
const fn mixed(number: u64) -> u64 {
    let a = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ a >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ b >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ c >> 31
}

/// The pages that a mapping of a file has: first and last.
fn pages_of<P: Paging>(view: &VmaView) -> (u64, u64) {
    let pages = view.range.pages(P::SHIFT).max(1);
    (view.pgoff, view.pgoff.saturating_add(pages - 1))
}

impl<M: Mmu> FileLink<M> {
    fn address(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    fn cache(&self) -> &PageCache<M> {
        // SAFETY: a link counts in its cache.
        unsafe { self.cache.as_ref() }
    }

    /// What orders links in the tree.
    fn key(&self) -> (u64, u64) {
        (self.first.load(Ordering::Relaxed), self.id)
    }

    /// Of two, the one with the larger is above.
    const fn priority(&self) -> (u64, u64) {
        (mixed(self.id), self.id)
    }

    /// Whether it says what the record of its VMA does.
    fn says(&self, view: &VmaView) -> bool {
        let (first, last) = pages_of::<M::Paging>(view);
        self.inside.load(Ordering::Relaxed) == 1
            && self.first.load(Ordering::Relaxed) == first
            && self.last.load(Ordering::Relaxed) == last
            && self.start.load(Ordering::Relaxed) == view.range.start().0
    }

    /// Whether all that it says is in the record of its VMA.
    fn is_within(&self, view: &VmaView) -> bool {
        let (first, last) = pages_of::<M::Paging>(view);
        first <= self.first.load(Ordering::Relaxed)
            && self.inside.load(Ordering::Relaxed) == 1
            && self.last.load(Ordering::Relaxed) <= last
    }

    fn say(&self, view: &VmaView) {
        let (first, last) = pages_of::<M::Paging>(view);
        self.first.store(first, Ordering::Relaxed);
        self.last.store(last, Ordering::Relaxed);
        self.start.store(view.range.start().0, Ordering::Relaxed);
    }

    /// The largest last page, from its own and its children's.
    fn update(&self) {
        let most = |child: &Atomic<u64, M>| {
            let child = link::<M>(child.load(Ordering::Relaxed));
            child.map_or(0, |child| child.most.load(Ordering::Relaxed))
        };
        let own = self.last.load(Ordering::Relaxed);
        let most = own.max(most(&self.left)).max(most(&self.right));
        self.most.store(most, Ordering::Relaxed);
    }
}

impl<M: Mmu> Links<M> {
    pub(crate) fn new() -> Self {
        Self {
            root: Atomic::new(0),
        }
    }

    /// Under `i_mmap` for writing.
    fn insert(&self, new: &FileLink<M>) {
        new.inside.store(1, Ordering::Relaxed);
        new.left.store(0, Ordering::Relaxed);
        new.right.store(0, Ordering::Relaxed);
        new.update();
        let root = insert(self.root.load(Ordering::Relaxed), new);
        self.root.store(root, Ordering::Relaxed);
    }

    /// Under `i_mmap` for writing.
    fn remove(&self, old: &FileLink<M>) {
        if old.inside.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        let root = remove(self.root.load(Ordering::Relaxed), old);
        self.root.store(root, Ordering::Relaxed);
    }

    /// Calls `visit` with every mapping of any of the pages `first` to `last`, and which part of
    /// it that is. Under `i_mmap`.
    pub(crate) fn each(&self, first: u64, last: u64, mut visit: impl FnMut(Mapped<'_, M>)) {
        let root = self.root.load(Ordering::Relaxed);
        each::<M>(root, (first, last), &mut |found| {
            let start = found.first.load(Ordering::Relaxed);
            let from = start.max(first);
            let to = found.last.load(Ordering::Relaxed).min(last);
            let at = |page: u64| {
                let base = found.start.load(Ordering::Relaxed);
                VirtAddr(base + ((page - start) << M::Paging::SHIFT))
            };
            visit(Mapped {
                // SAFETY: an address space outlives the links of its mappings.
                mm: unsafe { found.mm.as_ref() },
                range: VirtRange::new(at(from), at(to + 1)),
            });
        });
    }

    /// How many links there are, or what is wrong with the tree. For oracles, while nothing runs.
    pub(crate) fn validate(&self) -> Result<u64, &'static str> {
        validate::<M>(self.root.peek()).map(|found| found.map_or(0, |found| found.links))
    }
}

fn insert<M: Mmu>(root: u64, new: &FileLink<M>) -> u64 {
    let Some(top) = link::<M>(root) else {
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

/// Parts a tree in what comes before `key` and what does not.
fn split<M: Mmu>(root: u64, key: (u64, u64)) -> (u64, u64) {
    let Some(top) = link::<M>(root) else {
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

fn remove<M: Mmu>(root: u64, old: &FileLink<M>) -> u64 {
    let Some(top) = link::<M>(root) else {
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

/// One tree of two, of which all of the first comes before all of the second.
fn join<M: Mmu>(first: u64, second: u64) -> u64 {
    let (Some(before), Some(after)) = (link::<M>(first), link::<M>(second)) else {
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

fn each<M: Mmu>(root: u64, pages: (u64, u64), visit: &mut impl FnMut(&FileLink<M>)) {
    let Some(top) = link::<M>(root) else { return };
    let (first, last) = pages;
    if top.most.load(Ordering::Relaxed) < first {
        return;
    }
    each(top.left.load(Ordering::Relaxed), pages, visit);
    if top.first.load(Ordering::Relaxed) > last {
        return;
    }
    if top.last.load(Ordering::Relaxed) >= first {
        visit(top);
    }
    each(top.right.load(Ordering::Relaxed), pages, visit);
}

/// What a tree turned out to be.
struct Found {
    links: u64,
    least: (u64, u64),
    greatest: (u64, u64),
    most: u64,
    priority: (u64, u64),
}

fn validate<M: Mmu>(root: u64) -> Result<Option<Found>, &'static str> {
    let Some(top) = link::<M>(root) else {
        return Ok(None);
    };
    let (left, right) = (
        validate::<M>(top.left.peek())?,
        validate::<M>(top.right.peek())?,
    );
    let key = (top.first.peek(), top.id);
    let mut all = Found {
        links: 1,
        least: key,
        greatest: key,
        most: top.last.peek(),
        priority: top.priority(),
    };
    if left.as_ref().is_some_and(|left| left.greatest >= key)
        || right.as_ref().is_some_and(|right| right.least <= key)
    {
        return Err("links of a file are out of order");
    }
    for (child, first) in [(left, true), (right, false)] {
        let Some(child) = child else { continue };
        if child.priority > top.priority() {
            return Err("the links of a file are no heap");
        }
        all.links += child.links;
        all.most = all.most.max(child.most);
        if first {
            all.least = child.least;
        } else {
            all.greatest = child.greatest;
        }
    }
    if all.most != top.most.peek() {
        return Err("a link of a file does not know the last page below it");
    }
    Ok(Some(all))
}

impl<M: Mmu> System<M> {
    /// The link of a new VMA, number `id`, to the file that `view` maps: the address, 0 for
    /// anonymous memory. It stands in no tree yet ([`Vma::link_follows`]).
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new_link(&self, mm: &Mm<M>, id: u64, view: &VmaView) -> Result<u64, NoMemory> {
        let Some(cache) = view.cache::<M>() else {
            return Ok(0);
        };
        let new = FileLink {
            cache: NonNull::from(cache),
            mm: NonNull::from(mm),
            id,
            first: Atomic::new(0),
            last: Atomic::new(0),
            start: Atomic::new(0),
            most: Atomic::new(0),
            left: Atomic::new(0),
            right: Atomic::new(0),
            inside: Atomic::new(0),
        };
        let new = self.files.links.alloc(new, self).map_err(|_| NoMemory)?;
        cache.hold();
        Ok(new.as_ptr() as u64)
    }

    /// Takes the link of a VMA out, which has no pages any more, and lets the file go.
    ///
    /// # Context
    /// Sleeps for the file's `i_mmap`; if this was the last to have the file, for its device.
    pub(crate) fn drop_link(&self, address: u64) {
        let Some(old) = link::<M>(address) else {
            return;
        };
        let cache = old.cache();
        {
            let _tree = cache.i_mmap.write();
            cache.links.remove(old);
        }
        // SAFETY: 1, 2: in no tree any more, and the VMA goes.
        unsafe { self.files.links.free(NonNull::from(old)) };
        cache.put();
    }
}

impl<M: Mmu> Vma<M> {
    /// The link to the file says what the record says, after this.
    ///
    /// # Context
    /// Under `mmap_lock` for writing, or the VMA is nobody else's. Sleeps for the file's `i_mmap`.
    #[inline]
    pub(crate) fn link_follows(&self) {
        if self.link() != 0 {
            self.move_link();
        }
    }

    /// The same, if the record says more than the link.
    #[inline]
    pub(crate) fn link_grows(&self) {
        if self.link() != 0 && link::<M>(self.link()).is_some_and(|own| own.is_within(&self.view()))
        {
            self.move_link();
        }
    }

    /// Whether its link says what the record says, and stands in the tree. For oracles, while
    /// nothing runs.
    pub(crate) fn link_agrees(&self) -> bool {
        let view = self.peek();
        let (first, last) = pages_of::<M::Paging>(&view);
        link::<M>(self.link()).is_none_or(|own| {
            let said = (own.first.peek(), own.last.peek(), own.start.peek());
            own.inside.peek() == 1 && said == (first, last, view.range.start().0)
        })
    }

    #[cold]
    fn move_link(&self) {
        let Some(own) = link::<M>(self.link()) else {
            return;
        };
        let view = self.view();
        // Nobody else changes it.
        if own.says(&view) {
            return;
        }
        let cache = own.cache();
        let _tree = cache.i_mmap.write();
        cache.links.remove(own);
        own.say(&view);
        cache.links.insert(own);
    }
}

impl<M: Mmu> fmt::Debug for FileLink<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.first.peek(), self.last.peek());
        write!(f, "FileLink {first}..={last}")
    }
}
