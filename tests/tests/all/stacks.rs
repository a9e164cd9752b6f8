//! Stacks that grow down, in every era.

use minflt_addr::{VirtAddr, VirtRange};
use minflt_mm::{
    Event, Growth, MapRequest, Mm, Overcommit, Place, Prot, Signal, System, eras_without_migration,
};
use minflt_tests::world::{Machine, PAGE, boot, in_each_era, page};

/// Where stacks end: two tables meet not far below.
const TOP: u64 = 1024;

fn map_stack(mm: &Mm<Machine>, from: u64, to: u64, prot: Prot) {
    let request = MapRequest {
        growth: Growth::Down,
        ..MapRequest::new(Place::Fixed(page(from)), (to - from) * PAGE, prot)
    };
    assert_eq!(mm.thread().mmap(&request), Ok(page(from)));
}

/// In each era an empty address space with a stack of the last page below [`TOP`].
fn with_a_stack(test: impl Fn(&str, &System<Machine>, &Mm<Machine>)) {
    in_each_era(1, 16 << 20, |era, sys, mm| {
        map_stack(mm, TOP - 1, TOP, Prot::READ_WRITE);
        test(era, sys, mm);
    });
}

fn start_of_stack(mm: &Mm<Machine>) -> VirtAddr {
    let stack = mm.mapping_at(page(TOP - 1)).expect("mapped");
    assert_eq!(stack.range.end(), page(TOP));
    stack.range.start()
}

#[test]
fn a_stack_grows_to_the_page_of_an_access_below_it() {
    with_a_stack(|era, sys, mm| {
        let thread = mm.thread();
        thread.store(page(TOP - 1), 1).expect("mapped");
        thread
            .store(VirtAddr(page(TOP - 4).0 + 16), 4)
            .expect("grows");
        assert_eq!(start_of_stack(mm), page(TOP - 4), "{era}");
        assert_eq!(mm.mapped_bytes(), 4 * PAGE);
        assert_eq!(sys.committed_pages(), 4);
        // By a load, and across a table.
        assert_eq!(thread.load(page(TOP - 600)), Ok(0), "{era}");
        assert_eq!(start_of_stack(mm), page(TOP - 600));
        assert_eq!(thread.load(page(TOP - 1)), Ok(1));
        assert_eq!(thread.load(VirtAddr(page(TOP - 4).0 + 16)), Ok(4));
        assert_eq!(sys.count_of(Event::StackGrown), 2, "{era}");
        // What has grown is unmapped like the rest.
        assert_eq!(mm.munmap(page(TOP - 600), 600 * PAGE), Ok(()));
        assert_eq!(thread.load(page(TOP - 1)), Err(Signal::MapErr));
        assert_eq!((mm.mapped_bytes(), sys.committed_pages()), (0, 0));
    });
}

#[test]
fn nothing_else_grows() {
    with_a_stack(|era, sys, mm| {
        let thread = mm.thread();
        // Above a stack, and below a mapping that is none.
        assert_eq!(thread.load(page(TOP)), Err(Signal::MapErr), "{era}");
        let mapped = mm.mmap(Place::Fixed(page(10)), PAGE, Prot::READ_WRITE);
        assert_eq!(mapped, Ok(page(10)));
        assert_eq!(thread.store(page(9), 1), Err(Signal::MapErr), "{era}");
        // The mapping between is not jumped over.
        assert_eq!(sys.count_of(Event::StackGrown), 0);
    });
}

#[test]
fn a_stack_keeps_its_distance_from_what_is_mapped_below() {
    with_a_stack(|era, sys, mm| {
        let thread = mm.thread();
        let below = |prot| mm.mmap(Place::Fixed(page(0)), PAGE, prot);
        assert_eq!(below(Prot::READ), Ok(page(0)));
        assert_eq!(thread.store(page(256), 1), Err(Signal::MapErr), "{era}");
        assert_eq!(start_of_stack(mm), page(TOP - 1));
        assert_eq!(thread.store(page(257), 1), Ok(()), "{era}");
        sys.set_stack_guard_gap(2);
        assert_eq!(thread.store(page(2), 1), Err(Signal::MapErr), "{era}");
        assert_eq!(thread.store(page(3), 1), Ok(()), "{era}");
        // What nobody may access is no neighbour to be afraid of; nor is another stack.
        assert_eq!(below(Prot::NONE), Ok(page(0)));
        assert_eq!(thread.store(page(2), 1), Ok(()), "{era}");
        map_stack(mm, 0, 1, Prot::READ_WRITE);
        assert_eq!(thread.store(page(1), 1), Ok(()), "{era}");
        assert_eq!(start_of_stack(mm), page(1));
    });
}

#[test]
fn limits_hold_for_stacks() {
    with_a_stack(|era, sys, mm| {
        let thread = mm.thread();
        let grows = |n: u64, expected: Result<(), Signal>| {
            assert_eq!(thread.store(page(TOP - n), n), expected, "{era}: {n} pages");
        };
        mm.set_limit_stack(4 * PAGE);
        grows(5, Err(Signal::MapErr));
        grows(4, Ok(()));
        mm.set_limit_stack(u64::MAX);
        mm.set_limit_as(6 * PAGE);
        grows(7, Err(Signal::MapErr));
        grows(6, Ok(()));
        mm.set_limit_as(u64::MAX);
        sys.set_overcommit(Overcommit::Never);
        sys.set_overcommit_ratio(0);
        sys.set_swap_pages(9);
        grows(9, Err(Signal::MapErr));
        grows(8, Ok(()));
        sys.set_overcommit(Overcommit::Heuristic);
        // A child has the limit of its parent.
        mm.set_limit_stack(10 * PAGE);
        let child = mm.fork().expect("memory");
        assert_eq!(child.limit_stack(), 10 * PAGE);
        assert_eq!(child.thread().store(page(TOP - 10), 1), Ok(()));
        assert_eq!(child.thread().load(page(TOP - 8)), Ok(8));
        assert_eq!(thread.load(page(TOP - 11)), Err(Signal::MapErr));
    });
}

#[test]
fn a_stack_that_must_not_be_stored_to_grows_and_refuses() {
    with_a_stack(|era, _, mm| {
        map_stack(mm, TOP - 1, TOP, Prot::READ);
        let thread = mm.thread();
        assert_eq!(thread.store(page(TOP - 2), 1), Err(Signal::AccErr), "{era}");
        assert_eq!(start_of_stack(mm), page(TOP - 2));
        assert_eq!(thread.load(page(TOP - 2)), Ok(0));
    });
}

#[test]
fn many_stacks_grow_at_once() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 2, 16 << 20);
        let mm = {
            let _cpu = sys.machine().enter(0);
            let mm = sys.new_mm().expect("memory");
            for stack in 0..16 {
                map_stack(&mm, stack * 64 + 63, stack * 64 + 64, Prot::READ_WRITE);
            }
            mm
        };
        std::thread::scope(|scope| {
            for cpu in 0..2u64 {
                let (sys, mm) = (&sys, &mm);
                scope.spawn(move || {
                    let _cpu = sys.machine().enter(cpu as u32);
                    let thread = mm.thread();
                    for depth in 1..40 {
                        for stack in (cpu..16).step_by(2) {
                            let at = page(stack * 64 + 63 - depth);
                            thread.store(at, depth).expect("grows");
                        }
                    }
                });
            }
        });
        let _cpu = sys.machine().enter(0);
        let mut found = 0;
        mm.for_each_mapping(|range, _| {
            let stack = found * 64;
            assert_eq!(range, VirtRange::new(page(stack + 24), page(stack + 64)));
            found += 1;
        });
        assert_eq!(found, 16, "{}", era.name);
        sys.check_ledger(&[&mm]).expect("adds up");
        drop(mm);
    }
}
