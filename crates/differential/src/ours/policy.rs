//! Memory policies by Linux's numbers.

use super::{Machine, nothing};
use crate::record::Outcome;
use crate::step::ARGS;
use minflt_addr::VirtAddr;
use minflt_mm::{
    Errno, MempolicyError, Misplaced, Mm, NodeMask, Policy, PolicyMode, Thread, Which,
};
use minflt_pgtable::Paging;
use minflt_spec::abi;

const INVALID: Outcome = Outcome::Errno(Errno::EINVAL.0);

fn policy(mode: u64, nodes: u64) -> Option<Policy> {
    let mode = match mode {
        abi::MPOL_DEFAULT => PolicyMode::Default,
        abi::MPOL_PREFERRED => PolicyMode::Preferred,
        abi::MPOL_BIND => PolicyMode::Bind,
        abi::MPOL_INTERLEAVE => PolicyMode::Interleave,
        abi::MPOL_LOCAL => PolicyMode::Local,
        abi::MPOL_PREFERRED_MANY => PolicyMode::PreferredMany,
        _ => return None,
    };
    Some(Policy::new(mode, NodeMask(nodes)))
}

pub(super) fn mbind<P: Paging>(
    mm: &Mm<Machine<P>>,
    [at, len, mode, nodes, how, _]: [u64; ARGS],
) -> Outcome {
    const STRICT: u64 = abi::MPOL_MF_STRICT;
    const MOVE: u64 = abi::MPOL_MF_MOVE;
    const BOTH: u64 = STRICT | MOVE;
    let Some(policy) = policy(mode, nodes) else {
        return INVALID;
    };
    let misplaced = match how {
        0 => Misplaced::Stay,
        STRICT => Misplaced::Refuse,
        MOVE => Misplaced::Move(Which::Own),
        BOTH => Misplaced::MoveOrFail(Which::Own),
        // Nobody here has the privilege.
        _ if how & !(BOTH | abi::MPOL_MF_MOVE_ALL) == 0 => {
            return Outcome::Errno(Errno::EPERM.0);
        }
        _ => return INVALID,
    };
    nothing(mm.mbind(VirtAddr(at), len, policy, misplaced))
}

pub(super) fn set<P: Paging>(thread: &Thread<'_, Machine<P>>, mode: u64, nodes: u64) -> Outcome {
    policy(mode, nodes).map_or(INVALID, |policy| nothing(thread.set_mempolicy(policy)))
}

pub(super) fn get<P: Paging>(thread: &Thread<'_, Machine<P>>, addr: u64, how: u64) -> Outcome {
    const NODE_AT: u64 = abi::MPOL_F_NODE | abi::MPOL_F_ADDR;
    let mm = thread.mm();
    let at = VirtAddr(addr);
    let whole = |policy: Policy| (u64::from(policy.mode() as u8), policy.nodes());
    let node = |node: u32, policy: Policy| (u64::from(node), policy.nodes());
    let found = match how {
        abi::MPOL_F_MEMS_ALLOWED => Ok((0, mm.system().allowed_nodes())),
        abi::MPOL_F_ADDR => mm.get_mempolicy_at(at).map(whole),
        NODE_AT => mm.get_mempolicy_at(at).and_then(|policy| {
            let here = thread.node_at(at)?;
            Ok(node(here, policy))
        }),
        _ if addr != 0 => Err(MempolicyError::Invalid),
        0 => Ok(whole(thread.get_mempolicy())),
        abi::MPOL_F_NODE => {
            let next = thread.next_interleave_node();
            next.map(|next| node(next, thread.get_mempolicy()))
        }
        _ => Err(MempolicyError::Invalid),
    };
    match found {
        Ok((value, nodes)) => Outcome::Done(value, [nodes.0, 0]),
        Err(error) => Outcome::Errno(Errno::from(error).0),
    }
}
