//! Calls.

use super::count::{Count, Did, Each, PAGE, of, page, with};
use core::cell::{Cell, RefCell};
use minflt_addr::VirtAddr;
use minflt_mm::{
    Event, Growth, MapRequest, Place, Prot, Remap, RemapRequest, System, UffdMode, Wake,
    WriteProtected,
};
use minflt_pgtable::{Access, X86_64};
use minflt_sim::{MachineFile, RunOptions, Sim, SimInstance, Size, TaskSpec};
use minflt_sync::{Machine, TaskId};

/// Reads of nodes of the tree in an mmap that fills a hole.
const LOOKS: u64 = 6;
const ERAS: [&str; 4] = ["linux-2.6.10", "linux-4.13", "spf-2017", "linux-6.15"];

/// `mm/call/fork.rs`: for each entry a reference and a map count; where the page was exclusive, its
/// flag and an exchange of the entry; one invalidation.
#[test]
fn fork_is_two_counts_and_an_exchange_an_entry() {
    for name in ERAS {
        for (forks_before, exchanges) in [(0, 1), (1, 0)] {
            let each = Each::of(of(name), |w, pages| {
                w.map_and_touch(0, pages);
                let fork = || w.mm.fork().expect("memory");
                let before: Vec<_> = (0..forks_before).map(|_| fork()).collect();
                let mut child = None;
                let did = w.did(|| child = Some(fork()));
                assert_eq!(did.to("mm", "flushes_pending").exchanges, 2, "{did:?}");
                drop((before, child));
                did
            });
            for (field, count) in [("refs", 1), ("maps", 1), ("flags", exchanges)] {
                let added = each.adds(|did| did.to("frame", field).exchanges);
                assert_eq!(added, count, "{name}, {field}: {each:?}");
            }
            let added = each.adds(|did| did.to("pte table", "entry").exchanges);
            assert_eq!(added, exchanges, "{name}: {each:?}");
        }
    }
}

/// `mm/call/fork.rs`: pages that somebody has pinned are copied, eight under a hold of the lock of
/// their table.
#[test]
fn fork_copies_eight_pinned_pages_a_hold() {
    // The first one has one lock for all tables.
    for name in &ERAS[1..] {
        let each = Each::of(of(name), |w, eights| {
            let pages = 8 * eights;
            w.map_and_touch(0, 100);
            let pin = |n| w.mm.pin(page(n), Access::Write).expect("there");
            let pins: Vec<_> = (0..pages).map(pin).collect();
            let mut child = None;
            let did = w.did(|| child = Some(w.mm.fork().expect("memory")));
            let thread = child.as_ref().expect("forked").thread();
            (0..100).for_each(|n| assert_eq!(thread.load(page(n)), Ok(n)));
            drop(thread);
            drop((pins, child));
            did
        });
        let holds = each.adds(|did| did.lock("page-table lock of a table"));
        assert_eq!(holds, 1, "{name}: {each:?}");
    }
}

/// `mm/call/mremap/entries.rs`: one exchange and one store an entry; a table moves as one.
#[test]
fn a_page_moves_by_an_exchange_and_a_store() {
    let move_pages = |name, pages: u64, to: u64| {
        with(of(name), |w| {
            w.map_and_touch(0, 512);
            w.map_and_touch(to + 520, 1);
            w.did(|| {
                let request = RemapRequest {
                    old: page(0),
                    old_len: pages * PAGE,
                    new_len: pages * PAGE,
                    how: Remap::Fixed(page(to)),
                };
                assert_eq!(w.mm.thread().mremap(&request), Ok(page(to)));
            })
        })
    };
    for name in ERAS {
        let (one, nine) = (move_pages(name, 1, 1024), move_pages(name, 9, 1024));
        let entries = |did: &Did| did.to("pte table", "entry");
        assert_eq!(
            entries(&nine).exchanges - entries(&one).exchanges,
            8,
            "{name}: {nine:?}"
        );
        assert_eq!(
            entries(&nine).stores - entries(&one).stores,
            8,
            "{name}: {nine:?}"
        );
        let whole = move_pages(name, 512, 1024);
        assert_eq!(entries(&whole), Count::default(), "{name}");
        let above = whole.to("pmd table", "entry");
        assert_eq!(above.exchanges + above.stores, 2, "{name}: {whole:?}");
    }
}

/// `pgtable/table.rs`: a change of an entry that is there is one read-modify-write.
#[test]
fn mprotect_is_an_exchange_an_entry() {
    for name in ERAS {
        let each = Each::of(of(name), |w, pages| {
            w.map_and_touch(0, pages);
            w.did(|| {
                w.mm.mprotect(page(0), pages * PAGE, Prot::READ)
                    .expect("mapped")
            })
        });
        assert_eq!(
            each.adds(|did| did.to("pte table", "entry").exchanges),
            1,
            "{name}: {each:?}"
        );
    }
}

/// `mm/memory/commit.rs`, `mm/memory/percpu_counter.rs`, `mm/memory/rss.rs`: below the batch no
/// shared line is written.
#[test]
fn what_is_promised_and_mapped_is_counted_without_a_shared_line() {
    with(of("linux-6.15"), |w| {
        w.map_and_touch(0, 1);
        let did = w.did(|| w.map(8, 1));
        let shared = did.to("system", "commit");
        assert_eq!((shared.stores, shared.exchanges), (0, 0), "{did:?}");
        let did = w.did(|| w.touch(8));
        let shared = did.to("mm", "rss");
        assert_eq!((shared.stores, shared.exchanges), (0, 0), "{did:?}");
    });
}

/// `mm/call/userfaultfd/fill.rs`: an exchange an entry, one invalidation.
#[test]
fn filling_is_an_exchange_an_entry() {
    for name in ERAS {
        let each = Each::of(of(name), |w, pages| {
            w.map_and_touch(0, 1);
            w.map(32, 16);
            let uffd = w.mm.userfaultfd().expect("memory");
            uffd.register(page(32), 16 * PAGE, UffdMode::Both)
                .expect("mapped");
            let bytes = vec![1; pages as usize * PAGE as usize];
            let filled = uffd.copy(page(32), &bytes, WriteProtected::No, Wake::No);
            filled.expect("empty");
            w.did(|| {
                uffd.writeprotect(page(32), pages * PAGE, WriteProtected::Yes, Wake::Yes)
                    .expect("there")
            })
        });
        assert_eq!(
            each.adds(|did| did.to("pte table", "entry").exchanges),
            1,
            "{name}: {each:?}"
        );
        assert_eq!(
            each.adds(|did| did.to("mm", "flushes_pending").exchanges),
            0,
            "{name}: {each:?}"
        );
    }
}

/// `mm/fault/stack.rs`: `mmap_lock` for the fault, to look, to change, and for the fault again.
#[test]
fn a_stack_grows_under_four_holds_of_mmap_lock() {
    with(of("linux-4.13"), |w| {
        w.map_and_touch(0, 1);
        let request = MapRequest {
            growth: Growth::Down,
            ..MapRequest::new(Place::Fixed(page(2048)), 2 * PAGE, Prot::READ_WRITE)
        };
        assert_eq!(w.mm.thread().mmap(&request), Ok(page(2048)));
        w.touch(2048);
        let did = w.did(|| w.touch(2046));
        assert_eq!(did.lock("mmap_lock"), 8, "{did:?}");
        assert_eq!(did.to("per-cpu", "attrs").stores, 1, "{did:?}");
        assert!(w.sys.count_of(Event::StackGrown) > 0);
    });
}

/// `mm/space/tree/mod.rs`: a lookup reads as many nodes more as the tree has levels more; a hole is
/// made in the leaf, and no node is allocated for it.
#[test]
fn a_lookup_is_a_node_a_level_and_a_hole_takes_no_node() {
    let look = |mappings: u64| {
        with(of("linux-4.13"), |w| {
            (0..mappings).for_each(|n| w.map(4 * n, 1));
            w.touch(0);
            w.touch(4);
            let fault = w.did(|| w.touch(8));
            let middle = page(4 * (mappings / 2));
            let hole = w.did(|| w.mm.munmap(middle, PAGE).expect("mapped"));
            assert_eq!(hole.to("per-cpu", "tree nodes").stores, 0, "{hole:?}");
            fault.all("tree node").loads
        })
    };
    // A leaf has 18 places, an inner node as many children.
    let levels = [10, 200, 3000].map(look);
    let [one, two, three] = levels;
    assert_eq!(three - two, two - one, "{levels:?}");
    assert!(two - one <= 5, "{levels:?}");
}

/// `mm/space/tree/mod.rs`: what is mapped in a gap that a search has found between two of a leaf
/// fills a hole there without a look for its neighbours, and without another descent.
#[test]
fn a_mapping_between_two_of_a_leaf_is_the_search_for_its_place() {
    with(of("linux-4.13"), |w| {
        // A page is free below the highest.
        let end = VirtAddr((1 << 47) - PAGE);
        let high = VirtAddr(end.0 - 8 * PAGE);
        let mapped = w.mm.mmap(Place::Fixed(high), 8 * PAGE, Prot::NONE);
        assert_eq!(mapped, Ok(high));
        (0..6).for_each(|n| w.map(4 * n, 1));
        let mmap = || w.mm.mmap(Place::Any, PAGE, Prot::READ).expect("room");
        let first = mmap();
        assert_eq!(w.mm.munmap(first, PAGE), Ok(()));
        let mut at = None;
        let did = w.did(|| at = Some(mmap()));
        assert_eq!(at, Some(first));
        // The node and its words, the words of the two, and those that are set.
        assert_eq!(did.all("tree node").loads, LOOKS, "{did:?}");
    });
}

/// `mm/entry/shootdown.rs`: an interrupt for each other CPU that has run in the address space, and
/// call, however many pages and gaps the call has.
#[test]
fn a_call_interrupts_each_cpu_once() {
    let file = MachineFile::shipped("explorer").expect("shipped");
    let size = Size {
        cpus: 4,
        ram_bytes: 16 << 20,
        max_tasks: 1,
    };
    let machine = SimInstance::new(&file, size).expect("memory");
    let sys = System::<Sim<X86_64, false>>::boot(machine, of("linux-6.15")).expect("boots");
    let on = |cpu, body: &mut dyn FnMut()| {
        let tasks = vec![TaskSpec::new(cpu, body)];
        let report = minflt_sim::run(sys.machine(), &RunOptions::virtual_time(), tasks);
        assert!(report.outcome.is_ok(), "{}", report.outcome);
    };
    let mut mm = None;
    on(0, &mut || {
        let new = sys.new_mm().expect("memory");
        let mapped = new.mmap(Place::Fixed(page(0)), 256 * PAGE, Prot::READ_WRITE);
        assert_eq!(mapped, Ok(page(0)));
        mm = Some(new);
    });
    let space = mm.as_ref().expect("made");
    for cpu in 0..3 {
        on(cpu, &mut || {
            for n in (u64::from(cpu)..240).step_by(4) {
                assert_eq!(space.thread().store(page(n), n), Ok(()));
            }
        });
    }
    let count = || [Event::Shootdowns, Event::ShootdownTargets].map(|event| sys.count_of(event));
    let before = count();
    on(0, &mut || {
        assert_eq!(space.munmap(page(0), 240 * PAGE), Ok(()))
    });
    let [calls, targets] = count();
    assert_eq!([calls - before[0], targets - before[1]], [1, 2]);
    on(0, &mut || drop(mm.take()));
}

/// `mm/entry/shootdown.rs`: a CPU whose thread sleeps is interrupted once, and again only after it
/// has run the address space again.
#[test]
fn a_cpu_whose_thread_sleeps_is_interrupted_once() {
    let file = MachineFile::shipped("explorer").expect("shipped");
    let size = Size {
        cpus: 2,
        ram_bytes: 16 << 20,
        max_tasks: 2,
    };
    type M = Sim<X86_64, false>;
    let machine = SimInstance::new(&file, size).expect("memory");
    let sys = System::<M>::boot(machine, of("linux-6.15")).expect("boots");
    let mm = sys.new_mm().expect("memory");
    let mapped = mm.mmap(Place::Fixed(page(0)), 8 * PAGE, Prot::READ_WRITE);
    assert_eq!(mapped, Ok(page(0)));
    let (asleep, told) = (Cell::new(0), RefCell::new(Vec::new()));
    let sleeper = || {
        for round in 1..=2 {
            let thread = mm.thread();
            for n in 0..8 {
                let _gone_or_not = thread.load(page(n));
            }
            asleep.set(round);
            M::unpark(TaskId(2));
            while asleep.get() == round {
                M::park();
            }
        }
    };
    let caller = || {
        for round in 1..=2 {
            while asleep.get() != round {
                M::park();
            }
            // Until the other is really asleep.
            M::compute(100_000);
            for n in [2 * round, 2 * round + 1] {
                let before = sys.count_of(Event::ShootdownTargets);
                assert_eq!(mm.munmap(page(n), PAGE), Ok(()));
                let targets = sys.count_of(Event::ShootdownTargets) - before;
                told.borrow_mut().push(targets);
            }
            asleep.set(0);
            M::unpark(TaskId(1));
        }
    };
    let tasks = vec![TaskSpec::new(0, sleeper), TaskSpec::new(1, caller)];
    let report = minflt_sim::run(sys.machine(), &RunOptions::virtual_time(), tasks);
    assert!(report.outcome.is_ok(), "{}", report.outcome);
    assert_eq!(told.take(), [1, 0, 1, 0]);
}

/// `mm/space/tree/gaps.rs`, `mm/call/place.rs`: a place below a stack's gap is found by the words
/// of the tree, however many mappings there are.
#[test]
fn a_place_below_a_stack_is_a_path_of_the_tree() {
    let look = |mappings: u64| {
        with(of("linux-4.13"), |w| {
            let request = MapRequest {
                growth: Growth::Down,
                ..MapRequest::new(Place::Any, 32 * PAGE, Prot::READ_WRITE)
            };
            let thread = w.mm.thread();
            assert!(thread.mmap(&request).is_ok());
            for n in 0..mappings {
                let prot = [Prot::READ, Prot::READ_WRITE][n as usize % 2];
                assert!(w.mm.mmap(Place::Any, PAGE, prot).is_ok(), "{n}");
            }
            let did = w.did(|| w.mm.mmap(Place::Any, PAGE, Prot::NONE).expect("room"));
            did.all("tree node").loads
        })
    };
    let looks = [2_000, 8_000].map(look);
    // A level more, for each of the descents of a call.
    assert!(looks[1] <= looks[0] + 50, "{looks:?}");
    assert!(looks[1] < 250, "{looks:?}");
}
