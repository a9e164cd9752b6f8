//! Resizing of huge page pools.
//!
//! # Idea
//! A pool grows by blocks from the zones, one from each node in turn, and stops where none leaves
//! enough to others. It shrinks in the same way, by free pages that are promised to nobody. A page
//! that is larger than a zone's largest block is put together of such as follow each other; nothing
//! is moved out of the way for it.
//!
//! # Why it is correct
//! Each page comes or goes in one hold of `HugetlbLock`, which looks at the count again. Between
//! its list and its zone a page is of him who resizes only.
//!
//! Linux: mm/hugetlb.c set_max_huge_pages, alloc_pool_huge_folio, remove_pool_hugetlb_folio
//! (v6.12).

use super::HugeSize;
use crate::memory::alloc::Frames;
use crate::memory::alloc::pool::{Counts, NodeCounters, PoolCounters, Pools};
use crate::memory::frame::{Use, Zeroed};
use crate::memory::lifetime::as_call;
use crate::system::System;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};

/// Which nodes' pools grow or shrink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    /// All, in turn.
    All,
    /// One.
    Only(u32),
}

impl<M: Mmu> Pools<M> {
    fn total_locked(&self, counts: &Counts, spread: Spread) -> u64 {
        match spread {
            Spread::All => counts.total,
            Spread::Only(node) => self.list_locked(counts, node).total(),
        }
    }

    /// The node of `list` after `node`, counted around.
    fn after(&self, node: u32) -> u32 {
        (node + 1) % self.nodes.count()
    }

    /// The nodes to ask, one after the other.
    fn in_turn(&self, first: u32, spread: Spread) -> impl Iterator<Item = u32> {
        let nodes = self.nodes.count();
        let (first, count) = match spread {
            Spread::All => (first, nodes),
            Spread::Only(node) => (node, 1),
        };
        (0..count).map(move |i| (first + i) % nodes)
    }
}

impl<M: Mmu> Frames<M> {
    /// Makes the pools have `pages` huge pages of a size, taken from the nodes in turn or given
    /// back to them; returns how many there are now.
    ///
    /// # Context
    /// On a CPU. Takes and lets go `HugetlbLock` and zones' locks for each page.
    ///
    /// Linux: set_max_huge_pages.
    pub(crate) fn resize_pool(&self, size: HugeSize, pages: u64) -> u64 {
        self.resize(size, Spread::All, pages)
    }

    /// The same for the pool of one node.
    pub(crate) fn resize_pool_of(&self, size: HugeSize, node: u32, pages: u64) -> u64 {
        if node >= self.nodes() {
            return 0;
        }
        self.resize(size, Spread::Only(node), pages)
    }

    /// Others may resize meanwhile: each takes as many steps as were missing when it began, so it
    /// ends, and none goes past what it wants.
    fn resize(&self, size: HugeSize, spread: Spread, pages: u64) -> u64 {
        let pools = self.pools(size);
        let Some(order) = pools.order() else {
            return 0;
        };
        let total = || pools.total_locked(&pools.counts.lock(), spread);
        let had = total();
        // Each of the two is empty, or the other is.
        let grown = |_: &u64| self.grow_by_one(pools, (spread, pages), order);
        let shrunk = |_: &u64| self.shrink_by_one(pools, (spread, pages), order);
        (had..pages).take_while(grown).for_each(drop);
        (pages..had).take_while(shrunk).for_each(drop);
        total()
    }

    /// False where memory is short, or there are enough pages.
    fn grow_by_one(&self, pools: &Pools<M>, (spread, pages): (Spread, u64), order: u32) -> bool {
        let first = pools.counts.lock().next_grow;
        let mut nodes = pools.in_turn(first, spread);
        let found = nodes.find_map(|node| {
            let pfn = self.take_block_of(node, order, pools.keep)?;
            Some((node, pfn))
        });
        let Some((node, pfn)) = found else {
            return false;
        };
        self.become_huge(pfn, order);
        let mut counts = pools.counts.lock();
        if pools.total_locked(&counts, spread) >= pages {
            drop(counts);
            self.free_block(pfn, order);
            return false;
        }
        counts.total += 1;
        if spread == Spread::All {
            counts.next_grow = pools.after(node);
        }
        pools.list_locked_mut(&mut counts, node).add_total(1);
        pools.push(&mut counts, &self.table, node, pfn);
        true
    }

    /// The caller took a block and makes a huge page of it, which is known to be zero if all of its
    /// frames are.
    fn become_huge(&self, pfn: Pfn, order: u32) {
        let frame = self.get(pfn);
        frame.set_block_use(Use::Huge, order);
        let mut zeroed = frame.is_zeroed();
        for tail in pfn.0 + 1..pfn.0 + (1 << order) {
            let tail = self.get(Pfn(tail));
            zeroed &= tail.is_zeroed();
            tail.set_use(Use::Tail);
        }
        frame.set_zeroed(if zeroed { Zeroed::Yes } else { Zeroed::No });
    }

    /// False where all is promised or in use, or there are no more pages than wanted.
    fn shrink_by_one(&self, pools: &Pools<M>, (spread, pages): (Spread, u64), order: u32) -> bool {
        let mut counts = pools.counts.lock();
        let enough = pools.total_locked(&counts, spread) <= pages;
        if enough || counts.free == counts.reserved {
            return false;
        }
        let mut nodes = pools.in_turn(counts.next_shrink, spread);
        let found = nodes.find_map(|node| {
            let pfn = pools.pop(&mut counts, &self.table, node)?;
            Some((node, pfn))
        });
        let Some((node, pfn)) = found else {
            return false;
        };
        counts.total -= 1;
        if spread == Spread::All {
            counts.next_shrink = pools.after(node);
        }
        pools.list_locked_mut(&mut counts, node).add_total(-1);
        drop(counts);
        self.free_block(pfn, order);
        true
    }
}

impl<M: Mmu> System<M> {
    /// Makes the pools have `pages` huge pages, spread over the nodes (`vm.nr_hugepages`); returns
    /// how many there are now. Fewer where memory is short, more where those that would go are in
    /// use or promised: they stay.
    ///
    /// # Context
    /// On a CPU; takes spinning locks.
    pub fn resize_huge_pool(&self, pages: u64) -> u64 {
        self.resize_huge_pool_of_size(HugeSize::Large, pages)
    }

    /// The same for huge pages of another size than the usual one (`nr_hugepages` of it in sysfs).
    ///
    /// # Context
    /// As [`Self::resize_huge_pool`]; growing by one that is larger than the allocator's blocks
    /// looks at all of a node's memory under the lock of its zone.
    pub fn resize_huge_pool_of_size(&self, size: HugeSize, pages: u64) -> u64 {
        as_call(self, || self.frames.resize_pool(size, pages))
    }

    /// The same for the pool of one node (`nr_hugepages` in sysfs); 0 if there is no such node.
    ///
    /// # Context
    /// As [`Self::resize_huge_pool_of_size`].
    pub fn resize_huge_pool_of(&self, size: HugeSize, node: u32, pages: u64) -> u64 {
        as_call(self, || self.frames.resize_pool_of(size, node, pages))
    }

    /// How many huge pages there are (`HugePages_*` in /proc/meminfo).
    #[must_use]
    pub fn huge_pool(&self) -> PoolCounters {
        self.huge_pool_of_size(HugeSize::Large)
    }

    /// The same of huge pages of a size.
    #[must_use]
    pub fn huge_pool_of_size(&self, size: HugeSize) -> PoolCounters {
        self.frames.pool_counters(size)
    }

    /// How many huge pages of a size a node has; none if there is no such node.
    #[must_use]
    pub fn huge_pool_of(&self, size: HugeSize, node: u32) -> NodeCounters {
        self.frames.pool_counters_of(size, node)
    }

    /// Bytes of a huge page; `None` where there are none.
    #[must_use]
    pub fn huge_page_bytes(&self) -> Option<u64> {
        let order = self.frames.huge.order()?;
        Some(M::Paging::page() << order)
    }
}
