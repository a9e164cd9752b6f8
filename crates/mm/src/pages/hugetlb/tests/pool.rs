use super::{X86, boot, std};
use crate::base::error::NoMemory;
use crate::base::huge_size::HugeSize;
use crate::base::policy::{NodeMask, Policy, PolicyMode};
use crate::memory::alloc::Frames;
use crate::memory::alloc::Refuse;
use crate::memory::alloc::pool::{NodeCounters, PoolCounters, Taking};
use crate::memory::frame::{Use, Zeroed};
use crate::system::System;
use crate::view::oracle::Unbalanced;
use minflt_addr::Pfn;
use minflt_pgtable::{Altix16K, Mmu, X86_64};
use minflt_sync::Ordering;
use std::vec::Vec;

const ORDER: u32 = 9;

fn counters(total: u64, free: u64, reserved: u64) -> PoolCounters {
    PoolCounters {
        total,
        free,
        reserved,
    }
}

fn of_nodes(sys: &System<X86>) -> [(u64, u64); 2] {
    [0, 1].map(|node| {
        let NodeCounters { total, free } = sys.huge_pool_of(HugeSize::Large, node);
        (total, free)
    })
}

fn ledger_holds(sys: &System<X86>) -> u64 {
    sys.check_ledger(&[]).expect("adds up").free
}

fn take(sys: &System<X86>, taking: Taking) -> Option<Pfn> {
    sys.frames
        .take_huge(&sys.at, HugeSize::Large, (Policy::DEFAULT, 0), taking)
}

fn take_as(sys: &System<X86>, mode: PolicyMode, nodes: u64, index: u64) -> Option<u32> {
    let policy = Policy::new(mode, NodeMask(nodes));
    let taken = sys.frames.take_huge(
        &sys.at,
        HugeSize::Large,
        (policy, index),
        Taking::Unreserved,
    );
    taken.map(|pfn| sys.frames.node_of(pfn))
}

#[test]
fn pools_grow_and_shrink_by_the_nodes_in_turn() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    let before = ledger_holds(&sys);
    assert_eq!(sys.huge_page_bytes(), Some(2 << 20));
    assert_eq!(sys.resize_huge_pool(5), 5);
    assert_eq!(of_nodes(&sys), [(3, 3), (2, 2)]);
    assert_eq!(sys.huge_pool(), counters(5, 5, 0));
    assert_eq!(ledger_holds(&sys), before - 5 * 512);
    // The turn goes on where it stood.
    assert_eq!(sys.resize_huge_pool(6), 6);
    assert_eq!(of_nodes(&sys), [(3, 3), (3, 3)]);
    assert_eq!(sys.resize_huge_pool(3), 3);
    assert_eq!(of_nodes(&sys), [(1, 1), (2, 2)]);
    assert_eq!(sys.resize_huge_pool(0), 0);
    assert_eq!(ledger_holds(&sys), before);
}

#[test]
fn the_pool_of_one_node_grows_and_shrinks_alone() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.resize_huge_pool(2), 2);
    assert_eq!(sys.resize_huge_pool_of(HugeSize::Large, 1, 4), 4);
    assert_eq!(of_nodes(&sys), [(1, 1), (4, 4)]);
    assert_eq!(sys.resize_huge_pool_of(HugeSize::Large, 1, 0), 0);
    assert_eq!(of_nodes(&sys), [(1, 1), (0, 0)]);
    assert_eq!(sys.resize_huge_pool_of(HugeSize::Large, 2, 1), 0);
    assert_eq!(sys.huge_pool(), counters(1, 1, 0));
    ledger_holds(&sys);
}

#[test]
fn a_growing_pool_leaves_frames_to_others() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    let got = sys.resize_huge_pool(1 << 40);
    assert!((28..32).contains(&got), "{got} of 32");
    let left = ledger_holds(&sys);
    assert!(left >= 2 * sys.frames.huge.keep, "{left} frames are left");
    assert!(sys.new_mm().is_ok());
}

#[test]
fn every_frame_of_a_page_is_of_one_aligned_block() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(3);
    let pfn = take(&sys, Taking::Unreserved).expect("one is free");
    assert_eq!(pfn.0 % 512, 0);
    assert_eq!(sys.frames.get(pfn).used_as(), Use::Huge);
    assert_eq!(sys.frames.get(pfn).block_order(), ORDER);
    let tails = pfn.0 + 1..pfn.0 + 512;
    assert!(
        tails
            .clone()
            .all(|tail| sys.frames.get(Pfn(tail)).used_as() == Use::Tail)
    );
    assert!(tails.map(Pfn).all(|tail| !sys.frames.try_hold(tail)));
    sys.frames.put(pfn);
    assert!(!sys.frames.try_hold(pfn));
    ledger_holds(&sys);
}

#[test]
fn what_is_reserved_is_for_those_who_reserved_it() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(3);
    assert_eq!(sys.frames.reserve_huge(HugeSize::Large, 4), Err(NoMemory));
    assert_eq!(sys.frames.reserve_huge(HugeSize::Large, 2), Ok(()));
    assert_eq!(sys.frames.reserve_huge(HugeSize::Large, 2), Err(NoMemory));
    assert_eq!(sys.huge_pool(), counters(3, 3, 2));
    let unpromised = take(&sys, Taking::Unreserved).expect("one is promised to nobody");
    assert_eq!(take(&sys, Taking::Unreserved), None);
    let promised = take(&sys, Taking::Reserved).expect("was promised");
    assert_eq!(sys.huge_pool(), counters(3, 1, 1));
    sys.frames.put(unpromised);
    assert_eq!(sys.huge_pool(), counters(3, 2, 1));
    // Nobody got to see it: its reservation comes back.
    sys.frames.put(promised);
    assert_eq!(sys.huge_pool(), counters(3, 3, 2));
    let used = take(&sys, Taking::Reserved).expect("was promised");
    sys.frames.get(used).clear_restore_reserve();
    sys.frames.put(used);
    assert_eq!(sys.huge_pool(), counters(3, 3, 1));
    sys.frames.unreserve_huge(HugeSize::Large, 1);
    assert_eq!(sys.huge_pool(), counters(3, 3, 0));
    ledger_holds(&sys);
}

#[test]
fn a_page_that_is_taken_again_is_not_marked_any_more() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(1);
    sys.frames
        .reserve_huge(HugeSize::Large, 1)
        .expect("one is free");
    let first = take(&sys, Taking::Reserved).expect("was promised");
    sys.frames.put(first);
    sys.frames.unreserve_huge(HugeSize::Large, 1);
    let again = take(&sys, Taking::Unreserved).expect("is free");
    assert_eq!(again, first);
    assert_eq!(sys.frames.get(again).refs.peek(), 1);
    sys.frames.put(again);
    assert_eq!(sys.huge_pool(), counters(1, 1, 0));
}

#[test]
#[should_panic(expected = "huge page allocated without a reservation")]
fn a_reservation_that_nobody_made_is_seen() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(1);
    take(&sys, Taking::Reserved);
}

#[test]
#[should_panic(expected = "hugetlb reservation underflow")]
fn a_reservation_that_is_taken_back_twice_is_seen() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(1);
    sys.frames
        .reserve_huge(HugeSize::Large, 1)
        .expect("one is free");
    sys.frames.unreserve_huge(HugeSize::Large, 1);
    sys.frames.unreserve_huge(HugeSize::Large, 1);
}

#[test]
#[should_panic(expected = "freed while mapped")]
fn a_page_that_is_freed_while_it_is_mapped_is_seen() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(1);
    let pfn = take(&sys, Taking::Unreserved).expect("is free");
    sys.frames.get(pfn).maps.store(1, Ordering::Relaxed);
    sys.frames.put(pfn);
}

#[test]
fn a_pool_shrinks_by_what_is_neither_used_nor_promised() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(4);
    let used = take(&sys, Taking::Unreserved).expect("is free");
    sys.frames
        .reserve_huge(HugeSize::Large, 1)
        .expect("is free");
    assert_eq!(sys.resize_huge_pool(0), 2);
    assert_eq!(sys.huge_pool(), counters(2, 1, 1));
    sys.frames.put(used);
    sys.frames.unreserve_huge(HugeSize::Large, 1);
    assert_eq!(sys.resize_huge_pool(0), 0);
    ledger_holds(&sys);
}

#[test]
fn a_policy_says_which_nodes_pages_are_taken_from() {
    let sys = boot::<X86_64>();
    // Of node 0.
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(8);
    assert_eq!(take_as(&sys, PolicyMode::Default, 0, 0), Some(0));
    assert_eq!(take_as(&sys, PolicyMode::Preferred, 0b10, 0), Some(1));
    assert_eq!(take_as(&sys, PolicyMode::Interleave, 0b11, 6), Some(0));
    assert_eq!(take_as(&sys, PolicyMode::Interleave, 0b11, 7), Some(1));
    assert_eq!(take_as(&sys, PolicyMode::Bind, 0b10, 0), Some(1));
    assert_eq!(take_as(&sys, PolicyMode::PreferredMany, 0b10, 0), Some(1));
    assert_eq!(of_nodes(&sys), [(4, 2), (4, 0)]);
    assert_eq!(take_as(&sys, PolicyMode::Bind, 0b10, 0), None);
    assert_eq!(take_as(&sys, PolicyMode::Preferred, 0b10, 0), Some(0));
    assert_eq!(take_as(&sys, PolicyMode::PreferredMany, 0b10, 0), Some(0));
    assert_eq!(take_as(&sys, PolicyMode::Default, 0, 0), None);
    // Another has been promised nothing by what was refused.
    assert_eq!(sys.huge_pool(), counters(8, 0, 0));
}

#[test]
fn a_page_of_another_node_goes_back_there() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(2);
    let policy = Policy::new(PolicyMode::Bind, NodeMask::of(1));
    let taken = sys
        .frames
        .take_huge(&sys.at, HugeSize::Large, (policy, 0), Taking::Unreserved);
    let taken = taken.expect("is free");
    assert_eq!(of_nodes(&sys), [(1, 1), (1, 0)]);
    sys.frames.put(taken);
    assert_eq!(of_nodes(&sys), [(1, 1), (1, 1)]);
    ledger_holds(&sys);
}

#[test]
fn each_use_is_another_generation_and_not_known_to_be_zero() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(1);
    let pfn = take(&sys, Taking::Unreserved).expect("is free");
    let last = Pfn(pfn.0 + 511);
    assert!(!sys.frames.get(pfn).is_zeroed());
    X86::user_store(&sys.at, last, 8, 5);
    let generations = |sys: &System<X86>| [pfn, last].map(|at| sys.frames.get(at).generation());
    let before = generations(&sys);
    sys.frames.get(pfn).mapping.store(64, Ordering::Relaxed);
    sys.frames.put(pfn);
    assert_eq!(generations(&sys), before.map(|it| it + 1));
    assert_eq!(sys.frames.get(pfn).mapping.peek(), 0);
    sys.clear_free_frames();
    assert_eq!(take(&sys, Taking::Unreserved), Some(pfn));
    assert!(sys.frames.get(pfn).is_zeroed());
    assert_eq!(X86::user_load(&sys.at, last, 8), 0);
    sys.frames.put(pfn);
    assert_eq!(take(&sys, Taking::Unreserved), Some(pfn));
    assert!(!sys.frames.get(pfn).is_zeroed());
    sys.frames.put(pfn);
    ledger_holds(&sys);
}

#[test]
fn a_pool_that_grows_by_cleared_frames_knows_that() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.clear_free_frames();
    sys.resize_huge_pool(1);
    let pfn = take(&sys, Taking::Unreserved).expect("is free");
    assert!(sys.frames.get(pfn).is_zeroed());
    // One of its frames is not.
    sys.frames.put(pfn);
    sys.resize_huge_pool(0);
    sys.clear_free_frames();
    sys.frames.get(Pfn(pfn.0 + 7)).set_zeroed(Zeroed::No);
    sys.resize_huge_pool_of(HugeSize::Large, sys.frames.node_of(pfn), 1);
    assert_eq!(take(&sys, Taking::Unreserved), Some(pfn));
    assert!(!sys.frames.get(pfn).is_zeroed());
}

#[test]
fn what_is_refused_changes_nothing() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    let refused = |sys: &System<X86>| {
        let site = sys.refused_allocation();
        sys.refuse_allocations(Refuse::Nothing);
        site.is_some()
    };
    sys.refuse_allocations(Refuse::From(1));
    assert_eq!(sys.resize_huge_pool(2), 0);
    assert!(refused(&sys));
    // Only one node has none: the other one has all.
    sys.refuse_allocations(Refuse::Nth(1));
    assert_eq!(sys.resize_huge_pool(1), 1);
    assert!(refused(&sys));
    assert_eq!(of_nodes(&sys), [(0, 0), (1, 1)]);
    sys.refuse_allocations(Refuse::Nth(1));
    assert_eq!(sys.frames.reserve_huge(HugeSize::Large, 1), Err(NoMemory));
    assert!(refused(&sys));
    sys.frames
        .reserve_huge(HugeSize::Large, 1)
        .expect("one is free");
    sys.refuse_allocations(Refuse::Nth(1));
    assert_eq!(take(&sys, Taking::Reserved), None);
    assert!(refused(&sys));
    assert_eq!(sys.huge_pool(), counters(1, 1, 1));
    sys.frames.unreserve_huge(HugeSize::Large, 1);
    ledger_holds(&sys);
}

#[test]
fn the_ledger_sees_what_the_counts_do_not_say() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    sys.resize_huge_pool(2);
    let wrong = |sys: &System<X86>, what: &str| match sys.check_ledger(&[]) {
        Err(Unbalanced::Pools(why)) => assert_eq!(why, what),
        other => panic!("{other:?}"),
    };
    sys.frames.huge.set_reserved(3);
    wrong(&sys, "more are reserved than are free");
    sys.frames.huge.set_reserved(0);
    let pfn = take(&sys, Taking::Unreserved).expect("is free");
    sys.frames.get(pfn).refs.store(0, Ordering::Relaxed);
    wrong(&sys, "one that nobody refers to is in no list");
    sys.frames.get(pfn).refs.store(1, Ordering::Relaxed);
    assert_eq!(sys.frames.huge_adds_up(), Ok(()));
    sys.frames.put(pfn);
    sys.frames.get(pfn).refs.store(1, Ordering::Relaxed);
    wrong(&sys, "one that is in use is in a list");
    sys.frames.get(pfn).refs.store(0, Ordering::Relaxed);
    ledger_holds(&sys);
}

#[test]
fn a_format_without_huge_pages_has_none() {
    let sys = boot::<Altix16K>();
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.huge_page_bytes(), None);
    assert_eq!(sys.resize_huge_pool(1), 0);
    let frames: &Frames<_> = &sys.frames;
    assert_eq!(frames.reserve_huge(HugeSize::Large, 0), Ok(()));
    assert_eq!(frames.reserve_huge(HugeSize::Large, 1), Err(NoMemory));
    let taken = frames.take_huge(
        &sys.at,
        HugeSize::Large,
        (Policy::DEFAULT, 0),
        Taking::Unreserved,
    );
    assert_eq!(taken, None);
    assert!(sys.check_ledger(&[]).is_ok());
}

#[test]
fn threads_that_take_and_resize_lose_nothing() {
    const ROUNDS: u64 = 2_000;
    let sys = boot::<X86_64>();
    let before = {
        let _cpu = sys.machine().enter(0);
        sys.resize_huge_pool(6);
        ledger_holds(&sys)
    };
    let taker = |cpu: u32| {
        let _cpu = sys.machine().enter(cpu);
        let mut taken = 0;
        for round in 0..ROUNDS {
            if sys.frames.reserve_huge(HugeSize::Large, 2).is_ok() {
                let held: Vec<_> = (0..2)
                    .map(|_| take(&sys, Taking::Reserved).expect("was promised"))
                    .collect();
                taken += 2;
                if round % 2 == 0 {
                    sys.frames.get(held[0]).clear_restore_reserve();
                }
                held.into_iter().for_each(|pfn| {
                    sys.frames.put(pfn);
                });
                sys.frames.unreserve_huge(HugeSize::Large, 1 + round % 2);
            } else if let Some(pfn) = take(&sys, Taking::Unreserved) {
                sys.frames.put(pfn);
            }
        }
        taken
    };
    let taken: u64 = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..3).map(|cpu| scope.spawn(move || taker(cpu))).collect();
        scope.spawn(|| {
            let _cpu = sys.machine().enter(3);
            for round in 0..ROUNDS / 10 {
                sys.resize_huge_pool(4 + round % 4);
            }
            sys.resize_huge_pool(6);
        });
        let joined = takers.into_iter().map(|it| it.join().expect("runs"));
        joined.sum()
    });
    assert!(taken > ROUNDS, "{taken} pages were taken");
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.resize_huge_pool(6), 6);
    assert_eq!(sys.huge_pool(), counters(6, 6, 0));
    assert_eq!(ledger_holds(&sys), before);
}
