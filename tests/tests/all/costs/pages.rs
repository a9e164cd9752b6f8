//! Pages that are moved, swapped out, scanned.

use super::count::{Each, M, PAGE, World, of, page};
use minflt_addr::Pfn;
use minflt_host::HostInstance;
use minflt_mm::config::Balancing;
use minflt_mm::{Advice, Config, IoError, NumaKnobs, Swap, SwapDevice, Which};
use minflt_pgtable::Mmu;
use minflt_tests::world::{boot_on, machine};

fn move_to(w: &World<'_>, pages: u64, node: u32) {
    let all = (0..pages).map(|n| (page(n), node));
    let left =
        w.mm.move_pages(all, Which::Own, |status| assert_eq!(status, Ok(node)));
    assert_eq!(left, Ok(0));
}

/// `mm/call/move_pages.rs`, `mm/pages/migrate.rs`, `mm/pages/rmap/owner.rs`,
/// `mm/pages/rmap/away.rs`.
#[test]
fn moving_a_page_is_two_exchanges_an_entry_and_the_reverse_maps_lock_twice() {
    let each = Each::of(of("linux-4.13"), |w, pages| {
        w.map_and_touch(0, 16);
        move_to(w, 1, 1);
        move_to(w, 1, 0);
        w.did(|| move_to(w, pages, 1))
    });
    for (count, what, number) in [
        (
            2,
            "entries",
            each.adds(|did| did.to("pte table", "entry").exchanges),
        ),
        (
            2,
            "holds of mmap_lock",
            each.adds(|did| did.lock("mmap_lock")),
        ),
        (
            4,
            "a hold to take entries away, and one to put them back",
            each.adds(|did| did.to("anon_vma", "lock").exchanges),
        ),
        (
            2,
            "a reference to the anon_vma",
            each.adds(|did| did.to("anon_vma", "refs").exchanges),
        ),
        (
            4,
            "holds of the table",
            each.adds(|did| did.lock("page-table lock of a table")),
        ),
    ] {
        assert_eq!(number, count, "{what}: {each:?}");
    }
}

/// `mm/memory/swap/mod.rs`.
#[test]
fn swap_is_three_exchanges_on_the_slot_each_way() {
    let out = |w: &World<'_>, from: u64, pages: u64| {
        let done = w.mm.madvise(page(from), pages * PAGE, Advice::PageOut);
        assert_eq!(done, Ok(()));
    };
    let slot = |each: &Each| each.adds(|did| did.all("swap slot").exchanges);
    let entries = |each: &Each| each.adds(|did| did.to("pte table", "entry").exchanges);
    let going = Each::of(of("linux-4.13"), |w, pages| {
        w.map_and_touch(0, 16);
        out(w, 15, 1);
        w.did(|| out(w, 0, pages))
    });
    // Taken, counted, written. The accessed bit, and the page itself.
    assert_eq!((slot(&going), entries(&going)), (3, 2), "{going:?}");
    let coming = Each::of(of("linux-4.13"), |w, pages| {
        w.map_and_touch(0, 16);
        out(w, 0, 16);
        w.touch(15);
        w.did(|| (0..pages).for_each(|n| w.load(n)))
    });
    assert_eq!((slot(&coming), entries(&coming)), (3, 1), "{coming:?}");
}

/// A swap device that keeps nothing.
struct Nowhere;

impl SwapDevice<M> for Nowhere {
    fn read_slot(&self, at: &HostInstance, _slot: u64, pfn: Pfn) -> Result<(), IoError> {
        M::clear(at, pfn);
        Ok(())
    }

    fn write_slot(&self, _at: &HostInstance, _slot: u64, _pfn: Pfn) -> Result<(), IoError> {
        Ok(())
    }
}

/// `mm/memory/swap/mod.rs`, `mm/memory/swap/search.rs`: of a device with one free slot, as far away
/// as one can be, a search looks at a few groups, and at a word of bits for each 4,096 slots.
#[test]
fn the_last_free_slot_is_found_by_the_bits_of_groups() {
    const SLOTS: u64 = 3 << 12;
    let machine = machine(1, 80 << 20);
    let swap = Swap::Device {
        device: &Nowhere,
        pages: SLOTS,
    };
    let sys = boot_on::<M>(machine, of("linux-6.15"), swap);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let w = World { sys: &sys, mm: &mm };
    let out = |n: u64, pages: u64| {
        let done = mm.madvise(page(n), pages * PAGE, Advice::PageOut);
        assert_eq!(done, Ok(()));
    };
    w.map_and_touch(0, SLOTS);
    out(0, SLOTS);
    assert_eq!(sys.swap_used(), SLOTS);
    w.map_and_touch(SLOTS, 2);
    // The search goes on behind the last slot, so this one is the last it comes to.
    for n in [SLOTS - 1, SLOTS - 2] {
        mm.munmap(page(n), PAGE).expect("mapped");
        assert_eq!(sys.swap_used(), SLOTS - 1);
        let did = w.did(|| out(2 * SLOTS - 1 - n, 1));
        assert_eq!(sys.swap_used(), SLOTS, "{n}");
        let (slots, bits) = (did.all("swap slot"), did.all("swap groups"));
        assert!(slots.loads <= 4 * 64, "{n}: {slots:?}");
        assert!(bits.loads <= SLOTS / 4096 + 8, "{n}: {bits:?}");
    }
    // With none free nothing is looked at.
    w.map_and_touch(2 * SLOTS, 2);
    out(2 * SLOTS, 1);
    let did = w.did(|| out(2 * SLOTS + 1, 1));
    assert_eq!(did.all("swap slot").loads, 0, "{did:?}");
    drop(mm);
    sys.check_ledger(&[]).expect("nothing is left");
    assert_eq!(sys.swap_used(), 0);
}

/// `mm/pages/numa/mod.rs`, `mm/fault/numa.rs`.
#[test]
fn a_scan_is_an_exchange_an_entry_under_one_lock_and_a_hint_a_fault() {
    let config = Config {
        balancing: Balancing::On,
        ..of("linux-4.13")
    };
    let scan = |w: &World<'_>, now_ns: u64| {
        w.sys.set_numa_knobs(NumaKnobs {
            scan_delay_ns: 1000,
            scan_period_min_ns: 1000,
            scan_period_max_ns: 1000,
            ..NumaKnobs::default()
        });
        w.mm.thread().tick(now_ns);
    };
    let scans = Each::of(config, |w, pages| {
        w.map_and_touch(0, pages);
        scan(w, 1);
        w.did(|| scan(w, 10_000))
    });
    for (count, number) in [
        (1, scans.adds(|did| did.to("pte table", "entry").exchanges)),
        (0, scans.adds(|did| did.lock("page-table lock of a table"))),
        (
            0,
            scans.adds(|did| did.to("mm", "flushes_pending").exchanges),
        ),
    ] {
        assert_eq!(number, count, "{scans:?}");
    }
    let hints = Each::of(config, |w, pages| {
        w.map_and_touch(0, 16);
        scan(w, 1);
        scan(w, 10_000);
        w.load(15);
        w.did(|| (0..pages).for_each(|n| w.load(n)))
    });
    for (count, number) in [
        (1, hints.adds(|did| did.to("pte table", "entry").exchanges)),
        (1, hints.adds(|did| did.to("frame", "flags").exchanges)),
        (2, hints.adds(|did| did.to("mm", "balance").exchanges)),
    ] {
        assert_eq!(number, count, "{hints:?}");
    }
}
