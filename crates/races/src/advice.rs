//! What happens in the races about memory policies and locked memory.

use super::scenes::{boxed, plays, tasks, warm};
use super::stage::{Script, Stage};
use minflt_mm::{Advice, LockAll, Misplaced, NodeMask, Policy, PolicyMode};
use minflt_pgtable::Paging;

/// P35: a page gets a policy for another node, and is thrown away, beside the store that takes it.
/// What a fault brings later can only come from the new policy's node. (A speculative fault whose
/// slot was open when the policy changed may put its page in a moment after the call has returned;
/// whoever throws pages away waits for it.)
pub(super) fn policy_fault<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 2);
    warm(stage, 0);
    // On a machine of one CPU there is one node.
    let far = u32::from(stage.sys.allowed_nodes().has(1));
    let bodies = vec![
        boxed(move || {
            assert!(stage.thread().store(stage.page(0), 5).is_ok(), "mapped");
        }),
        boxed(move || {
            let bind = Policy::new(PolicyMode::Bind, NodeMask::of(far));
            let at = stage.page(0);
            let bound = stage.mm.mbind(at, P::page(), bind, Misplaced::Stay);
            assert_eq!(bound, Ok(()), "mapped, and the node is there");
            let discarded = stage.mm.madvise(at, P::page(), Advice::DontNeed);
            assert_eq!(discarded, Ok(()), "mapped");
        }),
    ];
    tasks(bodies, move || {
        let at = stage.page(0);
        let mut there = [0];
        assert_eq!(stage.mm.mincore(at, P::page(), &mut there), Ok(()));
        match stage.thread().node_at(at) {
            _ if there == [0] => Ok(()),
            Ok(node) if node == far => Ok(()),
            found => Err(format!("policy: a page came after the call: {found:?}")),
        }
    })
}

/// P35: two calls lock one page each, beside one that unlocks all. The ledger compares the count.
pub(super) fn lock_lock<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    stage.map(2, 3);
    let lock = |n: u64| {
        boxed(move || {
            let thread = stage.thread();
            assert_eq!(thread.mlock(stage.page(n), P::page()), Ok(()), "mapped");
        })
    };
    let all = boxed(move || {
        let thread = stage.thread();
        thread.mm().munlockall();
        assert_eq!(thread.mlockall(LockAll::CURRENT), Ok(()), "no limit");
    });
    plays(vec![lock(0), lock(2), all])
}
