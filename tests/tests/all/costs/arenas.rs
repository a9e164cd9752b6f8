//! Locks and lines of an address space in arenas.

use super::count::{Did, PAGE, of, with};
use minflt_mm::config::AddressSpace;
use minflt_mm::{Config, Place, Prot};

fn in_arenas(address_space: AddressSpace) -> Config {
    Config {
        address_space,
        ..of("spf-2017")
    }
}

/// Read-modify-writes of `mmap_lock`, be it of an arena, and of the lock outside of arenas.
fn locks(did: &Did) -> [u64; 2] {
    ["mmap_lock", "arenas lock"].map(|class| did.lock(class))
}

/// `mm/space/arenas`, `sync/rwsem/set.rs`: with two threads, mmap and munmap each take and release
/// the lock of one arena; a call over several takes the outer one as well, and that of each arena
/// there is.
#[test]
fn a_call_takes_the_locks_of_its_arenas() {
    with(in_arenas(AddressSpace::Arenas), |w| {
        let map = || {
            let mapped = w.mm.mmap(Place::Any, PAGE, Prot::READ_WRITE);
            mapped.expect("room")
        };
        let one = w.mm.thread();
        let first = map();
        assert!(!w.mm.is_divided(), "it has one thread");
        let two = w.mm.thread();
        let second = map();
        assert!(w.mm.is_divided());
        assert!(second.0.abs_diff(first.0) > 1 << 35, "in another arena");
        let mut third = second;
        let mapping = w.did(|| third = map());
        assert_eq!(third.0, second.0 - PAGE);
        assert_eq!(locks(&mapping), [2, 0], "{mapping:?}");
        let unmapping = w.did(|| w.mm.munmap(third, PAGE).expect("mapped"));
        assert_eq!(locks(&unmapping), [2, 0], "{unmapping:?}");
        // From one mapping to the other there are two arenas in use.
        let (low, high) = (second.min(first), second.max(first));
        let all = w.did(|| w.mm.munmap(low, high.0 - low.0 + PAGE).expect("mapped"));
        assert_eq!(locks(&all), [4, 2], "{all:?}");
        drop((one, two));
    });
}

/// `mm/call/place.rs`: the stack of another thread is not where this CPU maps its own, and so its
/// CPU is not asked for what this one unmaps.
#[test]
fn a_stack_is_in_no_arena_of_a_cpu() {
    with(in_arenas(AddressSpace::Arenas), |w| {
        let _two = (w.mm.thread(), w.mm.thread());
        let map = |place| w.mm.mmap(place, PAGE, Prot::READ_WRITE).expect("room");
        let [own, stack] = [Place::Any, Place::Stack].map(map);
        assert!(w.mm.is_divided());
        assert_eq!(stack.0 >> 35, (own.0 >> 35) + 1, "{own:?} {stack:?}");
    });
}

/// `mm/space/arenas`: as long as it is not divided, it takes the locks that it takes without any.
#[test]
fn one_thread_takes_what_it_takes_without_arenas() {
    let [whole, undivided] = [AddressSpace::Whole, AddressSpace::Arenas].map(|choice| {
        with(in_arenas(choice), |w| {
            let mapped = w.mm.mmap(Place::Any, PAGE, Prot::READ_WRITE).expect("room");
            let did = w.did(|| {
                let again = w.mm.mmap(Place::Any, PAGE, Prot::READ).expect("room");
                w.mm.munmap(again, PAGE).expect("mapped");
            });
            (mapped, did.exchanges(), locks(&did))
        })
    });
    assert_eq!(whole, undivided);
}

/// `mm/space/arenas/trees.rs`: who unmaps the only page of an arena and maps the next one there
/// takes the lock of the leaf table only, as the tables over it stay.
#[test]
fn the_only_page_of_an_arena_comes_and_goes_without_its_tables() {
    with(in_arenas(AddressSpace::Arenas), |w| {
        let (one, two) = (w.mm.thread(), w.mm.thread());
        let round = || {
            let page = w.mm.mmap(Place::Any, PAGE, Prot::READ_WRITE).expect("room");
            one.store(page, 1).expect("mapped");
            w.mm.munmap(page, PAGE).expect("mapped");
        };
        round();
        assert!(w.mm.is_divided());
        round();
        let did = w.did(round);
        assert_eq!(did.lock("page-table lock of a table"), 2, "{did:?}");
        drop(two);
    });
}
