//! Frame allocation: buddy zones, one or more per memory node, with a per-CPU list in front.
//!
//! # Problem
//! Every fault allocates a frame. A single shared free list would be the first bottleneck, in all
//! eras alike.
//!
//! # Idea
//! Each CPU caches free frames: those freed on it, in a list whose length adapts to its cycles of
//! freeing and allocating ([`list`]), and the rest of one block from its node's zone. Frames move
//! between a list and a zone in batches, each under one zone lock. Where zones are many, a CPU may
//! keep much more, as [`runs`].
//!
//! Blocks of several frames, for page tables larger than a page, come from the zones and return
//! there. If no whole block is left, the CPU drains its list, which may complete one.
//!
//! # Why it is correct
//! A free frame is in exactly one list. Lists of a CPU are touched by that CPU only, between waits:
//! nothing is kept of a list across a wait for a zone.
//!
//! # Cost
//! Usually a pop on a line of this CPU; one zone lock per block or batch of 64 taken or given back,
//! whatever pieces the zone's memory is in. A CPU that frees as much as it allocates, up to 448
//! frames in between, soon needs the zone no more.

mod choose;
mod list;
mod nodes;
pub(crate) mod pool;
mod refs;
mod refusal;
mod runs;
mod zone;

pub(crate) use choose::Search;
pub(crate) use list::CpuFrames;
pub(crate) use nodes::zones_per_node;
pub(crate) use refusal::Refusals;
pub use refusal::Refuse;
pub(crate) use runs::{CpuRuns, runs_for};
pub(crate) use zone::MAX_ORDER;

use crate::memory::frame::{Frame, FrameTable, Use, Zeroed};
use crate::memory::swap::SwapArea;
use core::ops::Range;
use core::panic::Location;
use list::{Batch, LEAST, MOST};
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Ordering, PerCpu};
use pool::Pools;
use zone::{Fetched, Zone};

/// A CPU takes a block of at most 2^this frames from a zone.
const BLOCK_ORDER: u32 = 8;
/// Frames allocated before the one whose lines a fault prefetches.
const BETWEEN: usize = 2;

/// All frames of a system.
#[derive(Debug)]
pub(crate) struct Frames<M: Mmu> {
    pub(crate) table: FrameTable<M>,
    /// Those of a node follow each other ([`nodes`]).
    zones: PerCpu<Zone<M>, M>,
    cpus: PerCpu<CpuFrames<M>, M>,
    /// What they keep behind their lists: for no CPU, where they keep nothing there.
    runs: PerCpu<CpuRuns<M>, M>,
    nodes: u32,
    /// Order of the blocks that CPUs take.
    block_order: u32,
    /// Frames that a CPU keeps in its list, at most.
    most: usize,
    /// Frames that it keeps in runs, at most; 0 where it keeps none.
    most_in_runs: u64,
    /// Frames of each zone that user memory leaves to the system itself: 0 where nothing is ever
    /// taken from user memory.
    keep: u64,
    pub(crate) refusals: Refusals<M>,
    /// Huge pages. Whoever drops the last reference to one gives it back here.
    pub(crate) huge: Pools<M>,
    /// The larger ones.
    pub(crate) giant: Pools<M>,
}

impl<M: Mmu> Frames<M> {
    /// All of `table`, for `count` CPUs; those that the swap device has, and `absent` others, are
    /// never free.
    pub(crate) fn new(
        table: FrameTable<M>,
        zones: PerCpu<Zone<M>, M>,
        (cpus, runs): (PerCpu<CpuFrames<M>, M>, PerCpu<CpuRuns<M>, M>),
        (nodes, count): (u32, u32),
        (swap, absent): (&SwapArea<M>, u64),
        [huge, giant]: [Pools<M>; 2],
    ) -> Self {
        let len = table.len() - swap.frames() - absent;
        // Frames cached by one CPU are unavailable to others: at most an eighth of all frames.
        let share = len / (8 * u64::from(count));
        // With a swap device memory may be small and full, and then that holds for lists, too.
        let (least, keep) = match swap.exists() {
            true => (4, (len / 64 / u64::from(nodes)).clamp(8, 256)),
            false => (LEAST, 0),
        };
        // With one, half of a share is for runs, where there are any.
        let listed = match swap.exists() && runs.count() > 0 {
            true => share / 2,
            false => share,
        };
        let most = (listed as usize).clamp(least, MOST);
        let most_in_runs = match runs.count() {
            0 => 0,
            _ => share.saturating_sub(most as u64),
        };
        let order = match most_in_runs {
            0 => BLOCK_ORDER,
            _ => MAX_ORDER,
        };
        Self {
            most,
            most_in_runs,
            keep: keep.div_ceil(u64::from(zones.count() / nodes)),
            block_order: share.max(1).ilog2().min(order),
            table,
            zones,
            cpus,
            runs,
            nodes,
            refusals: Refusals::new(),
            huge,
            giant,
        }
    }

    /// The CPU whose list of frames lies at a host address: for names.
    pub(crate) fn list_at(&self, at: usize) -> Option<u32> {
        self.cpus.find(at).map(|(cpu, _)| cpu)
    }

    /// The CPU whose runs lie at a host address: for names.
    pub(crate) fn runs_at(&self, at: usize) -> Option<u32> {
        self.runs.find(at).map(|(cpu, _)| cpu)
    }

    /// The descriptor of `pfn`.
    #[inline(always)]
    pub(crate) fn get(&self, pfn: Pfn) -> &Frame<M> {
        self.table.get(pfn)
    }

    /// As [`Self::alloc_here`], where a call more is not worth its instructions.
    #[track_caller]
    pub(crate) fn alloc(&self, at: &M::Instance, used_as: Use) -> Option<Pfn> {
        self.alloc_here(at, used_as)
    }

    /// The frame that this CPU freed last, if it is of that node.
    fn freed_last(&self, node: u32) -> Option<Pfn> {
        // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this function.
        let list = unsafe { self.cpus.this().list.get_mut() };
        let next = list.next().filter(|next| self.node_of(*next) == node);
        next.and_then(|_| list.take())
    }

    /// A frame near the caller, with one reference; `None` when memory is short.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn alloc_here(&self, at: &M::Instance, used_as: Use) -> Option<Pfn> {
        if M::CHECKED && self.refusals.refuses(Location::caller()) {
            return None;
        }
        // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this function.
        let list = unsafe { self.cpus.this().list.get_mut() };
        let pfn = match list.take() {
            Some(pfn) => pfn,
            None => self.alloc_from_zones(at, used_as)?,
        };
        let frame = self.get(pfn);
        frame.set_use(used_as);
        // ORDERING: Release; pairs with [frame-put]: a page-cache lookup that takes a reference
        // sees that the frame left the file.
        frame.refs.store(1, Ordering::Release);
        Some(pfn)
    }

    /// Prefetches the descriptor of a frame that this CPU allocates soon, and its line at `offset`,
    /// if any: not of the next one, whose fault may come before the lines arrive.
    #[inline(always)]
    pub(crate) fn prefetch_coming(&self, at: &M::Instance, offset: Option<u64>) {
        // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this function.
        let list = unsafe { self.cpus.this().list.peek() };
        if let Some(pfn) = list.coming(BETWEEN) {
            M::prefetch_write(core::ptr::from_ref(self.get(pfn)).cast());
            if let Some(offset) = offset {
                M::prefetch_user(at, pfn, offset);
            }
        }
    }

    /// Fills `pfn` with zeros. Who clears one frame likely clears the next one, too.
    #[inline(always)]
    pub(crate) fn clear(&self, at: &M::Instance, pfn: Pfn) {
        // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this function.
        let list = unsafe { self.cpus.this().list.peek() };
        M::clear_before(at, pfn, list.next());
    }

    /// Fills `to` with what `from` has. Who copies into one frame likely copies into the next one.
    #[inline(always)]
    pub(crate) fn copy(&self, at: &M::Instance, to: Pfn, from: Pfn) {
        // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this function.
        let list = unsafe { self.cpus.this().list.peek() };
        M::copy_before(at, to, from, list.next());
    }

    /// A block of 2^`order` frames near the caller, aligned to its size, with one reference on its
    /// first frame; `None` when no such block is left.
    #[track_caller]
    pub(crate) fn alloc_block(&self, at: &M::Instance, order: u32, used_as: Use) -> Option<Pfn> {
        if order == 0 {
            return self.alloc(at, used_as);
        }
        if M::CHECKED && self.refusals.refuses(Location::caller()) {
            return None;
        }
        let keep = self.keep_of(used_as);
        let pfn = self.take_exactly(at, order, keep).or_else(|| {
            self.drain_this_cpu();
            let again = self.take_exactly(at, order, keep);
            again.or_else(|| self.none())
        })?;
        let frame = self.get(pfn);
        frame.set_block_use(used_as, order);
        // ORDERING: Release; pairs with [frame-put], as in [`Self::alloc`].
        frame.refs.store(1, Ordering::Release);
        for tail in pfn.0 + 1..pfn.0 + (1 << order) {
            self.get(Pfn(tail)).set_use(Use::Tail);
        }
        Some(pfn)
    }

    /// Drops a reference to the block that begins at `pfn`, as [`Frames::alloc_block`] gave it; the
    /// last one frees it.
    pub(crate) fn put_block(&self, pfn: Pfn, order: u32) {
        if order == 0 {
            self.put(pfn);
            return;
        }
        // ORDERING: AcqRel; pairs with [frame-put].
        let before = self.get(pfn).refs.sub(1, Ordering::AcqRel);
        if before == 1 {
            self.free_block(pfn, order);
        } else if before == 0 {
            M::violation(format_args!("reference count underflow of frame {pfn}"));
        }
    }

    #[cold]
    pub(crate) fn free_block(&self, pfn: Pfn, order: u32) {
        for part in pfn.0..pfn.0 + (1 << order) {
            let frame = self.get(Pfn(part));
            frame.next_generation();
            frame.is_freed();
            frame.set_zeroed(Zeroed::No);
            frame.set_use(Use::Free);
        }
        // A frame range made of several blocks is freed block by block.
        let part = order.min(MAX_ORDER);
        let parts = (pfn.0..pfn.0 + (1 << order)).step_by(1 << part);
        let zone = self.zones.get(self.zone_of(pfn));
        zone.free_many(&self.table, parts.map(Pfn), part);
    }

    #[cold]
    fn take_exactly(&self, at: &M::Instance, order: u32, keep: u64) -> Option<Pfn> {
        self.zones_from(at)
            .find_map(|zone| zone.alloc_exactly(&self.table, order, keep))
    }

    /// Frames of each zone that allocations for this use leave free: what others than the system
    /// itself leave to that, which needs some to reclaim.
    fn keep_of(&self, used_as: Use) -> u64 {
        match used_as {
            Use::Anon | Use::File | Use::Kernel => self.keep,
            _ => 0,
        }
    }

    /// Gives what this CPU keeps back to the zones, and the runs of all.
    #[cold]
    fn drain_this_cpu(&self) {
        self.drain_runs();
        loop {
            let mut batch = Batch::EMPTY;
            // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this
            // function. Nothing is kept of it while the zone is waited for.
            let list = unsafe { self.cpus.this().list.get_mut() };
            while !batch.is_full()
                && let Some(pfn) = list.take()
            {
                self.get(pfn).set_use(Use::Free);
                batch.push(pfn);
            }
            if batch.len == 0 {
                return;
            }
            self.free_batch(batch);
        }
    }

    /// Frees an unreferenced frame.
    #[inline]
    pub(crate) fn free(&self, pfn: Pfn) {
        let frame = self.get(pfn);
        frame.next_generation();
        frame.is_freed();
        // After reuse, a late lookup finds no owner here until the new owner sets it.
        frame.mapping.poke(0);
        frame.set_zeroed(Zeroed::No);
        frame.set_use(Use::FreeCpu);
        // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this function.
        let list = unsafe { self.cpus.this().list.get_mut() };
        let kept = list.push(pfn);
        if !kept || list.is_over(self.most) {
            self.free_oldest((!kept).then_some(pfn));
        }
    }

    /// Returns the excess of this CPU's list to the zones, and a frame that did not fit.
    #[cold]
    #[inline(never)]
    fn free_oldest(&self, other: Option<Pfn>) {
        // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this function.
        let oldest = unsafe { self.cpus.this().list.get_mut() }.take_oldest();
        match self.keeps_runs() {
            true => self.keep_as_runs(oldest),
            false => self.free_batch(oldest),
        }
        if let Some(pfn) = other {
            self.free_run(pfn.0..pfn.0 + 1);
        }
    }

    /// Returns frames of a CPU's list to their zones, under one lock of each zone. The list is not
    /// used after that: waiting for a zone lets other tasks of this CPU run.
    #[cold]
    fn free_batch(&self, mut batch: Batch) {
        let frames = &mut batch.frames[..batch.len];
        // A zone's frames follow each other.
        frames.sort_unstable();
        let zone = |pfn: &u32| self.zone_of(Pfn(u64::from(*pfn)));
        for of_one in frames.chunk_by(|a, b| zone(a) == zone(b)) {
            let zone = self.zones.get(zone(&of_one[0]));
            zone.free_sorted(&self.table, of_one);
        }
    }

    /// Gives frames of one block back to their zone.
    #[cold]
    fn free_run(&self, run: Range<u64>) {
        if !run.is_empty() {
            let zone = self.zones.get(self.zone_of(Pfn(run.start)));
            zone.free_many(&self.table, run.map(Pfn), 0);
        }
    }

    /// A frame of those that a zone gives; the rest of them is the CPU's.
    #[cold]
    fn alloc_from_zones(&self, at: &M::Instance, used_as: Use) -> Option<Pfn> {
        let fetched = self.fetch(at, used_as);
        // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this function.
        let list = unsafe { self.cpus.this().list.get_mut() };
        list.fetched(fetched.len());
        // While this task waited for the zone, another of the CPU may have brought some, too.
        let mut other = 0..0;
        if !fetched.block.is_empty() {
            other = core::mem::replace(&mut list.block, fetched.block);
        }
        let mut left = Batch::EMPTY;
        for pfn in fetched.frames.frames[..fetched.frames.len].iter().rev() {
            let pfn = Pfn(u64::from(*pfn));
            if !list.push(pfn) {
                left.push(pfn);
            }
        }
        let pfn = list.take();
        self.free_run(other);
        self.free_batch(left);
        pfn.or_else(|| self.none())
    }

    /// Records an allocation failure, for callers that cannot report it.
    #[cold]
    fn none(&self) -> Option<Pfn> {
        // SAFETY: 1: the CPU's own, and a task does not leave its CPU within this function.
        *unsafe { self.cpus.this().short.get_mut() } = true;
        None
    }

    /// Whether this CPU has found no memory since this was asked last: what failed since then may
    /// succeed where there is more. It may have been another task's.
    #[cold]
    pub(crate) fn was_short(&self) -> bool {
        // SAFETY: 1: as in [`Self::none`].
        core::mem::take(unsafe { self.cpus.this().short.get_mut() })
    }

    /// The system itself takes what user memory leaves it one by one, or a CPU would keep that for
    /// user memory.
    fn fetch(&self, at: &M::Instance, used_as: Use) -> Fetched {
        let fetch = |order, keep| {
            let mut fetched = self
                .zones_from(at)
                .map(|zone| zone.fetch(&self.table, order, keep));
            fetched.find(|fetched| fetched.len() != 0)
        };
        let block = self.take_run_here(self.block_order);
        if !block.is_empty() {
            let frames = Batch::EMPTY;
            return Fetched { frames, block };
        }
        let system = self.keep_of(used_as) != self.keep;
        let zones = || {
            let fetched = fetch(self.block_order, self.keep);
            fetched.or_else(|| system.then(|| fetch(0, 0)).flatten())
        };
        let fetched = zones().or_else(|| self.drain_runs().then(zones).flatten());
        fetched.unwrap_or(Fetched::NOTHING)
    }

    /// Clears every free frame now, so that faults need not. Only while nothing else runs.
    pub(crate) fn clear_free(&self, at: &M::Instance) {
        let clear = |pfn: Pfn| {
            if !self.get(pfn).is_zeroed() {
                M::clear(at, pfn);
                self.get(pfn).set_zeroed(Zeroed::Yes);
            }
        };
        for zone in self.zones.iter() {
            zone.for_each_free(&self.table, clear);
        }
        for cpu in self.cpus.iter() {
            // SAFETY: 1: nothing else runs.
            let list = unsafe { cpu.list.peek() };
            list.all().for_each(clear);
        }
        self.runs.iter().for_each(|runs| runs.peek_each(clear));
        self.clear_free_huge(clear);
    }

    /// Free frames, in zones and CPU lists. Only while nothing else runs.
    pub(crate) fn count_free(&self) -> u64 {
        let zones: u64 = self.zones.iter().map(Zone::count_free).sum();
        // SAFETY: 1: nothing else runs.
        let lists = self.cpus.iter().map(|cpu| unsafe { cpu.list.peek() });
        let cpus = lists.map(|list| list.all().count() as u64);
        let runs: u64 = self.runs.iter().map(CpuRuns::count).sum();
        zones + runs + cpus.sum::<u64>()
    }

    /// Free frames of the zones, without those that CPUs keep. A moment later it may be otherwise.
    pub(crate) fn free_in_zones(&self) -> u64 {
        self.zones.iter().map(Zone::free_now).sum()
    }

    /// Calls `visit` for each frame that was ever used. Only while nothing else runs.
    pub(crate) fn for_each_used(&self, mut visit: impl FnMut(Pfn, &Frame<M>)) {
        for zone in self.zones.iter() {
            for pfn in zone.touched() {
                visit(Pfn(pfn), self.get(Pfn(pfn)));
            }
        }
    }
}
