//! move_pages: migrates single pages to given nodes, or reports their nodes; and the migration that
//! mbind does for its policy.
//!
//! # Problem
//! A program that knows the right node for its pages must be able to migrate them, and to learn the
//! result for each page.
//!
//! # Idea
//! Page by page: look up its PTE, then migrate it in the usual way ([`crate::pages::migrate`]). A
//! failure is that page's status, and the call continues.
//!
//! # Protocol
//! For each page: take `mmap_lock` for reading; look up the PTE under its page-table lock; migrate;
//! release. So a long call does not block writers for long, and its statuses are of different
//! moments.
//!
//! # Why it is correct
//! Whether a page is the caller's own is decided by its map count under the page-table lock. That
//! is policy, not safety: a page that becomes shared a moment later migrates for all its mappings.
//!
//! # Cost
//! For each page `mmap_lock`, the page-table lock twice, and the migration.
//!
//! Linux: mm/migrate.c do_pages_move, do_pages_stat, add_folio_for_migration (v6.18), which moves
//! pages for one node in batches; mm/mempolicy.c do_mbind, queue_folios_pte_range,
//! alloc_migration_target_by_mpol.

use crate::base::attrs::VmaView;
use crate::base::error::MovePageError;
use crate::base::event::Event;
use crate::base::policy::{Policy, PolicyMode};
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::pages::hugetlb::HugeSeen;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Instance, Ordering};

/// How often migration of a busy page is tried. Linux: NR_MAX_MIGRATE_SYNC_RETRY.
const TRIES: u32 = 3;

/// Which pages a call may move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Those that only one entry maps (`MPOL_MF_MOVE`).
    Own,
    /// All of them, also pages with other mappings (`MPOL_MF_MOVE_ALL`). Linux requires
    /// CAP_SYS_NICE; here the embedder decides.
    All,
}

/// What is mapped at an address.
struct Seen {
    pfn: Pfn,
    /// More than one entry maps it.
    shared: bool,
}

/// A page that a policy is about.
struct Asked {
    seen: Result<Seen, MovePageError>,
    page: VirtRange,
    /// Its number in the mapping.
    index: u64,
}

impl<M: Mmu> Mm<M> {
    /// Migrates each page to the node given with it, and stores the status of each, in order: the
    /// node that it is on, or why it was not migrated. Returns how many failed for transient
    /// reasons.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading, and for pages; waits for TLB flushes.
    ///
    /// # Errors
    /// `NoNode`: there is no such node. The pages before it were migrated and have their status.
    pub fn move_pages(
        &self,
        pages: impl IntoIterator<Item = (VirtAddr, u32)>,
        which: Which,
        mut tell: impl FnMut(Result<u32, MovePageError>),
    ) -> Result<u64, MovePageError> {
        let sys = self.system();
        as_call(sys, || {
            sys.count(Event::MovePages);
            let mut left = 0;
            for (addr, node) in pages {
                if node >= sys.frames.nodes() {
                    return Err(MovePageError::NoNode);
                }
                let status = self.move_one(addr, node, which);
                if let Err(MovePageError::Busy | MovePageError::NoMemory) = status {
                    left += 1;
                }
                tell(status);
            }
            Ok(left)
        })
    }

    /// Tells the node that each page is on, in order, or why there is none.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading.
    pub fn page_nodes(
        &self,
        pages: impl IntoIterator<Item = VirtAddr>,
        mut tell: impl FnMut(Result<u32, MovePageError>),
    ) {
        let sys = self.system();
        as_call(sys, || {
            sys.count(Event::MovePages);
            for addr in pages {
                let guard = self.read(Over::at(addr));
                let seen = look_at(guard.held(), addr);
                drop(guard);
                tell(seen.map(|seen| sys.frames.node_of(seen.pfn)));
            }
        });
    }

    fn move_one(&self, addr: VirtAddr, node: u32, which: Which) -> Result<u32, MovePageError> {
        let frames = &self.system().frames;
        let mut tries = TRIES;
        loop {
            let guard = self.read(Over::at(addr));
            let held = guard.held();
            let seen = look_at(held, addr)?;
            if frames.node_of(seen.pfn) == node {
                return Ok(node);
            }
            if seen.shared && which == Which::Own {
                return Err(MovePageError::Shared);
            }
            let moved = held.move_mapped(addr, node);
            drop(guard);
            tries -= 1;
            match moved {
                Err(MovePageError::Busy) if tries > 0 => {}
                moved => return moved.map(|()| node),
            }
        }
    }

    /// Moves the pages of `range` that are elsewhere than `policy` has them, of those that may be
    /// moved; whether all of those are where it has them now.
    ///
    /// # Context
    /// Holds nothing. Sleeps for `mmap_lock`, which it takes for reading, and for pages.
    pub(super) fn move_for(&self, range: VirtRange, policy: Policy, which: Which) -> bool {
        let sys = self.system();
        let home = sys.frames.home(&sys.at);
        let mut done = true;
        let mut at = range.start();
        while at < range.end() {
            let here = at;
            let rest = VirtRange::new(at, range.end());
            let guard = self.read(Over::Range(rest));
            let held = guard.held();
            let view = held.find(at).map(|vma| vma.view());
            let Some(view) = view.filter(|view| view.range.start() < range.end()) else {
                break;
            };
            at = at.max(view.range.start());
            let asked = if view.is_huge() {
                ask_huge(held, &view, at)
            } else {
                if let (None, part) = held.tables().part(at, range) {
                    at = part.end();
                    continue;
                }
                Asked {
                    seen: look_at(held, at),
                    page: VirtRange::new(at, VirtAddr(at.0 + M::Paging::page())),
                    index: view.page_index::<M::Paging>(at.max(here)),
                }
            };
            drop(guard);
            let page = at;
            at = asked.page.end();
            let Ok(seen) = asked.seen else { continue };
            let node = target(&sys.at, policy, home, asked.index);
            let misplaced = is_outside(policy, home, sys.frames.node_of(seen.pfn));
            if misplaced && !(seen.shared && which == Which::Own) {
                done &= self.move_one(page, node, which).is_ok();
            }
        }
        done
    }
}

/// What the entry for `addr` maps.
fn look_at<M: Mmu>(held: Held<'_, M>, addr: VirtAddr) -> Result<Seen, MovePageError> {
    let seen = held.page_of_entry(addr, |found| {
        let pfn = found.unmoved().pfn();
        let maps = &held.system().frames.get(pfn).maps;
        let shared = maps.load(Ordering::Relaxed) > 1;
        Ok(Seen { pfn, shared })
    });
    let none = matches!(seen, Err(MovePageError::NotThere));
    let Some(view) = none.then(|| held.huge_view(addr)).flatten() else {
        return seen;
    };
    let HugeSeen { pfn, shared, .. } = held.look_at_huge(&view, addr)?;
    Ok(Seen { pfn, shared })
}

/// Looks up the huge page at `addr` for mbind.
///
/// Linux: queue_folios_hugetlb, where a page in a shared page table is not the caller's own.
fn ask_huge<M: Mmu>(held: Held<'_, M>, view: &VmaView, addr: VirtAddr) -> Asked {
    let seen = held.look_at_huge(view, addr).map(|seen| Seen {
        pfn: seen.pfn,
        shared: seen.shared || seen.by_table,
    });
    Asked {
        seen,
        page: view.huge_size().page_at::<M::Paging>(addr),
        index: view.huge_index::<M::Paging>(addr),
    }
}

/// Whether a page on `node` is not where `policy` has pages. Without a set they are to be at
/// `home`.
fn is_outside(policy: Policy, home: u32, node: u32) -> bool {
    match policy.nodes() {
        nodes if nodes.is_empty() => node != home,
        nodes => !nodes.has(node),
    }
}

/// The node that `policy` has page number `index` on, asked by a CPU of node `home`.
fn target(at: &impl Instance, policy: Policy, home: u32, index: u64) -> u32 {
    let nodes = policy.nodes();
    let nearest = || at.near_first(home).find(|node| nodes.has(*node));
    let chosen = match policy.mode() {
        PolicyMode::Default | PolicyMode::Local => None,
        PolicyMode::Preferred => nodes.nth(0),
        PolicyMode::Interleave => nodes.nth(index),
        PolicyMode::Bind | PolicyMode::PreferredMany => nearest(),
    };
    chosen.unwrap_or(home)
}
