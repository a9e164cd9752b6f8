//! Memory policies: which node's memory a page is taken from.
//!
//! A policy is a value. It lies in a mapping's record or in a thread, so nobody can use one that
//! was freed, and one that is replaced goes with its record.
//!
//! Linux: mm/mempolicy.c.

use core::fmt;

/// A set of memory nodes, of which the first 64 can be named.
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

/// Where pages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// How it chooses.
    pub mode: PolicyMode,
    /// Among which nodes.
    pub nodes: NodeMask,
}

impl Policy {
    /// The default one.
    pub const DEFAULT: Self = Self {
        mode: PolicyMode::Default,
        nodes: NodeMask(0),
    };
}

impl fmt::Debug for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = (0..u64::BITS).filter(|node| self.0 >> node & 1 != 0);
        f.debug_set().entries(nodes).finish()
    }
}
