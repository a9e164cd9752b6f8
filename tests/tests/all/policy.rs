//! Memory policies on a machine of four nodes: which pages come from where, and Linux's error
//! numbers, in every era.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Errno, Event, MempolicyError, Misplaced, Mm, NodeMask, Place, Policy, PolicyMode, Prot, Signal,
    System, Thread, eras_without_migration,
};
use minflt_pgtable::X86_64;
use minflt_sim::{MachineFile, Sim, SimInstance, Size};
use minflt_tests::world::{PAGE, page};

type Simulated = Sim<X86_64, true>;

const NODES: u64 = 4;
/// Frames of a node; the system lies in some of node 0.
const FRAMES: u64 = 400;

/// In each era: pages 0..300 are mapped, 300..310 are not, 310..700 are.
fn everywhere(body: impl Fn(&'static str, &System<Simulated>, &Mm<Simulated>)) {
    let mut file = MachineFile::shipped("explorer").expect("shipped");
    file.shape.cpus_per_node.value = 1.0;
    let size = Size {
        cpus: NODES as u32,
        ram_bytes: NODES * FRAMES * PAGE,
        max_tasks: 1,
    };
    for era in eras_without_migration() {
        let machine = SimInstance::new(&file, size).expect("memory");
        let sys = System::<Simulated>::boot(machine, era.config).expect("boots");
        let mm = sys.new_mm().expect("memory");
        for (from, to) in [(0, 300), (310, 700)] {
            let place = Place::FixedNoReplace(page(from));
            let mapped = mm.mmap(place, (to - from) * PAGE, Prot::READ_WRITE);
            assert_eq!(mapped, Ok(page(from)));
        }
        body(era.name, &sys, &mm);
        sys.check_ledger(&[&mm])
            .unwrap_or_else(|e| panic!("{}: {e}", era.name));
    }
}

fn nodes(list: &[u32]) -> NodeMask {
    NodeMask(list.iter().map(|node| 1 << node).sum())
}

fn policy(mode: PolicyMode, list: &[u32]) -> Policy {
    Policy::new(mode, nodes(list))
}

fn bind(mm: &Mm<Simulated>, from: u64, pages: u64, policy: Policy) -> Result<(), MempolicyError> {
    mm.mbind(page(from), pages * PAGE, policy, Misplaced::Stay)
}

/// Stores to a page; returns the node that it came from.
fn touch(thread: &Thread<'_, Simulated>, n: u64) -> u32 {
    thread.store(page(n), n + 1).expect("mapped, and memory");
    thread.node_at(page(n)).expect("just stored to")
}

#[test]
fn pages_of_an_interleaved_mapping_go_around_by_number() {
    everywhere(|era, sys, mm| {
        let turns = [0, 2, 3];
        let mode = PolicyMode::Interleave;
        assert_eq!(bind(mm, 0, 20, policy(mode, &turns)), Ok(()));
        let thread = mm.thread();
        let first = page(0).0 / PAGE;
        // Whatever the order of touches.
        for n in [7, 3, 4, 5, 0, 19, 18] {
            let expected = turns[((first + n) % 3) as usize];
            assert_eq!(touch(&thread, n), expected, "{era}: page {n}");
        }
        // Also where the thread says it.
        let own = policy(mode, &[1, 3]);
        assert_eq!(thread.set_mempolicy(own), Ok(()));
        for n in [40, 41, 43, 45] {
            let expected = [1, 3][((first + n) % 2) as usize];
            assert_eq!(touch(&thread, n), expected, "{era}: page {n}");
        }
        assert_eq!(thread.next_interleave_node(), Ok(1), "{era}");
        // Whose turn it is is not asked without a lock.
        if era.starts_with("spf") {
            assert!(sys.count_of(Event::SpfNotSupported) > 0);
        }
    });
}

#[test]
fn bound_memory_comes_from_its_nodes_or_not_at_all() {
    everywhere(|era, _, mm| {
        assert_eq!(bind(mm, 310, 390, policy(PolicyMode::Bind, &[2])), Ok(()));
        assert_eq!(bind(mm, 0, 290, policy(PolicyMode::Bind, &[2])), Ok(()));
        let thread = mm.thread();
        let outcomes: Vec<_> = (0..290)
            .chain(310..700)
            .map(|n| thread.store(page(n), n + 1))
            .collect();
        let had = outcomes.iter().take_while(|done| done.is_ok()).count() as u64;
        assert!(had <= FRAMES && had > FRAMES - 64, "{era}: {had}");
        let rest = &outcomes[had as usize..];
        assert!(
            rest.iter().all(|done| *done == Err(Signal::OutOfMemory)),
            "{era}: there is memory elsewhere"
        );
        assert!((0..290).all(|n| thread.node_at(page(n)) == Ok(2)), "{era}");
        // What has no policy is not concerned.
        assert_eq!(touch(&thread, 295), 0, "{era}");
        // And what was given back can be had again: from wherever this CPU keeps it.
        mm.munmap(page(0), 100 * PAGE).expect("mapped");
        assert_eq!(touch(&thread, 650), 2, "{era}");
    });
}

#[test]
fn preferred_nodes_come_first_and_then_the_others() {
    everywhere(|era, _, mm| {
        let (one, many) = (PolicyMode::Preferred, PolicyMode::PreferredMany);
        // Of several preferred ones the first.
        assert_eq!(bind(mm, 0, 10, policy(one, &[1, 3])), Ok(()));
        let kept = mm.get_mempolicy_at(page(0));
        assert_eq!(kept, Ok(policy(one, &[1])), "{era}");
        let thread = mm.thread();
        assert_eq!(touch(&thread, 0), 1, "{era}");
        // The nearest of many: nodes are near by their numbers, from the caller's on.
        assert_eq!(bind(mm, 10, 10, policy(many, &[3, 2])), Ok(()));
        assert_eq!(touch(&thread, 10), 2, "{era}");
        // One node is used up.
        let only = policy(PolicyMode::Bind, &[1]);
        assert_eq!(bind(mm, 310, 390, only), Ok(()));
        assert_eq!(bind(mm, 200, 100, only), Ok(()));
        let all = (310..700).chain(200..300);
        let fill = all.take_while(|n| thread.store(page(*n), 1).is_ok());
        assert!(fill.count() < 490, "{era}: used up");
        assert_eq!(touch(&thread, 1), 2, "{era}: the next one");
        assert_eq!(bind(mm, 20, 10, policy(many, &[1])), Ok(()));
        assert_eq!(touch(&thread, 20), 0, "{era}: the caller's");
        assert_eq!(bind(mm, 30, 10, policy(many, &[1, 3])), Ok(()));
        assert_eq!(touch(&thread, 30), 3, "{era}: the other one of the set");
        let turns = policy(PolicyMode::Interleave, &[1]);
        assert_eq!(bind(mm, 40, 10, turns), Ok(()));
        assert_eq!(touch(&thread, 40), 2, "{era}: as preferred");
    });
}

#[test]
fn a_mappings_policy_comes_before_the_threads_and_that_before_the_nearest() {
    everywhere(|era, sys, mm| {
        let thread = mm.thread();
        assert_eq!(touch(&thread, 0), 0, "{era}: near");
        assert_eq!(thread.set_mempolicy(policy(PolicyMode::Bind, &[3])), Ok(()));
        assert_eq!(touch(&thread, 1), 3, "{era}");
        assert_eq!(thread.get_mempolicy(), policy(PolicyMode::Bind, &[3]));
        // Of this thread only.
        assert_eq!(touch(&mm.thread(), 2), 0, "{era}");
        assert_eq!(bind(mm, 4, 2, policy(PolicyMode::Preferred, &[2])), Ok(()));
        assert_eq!(touch(&thread, 4), 2, "{era}");
        assert_eq!(bind(mm, 6, 2, policy(PolicyMode::Local, &[])), Ok(()));
        assert_eq!(
            touch(&thread, 6),
            0,
            "{era}: local whatever the thread says"
        );
        assert_eq!(bind(mm, 4, 4, Policy::DEFAULT), Ok(()));
        assert_eq!(touch(&thread, 5), 3, "{era}: no longer");
        assert_eq!(touch(&thread, 7), 3, "{era}: no longer");
        // Copies and what calls fault in obey as well.
        let child = sys.fork(mm).expect("memory");
        assert_eq!(touch(&thread, 0), 3, "{era}: the copy");
        thread.mlock(page(8), PAGE).expect("mapped");
        assert_eq!(thread.node_at(page(8)), Ok(3), "{era}");
        // A child's mappings have the policies of the parent's.
        drop(child);
        assert_eq!(bind(mm, 10, 2, policy(PolicyMode::Bind, &[1])), Ok(()));
        let child = sys.fork(mm).expect("memory");
        assert_eq!(touch(&child.thread(), 10), 1, "{era}");
        assert_eq!(thread.set_mempolicy(Policy::DEFAULT), Ok(()));
        assert_eq!(touch(&thread, 20), 0, "{era}");
    });
}

#[test]
fn policies_are_checked_in_linuxs_order() {
    use PolicyMode::{Bind, Default, Interleave, Local, Preferred, PreferredMany};
    everywhere(|era, sys, mm| {
        assert_eq!(sys.allowed_nodes(), nodes(&[0, 1, 2, 3]), "{era}");
        let thread = mm.thread();
        let good = policy(Bind, &[0]);
        let invalid = Err(MempolicyError::Invalid);
        let bad = [
            policy(Bind, &[]),
            policy(Bind, &[4, 9]),
            policy(Interleave, &[]),
            policy(Preferred, &[7]),
            policy(PreferredMany, &[]),
            policy(Default, &[0]),
            policy(Local, &[0]),
        ];
        for bad in bad {
            assert_eq!(bind(mm, 0, 1, bad), invalid, "{era} {bad:?}");
            assert_eq!(bind(mm, 305, 1, bad), invalid, "before the hole: {bad:?}");
            assert_eq!(bind(mm, 0, 0, bad), Ok(()), "nothing: {bad:?}");
            assert_eq!(thread.set_mempolicy(bad), invalid, "{era} {bad:?}");
        }
        let of = |start, len, policy| mm.mbind(start, len, policy, Misplaced::Stay);
        let odd = VirtAddr(page(0).0 + 1);
        assert_eq!(of(odd, 0, good), invalid);
        assert_eq!(of(page(0), 0_u64.wrapping_sub(PAGE), good), invalid);
        assert_eq!(of(page(0), u64::MAX, good), Ok(()), "wraps to nothing");
        let fault = Err(MempolicyError::Fault);
        assert_eq!(bind(mm, 305, 1, good), fault, "{era}: a hole");
        assert_eq!(bind(mm, 305, 10, good), fault, "{era}: in front");
        assert_eq!(bind(mm, 295, 10, good), fault, "{era}: behind");
        assert_eq!(bind(mm, 295, 20, good), fault, "{era}: between");
        assert_eq!(mm.get_mempolicy_at(page(299)), Ok(Policy::DEFAULT));
        assert_eq!(bind(mm, 290, 10, good), Ok(()));
        assert_eq!(
            bind(mm, 305, 1, Policy::DEFAULT),
            fault,
            "{era}: all a hole"
        );
        assert_eq!(bind(mm, 295, 20, Policy::DEFAULT), Ok(()), "{era}");
        assert_eq!(mm.get_mempolicy_at(page(299)), Ok(Policy::DEFAULT));
        assert_eq!(mm.get_mempolicy_at(page(294)), Ok(good), "{era}");
        assert_eq!(mm.get_mempolicy_at(page(305)), Err(MempolicyError::Fault));
        // Nodes that are not there are left out, unless none is left.
        let some = policy(Interleave, &[1, 3, 5]);
        assert_eq!(thread.set_mempolicy(some), Ok(()));
        assert_eq!(thread.get_mempolicy(), policy(Interleave, &[1, 3]));
        assert_eq!(thread.set_mempolicy(policy(Preferred, &[])), Ok(()));
        assert_eq!(thread.get_mempolicy(), policy(Local, &[]), "{era}");
        assert_eq!(thread.next_interleave_node(), invalid.map(|()| 0));
        assert_eq!(thread.node_at(page(305)), fault.map(|()| 0));
        mm.mprotect(page(1), PAGE, Prot::NONE).expect("mapped");
        assert_eq!(thread.node_at(page(1)), fault.map(|()| 0));
    });
    let numbers = [
        (MempolicyError::Invalid, Errno::EINVAL),
        (MempolicyError::NoMemory, Errno::ENOMEM),
        (MempolicyError::Fault, Errno::EFAULT),
        (MempolicyError::Misplaced, Errno::EIO),
    ];
    for (error, errno) in numbers {
        assert_eq!(Errno::from(error), errno);
    }
}

#[test]
fn misplaced_pages_refuse_a_strict_policy_and_nothing_has_changed() {
    use PolicyMode::{Bind, Local, Preferred};
    everywhere(|era, _, mm| {
        let thread = mm.thread();
        assert_eq!(touch(&thread, 2), 0);
        thread.load(page(3)).expect("mapped");
        let strict = |from, pages: u64, policy| {
            mm.mbind(page(from), pages * PAGE, policy, Misplaced::Refuse)
        };
        let refused = Err(MempolicyError::Misplaced);
        assert_eq!(strict(0, 5, policy(Bind, &[1])), refused, "{era}");
        assert_eq!(
            strict(2, 1, policy(Local, &[])),
            refused,
            "{era}: none said"
        );
        assert_eq!(mm.get_mempolicy_at(page(2)), Ok(Policy::DEFAULT));
        assert_eq!(strict(3, 5, policy(Bind, &[1])), Ok(()), "zero page");
        assert_eq!(strict(0, 5, policy(Bind, &[0, 1])), Ok(()), "{era}");
        // All nodes that were said count, though only the first is kept.
        assert_eq!(strict(0, 5, policy(Preferred, &[1, 0])), Ok(()), "{era}");
        assert_eq!(strict(0, 5, Policy::DEFAULT), Ok(()), "{era}: asks nothing");
        assert_eq!(
            bind(mm, 0, 5, policy(Bind, &[1])),
            Ok(()),
            "{era}: not strict"
        );
        assert_eq!(thread.node_at(page(2)), Ok(0), "{era}: where it was");
    });
}
