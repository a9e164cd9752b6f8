//! Frames as a memory policy chooses them.
//!
//! What a CPU keeps for itself is of any node, so a frame of one node comes from that node's zone,
//! unless the one that the CPU freed last is of that node. That takes the zone's lock for each
//! frame: whoever wants his memory somewhere pays for it, and nobody else.
//!
//! Linux: mm/mempolicy.c alloc_pages_mpol, policy_nodemask, interleave_nid (v6.12).

use super::Frames;
use crate::frame::Use;
use crate::policy::{NodeMask, Policy, PolicyMode};
use core::panic::Location;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Instance, Ordering};

/// Nodes to ask, nearest to `first` first, of the set.
#[derive(Clone, Copy)]
struct Search {
    first: u32,
    within: NodeMask,
}

impl<M: Mmu> Frames<M> {
    /// The nodes there are.
    pub(crate) const fn all_nodes(&self) -> NodeMask {
        NodeMask::below(self.nodes)
    }

    /// How many nodes there are.
    pub(crate) const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// A frame for page number `index` of a mapping, as `policy` chooses, with one reference;
    /// `None` when the nodes it allows have none left.
    #[cold]
    #[track_caller]
    pub(crate) fn alloc_on(
        &self,
        at: &M::Instance,
        used_as: Use,
        policy: Policy,
        index: u64,
    ) -> Option<Pfn> {
        if M::CHECKED && self.refusals.refuses(Location::caller()) {
            return None;
        }
        let home = self.home(at);
        let (nodes, all) = (policy.nodes(), self.all_nodes());
        let search = |first, within| Search { first, within };
        let (best, then) = match policy.mode() {
            PolicyMode::Default | PolicyMode::Local => (search(home, all), None),
            PolicyMode::Preferred => (search(nodes.nth(0).unwrap_or(home), all), None),
            PolicyMode::Interleave => (search(nodes.nth(index).unwrap_or(home), all), None),
            PolicyMode::Bind => (search(home, nodes), None),
            PolicyMode::PreferredMany => (search(home, nodes), Some(search(home, all))),
        };
        let look = || {
            let found = self.find(at, best);
            found.or_else(|| then.and_then(|then| self.find(at, then)))
        };
        let pfn = look().or_else(|| {
            // What is wanted may be what this CPU keeps.
            self.drain_this_cpu();
            look()
        })?;
        Some(self.taken(pfn, used_as))
    }

    /// A frame of `node`, with one reference; `None` when it has none left.
    #[cold]
    #[track_caller]
    pub(crate) fn alloc_at(&self, used_as: Use, node: u32) -> Option<Pfn> {
        if M::CHECKED && self.refusals.refuses(Location::caller()) || node >= self.nodes {
            return None;
        }
        let look = || self.freed_last(node).or_else(|| self.one_of(node));
        let pfn = look().or_else(|| {
            self.drain_this_cpu();
            look()
        })?;
        Some(self.taken(pfn, used_as))
    }

    /// A frame that was free becomes the caller's.
    fn taken(&self, pfn: Pfn, used_as: Use) -> Pfn {
        let frame = self.get(pfn);
        frame.set_use(used_as);
        // ORDERING: Release; pairs with [frame-put], as in [`Self::alloc`].
        frame.refs.store(1, Ordering::Release);
        pfn
    }

    /// The node of the CPU that asks.
    pub(crate) fn home(&self, at: &M::Instance) -> u32 {
        at.node_of(minflt_sync::this_cpu::<M>()) % self.nodes
    }

    fn find(&self, at: &M::Instance, search: Search) -> Option<Pfn> {
        let mut nodes = at
            .near_first(search.first)
            .filter(|node| search.within.has(*node))
            .peekable();
        let nearest = *nodes.peek()?;
        self.freed_last(nearest)
            .or_else(|| nodes.find_map(|node| self.one_of(node)))
    }

    /// The frame that this CPU freed last, if it is of that node.
    fn freed_last(&self, node: u32) -> Option<Pfn> {
        // SAFETY: 1: the CPU's own list, and a task does not leave its CPU within this function.
        let list = unsafe { self.cpus.this().list.get_mut() };
        let next = list.next().filter(|next| self.node_of(*next) == node);
        next.and_then(|_| list.take())
    }

    /// One frame of a node's zone.
    fn one_of(&self, node: u32) -> Option<Pfn> {
        let block = self
            .zones
            .get(node)
            .alloc_block(&self.table, 0, self.keep)?;
        Some(Pfn(block.start))
    }
}
