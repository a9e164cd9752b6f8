//! Pages that move from node to node.

use minflt_addr::VirtAddr;
use minflt_mm::config::AnonRmap;
use minflt_mm::{
    Config, ERAS, Errno, Event, MapRequest, Misplaced, MovePageError, NodeMask, Overcommit, Place,
    Policy, PolicyMode, Prot, Running, Sharing, Swap, era,
};
use minflt_pgtable::Access;
use minflt_tests::moving::run;
use minflt_tests::world::{Machine, PAGE, boot_on, machine, page};

fn boot(config: Config) -> Running<Machine> {
    boot_on(machine(2, 16 << 20).with_nodes(2), config, Swap::None)
}

/// Nodes 0 and 3 are next to each other, and so are 1 and 2.
#[test]
fn what_a_node_lacks_comes_from_the_nearest() {
    const RAM: usize = 16 << 20;
    let far = [
        [10, 31, 21, 15],
        [31, 10, 15, 21],
        [21, 15, 10, 31],
        [15, 21, 31, 10],
    ];
    let machine = machine(4, RAM).with_nodes(4);
    let machine = machine.with_distances(far.as_flattened());
    let newest = ERAS.last().expect("an era");
    let sys = boot_on::<Machine>(machine, newest.config, Swap::None);
    for (cpu, order) in [(1, [1, 2, 3, 0]), (3, [3, 0, 1, 2])] {
        let _cpu = sys.machine().enter(cpu);
        let mm = sys.new_mm().expect("memory");
        sys.set_overcommit(Overcommit::Always);
        let at = mm.mmap(Place::Any, RAM as u64, Prot::READ_WRITE);
        let at = at.expect("a hole").0;
        let thread = mm.thread();
        let mut seen = Vec::new();
        for page in 0..RAM as u64 / PAGE {
            let here = VirtAddr(at + page * PAGE);
            if thread.store(here, 1).is_err() {
                break;
            }
            let node = thread.node_at(here).expect("there");
            // At the end some comes back that waited, wherever it is.
            if !seen.contains(&node) {
                seen.push(node);
            }
        }
        assert_eq!(seen, order);
    }
    let _cpu = sys.machine().enter(0);
    sys.check_ledger(&[]).expect("adds up");
}

#[test]
fn no_store_is_lost_while_pages_move() {
    // Every era has ten million: `cargo xtask soak`.
    for name in ["atomic-pte-2004", "anon-vma-2012", "spf-2017", "linux-6.15"] {
        // On a machine that does something else, one run may move few.
        let runs = (0..10).map(|_| run(era(name).expect("an era").config, 5_000));
        let mut by_calls = 0;
        let enough = runs.into_iter().any(|moved| {
            by_calls += moved.moved - moved.followed;
            by_calls > 10 && moved.forks > 0
        });
        assert!(enough, "{name}: {by_calls} moved");
    }
}

#[test]
fn a_page_that_is_shared_moves_for_everybody_and_keeps_what_it_says() {
    for (rmap, ..) in AnonRmap::ALL {
        let config = Config {
            anon_rmap: *rmap,
            ..era("linux-4.13").expect("an era").config
        };
        let sys = boot(config);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let mapped = mm.mmap(Place::Fixed(page(0)), 8 * PAGE, Prot::READ_WRITE);
        assert_eq!(mapped, Ok(page(0)));
        let thread = mm.thread();
        for n in 0..4 {
            assert_eq!(thread.store(page(n), 10 + n), Ok(()));
        }
        let child = mm.fork().expect("memory");
        let theirs = child.thread();
        let grandchild = child.fork().expect("memory");
        for n in 0..4 {
            assert_eq!(mm.move_page(page(n), 1), Ok(()), "{rmap}");
            assert_eq!(thread.node_at(page(n)), Ok(1));
            assert_eq!(theirs.node_at(page(n)), Ok(1));
            assert_eq!(grandchild.thread().load(page(n)), Ok(10 + n));
        }
        // Still shared: a store copies.
        assert_eq!(theirs.store(page(0), 99), Ok(()));
        assert_eq!(thread.load(page(0)), Ok(10));
        // What mprotect took stays taken.
        assert_eq!(mm.mprotect(page(1), PAGE, Prot::NONE), Ok(()));
        assert_eq!(mm.move_page(page(1), 0), Ok(()));
        assert!(thread.load(page(1)).is_err());
        assert_eq!(theirs.load(page(1)), Ok(11));
        drop((thread, theirs));
        sys.check_ledger(&[&mm, &child, &grandchild])
            .unwrap_or_else(|e| panic!("{rmap}: {e}"));
    }
}

#[test]
fn a_page_of_a_file_moves_and_stays_in_its_file() {
    let sys = boot(era("linux-4.13").expect("an era").config);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let file = sys.new_file(4 * PAGE).expect("memory");
    let request = MapRequest::new(Place::Fixed(page(0)), 4 * PAGE, Prot::READ_WRITE);
    let thread = mm.thread();
    let mapped = thread.mmap_file(&request, &file, 0, Sharing::Shared);
    assert_eq!(mapped, Ok(page(0)));
    assert_eq!(thread.store(page(2), 7), Ok(()));
    assert_eq!(mm.move_page(page(2), 1), Ok(()));
    assert_eq!(thread.node_at(page(2)), Ok(1));
    assert_eq!(file.read_word(2 * PAGE), Ok(Some(7)));
    assert_eq!(file.write_word(2 * PAGE, 8), Ok(()));
    assert_eq!(thread.load(page(2)), Ok(8));
    drop(thread);
    sys.check_ledger(&[&mm]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(file.truncate(0), Ok(()));
    assert!(mm.thread().load(page(2)).is_err());
}

/// A child's copy of a page that stays its parent's own is of the node its mapping is bound to.
#[test]
fn a_childs_copy_of_a_pinned_page_comes_from_where_its_mapping_says() {
    let sys = boot(era("linux-6.15").expect("an era").config);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let mapped = mm.mmap(Place::Fixed(page(0)), 2 * PAGE, Prot::READ_WRITE);
    assert_eq!(mapped, Ok(page(0)));
    let there = Policy::new(PolicyMode::Bind, NodeMask::of(1));
    assert_eq!(mm.mbind(page(0), PAGE, there, Misplaced::Stay), Ok(()));
    let thread = mm.thread();
    let pins = [0, 1].map(|n| {
        assert_eq!(thread.store(page(n), 5 + n), Ok(()));
        mm.pin(page(n), Access::Write).expect("there")
    });
    let child = mm.fork().expect("memory");
    assert_eq!(sys.count_of(Event::ForkCopies), 2);
    let theirs = child.thread();
    for (n, node) in [(0, 1), (1, 0)] {
        assert_eq!(theirs.node_at(page(n)), Ok(node), "page {n}");
        assert_eq!(theirs.load(page(n)), Ok(5 + n));
    }
    drop((pins, theirs, thread));
    sys.check_ledger(&[&mm, &child]).expect("adds up");
}

#[test]
fn what_cannot_be_moved_is_said() {
    let sys = boot(era("linux-4.13").expect("an era").config);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let mapped = mm.mmap(Place::Fixed(page(0)), 8 * PAGE, Prot::READ_WRITE);
    assert_eq!(mapped, Ok(page(0)));
    let thread = mm.thread();
    let moved = |n, node| mm.move_page(page(n), node).map_err(Errno::from);
    assert_eq!(moved(9, 1), Err(Errno::EFAULT), "not mapped");
    assert_eq!(moved(0, 1), Err(Errno::ENOENT), "no table");
    assert_eq!(thread.load(page(1)), Ok(0));
    assert_eq!(moved(1, 1), Err(Errno::EFAULT), "zeros");
    assert_eq!(moved(0, 1), Err(Errno::ENOENT), "no page");
    assert_eq!(moved(0, 2), Err(Errno::ENODEV));
    assert_eq!(thread.store(page(0), 5), Ok(()));
    let pin = thread.pin_fast(page(0), Access::Write);
    let pin = pin.expect("exclusive and writable");
    assert_eq!(mm.move_page(page(0), 1), Err(MovePageError::Busy), "pinned");
    assert_eq!(thread.store(page(0), 6), Ok(()), "as it was");
    drop(pin);
    assert_eq!(moved(0, 1), Ok(()));
    assert_eq!(moved(0, 1), Ok(()), "there already");
    assert_eq!(thread.load(page(0)), Ok(6));
}
