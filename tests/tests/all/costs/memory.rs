//! Objects, and what of them only some files have.

use super::count::{M, PAGE, World, of, page, with};
use minflt_mm::config::Zones;
use minflt_mm::{Advice, Config, Event, MapRequest, Place, Prot, Sharing, Signal, Swap};
use minflt_tests::world::{boot_on, machine};

/// `sync/slab.rs`: one lock for each batch of objects, or for each page of new ones.
#[test]
fn objects_are_taken_by_the_batch() {
    let did = with(of("linux-4.13"), |w| {
        w.map(0, 2);
        w.did(|| (1..161).for_each(|n| w.map(4 * n, 1)))
    });
    let objects = ["vmas", "tree nodes"].map(|what| did.to("per-cpu", what).stores);
    assert!(objects[0] >= 160, "{did:?}");
    let all: u64 = objects.iter().sum();
    assert!(did.lock("slab lock") <= all / 16, "{did:?}");
}

/// `mm/pages/segments/mod.rs`: a file that is no segment's pays a load when a mapping of it goes.
#[test]
fn a_file_that_is_no_segment_pays_a_load() {
    let did = with(of("linux-6.15"), |w| {
        let file = w.sys.new_file(4 * PAGE).expect("memory");
        let request = MapRequest::new(Place::Fixed(page(0)), 4 * PAGE, Prot::READ);
        let thread = w.mm.thread();
        let mapped = thread.mmap_file(&request, &file, 0, Sharing::Shared);
        assert_eq!(mapped, Ok(page(0)));
        drop(thread);
        w.did(|| w.mm.munmap(page(0), 4 * PAGE).expect("mapped"))
    });
    assert_eq!(did.to("file", "segment").loads, 1, "{did:?}");
    assert_eq!(did.all("segment").loads, 0, "{did:?}");
}

/// A file in memory is in memory: asking for it looks at none of its pages.
#[test]
fn willneed_of_a_file_in_memory_is_no_work_for_each_page() {
    let bytes = 1 << 40;
    let did = with(of("linux-6.15"), |w| {
        let file = w.sys.new_file(bytes).expect("memory");
        let request = MapRequest::new(Place::Fixed(page(0)), bytes, Prot::READ);
        let thread = w.mm.thread();
        let mapped = thread.mmap_file(&request, &file, 0, Sharing::Shared);
        assert_eq!(mapped, Ok(page(0)));
        let did = w.did(|| {
            thread
                .madvise(page(0), bytes, Advice::WillNeed)
                .expect("mapped")
        });
        drop(thread);
        assert_eq!(w.mm.munmap(page(0), bytes), Ok(()));
        did
    });
    assert_eq!(did.all("page cache node").loads, 0, "{did:?}");
    assert!(did.to("file", "index").loads < 4, "{did:?}");
}

/// `sync/rcu.rs`: a grace period that another CPU holds up, here an idle one, is polled at each
/// kernel exit, and the polls write no line that all CPUs share.
#[test]
fn polls_of_a_grace_period_write_no_shared_line() {
    for name in ["linux-6.4", "linux-6.15"] {
        const ROUNDS: u64 = 256;
        let did = with(of(name), |w| {
            let round = || {
                w.map_and_touch(0, 1);
                w.mm.munmap(page(0), PAGE).expect("mapped");
            };
            (0..ROUNDS).for_each(|_| round());
            w.did(|| (0..ROUNDS).for_each(|_| round()))
        });
        let shared = did.to("system", "rcu").exchanges;
        assert!(shared <= ROUNDS / 2, "{name}: {shared} in {ROUNDS} rounds");
    }
}

/// `mm/memory/alloc/mod.rs`: CPUs that free as much as they take go to the zone for batches, though
/// all of its memory is in single pages; and once their lists are as long as a round, not at all.
#[test]
fn rounds_of_unmapping_hold_the_zone_for_batches_only() {
    const CPUS: u32 = 4;
    const ROUND: u64 = 128;
    const ROUNDS: u64 = 64;
    let sys = boot_on::<M>(machine(CPUS, 64 << 20), of("linux-6.15"), Swap::None);
    let holds = {
        let first = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let world = World { sys: &sys, mm: &mm };
        let all = 12 << 10;
        world.map_and_touch(0, all);
        for n in (0..all).step_by(2) {
            mm.munmap(page(n), PAGE).expect("mapped");
        }
        sys.drain_deferred();
        drop(first);
        let rounds = |cpu| {
            let _cpu = sys.machine().enter(cpu);
            let round = || {
                let first = all + u64::from(cpu) * ROUND;
                world.map_and_touch(first, ROUND);
                mm.munmap(page(first), ROUND * PAGE).expect("mapped");
            };
            let did = world.did(|| (0..ROUNDS).for_each(|_| round()));
            did.lock("zone lock")
        };
        let holds: u64 = std::thread::scope(|scope| {
            let rounds = &rounds;
            let all: Vec<_> = (0..CPUS)
                .map(|cpu| scope.spawn(move || rounds(cpu)))
                .collect();
            all.into_iter().map(|one| one.join().expect("ends")).sum()
        });
        let _first = sys.machine().enter(0);
        drop(mm);
        holds
    };
    let _first = sys.machine().enter(0);
    sys.check_ledger(&[]).expect("nothing is left");
    let faults = u64::from(CPUS) * ROUNDS * ROUND;
    assert!(
        holds * 100 <= faults,
        "{holds} holds of the zone's lock in {faults} faults"
    );
}

/// `mm/memory/alloc/runs.rs`: a round of many more pages than a list holds goes to the zone hardly
/// ever where CPUs keep runs, though tables lie between the pages; elsewhere for each batch.
#[test]
fn rounds_longer_than_a_list_stay_in_runs_of_the_cpu() {
    const ROUND: u64 = 2048;
    const ROUNDS: u64 = 16;
    let holds = |zones| {
        let config = Config {
            zones,
            ..of("linux-6.15")
        };
        let sys = boot_on::<M>(machine(4, 512 << 20), config, Swap::None);
        let cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let world = World { sys: &sys, mm: &mm };
        let round = || {
            world.map_and_touch(0, ROUND);
            mm.munmap(page(0), ROUND * PAGE).expect("mapped");
        };
        round();
        let did = world.did(|| (0..ROUNDS).for_each(|_| round()));
        drop(mm);
        sys.check_ledger(&[]).expect("nothing is left");
        drop(cpu);
        did.lock("zone lock")
    };
    let (runs, none) = (holds(Zones::PerCpuGroup), holds(Zones::PerNode));
    let batches = ROUNDS * ROUND / 64;
    assert!(runs <= 2 * ROUNDS, "{runs} holds in {ROUNDS} rounds");
    assert!(none >= batches / 2, "{none} holds for {batches} batches");
}

/// The same module: memory that other CPUs keep is found before there is none.
#[test]
fn runs_of_other_cpus_are_found_before_memory_is_short() {
    let touched = |zones| {
        let config = Config {
            zones,
            ..of("linux-6.15")
        };
        let sys = boot_on::<M>(machine(2, 64 << 20), config, Swap::None);
        let mm = {
            let _cpu = sys.machine().enter(1);
            let mm = sys.new_mm().expect("memory");
            let world = World { sys: &sys, mm: &mm };
            world.map_and_touch(0, 4096);
            mm.munmap(page(0), 4096 * PAGE).expect("mapped");
            mm
        };
        let _cpu = sys.machine().enter(0);
        let all = (64 << 20) / PAGE;
        let world = World { sys: &sys, mm: &mm };
        (0..all).step_by(512).for_each(|n| world.map(n, 512));
        let thread = mm.thread();
        let stores = (0..all).map(|n| thread.store(page(n), n));
        let pages = stores.take_while(Result::is_ok).count();
        drop(thread);
        drop(mm);
        sys.check_ledger(&[]).expect("nothing is left");
        pages
    };
    let (runs, none) = (touched(Zones::PerCpuGroup), touched(Zones::PerNode));
    assert!(runs > 8192, "{runs} pages");
    // What is left of the other CPU's list and block is not found.
    assert!(runs.abs_diff(none) <= 1024, "{runs} and {none}");
}

/// `mm/pages/reclaim/mod.rs`: one who finds no memory has looked at each frame eight times at most.
#[test]
fn a_search_in_vain_looks_at_each_frame_eight_times() {
    let machine = machine(1, 8 << 20);
    let full = Swap::Memory { pages: 1 };
    let sys = boot_on::<M>(machine, of("linux-6.15"), full);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let world = World { sys: &sys, mm: &mm };
    let all = (8 << 20) / PAGE;
    // No mapping is larger than memory.
    (0..all).step_by(512).for_each(|n| world.map(n, 512));
    let thread = mm.thread();
    let touched = (0..all).map(|n| thread.store(page(n), n));
    let found = touched.take_while(Result::is_ok).count() as u64;
    assert!(found > all / 2, "{found} of {all} pages found a frame");
    let before = sys.count_of(Event::ReclaimScanned);
    assert_eq!(thread.store(page(all - 1), 0), Err(Signal::OutOfMemory));
    let looks = sys.count_of(Event::ReclaimScanned) - before;
    assert!(looks > 0 && looks <= 8 * all, "{looks} at {all} frames");
}
