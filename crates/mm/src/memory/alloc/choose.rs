//! Frame allocation under a memory policy.
//!
//! A CPU's list holds frames of any node, so a frame of a given node comes from that node's zone,
//! unless the frame that the CPU freed last is of that node. This takes the zone lock for each
//! frame: only callers that ask for a node pay for it.
//!
//! Linux: mm/mempolicy.c alloc_pages_mpol, policy_nodemask, interleave_nid (v6.12).

use super::Frames;
use crate::base::policy::{NodeMask, Policy, PolicyMode};
use crate::memory::frame::Use;
use core::panic::Location;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Instance, Ordering};

/// Nodes to ask, nearest to `first` first, of a set.
#[derive(Clone, Copy)]
pub(crate) struct Search {
    pub(crate) first: u32,
    /// `None` for all, which may be more than a set can name.
    within: Option<NodeMask>,
}

impl Search {
    fn has(self, node: u32) -> bool {
        self.within.is_none_or(|within| within.has(node))
    }

    /// The nodes, the nearest first.
    pub(crate) fn nodes<I: Instance>(self, at: &I) -> impl Iterator<Item = u32> {
        at.near_first(self.first)
            .filter(move |node| self.has(*node))
    }
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
        let (best, then) = self.searches(at, policy, index);
        let look = || {
            let found = self.find(at, best);
            found.or_else(|| then.and_then(|then| self.find(at, then)))
        };
        let pfn = look().or_else(|| {
            // What is wanted may be what this CPU keeps.
            self.drain_this_cpu();
            look().or_else(|| self.none())
        })?;
        Some(self.taken(pfn, used_as))
    }

    /// Where to look for page number `index` of a mapping, as `policy` chooses, and where then.
    pub(crate) fn searches(
        &self,
        at: &M::Instance,
        policy: Policy,
        index: u64,
    ) -> (Search, Option<Search>) {
        let (home, nodes) = (self.home(at), policy.nodes());
        let all = |first| Search {
            first,
            within: None,
        };
        let only = Search {
            first: home,
            within: Some(nodes),
        };
        match policy.mode() {
            PolicyMode::Default | PolicyMode::Local => (all(home), None),
            PolicyMode::Preferred => (all(nodes.nth(0).unwrap_or(home)), None),
            PolicyMode::Interleave => (all(nodes.nth(index).unwrap_or(home)), None),
            PolicyMode::Bind => (only, None),
            PolicyMode::PreferredMany => (only, Some(all(home))),
        }
    }

    /// A free block of 2^`order` frames of `node`, if at least `keep` more stay free there.
    #[cold]
    #[track_caller]
    pub(crate) fn take_block_of(&self, node: u32, order: u32, keep: u64) -> Option<Pfn> {
        if M::CHECKED && self.refusals.refuses(Location::caller()) || node >= self.nodes {
            return None;
        }
        let keep = keep.div_ceil(u64::from(self.zones_of_each()));
        let look = || {
            let mut zones = self.zones_of(node);
            zones.find_map(|zone| zone.alloc_exactly(&self.table, order, keep))
        };
        look().or_else(|| {
            // What is missing of a block may be what this CPU keeps.
            self.drain_this_cpu();
            look()
        })
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

    /// The node of the calling CPU.
    pub(crate) fn home(&self, at: &M::Instance) -> u32 {
        at.node_of(minflt_sync::this_cpu::<M>()) % self.nodes
    }

    fn find(&self, at: &M::Instance, search: Search) -> Option<Pfn> {
        let mut nodes = search.nodes(at).peekable();
        let nearest = *nodes.peek()?;
        self.freed_last(nearest)
            .or_else(|| nodes.find_map(|node| self.one_of(node)))
    }

    /// One frame of a node's zones.
    fn one_of(&self, node: u32) -> Option<Pfn> {
        let mut zones = self.zones_of(node);
        zones.find_map(|zone| zone.alloc_exactly(&self.table, 0, self.keep))
    }
}
