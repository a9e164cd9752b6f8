//! Memory with holes, a touch of which ends the process.

#![expect(
    clippy::single_range_in_vec_init,
    reason = "one hole is a list of holes, too"
)]

use super::{M, kernel_pages::frames};
use crate::{Host, HostInstance, HostOptions, Prefault};
use core::ops::Range;
use minflt_addr::{Pfn, VirtAddr};
use minflt_mm::{
    BootError, Gfp, MmapError, MovePageError, Place, Prot, Running, Swap, System, era,
};
use minflt_pgtable::{Aarch64K64, Mmu};
use minflt_sync::Instance;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Bytes of RAM, holes included.
const SPAN: u64 = 48 * MIB;

/// At odd places: blocks end before their size is full.
const SEVERAL: [Range<u64>; 3] = [
    9 * MIB + 3 * PAGE..12 * MIB,
    12 * MIB + 5 * PAGE..20 * MIB - PAGE,
    44 * MIB..SPAN,
];

fn machine(cpus: u32, nodes: u32, holes: &[Range<u64>]) -> HostInstance {
    let options = HostOptions {
        cpus,
        ram_bytes: SPAN as usize,
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).unwrap();
    machine.with_nodes(nodes).with_holes(holes)
}

fn boot(nodes: u32, holes: &[Range<u64>]) -> Running<M> {
    let config = era("best").unwrap().config;
    System::boot(machine(4, nodes, holes), config).unwrap()
}

fn within(pfn: Pfn, ranges: &[Range<u64>]) -> bool {
    ranges.iter().any(|range| range.contains(&(pfn.0 * PAGE)))
}

fn pages(ranges: &[Range<u64>]) -> u64 {
    ranges
        .iter()
        .map(|range| range.end - range.start)
        .sum::<u64>()
        / PAGE
}

/// Takes all frames there are as the kernel's, in the largest runs, and stores to each.
fn take_all(sys: &System<M>) -> Vec<Pfn> {
    let mut all = Vec::new();
    for order in (0..=minflt_mm::MAX_PAGE_ORDER).rev() {
        while let Ok(run) = sys.alloc_pages(order, Gfp::Kernel) {
            for pfn in frames(&run) {
                M::user_store(sys.machine(), pfn, 0, pfn.0);
                all.push(pfn);
            }
            let _leaked = run.into_raw();
        }
    }
    all
}

#[test]
fn all_memory_is_used_and_no_hole() {
    let nodes_and_holes: [(u32, &[Range<u64>]); 5] = [
        (1, &SEVERAL),
        (2, &SEVERAL),
        // The second node begins in a hole.
        (2, &[20 * MIB..30 * MIB]),
        // The second of three is one.
        (3, &[15 * MIB..33 * MIB]),
        // And the last, to the end.
        (3, &[31 * MIB..SPAN]),
    ];
    for (nodes, holes) in nodes_and_holes {
        let sys = boot(nodes, holes);
        let _cpu = sys.machine().enter(0);
        let before = sys.check_ledger(&[]).unwrap();
        assert_eq!(before.total, SPAN / PAGE);
        assert_eq!(before.absent, pages(holes), "{nodes} nodes, {holes:?}");
        assert_eq!(before.free, before.total - before.absent - before.reserved);
        let all = take_all(&sys);
        assert_eq!(all.len() as u64, before.free, "{nodes} nodes, {holes:?}");
        for pfn in &all {
            assert!(!within(*pfn, holes), "frame {pfn} of a hole, {nodes} nodes");
            assert_eq!(M::user_load(sys.machine(), *pfn, 0), pfn.0);
        }
        let after = sys.check_ledger(&[]).unwrap();
        assert_eq!((after.free, after.kernel), (0, before.free));
    }
}

/// The control: without holes those frames are found, so that looking for them says something.
#[test]
fn without_holes_those_frames_are_used() {
    let sys = boot(1, &[]);
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.check_ledger(&[]).unwrap().absent, 0);
    let all = take_all(&sys);
    let found = all.iter().filter(|pfn| within(**pfn, &SEVERAL)).count();
    assert_eq!(found as u64, pages(&SEVERAL));
}

/// Programs until memory is out, and what comes back merges around the holes.
#[test]
fn programs_run_among_holes() {
    for nodes in [1, 2] {
        let sys = boot(nodes, &SEVERAL);
        let _cpu = sys.machine().enter(0);
        let largest = |sys: &System<M>| {
            let runs = core::iter::from_fn(|| sys.alloc_pages(10, Gfp::Kernel).ok());
            runs.collect::<Vec<_>>().len()
        };
        let before = largest(&sys);
        for _ in 0..2 {
            let mm = sys.new_mm().unwrap();
            // What is in holes may not be promised.
            let too_much = mm.mmap(Place::Any, SPAN - pages(&SEVERAL) * PAGE, Prot::READ_WRITE);
            assert_eq!(too_much, Err(MmapError::Overcommit));
            let len = sys.check_ledger(&[&mm]).unwrap().free * PAGE;
            let at = mm.mmap(Place::Any, len, Prot::READ_WRITE).unwrap();
            let page = |n| VirtAddr(at.0 + n * PAGE);
            let thread = mm.thread();
            let mut touched = 0;
            while thread.store(page(touched), touched).is_ok() {
                touched += 1;
            }
            for n in 0..touched {
                assert_eq!(thread.load(page(n)), Ok(n));
            }
            drop(thread);
            let ledger = sys.check_ledger(&[&mm]).unwrap();
            assert_eq!(ledger.free, 0, "all is used");
            assert!(ledger.anon >= touched);
            drop(mm);
            sys.check_ledger(&[]).unwrap();
        }
        assert!(largest(&sys) + 2 >= before);
        // Offlining goes by numbers, also of frames that are not there.
        for pfn in 0..sys.total_frames() {
            assert_eq!(sys.move_frame(Pfn(pfn), 0), Err(MovePageError::NotThere));
        }
        sys.clear_free_frames();
    }
}

#[test]
fn a_range_that_is_not_whole_pages_is_refused() {
    type Wide = Host<Aarch64K64, true>;
    let config = era("best").unwrap().config;
    let hole = 10 * MIB + PAGE..12 * MIB;
    let refused = System::<Wide>::boot(machine(1, 1, core::slice::from_ref(&hole)), config);
    let range = BootError::BadRange {
        start: 0,
        end: hole.start,
    };
    assert_eq!(refused.err(), Some(range));
    // The same hole, of whole pages.
    let hole = 10 * MIB..12 * MIB;
    let sys = System::<Wide>::boot(machine(1, 1, core::slice::from_ref(&hole)), config).unwrap();
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.check_ledger(&[]).unwrap().absent, 32);
}

#[test]
fn the_first_range_holds_the_system() {
    let config = era("best").unwrap().config;
    let small = [64 * PAGE..40 * MIB];
    let refused = System::<M>::boot(machine(1, 1, &small), config).err();
    let Some(BootError::TooSmall { has, needs }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(has, 64 * PAGE);
    // It says how much would do.
    let enough = [needs..40 * MIB];
    System::<M>::boot(machine(1, 1, &enough), config).unwrap();
    let swap = Swap::Memory { pages: 16 };
    let refused = System::<M>::boot_with_swap(machine(1, 1, &enough), config, swap);
    assert_eq!(refused.err(), Some(BootError::SwapAmongHoles));
    assert_eq!(machine(1, 1, &enough).ram().bytes as u64, SPAN);
}
