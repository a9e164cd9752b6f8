//! Huge page pools: total, free and reserved pages.
//!
//! # Problem
//! A huge page is a block of frames that a fragmented system rarely has free. So a program must
//! learn at mmap whether it will get its huge pages, rather than be killed at a fault.
//!
//! # Idea
//! Blocks are preallocated to a free list per memory node. mmap *reserves*: it raises the count of
//! reserved pages, and fails at once if too few free pages are unreserved. A fault allocates a page
//! and, if it was reserved, lowers that count together with the number of free pages.
//!
//! # Protocol
//! - Reserve: `free - reserved` must be large enough. Unreserve: the count goes down.
//! - Take: [`Taking::Reserved`] always may, and uses one reservation up; the page is marked.
//!   [`Taking::Unreserved`] may if more are free than are reserved.
//! - Free: the drop of the last reference ([`Frames::put`]). If the page is still marked, its
//!   reservation is restored.
//! - [`Frame::clear_restore_reserve`] takes the mark away, when the page is in the file or in a
//!   table for good: from then on the reservation is used up.
//!
//! The mark restores the reservation of the pool only. A path that fails after the allocation must
//! also restore the reservation map ([`super::reserve`]).
//!
//! # Why it is correct
//! All counts and lists are under one lock, so `reserved <= free` before and after each step: a
//! reservation takes from the free and unreserved pages, an allocation consumes its reservation or
//! had none, a freed page that is marked raises both counts, and the pool shrinks by free and
//! unreserved pages only. A free page has no reference, and only the lock holder takes one off a
//! list, so each is allocated once. The mark belongs to a page that its allocating path owns
//! exclusively until it maps or frees it.
//!
//! # Cost
//! Allocating or freeing a page: one system-wide lock and at most two lines of the node's list; the
//! page's frames are not touched one by one. Growing and shrinking touch every frame's descriptor.
//!
//! # Differences from Linux
//! Surplus pages: a Linux pool that is made smaller than its use keeps those pages until they are
//! freed, and may grow temporarily where that is allowed. Here a pool shrinks by free pages only
//! and never overcommits. Growing neither migrates nor reclaims.
//!
//! Linux: mm/hugetlb.c set_max_huge_pages, hugetlb_acct_memory, dequeue_hugetlb_folio_vma,
//! free_huge_folio; HPageRestoreReserve (v6.12).
//!
//! [`Frame::clear_restore_reserve`]: crate::memory::frame::Frame::clear_restore_reserve

use crate::base::error::NoMemory;
use crate::base::huge_size::HugeSize;
use crate::base::policy::Policy;
use crate::memory::alloc::{Frames, Search};
use crate::memory::frame::{Frame, FrameTable, Links, Use, Zeroed};
use core::panic::Location;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::order::HugetlbLock;
use minflt_sync::{Atomic, Kind, Ordering, PerCpu, SpinLock};

/// The huge pages of one size. On cache lines of their own: other faults read the adjacent fields.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Pools<M: Mmu> {
    /// A page has 2^this frames; `None` where the format has no such pages. Immutable.
    order: Option<u32>,
    /// Frames of a node that a growing pool leaves to others. Immutable.
    pub(crate) keep: u64,
    pub(crate) counts: SpinLock<Counts, HugetlbLock, M>,
    pub(crate) nodes: PerCpu<NodePool<M>, M>,
}

/// Guarded by: the lock around it, as are the lists of the nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) reserved: u64,
    /// The node that the next new page should be of.
    pub(crate) next_grow: u32,
    /// The node that the next page should leave.
    pub(crate) next_shrink: u32,
}

/// The huge pages of one memory node. Guarded by: `HugetlbLock`. An access of its holder is
/// announced for all of it, as one to plain data.
#[derive(Debug)]
pub(crate) struct NodePool<M: Mmu> {
    /// The first frame of the page that was freed last; 0 for none. Linked by the frames' `links`.
    head: Atomic<u32, M>,
    free: Atomic<u64, M>,
    total: Atomic<u64, M>,
}

/// Huge pages, of all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolCounters {
    /// In the pools and in use (`HugePages_Total`).
    pub total: u64,
    /// In the pools (`HugePages_Free`).
    pub free: u64,
    /// Free pages that are reserved by mappings (`HugePages_Rsvd`).
    pub reserved: u64,
}

/// Huge pages of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeCounters {
    /// In its pool and in use.
    pub total: u64,
    /// In its pool.
    pub free: u64,
}

/// Whether a huge page is taken that was promised to the taker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taking {
    /// Reserved: the caller's reservation is consumed.
    Reserved,
    /// Not reserved: only an unreserved page.
    Unreserved,
}

impl<M: Mmu> NodePool<M> {
    pub(crate) fn new() -> Self {
        Self {
            head: Atomic::new(0),
            free: Atomic::new(0),
            total: Atomic::new(0),
        }
    }

    /// Pages in it and in use, for the holder of the lock.
    pub(crate) fn total(&self) -> u64 {
        self.total.peek()
    }

    /// A page more, or less, is the node's.
    pub(crate) fn add_total(&self, change: i64) {
        self.total.poke(self.total().wrapping_add_signed(change));
    }
}

impl<M: Mmu> Pools<M> {
    /// Empty ones of each size, on a machine that has so many frames for use.
    pub(crate) fn of_all_sizes(
        frames: u64,
        [large, giant]: [Option<PerCpu<NodePool<M>, M>>; 2],
    ) -> Option<[Self; 2]> {
        Some([
            Self::new(HugeSize::Large, frames, large?),
            Self::new(HugeSize::Giant, frames, giant?),
        ])
    }

    fn new(size: HugeSize, frames: u64, nodes: PerCpu<NodePool<M>, M>) -> Self {
        let share = frames / u64::from(nodes.count());
        Self {
            order: size
                .exists::<M::Paging>()
                .then(|| size.order::<M::Paging>()),
            keep: (share / 64).clamp(64, 8192),
            counts: SpinLock::new(Counts::default()),
            nodes,
        }
    }

    /// Log2 of the frames of a huge page; `None` where there are no huge pages.
    pub(crate) const fn order(&self) -> Option<u32> {
        self.order
    }

    /// Makes the count wrong.
    #[cfg(test)]
    pub(crate) fn set_reserved(&self, reserved: u64) {
        self.counts.lock().reserved = reserved;
    }

    /// The node whose list lies at a host address: for names.
    pub(crate) fn node_at(&self, at: usize) -> Option<u32> {
        self.nodes.find(at).map(|(node, _)| node)
    }

    /// The list of a node, to look at. The counts are borrowed from the holder of their lock.
    pub(crate) fn list_locked<'c>(&'c self, _: &'c Counts, node: u32) -> &'c NodePool<M> {
        self.announced(node, Kind::PlainRead)
    }

    /// The same, to change.
    pub(crate) fn list_locked_mut<'c>(&'c self, _: &'c mut Counts, node: u32) -> &'c NodePool<M> {
        self.announced(node, Kind::PlainWrite)
    }

    fn announced(&self, node: u32, kind: Kind) -> &NodePool<M> {
        let list = self.nodes.get(node);
        let at = core::ptr::from_ref(list).cast();
        M::before(at, size_of::<NodePool<M>>(), kind);
        list
    }

    /// A free page of `node`, out of its list.
    pub(crate) fn pop(&self, counts: &mut Counts, table: &FrameTable<M>, node: u32) -> Option<Pfn> {
        let list = self.list_locked_mut(counts, node);
        let pfn = page_at(list.head.peek())?;
        list.head.poke(table.get(pfn).links().next);
        list.free.poke(list.free.peek() - 1);
        counts.free -= 1;
        Some(pfn)
    }

    /// Puts an unreferenced page into the list of `node`.
    pub(crate) fn push(&self, counts: &mut Counts, table: &FrameTable<M>, node: u32, pfn: Pfn) {
        let list = self.list_locked_mut(counts, node);
        let next = list.head.peek();
        list.head.poke(pfn.0 as u32);
        table
            .get(pfn)
            .link(|links| *links = Links { next, prev: 0 });
        list.free.poke(list.free.peek() + 1);
        counts.free += 1;
    }
}

impl<M: Mmu> Frames<M> {
    /// Reserves `n` free huge pages.
    ///
    /// # Errors
    /// If fewer free pages are unreserved. Nothing has changed then.
    ///
    /// Linux: hugetlb_acct_memory.
    #[track_caller]
    pub(crate) fn reserve_huge(&self, size: HugeSize, n: u64) -> Result<(), NoMemory> {
        if M::CHECKED && n > 0 && self.refusals.refuses(Location::caller()) {
            return Err(NoMemory);
        }
        let mut counts = self.pools(size).counts.lock();
        if counts.free - counts.reserved < n {
            return Err(NoMemory);
        }
        counts.reserved += n;
        Ok(())
    }

    /// Takes the promise of `n` huge pages back, which were not taken.
    pub(crate) fn unreserve_huge(&self, size: HugeSize, n: u64) {
        let mut counts = self.pools(size).counts.lock();
        match counts.reserved.checked_sub(n) {
            Some(left) => counts.reserved = left,
            None => M::violation(format_args!("hugetlb reservation underflow")),
        }
    }

    /// A huge page of a size, for page number `index` of a mapping, as `policy` chooses: the first
    /// of its frames, with one reference. `None` where the nodes it allows have none left, or all
    /// that is left is reserved by others.
    ///
    /// With [`Taking::Reserved`] the caller owns a reservation. It is consumed with the page, and
    /// restored with it as long as the page is marked.
    ///
    /// Linux: dequeue_hugetlb_folio_vma.
    #[track_caller]
    pub(crate) fn take_huge(
        &self,
        at: &M::Instance,
        size: HugeSize,
        (policy, index): (Policy, u64),
        taking: Taking,
    ) -> Option<Pfn> {
        let order = self.pools(size).order?;
        if M::CHECKED && self.refusals.refuses(Location::caller()) {
            return None;
        }
        let pfn = self.dequeue_huge(at, size, self.searches(at, policy, index), taking)?;
        let frame = self.get(pfn);
        frame.set_block_use(Use::Huge, order);
        if taking == Taking::Reserved {
            frame.set_restore_reserve();
        }
        // ORDERING: Release; pairs with [frame-put], as in [`Self::alloc`].
        frame.refs.store(1, Ordering::Release);
        Some(pfn)
    }

    fn dequeue_huge(
        &self,
        at: &M::Instance,
        size: HugeSize,
        (best, then): (Search, Option<Search>),
        taking: Taking,
    ) -> Option<Pfn> {
        let pools = self.pools(size);
        let mut counts = pools.counts.lock();
        match taking {
            Taking::Unreserved if counts.free == counts.reserved => return None,
            Taking::Reserved if counts.reserved == 0 => {
                M::violation(format_args!("huge page allocated without a reservation"));
            }
            _ => {}
        }
        let mut look = |search: Search| {
            let mut nodes = search.nodes(at);
            nodes.find_map(|node| pools.pop(&mut counts, &self.table, node))
        };
        let found = look(best).or_else(|| then.and_then(look))?;
        if taking == Taking::Reserved {
            counts.reserved -= 1;
        }
        Some(found)
    }

    /// Frees an unreferenced huge page, and restores its reservation where it is marked.
    ///
    /// Linux: free_huge_folio.
    pub(crate) fn free_huge(&self, pfn: Pfn) {
        let frame = self.get(pfn);
        if M::CHECKED {
            if frame.maps.peek() != 0 {
                M::violation(format_args!("huge page {pfn} freed while mapped"));
            }
            // For the oracles only, and there are hundreds.
            let tails = pfn.0 + 1..pfn.0 + (1 << frame.block_order());
            tails.for_each(|tail| self.get(Pfn(tail)).next_generation());
        }
        frame.next_generation();
        frame.is_freed();
        // As in [`Self::free`].
        frame.mapping.poke(0);
        frame.set_zeroed(Zeroed::No);
        let restores = frame.restores_reserve();
        let pools = self.pools(self.size_of(frame));
        let mut counts = pools.counts.lock();
        pools.push(&mut counts, &self.table, self.node_of(pfn), pfn);
        counts.reserved += u64::from(restores);
    }

    /// Drops the caller's reference if it is the last one: the page is freed, and its reservation
    /// restored. Otherwise returns false, and the caller keeps the reference.
    pub(crate) fn put_restored(&self, pfn: Pfn) -> bool {
        let frame = self.get(pfn);
        // ORDERING: AcqRel; pairs with [frame-put], as of any last reference.
        let dropped = frame.refs.cas(1, 0, Ordering::AcqRel, Ordering::Relaxed);
        if dropped.is_ok() {
            frame.set_restore_reserve();
            self.free_huge(pfn);
        }
        dropped.is_ok()
    }

    /// The pools of huge pages of a size.
    pub(crate) const fn pools(&self, size: HugeSize) -> &Pools<M> {
        match size {
            HugeSize::Large => &self.huge,
            HugeSize::Giant => &self.giant,
        }
    }

    /// How large the huge page is that a frame begins.
    pub(crate) fn size_of(&self, frame: &Frame<M>) -> HugeSize {
        match self.giant.order == Some(frame.block_order()) {
            true => HugeSize::Giant,
            false => HugeSize::Large,
        }
    }

    /// How many huge pages of a size there are.
    pub(crate) fn pool_counters(&self, size: HugeSize) -> PoolCounters {
        let counts = self.pools(size).counts.lock();
        PoolCounters {
            total: counts.total,
            free: counts.free,
            reserved: counts.reserved,
        }
    }

    /// How many huge pages of a size `node` has; none if there is no such node.
    pub(crate) fn pool_counters_of(&self, size: HugeSize, node: u32) -> NodeCounters {
        let pools = self.pools(size);
        let counts = pools.counts.lock();
        let list = (node < self.nodes()).then(|| pools.list_locked(&counts, node));
        list.map_or(NodeCounters::default(), |list| NodeCounters {
            total: list.total(),
            free: list.free.peek(),
        })
    }
}

/// Looks at quiescence.
impl<M: Mmu> Frames<M> {
    /// The free huge pages of a node, not more than there can be.
    fn listed(&self, size: HugeSize, node: u32) -> impl Iterator<Item = Pfn> {
        let list = self.pools(size).nodes.get(node);
        let next = |pfn: &Pfn| page_at(self.get(*pfn).peek_next());
        core::iter::successors(page_at(list.head.peek()), next).take(self.table.len() as usize)
    }

    /// Clears the free huge pages, too: see [`Self::clear_free`].
    pub(crate) fn clear_free_huge(&self, clear: impl Fn(Pfn)) {
        let lists = HugeSize::ALL
            .into_iter()
            .flat_map(|size| (0..self.nodes()).map(move |node| (size, node)));
        for pfn in lists.flat_map(|(size, node)| self.listed(size, node)) {
            let frame = self.get(pfn);
            if !frame.is_zeroed() {
                let last = pfn.0 + (1 << frame.block_order());
                // Of a huge page only its first frame's word counts.
                let parts = (pfn.0..last).map(Pfn);
                parts.for_each(|part| {
                    self.get(part).set_zeroed(Zeroed::No);
                    clear(part);
                });
            }
        }
    }

    /// Whether exactly the unreferenced huge pages are in their nodes' lists, and the counts are
    /// those of the lists.
    pub(crate) fn huge_adds_up(&self) -> Result<(), &'static str> {
        HugeSize::ALL
            .into_iter()
            .try_for_each(|size| self.pools_add_up(size))
    }

    fn pools_add_up(&self, size: HugeSize) -> Result<(), &'static str> {
        let pools = self.pools(size);
        let counts = pools.counts.peek(|counts| *counts);
        if counts.reserved > counts.free {
            return Err("more are reserved than are free");
        }
        let (mut all, mut unused) = (0, 0);
        self.for_each_used(|_, frame| {
            let huge = frame.used_as() == Use::Huge && self.size_of(frame) == size;
            all += u64::from(huge);
            unused += u64::from(huge && frame.refs.peek() == 0);
        });
        let (mut free, mut total) = (0, 0);
        for node in 0..self.nodes() {
            let list = pools.nodes.get(node);
            let mut found = 0;
            for pfn in self.listed(size, node) {
                let frame = self.get(pfn);
                let huge = frame.used_as() == Use::Huge && self.size_of(frame) == size;
                if !huge || frame.refs.peek() != 0 {
                    return Err("one that is in use is in a list");
                }
                if self.node_of(pfn) != node {
                    return Err("one is in the list of another node");
                }
                found += 1;
            }
            if found != list.free.peek() {
                return Err("a node's count of free ones differs from its list");
            }
            free += found;
            total += list.total();
        }
        if free != counts.free {
            return Err("the count of free ones differs from the lists");
        }
        if unused != free {
            return Err("one that nobody refers to is in no list");
        }
        if (all, total) != (counts.total, counts.total) {
            return Err("the count of all differs from those that there are");
        }
        Ok(())
    }
}

const fn page_at(pfn: u32) -> Option<Pfn> {
    match pfn {
        0 => None,
        pfn => Some(Pfn(pfn as u64)),
    }
}
