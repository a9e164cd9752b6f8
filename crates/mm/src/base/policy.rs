//! Memory policies: the node from which a page is allocated.
//!
//! A policy is a value, stored in an attribute record or in a thread, so there is no use after
//! free: a replaced policy is freed with its record.
//!
//! Linux: mm/mempolicy.c.

use core::fmt;

/// Most memory nodes of a machine.
pub(crate) const MAX_NODES: usize = 256;

/// A set of memory nodes, of which the first [`NodeMask::MOST`] can be named.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeMask(pub u64);

/// How a policy chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum PolicyMode {
    /// As the next wider policy says: the thread's for a mapping, the system's for a thread. The
    /// system's is the node of the CPU that faults, then the others.
    #[default]
    Default,
    /// The first node of the set, then the others (`MPOL_PREFERRED`).
    Preferred,
    /// Only nodes of the set (`MPOL_BIND`).
    Bind,
    /// The nodes of the set in turn, by page number (`MPOL_INTERLEAVE`).
    Interleave,
    /// The node of the CPU that faults, whatever the wider policies say (`MPOL_LOCAL`).
    Local,
    /// Any node of the set, then the others (`MPOL_PREFERRED_MANY`).
    PreferredMany,
}

impl NodeMask {
    /// Nodes that a set can name.
    pub const MOST: u32 = 56;

    /// The first `count` nodes, or all that can be named.
    pub(crate) const fn below(count: u32) -> Self {
        let count = if count < Self::MOST {
            count
        } else {
            Self::MOST
        };
        Self((1 << count) - 1)
    }

    /// One node; none if a set cannot name it.
    #[must_use]
    pub const fn of(node: u32) -> Self {
        Self(if node < Self::MOST { 1 << node } else { 0 })
    }

    /// Whether `node` is in it.
    #[must_use]
    pub const fn has(self, node: u32) -> bool {
        node < u64::BITS && self.0 >> node & 1 != 0
    }

    /// Whether no node is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes that are in both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Its first node only.
    pub(crate) const fn first(self) -> Self {
        Self(self.0 & self.0.wrapping_neg())
    }

    /// Node number `index` of it, counted around and around.
    pub(crate) const fn nth(self, index: u64) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let mut left = index % self.0.count_ones() as u64;
        let mut rest = self.0;
        while left > 0 {
            rest &= rest - 1;
            left -= 1;
        }
        Some(rest.trailing_zeros())
    }
}

/// Where pages come from. One word, so that a mapping's record stays one line.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy(u64);

impl Policy {
    /// The default one.
    pub const DEFAULT: Self = Self(0);

    /// Chooses as `mode` says among `nodes`; those that cannot be named are left out.
    #[must_use]
    pub const fn new(mode: PolicyMode, nodes: NodeMask) -> Self {
        let nodes = nodes.0 & ((1 << NodeMask::MOST) - 1);
        Self(nodes | (mode as u64) << NodeMask::MOST)
    }

    /// Whether it is the default one.
    #[must_use]
    #[inline(always)]
    pub const fn is_default(self) -> bool {
        self.0 == 0
    }

    /// Whether both are the default one.
    #[inline(always)]
    pub(crate) const fn both_default(one: Self, other: Self) -> bool {
        one.0 | other.0 == 0
    }

    /// How it chooses.
    #[must_use]
    pub const fn mode(self) -> PolicyMode {
        const ALL: [PolicyMode; 6] = [
            PolicyMode::Default,
            PolicyMode::Preferred,
            PolicyMode::Bind,
            PolicyMode::Interleave,
            PolicyMode::Local,
            PolicyMode::PreferredMany,
        ];
        ALL[(self.0 >> NodeMask::MOST) as usize]
    }

    /// Among which nodes.
    #[must_use]
    pub const fn nodes(self) -> NodeMask {
        NodeMask(self.0 & ((1 << NodeMask::MOST) - 1))
    }
}

impl Policy {
    /// The only nodes that it allows, if it allows some only.
    pub(crate) const fn bound(self) -> Option<NodeMask> {
        match self.mode() {
            PolicyMode::Bind => Some(self.nodes()),
            _ => None,
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.mode(), self.nodes())
    }
}

impl fmt::Debug for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = (0..u64::BITS).filter(|node| self.0 >> node & 1 != 0);
        f.debug_set().entries(nodes).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::NodeMask;

    #[test]
    fn a_set_has_the_nodes_it_can_name() {
        for node in [0, 1, NodeMask::MOST - 1] {
            let one = NodeMask::of(node);
            assert!(one.has(node) && !one.has(node + 1) && !one.is_empty());
        }
        for node in [NodeMask::MOST, 63, 64, 255, u32::MAX] {
            assert!(NodeMask::of(node).is_empty(), "{node}");
        }
    }
}
