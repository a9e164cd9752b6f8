//! mbind, set_mempolicy, get_mempolicy, on a machine of one node.

use crate::abi::{
    MPOL_BIND, MPOL_DEFAULT, MPOL_F_ADDR, MPOL_F_MEMS_ALLOWED, MPOL_F_NODE, MPOL_F_NUMA_BALANCING,
    MPOL_F_RELATIVE_NODES, MPOL_F_STATIC_NODES, MPOL_INTERLEAVE, MPOL_LOCAL, MPOL_MF_MOVE,
    MPOL_MF_MOVE_ALL, MPOL_MF_STRICT, MPOL_PREFERRED, MPOL_PREFERRED_MANY,
};
use crate::access::Access;
use crate::space::{Page, Space};
use crate::vma::Flags;
use crate::{Errno, PAGE, Result, is_aligned, page_align};

/// Where pages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// From where the task's policy says; of a task, from the node of its CPU.
    Default,
    /// As a call said.
    Set {
        /// How the nodes are used.
        mode: u64,
        /// The mode's flags.
        flags: u64,
        /// The nodes, as a set of bits: those of the caller if the flags say so, else those there
        /// are.
        nodes: u64,
    },
}

/// The one node there is.
const NODES: u64 = 1;
const MODE_FLAGS: u64 = MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | MPOL_F_NUMA_BALANCING;

impl Policy {
    /// Linux: mm/mempolicy.c sanitize_mpol_flags.
    fn mode_of(mode: u64) -> Result<(u64, u64)> {
        let (mode, flags) = (mode & !MODE_FLAGS, mode & MODE_FLAGS);
        let both = MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES;
        let balances = flags & MPOL_F_NUMA_BALANCING != 0;
        if mode > MPOL_PREFERRED_MANY
            || flags & both == both
            || (balances && !matches!(mode, MPOL_BIND | MPOL_PREFERRED_MANY))
        {
            return Err(Errno::EINVAL);
        }
        Ok((mode, flags))
    }

    /// Linux: mm/mempolicy.c mpol_new, mpol_set_nodemask.
    fn new(mode: u64, flags: u64, mask: u64) -> Result<Self> {
        let own = flags & (MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES) != 0;
        let local = Self::Set {
            mode: MPOL_LOCAL,
            flags,
            nodes: 0,
        };
        match (mode, mask) {
            (MPOL_DEFAULT, 0) => return Ok(Self::Default),
            (MPOL_PREFERRED | MPOL_LOCAL, 0) if !own => return Ok(local),
            (MPOL_DEFAULT | MPOL_LOCAL, _) | (_, 0) => return Err(Errno::EINVAL),
            _ => {}
        }
        // Relative nodes are counted around those there are.
        let here = mask & NODES != 0 || flags & MPOL_F_RELATIVE_NODES != 0;
        if !here {
            return Err(Errno::EINVAL);
        }
        let nodes = if own { mask } else { NODES };
        Ok(Self::Set { mode, flags, nodes })
    }
}

impl Space {
    /// mbind with one word of nodes. Linux: mm/mempolicy.c do_mbind, queue_pages_test_walk.
    ///
    /// # Errors
    /// As Linux, for a caller without privileges.
    pub fn mbind(&mut self, start: u64, len: u64, mode: u64, mask: u64, how: u64) -> Result<()> {
        let (mode, flags) = Policy::mode_of(mode)?;
        if how & !(MPOL_MF_STRICT | MPOL_MF_MOVE | MPOL_MF_MOVE_ALL) != 0 {
            return Err(Errno::EINVAL);
        }
        if how & MPOL_MF_MOVE_ALL != 0 {
            return Err(Errno::EPERM);
        }
        let end = start.wrapping_add(page_align(len));
        if !is_aligned(start) || end < start {
            return Err(Errno::EINVAL);
        }
        if end == start {
            return Ok(());
        }
        let policy = Policy::new(mode, flags, mask)?;
        let first = self.vmas.get(self.find(start));
        if first.is_none_or(|first| first.start >= end) {
            return Err(Errno::EFAULT);
        }
        if policy != Policy::Default {
            let strict = how == MPOL_MF_STRICT && mask & NODES == 0;
            self.check_places(start, end, strict)?;
        }
        let mut at = start;
        while let Some(vma) = self.vmas.get(self.find(at)).filter(|vma| vma.start < end) {
            let (from, to) = (vma.start.max(start), vma.end.min(end));
            if vma.policy != policy {
                self.modify(self.find(at), (from, to), vma.flags, policy)?;
            }
            at = to;
            if at >= end {
                break;
            }
        }
        Ok(())
    }

    /// No hole in `[start, end)`; and if `strict`, no page there, since it would be on a node that
    /// was not named. Linux: mm/mempolicy.c queue_pages_range.
    fn check_places(&self, start: u64, end: u64, strict: bool) -> Result<()> {
        let mut at = start;
        while at < end {
            let index = self.lookup(at).ok_or(Errno::EFAULT)?;
            let to = self.vmas[index].end.min(end);
            if to < end && self.lookup(to).is_none() {
                return Err(Errno::EFAULT);
            }
            let mut pages = self.pages.range(at / PAGE..to / PAGE);
            if strict && pages.any(|(_, page)| *page != Page::Zero) {
                return Err(Errno::EIO);
            }
            at = to;
        }
        Ok(())
    }

    /// Whether the page at `addr` can be asked for its node: by reading, or because it is there,
    /// no zero page, and accessible at all.
    fn may_look(&self, index: usize, addr: u64) -> bool {
        let flags = self.vmas[index].flags;
        let own = matches!(self.pages.get(&(addr / PAGE)), Some(Page::Own(_)));
        flags.has(Flags::READ) || (own && flags.has(Flags::ACCESS))
    }

    /// set_mempolicy with one word of nodes.
    ///
    /// # Errors
    /// As Linux.
    pub fn set_mempolicy(&mut self, mode: u64, mask: u64) -> Result<()> {
        let (mode, flags) = Policy::mode_of(mode)?;
        self.policy = Policy::new(mode, flags, mask)?;
        Ok(())
    }

    /// get_mempolicy: the mode with its flags, and the nodes. Linux: do_get_mempolicy.
    ///
    /// # Errors
    /// As Linux.
    pub fn get_mempolicy(&mut self, addr: u64, how: u64) -> Result<(u64, u64)> {
        if how & !(MPOL_F_NODE | MPOL_F_ADDR | MPOL_F_MEMS_ALLOWED) != 0 {
            return Err(Errno::EINVAL);
        }
        if how & MPOL_F_MEMS_ALLOWED != 0 {
            if how & (MPOL_F_NODE | MPOL_F_ADDR) != 0 {
                return Err(Errno::EINVAL);
            }
            return Ok((0, NODES));
        }
        let mut policy = self.policy;
        let mut found = None;
        if how & MPOL_F_ADDR != 0 {
            let index = self.lookup(addr).ok_or(Errno::EFAULT)?;
            policy = self.vmas[index].policy;
            found = Some(index);
        } else if addr != 0 {
            return Err(Errno::EINVAL);
        }
        let (mode, flags, nodes) = match policy {
            Policy::Default => (MPOL_DEFAULT, 0, 0),
            Policy::Set { mode, flags, nodes } => (mode, flags, nodes),
        };
        if how & MPOL_F_NODE == 0 {
            return Ok((mode | flags, nodes));
        }
        match found {
            Some(index) if self.may_look(index, addr) => {
                self.fault(index, addr, Access::Read)?;
                Ok((0, nodes))
            }
            Some(_) => Err(Errno::EFAULT),
            None if mode == MPOL_INTERLEAVE => Ok((0, nodes)),
            None => Err(Errno::EINVAL),
        }
    }
}
