//! The reverse map of a file: which VMAs map a page ([`crate::pages::interval`]).
//!
//! A mapping of a file has one link, which has a reference to the file and a node in its interval
//! tree, guarded by `i_mmap`. It is unlinked after its pages are unmapped and their TLB flush is
//! complete: otherwise writeback would find no mapping while a CPU with a stale translation still
//! stores to the page. The link of a segment of shared memory is also what counts as attached
//! ([`super::segments`]).
//!
//! Linux: mm/vma.c `__vma_link_file`, unlink_file_vma.

use super::{PageCache, Unused};
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::mm::Mm;
use crate::pages::interval::{Mapped, Span};
use crate::pages::reserved::lock::HugeLock;
use crate::pages::reserved::own::OwnPages;
use crate::space::vma::Vma;
use crate::system::System;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::slab::SlabObject;
use minflt_sync::{Atomic, Ordering};

/// A mapping, to its file.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct FileLink<M: Mmu> {
    /// Immutable.
    cache: NonNull<PageCache<M>>,
    span: Span<M>,
    /// The address of the lock of a mapping of huge pages, 0 where there is none. Immutable once
    /// others can find the link.
    lock: Atomic<u64, M>,
    /// The address of a private hugetlb mapping's reservation, 0 for none. Written by: a holder of
    /// `mmap_lock`, write, in the VMA's write section.
    own: Atomic<u64, M>,
}

impl<M: Mmu> SlabObject for FileLink<M> {}

/// The link at an address that a VMA names.
fn link<'a, M: Mmu>(address: u64) -> Option<&'a FileLink<M>> {
    // SAFETY: a link lives as long as its VMA.
    unsafe { (address as *const FileLink<M>).as_ref() }
}

impl<M: Mmu> FileLink<M> {
    fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    fn lock(&self) -> u64 {
        self.lock.load(Ordering::Relaxed)
    }

    fn cache(&self) -> &PageCache<M> {
        // SAFETY: a link counts in its cache.
        unsafe { self.cache.as_ref() }
    }

    fn lacks(&self, fix: NegativeControl) -> bool {
        self.cache().system().lacks(fix)
    }

    /// For a control: of a segment, what counts mappings wraps what would give a part its own lock,
    /// and does not hand the split on (P53).
    fn name_lock_of(&self, old: &Vma<M>) {
        let cache = self.cache();
        let Some(lock) = old.huge_lock().filter(|_| cache.counts_mappings()) else {
            return;
        };
        let named = core::ptr::from_ref(lock) as u64;
        let fresh = self.lock.swap(named, Ordering::Relaxed);
        if let Some(fresh) = HugeLock::<M>::ptr(fresh) {
            // SAFETY: 1: the link's, which names another now.
            unsafe { HugeLock::put(fresh, cache.system()) };
        }
    }
}

impl<M: Mmu> System<M> {
    /// The link of a new VMA, number `id`, to the file that `view` maps: the address, 0 for
    /// anonymous memory. It is in no tree yet ([`Vma::link_follows`]).
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new_link(&self, mm: &Mm<M>, id: u64, view: &VmaView) -> Result<u64, NoMemory> {
        let Some(cache) = view.cache::<M>() else {
            return Ok(0);
        };
        let flags = view.flags;
        let mut new = FileLink {
            cache: NonNull::from(cache),
            span: Span::new(mm, id),
            lock: Atomic::new(0),
            own: Atomic::new(0),
        };
        if flags.has(VmaFlags::HUGE_OWNER) {
            new.own = Atomic::new(OwnPages::none_used(self)?);
        }
        if flags.has(VmaFlags::HUGETLB) && !self.lacks(NegativeControl::LinkBeforeLock) {
            new.lock = Atomic::new(HugeLock::fresh(self));
        }
        let (lock, own) = (new.lock.peek(), new.own.peek());
        let new = self.files.links.alloc(new, self).map_err(|_| {
            close_huge(self, lock, own);
            NoMemory
        })?;
        cache.hold();
        cache.mapped_by(mm);
        Ok(new.as_ptr() as u64)
    }

    /// Takes the link of a VMA of `mm` out, which has no pages any more. If this was the last to
    /// have the file, the caller closes that, with nothing held.
    ///
    /// # Context
    /// Sleeps for the file's `i_mmap`, or for the table of segments.
    #[must_use = "dropping it closes the file, which may wait for a device"]
    pub(crate) fn drop_link(&self, mm: &Mm<M>, address: u64) -> Option<Unused<M>> {
        let gone = NonNull::new(address as *mut FileLink<M>)?;
        // SAFETY: a link lives as long as its VMA, and is freed below.
        let old = unsafe { gone.as_ref() };
        let cache = old.cache();
        {
            // Hugetlb faults may hold it throughout.
            let _map = cache.faults_hold_map().then(|| cache.map_lock.write());
            let _tree = cache.i_mmap.write();
            cache.spans.remove(&old.span);
        }
        close_huge(self, old.lock(), old.own());
        let held = old.cache;
        // SAFETY: 1, 2: removed from the tree, and the VMA is being freed.
        unsafe { self.files.links.free(gone, self) };
        // SAFETY: the link's reference is still there.
        unsafe { held.as_ref() }.unmapped_by(mm);
        // SAFETY: 1: the link's.
        unsafe { PageCache::unused(held) }
    }
}

impl<M: Mmu> Vma<M> {
    /// Updates the VMA's nodes in the reverse maps to its attributes.
    ///
    /// # Context
    /// Under `mmap_lock` for writing, or with an unpublished VMA. Sleeps for the locks of its
    /// file's mappings and of its anon_vmas.
    #[inline]
    pub(crate) fn link_follows(&self) {
        if self.link() != 0 {
            self.move_link(|span, view| span.says(view));
        }
        self.spans_follow(|span, view| span.says(view));
    }

    /// The same, if the record says more.
    #[inline]
    pub(crate) fn link_grows(&self) {
        let enough = |span: &Span<M>, view: &VmaView| !span.is_within(view) || span.says(view);
        if self.link() != 0 {
            self.move_link(enough);
        }
        self.spans_follow(enough);
    }

    /// Whether its link is in the tree with the VMA's attributes. For oracles, while nothing runs.
    pub(crate) fn link_agrees(&self) -> bool {
        link::<M>(self.link()).is_none_or(|own| own.span.agrees(&self.peek()))
    }

    /// Unless what it says is `enough`. Nobody else changes it.
    #[cold]
    fn move_link(&self, enough: impl Fn(&Span<M>, &VmaView) -> bool) {
        let Some(own) = link::<M>(self.link()) else {
            return;
        };
        let view = self.view();
        if enough(&own.span, &view) {
            return;
        }
        let cache = own.cache();
        let _map = cache.faults_hold_map().then(|| cache.map_lock.write());
        {
            let _tree = cache.i_mmap.write();
            cache.spans.put(&own.span, &view);
        }
        let sys = cache.system();
        if sys.lacks(NegativeControl::LinkBeforeLock) && view.is_huge() && own.lock() == 0 {
            own.lock.store(HugeLock::fresh(sys), Ordering::Relaxed);
        }
    }

    /// The mapping is being removed: returns its unused reservation to the pool.
    pub(crate) fn give_back_own(&self, sys: &System<M>) {
        let Some(link) = link::<M>(self.link()) else {
            return;
        };
        if let (Some(own), Some(pages)) = (OwnPages::<M>::at(link.own()), link.span.pages()) {
            sys.give_back_own(own, self.view().huge_size(), pages);
        }
    }

    /// The lock of a mapping of huge pages, if it has one.
    pub(crate) fn huge_lock(&self) -> Option<&HugeLock<M>> {
        HugeLock::at(link::<M>(self.link())?.lock())
    }

    /// Nobody shares its tables any more. Under the file's `i_mmap` for writing.
    pub(crate) fn shares_no_more(&self) {
        if let Some(own) = link::<M>(self.link()) {
            own.span.shares_no_more();
        }
    }

    /// What a private mapping of huge pages has set aside, if anything.
    pub(crate) fn huge_own(&self) -> Option<&OwnPages<M>> {
        OwnPages::at(link::<M>(self.link())?.own())
    }

    /// The VMA becomes a part of `old`: both share `old`'s reservation. The VMA is not published.
    pub(crate) fn share_own(&self, old: &Self) {
        let (new, own) = (link::<M>(self.link()), old.huge_own());
        if let Some(new) = new.filter(|new| new.lacks(NegativeControl::SplitNamesLock)) {
            new.name_lock_of(old);
        }
        let (Some(new), Some(own)) = (new, own) else {
            return;
        };
        own.hold();
        let fresh = new
            .own
            .swap(core::ptr::from_ref(own) as u64, Ordering::Relaxed);
        if let Some(fresh) = OwnPages::<M>::ptr(fresh) {
            // SAFETY: 1: the link's, which names another now.
            unsafe { OwnPages::put(fresh, new.cache().system()) };
        }
    }

    /// Detaches the mapping's reservation, and drops the reference to it.
    pub(crate) fn drop_own(&self, sys: &System<M>) {
        if let Some(link) = link::<M>(self.link()) {
            close_huge(sys, 0, link.own.swap(0, Ordering::Relaxed));
        }
    }
}

/// Frees the hugetlb state of a link.
fn close_huge<M: Mmu>(sys: &System<M>, lock: u64, own: u64) {
    if let Some(lock) = HugeLock::<M>::ptr(lock) {
        // SAFETY: 1: the link's reference; the link is no longer reachable.
        unsafe { HugeLock::put(lock, sys) };
    }
    if let Some(own) = OwnPages::<M>::ptr(own) {
        // SAFETY: 1: the link's, which nobody finds any more.
        unsafe { OwnPages::put(own, sys) };
    }
}

/// The link that contains a node of a file's interval tree.
fn link_of<M: Mmu>(span: &Span<M>) -> Option<&FileLink<M>> {
    link(span.address() - offset_of!(FileLink<M>, span) as u64)
}

/// The lock of the mapping of huge pages that was found by its file, if it has one.
pub(crate) fn huge_lock_of<'l, M: Mmu>(found: &Mapped<'l, M>) -> Option<&'l HugeLock<M>> {
    HugeLock::at(link_of(found.span?)?.lock())
}

/// What the mapping that was found by its file has set aside, if anything.
pub(crate) fn own_pages_of<'l, M: Mmu>(found: &Mapped<'l, M>) -> Option<&'l OwnPages<M>> {
    OwnPages::at(link_of(found.span?)?.own())
}
