//! From a page to its anon_vma or file.
//!
//! # Problem
//! A reverse-map walk starts from a frame alone, and must find all its mappings. The anon_vma that
//! the frame names may be freed and reused during the lookup.
//!
//! # Idea
//! Memory of anon_vmas is type-stable, so reading a freed one is harmless. Take a reference, unless
//! the count is 0; then recheck that the page is still mapped, and still names this anon_vma. If
//! so, it was alive all the time.
//!
//! # Protocol
//! ```text
//! the frame referenced and locked
//! mapped?                          no -> there is no mapping
//! the anon_vma it names: reference, unless its count is zero
//! mapped, and the same anon_vma?   no -> drop it; another thread is changing the page
//! the root's lock: for writing (`exclusive`, `skipped`), or for reading (`shared`)
//! each interval node that covers the page
//! ```
//! A page of a file is in its file as long as it is locked, so its cache needs no reference.
//!
//! # Why it is correct
//! A VMA is unchained after its pages are unmapped, and an anon_vma is freed after its last chain;
//! so one that a mapped page names is alive. It is this one, and not one that reuses its memory:
//! the thread that freed it saw the page unmapped before, and so would this one (P16).
//!
//! Readers do not change the tree, and every change of it (fork, split, a first fault in an
//! adjacent VMA, exit) holds the lock for writing. Without the lock, as in the 2012 posting, a walk
//! misses interval nodes that are being moved, or reaches freed ones (P10, P11). The posting argued
//! that the migrating thread holds `mmap_lock`; but after a fork the tree has mappings of other
//! address spaces, and within one a first fault changes it under the same `mmap_lock`, held for
//! reading.
//!
//! Where only one PTE can name the page, no walk is needed: [`Owner::known`].
//!
//! # Cost
//! Two exchanges on the anon_vma's count, and the root's lock: for reading an exchange on a line
//! that all readers share.
//!
//! Linux: mm/rmap.c folio_get_anon_vma, folio_lock_anon_vma_read, rmap_walk_anon, rmap_walk_file.

use super::anon_vma::HeldAnonVma;
use crate::base::config::{AnonRmap, NegativeControl};
use crate::entry::walk::Tables;
use crate::memory::frame::Use;
use crate::pages::file::PageCache;
use crate::pages::interval::Mapped;
use crate::pages::page::Locked;
use crate::system::System;
use core::ops::ControlFlow;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Ordering;

/// What says where a page may be mapped.
pub(crate) enum Owner<'s, M: Mmu> {
    Anon(HeldAnonVma<'s, M>),
    File(&'s PageCache<M>),
    /// One entry only can name it.
    Known(Mapped<'s, M>),
}

impl<M: Mmu> System<M> {
    /// What says where a page may be mapped; none if nothing maps it, or it is on its way out.
    pub(crate) fn owner_of<'s>(&'s self, page: &Locked<'s, M>) -> Option<Owner<'s, M>> {
        let frame = page.frame();
        match frame.used_as() {
            Use::Anon => self.hold_anon_vma(frame).map(Owner::Anon),
            Use::File => {
                // A page that is locked and in a file stays there, and the file with it.
                PageCache::at(frame.mapping.load(Ordering::Relaxed)).map(Owner::File)
            }
            _ => None,
        }
    }
}

impl<'s, M: Mmu> Owner<'s, M> {
    /// Of a page that the entry for `addr` names, and no other can.
    ///
    /// # Correctness
    /// The page is *exclusive*: one entry names it, for certain. The caller has it locked, and
    /// holds `mmap_lock` or the VMA's lock. Only a fork gives a page a second entry, and only
    /// mremap gives an entry another address; both need `mmap_lock` for writing, with the VMA's
    /// section, so neither comes before the hold ends. Whoever takes the page away through the
    /// reverse map (reclaim, truncation) needs the page's lock. What is left is a zap under
    /// `mmap_lock` for reading, which takes the entry out under the table's lock: it is looked at
    /// there, like every entry that a walk finds. So no other mapping can be missed, and the lock
    /// that would keep the tree as it is guards nothing that is looked at.
    pub(crate) fn known(tables: Tables<'s, M>, addr: VirtAddr) -> Self {
        let start = addr.align_down(M::Paging::shift());
        Self::Known(Mapped {
            tables,
            range: VirtRange::new(start, VirtAddr(start.0 + M::Paging::page())),
            locked: false,
            span: None,
        })
    }

    /// Calls `visit` with each place that may map page `index`, until it is told to stop.
    ///
    /// # Context
    /// Sleeps for the lock of the reverse map, and holds it meanwhile.
    pub(crate) fn each(
        &self,
        index: u64,
        mut visit: impl FnMut(Mapped<'_, M>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Self::Known(place) => visit(*place),
            Self::File(cache) => {
                let _tree = cache.i_mmap.read();
                cache.spans.each(index, index, visit)
            }
            Self::Anon(held) => {
                let own = held.get();
                let lock = &own.root().lock;
                match held.sys.config.anon_rmap {
                    _ if held.sys.lacks(NegativeControl::RmapUnlocked) => {
                        own.spans.each(index, index, visit)
                    }
                    AnonRmap::Exclusive | AnonRmap::Skipped => {
                        let _tree = lock.write();
                        own.spans.each(index, index, visit)
                    }
                    AnonRmap::Shared => {
                        let _tree = lock.read();
                        own.spans.each(index, index, visit)
                    }
                }
            }
        }
    }
}
