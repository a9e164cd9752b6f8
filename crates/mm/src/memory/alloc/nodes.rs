//! Which zones a memory node has, and in which order a CPU asks them.
//!
//! # Problem
//! A zone has one lock. Some hundred CPUs of a node that begin to allocate at the same moment, or
//! use up their blocks at the same moment, wait for it longer than they work.
//!
//! # Idea
//! Where [`Zones::PerCpuGroup`] is chosen, a node's memory is split evenly, by address, into a zone
//! for each group of [`GROUP`] CPUs. A CPU asks its group's zone first, then the others of its
//! node, then other nodes'. A frame returns to the zone that its number says, whichever CPU frees
//! it, so zones do not drift.
//!
//! # Why it is correct
//! A zone does not know whether it is a whole node: blocks merge inside a zone only, since a
//! buddy outside is never free to it. An allocation fails only after every zone was asked.
//!
//! # Cost
//! Where a node is nearly exhausted, a lock for each of its zones before another node is asked.
//! Free memory at the border of two zones does not merge. A block or a run of frames, such as a
//! giant page, has to lie in one zone.

use super::Frames;
use super::zone::{MAX_ORDER, Zone};
use crate::base::config::{Config, Zones};
use crate::memory::frame::FrameTable;
use core::ops::Range;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Instance, PerCpu, this_cpu};

/// CPUs that share a zone, by their numbers: some share a cache, and a lock among so few is moved
/// within it.
const GROUP: u32 = 32;
/// A zone has no fewer frames than this.
const LEAST: u64 = 4 << MAX_ORDER;
/// A node has no more zones than this.
const MOST: u32 = 64;

/// How many zones each of `nodes` nodes has, on a machine of `cpus` CPUs and `len` frames.
pub(crate) fn zones_per_node(config: &Config, cpus: u32, nodes: u32, len: u64) -> u32 {
    match config.zones {
        Zones::PerNode => 1,
        Zones::PerCpuGroup => {
            let room = len / u64::from(nodes) / LEAST;
            let groups = cpus.div_ceil(nodes).div_ceil(GROUP);
            groups.min(MOST).min(room as u32).max(1)
        }
    }
}

/// Frames of each zone of a node that has `share`, but the last one's.
const fn part(share: u64, per_node: u32) -> u64 {
    match per_node {
        1 => share,
        _ => share
            .div_ceil(per_node as u64)
            .next_multiple_of(1 << MAX_ORDER),
    }
}

impl<M: Mmu> Frames<M> {
    /// Bytes that `count` zones need.
    pub(crate) const fn zone_bytes(count: u32) -> usize {
        PerCpu::<Zone<M>, M>::bytes(count)
    }

    /// A zone by its number: its part of all frames, split evenly among `nodes` nodes of
    /// `per_node` zones, without the first `reserved` of all and the last `kept` of its node. The
    /// first `run` frames of the machine are those before its first hole.
    pub(crate) fn zone(
        table: &FrameTable<M>,
        (number, (nodes, per_node)): (u32, (u32, u32)),
        (reserved, kept): (u64, u64),
        run: u64,
    ) -> Zone<M> {
        let (first, len) = (table.first().0, table.len());
        let share = len.div_ceil(u64::from(nodes));
        let (node, place) = (u64::from(number / per_node), u64::from(number % per_node));
        let node_end = (share * (node + 1)).min(len).saturating_sub(kept);
        let part = part(share, per_node);
        // Parts are rounded up: the last ones may have nothing left.
        let start = (share * node + part * place).max(reserved).min(node_end);
        let end = share * node + part * (place + 1);
        let end = end.min(node_end).max(start);
        Zone::new(table, first + start..first + end, first..first + run)
    }

    /// The number of the zone that lies at a host address: for names.
    pub(crate) fn zone_at(&self, at: usize) -> Option<u32> {
        self.zones.find(at).map(|(number, _)| number)
    }

    /// How many zones each node has.
    pub(super) const fn zones_of_each(&self) -> u32 {
        self.zones.count() / self.nodes
    }

    fn share(&self) -> u64 {
        self.table.len().div_ceil(u64::from(self.nodes))
    }

    /// The node whose memory `pfn` is.
    pub(crate) fn node_of(&self, pfn: Pfn) -> u32 {
        ((pfn.0 - self.table.first().0) / self.share()) as u32
    }

    /// The number of the zone whose memory `pfn` is.
    pub(super) fn zone_of(&self, pfn: Pfn) -> u32 {
        let (node, per_node) = (self.node_of(pfn), self.zones_of_each());
        if per_node == 1 {
            return node;
        }
        let share = self.share();
        let within = pfn.0 - self.table.first().0 - share * u64::from(node);
        node * per_node + (within / part(share, per_node)) as u32
    }

    /// The zones of a node: that of this CPU's group first, if the CPU is of the node.
    pub(super) fn zones_of(&self, node: u32) -> impl Iterator<Item = &Zone<M>> {
        let per_node = self.zones_of_each();
        let own = match per_node {
            1 => 0,
            _ => this_cpu::<M>() / GROUP,
        };
        let number = move |n| node * per_node + (own + n) % per_node;
        (0..per_node).map(move |n| self.zones.get(number(n)))
    }

    /// The zones, the nearest first.
    pub(super) fn zones_from(&self, at: &M::Instance) -> impl Iterator<Item = &Zone<M>> {
        let home = at.node_of(this_cpu::<M>());
        at.near_first(home).flat_map(|node| self.zones_of(node))
    }

    /// The next frames of a node for reclaim to look at, and how many there are in all, about: see
    /// [`Zone::next_to_scan`]. Of several zones that which was looked at least.
    pub(crate) fn next_to_scan(&self, node: u32, count: u64) -> (Range<u64>, u64) {
        let per_node = self.zones_of_each();
        let mut unused = 0_u64;
        loop {
            let mut left = (0..per_node).filter(|n| unused & 1 << n == 0);
            let zone = |n| self.zones.get(node * per_node + n);
            let least = match per_node {
                1 => left.next(),
                _ => left.min_by_key(|n| zone(*n).scanned()),
            };
            let Some(least) = least else {
                return (0..0, 0);
            };
            let (range, all) = zone(least).next_to_scan(count);
            if all != 0 {
                return (range, all * u64::from(per_node));
            }
            // None of its frames was ever used.
            unused |= 1 << least;
        }
    }
}
