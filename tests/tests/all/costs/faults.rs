//! Faults.

use super::count::{Did, Each, M, PAGE, World, of, page, with};
use minflt_mm::config::{AnonVmaPreparation, FaultAround, Linking};
use minflt_mm::{
    Config, Event, FileHandle, MapRequest, Misplaced, NodeMask, Place, Policy, PolicyMode, Prot,
    Sharing,
};

/// `mm/space/vma_lock.rs`: two exchanges on the VMA's line, and none on another lock's but the
/// table's.
#[test]
fn a_fault_under_the_vma_lock_is_two_exchanges_on_the_vma() {
    for name in ["linux-6.4", "linux-6.15"] {
        let did = with(of(name), |w| {
            w.map_and_touch(0, 2);
            w.map(8, 2);
            w.touch(8);
            w.did(|| w.touch(9))
        });
        assert_eq!(did.lock("VMA lock"), 2, "{name}: {did:?}");
        assert_eq!(did.lock("mmap_lock"), 0, "{name}: {did:?}");
        assert_eq!(did.lock("page-table lock of a table"), 1, "{name}: {did:?}");
        assert_eq!(
            did.exchanges() - did.to("per-cpu", "rss").exchanges,
            3,
            "{name}: {did:?}"
        );
    }
}

/// `mm/entry/slot.rs`: what a speculative fault looks at more than one under `mmap_lock`.
#[test]
fn opening_speculatively_is_two_looks_at_the_vma_and_one_at_the_table_entry() {
    let fault = |name| {
        with(of(name), |w| {
            w.map_and_touch(0, 2);
            w.map(8, 2);
            w.touch(8);
            w.did(|| w.touch(9))
        })
    };
    let (spf, locked) = (fault("spf-2017"), fault("linux-4.13"));
    assert_eq!(spf.to("vma", "seq").loads, 3, "one when it begins: {spf:?}");
    assert_eq!(locked.to("vma", "seq").loads, 0, "{locked:?}");
    let entries = |did: &Did| did.to("pmd table", "entry").loads;
    assert_eq!(entries(&spf), entries(&locked) + 1);
}

/// `mm/pages/rmap/anon_vma.rs`: the first fault of a mapping takes the root's lock, no other does.
#[test]
fn only_the_first_fault_of_a_mapping_takes_the_anon_vma_lock() {
    for name in ["linux-2.6.10", "linux-4.13", "spf-2017", "linux-6.15"] {
        with(of(name), |w| {
            w.map(0, 4);
            let first = w.did(|| w.touch(0));
            assert!(first.lock("anon_vma lock") > 0, "{name}: {first:?}");
            let second = w.did(|| w.touch(1));
            assert_eq!(second.lock("anon_vma lock"), 0, "{name}: {second:?}");
        });
    }
}

/// `mm/pages/rmap/prepare.rs`: a first fault that prepares the anon_vma in its own lock mode does
/// not fall back, and takes each lock once.
#[test]
fn one_first_fault_prepares_the_anon_vma_without_falling_back() {
    for name in ["spf-2017", "linux-6.15"] {
        let first = |anon_vma_preparation| {
            let mut config = of(name);
            if config.fallback_order.speculates() {
                config.linking = Linking::EveryParent;
            }
            let config = Config {
                anon_vma_preparation,
                ..config
            };
            with(config, |w| {
                w.map(0, 4);
                let did = w.did(|| w.touch(0));
                let failed = [
                    Event::SpeculativeFailed,
                    Event::VmaLockAbort,
                    Event::VmaLockRetry,
                ];
                let failed = failed.map(|event| w.sys.count_of(event));
                (failed.iter().sum::<u64>(), did)
            })
        };
        let (fell, each) = first(AnonVmaPreparation::EachFault);
        assert_eq!(fell, 1, "{name}: {each:?}");
        let (fell, one) = first(AnonVmaPreparation::OneFault);
        assert_eq!(fell, 0, "{name}: {one:?}");
        for lock in ["mmap_lock", "page_table_lock", "anon_vma lock"] {
            assert_eq!(one.lock(lock), each.lock(lock), "{name}, {lock}: {one:?}");
        }
    }
}

/// `mm/memory/lifetime.rs`: what a fault's way out of the kernel looks at.
#[test]
fn kernel_exit_looks_at_what_its_scheme_says() {
    let fault = |name| {
        with(of(name), |w| {
            w.map_and_touch(0, 1);
            w.map(1, 2);
            w.did(|| w.touch(1))
        })
    };
    for (name, here, shared) in [
        ("linux-4.13", 0, 0),
        ("spf-2017", 2, 0),
        ("linux-6.15", 0, 1),
    ] {
        let did = fault(name);
        assert_eq!(did.to("system", "rcu").loads, shared, "{name}: {did:?}");
        assert_eq!(did.to("system", "rcu").exchanges, 0, "{name}: {did:?}");
        assert_eq!(did.to("system", "srcu").exchanges, 0, "{name}: {did:?}");
        assert_eq!(
            did.to("per-cpu", "srcu").exchanges,
            here,
            "a reader's: {name}: {did:?}"
        );
    }
}

/// `mm/fault/userfault.rs`, `mm/call/mlock/mod.rs`, `mm/call/pin.rs`: what faults that are not
/// concerned do not look at.
#[test]
fn a_fault_reads_nothing_of_watchers_locks_and_pins() {
    for name in ["linux-2.6.10", "linux-4.13", "spf-2017", "linux-6.15"] {
        with(of(name), |w| {
            w.map(0, 4);
            w.touch(0);
            let did = w.did(|| w.touch(1));
            for field in ["uffd", "locks", "pins"] {
                assert_eq!(did.to("mm", field).loads, 0, "{name}, {field}: {did:?}");
            }
            assert_eq!(did.all("userfaultfd").loads, 0, "{name}: {did:?}");
        });
    }
}

/// `mm/call/mempolicy.rs`: a zone's lock for each frame where there is a policy, and none without.
#[test]
fn a_fault_with_a_policy_takes_a_zone_lock() {
    for policy in [None, Some(Policy::new(PolicyMode::Bind, NodeMask::of(1)))] {
        let each = Each::of(of("linux-6.15"), |w, pages| {
            w.map(0, 16);
            if let Some(policy) = policy {
                let bound = w.mm.mbind(page(0), 16 * PAGE, policy, Misplaced::Stay);
                assert_eq!(bound, Ok(()));
            }
            w.touch(15);
            w.did(|| (0..pages).for_each(|n| w.touch(n)))
        });
        let locks = each.adds(|did| did.lock("zone lock"));
        assert_eq!(locks, u64::from(policy.is_some()), "{each:?}");
    }
}

/// A file of 64 pages, all cached, mapped at page 512.
fn map_file<'w>(w: &'w World<'_>) -> FileHandle<'w, M> {
    let file = w.sys.new_file(64 * PAGE).expect("memory");
    file.allocate(0, 64 * PAGE).expect("memory");
    let request = MapRequest::new(Place::Fixed(page(512)), 64 * PAGE, Prot::READ);
    let thread = w.mm.thread();
    let mapped = thread.mmap_file(&request, &file, 0, Sharing::Shared);
    assert_eq!(mapped, Ok(page(512)));
    file
}

fn file_faults(around: FaultAround) -> Did {
    let config = Config {
        around,
        ..of("linux-6.15")
    };
    with(config, |w| {
        let _file = map_file(w);
        w.load(512);
        w.did(|| w.load(512 + 32))
    })
}

/// `mm/pages/file/mod.rs`: the page's lock twice, its reference and its map count.
#[test]
fn a_fault_on_a_cached_page_is_four_exchanges_on_its_frame() {
    let did = file_faults(FaultAround::Order0);
    assert_eq!(did.to("frame", "flags").exchanges, 2, "{did:?}");
    assert_eq!(did.to("frame", "refs").exchanges, 1, "{did:?}");
    assert_eq!(did.to("frame", "maps").exchanges, 1, "{did:?}");
    let file = did.all("file");
    assert_eq!((file.stores, file.exchanges), (0, 0), "{did:?}");
}

/// `mm/fault/around.rs`: the same for each page more, and a store into the table.
#[test]
fn a_page_around_is_its_own_line_and_a_store() {
    let (one, many) = (
        file_faults(FaultAround::Order0),
        file_faults(FaultAround::Order4),
    );
    for (object, field, each) in [
        ("frame", "flags", 2),
        ("frame", "refs", 1),
        ("frame", "maps", 1),
    ] {
        let more = many.to(object, field).exchanges - one.to(object, field).exchanges;
        assert_eq!(more, 15 * each, "{field}: {many:?}");
    }
    let stores = |did: &Did| did.to("pte table", "entry").stores;
    assert_eq!(stores(&many) - stores(&one), 15, "{many:?}");
    assert_eq!(many.lock("page-table lock of a table"), 1, "{many:?}");
    assert_eq!(many.to("file", "index").exchanges, 0);
}

/// `pgtable/tlb.rs`: what is buffered is used without a look at any shared memory.
#[test]
fn a_hit_in_the_translation_buffer_touches_no_table() {
    with(of("linux-6.15"), |w| {
        w.map_and_touch(0, 1);
        let did = w.did(|| w.touch(0));
        assert_eq!(did.all("pte table").loads, 0, "{did:?}");
        assert_eq!(did.exchanges(), 0, "{did:?}");
    });
}
