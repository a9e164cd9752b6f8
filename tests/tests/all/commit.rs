//! Overcommit, `RLIMIT_AS`, `MAP_NORESERVE` and `MAP_POPULATE`: Linux's rules and error numbers.

use minflt_addr::VirtAddr;
use minflt_mm::config::{AddressSpace, CpuMasks, Reclamation};
use minflt_mm::{
    Advice, Config, ERAS, Errno, Event, MapRequest, Mm, MmapError, MprotectError, Overcommit,
    Place, Prot, Reserve, Signal, Swap, era, eras_without_migration,
};
use minflt_pgtable::Mmu;
use minflt_tests::world::{Machine, PAGE, boot, boot_on, in_each_era, machine};
use std::sync::Barrier;

fn map<M: Mmu>(mm: &Mm<M>, pages: u64, prot: Prot) -> VirtAddr {
    mm.mmap(Place::Any, pages * PAGE, prot).expect("a hole")
}

fn no_reserve(place: Place, pages: u64) -> MapRequest {
    MapRequest {
        reserve: Reserve::NoReserve,
        ..MapRequest::new(place, pages * PAGE, Prot::READ_WRITE)
    }
}

/// Pages promised, pages mapped.
fn sizes(mm: &Mm<Machine>) -> (u64, u64) {
    (mm.system().committed_pages(), mm.mapped_bytes() / PAGE)
}

#[test]
fn private_writable_mappings_are_charged_until_they_go() {
    in_each_era(3, 16 << 20, |era, _, mm| {
        let thread = mm.thread();
        let at = map(mm, 10, Prot::READ_WRITE);
        assert_eq!(sizes(mm), (10, 10), "{era}");
        let read = map(mm, 7, Prot::READ);
        let none = map(mm, 3, Prot::NONE);
        assert_eq!(sizes(mm), (10, 20), "not writable");
        let loose = thread.mmap(&no_reserve(Place::Any, 5)).expect("a hole");
        assert_eq!(sizes(mm), (10, 25), "MAP_NORESERVE");
        // To writable charges what was not charged; back gives nothing back; again is free.
        mm.mprotect(read, 2 * PAGE, Prot::READ_WRITE)
            .expect("mapped");
        assert_eq!(sizes(mm), (12, 25), "{era}: two pages of the VMA");
        mm.mprotect(read, 2 * PAGE, Prot::READ).expect("mapped");
        mm.mprotect(read, 7 * PAGE, Prot::READ_WRITE)
            .expect("mapped");
        assert_eq!(sizes(mm), (17, 25), "{era}: each page once");
        mm.mprotect(loose, 5 * PAGE, Prot::READ).expect("mapped");
        mm.mprotect(loose, 5 * PAGE, Prot::READ_WRITE)
            .expect("mapped");
        assert_eq!(sizes(mm), (17, 25), "{era}: never charged");
        // A part goes, in the middle of a VMA; then some over others.
        mm.munmap(VirtAddr(at.0 + 4 * PAGE), 3 * PAGE)
            .expect("mapped");
        assert_eq!(sizes(mm), (14, 22));
        mm.mmap(Place::Fixed(at), 10 * PAGE, Prot::READ)
            .expect("mapped over");
        assert_eq!(sizes(mm), (7, 25), "{era}");
        mm.mmap(Place::Fixed(none), 3 * PAGE, Prot::READ_WRITE)
            .expect("mapped over");
        assert_eq!(sizes(mm), (10, 25));
        let heap = mm.brk(None);
        assert_ne!(mm.brk(Some(VirtAddr(heap.0 + 5 * PAGE))), heap);
        assert_eq!(sizes(mm), (15, 30));
        mm.brk(Some(VirtAddr(heap.0 + 1)));
        assert_eq!(sizes(mm), (11, 26));
        // Touching and discarding change nothing.
        thread.store(heap, 1).expect("mapped");
        mm.madvise(heap, PAGE, Advice::DontNeed).expect("mapped");
        assert_eq!(sizes(mm), (11, 26));
    });
}

#[test]
fn the_heuristic_refuses_more_than_there_is_at_once() {
    let sys = boot(ERAS[0].config, 3, 16 << 20);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let most = sys.total_frames() - sys.reserved_bytes() / PAGE;
    let all = |pages: u64| mm.mmap(Place::Any, pages * PAGE, Prot::READ_WRITE);
    assert_eq!(sys.overcommit(), Overcommit::Heuristic, "Linux's default");
    let refused = all(most + 1).expect_err("more than there is");
    assert_eq!(refused, MmapError::Overcommit);
    assert_eq!(Errno::from(refused), Errno::ENOMEM);
    assert_eq!(sizes(&mm), (0, 0));
    // Each by itself, and again; not writable; not reserved; with swap.
    all(most).expect("obvious overcommits only");
    all(most).expect("obvious overcommits only");
    mm.mmap(Place::Any, 2 * most * PAGE, Prot::READ)
        .expect("not writable");
    let thread = mm.thread();
    thread
        .mmap(&no_reserve(Place::Any, 2 * most))
        .expect("not charged");
    sys.set_swap_pages(1);
    all(most + 1).expect("swap counts");
    assert!(all(most + 2).is_err());
    sys.set_overcommit(Overcommit::Always);
    all(10 * most).expect("everything");
    drop(thread);
    sys.check_ledger(&[&mm]).expect("adds up");
}

#[test]
fn what_never_overcommits_keeps_its_limit_in_every_call() {
    in_each_era(3, 16 << 20, |era, sys, mm| {
        let thread = mm.thread();
        sys.set_overcommit(Overcommit::Never);
        let half = sys.commit_limit();
        sys.set_overcommit_ratio(0);
        sys.set_swap_pages(20);
        assert_eq!(sys.commit_limit(), 20, "{era}");
        // The sum has to stay below the limit.
        let refused = mm.mmap(Place::Any, 20 * PAGE, Prot::READ_WRITE);
        assert_eq!(refused, Err(MmapError::Overcommit), "{era}");
        let at = VirtAddr(1 << 32);
        mm.mmap(Place::Fixed(at), 10 * PAGE, Prot::READ_WRITE)
            .expect("it fits");
        thread.store(at, 7).expect("mapped");
        assert_eq!(
            thread.mmap(&no_reserve(Place::Any, 10)),
            Err(MmapError::Overcommit),
            "{era}: MAP_NORESERVE is ignored"
        );
        thread.mmap(&no_reserve(Place::Any, 2)).expect("it fits");
        assert_eq!(sizes(mm), (12, 12), "{era}: and is charged");
        // mprotect: what would be too much stays as it was.
        let read = map(mm, 10, Prot::READ);
        let refused = mm.mprotect(read, 8 * PAGE, Prot::READ_WRITE);
        assert_eq!(refused, Err(MprotectError::Overcommit));
        assert_eq!(refused.map_err(Errno::from), Err(Errno::ENOMEM));
        assert_eq!(thread.store(read, 1), Err(Signal::AccErr), "{era}");
        mm.mprotect(read, 7 * PAGE, Prot::READ_WRITE)
            .expect("it fits");
        assert_eq!(sizes(mm), (19, 22), "{era}");
        // brk and fork.
        let heap = mm.brk(None);
        assert_eq!(mm.brk(Some(VirtAddr(heap.0 + 1))), heap, "{era}");
        assert!(mm.fork().is_err(), "{era}");
        assert_eq!(sizes(mm), (19, 22), "{era}: nothing stays promised");
        // Mapped over, only what comes on top is asked for; refused, what was there stays.
        let larger = mm.mmap(Place::Fixed(at), 11 * PAGE, Prot::READ_WRITE);
        assert_eq!(larger, Err(MmapError::Overcommit), "{era}");
        assert_eq!(thread.load(at), Ok(7), "{era}");
        mm.mmap(Place::Fixed(at), 10 * PAGE, Prot::READ_WRITE)
            .expect("the same again");
        assert_eq!(thread.load(at), Ok(0), "{era}");
        // What is given back can be promised again, and more with a part of memory.
        mm.munmap(at, 10 * PAGE).expect("mapped");
        let again = map(mm, 10, Prot::READ_WRITE);
        mm.munmap(again, 10 * PAGE).expect("mapped");
        sys.set_overcommit_ratio(50);
        assert_eq!(sys.commit_limit(), half + 20);
        map(mm, half, Prot::READ_WRITE);
        assert!(mm.mmap(Place::Any, 12 * PAGE, Prot::READ_WRITE).is_err());
        sys.set_overcommit(Overcommit::Heuristic);
    });
}

#[test]
fn an_address_space_keeps_its_size_within_its_limit() {
    in_each_era(3, 16 << 20, |era, _, mm| {
        let thread = mm.thread();
        assert_eq!(mm.limit_as(), u64::MAX);
        // Half a page more than ten pages are ten pages.
        mm.set_limit_as(10 * PAGE + PAGE / 2);
        let at = VirtAddr(1 << 32);
        mm.mmap(Place::Fixed(at), 6 * PAGE, Prot::NONE)
            .expect("free");
        let refused = mm.mmap(Place::Any, 5 * PAGE, Prot::READ);
        assert_eq!(refused, Err(MmapError::Limit), "{era}");
        assert_eq!(refused.map_err(Errno::from), Err(Errno::ENOMEM));
        assert_eq!(
            thread.mmap(&no_reserve(Place::Any, 5)),
            Err(MmapError::Limit)
        );
        let heap = mm.brk(None);
        let to = |pages: u64| VirtAddr(heap.0 + pages * PAGE);
        assert_eq!(mm.brk(Some(to(5))), heap, "{era}: brk");
        assert_eq!(mm.brk(Some(to(3))), to(3));
        // In place of what is there nothing is added; one page more just fits, two do not.
        let fixed = |pages: u64| mm.mmap(Place::Fixed(at), pages * PAGE, Prot::READ);
        assert_eq!(fixed(8), Err(MmapError::Limit), "{era}");
        assert_eq!(fixed(7), Ok(at));
        assert_eq!(mm.brk(Some(to(4))), to(3), "{era}: full");
        // A lower limit takes nothing away; neither protecting nor unmapping asks for it.
        mm.set_limit_as(0);
        assert_eq!(mm.mapped_bytes(), 10 * PAGE);
        mm.mprotect(at, PAGE, Prot::READ_WRITE).expect("mapped");
        assert_eq!(thread.store(at, 1), Ok(()));
        mm.munmap(at, 7 * PAGE).expect("mapped");
        assert_eq!(mm.brk(Some(heap)), heap);
        assert_eq!(sizes(mm), (0, 0), "{era}");
        assert_eq!(fixed(1), Err(MmapError::Limit));
    });
}

#[test]
fn fork_owes_a_charge_for_each_accounted_vma_and_hands_on_heap_and_limit() {
    in_each_era(3, 16 << 20, |era, _, mm| {
        let heap = mm.brk(None);
        let end = VirtAddr(heap.0 + 3 * PAGE + 9);
        assert_eq!(mm.brk(Some(end)), end);
        mm.set_limit_as(1 << 30);
        let thread = mm.thread();
        thread.mmap(&no_reserve(Place::Any, 2)).expect("a hole");
        assert_eq!(sizes(mm), (4, 6), "{era}");
        let child = mm.fork().expect("it fits");
        assert_eq!((child.brk(None), child.limit_as()), (end, 1 << 30), "{era}");
        assert_eq!(sizes(&child), (4 + 4, 6), "{era}");
        drop(child);
        assert_eq!(sizes(mm), (4, 6), "{era}");
    });
}

/// Threads map until they are refused, all at once: the sum stays below the limit, and what is
/// given back on one CPU was charged on another.
#[test]
fn threads_together_do_not_promise_more_than_the_limit() {
    const LIMIT: u64 = 500;
    for era in eras_without_migration() {
        let sys = boot(era.config, 3, 16 << 20);
        sys.set_overcommit(Overcommit::Never);
        sys.set_overcommit_ratio(0);
        sys.set_swap_pages(LIMIT);
        let looker = sys.machine().enter(2);
        let mm = sys.new_mm().expect("memory");
        let barrier = Barrier::new(3);
        let before = sys.count_of(Event::Mmap);
        drop(looker);
        std::thread::scope(|scope| {
            for cpu in 0..2u32 {
                let (mm, sys, barrier) = (&mm, &sys, &barrier);
                scope.spawn(move || {
                    for round in 0..20 {
                        let size = 1 + (round * 7 + u64::from(cpu)) % 13;
                        let entered = sys.machine().enter(cpu);
                        let more = || mm.mmap(Place::Any, size * PAGE, Prot::READ_WRITE);
                        while more().is_ok() {}
                        drop(entered);
                        barrier.wait();
                        barrier.wait();
                    }
                });
            }
            for _round in 0..20 {
                barrier.wait();
                let _cpu = sys.machine().enter(2);
                let sum = sys.committed_pages();
                assert!(sum < LIMIT, "{}: {sum}", era.name);
                // One call's promise, seen by the other, and a part on its way, seen twice.
                assert!(sum + 2 * (13 + 32) >= LIMIT, "{}: {sum}", era.name);
                let mut mapped = Vec::new();
                mm.for_each_mapping(|range, _| mapped.push(range));
                for range in mapped {
                    mm.munmap(range.start(), range.len()).expect("mapped");
                }
                assert_eq!(sys.committed_pages(), 0, "{}", era.name);
                barrier.wait();
            }
        });
        let _cpu = sys.machine().enter(0);
        assert!(sys.count_of(Event::Mmap) > before + 40);
        sys.check_ledger(&[&mm]).expect("adds up");
        drop(mm);
    }
}

/// In arenas each CPU counts by itself, and what it has not handed on is at most a few VMAs; the
/// limit is met exactly, and sizes are sums.
#[test]
fn the_number_of_mappings_is_exact_at_its_limit_in_arenas() {
    const LIMIT: u64 = 100;
    let config = Config {
        address_space: AddressSpace::Arenas,
        cpu_masks: CpuMasks::Arenas,
        reclamation: Reclamation::RcuBatched,
        ..era("spf-2017").expect("an era").config
    };
    let sys = boot_on::<Machine>(machine(4, 16 << 20), config, Swap::None);
    sys.set_max_map_count(LIMIT);
    let boot = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let two = [mm.thread(), mm.thread()];
    drop(boot);
    let mut mapped = Vec::new();
    let (mut pages, mut refused) = (0, 0);
    for n in 0..2 * LIMIT {
        let _cpu = sys.machine().enter((n % 4) as u32);
        // Neighbours that do not merge, in an arena or, near the limit, in one for all CPUs.
        let prots = [Prot::READ, Prot::NONE, Prot::READ.with(Prot::EXEC)];
        let prot = prots[((n + n / 4) % 3) as usize];
        match mm.mmap(Place::Any, (1 + n % 3) * PAGE, prot) {
            Ok(at) => {
                mapped.push((at, 1 + n % 3));
                pages += 1 + n % 3;
            }
            Err(why) => {
                assert_eq!(why, MmapError::NoMemory);
                refused += 1;
            }
        }
        assert_eq!(mm.mapped_bytes(), pages * PAGE);
    }
    assert!(mm.is_divided());
    // Linux: one more than the limit, since mmap compares before it counts.
    assert_eq!((mapped.len() as u64, refused), (LIMIT + 1, LIMIT - 1));
    // Another CPU unmaps them: its own count goes below zero.
    let _cpu = sys.machine().enter(3);
    for (at, len) in mapped {
        assert_eq!(mm.munmap(at, len * PAGE), Ok(()));
    }
    assert_eq!(mm.mapped_bytes(), 0);
    drop(two);
    drop(mm);
    sys.check_ledger(&[]).expect("nothing is left");
}
